//! `quorate jobs why`.

use super::{failure, look, page::RunEnd};
use crate::{
    args::WhyArgs,
    config::Config,
    exit::{Failure, NO_QUORUM, NOT_FOUND},
    show,
    time::rfc3339,
};
use quorate::{
    internals::{Explanation, Reason},
    plain::plain,
};
use serde::Serialize;

/// The longest text that is shown, in bytes.
const TEXT_MAX: usize = 4_096;

#[derive(Debug, Serialize)]
struct Page {
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
    let found = jobs.why(&args.job, args.at).await.map_err(|error| failure(&error));
    quorum.close().await;
    let found = found?;
    let page = Page::new(args, jobs.group(), &found);
    show::print_page(args.group.json, &page, || page.for_people())?;
    Ok(match found.reason {
        Reason::NoQuorum => NO_QUORUM,
        Reason::NotRegistered => NOT_FOUND,
        _ => 0,
    })
}

impl Page {
    fn new(args: &WhyArgs, group: &str, found: &Explanation) -> Self {
        Self {
            group: plain(group, 200),
            job: plain(&args.job, 200),
            asked: args.at.map(rfc3339),
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
        let mut text = format!("{}: {}: {}\n", self.job, self.reason, self.text);
        let mut line = |name: &str, value: &str| text += &format!("  {name:8}  {value}\n");
        if let Some(tick) = &self.tick {
            line("tick", tick);
        }
        for fact in &self.evidence {
            line("evidence", fact);
        }
        line("to do", &self.action);
        if let Some(next) = &self.next {
            line("next", next);
        }
        text
    }
}
