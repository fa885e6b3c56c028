//! The time for which the ledger keeps the records of runs, and the time by which a run is opened before its
//! tick.

use crate::{
    env::WallTime,
    scheduler::{job::Job, policy::Placement},
};
use std::time::Duration;

/// A tick that is later than this is a misfire, and the job's misfire rule decides whether it runs.
pub(in crate::scheduler) const LATE_AFTER: Duration = Duration::from_secs(1);
/// The longest time before its tick at which any version of this library opens a run.
pub(in crate::scheduler) const AHEAD_MAX: Duration = Duration::from_secs(30);
/// The time between two prunings of the ledger.
pub(in crate::scheduler) const PRUNE_EVERY: Duration = Duration::from_secs(15);
/// The time for which records are kept after the end of their misfire window. A leader that decides on a run at
/// the end of the window may start the run a little later. The clocks of two leaders may differ by twice
/// `max_clock_offset`; [`kept`] adds this time separately.
const KEPT_BESIDES: Duration = Duration::from_secs(10);
/// The ledger keeps records for longer if a run is unfinished. This is the upper limit of the additional time.
/// The limit is higher if the timeout of a job allows longer runs.
const HELD_MAX: Duration = Duration::from_secs(24 * 3600);
/// The largest number of ticks that the ledger keeps additionally because of unfinished runs. A new leader
/// reads the records of all of them, so their number must be limited.
const HELD_RECORDS: u128 = 1_000_000;

/// Returns the earliest time at which a record of a tick may exist. No tick of the job before `since` is due.
pub(in crate::scheduler) fn record_from(job: &Job, tick: WallTime, since: WallTime) -> WallTime {
    match job.rules.placement {
        Placement::Leader | Placement::EveryWorker => tick,
        Placement::AnyWorker => (tick - AHEAD_MAX).max(since).min(tick),
    }
}

/// Returns the time for which the records of a job's ticks may be needed, rounded up to a whole millisecond. It
/// is the sum of the misfire window, the jitter, and the time by which runs are opened ahead. The job's row
/// stores it.
pub(in crate::scheduler) fn window(job: &Job) -> Duration {
    // If a run is opened ahead of its tick, its record exists before the tick is due.
    let ahead = if job.rules.placement == Placement::AnyWorker { AHEAD_MAX } else { Duration::ZERO };
    let window =
        job.misfire_rule().within().max(LATE_AFTER).saturating_add(job.rules.jitter).saturating_add(ahead);
    Duration::from_millis(u64::try_from(window.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX))
}

/// Returns whether the ledger keeps a record of a tick, which has the time `at`, for a while after `now`. A new leader
/// looks at the tick for no longer than that.
pub(in crate::scheduler) fn is_kept(job: &Job, at: WallTime, now: WallTime) -> bool {
    now <= at + window(job).saturating_add(KEPT_BESIDES / 2)
}

/// Returns the time for which the ledger keeps every record. `longest` is the longest [`window`] of all jobs.
pub(in crate::scheduler) fn kept(longest: Duration, max_clock_offset: Duration) -> Duration {
    longest.max(LATE_AFTER).saturating_add(max_clock_offset * 2 + KEPT_BESIDES)
}

/// Returns the longest time for which a leader may need records of a job.
pub(in crate::scheduler) fn needed(job: &Job, max_clock_offset: Duration) -> Duration {
    kept(window(job), max_clock_offset).saturating_add(held(std::iter::once(job)))
}

/// Returns the upper limit of the additional time for which the ledger keeps records because runs are
/// unfinished or other workers need the records.
pub(in crate::scheduler) fn held<'a>(jobs: impl Iterator<Item = &'a Job> + Clone) -> Duration {
    let runs = jobs.clone().filter_map(|job| {
        let (most, pauses) = (job.rules.retries.attempts().max(1), job.rules.retries.max_backoff());
        let pauses = pauses.saturating_mul(most - 1);
        job.rules.timeout.map(|timeout| timeout.saturating_mul(most).saturating_add(pauses))
    });
    let held = runs.max().unwrap_or_default().max(HELD_MAX);
    let ticks: u128 = jobs.map(|job| held.as_nanos() / job.gap.as_nanos().max(1)).sum();
    let parts = ticks / HELD_RECORDS + 1;
    held / u32::try_from(parts).unwrap_or(u32::MAX)
}

/// Returns the low-water mark: the ledger may prune older records. The records of the last `kept` stay. The
/// records from the time `wanted` on stay too, but for at most `held` longer than the others.
pub(in crate::scheduler) fn low_water(
    now: WallTime,
    kept: Duration,
    wanted: Option<WallTime>,
    held: Duration,
) -> WallTime {
    let mark = now - kept;
    wanted.map_or(mark, |wanted| mark.min(wanted)).max(mark - held)
}

/// Returns the number of ticks of a job that the ledger has to keep. The number assumes that the ticks are
/// always as close together as the two closest ticks of the schedule.
pub(in crate::scheduler) fn ticks_kept(job: &Job) -> u128 {
    let kept = window(job) + KEPT_BESIDES + PRUNE_EVERY;
    kept.as_nanos() / job.gap.as_nanos().max(1) + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::{
        policy::Misfire,
        schedule::Schedule,
        store::snapshot::tests::{SECOND, at},
    };

    fn job() -> Job {
        let job = Job::new("j", Schedule::every(SECOND).unwrap(), |_| async { Ok::<(), String>(()) });
        job.misfire(Misfire::run_all(10 * SECOND))
    }

    #[test]
    fn an_unfinished_record_holds_the_mark_back_for_a_day_and_a_bounded_number_of_records() {
        let (now, kept, day) = (at(10_000_000), 100 * SECOND, Duration::from_secs(86_400));
        let held = |job: &Job| held([job].into_iter());
        assert_eq!(held(&job()), day);
        assert_eq!(held(&job().timeout(day * 2)), day * 2, "a run may take so long");
        let often = Job::new("j", Schedule::every(SECOND / 100).unwrap(), |_| async { Ok::<(), String>(()) });
        assert_eq!(
            held(&often),
            day / 9,
            "a day holds 8.64 million ticks, and a ninth of it less than a million"
        );
        let mark = |wanted: Option<WallTime>| low_water(now, kept, wanted, day);
        assert_eq!(mark(None), now - kept);
        assert_eq!(mark(Some(now)), now - kept);
        assert_eq!(mark(Some(now - day)), now - day);
        assert_eq!(mark(Some(at(0))), now - kept - day, "an older record does not hold it back further");
    }

    #[test]
    fn the_ticks_that_the_ledger_keeps_are_counted() {
        assert_eq!(ticks_kept(&job()), 36);
        assert_eq!(kept(window(&job()), SECOND), 22 * SECOND);
        let endless = job().misfire(Misfire::run_once(Duration::MAX)).placement(Placement::AnyWorker);
        assert!(
            ticks_kept(&endless) > 1 << 50 && kept(window(&endless), SECOND) > window(&job()),
            "no overflow"
        );
        let hour = Misfire::run_all(Duration::from_secs(3600));
        let cron = |line| {
            let schedule = crate::scheduler::schedule::Cron::parse(line).unwrap();
            ticks_kept(&Job::new("c", schedule, |_| async { Ok::<(), String>(()) }).misfire(hour))
        };
        assert_eq!(cron("0 3 * * *"), 1);
        assert_eq!(cron("*/5 * * * *"), 13);
        assert_eq!(cron("* * 9 * * MON"), 3626, "at its busiest, at whatever time that is asked");
    }
}
