//! The decisions on requests that store jobs on the nodes, or remove them.

use super::{
    Planner,
    requests::refusal::{FOLLOWED, too_late},
};
use crate::{
    env::WallTime,
    scheduler::{
        check::check_one,
        job::{Job, JobDefinition, RequestId},
        plan::{
            definitions::{BYTES_MAX, JOBS_MAX},
            effect::Effect,
            job_id::JobId,
            led_job::LedJob,
            requests::Asked,
        },
        policy::Placement,
        store::{Expect, JobAction, JobRequest, JobRow, StoredJob},
    },
};
use std::{collections::BTreeSet, sync::Arc};

impl Planner {
    /// Stores jobs on the nodes. All of them are stored, or none.
    pub(super) fn decide_put(&mut self, request: &JobRequest, now: WallTime) -> Result<Asked, Arc<str>> {
        let JobAction::Put { definitions, expect, .. } = &request.what else {
            return Err("not a put".into());
        };
        let text = match definitions.len() {
            1 => "stored on the nodes".to_owned(),
            count => format!("{count} jobs are stored on the nodes"),
        };
        if self.definitions.has_done(request.id) {
            return Ok(self.definitions_granted(request.id, &text, Vec::new()));
        }
        self.check_validity(request, now)?;
        let mut jobs = Vec::with_capacity(definitions.len());
        let mut names = BTreeSet::new();
        for definition in definitions {
            let (definition, job) = self.check_definition(definition.as_str(), expect.as_ref(), now)?;
            if !names.insert(Arc::clone(&job.name)) {
                return Err(format!("the request has two jobs called {:?}; leave one out", job.name).into());
            }
            jobs.push((definition, job));
        }
        let new = names.iter().filter(|name| !self.definitions.contains(name)).count();
        let bytes: usize = definitions.iter().map(|definition| definition.as_str().len()).sum();
        if self.definitions.len() + new > JOBS_MAX || self.definitions.bytes() + bytes > BYTES_MAX {
            return Err(format!(
                "the nodes have {} jobs with {} bytes; at most {JOBS_MAX} jobs with {BYTES_MAX} bytes can be stored: remove \
                 some, or make their payloads shorter",
                self.definitions.len(),
                self.definitions.bytes()
            )
            .into());
        }
        let mut rows = Vec::with_capacity(jobs.len() + 1);
        for (definition, job) in jobs {
            let row = StoredJob::new(&request.by, now, request.id, (&definition, &job));
            let (key, value) = self.definitions.put(row, Arc::clone(&job));
            rows.push((key, Some(value)));
            if !job.is_single_run() {
                self.effects.push(Effect::OnNodes { job: Arc::clone(&job.name), is_stored: true });
            }
            self.unconfirmed.insert(Arc::clone(&job.name), request.id);
            self.take_job(&job, now);
        }
        Ok(self.definitions_granted(request.id, &text, rows))
    }

    /// Notes that a majority has stored the definitions of a request.
    pub(super) fn confirm_definitions(&mut self, request: RequestId) {
        let table = &mut self.table;
        self.unconfirmed.retain(|job, of| {
            let is_confirmed = *of == request;
            if is_confirmed && let Some(id) = table.id(job) {
                table.registered(id);
            }
            !is_confirmed
        });
    }

    /// Removes a job from the nodes.
    pub(super) fn decide_remove(&mut self, request: &JobRequest, now: WallTime) -> Result<Asked, Arc<str>> {
        let JobAction::Remove { job, expect } = &request.what else { return Err("not a removal".into()) };
        let text = "removed; runs that are active go on";
        if self.definitions.has_done(request.id) {
            return Ok(self.definitions_granted(request.id, text, Vec::new()));
        }
        self.check_validity(request, now)?;
        self.check_expected(job, expect.as_ref())?;
        if !self.definitions.remove(job) {
            return Err(match self.table.id(job) {
                Some(_) => format!(
                    "the job {job:?} is not stored on the nodes: it is in the configuration or the program of the leader {}; \
                     remove it there",
                    self.reporter.worker()
                ),
                None => format!("no job called {job:?} is stored on the nodes"),
            }
            .into());
        }
        self.effects.push(Effect::OnNodes { job: Arc::clone(job), is_stored: false });
        self.remove_parts_of(job, now);
        if let Some(id) = self.table.id(job) {
            self.remove(id, now);
        }
        let rows = if self.left_out.removals { Vec::new() } else { vec![(StoredJob::key(job), None)] };
        Ok(self.definitions_granted(request.id, text, rows))
    }

