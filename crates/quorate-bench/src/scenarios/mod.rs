//! The scenarios of the benchmark, with one file each.

mod claims;
mod contention;
mod cycles;
mod handover;
mod idle;
mod leader;
mod ledger;
mod loss;
mod many;
mod messages;
mod others;
mod regions;
mod shards;
mod sidecar;
mod stopped;
mod stored;
mod ticks;

use crate::{args::Args, plan::Plan, report::Row, servers::Servers};

type Run = fn(&Plan, &Servers) -> Result<Vec<Row>, String>;

/// A scenario: a set of measurements with a name.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    /// Set if the scenario stops servers with SIGSTOP.
    pub(crate) stops_servers: bool,
    /// Returns the reason why the scenario cannot run on this machine, if there is one.
    pub(crate) cannot_run: fn() -> Option<String>,
    pub(crate) run: Run,
}

impl Scenario {
    const fn new(name: &'static str, what: &'static str, run: Run) -> Self {
        Self { name, what, stops_servers: false, cannot_run: || None, run }
    }
}

/// Returns the scenarios that run, in the order of the table.
pub(crate) fn chosen(args: &Args) -> Result<Vec<&'static Scenario>, String> {
    let is_only = |name: &str| args.only.iter().any(|only| only == name);
    let names: Vec<_> = ALL.iter().map(|scenario| scenario.name).collect();
    if let Some(unknown) = args.only.iter().find(|only| !names.contains(&only.as_str())) {
        return Err(format!("--only {unknown} is not a scenario; choose one of {}", names.join(", ")));
    }
    if args.plot.is_some() && !args.only.is_empty() && !is_only("tasks") {
        return Err("--plot needs the figures of the scenario tasks; add --only tasks".to_owned());
    }
    Ok(ALL.iter().filter(|scenario| args.only.is_empty() || is_only(scenario.name)).collect())
}

/// All scenarios, in the order of the table.
pub(crate) const ALL: &[Scenario] = &[
    Scenario::new("cycles-64", "acquire + release, 64 tasks", cycles::sixty_four),
    Scenario::new("cycles-1", "acquire + release, 1 task", cycles::one),
    Scenario::new("durable", "acquire + release, servers that sync each change", cycles::durable),
    Scenario::new("tasks", "acquire + release, by the number of tasks", cycles::by_tasks),
    Scenario {
        cannot_run: others::cannot_run,
        ..Scenario::new("others", "acquire + release, clients in other languages", others::run)
    },
    Scenario::new("sidecar", "acquire + release through `quorate serve`", sidecar::run),
    Scenario { stops_servers: true, ..Scenario::new("stopped", "one server of five stopped", stopped::run) },
    Scenario::new("handover", "from a release to the next acquire", handover::run),
    Scenario::new("contention", "16 workers want one lock", contention::run),
    Scenario::new("leader", "from one leader to the next", leader::run),
    Scenario::new("many", "very many leases in one process", many::run),
    Scenario::new("ledger", "a long ledger is read and pruned", ledger::run),
    Scenario::new("claims", "many message ids, one by one and in batches", claims::run),
    Scenario::new("messages", "three workers see the same messages", messages::run),
    Scenario::new("ticks", "the ticks of one leader", ticks::run),
    Scenario::new("rates", "the number of ticks a second that one leader can start in time", ticks::rates),
    Scenario::new("jobs", "very many jobs of one leader", ticks::very_many),
    Scenario::new("stored", "jobs that are stored on the nodes", stored::run),
    Scenario::new("idle", "replicas with nothing to do", idle::run),
    Scenario::new("shards", "very many shards of many workers", shards::run),
    Scenario::new("regions", "nodes in distant regions", regions::run),
    Scenario {
        stops_servers: true,
        ..Scenario::new("loss", "three of five stopped under auto-extend", loss::run)
    },
];
