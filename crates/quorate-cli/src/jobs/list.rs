//! The commands `quorate jobs list` and `quorate jobs show`.

use super::{
    failure, look,
    page::{ActiveRun, JobPage, PausedPage, RunEnd},
};
use crate::{
    args::{ListJobsArgs, ShowArgs},
    config::Config,
    exit::Failure,
    show,
    table::{Cell, fields, table},
    terminal::Tone,
    time::rfc3339,
};
use quorate::{
    internals::{GroupOverview, Paused},
    plain::plain,
    quorum::Quorum,
    scheduler::Jobs,
};
use serde::Serialize;

/// The longest name or reason that is shown, in bytes.
const TEXT_MAX: usize = 1_000;
/// The longest reason of a pause in a table, in bytes.
const REASON_MAX: usize = 40;

#[derive(Debug, Serialize)]
pub(super) struct Page {
    group: String,
    /// The freeze of the group; `null` if it is not frozen.
    pub(super) frozen: Option<PausedPage>,
    pub(super) jobs: Vec<JobPage>,
}

/// Shows all jobs of the group.
pub(super) async fn list(args: &ListJobsArgs, config: &Config) -> Result<u8, Failure> {
    let (quorum, jobs) = look(&args.group, config).await?;
    let page = all(&jobs).await;
    quorum.close().await;
    let page = page?;
    show::print_page(args.group.json, &page, || page.for_people())?;
    Ok(0)
}

/// Shows one job.
pub(super) async fn show(args: &ShowArgs, config: &Config) -> Result<u8, Failure> {
    let (quorum, jobs) = look(&args.group, config).await?;
    let page = one(&jobs, &args.job).await;
    quorum.close().await;
    let page = page?;
    show::print_page(args.group.json, &page, || page.for_people())?;
    Ok(0)
}

/// Reads all jobs of the group.
pub(super) async fn all(jobs: &Jobs) -> Result<Page, Failure> {
    let found = jobs.list().await.map_err(|error| failure(&error))?;
    let frozen = jobs.frozen().await.map_err(|error| failure(&error))?;
    let frozen = frozen.as_ref().map(PausedPage::of_freeze);
    let group = jobs.group().to_string();
    let jobs = found.iter().map(|job| JobPage::new(&group, job)).collect();
    Ok(Page { group, frozen, jobs })
}

/// Returns the freeze of the group and the copies of its ledger, as far as they can be read.
pub(crate) async fn overview(quorum: &Quorum, group: &str) -> GroupOverview {
    let Ok(jobs) = Jobs::new(quorum, group) else { return GroupOverview::default() };
    jobs.overview().await.unwrap_or_default()
}

/// Describes the freeze of a group.
pub(crate) fn freeze_for_people(frozen: &Paused) -> String {
    PausedPage::of_freeze(frozen).for_people()
}

/// Reads one job.
pub(super) async fn one(jobs: &Jobs, job: &str) -> Result<JobPage, Failure> {
    let found = jobs.show(job).await.map_err(|error| failure(&error))?;
    Ok(JobPage::new(jobs.group(), &found))
}

impl Page {
    fn for_people(&self) -> String {
        if self.jobs.is_empty() {
            return format!(
                "{}: no jobs; a job is registered when a worker that has it first leads the group\n",
                self.group
            );
        }
        let rows: Vec<[Cell; 5]> = self
            .jobs
            .iter()
            .map(|job| {
                let next = job.next.as_deref().unwrap_or("-");
                let last = job.last.first().map_or(Cell::from("-"), |end| Cell::new(end.short(), end.tone()));
                let state = if job.paused.is_some() { Tone::Caution } else { Tone::Plain };
                [(&job.name).into(), (&job.schedule).into(), Cell::new(job.state(), state), next.into(), last]
            })
            .collect();
        let frozen = self.frozen.as_ref();
        let frozen = frozen.map(|frozen| format!("the group is frozen {}\n", frozen.for_people()));
        frozen.unwrap_or_default() + &table(["NAME", "SCHEDULE", "STATE", "NEXT", "LAST"], &rows)
    }
}

