//! The invariant of skipped ticks in the histories of both groups of the simulation.

use super::{Event, Invariant, MAJORITY, memories::Foundings, pool_log::OFFSET, runs::covers};
use crate::sim::{
    Excuse,
    scenario::true_wall,
    worker::{GROUP, POOL, pool_specs, specs},
};
use quorate::{
    env::WallTime,
    scheduler::{HistoryEntry, RunOutcome},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// Requires that a tick has one outcome, whatever leaders follow one another: a tick that a majority of the servers
/// has in the history as skipped by the overlap or the misfire rule has no second such entry, and does not start later.
///
/// The second part is judged for jobs that run on the leader. A worker may have taken the run of another job before the
/// leader entered the tick.
///
/// A tick is not judged if a server lost data after it was due. Too few servers may then remember that a leader decided
/// on the tick.
#[derive(Debug)]
pub(super) struct Outcomes {
    /// For each ledger that stores a history, the job, and whether the job runs on the leader.
    parts: BTreeMap<String, (&'static str, bool)>,
    /// The entries of skipped ticks that fewer than a majority of the servers have received, by job and key.
    received: BTreeMap<(&'static str, Arc<str>), BTreeSet<String>>,
    /// For each job, the entries of skipped ticks that a majority has received.
    skipped: BTreeMap<&'static str, Vec<HistoryEntry>>,
    foundings: [Foundings; 2],
    judged: u64,
}

impl Default for Outcomes {
    fn default() -> Self {
        let part = |group: &str, job: &str| format!("{group}{{{}}}", HistoryEntry::part(job));
        let first = specs().iter().map(|spec| (part(GROUP, spec.name), (spec.name, true)));
        let pool = pool_specs().iter();
        let pool = pool.map(|spec| (part(POOL, spec.name), (spec.name, !spec.is_any_worker())));
        Self {
            parts: first.chain(pool).collect(),
            received: BTreeMap::new(),
            skipped: BTreeMap::new(),
            foundings: Default::default(),
            judged: 0,
        }
    }
}

impl Invariant for Outcomes {
    fn name(&self) -> &'static str {
        "outcomes"
    }

    fn judged(&self) -> Vec<(&'static str, u64)> {
        vec![("entry of skipped ticks judged", self.judged)]
    }

    fn see(&mut self, now: Duration, event: &Event<'_>) -> Result<(), String> {
        for (foundings, group) in self.foundings.iter_mut().zip([GROUP, POOL]) {
            foundings.see(true_wall(now), group, event);
        }
        for stored in event.stored() {
            if let Some((job, _)) = self.parts.get(stored.ledger).copied() {
                self.written(stored.node, job, stored.key, stored.value)?;
            }
        }
        match event {
            Event::TickStarted(start) => self.started(&start.job, start.at),
            Event::RunStarted(start) if start.cause.request().is_none() => self.started(&start.job, start.at),
            _ => Ok(()),
        }
    }
}

impl Outcomes {
    fn written(&mut self, node: &str, job: &'static str, key: &Arc<str>, value: &str) -> Result<(), String> {
        let entry = HistoryEntry::parse(value).map_err(|error| error.to_string())?;
        if !matches!(entry.end, RunOutcome::SkippedOverlap | RunOutcome::SkippedMisfire) {
            return Ok(());
        }
        let on = self.received.entry((job, Arc::clone(key))).or_default();
        on.insert(node.to_owned());
        let skipped = self.skipped.entry(job).or_default();
        if on.len() < MAJORITY || skipped.iter().any(|known| known.key() == entry.key()) {
            return Ok(());
        }
        self.judged += 1;
        let last = |entry: &HistoryEntry| entry.until.unwrap_or(entry.tick);
        let overlaps = |known: &&HistoryEntry| known.tick <= last(&entry) && entry.tick <= last(known);
        let second = skipped.iter().find(overlaps).map(show);
        let shown = show(&entry);
        let tick = entry.tick;
        skipped.push(entry);
        match second {
            Some(first) if !Excuse::OutcomesForgotten.excuses(self.is_forgotten(tick)) => {
                Err(format!("{job} has {first} and {shown}"))
            }
            _ => Ok(()),
        }
    }

    fn started(&self, job: &str, tick: WallTime) -> Result<(), String> {
        let on_leader = self.parts.values().any(|(name, on_leader)| *name == job && *on_leader);
        let skipped = self.skipped.get(job).into_iter().flatten().find(|entry| covers(entry, tick));
        match skipped.filter(|_| on_leader) {
            Some(entry) if !Excuse::OutcomesForgotten.excuses(self.is_forgotten(tick)) => {
                Err(format!("{job}, due at {tick:?}, starts after {}", show(entry)))
            }
            _ => Ok(()),
        }
    }

    /// Returns `true` if a server lost data after the tick was due.
    fn is_forgotten(&self, tick: WallTime) -> bool {
        self.foundings.iter().any(|foundings| foundings.any_since(tick - OFFSET))
    }
}

fn show(entry: &HistoryEntry) -> String {
    let HistoryEntry { tick, until, end, term, reason, .. } = entry;
    format!("{end} of {tick:?} until {until:?} under {}, {reason:?}", term.get())
}

#[cfg(test)]
mod tests {
    use super::{super::pool_log::made, *};

    fn entry(job: &str, term: u64, (tick, until): (u64, u64), end: RunOutcome) -> HistoryEntry {
        let until = (until != tick).then(|| made::at(until));
        HistoryEntry { until, ..made::entry(job, tick, term, end) }
    }

    /// Lets this number of servers receive the entry.
    fn written(outcomes: &mut Outcomes, entry: &HistoryEntry, servers: usize) -> Result<(), String> {
        let ledger = format!("{POOL}{{{}}}", HistoryEntry::part(&entry.job));
        let record = entry.clone().into_record(entry.tick);
        made::written(outcomes, &ledger, &entry.key(), &record.value, servers)
    }

    #[test]
    fn a_skipped_tick_has_no_other_entry_and_does_not_start() {
        use RunOutcome::{SkippedMisfire, SkippedOverlap, SkippedPaused};
        let first = entry("led", 1, (3_000, 5_000), SkippedOverlap);
        let after = |then: &dyn Fn(&mut Outcomes) -> Result<(), String>| {
            let mut outcomes = Outcomes::default();
            written(&mut outcomes, &first, 5).unwrap();
            then(&mut outcomes)
        };
        for (second, is_wrong) in [
            (entry("led", 2, (5_000, 5_000), SkippedMisfire), true),
            (entry("led", 2, (1_000, 3_000), SkippedMisfire), true),
            (entry("led", 2, (1_000, 2_000), SkippedMisfire), false),
            (entry("led", 2, (5_000, 5_000), SkippedPaused), false),
            (entry("any-each", 2, (5_000, 5_000), SkippedMisfire), false),
            (first.clone(), false),
        ] {
            let seen = after(&|outcomes| written(outcomes, &second, 5));
            assert_eq!(seen.is_err(), is_wrong, "{seen:?}");
        }
        let again = entry("led", 2, (5_000, 5_000), SkippedMisfire);
        assert!(after(&|outcomes| written(outcomes, &again, 2)).is_ok(), "on a minority");
        let starts = |at| after(&|outcomes| made::started(outcomes, at, &made::start(1, "led", at)));
        assert!(starts(4_000).unwrap_err().contains("starts after"));
        assert!(starts(6_000).is_ok());
        let founded = |group| {
            after(&|outcomes| {
                made::see(outcomes, 5_500, &Event::Forgot { node: "n0" })?;
                made::founded(outcomes, 5_500, group, 2)?;
                written(outcomes, &again, 5)
            })
        };
        assert!(founded("another").is_err(), "the ledger goes on");
        assert!(founded(POOL).is_ok(), "a majority has forgotten the run");
    }
}
