//! The command `quorate exec`, which runs a command while holding a lock.

mod wanted;

use crate::{
    args::ExecArgs,
    config::Config,
    connect,
    exit::{CONFIG, FAILURE, Failure, LEASE_LOST, NO_QUORUM},
    guard::Guard,
    log,
    progress::Progress,
    supervisor::{CommandSpec, EndedBy, Exit, ForwardedSignals, Status, Supervisor},
};
use quorate::{
    env::{BootTime, Env},
    lease::{AcquireError, Heartbeat, Lease},
    node::{Owner, Resource},
    plain::plain,
    quorum::{NoMajority, NodeStatus, Quorum, QuorumConfig},
};
use std::{cell::Cell, time::Duration};
use wanted::{Contended, Held, Wanted};

/// The longest wait for a majority of nodes that vote, if `--wait` is not given. The wait for a lock
/// that another worker holds has no limit in that case.
const QUORUM_PATIENCE: Duration = Duration::from_secs(10);
/// The longest wait for the first connections, after which the first attempt is made anyway.
const FIRST_HANDSHAKE: Duration = Duration::from_secs(1);
/// The time between two checks of the nodes during the wait.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The longest name of a holder that is shown, in bytes.
const NAME_MAX: usize = 200;

/// Runs the command, and returns the exit status.
pub(crate) async fn exec(args: &ExecArgs, config: &Config) -> Result<u8, Failure> {
    let mut signals = ForwardedSignals::catch().map_err(|error| Failure::new(FAILURE, error))?;
    let quorum = connect::quorum(config, config.settings.clone())?;
    // The heartbeat may be silent for a third of the TTL, because that is the time between two extensions.
    let heartbeat = Heartbeat::new(quorum.env(), args.ttl.unwrap_or(config.lease.ttl) / 3);
    let lease = tokio::select! { biased;
        signal = signals.next() => {
            Err(Failure::new(signal_code(signal), "ended by a signal while waiting for the lock"))
        }
        lease = acquire(args, config, &quorum, &heartbeat) => lease,
    };
    let code = match lease {
        Ok(held) => under_lease(args, config, &quorum, held, &heartbeat, &mut signals).await,
        Err(failure) => Err(failure),
    };
    quorum.close().await;
    code
}

async fn acquire(
    args: &ExecArgs,
    config: &Config,
    quorum: &Quorum,
    heartbeat: &Heartbeat,
) -> Result<Held, Failure> {
    let env = quorum.env();
    let wanted = Wanted::new(args, config, quorum, heartbeat);
    let wait = if args.no_wait { Some(Duration::ZERO) } else { args.wait };
    let ends = wait.map(|wait| env.now() + wait);
    // After this wait, the first attempt finds open connections. If no connection opens, the attempt itself
    // reports the reasons.
    let _ = quorum.ready(wait.unwrap_or(FIRST_HANDSHAKE).max(FIRST_HANDSHAKE)).await;
    let holds = wanted.resource(args);
    let mut waiting = Waiting { args, quorum, holds, reported: args.no_wait, quorum_seen: env.now() };
    match wanted.attempt().await {
        Ok(Ok(held)) => return Ok(held),
        Ok(Err(Contended(holder))) => waiting.report(holder.as_ref().map(Owner::worker)),
        Err(error) if error.is_permanent() => return Err(refusal(&error, args, quorum)),
        Err(_) => {}
    }
    // One call covers the whole wait, so the library logs the reason for the wait only once. The nodes log each
    // change of their states.
    let waits = wanted.acquire(ends.map(|ends| env.now().until(ends)));
    let what = format!("waiting for the lock {}", plain(&args.lock, NAME_MAX));
    let progress = Progress::new(env, &what, ends.map(|ends| env.now().until(ends)));
    let wait = async {
        tokio::select! { biased;
            held = waits => held.map_err(|error| refusal(&error, args, quorum)),
            () = waiting.watch(env, ends.is_none()) => last_attempt(&wanted, args, quorum).await,
        }
    };
    progress.during(wait).await
}