impl JobPage {
    /// Returns in a few words whether the job is overdue, whether it runs, and whether it is paused.
    pub(crate) fn state(&self) -> String {
        self.state_until(|until| format!("until {until}"))
    }

    /// Returns the state of the job, as [`JobPage::state`] does. `end` formats the end of a pause.
    pub(crate) fn state_until(&self, end: impl Fn(&str) -> String) -> String {
        let overdue = if self.overdue_since.is_some() { "overdue, " } else { "" };
        overdue.to_owned() + &self.activity(end)
    }

    fn activity(&self, end: impl Fn(&str) -> String) -> String {
        let running = self.running.iter().filter(|run| !run.orphaned).count();
        match (&self.paused, running) {
            (None, 0) => "idle".to_owned(),
            (None, 1) => "running".to_owned(),
            (None, some) => format!("{some} running"),
            (Some(paused), 0) => paused.short(self.frozen, end),
            (Some(paused), some) => format!("{}, {some} running", paused.short(self.frozen, end)),
        }
    }

    fn for_people(&self) -> String {
        format!("{} of group {}\n{}", self.name, self.group, fields(self.fields()))
    }

    /// Returns the properties of the job as names and values.
    pub(crate) fn fields(&self) -> Vec<(&'static str, String)> {
        let mut fields = vec![
            ("schedule", self.schedule.clone()),
            ("rules", self.rules.clone()),
            ("registered", self.registered.clone()),
        ];
        let paused = if self.frozen { "frozen" } else { "paused" };
        fields.extend(self.paused.iter().map(|page| (paused, page.for_people())));
        fields.extend(self.overdue_since.iter().map(|since| ("overdue", format!("since {since}"))));
        fields.extend(self.failing_since.iter().map(|since| ("failing", format!("since {since}"))));
        let unsent = self.unsent.iter();
        fields.extend(unsent.map(|one| ("not sent", format!("{} at {}: {}", one.event, one.at, one.reason))));
        fields.push(("next", self.next.clone().unwrap_or_else(|| "-".to_owned())));
        for run in &self.running {
            fields.push((if run.orphaned { "orphaned" } else { "running" }, run.for_people()));
        }
        fields.extend(self.last.iter().map(|end| ("ended", end.short())));
        fields
    }
}

impl PausedPage {
    fn short(&self, frozen: bool, end: impl Fn(&str) -> String) -> String {
        let reason = self.reason.as_ref();
        let reason = reason.map_or_else(String::new, |reason| format!(" ({})", plain(reason, REASON_MAX)));
        let state = if frozen { "frozen" } else { "paused" };
        let end = self.until.as_deref().map_or_else(String::new, |until| format!(" {}", end(until)));
        format!("{state}{end}{reason}")
    }

    /// Returns the freeze of a group.
    pub(super) fn of_freeze(freeze: &Paused) -> Self {
        Self {
            by: plain(&freeze.by, TEXT_MAX),
            at: rfc3339(freeze.at),
            reason: freeze.reason.as_ref().map(|reason| plain(reason, TEXT_MAX)),
            until: freeze.until.map(rfc3339),
        }
    }

    pub(super) fn for_people(&self) -> String {
        let reason = self.reason.as_ref().map_or_else(String::new, |reason| format!(": {reason}"));
        format!("by {} since {}{}{reason}", self.by, self.at, self.end())
    }

    fn end(&self) -> String {
        self.until.as_ref().map_or_else(String::new, |until| format!(" until {until}"))
    }
}

impl ActiveRun {
    fn for_people(&self) -> String {
        let request = self.request.as_ref().map_or_else(String::new, |id| format!(", request {id}"));
        format!("{} on {} (term {}){request}", self.tick, self.worker, self.term)
    }
}

impl RunEnd {
    /// Returns the outcome of a run in one line.
    pub(crate) fn short(&self) -> String {
        let took = self.duration().map_or_else(String::new, |took| format!(" in {took}"));
        let attempts =
            if self.attempts > 1 { format!(" after {} attempts", self.attempts) } else { String::new() };
        let why = Some(self.explanation()).filter(|why| !why.is_empty());
        let why = why.map_or_else(String::new, |why| format!(": {why}"));
        format!("{} {}{took}{attempts}{why}", self.tick, self.outcome)
    }
}
