//! `quorate nodes list` and `quorate nodes replace`.

use crate::{
    args::{ListArgs, ReplaceArgs},
    config::{Config, NodeSpec},
    connect,
    exit::{CONFIG, Failure, NO_QUORUM},
    show,
    time::rfc3339,
};
use quorate::{
    admin::{Found, NodePart, Part, Progress, ReplaceError, Replacement, Sight},
    env::Env,
    internals::{Marker, majority},
    node::Cause,
    plain::plain,
    quorum::{NodeState, NodeStatus, QuorumConfig, SharedSettings},
};
use serde::Serialize;
use std::{fmt::Write as _, time::Duration};

/// How long a handshake may take before its node is called away.
const PATIENCE: Duration = Duration::from_secs(2);
/// The most bytes of a marker's node set that are shown.
const SHOWN_MAX: usize = 2_048;
/// The most bytes of a line.
const LINE_MAX: usize = 4_096;

/// Everything that `nodes list` shows.
#[derive(Debug, Serialize)]
struct Page {
    prefix: String,
    nodes_from: String,
    quorum: bool,
    nodes: Vec<Line>,
}

#[derive(Debug, Serialize)]
struct Line {
    name: String,
    votes: bool,
    why: Option<String>,
    version: Option<String>,
    round_trip_ms: Option<f64>,
    clock_ahead_ms: Option<f64>,
    run_id: Option<String>,
    uptime_s: Option<u64>,
    remembers_since: Option<String>,
    votes_from: Option<String>,
    marker_nodes: Option<String>,
    marker_settings: Option<MarkerSettings>,
}

/// The settings that all workers share, as the node's marker has them.
#[derive(Debug, Serialize)]
struct MarkerSettings {
    max_ttl_ms: f64,
    max_clock_offset_ms: f64,
    clock_step_allowance_ms: f64,
    drift_rate: f64,
    durable: bool,
    trust_new_nodes: bool,
    #[serde(skip)]
    text: String,
}

impl MarkerSettings {
    fn of(settings: &SharedSettings) -> Self {
        Self {
            max_ttl_ms: millis(settings.max_ttl()),
            max_clock_offset_ms: millis(settings.max_clock_offset()),
            clock_step_allowance_ms: millis(settings.clock_step_allowance()),
            drift_rate: settings.drift_rate(),
            durable: settings.durable(),
            trust_new_nodes: settings.trust_new_nodes(),
            text: settings.to_string(),
        }
    }
}

/// Shows the nodes one by one; the exit status says whether a majority votes.
pub(crate) async fn list(args: &ListArgs, config: &Config) -> Result<u8, Failure> {
    let quorum = connect::quorum(config, QuorumConfig { only_looks: true, ..config.setup.clone() })?;
    let set = connect::node_set(config, &config.nodes)?;
    let env = quorum.env().clone();
    let (stands, sights) = futures_util::join!(quorum.met(PATIENCE), set.look(&env, PATIENCE));
    quorum.close().await;
    let page = Page {
        prefix: config.prefix.to_string(),
        nodes_from: config.nodes_from.to_string(),
        quorum: connect::votes(&stands) >= majority(stands.len()),
        nodes: stands.iter().zip(&sights).map(|(status, sight)| line(status, sight)).collect(),
    };
    let text = if args.json { show::json(&page)? } else { page.for_people() };
    show::print(&text);
    Ok(if page.quorum { 0 } else { NO_QUORUM })
}