/// Makes a last attempt without waiting. Its error has the reason for each node.
async fn last_attempt(wanted: &Wanted, args: &ExecArgs, quorum: &Quorum) -> Result<Held, Failure> {
    wanted.acquire(Some(Duration::ZERO)).await.map_err(|error| match error {
        // The nodes name a holder, but too few of them would grant the lock after it.
        AcquireError::Contended { resource, report } if is_away(&quorum.nodes()) => {
            refusal(&AcquireError::Unreachable { resource, report }, args, quorum)
        }
        error => refusal(&error, args, quorum),
    })
}

/// Watches the nodes during the wait for the lock, to report the holder and to notice a missing majority.
struct Waiting<'a> {
    args: &'a ExecArgs,
    quorum: &'a Quorum,
    /// The lock whose holder is reported; `None` for one of several slots.
    holds: Option<Resource>,
    /// True once the holder of the lock was reported. It is true from the beginning if the command does not
    /// wait.
    reported: bool,
    /// The last time at which a majority of the nodes voted, or was in quarantine.
    quorum_seen: BootTime,
}

impl Waiting<'_> {
    /// Reports the holder of the lock, once. If `gives_up` is true, returns after [`QUORUM_PATIENCE`] without a
    /// majority of nodes that vote. A node in quarantine counts as one that votes, because its quarantine ends by
    /// itself.
    async fn watch(&mut self, env: &Env, gives_up: bool) {
        loop {
            env.sleep(LOOK_EVERY).await;
            if !is_away(&self.quorum.nodes()) {
                self.quorum_seen = env.now();
                self.look_at_holder().await;
            } else if gives_up && env.now().since(self.quorum_seen) >= QUORUM_PATIENCE {
                return;
            }
        }
    }

    async fn look_at_holder(&mut self) {
        let Some(resource) = self.holds.as_ref().filter(|_| !self.reported) else { return };
        if let Ok(seen) = self.quorum.inspect(resource).await
            && let Some(holder) = seen.holder
        {
            self.report(Some(holder.worker()));
        }
    }

    fn report(&mut self, holder: Option<&str>) {
        if !std::mem::replace(&mut self.reported, true) {
            let holder = holder.map_or_else(|| "another worker".to_owned(), |name| plain(name, NAME_MAX));
            let lock = plain(&self.args.lock, NAME_MAX);
            log::say(&match self.args.slots {
                Some(slots) => format!("quorate: waiting for {lock}: all {slots} slots are held"),
                None => format!("quorate: waiting for {lock}: held by {holder}"),
            });
        }
    }
}

/// Returns whether the nodes that vote, or will vote once their quarantine ends, are no majority.
fn is_away(nodes: &[NodeStatus]) -> bool {
    let votes = |node: &&NodeStatus| node.votes() || node.quarantined_until().is_some();
    nodes.iter().filter(votes).count() < quorate::internals::majority(nodes.len())
}

fn refusal(error: &AcquireError, args: &ExecArgs, quorum: &Quorum) -> Failure {
    match error {
        AcquireError::Setting(_) => Failure::new(CONFIG, format!("--lock, --ttl or --slots: {error}")),
        AcquireError::Contended { .. } => Failure::new(args.conflict_exit_code, error),
        AcquireError::Unreachable { resource, report } | AcquireError::Untrusted { resource, report } => {
            let what = format!("cannot reach a quorum for {}", resource.key());
            let nodes = quorum.nodes();
            if connect::is_quorum(&nodes) {
                return connect::no_quorum(&what, report);
            }
            // A round that failed early does not have the answers of all nodes. So the states of the nodes are
            // reported instead.
            Failure::new(NO_QUORUM, format!("{what}: {}", connect::explain(&nodes)))
        }
        _ => Failure::new(FAILURE, error),
    }
}

