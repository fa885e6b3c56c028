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
mod regions;
mod stopped;
mod ticks;

use crate::{plan::Plan, report::Row, servers::Servers};

/// A scenario: a set of measurements with a name.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    /// Set if the scenario stops servers with SIGSTOP.
    pub(crate) stops_servers: bool,
    pub(crate) run: fn(&Plan, &Servers) -> Result<Vec<Row>, String>,
}

/// All scenarios, in the order of the table.
pub(crate) const ALL: &[Scenario] = &[
    Scenario {
        name: "cycles-64",
        what: "acquire + release, 64 tasks",
        stops_servers: false,
        run: cycles::sixty_four,
    },
    Scenario { name: "cycles-1", what: "acquire + release, 1 task", stops_servers: false, run: cycles::one },
    Scenario {
        name: "tasks",
        what: "acquire + release, by the number of tasks",
        stops_servers: false,
        run: cycles::by_tasks,
    },
    Scenario { name: "stopped", what: "one server of five stopped", stops_servers: true, run: stopped::run },
    Scenario {
        name: "handover",
        what: "from a release to the next acquire",
        stops_servers: false,
        run: handover::run,
    },
    Scenario {
        name: "contention",
        what: "16 workers want one lock",
        stops_servers: false,
        run: contention::run,
    },
    Scenario { name: "leader", what: "from one leader to the next", stops_servers: false, run: leader::run },
    Scenario { name: "many", what: "very many leases in one process", stops_servers: false, run: many::run },
    Scenario {
        name: "ledger",
        what: "a long ledger is sealed, read and pruned",
        stops_servers: false,
        run: ledger::run,
    },
    Scenario {
        name: "claims",
        what: "many message ids, one by one and in batches",
        stops_servers: false,
        run: claims::run,
    },
    Scenario {
        name: "messages",
        what: "three workers see the same messages",
        stops_servers: false,
        run: messages::run,
    },
    Scenario { name: "ticks", what: "the ticks of one leader", stops_servers: false, run: ticks::run },
    Scenario {
        name: "jobs",
        what: "very many jobs of one leader",
        stops_servers: false,
        run: ticks::very_many,
    },
    Scenario { name: "idle", what: "replicas with nothing to do", stops_servers: false, run: idle::run },
    Scenario { name: "regions", what: "nodes in distant regions", stops_servers: false, run: regions::run },
    Scenario {
        name: "loss",
        what: "three of five stopped under auto-extend",
        stops_servers: true,
        run: loss::run,
    },
];
