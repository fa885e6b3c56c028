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
    table::table,
};
use quorate::{plain::plain, scheduler::Jobs};
use serde::Serialize;

/// The longest reason of a pause in a table, in bytes.
const REASON_MAX: usize = 40;

#[derive(Debug, Serialize)]
pub(super) struct Page {
    group: String,
    jobs: Vec<JobPage>,
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
    let group = jobs.group().to_string();
    let jobs = found.iter().map(|job| JobPage::new(&group, job)).collect();
    Ok(Page { group, jobs })
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
        let rows: Vec<[String; 5]> = self
            .jobs
            .iter()
            .map(|job| {
                let next = job.next.as_deref().unwrap_or("-");
                let last = job.last.first().map_or("-".to_owned(), RunEnd::short);
                [job.name.clone(), job.schedule.clone(), job.state(), next.to_owned(), last]
            })
            .collect();
        table(["NAME", "SCHEDULE", "STATE", "NEXT", "LAST"], &rows)
    }
}

impl JobPage {
    fn state(&self) -> String {
        let running = self.running.iter().filter(|run| !run.orphaned).count();
        match (&self.paused, running) {
            (None, 0) => "idle".to_owned(),
            (None, 1) => "running".to_owned(),
            (None, some) => format!("{some} running"),
            (Some(paused), 0) => paused.short(),
            (Some(paused), some) => format!("{}, {some} running", paused.short()),
        }
    }

    fn for_people(&self) -> String {
        let mut text = format!("{} of group {}\n", self.name, self.group);
        let mut line = |name: &str, value: &str| text += &format!("  {name:10}  {value}\n");
        line("schedule", &self.schedule);
        line("rules", &self.rules);
        line("registered", &self.registered);
        if let Some(paused) = &self.paused {
            line("paused", &paused.for_people());
        }
        line("next", self.next.as_deref().unwrap_or("-"));
        for run in &self.running {
            line(if run.orphaned { "orphaned" } else { "running" }, &run.for_people());
        }
        for end in &self.last {
            line("ended", &end.short());
        }
        text
    }
}

impl PausedPage {
    fn short(&self) -> String {
        let reason = self.reason.as_ref();
        let reason = reason.map_or_else(String::new, |reason| format!(" ({})", plain(reason, REASON_MAX)));
        format!("paused{}{reason}", self.end())
    }

    fn for_people(&self) -> String {
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
    pub(super) fn short(&self) -> String {
        let took = self.duration().map_or_else(String::new, |took| format!(" in {took}"));
        let attempts =
            if self.attempts > 1 { format!(" after {} attempts", self.attempts) } else { String::new() };
        let why = Some(self.explanation()).filter(|why| !why.is_empty());
        let why = why.map_or_else(String::new, |why| format!(": {why}"));
        format!("{} {}{took}{attempts}{why}", self.tick, self.outcome)
    }
}