async fn under_lease(
    args: &ExecArgs,
    config: &Config,
    quorum: &Quorum,
    held: Held,
    heartbeat: &Heartbeat,
    signals: &mut ForwardedSignals,
) -> Result<u8, Failure> {
    let grace = args.ttl.map_or(config.lease.step_down_grace, QuorumConfig::default_grace);
    let guard = Guard::new(held.lease.ttl(), grace);
    let (program, rest) = args.command.split_first().ok_or_else(|| Failure::new(FAILURE, "no command"))?;
    let command = held.describe_to(CommandSpec::new(program).args(rest).job_control(true));
    let lease = held.lease;
    let deadline = guard.deadline(lease.valid_until().unwrap_or_default());
    let mut supervisor = match Supervisor::start(quorum.env(), command, deadline).await {
        Ok(supervisor) => supervisor,
        Err(error) => {
            let code = if lease.is_valid() { error.code() } else { LEASE_LOST };
            release(lease).await;
            return Err(Failure::new(code, error));
        }
    };
    // This closure runs in each iteration of the loop that guards the command. An iteration takes much less
    // time than the longest silence that the heartbeat allows. So the closure also calls the heartbeat.
    let stall = Stall::new(quorum.env());
    let look = || {
        heartbeat.beat();
        stall.look(quorum.env());
        lease.valid_until()
    };
    let exit = guard.watch(quorum.env(), &mut supervisor, look, lease.step_down_token(), Some(signals)).await;
    stall.look(quorum.env());
    let report = lease.failed_extension();
    let reason = lost_reason(stall.longest.get(), heartbeat.max_silence(), report, &quorum.nodes());
    let kept = if exit.is_complete() || !lease.is_valid() {
        release(lease).await;
        None
    } else {
        let left = lease.remaining();
        lease.end_without_release();
        Some(left)
    };
    verdict(&exit, kept, &reason, args)
}

/// Measures the longest time between two iterations of the loop that guards the command.
struct Stall {
    last: Cell<BootTime>,
    longest: Cell<Duration>,
}

impl Stall {
    fn new(env: &Env) -> Self {
        Self { last: Cell::new(env.now()), longest: Cell::default() }
    }

    fn look(&self, env: &Env) {
        let now = env.now();
        self.longest.set(self.longest.get().max(self.last.replace(now).until(now)));
    }
}

/// Returns the reason why a lease was not extended, as text. `stalled` is the longest pause during which this
/// process did not run. `allowed` is the longest pause with which a lease can still be extended in time.
/// `report` has the answer of each node to the extensions that failed.
fn lost_reason(
    stalled: Duration,
    allowed: Duration,
    report: Option<&NoMajority>,
    nodes: &[NodeStatus],
) -> String {
    if stalled > allowed {
        return format!(
            "quorate did not run for {stalled:.1?}: it was stopped, or the machine was suspended or overloaded"
        );
    }
    match report {
        Some(report) => format!("too few nodes extended it in time: {}", connect::outcomes(report)),
        None => connect::explain(nodes),
    }
}

/// Returns the exit status of the command, or a failure in its place. `kept` is the remaining time of a lease
/// that was not released because processes of the command may still run.
fn verdict(exit: &Exit, kept: Option<Duration>, reason: &str, args: &ExecArgs) -> Result<u8, Failure> {
    let lock = &args.lock;
    for survivor in &exit.survivors {
        log::say(&format!(
            "quorate: cannot end a process that the command started, and it still runs: {survivor}"
        ));
    }
    if let Some(ended) = exit.background_text() {
        log::say(&format!("quorate: the command has ended, and {ended}"));
    }
    let kept = kept.map_or_else(String::new, |left| kept_text(lock, left));
    let ended = match exit.status {
        _ if !exit.survivors.is_empty() => "some processes that the command started could not be ended",
        Status::Unknown => "its exit status is unknown",
        _ => "the command has been ended",
    };
    match exit.ended_by {
        Some(EndedBy::SupervisorGone) => Err(Failure::new(
            if exit.survivors.is_empty() { FAILURE } else { LEASE_LOST },
            format!(
                "the supervisor of the command was killed; {ended}; processes that had left its process group may still \
                 run{kept}"
            ),
        )),
        Some(EndedBy::SupervisorSilent) => Err(Failure::new(
            if exit.survivors.is_empty() { FAILURE } else { LEASE_LOST },
            format!(
                "the supervisor of the command did not answer (it was stopped, or the machine is overloaded) and has been \
                 killed, with everything that the command had started; {ended}{kept}"
            ),
        )),
        Some(_) => Err(Failure::new(
            LEASE_LOST,
            format!(
                "the lease on {lock} was lost while the command ran, which {}: {reason}{kept}",
                match (exit.survivors.is_empty(), exit.killed, exit.status) {
                    (false, ..) => "could not be ended, and runs without the lease",
                    (true, true, _) => "has been ended (SIGKILL)",
                    (true, false, Status::Code(_)) => "has ended, possibly too late",
                    (true, false, _) => "has been ended (SIGTERM)",
                },
            ),
        )),
        None if !exit.survivors.is_empty() => Err(Failure::new(
            LEASE_LOST,
            format!("the command has ended, but some processes that it started still run{kept}"),
        )),
        None if exit.status == Status::Unknown => Err(Failure::new(
            FAILURE,
            "the command has ended with an unknown exit status: another process reaped it",
        )),
        None => Ok(exit.code()),
    }
}

