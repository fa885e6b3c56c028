//! Which jobs the leader has: taken over when the term begins, and as they come and go while it lasts.

use crate::scheduler::{Job, JobRow, Placement, RunOutcome};
use crate::scheduler::{
    leader::{completion::CHANGED, event_loop::Leader, requests::REMOVED},
    plan::{
        job_entry::find,
        job_plan::{AHEAD_MAX, window},
    },
};
use std::sync::Arc;

/// So many jobs are taken over before other tasks have their turn: the lease must be extended.
const AT_ONCE: usize = 100;

impl Leader<'_> {
    /// Has the jobs of the registry as they are now taken over.
    pub(in crate::scheduler) fn change(&mut self) {
        let jobs = self.leading.registry.jobs();
        let gone: Vec<usize> = self
            .names
            .iter()
            .filter(|(name, _)| !jobs.contains_key(*name))
            .map(|(_, index)| *index)
            .collect();
        for index in gone {
            self.remove(index);
        }
        self.to_take = jobs.into_values().collect();
    }

    /// Takes over some of the jobs that are to be; after the last of them also the requests that were open when the
    /// term began.
    pub(in crate::scheduler) fn take_over(&mut self, reopened: &mut bool) {
        for _ in 0..AT_ONCE {
            let Some(job) = self.to_take.pop_front() else { break };
            match self.names.get(&job.name).copied() {
                Some(index) => self.replace(index, job),
                None => self.register(job),
            }
        }
        if self.to_take.is_empty() && !std::mem::replace(reopened, true) {
            self.reopen();
        }
    }

    /// Finds from when on a job's ticks are due, and sees to it that the ledger knows.
    fn register(&mut self, job: Arc<Job>) {
        let now = self.now();
        let retired = self.retired.remove(&job.name);
        let again = retired.is_some();
        let mut found = find(Arc::clone(&job), &self.sealed, self.looked, retired, now);
        found.entry.plan.ahead = (self.leading.ttl * 2).min(AHEAD_MAX);
        let index = self.vacant.pop().unwrap_or(self.entries.len());
        if found.write {
            let (key, value) = (JobRow::key(&job.name), found.entry.row.to_value());
            if found.is_new {
                found.entry.registering = true;
                let written = self.rows.write(&key, value);
                let name = Arc::clone(&job.name);
                self.registering.push(Box::pin(async move {
                    if let Err(error) = written.await {
                        tracing::warn!(job = &*name, "not registered in the ledger yet: {error}");
                    }
                    index
                }));
            } else {
                self.rows.put(&key, value);
            }
        }
        if again {
            found.entry.state.keep(&self.rows);
        }
        let next = found.entry.plan.next.map(|at| job.schedule.format(at));
        tracing::debug!(job = &*job.name, next, since = ?found.entry.row.since, "found");
        self.names.insert(Arc::clone(&job.name), index);
        match self.entries.get_mut(index) {
            Some(vacant) => *vacant = Some(found.entry),
            None => self.entries.push(Some(found.entry)),
        }
        let chained = !found.closes.is_empty();
        for close in found.closes {
            self.close_found(&job, close);
        }
        if chained {
            self.link(index);
        }
        self.settle(index);
    }

    /// Where a job's ticks hang on ends: one has ended, now.
    pub(in crate::scheduler) fn link(&mut self, index: usize) {
        let now = self.now();
        let Some(entry) = self.entries[index].as_mut() else { return };
        if entry.plan.job.schedule.is_after_end() {
            entry.plan.begin_chain(now, Some(now));
            entry.row.ended = Some(now);
            entry.row.rev += 1;
            self.rows.put(&JobRow::key(&entry.plan.job.name), entry.row.to_value());
        }
    }

    fn replace(&mut self, index: usize, job: Arc<Job>) {
        let now = self.now();
        let Some(entry) = self.entries[index].as_mut() else { return };
        if Arc::ptr_eq(&entry.plan.job, &job) {
            return;
        }
        if !entry.plan.job.is_like(&job) {
            let (schedule, rules) = (job.schedule.to_string().into(), job.rules().into());
            if entry.plan.job.schedule != job.schedule || entry.plan.job.placement != job.placement {
                entry.row.since = now.max(entry.plan.looked());
                entry.row.ended = None;
            }
            let (rev, spec) = (entry.row.rev + 1, job.schedule.spec());
            let any_worker = job.placement == Placement::AnyWorker;
            let window = Some(window(&job));
            entry.row = JobRow { rev, schedule, rules, spec, any_worker, window, ..entry.row.clone() };
            self.rows.put(&JobRow::key(&job.name), entry.row.to_value());
        }
        let before = Arc::clone(&entry.plan.job);
        if before.schedule != job.schedule || before.placement != job.placement {
            entry.plan.withdraw(RunOutcome::SkippedMisfire, CHANGED);
        }
        for not in entry.plan.replace(job, now) {
            self.not_run(&before, not);
        }
        self.settle(index);
    }

    /// No more of it starts. Its row is left to pruning: whoever adds it later begins anew.
    fn remove(&mut self, index: usize) {
        let now = self.now();
        let Some(entry) = self.entries[index].as_mut() else { return };
        entry.leaving = true;
        entry.plan.unask();
        entry.plan.withdraw(RunOutcome::Cancelled, REMOVED);
        let retired = entry.retire(now);
        let name = Arc::clone(&entry.plan.job.name);
        self.rows.close(&JobRow::key(&name), retired.row().to_value(), now, false);
        self.names.remove(&name);
        self.disown(&name);
        self.retired.insert(name, retired);
        self.settle(index);
    }

    /// Puts a job where it belongs in the agenda and in the line, after whatever has happened to it.
    pub(in crate::scheduler) fn settle(&mut self, index: usize) {
        let Some(entry) = self.entries[index].as_mut() else { return };
        let asleep = entry.registering || entry.leaving;
        let next = entry.plan.wake().filter(|_| !asleep);
        if entry.on_agenda != next {
            if let Some(at) = std::mem::replace(&mut entry.on_agenda, next) {
                self.agenda.remove(&(at, index));
            }
            self.agenda.extend(next.map(|at| (at, index)));
        }
        let priority = std::cmp::Reverse(entry.plan.job.priority);
        let turn = entry.plan.head().filter(|_| !asleep);
        let turn = turn.map(|start| (!start.is_for_workers(&entry.plan.job), priority, start.tick, index));
        if entry.in_line != turn {
            if let Some(turn) = std::mem::replace(&mut entry.in_line, turn) {
                self.line.remove(&turn);
            }
            self.line.extend(turn);
        }
        // While its registration is on its way, that still names its place.
        if entry.leaving && entry.plan.running.is_empty() && !entry.registering {
            // Unless the job has come back, and has it.
            if !self.names.contains_key(&entry.plan.job.name) {
                entry.state.close(&self.rows, self.term.quorum().wall());
                self.history_writer.close(&entry.plan.job.name);
            }
            self.entries[index] = None;
            self.vacant.push(index);
        }
    }
}