    /// Removes a job that was stored for a single run, once the run is over.
    pub(super) fn retire(&mut self, id: JobId, now: WallTime) {
        let is_over = |led: &&LedJob| led.job().is_single_run() && led.is_over();
        let Some(led) = self.table.get(id).filter(is_over) else { return };
        let (name, has_parts) =
            (Arc::clone(&led.job().name), led.job().rules.placement == Placement::EveryWorker);
        if has_parts && !self.are_parts_over(&name) {
            return;
        }
        // A removed job has another definition, or none.
        if self.table.id(&name) == Some(id) && self.definitions.remove(&name) {
            self.effects.push(Effect::RemoveRow { key: StoredJob::key(&name) });
            if has_parts {
                self.remove_parts_of(&name, now);
            }
            self.remove(id, now);
        }
    }

    fn definitions_granted(
        &mut self,
        id: RequestId,
        text: &str,
        mut rows: Vec<(Arc<str>, Option<Arc<str>>)>,
    ) -> Asked {
        let (key, value) = self.definitions.note(id);
        rows.push((key, Some(value)));
        Asked::stored(id, text, rows)
    }

    fn check_validity(&self, request: &JobRequest, now: WallTime) -> Result<(), Arc<str>> {
        let late = request.valid_until().until(now);
        if late.is_zero() {
            return Ok(());
        }
        Err(format!("{}; {FOLLOWED}", too_late(&request.what, late)).into())
    }

    /// Checks a definition by itself, and against the other jobs of the group.
    fn check_definition(
        &self,
        text: &str,
        expect: Option<&Expect>,
        now: WallTime,
    ) -> Result<(JobDefinition, Arc<Job>), Arc<str>> {
        let leader = self.reporter.worker();
        let unreadable = |why| format!("the leader {leader} cannot run the definition: {why}");
        let definition = JobDefinition::parse(text).map_err(unreadable)?;
        let job = self.definitions.job_to_store(&definition, now).map_err(unreadable)?;
        check_one(&job).map_err(|fault| fault.error.to_string())?;
        let name = &job.name;
        if !self.definitions.contains(name) {
            if self.table.id(name).is_some() || self.own.contains(name) {
                return Err(format!(
                    "the job {name:?} is in the configuration or the program of the leader {leader}, so it cannot be stored on \
                     the nodes too; remove it there, or use another name"
                )
                .into());
            }
            if !self.removed.contains_key(name) && self.sealed.row(&JobRow::key(name)).is_some() {
                return Err(format!(
                    "the job {name:?} is in the configuration or the program of another worker than the leader {leader}, so it \
                     cannot be stored on the nodes too; remove it there by a reload while that worker leads, or use another name"
                )
                .into());
            }
        }
        let before = job.schedule.follows().map(|after| &after.job);
        if let Some(before) = before.filter(|before| self.every.names().any(|every| every == *before)) {
            return Err(format!(
                "the job {name:?} follows {before:?}, which runs on every worker; follow one worker's runs: {before}@WORKER"
            )
            .into());
        }
        if let Some(follower) =
            self.follower_of(name).filter(|_| job.rules.placement == Placement::EveryWorker)
        {
            return Err(format!(
                "the job {name:?} cannot run on every worker: {follower:?} follows its end, and it would have one for each worker; \
                 let {follower:?} follow one worker's runs first, {name}@WORKER"
            )
            .into());
        }
        self.check_expected(name, expect)?;
        if job.is_single_run() && job.schedule.next_after(now).is_none() {
            return Err(format!(
                "the job {name:?} is due {}, which is past; give a later time",
                job.schedule
            )
            .into());
        }
        Ok((definition, job))
    }

    /// Returns a job that follows the ends of the runs of `job`.
    fn follower_of(&self, job: &str) -> Option<&Arc<str>> {
        let mut jobs = self.table.names().filter_map(|(_, id)| Some(self.table.get(id)?.job()));
        let follows = |other: &&Arc<Job>| other.schedule.follows().is_some_and(|after| &*after.job == job);
        jobs.find(follows).map(|other| &other.name)
    }

    /// Checks that the stored job is the one that the requester has seen.
    fn check_expected(&self, name: &str, expect: Option<&Expect>) -> Result<(), Arc<str>> {
        let row = self.definitions.row(name);
        match (expect, row) {
            (None, _) => Ok(()),
            (Some(Expect::Absent), _) if !self.definitions.contains(name) => Ok(()),
            (Some(Expect::Version(version)), Some(row)) if row.version == *version => Ok(()),
            (Some(Expect::Absent), Some(row)) => Err(format!(
                "the job {name:?} is stored on the nodes already, by {}; replace it, or use another name",
                row.by
            )
            .into()),
            (Some(Expect::Version(_)), Some(row)) => Err(format!(
                "the job {name:?} was changed meanwhile, by {} at {}; look at it, and change it again",
                row.by, row.at
            )
            .into()),
            (Some(_), None) => {
                Err(format!("the job {name:?} was removed or cannot be read; look at it again").into())
            }
        }
    }
}
