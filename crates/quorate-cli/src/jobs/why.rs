//! `quorate jobs why`.

use super::look;
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
    internals::{Explanation, Reason},
    plain::plain,
    scheduler::Jobs,
};
use quorate_operator::view::RunEnd;
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
    tick: Option<String>,
    text: String,
    evidence: Vec<String>,
    action: String,
    /// The outcome of the tick, if it is recorded.
    entry: Option<RunEnd>,
    next: Option<String>,
}

/// Shows why the job did or did not run.
pub(super) async fn why(args: &WhyArgs, config: &Config) -> Result<u8, Failure> {
    let (quorum, jobs) = look(&args.group, config).await?;
    let found = of_job(&jobs, &args.job, args.at).await;
    quorum.close().await;
    let (page, reason) = found?;
    show::print_page(args.group.json, &page, || page.for_people())?;
    Ok(match reason {
        Reason::NoQuorum => NO_QUORUM,
        Reason::NotRegistered => NOT_FOUND,
        _ => 0,
    })
}

/// Asks why the job did or did not run at a time, or by default at its latest tick.
pub(super) async fn of_job(jobs: &Jobs, job: &str, at: Option<WallTime>) -> Result<(Page, Reason), Failure> {
    let found = jobs.why(job, at).await.map_err(|error| failures::of_jobs(&error))?;
    Ok((Page::new(job, at, jobs.group(), &found), found.reason))
}

impl Page {
    fn new(job: &str, at: Option<WallTime>, group: &str, found: &Explanation) -> Self {
        Self {
            group: plain(group, 200),
            job: plain(job, 200),
            asked: at.map(rfc3339),
            reason: found.reason.as_str(),
            tick: found.tick.map(rfc3339),
            text: plain(&found.text, TEXT_MAX),
            evidence: found.evidence.iter().map(|fact| plain(fact, TEXT_MAX)).collect(),
            action: plain(&found.action, TEXT_MAX),
            entry: found.entry.as_ref().map(RunEnd::new),
            next: found.next.map(rfc3339),
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
        let mut fields: Vec<(&str, String)> = self.tick.iter().map(|tick| ("tick", tick.clone())).collect();
        fields.extend(self.evidence.iter().map(|fact| ("evidence", fact.clone())));
        fields.push(("to do", self.action.clone()));
        fields.extend(self.next.iter().map(|next| ("next", next.clone())));
        fields
    }
}
