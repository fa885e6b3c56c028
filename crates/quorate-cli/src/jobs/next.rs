//! `quorate jobs next`.

use super::{failure, looking, print};
use crate::{
    args::NextArgs,
    config::{Config, Environment, Flags, JobConfig},
    exit::Failure,
    time::rfc3339,
};
use quorate::{
    env::{Env, WallTime},
    plain::plain,
    schedule::Schedule,
};
use serde::Serialize;

#[derive(Debug, Serialize)]
struct Page {
    job: String,
    schedule: String,
    /// Where the schedule comes from: the file's path, or the ledger of a group.
    source: String,
    from: String,
    next: Vec<TickPage>,
}

#[derive(Debug, Serialize)]
struct TickPage {
    tick: String,
    /// In the zone of the schedule.
    local: String,
}

/// By the file, where the job is in it and no other group is meant.
pub(super) fn from_file(
    args: &NextArgs,
    flags: &Flags,
    around: &Environment<'_>,
) -> Result<Option<u8>, Failure> {
    let Some(file) = Config::jobs_of_file(flags, around)? else { return Ok(None) };
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

/// By the row that a leader has written.
pub(super) async fn from_ledger(args: &NextArgs, config: &Config) -> Result<u8, Failure> {
    let (quorum, jobs) = looking(&args.group, config).await?;
    let found = jobs.schedule(&args.job).await.map_err(|error| failure(&quorum, &error));
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
        let show = |at: WallTime| TickPage { tick: rfc3339(at), local: schedule.show(at) };
        // What hangs on the end of the run before it has no tick of its own.
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
            text += "  each hangs on the end of the run before it\n";
        } else if self.next.is_empty() {
            text += &format!("  never after {}\n", self.from);
        }
        text
    }
}
