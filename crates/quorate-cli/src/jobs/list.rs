//! The commands `quorate jobs list` and `quorate jobs show`.

use super::common::{look, tone, zone_of};
use crate::{
    args::{ListJobsArgs, ShowArgs},
    config::Config,
    exit::Failure,
    failures, show,
    table::{Cell, fields, table},
    terminal::Tone,
};
use quorate::{
    internals::{GroupOverview, Paused},
    quorum::Quorum,
    scheduler::{Jobs, Zone},
};
use quorate_operator::view::{JobView, Pause, WorkerView, name};
use schemars::JsonSchema;
use serde::Serialize;

/// The jobs of a group.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Jobs")]
pub(crate) struct Page {
    group: String,
    /// The freeze of the group; `null` if it is not frozen.
    pub(super) frozen: Option<Pause>,
    pub(super) jobs: Vec<JobView>,
    /// The live workers.
    workers: Vec<WorkerView>,
}

/// Shows all jobs of the group.
pub(super) async fn list(args: &ListJobsArgs, config: &Config) -> Result<u8, Failure> {
    let (quorum, jobs) = look(&args.group, config).await?;
    let page = all(&jobs).await;
    quorum.close().await;
    let page = page?;
    show::print_page(args.group.json, &page, || page.for_people(args.utc))?;
    Ok(0)
}

/// Shows one job.
pub(super) async fn show(args: &ShowArgs, config: &Config) -> Result<u8, Failure> {
    let (quorum, jobs) = look(&args.group, config).await?;
    let page = one(&jobs, &args.job).await;
    quorum.close().await;
    let page = page?;
    let fields = || fields(page.fields(&zone_of(&page.zone, args.utc)));
    let for_people = || format!("{} of group {}\n{}", page.shown(), name(&page.group), fields());
    show::print_page(args.group.json, &page, for_people)?;
    Ok(0)
}

/// Reads all jobs of the group.
pub(super) async fn all(jobs: &Jobs) -> Result<Page, Failure> {
    let found = jobs.list().await.map_err(|error| failures::of_jobs(&error))?;
    let frozen = jobs.frozen().await.map_err(|error| failures::of_jobs(&error))?;
    let workers = jobs.workers().await.map_err(|error| failures::of_jobs(&error))?;
    let frozen = frozen.as_ref().map(Pause::of_freeze);
    let workers = workers.iter().map(WorkerView::new).collect();
    let group = jobs.group();
    let jobs = found.iter().map(|job| JobView::new(group, job, frozen.as_ref())).collect();
    Ok(Page { group: group.to_string(), frozen, jobs, workers })
}

/// Returns the freeze of the group and the copies of its ledger, as far as they can be read.
pub(crate) async fn overview(quorum: &Quorum, group: &str) -> GroupOverview {
    let Ok(jobs) = Jobs::new(quorum, group) else { return GroupOverview::default() };
    jobs.overview().await.unwrap_or_default()
}

/// Returns the same as [`overview`], with the jobs that no live worker can run.
pub(crate) async fn overview_of_jobs(quorum: &Quorum, group: &str) -> GroupOverview {
    let Ok(jobs) = Jobs::new(quorum, group) else { return GroupOverview::default() };
    jobs.overview_of_jobs().await.unwrap_or_default()
}

/// Describes the freeze of a group.
pub(crate) fn freeze_for_people(frozen: &Paused) -> String {
    Pause::of_freeze(frozen).line(&Zone::UTC)
}

/// Reads one job.
pub(super) async fn one(jobs: &Jobs, job: &str) -> Result<JobView, Failure> {
    let found = jobs.show(job).await.map_err(|error| failures::of_jobs(&error))?;
    Ok(JobView::new(jobs.group(), &found, None))
}

impl Page {
    fn for_people(&self, utc: bool) -> String {
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
                let zone = zone_of(&job.zone, utc);
                let next = job.next.map_or_else(|| "-".to_owned(), |next| zone.rfc3339(next));
                let last =
                    job.ends.first().map_or(Cell::from("-"), |end| Cell::new(end.line(&zone), tone(end)));
                let state = if job.paused.is_some() { Tone::Caution } else { Tone::Plain };
                let doing = Cell::new(job.doing(|until| format!("until {}", zone.rfc3339(until))), state);
                [job.shown().into(), (&job.schedule).into(), doing, next.into(), last]
            })
            .collect();
        let frozen = self.frozen.as_ref();
        let frozen = frozen.map(|frozen| format!("the group is frozen {}\n", frozen.line(&Zone::UTC)));
        frozen.unwrap_or_default()
            + &table(["NAME", "SCHEDULE", "STATE", "NEXT", "LAST"], &rows)
            + &self.offers()
    }

    /// Returns the workers with labels or handlers, as a table.
    fn offers(&self) -> String {
        let list = |names: &[String]| if names.is_empty() { "-".to_owned() } else { names.join(", ") };
        let special = self.workers.iter().filter(|worker| worker.is_special());
        let row = |worker: &WorkerView| {
            [(&worker.worker).into(), list(&worker.labels).into(), list(&worker.handlers).into()]
        };
        let rows: Vec<[Cell; 3]> = special.map(row).collect();
        if rows.is_empty() {
            String::new()
        } else {
            format!("\n{}", table(["WORKER", "LABELS", "HANDLERS"], &rows))
        }
    }
}
