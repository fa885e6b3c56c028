//! The command `quorate nodes trust`.

use super::LINE_MAX;
use crate::{
    args::TrustArgs,
    config::Config,
    connect,
    exit::{Failure, NO_QUORUM, REFUSED},
    node_memory::{self, NodeMemory, TRUST},
    operator, show,
};
use quorate::{
    node::Cause,
    quorum::{NoMajority, NodeOutcome, NodeState, NodeStatus, QuarantineReason, Quorum, VoteRejection},
};
use quorate_operator::Entry;
use std::time::Duration;

/// The number of attempts to trust the nodes. If a node does not answer in time, another attempt is made.
const ATTEMPTS: usize = 4;
/// The time between two attempts, in which the worker may connect to a node again.
const AGAIN: Duration = Duration::from_millis(250);

/// The danger, and the remedy.
const ADVICE: &str = "a worker may hold a lease that the other nodes have lost: to trust them now can make two leaders\n\
    nothing was changed; wait: each node votes by itself once its quarantine is over (`quorate status` shows when)\n\
    only if you are certain that no worker runs and every lease has ended: `quorate nodes trust --force`";

/// The sign of earlier use of a node that votes.
const VOTES: &str = "it votes already, and other nodes do not";
/// The remedy if an earlier call has trusted only some nodes of a new cluster. This looks like a cluster in use of which
/// the other nodes have lost their data.
const PARTLY_TRUSTED: &str = "no node remembers a leader, a held lock or an operation. If an earlier `quorate nodes trust` of these \
    new nodes did not reach them all, --force is right";

/// Ends the quarantine of every node. Refuses if a node shows that the cluster is or was in use, unless `--force` is
/// given.
pub(crate) async fn trust(args: &TrustArgs, config: &Config) -> Result<u8, Failure> {
    let quorum = connect::quorum(config, config.settings.clone())?;
    connect::meet(&quorum).await;
    let before = quorum.nodes();
    if !args.force
        && let Err(failure) = check_unused(config, &before).await
    {
        quorum.close().await;
        return Err(failure);
    }
    let trusted = trust_all(&quorum).await;
    let nodes = quorum.nodes();
    let names: Vec<String> = nodes.iter().map(|node| node.name.to_string()).collect();
    let error = trusted.as_ref().err().map(|error| connect::no_quorum("not every node", error).to_string());
    let success = if args.force { "every node votes, by --force" } else { "every node votes" };
    let result = error.as_deref().map_or(Ok(success), Err);
    let entry = Entry { action: TRUST, target: &names.join(","), group: None, result };
    operator::note(&operator::of(&args.operator, config), &quorum, &entry).await;
    quorum.close().await;
    for (node, before) in nodes.iter().zip(&before) {
        let state = match node.reason() {
            None if before.votes() => "votes already".to_owned(),
            None => "votes".to_owned(),
            Some(reason) => format!(
                "does not vote: {}",
                show::line(&connect::without_name(&node.name, &reason), LINE_MAX)
            ),
        };
        show::print(&format!("{}: {state}\n", node.name))?;
    }
    match trusted {
        Ok(()) => Ok(0),
        // The lines above show each node's last known state. A node may be shown as voting although it has not
        // answered this request, so a failure is also reported.
        Err(error) => Err(connect::no_quorum("cannot trust every node", &error)),
    }
}

async fn trust_all(quorum: &Quorum) -> Result<(), NoMajority> {
    let mut trusted = quorum.trust_nodes().await;
    for _ in 1..ATTEMPTS {
        if !trusted.as_ref().is_err_and(was_late) {
            break;
        }
        quorum.env().sleep(AGAIN).await;
        trusted = quorum.trust_nodes().await;
    }
    trusted
}

fn was_late(error: &NoMajority) -> bool {
    let late =
        |outcome: &NodeOutcome| matches!(outcome, NodeOutcome::Unreachable(Cause::TimedOut | Cause::Closed));
    error.count(late) > 0
}

