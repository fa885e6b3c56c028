//! The ends of runs that the seal found, from which a new leader writes the history entries that the previous leader
//! did not write.

use crate::{
    env::WallTime,
    scheduler::{
        job::{Job, RequestId, RunCause, RunOutcome},
        schedule::AfterEnd,
        store::{HistoryEntry, RunRecord, job_and_tick, request_of, snapshot::LedgerSnapshot},
    },
};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// The recorded ends of one job's runs, as the seal found them. If the previous leader crashed, the history may
/// lack entries for the latest of these ends.
#[derive(Debug)]
pub(in crate::scheduler) struct Ends {
    job: Arc<str>,
    keep: usize,
    entries: Vec<RecordedEnd>,
}

/// The entry of a run that ended in an earlier term, and the time of the run's end.
#[derive(Clone, Debug)]
pub(in crate::scheduler) struct RecordedEnd {
    pub(in crate::scheduler) entry: HistoryEntry,
    /// The time of the entry's record, which is the end of the run. With the present time, pruning would keep
    /// this entry and delete entries of later runs.
    pub(in crate::scheduler) at: WallTime,
}

impl Ends {
    /// Returns the newest recorded ends of a job, at most as many as the job's history keeps. `requested` are the ends
    /// of the job's requested runs. Returns `None` if the seal found no end.
    pub(in crate::scheduler) fn find(
        job: &Job,
        sealed: &LedgerSnapshot,
        requested: Vec<RecordedEnd>,
    ) -> Option<Self> {
        let ended = recorded_ends(&job.name, sealed).take(job.rules.history);
        let mut entries: Vec<_> = ended.chain(requested).collect();
        entries.sort_by_key(|end| Reverse(end.entry.tick));
        entries.truncate(job.rules.history);
        (!entries.is_empty()).then(|| Self { job: Arc::clone(&job.name), keep: job.rules.history, entries })
    }

    pub(in crate::scheduler) fn job(&self) -> &Arc<str> {
        &self.job
    }

    /// Returns the number of entries that the job's history keeps.
    pub(in crate::scheduler) fn keep(&self) -> usize {
        self.keep
    }

    /// Returns the end of the job's last successful run, if the seal found one.
    pub(in crate::scheduler) fn last_success(&self) -> Option<WallTime> {
        let done = self.entries.iter().filter(|end| end.entry.end == RunOutcome::Done);
        done.map(|end| end.at).max()
    }

    /// Returns the time of the newest end.
    pub(in crate::scheduler) fn newest(&self) -> Option<WallTime> {
        self.entries.iter().map(|end| end.at).max()
    }

    /// Returns the entries that the history lacks. `keys` are the keys of its entries. If the history is full,
    /// an entry that is older than all of these was pruned, and is not lacking.
    pub(in crate::scheduler) fn lacking(
        &self,
        keys: &BTreeSet<Arc<str>>,
    ) -> impl Iterator<Item = RecordedEnd> {
        let oldest = keys.first().filter(|_| keys.len() >= self.keep).cloned();
        let lacks = move |end: &&RecordedEnd| {
            let key = end.entry.key();
            oldest.as_ref().is_none_or(|oldest| key > *oldest) && !keys.contains(&key)
        };
        self.entries.iter().filter(lacks).cloned()
    }
}

/// Returns the ends of the requested runs that the seal found, by job. A request whose row was lost counts as a trigger.
pub(in crate::scheduler) fn requested_ends(sealed: &LedgerSnapshot) -> BTreeMap<Arc<str>, Vec<RecordedEnd>> {
    let causes: BTreeMap<RequestId, RunCause> =
        sealed.requests().map(|row| (row.id(), row.cause())).collect();
    let mut ends: BTreeMap<Arc<str>, Vec<RecordedEnd>> = BTreeMap::new();
    for (key, record) in sealed.ended_on_request() {
        let (Some(id), Some((job, tick))) = (request_of(key), job_and_tick(key)) else { continue };
        let cause = causes.get(&id).copied().unwrap_or(RunCause::Triggered { id });
        let job: Arc<str> = job.into();
        if let Some(end) = entry_from(&job, tick, cause, record) {
            ends.entry(job).or_default().push(end);
        }
    }
    ends
}

