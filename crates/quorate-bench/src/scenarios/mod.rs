//! What is measured, a file a scenario.

mod cycles;

use crate::{plan::Plan, report::Row, servers::Servers};

/// One scenario.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    /// Whether it sends SIGSTOP to servers.
    pub(crate) stops_servers: bool,
    pub(crate) run: fn(&Plan, &Servers) -> Result<Vec<Row>, String>,
}

/// All of them, in the order of the table.
pub(crate) const ALL: &[Scenario] = &[
    Scenario {
        name: "cycles-64",
        what: "acquire + release, 64 tasks",
        stops_servers: false,
        run: cycles::sixty_four,
    },
    Scenario { name: "cycles-1", what: "acquire + release, 1 task", stops_servers: false, run: cycles::one },
];
