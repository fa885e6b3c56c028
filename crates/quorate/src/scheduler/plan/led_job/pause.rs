//! The pause of a job and the freeze of its group. While one of them lasts, no tick of the job is due.

use super::LedJob;
use crate::{
    env::WallTime,
    scheduler::{
        alert::AlertKind,
        job::RequestId,
        plan::active_run::{SkippedTick, Withdrawal},
        run::pending_run::PendingRun,
        store::Paused,
    },
};
use std::{collections::VecDeque, mem, sync::Arc, time::Duration};

/// A pause that has ended.
#[derive(Debug, PartialEq)]
pub(in crate::scheduler) struct EndedPause {
    pub(in crate::scheduler) paused: Paused,
    /// True if the pause was a freeze of the group.
    pub(in crate::scheduler) is_freeze: bool,
    /// The first and the last tick that the pause left out.
    pub(in crate::scheduler) span: Option<(WallTime, WallTime)>,
}

impl LedJob {
    /// Forgets the failed runs in a row, for a test.
    pub(in crate::scheduler) fn forget_failed_runs(&mut self) {
        self.row.failed = None;
    }

    /// Returns whether the job is paused, or its group is frozen.
    pub(in crate::scheduler) fn is_paused(&self) -> bool {
        self.row.paused.is_some() || self.frozen.is_some()
    }

    /// Returns the reason if a pause of the job or a freeze of the group leaves the tick out.
    pub(in crate::scheduler) fn left_out_at(&self, tick: WallTime) -> Option<Withdrawal> {
        let covers =
            |paused: &Option<Paused>| paused.as_ref().is_some_and(|paused| is_before(tick, paused.until));
        let own = covers(&self.row.paused).then_some(Withdrawal::Paused);
        own.or_else(|| covers(&self.frozen).then_some(Withdrawal::Frozen))
    }

    /// Pauses the job on a request, from `paused.at` on, and returns the skipped ticks. If the job is already
    /// paused, the pause continues, and a new reason or a new end replaces the present reason and end. Returns
    /// `None` if nothing changes, or if the row shows that this request was carried out before.
    pub(in crate::scheduler) fn pause(
        &mut self,
        request: RequestId,
        paused: Paused,
    ) -> Option<Vec<SkippedTick>> {
        if self.row.requests.contains(&request) {
            return None;
        }
        if let Some(before) = &mut self.row.paused {
            if paused.reason.is_none() && paused.until.is_none() {
                return None;
            }
            *before = Paused { at: before.at, ..paused };
            self.row.changed_by(request);
            return Some(Vec::new());
        }
        // If a tick is due and not planned yet, the pause begins just before the first such tick. So this tick
        // is skipped, like the ticks that follow.
        let until = paused.until;
        self.row.paused = Some(Paused { at: self.pause_begins(paused.at), ..paused });
        self.row.changed_by(request);
        Some(self.skip_waiting(until, SkippedTick::Paused))
    }

    /// Pauses the job in the name of `by` if enough runs in a row have failed and it is not paused. Returns the skipped ticks.
    pub(in crate::scheduler) fn pause_if_failing(
        &mut self,
        by: Arc<str>,
        now: WallTime,
    ) -> Option<Vec<SkippedTick>> {
        let most = self.job.rules.pause_after_failures?;
        let failed =
            self.row.failed.as_ref().filter(|failed| failed.count >= most && self.row.paused.is_none())?;
        let reason = format!("{} failed runs in a row; the last: {}", failed.count, failed.why);
        let at = self.pause_begins(now);
        tracing::warn!(job = &*self.job.name, "paused: {}", crate::plain::plain(&reason, 300));
        if self.job.on_alert.is_some() {
            self.row.health.get_or_insert_default().push(&self.job.name, AlertKind::Paused, at, &reason);
        }
        self.row.paused = Some(Paused { by, at, reason: Some(reason.into()), until: None });
        Some(self.skip_waiting(None, SkippedTick::Paused))
    }

    /// Freezes the job with its group. Returns the skipped ticks. If the job is frozen, the new reason and the new end
    /// replace the old ones.
    pub(in crate::scheduler) fn freeze(&mut self, freeze: Paused) -> Vec<SkippedTick> {
        let until = freeze.until;
        let at = self.frozen.as_ref().map_or_else(|| self.pause_begins(freeze.at), |before| before.at);
        self.frozen = Some(Paused { at, ..freeze });
        self.skip_waiting(until, SkippedTick::Frozen)
    }

    /// Returns the time from which a pause that is requested at `now` leaves ticks out. During a freeze, or during a
    /// pause of the job, the other one leaves out the earlier ticks.
    fn pause_begins(&self, now: WallTime) -> WallTime {
        if self.is_paused() { now } else { self.decided(now) }
    }

