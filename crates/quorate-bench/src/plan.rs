use crate::args::Args;
use std::time::Duration;

/// The duration and the size of each measurement.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// The number of times that a scenario is run until it succeeds. A busy machine keeps servers from answering in time.
    pub(crate) attempts: usize,
    /// The number of rounds for each rival.
    pub(crate) rounds: usize,
    /// The length of a round.
    pub(crate) round: Duration,
    /// The numbers of tasks of the plot.
    pub(crate) tasks: Vec<usize>,
    /// The number of times that a lease changes hands, for each rival.
    pub(crate) handovers: usize,
    /// The time for which many workers contend for one lock.
    pub(crate) contended_for: Duration,
    /// The number of acquires on distant nodes.
    pub(crate) distant: usize,
    /// The rates of ticks at which a scheduler is measured, a second.
    pub(crate) tick_rates: Vec<f64>,
    /// The growing rates of ticks at which a scheduler is measured until it is late, a second.
    pub(crate) growing_rates: Vec<f64>,
    /// The time for which a scheduler is measured.
    pub(crate) ticked_for: Duration,
    /// The number of jobs of a scheduler with very many jobs.
    pub(crate) jobs: usize,
    /// The number of leader changes.
    pub(crate) successions: usize,
    /// The number of leases that one process holds.
    pub(crate) leases: usize,
    /// The TTL of these leases.
    pub(crate) leases_ttl: Duration,
    /// The time for which these leases are held.
    pub(crate) held_for: Duration,
    /// The number of jobs in a long ledger.
    pub(crate) ledger_rows: usize,
    /// The number of ticks in that ledger.
    pub(crate) ledger_ticks: usize,
    /// The number of message ids claimed in a round.
    pub(crate) ids: usize,
    /// The number of times that a majority of the servers is stopped.
    pub(crate) stops: usize,
    /// The number of leases held at each stop.
    pub(crate) leases_per_stop: usize,
}

impl Plan {
    pub(crate) fn of(args: &Args) -> Result<Self, String> {
        if let Some(seconds) = args.round_seconds.filter(|s| !(0.01..=600.0).contains(s)) {
            return Err(format!("--round-seconds is {seconds}; give 0.01 to 600"));
        }
        if args.rounds == Some(0) {
            return Err("--rounds is 0; give at least 1".to_owned());
        }
        let seconds = Duration::from_secs;
        let mut plan = match args.quick {
            false => Self {
                attempts: 1,
                rounds: 9,
                round: seconds(1),
                tasks: vec![1, 4, 16, 64, 256, 1024],
                handovers: 200,
                contended_for: seconds(10),
                distant: 100,
                tick_rates: vec![500.0, 5_000.0],
                growing_rates: vec![2_500.0, 5_000.0, 6_000.0, 7_500.0],
                ticked_for: seconds(10),
                jobs: 100_000,
                successions: 20,
                leases: 100_000,
                leases_ttl: seconds(10),
                held_for: seconds(40),
                ledger_rows: 10_000,
                ledger_ticks: 30_000,
                ids: 10_000,
                stops: 20,
                leases_per_stop: 50,
            },
            true => Self {
                attempts: 3,
                rounds: 1,
                round: Duration::from_millis(100),
                tasks: vec![1, 16],
                handovers: 5,
                contended_for: seconds(1),
                distant: 3,
                tick_rates: vec![100.0],
                growing_rates: vec![100.0, 200.0],
                ticked_for: seconds(1),
                jobs: 200,
                successions: 1,
                leases: 500,
                leases_ttl: seconds(2),
                held_for: seconds(1),
                ledger_rows: 200,
                ledger_ticks: 1_000,
                ids: 1_000,
                stops: 1,
                leases_per_stop: 10,
            },
        };
        plan.rounds = args.rounds.unwrap_or(plan.rounds);
        plan.round = args.round_seconds.map_or(plan.round, Duration::from_secs_f64);
        Ok(plan)
    }
}
