//! `quorate jobs trigger`, `pause`, `resume`, `backfill` and `cancel`: what is asked of the leader.

use super::{code, failure, looking, print};
use crate::{
    args::{AskArgs, BackfillArgs, CancelArgs, WaitArgs},
    config::{Config, Environment},
    connect,
    exit::{CONFIG, Failure},
    status::PATIENCE,
};
use quorate::{
    plain::plain,
    schedule::{Accepted, Jobs, JobsError},
};
use serde::Serialize;

/// What came of a request.
#[derive(Debug, Serialize)]
struct Page {
    group: String,
    job: String,
    asked: &'static str,
    accepted: bool,
    /// Under this id what comes of it stands in the history.
    id: Option<String>,
    text: Option<String>,
    /// How many runs it makes, or has told to stop.
    count: Option<u64>,
    error: Option<String>,
}

pub(super) async fn trigger(
    args: &AskArgs,
    config: &Config,
    around: &Environment<'_>,
) -> Result<u8, Failure> {
    ask(("trigger", &args.job, &args.wait), config, around, async |jobs| jobs.trigger(&args.job).await).await
}

pub(super) async fn pause(args: &AskArgs, config: &Config, around: &Environment<'_>) -> Result<u8, Failure> {
    ask(("pause", &args.job, &args.wait), config, around, async |jobs| jobs.pause(&args.job).await).await
}

pub(super) async fn resume(args: &AskArgs, config: &Config, around: &Environment<'_>) -> Result<u8, Failure> {
    ask(("resume", &args.job, &args.wait), config, around, async |jobs| jobs.resume(&args.job).await).await
}

pub(super) async fn backfill(
    args: &BackfillArgs,
    config: &Config,
    around: &Environment<'_>,
) -> Result<u8, Failure> {
    if args.from >= args.until {
        let text =
            "--until is not later than --from; the span is from --from, included, to --until, excluded";
        return Err(Failure::new(CONFIG, text));
    }
    let asked = ("backfill", &args.job, &args.wait);
    ask(asked, config, around, async |jobs| jobs.backfill(&args.job, args.from, args.until).await).await
}

pub(super) async fn cancel(
    args: &CancelArgs,
    config: &Config,
    around: &Environment<'_>,
) -> Result<u8, Failure> {
    let asked = ("cancel", &args.job, &args.wait);
    ask(asked, config, around, async |jobs| jobs.cancel(&args.job, args.tick).await).await
}

async fn ask(
    (asked, job, args): (&'static str, &String, &WaitArgs),
    config: &Config,
    around: &Environment<'_>,
    request: impl AsyncFnOnce(&Jobs) -> Result<Accepted, JobsError>,
) -> Result<u8, Failure> {
    // A mistyped list of nodes must not be marked as a cluster: first look whether there is such a job.
    let (look, jobs) = looking(&args.group, config).await?;
    let known = jobs.known(job).await.map_err(|error| failure(&look, &error));
    look.close().await;
    known?;
    let quorum = connect::quorum(config, config.setup.clone())?;
    let jobs = Jobs::new(&quorum, jobs.group()).map_err(|error| Failure::new(CONFIG, error))?;
    let jobs = jobs.by(&who(around)).wait(args.wait);
    // Without a quorum the request reports what each node said.
    let _ = quorum.ready(PATIENCE).await;
    let answer = request(&jobs).await;
    let nodes = quorum.nodes();
    quorum.close().await;
    let page = Page::new(jobs.group(), job, asked, &answer);
    match &answer {
        Ok(_) => print(args.group.json, &page, || page.for_people())?,
        Err(_) if args.group.json => print(true, &page, String::new)?,
        Err(JobsError::NoMajority(_)) => {
            return Err(Failure::new(super::NO_QUORUM, connect::explain(&nodes)));
        }
        Err(error) => return Err(Failure::new(code(error), error)),
    }
    Ok(answer.as_ref().err().map_or(0, code))
}

/// Who asks: for the leader's log, and for those who wonder why a job is paused.
fn who(around: &Environment<'_>) -> String {
    let user = ["USER", "LOGNAME"].into_iter().find_map(|name| around.env.get(name));
    format!("{}@{}", user.map_or("somebody", String::as_str), around.host)
}

impl Page {
    fn new(group: &str, job: &str, asked: &'static str, answer: &Result<Accepted, JobsError>) -> Self {
        let accepted = answer.as_ref().ok();
        let id = match answer {
            Ok(accepted) => Some(accepted.id),
            Err(
                JobsError::Refused { id, .. }
                | JobsError::Unanswered { id, .. }
                | JobsError::AnswerUnread { id, .. }
                | JobsError::PerhapsPosted { id, .. },
            ) => Some(*id),
            Err(_) => None,
        };
        Self {
            group: plain(group, 200),
            job: plain(job, 200),
            asked,
            accepted: accepted.is_some(),
            id: id.map(|id| id.to_string()),
            text: accepted.map(|accepted| plain(&accepted.text, 1_000)),
            count: accepted.map(|accepted| accepted.count),
            error: answer.as_ref().err().map(ToString::to_string),
        }
    }

    fn for_people(&self) -> String {
        let text = self.text.as_deref().unwrap_or_default();
        let id = self.id.as_deref().unwrap_or_default();
        format!("{}: {text} (request {id})\n", self.job)
    }
}
