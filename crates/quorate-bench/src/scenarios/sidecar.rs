//! Measures a client of `quorate serve`, beside this library in its own process and clients in other languages.

use super::{cycles::runtime, others};
use crate::{
    measure::{Samples, Spread, ms, now},
    plan::Plan,
    report::Row,
    rivals::{Kind, Rival, cycle},
    servers::Servers,
};
use std::{sync::Arc, time::Duration};

/// The number of tasks of a busy client.
const TASKS: usize = 64;

pub(crate) fn run(plan: &Plan, servers: &Servers) -> Result<Vec<Row>, String> {
    let runtime = runtime(2)?;
    let start = |kind: Kind| runtime.block_on(kind.start(servers.urls())).map(Arc::new);
    let (ours, sidecar) = (start(Kind::Quorate)?, start(Kind::Sidecar)?);
    let (mut alone, mut through, mut ratios, mut busy) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..plan.rounds {
        let p50 = |rival: &Rival| {
            runtime.block_on(whole_cycles(rival, plan.round / 10));
            ms(runtime.block_on(whole_cycles(rival, plan.round)).quantile(0.5)) * 1e3
        };
        let (of_library, of_sidecar) = (p50(&ours), p50(&sidecar));
        alone.push(of_library);
        through.push(of_sidecar);
        ratios.push(of_sidecar / of_library);
        runtime.block_on(cycle(&sidecar, TASKS, plan.round / 10));
        let began = now();
        let done = runtime.block_on(cycle(&sidecar, TASKS, plan.round));
        busy.push(done.acquires.len() as f64 / now().since(began).as_secs_f64());
    }
    let figure = "acquire + release p50, 1 task";
    let mut rows = vec![
        Row::spread("quorate", figure, "µs", Spread::of(alone)),
        Row::spread("sidecar", figure, "µs", Spread::of(through)),
        Row::spread("sidecar", format!("{figure} / quorate's"), "×", Spread::of(ratios)).at_most(2.0),
        Row::spread("sidecar", format!("cycles, {TASKS} tasks"), "/s", Spread::of(busy)).at_least(10_000.0),
    ];
    if others::cannot_run().is_none() {
        rows.extend(others::of_libraries(plan, servers, TASKS)?);
    }
    Ok(rows)
}

/// Acquires and releases one lock until `length` has passed, and returns the duration of each cycle.
async fn whole_cycles(rival: &Rival, length: Duration) -> Samples {
    let (until, mut cycles) = (now() + length, Samples::default());
    loop {
        let began = now();
        if began >= until {
            return cycles;
        }
        if let Some(held) = rival.acquire("bench-whole").await {
            rival.release(held).await;
            cycles.add(now().since(began));
        }
    }
}
