//! `quorate status` and `quorate nodes admit`.

use crate::{
    args::{AdmitArgs, StatusArgs},
    config::Config,
    connect,
    exit::{CONFIG, Failure, NO_QUORUM},
    show,
};
use quorate::{
    env::BootTime,
    internals::majority,
    lease::Inspection,
    node::{Cause, Resource},
    quorum::{NodeOutcome, NodeState, NodeStatus, Quorum, QuorumConfig, TrustError},
};
use serde::Serialize;
use std::time::Duration;

/// How long a handshake may take before its node is called away.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);

/// How often an admission is tried where a node did not answer in time: nobody waits for it meanwhile, as a
/// round would.
const ADMISSIONS: usize = 4;
/// Between two of them; time for another connection.
const ADMIT_AGAIN: Duration = Duration::from_millis(250);

/// The most bytes of a worker's name or an owner token that are shown.
const NAME_MAX: usize = 200;
/// And of a line.
const TEXT_MAX: usize = 4_096;

/// Everything that `status` shows.
#[derive(Debug, Serialize)]
struct Page {
    prefix: String,
    nodes_from: String,
    quorum: bool,
    nodes: Vec<NodeLine>,
    resources: Vec<ResourceLine>,
}

#[derive(Debug, Serialize)]
struct NodeLine {
    name: String,
    reachable: bool,
    trusted: bool,
    why: Option<String>,
    votes_in_ms: Option<u64>,
    version: Option<String>,
    round_trip_ms: Option<f64>,
}

#[derive(Debug, Serialize)]
struct ResourceLine {
    resource: String,
    held: Option<bool>,
    holder: Option<String>,
    owner: Option<String>,
    /// For whom it is kept that was transferred.
    reserved_for: Option<String>,
    remaining_ms: Option<u64>,
    fencing_token: Option<u64>,
    done: Option<String>,
    error: Option<String>,
}

/// Shows the nodes and the resources asked for; the exit status says whether a majority votes.
pub(crate) async fn status(args: &StatusArgs, config: &Config) -> Result<u8, Failure> {
    let resources = resources(args, config)?;
    let quorum = connect::quorum(config, QuorumConfig { only_looks: true, ..config.setup.clone() })?;
    let nodes = quorum.met(PATIENCE).await;
    let now = quorum.env().now();
    let mut page = Page {
        prefix: config.prefix.to_string(),
        nodes_from: config.nodes_from.to_string(),
        quorum: connect::votes(&nodes) >= majority(nodes.len()),
        nodes: nodes.iter().map(|node| line(node, now)).collect(),
        resources: Vec::new(),
    };
    for resource in &resources {
        page.resources.push(look(&quorum, resource).await);
    }
    quorum.close().await;
    let text = if args.json { show::json(&page)? } else { page.for_people() };
    show::print(&text);
    Ok(if page.quorum { 0 } else { NO_QUORUM })
}

/// Ends the quarantine of every reachable node.
pub(crate) async fn admit(_args: &AdmitArgs, config: &Config) -> Result<u8, Failure> {
    let quorum = connect::quorum(config, config.setup.clone())?;
    quorum.met(PATIENCE).await;
    let mut admitted = quorum.trust_nodes().await;
    for _ in 1..ADMISSIONS {
        if !admitted.as_ref().is_err_and(was_late) {
            break;
        }
        quorum.env().sleep(ADMIT_AGAIN).await;
        admitted = quorum.trust_nodes().await;
    }
    let nodes = quorum.nodes();
    let now = quorum.env().now();
    quorum.close().await;
    for node in &nodes {
        let line = line(node, now);
        match &line.why {
            None => show::print(&format!("{}: votes\n", line.name)),
            Some(why) => {
                show::print(&format!("{}: does not vote: {}\n", line.name, show::line(why, TEXT_MAX)));
            }
        }
    }
    match admitted {
        Ok(()) => Ok(0),
        Err(_) => Err(Failure::new(NO_QUORUM, format!("not every node votes: {}", connect::explain(&nodes)))),
    }
}

fn was_late(error: &TrustError) -> bool {
    let late =
        |outcome: &NodeOutcome| matches!(outcome, NodeOutcome::Unreachable(Cause::TimedOut | Cause::Closed));
    error.report.count(late) > 0
}

/// What a name on the command line stands for: a lock, `election/GROUP` or `claim/SET/ID`.
pub(crate) fn resource(name: &str) -> Result<Resource, Failure> {
    let parsed = match (name.strip_prefix("election/"), name.strip_prefix("claim/")) {
        (Some(group), _) => Resource::election(group),
        (None, Some(claim)) => {
            let (set, id) = claim.split_once('/').unwrap_or((claim, ""));
            Resource::claim(set, id)
        }
        (None, None) => Resource::lock(name),
    };
    parsed.map_err(|error| Failure::new(CONFIG, error))
}

