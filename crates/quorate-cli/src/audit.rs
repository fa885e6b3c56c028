//! `quorate audit`.

use crate::{
    args::AuditArgs,
    config::Config,
    connect,
    exit::{CONFIG, Failure},
    jobs::failure,
    show,
    table::{Cell, table},
    terminal::Tone,
    time::rfc3339,
};
use quorate::{
    internals::{AuditEntry, JobAction, JobResponse},
    ledger::{LedgerError, Operation, OperationLog},
    plain::plain,
    quorum::Quorum,
    scheduler::Jobs,
};
use quorate_operator::Verb;
use schemars::JsonSchema;
use serde::Serialize;
use std::cmp::Reverse;

/// The longest text that is shown, in bytes.
const TEXT_MAX: usize = 1_000;

/// The audit list.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Audit")]
pub(crate) struct Page {
    /// The group whose requests are shown. `null` if no group is named.
    group: Option<String>,
    /// The requests that a leader has answered, and the operations on the nodes, the newest first.
    requests: Vec<RequestPage>,
}

/// An entry of the audit list.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "AuditEntry")]
pub(crate) struct RequestPage {
    at: String,
    by: String,
    /// The verb of a request to a leader, such as `pause`, or the kind of an operation, such as `forced-release`.
    action: String,
    /// The job, lock, message, nodes or leadership that was changed. For a freeze, the group.
    target: String,
    /// The job, for a request to one job.
    job: Option<String>,
    /// The reason, in the words of the requester.
    reason: Option<String>,
    /// The end of a pause or a freeze, or of the span of a back-fill.
    until: Option<String>,
    /// The start of the span of a back-fill.
    from: Option<String>,
    /// The tick whose run was cancelled.
    tick: Option<String>,
    /// False if the leader refused the request, or the operation failed.
    accepted: bool,
    answer: String,
    /// The leader that answered. `null` for an operation on the nodes.
    leader: Option<String>,
    /// The id of the request. `null` for an operation on the nodes.
    id: Option<String>,
}

/// Shows the requests to the jobs of the group, and the operations on the nodes.
pub(crate) async fn audit(args: &AuditArgs, config: &Config) -> Result<u8, Failure> {
    let quorum = connect::only_looking(config)?;
    connect::meet(&quorum).await;
    let group = args.group.group.as_deref().or(config.group.as_deref());
    let page = Page::read(&quorum, group, args.limit).await;
    quorum.close().await;
    let page = page?;
    show::print_page(args.group.json, &page, || page.for_people())?;
    Ok(0)
}

/// Returns the JSON document that the command prints with `--json`.
pub(crate) async fn json(quorum: &Quorum, group: &str, limit: u32) -> Result<String, Failure> {
    show::json(&Page::read(quorum, Some(group), limit).await?)
}

impl Page {
    async fn read(quorum: &Quorum, group: Option<&str>, limit: u32) -> Result<Self, Failure> {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let mut found = Vec::new();
        if let Some(group) = group {
            let jobs = Jobs::new(quorum, group)
                .map_err(|error| Failure::new(CONFIG, format!("--group: {error}")))?;
            let entries = jobs.audit(limit).await.map_err(|error| failure(&error))?;
            found.extend(entries.iter().map(|entry| (entry.at, RequestPage::of_request(entry, group))));
        }
        let operations = OperationLog::new(quorum).newest(usize::MAX).await.map_err(unread)?;
        let is_shown =
            |operation: &&Operation| operation.group.is_none() || operation.group.as_deref() == group;
        let operations = operations.iter().filter(is_shown).take(limit);
        found.extend(operations.map(|operation| (operation.at, RequestPage::of_operation(operation))));
        found.sort_by_key(|(at, _)| Reverse(*at));
        let requests = found.into_iter().take(limit).map(|(_, request)| request).collect();
        Ok(Self { group: group.map(|group| plain(group, TEXT_MAX)), requests })
    }

    fn for_people(&self) -> String {
        if self.requests.is_empty() {
            return match &self.group {
                Some(group) => format!(
                    "{group}: no leader has answered a request to its jobs, and no operator has changed the nodes\n"
                ),
                None => "no operator has changed the nodes; name a group to see the requests to its jobs\n"
                    .to_owned(),
            };
        }
        let rows: Vec<[Cell; 5]> = self.requests.iter().map(RequestPage::row).collect();
        table(["AT", "BY", "REQUEST", "TARGET", "ANSWER"], &rows)
    }
}

fn unread(error: LedgerError) -> Failure {
    match &error {
        LedgerError::NoMajority(report) => connect::no_quorum("cannot read the audit list", report),
        _ => Failure::new(crate::exit::FAILURE, error),
    }
}

impl RequestPage {
    fn of_request(entry: &AuditEntry, group: &str) -> Self {
        let (accepted, answer) = match &entry.answer {
            JobResponse::Accepted { text, .. } => (true, text),
            JobResponse::Refused { why } => (false, why),
        };
        let job = plain(entry.what.job(), TEXT_MAX);
        let job = Some(job).filter(|job| !job.is_empty());
        let mut page = Self {
            at: rfc3339(entry.at),
            by: plain(&entry.by, TEXT_MAX),
            action: Verb::of(&entry.what).name().to_owned(),
            target: job.clone().unwrap_or_else(|| plain(group, TEXT_MAX)),
            job,
            reason: None,
            until: None,
            from: None,
            tick: None,
            accepted,
            answer: plain(answer, TEXT_MAX),
            leader: Some(plain(&entry.leader, TEXT_MAX)),
            id: Some(entry.id.to_string()),
        };
        match &entry.what {
            JobAction::Pause { reason, until, .. } => {
                page.reason = reason.as_ref().map(|reason| plain(reason, TEXT_MAX));
                page.until = until.map(rfc3339);
            }
            JobAction::Freeze { reason, until } => {
                page.reason = Some(plain(reason, TEXT_MAX));
                page.until = Some(rfc3339(*until));
            }
            JobAction::Backfill { from, until, .. } => {
                (page.from, page.until) = (Some(rfc3339(*from)), Some(rfc3339(*until)));
            }
            JobAction::Cancel { tick, .. } => page.tick = tick.map(rfc3339),
            JobAction::Unfreeze | JobAction::Resume { .. } | JobAction::Trigger { .. } => {}
        }
        page
    }

    fn of_operation(operation: &Operation) -> Self {
        Self {
            at: rfc3339(operation.at),
            by: plain(&operation.by, TEXT_MAX),
            action: plain(&operation.action, TEXT_MAX),
            target: plain(&operation.target, TEXT_MAX),
            job: None,
            reason: operation.reason.as_ref().map(|reason| plain(reason, TEXT_MAX)),
            until: None,
            from: None,
            tick: None,
            accepted: operation.done,
            answer: plain(&operation.result, TEXT_MAX),
            leader: None,
            id: None,
        }
    }

    fn row(&self) -> [Cell; 5] {
        let mut request = self.action.clone();
        for (name, value) in [("tick", &self.tick), ("from", &self.from), ("until", &self.until)] {
            request += &value.as_ref().map_or_else(String::new, |value| format!(" {name} {value}"));
        }
        request += &self.reason.as_ref().map_or_else(String::new, |reason| format!(" ({reason})"));
        let answer = match (self.accepted, &self.leader) {
            (true, _) => Cell::from(&self.answer),
            (false, Some(_)) => Cell::new(format!("refused: {}", self.answer), Tone::Caution),
            (false, None) => Cell::new(format!("failed: {}", self.answer), Tone::Caution),
        };
        [(&self.at).into(), (&self.by).into(), request.into(), (&self.target).into(), answer]
    }
}