    /// Returns the waiting ticks before `until` as skipped, including ticks whose runs were interrupted. Ticks from
    /// `until` on keep waiting. Open runs stay too, because an open run ends only through the nodes: its worker may
    /// have started it.
    fn skip_waiting(
        &mut self,
        until: Option<WallTime>,
        skipped: fn(PendingRun) -> SkippedTick,
    ) -> Vec<SkippedTick> {
        self.next = None;
        let (requested, ticks): (_, Vec<_>) =
            mem::take(&mut self.postponed).into_iter().partition(|(_, run)| run.request().is_some());
        self.postponed = requested;
        let (kept, waiting): (_, VecDeque<_>) = mem::take(&mut self.waiting)
            .into_iter()
            .partition(|run| run.is_open() || !is_before(run.tick, until));
        self.waiting = kept;
        waiting.into_iter().chain(ticks.into_iter().map(|(_, run)| run)).map(skipped).collect()
    }

    /// Freezes a job that is being taken over, if the freeze of the group has not ended or no leader has ended it for
    /// this job. The waiting runs of earlier terms stay. Earlier leaders have decided on the ticks up to `decided`, if
    /// that is known.
    pub(in crate::scheduler) fn take_freeze(&mut self, freeze: &Paused, decided: Option<WallTime>) {
        let last = freeze.until.map(|until| until - Duration::from_micros(1));
        if last.is_some_and(|last| last <= self.row.since) {
            return;
        }
        // The freeze also leaves out the ticks before it on which no leader has decided.
        let first = decided.filter(|_| !self.is_paused()).and_then(|decided| {
            let schedule = &self.job.schedule;
            schedule.next_after(decided.max(self.planned)).filter(|tick| *tick <= freeze.at)
        });
        let at = first.map_or(freeze.at, |first| first - Duration::from_micros(1));
        self.frozen = Some(Paused { at, ..freeze.clone() });
        self.next = None;
    }

    /// Replaces the end of the freeze, if the job is frozen.
    pub(in crate::scheduler) fn change_freeze(&mut self, freeze: &Paused) {
        self.frozen.iter_mut().for_each(|frozen| frozen.until = freeze.until);
    }

    /// Ends a pause or a freeze if its end has come. Ticks from that end on are due, also those that have passed since:
    /// the misfire rule decides on them. Returns `None` if neither ends. If both end, the call ends the one that ended
    /// first, and the next call the other one.
    pub(in crate::scheduler) fn end_pause(&mut self, now: WallTime) -> Option<EndedPause> {
        let ended = |paused: &Option<Paused>| paused.as_ref().and_then(|paused| paused.ended(now));
        let (own, freeze) = (ended(&self.row.paused), ended(&self.frozen));
        let is_freeze = freeze.is_some_and(|freeze| own.is_none_or(|own| freeze <= own));
        let until = if is_freeze { freeze } else { own }?;
        let paused = if is_freeze { self.frozen.take() } else { self.row.paused.take() }?;
        let last = until - Duration::from_micros(1);
        let span = self.leave(paused.at, last);
        if !is_freeze {
            self.row.forget_failures(last.max(paused.at));
        }
        Some(EndedPause { paused, is_freeze, span })
    }

    /// Resumes the job on a request. Returns the pause that ended, and the span of the ticks that were skipped
    /// because of it. Returns `None` if the job is not paused, or if the row shows that this request was
    /// carried out before.
    pub(in crate::scheduler) fn resume(&mut self, request: RequestId, now: WallTime) -> Option<EndedPause> {
        if self.row.requests.contains(&request) {
            return None;
        }
        let paused = self.row.paused.take()?;
        let span = self.leave(paused.at, now);
        self.row.forget_failures(now);
        self.row.changed_by(request);
        Some(EndedPause { paused, is_freeze: false, span })
    }

    /// Leaves a pause, whose ticks were those from `began` to `last`. Returns the span of the ticks that it left out,
    /// which may begin before this leader's term. If the other pause began earlier, it leaves out these ticks too, and
    /// the span is returned when it ends. Without another pause, ticks after `last` are due.
    fn leave(&mut self, began: WallTime, last: WallTime) -> Option<(WallTime, WallTime)> {
        let other = self.row.paused.as_ref().or(self.frozen.as_ref());
        if other.is_some_and(|other| other.at <= began) {
            return None;
        }
        let from = began.max(self.row.since);
        // Because of the new `since` in the row, later leaders run no catch-ups for the ticks of the pause. A later tick may
        // be planned already, and its run may not be recorded yet.
        self.row.since = self.row.since.max(last);
        if self.job.schedule.is_after_end() {
            match self.after_end {
                Some(_) => self.next = self.next_due(self.after_end),
                None => self.begin_after_end(last, Some(last)),
            }
            return None;
        }
        let schedule = &self.job.schedule;
        let first = schedule.next_after(from).filter(|tick| *tick <= last);
        let span = first.and_then(|first| Some((first, schedule.last_within(from, last)?)));
        self.planned = self.planned.max(last);
        self.next = self.next_due(self.job.schedule.next_after(self.planned));
        span
    }
}

/// Returns whether a pause with the end `until` covers the tick. A pause without an end covers every tick.
pub(in crate::scheduler) fn is_before(tick: WallTime, until: Option<WallTime>) -> bool {
    until.is_none_or(|until| tick < until)
}
