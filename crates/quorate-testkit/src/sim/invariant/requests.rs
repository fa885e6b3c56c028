//! The invariant of the requests that an operator sends to the second group of the simulation, also called
//! the pool.

use super::{
    Event, Invariant, MAJORITY,
    pool_log::{NOTICED_IN, OFFSET, PoolLog, Request as Sent, RunOf},
};
use crate::sim::{
    Excuse, RunStart, Told,
    scenario::true_wall,
    worker::{POOL, PoolSpec},
};
use quorate::{
    env::WallTime,
    internals::{JobAction, JobRow},
    scheduler::{Delivery, HistoryEntry, RequestId},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// Requires that an operator's request is carried out once, and that its answer is true:
///
/// - Each run on request belongs to a request that was sent and not refused, and runs a requested tick. The
///   tick of a trigger is the moment of the request. The ticks of a back-fill are those of its span, oldest
///   first.
/// - An accepted request was stored on a majority. Each run of the request has started, or the job's history
///   says, or said on a majority, how the run ended.
/// - A pause that was accepted takes effect [`NOTICED_IN`] later, until a request to resume the job is sent. In
///   this time, no tick of the job's schedule starts that is due before the end of the pause. There is one
///   exception: if a tick of an at-least-once job was started before the pause, its attempts continue, under the
///   next leader too.
///
/// There are three exceptions. A later request may cancel an earlier one. A request or a pause need not take
/// effect if servers lose it before, so that fewer than a majority of the servers remember it. A request whose
/// answer the operator did not receive may or may not have been carried out.
#[derive(Debug, Default)]
pub(super) struct Requests {
    log: PoolLog,
    /// For each request, the servers that store its record. A flag says whether the record was on a majority
    /// once and on fewer servers later.
    stored: BTreeMap<RequestId, BTreeSet<String>>,
    /// For each job, the servers that store the job's row as paused.
    paused: BTreeMap<Arc<str>, BTreeSet<String>>,
    /// For each job whose accepted pause is in force, that pause.
    in_force: BTreeMap<Arc<str>, Pause>,
    histories: BTreeMap<Arc<str>, Vec<HistoryEntry>>,
    /// For each entry of runs on request, by the request and the first and the last tick, the servers that have received it.
    /// They may lose it later, and no leader copies histories.
    received: BTreeMap<(RequestId, WallTime, WallTime), BTreeSet<String>>,
    judged: u64,
    forgotten: u64,
    pauses: u64,
}

/// An accepted pause.
#[derive(Debug)]
struct Pause {
    /// The true time by which every worker must have noticed the pause.
    noticed: Duration,
    /// The time at which the pause was accepted.
    accepted: WallTime,
    /// The end of the pause, if it has one. Ticks that are due then or later may start.
    until: Option<WallTime>,
}

impl Invariant for Requests {
    fn name(&self) -> &'static str {
        "requests"
    }

    fn judged(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("request judged", self.judged),
            ("request forgotten by servers", self.forgotten),
            ("pause judged", self.pauses),
        ]
    }

    fn see(&mut self, now: Duration, event: &Event<'_>) -> Result<(), String> {
        self.log.see(true_wall(now), event);
        for stored in event.stored() {
            match stored.ledger.strip_prefix(POOL) {
                Some("") => self.written(stored),
                Some(part) if part.starts_with("{history:") => self.received(stored),
                _ => {}
            }
        }
        match event {
            Event::RunStarted(start) => return self.started(now, start),
            Event::Asked(asked) => {
                // The operator sends a request to resume the job. From now on its ticks may start again.
                if let JobAction::Resume { job } = &asked.ask {
                    self.in_force.remove(job);
                }
            }
            Event::Answered { number, told } => return self.answered(now, *number, told),
            Event::HistoryRead { job, entries, .. } => {
                self.histories.insert((*job).into(), entries.to_vec());
            }
            Event::Settled { .. } => return self.reckon(),
            _ => {}
        }
        Ok(())
    }
}

