//! The invariant of the freezes of the second group of the simulation, also called the pool.

use super::{
    Event, Invariant,
    memories::Memories,
    pool_log::{NOTICED_IN, OFFSET, PoolLog, Request as Sent, Run, RunOf},
    runs::covers,
};
use crate::sim::{
    Excuse, RunStart, Told,
    scenario::true_wall,
    worker::{POOL, PoolSpec},
};
use quorate::{
    env::WallTime,
    internals::JobAction,
    scheduler::{Delivery, HistoryEntry, RequestId, RunOutcome},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// The time after the end of a freeze within which each job must have started a tick again. No job of the group has a
/// longer period, and every tick starts within a second.
const RUNS_AGAIN_IN: Duration = Duration::from_millis(3_500);

/// The longest time before its tick at which a leader of the group opens a run: twice the longest TTL.
const OPENED_AHEAD: Duration = Duration::from_secs(5);

/// Requires that a freeze of the group stops all jobs, under every leader, and only until its end:
///
/// - A freeze that was accepted was stored on a majority. It is in force from [`NOTICED_IN`] later, until its end or
///   until a request to end it is sent. In this time, no tick of any job starts that is due before the end of the
///   freeze. Runs on request start.
/// - Each tick that is due in this time has an entry in its job's history, unless it has started.
/// - An entry of a freeze contains no tick that is due after the end of the freeze.
/// - After the end of the last freeze, each leader-placed job starts a tick again.
///
/// If a tick of an at-least-once job was started before the freeze was in force, its attempts continue, under the
/// next leader too. A run that was open to workers before the freeze may start until a majority of the servers has registered that it does not start.
/// There are two exceptions. A freeze, or its end, need not take effect if servers lose it, so that fewer than a
/// majority of the servers remember it. The entries of ticks from before a server lost data, and of jobs with a
/// short history, need not exist.
#[derive(Debug, Default)]
pub(super) struct Freezes {
    log: PoolLog,
    memories: Memories,
    in_force: Option<Freeze>,
    /// The spans in which freezes were in force. No tick in such a span needs a run.
    spans: Vec<Span>,
    histories: BTreeMap<Arc<str>, Vec<HistoryEntry>>,
    newest_term: u64,
    judged: u64,
    survived: u64,
    prevented: BTreeSet<RunOf>,
    entries: u64,
    expired: u64,
}

/// An accepted freeze.
#[derive(Debug)]
struct Freeze {
    id: RequestId,
    /// The true time by which every worker must have noticed the freeze.
    noticed: Duration,
    /// The true wall time at which the freeze was accepted.
    accepted: WallTime,
    /// The end of the freeze. Ticks that are due then or later may start.
    until: WallTime,
    /// The term under which the freeze was accepted, or a later one.
    term: u64,
}

/// The ticks after `from` and before `until`.
#[derive(Clone, Copy, Debug)]
struct Span {
    from: WallTime,
    until: WallTime,
}

impl Invariant for Freezes {
    fn name(&self) -> &'static str {
        "freezes"
    }

    fn judged(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("freeze judged", self.judged),
            ("freeze outlived its leader", self.survived),
            ("frozen tick reckoned", self.prevented.len() as u64),
            ("freeze entry judged", self.entries),
            ("freeze ended by itself", self.expired),
        ]
    }

    fn see(&mut self, now: Duration, event: &Event<'_>) -> Result<(), String> {
        self.log.see(true_wall(now), event);
        self.memories.see(true_wall(now), event);
        for stored in event.stored().into_iter().filter(|stored| stored.ledger == POOL) {
            self.newest_term = stored.term.max(self.newest_term);
            self.note_survival(true_wall(now));
        }
        match event {
            Event::RunStarted(start) => return self.started(now, start),
            Event::Asked(asked) => match &asked.ask {
                JobAction::Freeze { until, .. } => self.ends(*until),
                // The clock of the quorum, by which ticks are due, may be behind.
                JobAction::Unfreeze => self.ends(true_wall(now) - OFFSET),
                _ => {}
            },
            Event::Answered { number, told: Told::Accepted { id, .. } } => {
                return self.accepted(now, *number, *id);
            }
            Event::HistoryRead { job, entries, .. } => return self.read(job, entries),
            Event::Settled { since, until } => return self.reckon(*since, *until),
            _ => {}
        }
        Ok(())
    }
}

impl Freezes {
    /// Handles a request because of which the freeze may end at `until`.
    fn ends(&mut self, until: WallTime) {
        let Some(freeze) = &mut self.in_force else { return };
        freeze.until = freeze.until.min(until);
        for span in &mut self.spans {
            span.until = span.until.min(until - OFFSET);
        }
    }

    fn note_survival(&mut self, now: WallTime) {
        let newest = self.newest_term;
        if let Some(freeze) =
            self.in_force.as_mut().filter(|freeze| now < freeze.until && freeze.term < newest)
        {
            freeze.term = newest;
            self.survived += 1;
        }
    }

