//! The command `quorate jobs next`.

use super::{failure, look, print};
use crate::{
    args::NextArgs,
    config::{Config, Environment, Flags, JobConfig},
    exit::Failure,
    time::rfc3339,
};
use quorate::{
    env::{Env, WallTime},
    plain::plain,
    scheduler::Schedule,
};
use serde::Serialize;

#[derive(Debug, Serialize)]
struct Page {
    job: String,
    schedule: String,
    /// The source of the schedule: the path of the configuration file, or the ledger of a group.
    source: String,
    from: String,
    next: Vec<TickPage>,
}

#[derive(Debug, Serialize)]
struct TickPage {
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
    let page = Page::new(args, schedule, file.path.display().to_string());
    print(args.group.json, &page, || page.for_people(schedule))?;
    Ok(Some(0))
}

/// Shows the job's next ticks by the schedule in the ledger, where a leader has registered it.
pub(super) async fn from_ledger(args: &NextArgs, config: &Config) -> Result<u8, Failure> {
    let (quorum, jobs) = look(&args.group, config).await?;
    let found = jobs.schedule(&args.job).await.map_err(|error| failure(&error));
    quorum.close().await;
    let schedule = found?;
    let page = Page::new(args, &schedule, format!("the ledger of group {}", jobs.group()));
    print(args.group.json, &page, || page.for_people(&schedule))?;
    Ok(0)
}

impl Page {
    fn new(args: &NextArgs, schedule: &Schedule, source: String) -> Self {
        let from = args.from.unwrap_or_else(|| Env::system().wall());
        let count = usize::try_from(args.count).unwrap_or(usize::MAX);
        let show = |at: WallTime| TickPage { tick: rfc3339(at), local: schedule.format(at) };
        // If each tick counts from the end of the run before it, no tick is known in advance.
        let count = if schedule.is_after_end() { 0 } else { count };
        Self {
            job: plain(&args.job, 200),
            schedule: plain(&schedule.to_string(), 1_000),
            source: plain(&source, 1_000),
            from: rfc3339(from),
            next: schedule.upcoming(from, count).map(show).collect(),
        }
    }

    fn for_people(&self, schedule: &Schedule) -> String {
        let mut text = format!("{}: {} (from {})\n", self.job, self.schedule, self.source);
        for tick in &self.next {
            text += &format!("  {}  {}\n", tick.tick, tick.local);
        }
        if schedule.is_after_end() {
            text += "  each tick depends on the end of the previous run\n";
        } else if self.next.is_empty() {
            text += &format!("  never after {}\n", self.from);
        }
        text
    }
}
