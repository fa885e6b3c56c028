//! The commands `quorate nodes list`, `quorate nodes trust` and `quorate nodes replace`.

mod trust;

use crate::{
    args::{ListArgs, ReplaceArgs},
    config::{Config, NodeSpec},
    connect::{self, PATIENCE},
    exit::{CONFIG, Failure, NO_QUORUM},
    operator, progress, show,
    table::{Cell, grid},
    terminal::Tone,
    time::rfc3339,
};
use quorate::{
    admin::{Found, NodePart, NodeVisit, Part, Progress, ReplaceError, Replacement},
    env::{BootTime, Env},
    internals::{Marker, majority},
    node::Cause,
    plain::plain,
    quorum::{NodeStatus, Quorum, SharedSettings},
};
use quorate_operator::{Entry, view::NodeView};
use schemars::JsonSchema;
use serde::Serialize;
use std::time::Duration;
pub(crate) use trust::trust;

/// The longest node set of a marker that the output shows, in bytes.
const SHOWN_MAX: usize = 2_048;
/// The longest line that is shown, in bytes.
const LINE_MAX: usize = 4_096;

/// The output of `nodes list`.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Nodes")]
pub(crate) struct Page {
    prefix: String,
    nodes_from: String,
    quorum: bool,
    nodes: Vec<Line>,
}

/// A node, with what it stores about itself.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "NodeDetails")]
pub(crate) struct Line {
    #[serde(flatten)]
    node: NodeView,
    clock_ahead_ms: Option<f64>,
    run_id: Option<String>,
    uptime_s: Option<u64>,
    remembers_since: Option<String>,
    votes_from: Option<String>,
    marker_nodes: Option<String>,
    marker_settings: Option<MarkerSettings>,
}