impl Requests {
    fn written(&mut self, stored: crate::sim::Stored<'_>) {
        let node = stored.node.to_owned();
        if let Some(job) = stored.key.strip_prefix(JobRow::PREFIX) {
            let Ok(row) = JobRow::parse(stored.value) else { return };
            let on = self.paused.entry(job.into()).or_default();
            match row.paused {
                Some(_) => on.insert(node),
                None => on.remove(&node),
            };
            return;
        }
        // Every record that belongs to a request has the request's id as a part of its key.
        let id = stored.key.split('/').find_map(|part| part.parse::<RequestId>().ok());
        if let Some(id) = id {
            self.stored.entry(id).or_default().insert(node);
        }
    }

    fn received(&mut self, stored: crate::sim::Stored<'_>) {
        let Ok(entry) = HistoryEntry::parse(stored.value) else { return };
        let Some(id) = entry.cause.request() else { return };
        let ticks = (id, entry.tick, entry.until.unwrap_or(entry.tick));
        self.received.entry(ticks).or_default().insert(stored.node.to_owned());
    }

    fn answered(&mut self, now: Duration, number: u64, told: &Told) -> Result<(), String> {
        let Some(sent) = self.log.all_requests().find(|sent| sent.asked.number == number) else {
            return Ok(());
        };
        let Told::Accepted { id, count } = told else { return Ok(()) };
        let (ask, job) = (&sent.asked.ask, sent.asked.ask.job());
        match ask {
            JobAction::Trigger { .. } | JobAction::Backfill { .. } => {
                let on = self.stored.get(id).map_or(0, BTreeSet::len);
                if on < MAJORITY {
                    return Err(format!("{id} ({ask:?}) was accepted, and stored on {on} servers"));
                }
                let makes = self.log.spec(job).map_or(0, |spec| ticks(spec, sent).len() as u64);
                if *count != makes {
                    return Err(format!(
                        "{id} ({ask:?}) makes {count} runs, by its answer, and {makes} in truth"
                    ));
                }
            }
            JobAction::Pause { until, .. } => {
                // An earlier request to resume may still be carried out, and end the pause.
                let at = true_wall(now);
                let resumes = |sent: &&Sent| matches!(sent.asked.ask, JobAction::Resume { .. });
                let mut open = self.log.requests(job).filter(resumes).filter(|sent| sent.is_possible());
                let undone = open.any(|sent| !sent.is_accepted() && sent.latest() >= at - OFFSET);
                let on = self.paused.get(job).map_or(0, BTreeSet::len);
                if !undone && on >= MAJORITY {
                    self.pauses += 1;
                    let pause = Pause { noticed: now + NOTICED_IN, accepted: at, until: *until };
                    self.in_force.insert(Arc::clone(job), pause);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn started(&self, now: Duration, start: &RunStart) -> Result<(), String> {
        let RunStart { run, worker, job, at, cause, .. } = start;
        let wrong =
            |why: &str| Err(format!("{worker} starts run {run} of {job}, due at {at:?} ({cause}), {why}"));
        let Some(id) = cause.request() else {
            return if self.is_paused(now, start) { wrong("though it is paused") } else { Ok(()) };
        };
        let makes =
            |sent: &&Sent| matches!(sent.asked.ask, JobAction::Trigger { .. } | JobAction::Backfill { .. });
        let mut possible = self.log.requests(job).filter(makes).filter(|sent| may_be(sent, id));
        let spec = self.log.spec(job);
        if !possible.any(|sent| spec.is_some_and(|spec| is_of(spec, sent, *at))) {
            return wrong("of which there was no such request");
        }
        let later = self.log.of_request(id).find(|other| other.start.at > *at && other.start.job == *job);
        let first = self.log.of(&RunOf::started(start)).count() == 1;
        match later {
            Some(later) if first => wrong(&format!("after run {} of a later tick", later.start.run)),
            _ => Ok(()),
        }
    }

    /// Returns `true` if a pause that is in force forbids the start of this tick.
    fn is_paused(&self, now: Duration, start: &RunStart) -> bool {
        let Some(pause) = self.in_force.get(&start.job).filter(|pause| pause.noticed <= now) else {
            return false;
        };
        let is_lost = self.log.freezes().is_founded_since(pause.accepted);
        if is_lost || pause.until.is_some_and(|until| until <= start.at) {
            return false;
        }
        let Some(spec) = self.log.spec(&start.job) else { return false };
        let goes_on = spec.delivery == Delivery::AtLeastOnce && start.at < pause.accepted + OFFSET;
        !Excuse::RequestsGoesOn.excuses(goes_on)
    }

    /// Checks that each run of every accepted request has started, or has a history entry.
    fn reckon(&mut self) -> Result<(), String> {
        for sent in self.log.all_requests() {
            let Some((_, Told::Accepted { id, .. })) = sent.told else { continue };
            let (ask, job) = (&sent.asked.ask, sent.asked.ask.job());
            let Some(spec) = self.log.spec(job).filter(|_| makes_runs(ask)) else { continue };
            let cancelled = self.log.may_be_cancelled(job, sent.asked.at, WallTime::from_micros(u64::MAX));
            let forgotten = self.log.freezes().is_founded_since(sent.asked.at);
            (self.judged, self.forgotten) = (self.judged + 1, self.forgotten + u64::from(forgotten));
            let entries = || self.histories.get(job).into_iter().flatten();
            let received = || self.received.iter().filter(|(_, servers)| servers.len() >= MAJORITY);
            let due = match ask {
                JobAction::Trigger { .. } => None,
                _ => Some(ticks(spec, sent)),
            };
            let told = |tick: Option<WallTime>| {
                let is_of =
                    |at: WallTime, until: WallTime| tick.is_none_or(|tick| at <= tick && tick <= until);
                let ran = self.log.of_request(id).any(|run| is_of(run.start.at, run.start.at));
                ran || entries().any(|entry| {
                    entry.cause.request() == Some(id) && is_of(entry.tick, entry.until.unwrap_or(entry.tick))
                }) || received().any(|((of, first, last), _)| *of == id && is_of(*first, *last))
            };
            let lacking = match due {
                None => (!told(None)).then_some(sent.asked.at),
                Some(ticks) => ticks.into_iter().find(|tick| !told(Some(*tick))),
            };
            if let Some(tick) = lacking {
                if Excuse::RequestsCancelled.excuses(cancelled)
                    || Excuse::RequestsForgotten.excuses(forgotten)
                {
                    continue;
                }
                return Err(format!("{id} ({ask:?}) was accepted, and nothing came of its run of {tick:?}"));
            }
        }
        Ok(())
    }
}

fn makes_runs(ask: &JobAction) -> bool {
    matches!(ask, JobAction::Trigger { .. } | JobAction::Backfill { .. })
}

/// Returns `true` if the request may have the id `id`. Returns `false` if the operator's result names another
/// id, or says that the request was not sent or was refused.
fn may_be(sent: &Sent, id: RequestId) -> bool {
    match &sent.told {
        None | Some((_, Told::Unknown { id: None })) => true,
        Some((_, Told::Accepted { id: known, .. } | Told::Unknown { id: Some(known) })) => *known == id,
        Some((_, Told::Refused { .. } | Told::NotSent)) => false,
    }
}

/// Returns `true` if `tick` is one of the ticks for which the request asks.
fn is_of(spec: &PoolSpec, sent: &Sent, tick: WallTime) -> bool {
    match sent.asked.ask {
        JobAction::Backfill { .. } => ticks(spec, sent).contains(&tick),
        // The tick of a trigger is the time at which the request was posted, by the servers' clocks. These
        // clocks may differ from the true time by `OFFSET`.
        _ => sent.asked.at <= tick + OFFSET && tick <= sent.latest() + OFFSET,
    }
}

/// Returns the ticks for which a back-fill asks. For any other request, returns the time of the request.
fn ticks(spec: &PoolSpec, sent: &Sent) -> Vec<WallTime> {
    let JobAction::Backfill { from, until, .. } = sent.asked.ask else { return vec![sent.asked.at] };
    let next = |at: &WallTime| spec.schedule.next_after(*at).filter(|tick| *tick < until);
    std::iter::successors(next(&(from - Duration::from_micros(1))), next).collect()
}

#[cfg(test)]
mod tests;