fn resources(args: &StatusArgs, config: &Config) -> Result<Vec<Resource>, Failure> {
    match (&config.group, args.resources.is_empty()) {
        (Some(group), true) => {
            Ok(vec![Resource::election(group).map_err(|error| Failure::new(CONFIG, error))?])
        }
        _ => args.resources.iter().map(|name| resource(name)).collect(),
    }
}

fn line(node: &NodeStatus, now: BootTime) -> NodeLine {
    let (why, until) = match &node.state {
        NodeState::Trusted => (None, None),
        NodeState::Connecting => (Some("no handshake yet".to_owned()), None),
        NodeState::Quarantined { until, why } => (Some(why.to_string()), Some(*until)),
        NodeState::Refused(why) => (Some(why.to_string()), None),
        NodeState::Unreachable(cause) => (Some(cause.to_string()), None),
    };
    NodeLine {
        name: node.name.to_string(),
        reachable: !matches!(node.state, NodeState::Connecting | NodeState::Unreachable(_)),
        trusted: node.state == NodeState::Trusted,
        why,
        votes_in_ms: until.map(|until| millis(now.until(until))),
        version: node.version.as_ref().map(ToString::to_string),
        round_trip_ms: node.round_trip.map(|time| (time.as_secs_f64() * 1e6).round() / 1e3),
    }
}

async fn look(quorum: &Quorum, resource: &Resource) -> ResourceLine {
    let mut line = ResourceLine {
        resource: resource.key().to_owned(),
        held: None,
        holder: None,
        owner: None,
        reserved_for: None,
        remaining_ms: None,
        fencing_token: None,
        done: None,
        error: None,
    };
    match quorum.inspect(resource).await {
        Ok(Inspection { holder, contended, token, done, .. }) => {
            // Named by a minority: a majority's word is the truth, and there is none.
            line.held = (!contended).then_some(holder.is_some());
            line.fencing_token = token.map(quorate::node::FencingToken::get);
            line.done = done.map(|done| done.result.to_string());
            if let Some(holder) = holder {
                line.holder = Some(holder.owner.worker().to_owned());
                line.reserved_for = holder.owner.reserved_for().map(ToOwned::to_owned);
                line.owner = Some(holder.owner.as_str().to_owned());
                line.remaining_ms = holder.remaining.map(millis);
            }
        }
        Err(error) => line.error = Some(error.to_string()),
    }
    line
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Page {
    fn for_people(&self) -> String {
        let mut text = String::new();
        let trusted = self.nodes.iter().filter(|node| node.trusted).count();
        text += &format!(
            "{} of {} nodes vote, {} needed: {} (nodes from {}, prefix {:?})\n",
            trusted,
            self.nodes.len(),
            majority(self.nodes.len()),
            if self.quorum { "a quorum" } else { "NO QUORUM" },
            self.nodes_from,
            self.prefix
        );
        let widest = self.nodes.iter().map(|node| node.name.len()).max().unwrap_or_default();
        for node in &self.nodes {
            let version = node.version.as_deref().unwrap_or("-");
            let trip = node.round_trip_ms.map_or("-".to_owned(), |ms| format!("{ms:.2} ms"));
            let state = match &node.why {
                None => "votes".to_owned(),
                Some(why) if node.reachable => format!("no vote: {why}"),
                Some(why) => why.clone(),
            };
            let (version, state) = (show::line(version, NAME_MAX), show::line(&state, TEXT_MAX));
            text += &format!("  {:widest$}  {version:8}  {trip:>9}  {state}\n", node.name);
        }
        for resource in &self.resources {
            let resource = format!("{}: {}", resource.resource, resource.for_people());
            text += &(show::line(&resource, TEXT_MAX) + "\n");
        }
        text
    }
}

impl ResourceLine {
    fn for_people(&self) -> String {
        if let Some(error) = &self.error {
            return error.clone();
        }
        let token = self.fencing_token.map_or("none yet".to_owned(), |token| token.to_string());
        if let Some(result) = &self.done {
            return format!("done, result {:?}, fencing token {token}", show::line(result, TEXT_MAX / 2));
        }
        match (&self.holder, self.remaining_ms) {
            (Some(_), Some(ms)) if self.reserved_for.is_some() => {
                let heir = self.reserved_for.as_deref().unwrap_or_default();
                let heir = show::line(heir, NAME_MAX);
                format!("kept for {heir} for {:.1} s yet, last fencing token {token}", ms as f64 / 1e3)
            }
            (Some(holder), Some(ms)) => {
                let holder = show::line(holder, NAME_MAX);
                format!("held by {holder} for {:.1} s yet, fencing token {token}", ms as f64 / 1e3)
            }
            (Some(holder), None) => {
                format!("held by {} without an end (not by Quorate)", show::line(holder, NAME_MAX))
            }
            (None, _) if self.held.is_none() => format!(
                "named by a minority of nodes only: being taken, or held by one that too few nodes can tell of; last \
                 fencing token {token}"
            ),
            (None, _) if self.fencing_token.is_none() => "free, never held".to_owned(),
            (None, _) => format!("free, last fencing token {token}"),
        }
    }
}