/// The settings that all workers share, as they are stored in a node's marker.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "MarkerSettings")]
pub(crate) struct MarkerSettings {
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

/// Shows each node. The exit status reports whether a majority votes.
pub(crate) async fn list(args: &ListArgs, config: &Config) -> Result<u8, Failure> {
    let quorum = connect::only_looking(config)?;
    let page = Page::read(&quorum, config).await;
    quorum.close().await;
    let page = page?;
    show::print_page(args.json, &page, || page.for_people())?;
    Ok(if page.quorum { 0 } else { NO_QUORUM })
}

/// Returns the JSON document that `nodes list` prints with `--json`.
pub(crate) async fn json(quorum: &Quorum, config: &Config) -> Result<String, Failure> {
    show::json(&Page::read(quorum, config).await?)
}

fn millis(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

fn line(status: &NodeStatus, now: BootTime, sight: &Result<NodeVisit, Cause>) -> Line {
    let sight = sight.as_ref().ok();
    let marker = sight.and_then(|sight| Marker::parse(sight.hello.marker.as_deref()?).ok());
    Line {
        // The round trip is the one that the quorum measured on single requests. A handshake takes several
        // round trips.
        node: NodeView::new(status, now),
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
    async fn read(quorum: &Quorum, config: &Config) -> Result<Self, Failure> {
        let set = connect::node_set(config, &config.nodes, true)?;
        let (statuses, sights) = futures_util::join!(quorum.met(PATIENCE), set.look(quorum.env(), PATIENCE));
        let now = quorum.env().now();
        Ok(Self {
            prefix: config.prefix.to_string(),
            nodes_from: config.nodes_from.to_string(),
            quorum: connect::is_quorum(&statuses),
            nodes: statuses.iter().zip(&sights).map(|(status, sight)| line(status, now, sight)).collect(),
        })
    }

    fn for_people(&self) -> String {
        let votes = self.nodes.iter().filter(|line| line.node.votes).count();
        let mut text = format!(
            "{votes} of {} nodes vote, {} required: {} (nodes from {}, prefix {:?})\n",
            self.nodes.len(),
            majority(self.nodes.len()),
            if self.quorum { "a quorum".to_owned() } else { Tone::Trouble.paint("NO QUORUM") },
            self.nodes_from,
            self.prefix
        );
        for node in &self.nodes {
            let or_dash = |text: &Option<String>| {
                text.as_ref().map_or("-".to_owned(), |text| show::line(text, LINE_MAX))
            };
            let state = match node.node.votes {
                true => node.node.state_text(),
                false => Tone::Caution.paint(&node.node.state_text()),
            };
            let clock = node.clock_ahead_ms.map_or("-".to_owned(), |ms| format!("{ms:+.0} ms"));
            let up = node.uptime_s.map(|s| humantime::format_duration(Duration::from_secs(s)).to_string());
            let (version, up) = (node.node.version_text(), or_dash(&up));
            let trip = NodeView::time_text(node.node.round_trip);
            let (since, from) = (or_dash(&node.remembers_since), or_dash(&node.votes_from));
            let mut lines = vec![
                format!("version {version}, up {up}, round trip {trip}, clock {clock}"),
                format!("remembers since {since}, votes from {from}"),
            ];
            match (&node.marker_nodes, &node.marker_settings) {
                (Some(nodes), Some(settings)) => {
                    lines.extend([format!("marked for {nodes}"), format!("with {}", settings.text)]);
                }
                _ => lines.push("marked for -".to_owned()),
            }
            let lines: Vec<[Cell; 1]> = lines.into_iter().map(|line| [line.into()]).collect();
            text += &format!("{}: {state}\n{}", node.node.name, grid(2, &lines));
        }
        text
    }
}

/// Replaces the node set, or with `--dry-run` shows the steps.
pub(crate) async fn replace(args: &ReplaceArgs, config: &Config) -> Result<u8, Failure> {
    let specs = new_set(args, config)?;
    let (old, new) = (
        connect::node_set(config, &config.nodes, args.dry_run)?,
        connect::node_set(config, &specs, args.dry_run)?,
    );
    let change = Replacement::new(Env::system(), config.settings.clone(), old, new).map_err(failure)?;
    if args.dry_run {
        let parts = change.survey().await.map_err(failure)?;
        print(&parts)?;
        show::print(&format!(
            "nothing was written; this would close these nodes, wait {:.1?} without a leader, and open the new set\n",
            config.settings.quarantine()
        ))?;
        return Ok(0);
    }
    // If writing to the output fails, the replacement continues, because it must not stop half-way. The error
    // is reported at the end.
    let mut printed = Ok(());
    let env = Env::system();
    let line = progress::Progress::new(&env, "closing the nodes", None);
    let show_progress = |step: Progress| {
        line.clear();
        if printed.is_ok() {
            printed = show::print(&(for_people(&step) + "\n"));
        }
        if let Progress::Waiting(time) = step {
            line.next("waiting until every lease of the old set has ended", Some(time));
        }
    };
    let parts = line.during(change.run(show_progress)).await.map_err(failure)?;
    printed?;
    print(&parts)?;
    let names: Vec<String> = specs.iter().map(|spec| spec.name().to_string()).collect();
    let names = names.join(",");
    let old: Vec<String> = config.nodes.iter().map(|spec| spec.name().to_string()).collect();
    let result = format!("in place of {}", old.join(","));
    let entry = Entry { action: "nodes-replace", target: &names, group: None, result: Ok(&result) };
    let opened = Config { nodes: specs.clone(), ..config.clone() };
    operator::note_anew(&operator::of(&args.operator, config), &opened, &entry).await;
    show::print(&format!("the new set is open: give every worker this list, and restart it\n  {names}\n"))?;
    let is_done = |part: &NodePart| match part.part {
        Part::Leaves => matches!(part.found, Ok(Found::Closed(_))),
        _ => matches!(part.found, Ok(Found::New)),
    };
    if !parts.iter().all(is_done) {
        show::print("run this again once the nodes that are neither open nor closed can be reached\n")?;
    }
    Ok(0)
}

/// Returns the new node set. If a node is in both sets, the entry of the old list is used, because it may have
/// the node's password.
pub(crate) fn new_set(args: &ReplaceArgs, config: &Config) -> Result<Vec<NodeSpec>, Failure> {
    let parse = |url: &String| {
        let node =
            NodeSpec::parse(url, None).map_err(|error| Failure::new(CONFIG, format!("--to: {error}")))?;
        let stays = config.nodes.iter().find(|old| old.name() == node.name());
        Ok(stays.cloned().unwrap_or(node))
    };
    args.to().0.iter().map(parse).collect()
}

fn print(parts: &[NodePart]) -> Result<(), Failure> {
    for NodePart { name, part, found } in parts {
        let line = match found {
            Ok(found) => format!("{name}: {part}; {found}"),
            Err(cause) => format!("{name}: {part}; {}", connect::without_name(name, &cause.to_string())),
        };
        show::print(&(show::line(&line, LINE_MAX) + "\n"))?;
    }
    Ok(())
}

fn for_people(progress: &Progress) -> String {
    let line = match progress {
        Progress::Closed(node) => format!("{node}: closed, workers get no vote from it"),
        Progress::Waiting(time) => format!("waiting {time:.1?} until every lease of the old set has ended"),
        Progress::Opened(node) => format!("{node}: opened for the new set"),
        Progress::Left(node, cause) => {
            format!("{node}: not changed: {}", connect::without_name(node, &cause.to_string()))
        }
        other => format!("{other:?}"),
    };
    show::line(&line, LINE_MAX)
}

fn failure(error: ReplaceError) -> Failure {
    let code = if matches!(error, ReplaceError::QuorumConfig(_)) { CONFIG } else { NO_QUORUM };
    Failure::new(code, error)
}
