//! `quorate audit`.

use crate::{
    args::AuditArgs,
    config::Config,
    connect,
    exit::{CONFIG, Failure},
    failures, show,
    table::{Cell, table},
    terminal::Tone,
    time::rfc3339,
};
use quorate::{ledger::LedgerError, quorum::Quorum, scheduler::Jobs};
use quorate_operator::view::{AuditEntry, AuditError, name};
use schemars::JsonSchema;
use serde::Serialize;

/// The audit list.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Audit")]
pub(crate) struct Page {
    /// The group whose requests are shown. `null` if no group is named.
    group: Option<String>,
    /// The requests that a leader has answered, and the operations on the nodes, the newest first.
    requests: Vec<AuditEntry>,
}

/// Shows the requests to the jobs of the group, and the operations on the nodes.
pub(crate) async fn audit(args: &AuditArgs, config: &Config) -> Result<u8, Failure> {
    let quorum = connect::looking(config).await?;
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
        let jobs = group.map(|group| Jobs::new(quorum, group)).transpose();
        let jobs = jobs.map_err(|error| Failure::new(CONFIG, format!("--group: {error}")))?;
        let requests = AuditEntry::newest(quorum, jobs.as_ref(), group, limit).await.map_err(unread)?;
        Ok(Self { group: group.map(name), requests })
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
        let rows: Vec<[Cell; 5]> = self.requests.iter().map(row).collect();
        table(["AT", "BY", "REQUEST", "TARGET", "ANSWER"], &rows)
    }
}

fn unread(error: AuditError) -> Failure {
    match &error {
        AuditError::Jobs(error) => failures::of_jobs(error),
        AuditError::Operations(LedgerError::NoMajority(report)) => {
            connect::no_quorum("cannot read the audit list", report)
        }
        AuditError::Operations(_) => Failure::new(crate::exit::FAILURE, error),
    }
}

fn row(entry: &AuditEntry) -> [Cell; 5] {
    let reason = entry.reason.as_ref().map_or_else(String::new, |reason| format!(" ({reason})"));
    let tone = if entry.accepted { Tone::Plain } else { Tone::Caution };
    let answer = Cell::new(entry.answer_line(), tone);
    [
        rfc3339(entry.at).into(),
        (&entry.by).into(),
        (entry.line() + &reason).into(),
        (&entry.target).into(),
        answer,
    ]
}