    fn accepted(&mut self, now: Duration, number: u64, id: RequestId) -> Result<(), String> {
        let sent = self.log.all_requests().find(|sent| sent.asked.number == number);
        let Some(JobAction::Freeze { until, .. }) = sent.map(|sent| &sent.asked.ask) else { return Ok(()) };
        let (at, mut until) = (true_wall(now), *until);
        if !self.log.freezes().was_stored(id) {
            return Err(format!("the freeze {id} was accepted, and no majority has stored it"));
        }
        // An earlier request may still be carried out, and end the freeze.
        let is_open = |sent: &&Sent| {
            sent.is_possible()
                && !sent.is_accepted()
                && sent.asked.number < number
                && sent.latest() >= at - OFFSET
        };
        for open in self.log.all_requests().filter(is_open) {
            until = match &open.asked.ask {
                JobAction::Freeze { until: other, .. } => until.min(*other),
                JobAction::Unfreeze => at - OFFSET,
                _ => until,
            };
        }
        if until <= at || Excuse::FreezesForgotten.excuses(self.log.freezes().is_lost(id)) {
            return Ok(());
        }
        self.judged += 1;
        let continues = self.in_force.take().filter(|before| before.until > at + OFFSET);
        let (noticed, accepted) = match continues {
            Some(before) => (before.noticed, before.accepted),
            None => (now + NOTICED_IN, at),
        };
        self.spans.push(Span { from: at + OFFSET, until: until - OFFSET });
        self.in_force = Some(Freeze { id, noticed, accepted, until, term: self.newest_term });
        Ok(())
    }

    fn started(&mut self, now: Duration, start: &RunStart) -> Result<(), String> {
        let RunStart { run, worker, job, at, cause, .. } = start;
        let Some(freeze) = self.in_force.as_ref().filter(|freeze| freeze.noticed <= now) else {
            return Ok(());
        };
        let Some(spec) = self.log.spec(job) else { return Ok(()) };
        let was_open = spec.is_any_worker() && was_open_before(freeze, start);
        let is_lost = Excuse::FreezesForgotten.excuses(self.log.freezes().is_lost(freeze.id));
        if cause.request().is_some()
            || *at >= freeze.until
            || is_lost
            || Excuse::FreezesGoesOn.excuses(self.goes_on(freeze, spec, start))
            || Excuse::FreezesOpen.excuses(was_open)
        {
            return Ok(());
        }
        Err(format!(
            "{worker} starts run {run} of {job}, due at {at:?} ({cause}), though the group is frozen until {:?}",
            freeze.until
        ))
    }

    /// Returns `true` if the tick may have been started before the freeze was in force, and must be repeated.
    fn goes_on(&self, freeze: &Freeze, spec: &PoolSpec, start: &RunStart) -> bool {
        let (tick, noticed) = (RunOf::started(start), freeze.accepted + NOTICED_IN);
        let mut runs = self.log.of(&tick);
        let ran = runs.any(|run| run.start.run != start.run && run.start.true_wall < noticed);
        spec.delivery == Delivery::AtLeastOnce && (ran || start.at < freeze.accepted + OFFSET)
    }

    fn read(&mut self, job: &str, entries: &[HistoryEntry]) -> Result<(), String> {
        self.histories.insert(job.into(), entries.to_vec());
        let frozen = |entry: &&HistoryEntry| entry.end == RunOutcome::SkippedFrozen;
        for entry in entries.iter().filter(frozen) {
            self.entries += 1;
            let last = entry.until.unwrap_or(entry.tick);
            if !self.log.may_be_frozen(job, last) {
                return Err(format!(
                    "the history of {job} says that a freeze left out {:?} to {last:?}, and none did",
                    entry.tick
                ));
            }
        }
        Ok(())
    }

    /// Checks the ticks of all freezes, and that the group runs again.
    fn reckon(&mut self, since: WallTime, until: WallTime) -> Result<(), String> {
        let forgot = self.memories.forgot().max().unwrap_or_default();
        let lost = |span: &Span| Excuse::FreezesUnentered.excuses(span.from <= forgot + OFFSET);
        for span in self.spans.clone().into_iter().filter(|span| !lost(span)) {
            self.are_entered(span)?;
        }
        let Some((end, expires)) = self.log.last_freeze_end() else { return Ok(()) };
        self.expired += u64::from(expires);
        let from = since.max(end + OFFSET);
        if from + RUNS_AGAIN_IN > until {
            return Ok(());
        }
        for spec in self.log.specs().filter(|spec| !spec.is_any_worker()) {
            let started = |run: &Run| {
                *run.start.job == *spec.name && run.start.cause.request().is_none() && run.start.at >= end
            };
            if !self.log.runs().any(started) {
                return Err(format!(
                    "{} has not started a tick since the freeze ended at {end:?}",
                    spec.name
                ));
            }
        }
        Ok(())
    }

    /// Checks that each tick of the span has started, or has an entry in its job's history.
    fn are_entered(&mut self, span: Span) -> Result<(), String> {
        for spec in self.log.specs().filter(|spec| spec.history > 100) {
            let history = self.histories.get(spec.name).map_or(&[][..], |entries| entries);
            let after = |at: &WallTime| spec.schedule.next_after(*at).filter(|at| *at < span.until);
            for at in std::iter::successors(after(&span.from), after) {
                let tick = RunOf::tick(spec.name, at);
                let has_run = self.log.of(&tick).next().is_some();
                if !has_run && !history.iter().any(|entry| covers(entry, at)) {
                    return Err(format!("{}, due at {at:?} in a freeze, has no entry", spec.name));
                }
                self.prevented.insert(tick);
            }
        }
        Ok(())
    }
}

/// Returns `true` if the run may have been open to workers before the freeze. Each leader withdraws such a run. A worker
/// may start it until a majority of the servers has registered that it does not start, and no leader can achieve that while
/// too few servers answer in time.
fn was_open_before(freeze: &Freeze, start: &RunStart) -> bool {
    start.at < freeze.accepted + OPENED_AHEAD + OFFSET
}

#[cfg(test)]
mod tests;
