//! `quorate jobs trigger`, `pause`, `resume`, `backfill` and `cancel`: requests to the leader.

use super::{code, failure, look, print};
use crate::{
    args::{BackfillArgs, CancelArgs, PauseArgs, RequestArgs, WaitArgs},
    config::{Config, Environment},
    connect::{self, PATIENCE},
    exit::{CONFIG, Failure},
};
use quorate::{
    plain::plain,
    scheduler::{Accepted, Jobs, JobsError},
};
use serde::Serialize;

/// The result of a request.
#[derive(Debug, Serialize)]
struct Page {
    group: String,
    job: String,
    /// The verb of the request, such as `trigger`.
    action: &'static str,
    accepted: bool,
    /// The id of the request. The history of the job contains it.
    id: Option<String>,
    text: Option<String>,
    /// The number of runs that the request starts, or cancels.
    count: Option<u64>,
    error: Option<String>,
}

pub(super) async fn trigger(
    args: &RequestArgs,
    config: &Config,
    environment: &Environment<'_>,
) -> Result<u8, Failure> {
    send(("trigger", &args.job, &args.wait), config, environment, async |jobs| jobs.trigger(&args.job).await)
        .await
}

pub(super) async fn pause(
    args: &PauseArgs,
    config: &Config,
    environment: &Environment<'_>,
) -> Result<u8, Failure> {
    let request = ("pause", &args.job, &args.wait);
    let reason = args.reason.as_deref();
    send(request, config, environment, async |jobs| jobs.pause_until(&args.job, reason, args.until).await)
        .await
}

pub(super) async fn resume(
    args: &RequestArgs,
    config: &Config,
    environment: &Environment<'_>,
) -> Result<u8, Failure> {
    send(("resume", &args.job, &args.wait), config, environment, async |jobs| jobs.resume(&args.job).await)
        .await
}

pub(super) async fn backfill(
    args: &BackfillArgs,
    config: &Config,
    environment: &Environment<'_>,
) -> Result<u8, Failure> {
    if args.from >= args.until {
        let text = "--until is not later than --from; the span includes --from and excludes --until";
        return Err(Failure::new(CONFIG, text));
    }
    let request = ("backfill", &args.job, &args.wait);
    send(request, config, environment, async |jobs| jobs.backfill(&args.job, args.from, args.until).await)
        .await
}

pub(super) async fn cancel(
    args: &CancelArgs,
    config: &Config,
    environment: &Environment<'_>,
) -> Result<u8, Failure> {
    let request = ("cancel", &args.job, &args.wait);
    send(request, config, environment, async |jobs| jobs.cancel(&args.job, args.tick).await).await
}

async fn send(
    (action, job, args): (&'static str, &String, &WaitArgs),
    config: &Config,
    environment: &Environment<'_>,
    request: impl AsyncFnOnce(&Jobs) -> Result<Accepted, JobsError>,
) -> Result<u8, Failure> {
    // The command first only reads whether the job exists. If the list of nodes is mistyped, it finds no job, and
    // ends before it has written markers to these nodes.
    let (looking, jobs) = look(&args.group, config).await?;
    let exists = jobs.check_exists(job).await.map_err(|error| failure(&error));
    looking.close().await;
    exists?;
    let quorum = connect::quorum(config, config.settings.clone())?;
    let jobs = Jobs::new(&quorum, jobs.group()).map_err(|error| Failure::new(CONFIG, error))?;
    let jobs = jobs.requester(&requester(environment)).wait(args.wait);
    // A missing quorum is no error here: the request then fails, and names the reason of each node.
    let _ = quorum.ready(PATIENCE).await;
    let answer = request(&jobs).await;
    quorum.close().await;
    let page = Page::new(jobs.group(), job, action, &answer);
    match &answer {
        Ok(_) => print(args.group.json, &page, || page.for_people())?,
        Err(_) if args.group.json => print(true, &page, String::new)?,
        Err(error) => return Err(failure(error)),
    }
    Ok(answer.as_ref().err().map_or(0, code))
}

/// Returns the name of the requester, USER@HOST. The leader logs it, and `jobs show` names it for a paused job.
fn requester(environment: &Environment<'_>) -> String {
    let user = ["USER", "LOGNAME"].into_iter().find_map(|name| environment.env.get(name));
    format!("{}@{}", user.map_or("unknown", String::as_str), environment.host)
}

impl Page {
    fn new(group: &str, job: &str, action: &'static str, answer: &Result<Accepted, JobsError>) -> Self {
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
            action,
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