/// Checks that no node shows earlier use. If no node is in quarantine, no vote can be added, and nothing is checked.
async fn check_unused(config: &Config, nodes: &[NodeStatus]) -> Result<(), Failure> {
    if !nodes.iter().any(is_waiting) {
        return Ok(());
    }
    let memories = node_memory::of_each(config, config.group.as_deref()).await?;
    let (mut used, mut unknown, mut only_vote) = (Vec::new(), Vec::new(), true);
    for (node, memory) in nodes.iter().zip(&memories) {
        let signs = signs(node, memory.as_ref().ok());
        if !signs.is_empty() {
            only_vote &= signs.iter().all(|sign| sign == VOTES);
            used.push(format!("  {}: {}", node.name, show::line(&signs.join("; "), LINE_MAX)));
        } else if let Err(why) = memory {
            let why = show::line(&connect::without_name(&node.name, why), LINE_MAX);
            unknown.push(format!("  {}: {why}", node.name));
        }
    }
    match (used.is_empty(), unknown.is_empty()) {
        (false, _) => {
            let mut text = format!("refused: the cluster is or was in use\n{}\n{ADVICE}", used.join("\n"));
            if only_vote && unknown.is_empty() {
                text += &format!("\n{PARTLY_TRUSTED}");
            }
            Err(Failure::new(REFUSED, text))
        }
        (true, false) => {
            let text = format!(
                "cannot trust the nodes: not every node can be asked, and it may remember leases\n{}\n\
                 nothing was changed; start it, or correct the list; if no worker has used the nodes: \
                 `quorate nodes trust --force`",
                unknown.join("\n")
            );
            Err(Failure::new(NO_QUORUM, text))
        }
        (true, true) => Ok(()),
    }
}

/// Returns whether the node would vote if an operator trusted it.
fn is_waiting(node: &NodeStatus) -> bool {
    node.quarantined_until().is_some()
}

/// Describes everything that shows earlier use of a node. The caller knows that at least one node does not vote.
fn signs(node: &NodeStatus, memory: Option<&NodeMemory>) -> Vec<String> {
    let state = match &node.state {
        NodeState::Trusted => Some(VOTES),
        NodeState::Quarantined { why: VoteRejection::Quarantined { reason, .. }, .. } => match reason {
            QuarantineReason::Restarted => Some("it restarted with data, and had a marker before"),
            QuarantineReason::Copied => Some("its data was copied from another server or directory"),
            QuarantineReason::RolledBack => Some("it has older data than was seen of it"),
            QuarantineReason::Jumped => Some("it voted before its clock stepped"),
            QuarantineReason::Unmarked | QuarantineReason::Marked => None,
        },
        _ => None,
    };
    state.map(str::to_owned).into_iter().chain(memory.and_then(NodeMemory::of_use)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate::env::BootTime;

    fn node(state: NodeState) -> NodeStatus {
        connect::tests::node("redis://a:6379/0", state)
    }

    fn waits(reason: QuarantineReason) -> NodeStatus {
        let why = VoteRejection::Quarantined { reason, remaining: Duration::from_secs(30) };
        node(NodeState::Quarantined { until: BootTime::default(), why })
    }

    #[test]
    fn a_new_node_shows_no_earlier_use() {
        for reason in [QuarantineReason::Unmarked, QuarantineReason::Marked] {
            assert!(is_waiting(&waits(reason)));
            assert!(signs(&waits(reason), Some(&NodeMemory::default())).is_empty(), "{reason:?}");
        }
        let away = node(NodeState::Unreachable(Cause::TimedOut));
        assert!(!is_waiting(&away) && signs(&away, None).is_empty());
    }

    #[test]
    fn a_node_that_voted_shows_earlier_use() {
        for (status, sign) in [
            (node(NodeState::Trusted), "votes already"),
            (waits(QuarantineReason::Restarted), "restarted with data"),
            (waits(QuarantineReason::Copied), "copied from another server"),
            (waits(QuarantineReason::RolledBack), "older data than was seen"),
            (waits(QuarantineReason::Jumped), "clock stepped"),
        ] {
            let signs = signs(&status, None).join("; ");
            assert!(signs.contains(sign), "{signs}");
        }
    }
}
