//! The commands `quorate leader show` and `quorate leader history`.

use crate::{
    args::{LeaderShowArgs, TermsArgs},
    config::Config,
    connect,
    exit::{Failure, NO_QUORUM, NOT_FOUND},
    failures,
    operate::observer,
    show,
    table::{Cell, table},
    time::rfc3339,
};
use quorate::{
    election::{Leader, PastTerm},
    plain::plain,
    quorum::{NoMajority, Quorum},
};
use quorate_operator::view::{LeaderView, TermView};
use schemars::JsonSchema;
use serde::Serialize;
use std::time::Duration;

/// The longest name that is shown, in bytes.
const NAME_MAX: usize = 200;
/// The length from which the milliseconds of a term are not shown.
const PRECISE: Duration = Duration::from_secs(10);

/// The terms of a group.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Terms")]
pub(crate) struct Page {
    group: String,
    /// The terms, the newest first.
    terms: Vec<TermView>,
}

/// The leader of a group now.
#[derive(Debug, Serialize)]
struct Now {
    group: String,
    /// `null` if no worker leads.
    leader: Option<Ranked>,
}

/// A leader, with its priority.
#[derive(Debug, Serialize)]
struct Ranked {
    #[serde(flatten)]
    leader: LeaderView,
    /// The priority of the worker among the candidates. `null` if the beginning of its term is not recorded.
    priority: Option<u32>,
}

/// Shows the leader of the group.
pub(crate) async fn show(args: &LeaderShowArgs, config: &Config) -> Result<u8, Failure> {
    let group = failures::group(args.group.group.as_deref(), config)?;
    let quorum = connect::looking(config).await?;
    let mut observer = observer(&quorum, group)?;
    let found = observer.leader().await;
    let terms = observer.history(usize::MAX).await.unwrap_or_default();
    let nodes = quorum.nodes();
    quorum.close().await;
    let leader = found.map_err(|error| connect::no_quorum("cannot read the leader of the group", &error))?;
    // Nodes without a vote may have lost the leader.
    if leader.is_none() && !connect::is_quorum(&nodes) {
        let why = connect::explain(&nodes);
        return Err(Failure::new(NO_QUORUM, format!("cannot read the leader of the group: {why}")));
    }
    let page = Now {
        group: plain(group, NAME_MAX),
        leader: leader.as_ref().map(|leader| Ranked::new(leader, &terms)),
    };
    show::print_page(args.group.json, &page, || page.for_people())?;
    Ok(if page.leader.is_some() { 0 } else { NOT_FOUND })
}

impl Now {
    fn for_people(&self) -> String {
        let Some(Ranked { leader: LeaderView { worker, term, remaining }, priority }) = &self.leader else {
            return format!("{}: no worker leads\n", self.group);
        };
        let term = term.map_or_else(String::new, |term| format!(" in term {term}"));
        let priority = priority.filter(|priority| *priority > 0);
        let priority = priority.map_or_else(String::new, |priority| format!(" with priority {priority}"));
        let lease = remaining.map_or_else(String::new, |left| {
            let left = Duration::from_millis(u64::try_from(left.as_millis()).unwrap_or(u64::MAX));
            format!("; its lease lasts {}", humantime::format_duration(left))
        });
        format!("{}: {worker} leads{term}{priority}{lease}\n", self.group)
    }
}

impl Ranked {
    fn new(leader: &Leader, terms: &[PastTerm]) -> Self {
        let priority = terms.iter().find(|past| Some(past.term) == leader.term).map(|past| past.priority);
        Self { leader: LeaderView::new(leader), priority }
    }
}

/// Shows the newest terms of the group.
pub(crate) async fn history(args: &TermsArgs, config: &Config) -> Result<u8, Failure> {
    let group = failures::group(args.group.group.as_deref(), config)?;
    let quorum = connect::looking(config).await?;
    let page = Page::read(&quorum, group, args.limit).await;
    quorum.close().await;
    let page = page?;
    show::print_page(args.group.json, &page, || page.for_people())?;
    Ok(0)
}

/// Returns the JSON document that the command prints with `--json`.
pub(crate) async fn json(quorum: &Quorum, group: &str, limit: u32) -> Result<String, Failure> {
    show::json(&Page::read(quorum, group, limit).await?)
}

impl Page {
    async fn read(quorum: &Quorum, group: &str, limit: u32) -> Result<Self, Failure> {
        let mut observer = observer(quorum, group)?;
        let unread = |error: NoMajority| connect::no_quorum("cannot read the terms of the group", &error);
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let terms = TermView::newest(&mut observer, limit, quorum.wall()).await.map_err(unread)?;
        Ok(Self { group: plain(group, NAME_MAX), terms })
    }

    fn for_people(&self) -> String {
        if self.terms.is_empty() {
            return format!("{}: no term is recorded\n", self.group);
        }
        let rows: Vec<[Cell; 6]> = self.terms.iter().map(row).collect();
        table(["TERM", "HOLDER", "BEGAN", "ENDED", "LASTED", "CAUSE"], &rows)
    }
}

fn row(term: &TermView) -> [Cell; 6] {
    let none = || "-".to_owned();
    let short = |time: Duration| {
        let seconds = Duration::from_secs(time.as_secs());
        let time =
            if time < PRECISE { Duration::from_millis(time.subsec_millis().into()) } else { Duration::ZERO };
        humantime::format_duration(seconds + time).to_string()
    };
    let cause = match (&term.cause, term.leads) {
        (Some(cause), _) => match term.reason.as_deref().filter(|reason| !reason.is_empty()) {
            Some(reason) => format!("{cause}: {reason}"),
            None => cause.to_string(),
        },
        (None, true) => "leads now".to_owned(),
        (None, false) => "no end is recorded, and no worker has led since".to_owned(),
    };
    [
        term.term.to_string().into(),
        (&term.holder).into(),
        rfc3339(term.began).into(),
        term.ended.map_or_else(none, rfc3339).into(),
        term.lasted.map_or_else(none, short).into(),
        cause.into(),
    ]
}
