//! The command `quorate jobs history`.

use super::common::{look, tone, zone_of};
use crate::{
    args::HistoryArgs,
    config::Config,
    exit::Failure,
    failures, show,
    table::{Cell, table},
};
use quorate::{
    plain::plain,
    scheduler::{Jobs, Zone},
};
use quorate_operator::view::RunEnd;
use schemars::JsonSchema;
use serde::Serialize;

/// The history of a job.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "History")]
pub(crate) struct Page {
    group: String,
    job: String,
    /// The outcomes of the runs, the newest run first.
    pub(super) history: Vec<RunEnd>,
}

/// Shows the outcomes of the job's runs.
pub(super) async fn history(args: &HistoryArgs, config: &Config) -> Result<u8, Failure> {
    let (quorum, jobs) = look(&args.group, config).await?;
    // The history may outlive the schedule. Its times are then in UTC.
    let (page, schedule) =
        futures_util::join!(of_job(&jobs, &args.job, args.limit), jobs.schedule(&args.job));
    quorum.close().await;
    let page = page?;
    let zone = schedule.map(|schedule| schedule.zone().clone()).unwrap_or_default();
    show::print_page(args.group.json, &page, || page.for_people(&zone_of(&zone, args.utc)))?;
    Ok(0)
}

/// Reads the newest entries of a job's history, `limit` at most.
pub(super) async fn of_job(jobs: &Jobs, job: &str, limit: u32) -> Result<Page, Failure> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let found = jobs.history(job, limit).await.map_err(|error| failures::of_jobs(&error))?;
    let history = found.iter().map(RunEnd::new).collect();
    Ok(Page { group: plain(jobs.group(), 200), job: plain(job, 200), history })
}

impl Page {
    fn for_people(&self, zone: &Zone) -> String {
        if self.history.is_empty() {
            return format!("{}: no run has ended yet\n", self.job);
        }
        let rows: Vec<[Cell; 8]> = self.history.iter().map(|end| row(end, zone)).collect();
        let mut text =
            table(["TICK", "LATE", "CAUSE", "OUTCOME", "TOOK", "ATTEMPTS", "WORKER", "REASON"], &rows);
        for end in self.history.iter().filter(|end| end.output.is_some()) {
            text += &format!("\noutput of {}:\n", zone.rfc3339(end.tick));
            for line in end.output.as_deref().unwrap_or_default().lines() {
                text += &format!("  {line}\n");
            }
        }
        text
    }
}

fn row(end: &RunEnd, zone: &Zone) -> [Cell; 8] {
    let tick = match end.until {
        Some(until) => format!("{} to {}", zone.rfc3339(end.tick), zone.rfc3339(until)),
        None => zone.rfc3339(end.tick),
    };
    [
        tick.into(),
        end.late.map_or_else(|| "-".to_owned(), |late| format!("{late:.1?}")).into(),
        (&end.cause).into(),
        Cell::new(end.outcome.as_str(), tone(end)),
        end.duration().unwrap_or_else(|| "-".to_owned()).into(),
        end.attempts.to_string().into(),
        (&end.worker).into(),
        end.explanation().into(),
    ]
}
