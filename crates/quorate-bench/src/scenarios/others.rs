//! Measures Redlock clients in other languages, beside this library in the same rounds.

use super::cycles::runtime;
use crate::{
    measure::{Spread, ms, now},
    plan::Plan,
    report::Row,
    rivals::{Kind, cycle},
    servers::Servers,
};
use serde::Deserialize;
use std::{path::Path, process::Command, sync::Arc};

/// The folder into which `tests/run.sh --interop` installs the clients, from the root of the repository.
const MODULES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/interop/node_modules");
/// The program that measures them.
const CLIENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/clients/node-redlock.cjs");
/// The names under which the two versions of node's `redlock` are installed, and their names in the report.
const LIBRARIES: [(&str, &str); 3] =
    [("redlock", "node-redlock 5"), ("redlock4", "node-redlock 4"), (POTTERY, "pottery")];
/// Python's library, the interpreter with which it is installed, and the program that measures it.
const POTTERY: &str = "pottery";
const PYTHON: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/interop/venv/bin/python");
const PYTHON_CLIENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/clients/pottery_redlock.py");
const TASKS: [usize; 2] = [1, 64];

/// The figures of one round, as the client prints them.
#[derive(Deserialize)]
struct Printed {
    cycles_a_second: f64,
    failed: u64,
    p50: f64,
    p99: f64,
}

/// Returns the reason why this scenario cannot run on this machine, if there is one.
pub(crate) fn cannot_run() -> Option<String> {
    let node = Command::new("node").arg("--version").output();
    if !node.is_ok_and(|out| out.status.success()) {
        return Some("there is no `node`; install Node.js".to_owned());
    }
    let missing = [MODULES, PYTHON].into_iter().find(|path| !Path::new(path).exists());
    missing.map(|path| format!("there is no {path}; `bash tests/run.sh --interop` installs the clients"))
}

pub(crate) fn run(plan: &Plan, servers: &Servers) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    for tasks in TASKS {
        let runtime = runtime(2)?;
        let ours = Arc::new(runtime.block_on(Kind::Quorate.start(servers.urls()))?);
        let mut rounds: Vec<(&str, Vec<Printed>)> = [("quorate", Vec::new())]
            .into_iter()
            .chain(LIBRARIES.map(|(_, name)| (name, Vec::new())))
            .collect();
        for _ in 0..plan.rounds {
            let began = now();
            let done = runtime.block_on(cycle(&ours, tasks, plan.round));
            let took = now().since(began).as_secs_f64();
            rounds[0].1.push(Printed {
                cycles_a_second: done.acquires.len() as f64 / took,
                failed: done.failed,
                p50: ms(done.acquires.quantile(0.5)),
                p99: ms(done.acquires.quantile(0.99)),
            });
            for (place, (library, _)) in LIBRARIES.iter().enumerate() {
                rounds[place + 1].1.push(measure(library, tasks, plan, servers)?);
            }
        }
        for (name, printed) in rounds {
            rows.extend(as_rows(name, tasks, &printed));
        }
    }
    Ok(rows)
}

/// Measures the libraries alone, with this number of tasks.
pub(super) fn of_libraries(plan: &Plan, servers: &Servers, tasks: usize) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    for (library, name) in LIBRARIES {
        let rounds: Result<Vec<_>, _> =
            (0..plan.rounds).map(|_| measure(library, tasks, plan, servers)).collect();
        rows.extend(as_rows(name, tasks, &rounds?));
    }
    Ok(rows)
}

/// Runs the client for one round.
fn measure(library: &str, tasks: usize, plan: &Plan, servers: &Servers) -> Result<Printed, String> {
    let mut client = match library {
        POTTERY => {
            let mut python = Command::new(PYTHON);
            python.arg(PYTHON_CLIENT);
            python
        }
        _ => {
            let mut node = Command::new("node");
            node.env("NODE_PATH", MODULES).args([CLIENT, library]);
            node
        }
    };
    client.arg(tasks.to_string());
    client.arg(plan.round.as_secs_f64().to_string()).args(servers.urls());
    let out = client.output().map_err(|error| format!("{library}: {error}"))?;
    serde_json::from_slice(&out.stdout)
        .map_err(|error| format!("{library}: {error}: {}", String::from_utf8_lossy(&out.stderr)))
}

fn as_rows(name: &str, tasks: usize, rounds: &[Printed]) -> Vec<Row> {
    let noun = if tasks == 1 { "task" } else { "tasks" };
    let row = |figure: &str, unit, of: fn(&Printed) -> f64| {
        Row::spread(name, format!("{figure}, {tasks} {noun}"), unit, Spread::of(rounds.iter().map(of)))
    };
    vec![
        row("cycles", "/s", |round| round.cycles_a_second),
        row("acquire p50", "ms", |round| round.p50),
        row("acquire p99", "ms", |round| round.p99),
        row("failed attempts", "", |round| round.failed as f64),
    ]
}
