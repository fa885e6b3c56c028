//! The command `quorate jobs next`.

use super::common::look;
use crate::{
    args::NextArgs,
    config::{Config, Environment, Flags, JobConfig},
    exit::Failure,
    failures, show,
    table::fields,
    time::rfc3339,
};
use quorate::{
    env::{Env, WallTime},
    plain::plain,
    scheduler::{Jobs, Schedule},
};
use schemars::JsonSchema;
use serde::Serialize;

/// The next ticks of a job.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Next")]
pub(crate) struct Page {
    job: String,
    schedule: String,
    /// The source of the schedule: the path of the configuration file, or the ledger of a group.
    source: String,
    from: String,
    next: Vec<TickPage>,
}

/// A tick.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Tick")]
pub(crate) struct TickPage {
    tick: String,
    /// The time of the tick, in the zone of the schedule.
    local: String,
}

/// Shows the job's next ticks by the schedule in the configuration file. Returns `None` if the file does not
/// have the job, or has another group.
pub(super) fn from_file(
    args: &NextArgs,
    flags: &Flags,
    environment: &Environment<'_>,
) -> Result<Option<u8>, Failure> {
    let Some(file) = Config::jobs_of_file(flags, environment)? else { return Ok(None) };
    if args.group.group.is_some() && args.group.group.as_deref() != file.group.as_deref() {
        return Ok(None);
    }
    let Some(JobConfig { schedule, .. }) = file.jobs.iter().find(|job| *job.name == args.job) else {
        return Ok(None);
    };
    let page = Page::new(&args.upcoming(), schedule, file.path.display().to_string());
    show::print_page(args.group.json, &page, || page.for_people(schedule))?;
    Ok(Some(0))
}

/// Shows the job's next ticks by the schedule in the ledger, where a leader has registered it.
pub(super) async fn from_ledger(args: &NextArgs, config: &Config) -> Result<u8, Failure> {
    let (quorum, jobs) = look(&args.group, config).await?;
    let read = registered(&jobs, &args.upcoming()).await;
    quorum.close().await;
    let (page, schedule) = read?;
    show::print_page(args.group.json, &page, || page.for_people(&schedule))?;
    Ok(0)
}

/// The ticks to show: the job, the number of ticks, and the time after which they are due (by default now).
#[derive(Debug)]
pub(crate) struct Upcoming<'a> {
    pub(crate) job: &'a str,
    pub(crate) count: u32,
    pub(crate) from: Option<WallTime>,
}

impl NextArgs {
    fn upcoming(&self) -> Upcoming<'_> {
        Upcoming { job: &self.job, count: self.count, from: self.from }
    }
}

/// Reads the schedule that a leader has registered in the ledger, and computes its ticks.
pub(super) async fn registered(jobs: &Jobs, upcoming: &Upcoming<'_>) -> Result<(Page, Schedule), Failure> {
    let schedule = jobs.schedule(upcoming.job).await.map_err(|error| failures::of_jobs(&error))?;
    let source = format!("the ledger of group {}", jobs.group());
    Ok((Page::new(upcoming, &schedule, source), schedule))
}

impl Page {
    fn new(upcoming: &Upcoming<'_>, schedule: &Schedule, source: String) -> Self {
        let from = upcoming.from.unwrap_or_else(|| Env::system().wall());
        let count = usize::try_from(upcoming.count).unwrap_or(usize::MAX);
        let show = |at: WallTime| TickPage { tick: rfc3339(at), local: schedule.format(at) };
        // If each tick counts from the end of the run before it, no tick is known in advance.
        let count = if schedule.is_after_end() { 0 } else { count };
        Self {
            job: plain(upcoming.job, 200),
            schedule: plain(&schedule.to_string(), 1_000),
            source: plain(&source, 1_000),
            from: rfc3339(from),
            next: schedule.upcoming(from, count).map(show).collect(),
        }
    }

    fn for_people(&self, schedule: &Schedule) -> String {
        let mut text = format!("{}: {} (from {})\n", self.job, self.schedule, self.source);
        text += &fields(self.next.iter().map(|tick| (&*tick.tick, tick.local.clone())));
        if schedule.is_after_end() {
            text += "  each tick depends on the end of the previous run\n";
        } else if self.next.is_empty() {
            text += &format!("  never after {}\n", self.from);
        }
        text
    }
}
