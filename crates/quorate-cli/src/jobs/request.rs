//! The commands `quorate jobs trigger`, `pause`, `resume`, `backfill` and `cancel`, which send requests to the
//! leader.

use super::{code, failure, look};
use crate::{
    args::{BackfillArgs, WaitArgs},
    config::{Config, Environment},
    connect::{self, PATIENCE},
    exit::{CONFIG, Failure, NOT_FOUND},
    operator,
    progress::Progress,
    show,
};
use quorate::{
    env::WallTime,
    plain::plain,
    scheduler::{Accepted, Jobs, JobsError},
};
use serde::Serialize;

/// The result of a request.
#[derive(Debug, Serialize)]
pub(super) struct Page {
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

/// The action that a request asks of the leader, for one job.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    Trigger,
    /// Skip the job's ticks, for a reason, until a time or until the job is resumed.
    Pause {
        reason: Option<String>,
        until: Option<WallTime>,
    },
    Resume,
    /// Skip the ticks of all jobs, for a reason, until a time. The name of the job is then empty.
    Freeze {
        reason: String,
        until: WallTime,
    },
    /// End the freeze of all jobs. The name of the job is then empty.
    Unfreeze,
    /// Cancel the run of this tick, or all active runs.
    Cancel(Option<WallTime>),
    /// Run the job for each tick from the first time, inclusive, to the second, exclusive.
    Backfill(WallTime, WallTime),
}

impl Action {
    pub(crate) fn verb(&self) -> &'static str {
        match self {
            Self::Trigger => "trigger",
            Self::Pause { .. } => "pause",
            Self::Resume => "resume",
            Self::Freeze { .. } => "freeze",
            Self::Unfreeze => "unfreeze",
            Self::Cancel(_) => "cancel",
            Self::Backfill(..) => "backfill",
        }
    }

    async fn send(&self, jobs: &Jobs, job: &str) -> Result<Accepted, JobsError> {
        match self {
            Self::Trigger => jobs.trigger(job).await,
            Self::Pause { reason, until } => jobs.pause_until(job, reason.as_deref(), *until).await,
            Self::Resume => jobs.resume(job).await,
            Self::Freeze { reason, until } => jobs.freeze(reason, *until).await,
            Self::Unfreeze => jobs.unfreeze().await,
            Self::Cancel(tick) => jobs.cancel(job, *tick).await,
            Self::Backfill(from, until) => jobs.backfill(job, *from, *until).await,
        }
    }
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
    send(&Action::Backfill(args.from, args.until), &args.job, &args.wait, config, environment).await
}

/// Sends a request to the leader, and shows its answer.
pub(crate) async fn send(
    action: &Action,
    job: &str,
    args: &WaitArgs,
    config: &Config,
    environment: &Environment<'_>,
) -> Result<u8, Failure> {
    send_at(|_| action.clone(), job, args, config, environment).await
}

/// Sends a request to the leader, and shows its answer. The action may depend on the time of the quorum's clock,
/// which is known once the nodes have answered.
pub(crate) async fn send_at(
    action: impl FnOnce(WallTime) -> Action,
    job: &str,
    args: &WaitArgs,
    config: &Config,
    environment: &Environment<'_>,
) -> Result<u8, Failure> {
    // The command first only reads whether the job exists. If the list of nodes is mistyped, it finds no job, and
    // ends before it has written markers to these nodes.
    let (looking, jobs) = look(&args.group, config).await?;
    let exists = check(&jobs, job).await;
    looking.close().await;
    exists?;
    let quorum = connect::quorum(config, config.settings.clone())?;
    let jobs = Jobs::new(&quorum, jobs.group()).map_err(|error| Failure::new(CONFIG, error))?;
    let jobs = jobs.requester(&operator::name(args.by.as_deref(), environment)).wait(args.wait);
    // A missing quorum is not reported here, because the request below then fails with the reason for each
    // node.
    let _ = quorum.ready(PATIENCE).await;
    let action = action(quorum.wall());
    let progress = Progress::new(quorum.env(), "waiting for the leader's answer", Some(args.wait));
    let answer = progress.during(action.send(&jobs, job)).await;
    quorum.close().await;
    let page = Page::new(jobs.group(), job, action.verb(), &answer);
    match &answer {
        Ok(_) => show::print_page(args.group.json, &page, || page.for_people())?,
        Err(_) if args.group.json => show::print_page(true, &page, String::new)?,
        Err(error) => return Err(failure(error)),
    }
    Ok(answer.as_ref().err().map_or(0, code))
}

/// Sends a request to the leader. Returns its answer, or the reason why there is none, and the exit status that
/// the command would have.
pub(super) async fn answer(jobs: &Jobs, job: &str, action: &Action) -> Result<(Page, u8), Failure> {
    check(jobs, job).await?;
    let answer = action.send(jobs, job).await;
    let code = answer.as_ref().err().map_or(0, code);
    Ok((Page::new(jobs.group(), job, action.verb(), &answer), code))
}

/// Checks that the job exists; for an action on all jobs, that the group has any.
async fn check(jobs: &Jobs, job: &str) -> Result<(), Failure> {
    if !job.is_empty() {
        return jobs.check_exists(job).await.map_err(|error| failure(&error));
    }
    let group = plain(jobs.group(), 200);
    match jobs.list().await.map_err(|error| failure(&error))?.is_empty() {
        true => Err(Failure::new(NOT_FOUND, format!("{group}: the group has no jobs; check its name"))),
        false => Ok(()),
    }
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

    /// Returns the leader's answer, or the reason why the request was not accepted.
    pub(super) fn outcome(&self) -> Result<String, String> {
        match &self.error {
            None => Ok(self.for_people().trim_end().to_owned()),
            Some(error) => Err(plain(error, 4_096)),
        }
    }

    fn for_people(&self) -> String {
        let text = self.text.as_deref().unwrap_or_default();
        let id = self.id.as_deref().unwrap_or_default();
        let what = if self.job.is_empty() { &self.group } else { &self.job };
        let note = match self.action {
            "freeze" => "; no tick starts until the end, and active runs continue",
            _ => "",
        };
        format!("{what}: {text}{note} (request {id})\n")
    }
}
