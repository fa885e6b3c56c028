//! `quorate audit`.

use crate::{
    args::AuditArgs,
    config::Config,
    exit::Failure,
    jobs::{failure, look},
    show,
    table::table,
    time::rfc3339,
};
use quorate::{
    internals::{AuditEntry, JobAction, JobResponse},
    plain::plain,
};
use serde::Serialize;

/// The longest text that is shown, in bytes.
const TEXT_MAX: usize = 1_000;

#[derive(Debug, Serialize)]
struct Page {
    group: String,
    /// The requests that a leader has answered, the newest first.
    requests: Vec<RequestPage>,
}

#[derive(Debug, Serialize)]
struct RequestPage {
    at: String,
    by: String,
    action: &'static str,
    job: String,
    /// The reason of a pause, in the words of the requester.
    reason: Option<String>,
    /// The end of a pause, or of the span of a back-fill.
    until: Option<String>,
    /// The start of the span of a back-fill.
    from: Option<String>,
    /// The tick whose run was cancelled.
    tick: Option<String>,
    accepted: bool,
    answer: String,
    leader: String,
    id: String,
}

/// Shows the requests to the jobs of the group.
pub(crate) async fn audit(args: &AuditArgs, config: &Config) -> Result<u8, Failure> {
    let (quorum, jobs) = look(&args.group, config).await?;
    let limit = usize::try_from(args.limit).unwrap_or(usize::MAX);
    let found = jobs.audit(limit).await.map_err(|error| failure(&error));
    quorum.close().await;
    let requests = found?.iter().map(RequestPage::new).collect();
    let page = Page { group: plain(jobs.group(), TEXT_MAX), requests };
    show::print_page(args.group.json, &page, || page.for_people())?;
    Ok(0)
}

impl Page {
    fn for_people(&self) -> String {
        if self.requests.is_empty() {
            return format!("{}: no leader has answered a request to its jobs\n", self.group);
        }
        let rows: Vec<[String; 5]> = self.requests.iter().map(RequestPage::row).collect();
        table(["AT", "BY", "REQUEST", "JOB", "ANSWER"], &rows)
    }
}

impl RequestPage {
    fn new(entry: &AuditEntry) -> Self {
        let (accepted, answer) = match &entry.answer {
            JobResponse::Accepted { text, .. } => (true, text),
            JobResponse::Refused { why } => (false, why),
            // The enum is non-exhaustive.
            _ => (false, &entry.leader),
        };
        let mut page = Self {
            at: rfc3339(entry.at),
            by: plain(&entry.by, TEXT_MAX),
            action: "unknown",
            job: plain(entry.what.job(), TEXT_MAX),
            reason: None,
            until: None,
            from: None,
            tick: None,
            accepted,
            answer: plain(answer, TEXT_MAX),
            leader: plain(&entry.leader, TEXT_MAX),
            id: entry.id.to_string(),
        };
        match &entry.what {
            JobAction::Pause { reason, until, .. } => {
                page.action = "pause";
                page.reason = reason.as_ref().map(|reason| plain(reason, TEXT_MAX));
                page.until = until.map(rfc3339);
            }
            JobAction::Resume { .. } => page.action = "resume",
            JobAction::Trigger { .. } => page.action = "trigger",
            JobAction::Backfill { from, until, .. } => {
                (page.action, page.from, page.until) =
                    ("backfill", Some(rfc3339(*from)), Some(rfc3339(*until)));
            }
            JobAction::Cancel { tick, .. } => (page.action, page.tick) = ("cancel", tick.map(rfc3339)),
            // The enum is non-exhaustive.
            _ => {}
        }
        page
    }

    fn row(&self) -> [String; 5] {
        let mut request = self.action.to_owned();
        for (name, value) in [("tick", &self.tick), ("from", &self.from), ("until", &self.until)] {
            request += &value.as_ref().map_or_else(String::new, |value| format!(" {name} {value}"));
        }
        request += &self.reason.as_ref().map_or_else(String::new, |reason| format!(" ({reason})"));
        let answer = if self.accepted { self.answer.clone() } else { format!("refused: {}", self.answer) };
        [self.at.clone(), self.by.clone(), request, self.job.clone(), answer]
    }
}