fn millis(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

fn line(status: &NodeStatus, sight: &Result<Sight, Cause>) -> Line {
    let why = match &status.state {
        NodeState::Trusted => None,
        NodeState::Connecting => Some("no handshake yet".to_owned()),
        NodeState::Quarantined { why, .. } | NodeState::Refused(why) => Some(why.to_string()),
        NodeState::Unreachable(cause) => Some(cause.to_string()),
    };
    let sight = sight.as_ref().ok();
    let marker = sight.and_then(|sight| Marker::parse(sight.hello.marker.as_deref()?).ok());
    Line {
        name: status.name.to_string(),
        votes: why.is_none(),
        why,
        version: status.version.as_ref().map(ToString::to_string),
        // A handshake is several round trips: what the quorum measured is the better word.
        round_trip_ms: status.round_trip.map(millis),
        clock_ahead_ms: sight.map(|sight| (sight.ahead_micros as f64 / 1e3).round() + 0.0), // never -0
        run_id: sight.map(|sight| plain(&sight.hello.run_id, 100)),
        uptime_s: sight.map(|sight| sight.hello.uptime.as_secs()),
        remembers_since: marker.as_ref().map(|marker| rfc3339(marker.since)),
        votes_from: marker.as_ref().map(|marker| rfc3339(marker.votes_from)),
        marker_nodes: marker.as_ref().map(|marker| plain(&marker.nodes, SHOWN_MAX)),
        marker_settings: marker.map(|marker| MarkerSettings::of(&marker.settings)),
    }
}

impl Page {
    fn for_people(&self) -> String {
        let votes = self.nodes.iter().filter(|node| node.votes).count();
        let mut text = format!(
            "{votes} of {} nodes vote, {} needed: {} (nodes from {}, prefix {:?})\n",
            self.nodes.len(),
            majority(self.nodes.len()),
            if self.quorum { "a quorum" } else { "NO QUORUM" },
            self.nodes_from,
            self.prefix
        );
        for node in &self.nodes {
            let or_dash = |text: &Option<String>| {
                text.as_ref().map_or("-".to_owned(), |text| show::line(text, LINE_MAX))
            };
            let state = node.why.as_ref().map_or("votes".to_owned(), |why| format!("does not vote: {why}"));
            let state = show::line(&state, LINE_MAX);
            let trip = node.round_trip_ms.map_or("-".to_owned(), |ms| format!("{ms:.2} ms"));
            let clock = node.clock_ahead_ms.map_or("-".to_owned(), |ms| format!("{ms:+.0} ms"));
            // Writing to a string cannot fail.
            let _ = write!(
                text,
                "{}: {state}\n  version {}, up {}, round trip {trip}, clock {clock}\n  remembers since {}, votes from \
                 {}\n  marked for {}\n",
                node.name,
                or_dash(&node.version),
                node.uptime_s.map_or("-".to_owned(), |s| humantime::format_duration(Duration::from_secs(s))
                    .to_string()),
                or_dash(&node.remembers_since),
                or_dash(&node.votes_from),
                match (&node.marker_nodes, &node.marker_settings) {
                    (Some(nodes), Some(settings)) => format!("{nodes}\n  with {}", settings.text),
                    _ => "-".to_owned(),
                }
            );
        }
        text
    }
}

/// Replaces the node set, or says what that would do.
pub(crate) async fn replace(args: &ReplaceArgs, config: &Config) -> Result<u8, Failure> {
    let specs = new_set(args, config)?;
    let (old, new) = (connect::node_set(config, &config.nodes)?, connect::node_set(config, &specs)?);
    let change = Replacement::new(Env::system(), config.setup.clone(), old, new).map_err(failure)?;
    if args.dry_run {
        let parts = change.survey().await.map_err(failure)?;
        print(&parts);
        show::print(&format!(
            "nothing was written; this would close these nodes, wait {:.1?} with nobody leading, and open the new set\n",
            config.setup.quarantine()
        ));
        return Ok(0);
    }
    let parts = change.run(|progress| show::print(&(for_people(&progress) + "\n"))).await.map_err(failure)?;
    print(&parts);
    let names: Vec<String> = specs.iter().map(|spec| spec.name().to_string()).collect();
    let names = names.join(",");
    show::print(&format!(
        "the new set is open: give every worker this list, and start it again\n  {names}\n"
    ));
    let is_done = |part: &NodePart| match part.part {
        Part::Leaves => matches!(part.found, Ok(Found::Closed(_))),
        _ => matches!(part.found, Ok(Found::New)),
    };
    if !parts.iter().all(is_done) {
        show::print("run this again once the nodes that are neither open nor closed can be\n");
    }
    Ok(0)
}

/// The new set. A node that stays is taken from the old list, where its password may be.
pub(crate) fn new_set(args: &ReplaceArgs, config: &Config) -> Result<Vec<NodeSpec>, Failure> {
    let parse = |url: &String| {
        let node =
            NodeSpec::parse(url, None).map_err(|error| Failure::new(CONFIG, format!("--to: {error}")))?;
        let stays = config.nodes.iter().find(|old| old.name() == node.name());
        Ok(stays.cloned().unwrap_or(node))
    };
    args.to().0.iter().map(parse).collect()
}

fn print(parts: &[NodePart]) {
    for NodePart { name, part, found } in parts {
        let line = match found {
            Ok(found) => format!("{name}: {part}; {found}"),
            Err(cause) => format!("{name}: {part}; {cause}"),
        };
        show::print(&(show::line(&line, LINE_MAX) + "\n"));
    }
}

fn for_people(progress: &Progress) -> String {
    let line = match progress {
        Progress::Closed(node) => format!("{node}: closed, no worker votes by it"),
        Progress::Waiting(time) => format!("waiting {time:.1?}, until every lease of the old set has ended"),
        Progress::Opened(node) => format!("{node}: opened for the new set"),
        Progress::Left(node, cause) => format!("{node}: left as it is: {cause}"),
        other => format!("{other:?}"),
    };
    show::line(&line, LINE_MAX)
}

fn failure(error: ReplaceError) -> Failure {
    let code = if matches!(error, ReplaceError::QuorumConfig(_)) { CONFIG } else { NO_QUORUM };
    Failure::new(code, error)
}
