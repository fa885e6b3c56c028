//! A plan that passes one lease from contender to contender on real servers, and measures each handover. A
//! handover begins just before the holder's release, and ends when the next contender's acquire returns. It
//! counts only if that contender had waited for at least [`WAITED`].

pub(crate) mod contender;

use crate::{
    harness::{Assignment, Director, Durations, Event, Network, Options, Report, Servers},
    work::Work,
};
use contender::Task;
use quorate::env::{SystemWorld, World};
use quorate_tests::support::PATIENCE;
use serde_json::json;
use std::time::Duration;

/// The shortest wait of a contender whose handover counts. After a shorter wait, the contender may not have
/// subscribed to releases yet.
const WAITED: Duration = Duration::from_millis(3);
/// The TTL of the lease.
const TTL: Duration = Duration::from_secs(10);

/// The place in which the contenders run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Mode {
    /// Tasks of one quorum
    Tasks,
    /// Quorums of one process
    Quorums,
    /// Processes
    Processes,
    /// Processes that elect a leader
    Leaders,
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Settings {
    /// Where the contenders are
    #[arg(long, value_enum, default_value = "processes")]
    mode: Mode,
    /// Number of contenders
    #[arg(long, default_value_t = 3)]
    contenders: usize,
    /// Number of turns of each contender
    #[arg(long, default_value_t = 100)]
    rounds: usize,
}

/// The turn of one contender. All times are in nanoseconds of the boot clock.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Turn {
    requested: u64,
    acquired: u64,
    released: u64,
}

/// Lets every contender have all its turns, and measures the handovers.
pub(crate) fn run(settings: &Settings, options: &Options) -> Report {
    let Settings { mode, contenders, rounds } = *settings;
    let servers = Servers::start(options.servers, false, Network::Direct);
    let (processes, here) = match mode {
        Mode::Tasks | Mode::Quorums => (1, contenders),
        Mode::Processes | Mode::Leaders => (contenders, 1),
    };
    let task =
        Task { contenders: here, rounds, one_quorum: mode == Mode::Tasks, elect: mode == Mode::Leaders };
    let assignment = Assignment::new(servers.nodes(0), TTL, Work::Handover(task));
    let before = script_calls(&servers);
    let mut director = Director::start(options, processes, "", move |_| assignment.clone());
    let (mut turns, mut last_event) = (Vec::new(), SystemWorld.now());
    let patience =
        PATIENCE + Duration::from_millis(100) * u32::try_from(contenders * rounds).unwrap_or(u32::MAX);
    while turns.len() < contenders * rounds {
        assert!(last_event.until(SystemWorld.now()) < patience, "no contender ends its turns");
        let Some((_, entry)) = director.next(Duration::from_millis(100)) else {
            director.expect_all_alive();
            continue;
        };
        last_event = SystemWorld.now();
        if let Event::Turn { requested, acquired, released } = entry.event {
            turns.push(Turn { requested, acquired, released });
        }
    }
    director.end(PATIENCE, |_, _, _| {});
    let calls = (script_calls(&servers) - before) as f64 / turns.len().max(1) as f64;
    let handed = handovers(&mut turns).unwrap_or_else(|violation| {
        director.violate([violation]);
        Durations::default()
    });
    let figures = json!({
        "mode": format!("{mode:?}").to_lowercase(),
        "contenders": contenders,
        "turns": turns.len(),
        "handover_ms": handed.json(),
        "script_calls_per_turn": calls,
    });
    Report { figures, violations: director.into_violations() }
}

/// Returns the duration of each handover that counts. Fails if two contenders held the lease at the same time.
fn handovers(turns: &mut [Turn]) -> Result<Durations, String> {
    turns.sort_by_key(|turn| turn.acquired);
    let mut handed = Durations::default();
    for pair in turns.windows(2) {
        let (before, after) = (pair[0], pair[1]);
        if before.released > after.acquired {
            return Err(format!("exclusion: two held the lease at one time: {before:?} and {after:?}"));
        }
        if before.released.saturating_sub(after.requested) >= WAITED.as_nanos() as u64 {
            handed.add(Duration::from_nanos(after.acquired - before.released));
        }
    }
    Ok(handed)
}

/// Returns the number of scripts that the servers have run.
fn script_calls(servers: &Servers) -> u64 {
    let calls = |info: String| {
        let line = info.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="))?;
        line.split(',').next()?.parse::<u64>().ok()
    };
    servers.processes().filter_map(|server| calls(server.command(&["INFO", "commandstats"]))).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handover_counts_for_contenders_that_waited_and_two_holders_are_found() {
        let turn = |requested: u64, acquired: u64, released: u64| {
            let [requested, acquired, released] = [requested, acquired, released].map(|ms| ms * 1_000_000);
            Turn { requested, acquired, released }
        };
        let mut turns = [turn(0, 1, 10), turn(2, 12, 20), turn(19, 22, 30)];
        let handed = handovers(&mut turns).unwrap();
        assert_eq!((handed.len(), handed.quantile(500)), (1, Some(Duration::from_millis(2))));
        assert!(handovers(&mut [turn(0, 1, 10), turn(2, 9, 20)]).is_err());
    }
}