/// Creates the entry of a tick from the closed record of its run. Returns `None` if the record is not closed.
fn entry_from(job: &Arc<str>, tick: WallTime, cause: RunCause, record: &RunRecord) -> Option<RecordedEnd> {
    let RunRecord::Closed { worker, end, outcome: why, took, term, at, from } = record else { return None };
    let between = if why.is_empty() { "" } else { "; " };
    let entry = HistoryEntry {
        reason: format!("{why}{between}entered by the next leader").into(),
        took: *took,
        attempts: u32::from(took.is_some()),
        until: from.map(|_| tick),
        ..HistoryEntry::new(job, from.unwrap_or(tick), cause, *end, worker, *term)
    };
    Some(RecordedEnd { entry, at: *at + took.unwrap_or_default() })
}

/// The end of a run that other jobs may follow.
#[derive(Debug)]
pub(in crate::scheduler) struct FollowedEnd {
    pub(in crate::scheduler) tick: WallTime,
    end: RunOutcome,
    /// True if the run was one of a back-fill.
    is_backfill: bool,
    /// The time of the run's record.
    pub(in crate::scheduler) at: WallTime,
    /// The time at which the run ended.
    pub(in crate::scheduler) ended: WallTime,
}

impl FollowedEnd {
    pub(in crate::scheduler) fn new(entry: &HistoryEntry, at: WallTime, ended: WallTime) -> Self {
        let is_backfill = matches!(entry.cause, RunCause::Backfilled { .. });
        Self { tick: entry.tick, end: entry.end, is_backfill, at, ended }
    }

    /// Returns whether a job follows the end that follows the ends `on`.
    pub(in crate::scheduler) fn is_followed(&self, on: AfterEnd) -> bool {
        let fails = matches!(self.end, RunOutcome::Failed | RunOutcome::TimedOut | RunOutcome::Lost);
        !self.is_backfill
            && match on {
                AfterEnd::Success => self.end == RunOutcome::Done,
                AfterEnd::Failure => fails,
                AfterEnd::End => fails || matches!(self.end, RunOutcome::Done | RunOutcome::Cancelled),
            }
    }
}

/// Returns the ends of a job's runs that the seal found, the oldest first, with those of requested runs.
pub(in crate::scheduler) fn ends_to_follow(job: &Arc<str>, sealed: &LedgerSnapshot) -> Vec<FollowedEnd> {
    let followed = |RecordedEnd { entry, at }: RecordedEnd, record: &RunRecord| {
        FollowedEnd::new(&entry, record.at(), at)
    };
    let ticks = sealed.ended(job).filter_map(|(tick, record)| {
        Some(followed(entry_from(job, tick, RunCause::Scheduled, record)?, record))
    });
    let causes: BTreeMap<RequestId, RunCause> =
        sealed.requests().map(|row| (row.id(), row.cause())).collect();
    let requested = sealed.ended_on_request().filter_map(|(key, record)| {
        let (id, (of, tick)) = (request_of(key)?, job_and_tick(key)?);
        let cause = causes.get(&id).copied().unwrap_or(RunCause::Triggered { id });
        (*of == **job).then(|| Some(followed(entry_from(job, tick, cause, record)?, record)))?
    });
    let mut ends: Vec<FollowedEnd> = ticks.chain(requested).collect();
    ends.sort_by_key(|end| (end.ended, end.tick));
    ends
}

/// Returns the ends of the job's ticks that the seal found, the newest first. Requested runs are not among them.
pub(in crate::scheduler) fn recorded_ends(
    job: &Arc<str>,
    sealed: &LedgerSnapshot,
) -> impl Iterator<Item = RecordedEnd> {
    sealed.ended(job).filter_map(|(tick, record)| entry_from(job, tick, RunCause::Scheduled, record))
}
