//! `quorate jobs why`.

use super::common::look;
use crate::{
    args::WhyArgs,
    config::Config,
    exit::{Failure, NO_QUORUM, NOT_FOUND},
    failures, show,
    table::fields,
    time::rfc3339,
};
use quorate::{
    env::WallTime,
    plain::plain,
    scheduler::{Explanation, Jobs, Reason, Zone},
};
use quorate_operator::view::{MaybeRfc3339, RunEnd, Text};
use schemars::JsonSchema;
use serde::Serialize;

/// The longest text that is shown, in bytes.
const TEXT_MAX: usize = 4_096;

/// The reason why a job did or did not run.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Explanation")]
pub(crate) struct Page {
    group: String,
    job: String,
    /// The time of the question; `null` for now.
    asked: Option<String>,
    reason: &'static str,
    /// The tick that the answer is about.
    #[serde(with = "MaybeRfc3339")]
    tick: Option<WallTime>,
    text: String,
    evidence: Vec<String>,
    action: String,
    /// The outcome of the tick, if it is recorded.
    entry: Option<RunEnd>,
    #[serde(with = "MaybeRfc3339")]
    next: Option<WallTime>,
    /// The zone of the times in the texts.
    #[serde(with = "Text")]
    zone: Zone,
}

/// Shows why the job did or did not run.
pub(super) async fn why(args: &WhyArgs, config: &Config) -> Result<u8, Failure> {
    let (quorum, mut jobs) = look(&args.group, config).await?;
    if args.utc {
        jobs = jobs.times_in(Zone::UTC);
    }
    let found = asked(&jobs, args, quorum.wall()).await;
    quorum.close().await;
    let (page, reason) = found?;
    show::print_page(args.group.json, &page, || page.for_people())?;
    Ok(match reason {
        Reason::NoQuorum => NO_QUORUM,
        Reason::NotRegistered => NOT_FOUND,
        _ => 0,
    })
}

/// Asks for the reason at the time that the arguments name.
async fn asked(jobs: &Jobs, args: &WhyArgs, now: WallTime) -> Result<(Page, Reason), Failure> {
    let at = match args.at {
        None => None,
        Some(moment) => Some(moment.tick(jobs, &args.job, now).await),
    };
    of_job(jobs, &args.job, at).await
}

/// Asks why the job did or did not run at a time, or by default at its latest tick.
pub(super) async fn of_job(jobs: &Jobs, job: &str, at: Option<WallTime>) -> Result<(Page, Reason), Failure> {
    let found = jobs.why(job, at).await.map_err(|error| failures::of_jobs(&error))?;
    Ok((Page::new(job, at, jobs.group(), &found), found.reason))
}

impl Page {
    pub(crate) fn new(job: &str, at: Option<WallTime>, group: &str, found: &Explanation) -> Self {
        Self {
            group: plain(group, 200),
            job: plain(job, 200),
            asked: at.map(rfc3339),
            reason: found.reason.as_str(),
            tick: found.tick,
            text: plain(&found.text, TEXT_MAX),
            evidence: found.evidence.iter().map(|fact| plain(fact, TEXT_MAX)).collect(),
            action: plain(&found.action, TEXT_MAX),
            entry: found.entry.as_ref().map(RunEnd::new),
            next: found.next,
            zone: found.zone.clone(),
        }
    }

    fn for_people(&self) -> String {
        format!("{}\n{}", self.summary(), fields(self.fields()))
    }

    pub(crate) fn summary(&self) -> String {
        format!("{}: {}: {}", self.job, self.reason, self.text)
    }

    /// Returns the evidence and the advice as names and values.
    pub(crate) fn fields(&self) -> Vec<(&'static str, String)> {
        let time = |name, at: &Option<WallTime>| at.map(|at| (name, self.zone.rfc3339(at)));
        let mut fields: Vec<(&str, String)> = time("tick", &self.tick).into_iter().collect();
        fields.extend(self.evidence.iter().map(|fact| ("evidence", fact.clone())));
        fields.push(("to do", self.action.clone()));
        fields.extend(time("next", &self.next));
        fields
    }
}
