//! Measures acquires while one of five servers is stopped.

use super::cycles::{self, runtime};
use crate::{
    measure::{Samples, Spread, ms},
    plan::Plan,
    report::Row,
    rivals::{Kind, cycle},
    servers::Servers,
};
use std::sync::Arc;

/// The server that is stopped.
const STOPPED: usize = 2;

/// The durations of a rival's acquires in each round: with all servers, and with one server stopped.
struct Turns {
    healthy: Vec<Samples>,
    stopped: Vec<Samples>,
}

pub(crate) fn run(plan: &Plan, servers: &Servers) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    for tasks in [1, 64] {
        for kind in [Kind::Quorate, Kind::Rslock] {
            let turns = measure(plan, servers, kind, tasks)?;
            let p99 = |of: &Samples| ms(of.quantile(0.99));
            let name = kind.name();
            let figure = |what: &str| format!("acquire p99, {tasks} tasks, {what}");
            let healthy = Spread::of(turns.healthy.iter().map(p99));
            let stopped = Spread::of(turns.stopped.iter().map(p99));
            rows.push(Row::spread(name, figure("healthy"), "ms", healthy));
            rows.push(Row::spread(name, figure("one stopped"), "ms", stopped));
            let pairs = turns.healthy.iter().zip(&turns.stopped);
            let ratio = Spread::of(pairs.map(|(healthy, stopped)| p99(stopped) / p99(healthy)));
            let row = Row::spread(name, figure("stopped / healthy"), "×", ratio);
            rows.push(if kind == Kind::Quorate { row.at_most(1.3) } else { row });
            // A round begins at the moment of the stop, so its slowest acquire is that of the time after it.
            let slowest = Spread::of(turns.stopped.iter().map(|round| ms(round.longest())));
            let what = format!("slowest acquire in the {:?} after the stop, {tasks} tasks", plan.round);
            let row = Row::spread(name, what, "ms", slowest);
            rows.push(if kind == Kind::Quorate { row.at_most(10.0) } else { row });
        }
    }
    Ok(rows)
}

/// Alternates rounds with all servers and rounds with a stopped server, so that other work on the machine
/// affects both.
fn measure(plan: &Plan, servers: &Servers, kind: Kind, tasks: usize) -> Result<Turns, String> {
    let runtime = runtime(1)?;
    let rival = Arc::new(runtime.block_on(kind.start(servers.urls()))?);
    let mut turns = Turns { healthy: Vec::new(), stopped: Vec::new() };
    for _ in 0..plan.rounds {
        runtime.block_on(cycle(&rival, tasks, cycles::WARM));
        turns.healthy.push(runtime.block_on(cycle(&rival, tasks, plan.round)).acquires);
        servers.stop(STOPPED);
        // The measurement begins at once, while the clients do not know yet that the server does not answer.
        let stopped = runtime.block_on(cycle(&rival, tasks, plan.round)).acquires;
        servers.resume(STOPPED);
        // Before the next round with all servers, the clients must connect to the stopped server again, and
        // this server must run the requests that wait for it. This cycle gives them the time.
        runtime.block_on(cycle(&rival, tasks, plan.round / 2));
        if stopped.len() == 0 {
            return Err(format!("{}: nothing was acquired while one of five was stopped", kind.name()));
        }
        turns.stopped.push(stopped);
    }
    Ok(turns)
}