/// Describes a lease that is not released, because processes of the command may run.
fn kept_text(lock: &str, left: Duration) -> String {
    let left =
        humantime::format_duration(Duration::from_millis(u64::try_from(left.as_millis()).unwrap_or(0)));
    format!("; the lease on {lock} is not released, and expires in {left}")
}

async fn release(lease: Lease) {
    let held = lease.is_valid();
    if let Err(error) = lease.release().await
        && held
    {
        tracing::warn!("{error}");
    }
}

fn signal_code(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(FAILURE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate::{
        node::{Cause, Refusal},
        quorum::{NodeOutcome, NodeState, VoteRejection},
    };

    fn node(state: NodeState) -> NodeStatus {
        connect::tests::node("a", state)
    }

    #[test]
    fn a_lost_lease_is_explained_by_a_stall_or_by_the_nodes() {
        let second = Duration::from_secs(1);
        let away = || node(NodeState::Unreachable(Cause::TimedOut));
        let nodes = [node(NodeState::Trusted), node(NodeState::Trusted), away()];
        let stalled = lost_reason(5 * second, second, None, &nodes);
        assert!(stalled.starts_with("quorate did not run for 5.0s"), "{stalled}");
        let full = NodeOutcome::Refused(Refusal::Failed("OOM command not allowed".into()));
        let granted = ("b".into(), NodeOutcome::Granted);
        let report = NoMajority::new(2, vec![("a".into(), full.clone()), granted, ("c".into(), full)]);
        let refused = lost_reason(second, second, Some(&report), &nodes);
        let expected = "too few nodes extended it in time: 1 of 3 nodes agreed, 2 required\n  a: refused: the node failed: OOM";
        assert!(refused.starts_with(expected), "{refused}");
        let explained = lost_reason(second, second, None, &[node(NodeState::Trusted), away(), away()]);
        assert!(explained.starts_with("1 of 3 nodes vote, 2 required\n  a: "), "{explained}");
    }

    #[test]
    fn a_quorum_is_away_when_a_majority_does_not_vote() {
        let away = || node(NodeState::Unreachable(Cause::TimedOut));
        assert!(!is_away(&[node(NodeState::Trusted), node(NodeState::Trusted), away()]));
        assert!(is_away(&[node(NodeState::Trusted), node(NodeState::Connecting), away()]));
        // A node that answers and refuses does not count, and a quarantine ends by itself.
        let refuses = || node(NodeState::Refused(VoteRejection::Unable("OOM".into())));
        assert!(is_away(&[node(NodeState::Trusted), refuses(), refuses()]));
        assert!(!is_away(&[node(NodeState::Trusted), node(NodeState::Trusted), refuses()]));
        let why = VoteRejection::Unmet(quorate::quorum::QuarantineReason::Restarted);
        let waits = || node(NodeState::Quarantined { until: BootTime::default(), why: why.clone() });
        assert!(!is_away(&[waits(), waits(), refuses()]));
    }
}
