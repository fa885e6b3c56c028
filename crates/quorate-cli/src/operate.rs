//! The commands that change something: requests to the leader, `quorate leader resign` and `quorate claims reset`.

use crate::{
    args::{BackfillArgs, ClaimsResetArgs, FreezeArgs, PauseArgs, ResignArgs, WaitArgs},
    config::{Config, Environment},
    connect::{self, PATIENCE},
    exit::{CONFIG, CONFLICT, Failure, NO_QUORUM, NOT_FOUND},
    failures, log, operator,
    progress::Progress,
    show,
};
use quorate::{
    election::{Election, Observer, ResignError},
    env::WallTime,
    internals::JobAction,
    node::FencingToken,
    quorum::Quorum,
};
use quorate_operator::{Action, ActionError, Done, Operator, Verb};
use std::time::Duration;

/// The settings of a command, apart from its action.
#[derive(Debug)]
struct Order<'a> {
    group: &'a str,
    json: bool,
    wait: Duration,
    by: Operator,
}

/// Sends a request about one job, or all jobs, to the leader.
pub(crate) async fn request(
    what: JobAction,
    args: &WaitArgs,
    config: &Config,
    environment: &Environment<'_>,
) -> Result<u8, Failure> {
    carry_out(|_| Action::Job(what), &Order::new(args, config, environment)?, config).await
}

/// Pauses a job, for a time or until it is resumed.
pub(crate) async fn pause(
    args: &PauseArgs,
    config: &Config,
    environment: &Environment<'_>,
) -> Result<u8, Failure> {
    let (job, reason) = (args.job.as_str().into(), args.reason.as_deref().map(Into::into));
    let pause = |now| {
        let until = args.until.or_else(|| args.length.map(|length| now + length));
        Action::Job(JobAction::Pause { job, reason, until })
    };
    carry_out(pause, &Order::new(&args.wait, config, environment)?, config).await
}

/// Freezes all jobs of the group until a time.
pub(crate) async fn freeze(
    args: &FreezeArgs,
    config: &Config,
    environment: &Environment<'_>,
) -> Result<u8, Failure> {
    // The clap definition requires one of the two. The leader compares the end with the quorum's clock, from which
    // the clock of this machine may differ.
    let freeze = |now| {
        let until = args.until.unwrap_or_else(|| now + args.length.unwrap_or_default());
        Action::Job(JobAction::Freeze { reason: args.reason.as_deref().map(Into::into), until })
    };
    carry_out(freeze, &Order::new(&args.wait, config, environment)?, config).await
}

/// Runs a job for each tick of a span.
pub(crate) async fn backfill(
    args: &BackfillArgs,
    config: &Config,
    environment: &Environment<'_>,
) -> Result<u8, Failure> {
    let (job, from, until) = (args.job.as_str().into(), args.from, args.until);
    if from >= until {
        let text = "--until is not later than --from; the span includes --from and excludes --until";
        return Err(Failure::new(CONFIG, text));
    }
    request(JobAction::Backfill { job, from, until }, &args.wait, config, environment).await
}

/// Asks the leader to resign, and waits until it has resigned.
pub(crate) async fn resign(
    args: &ResignArgs,
    config: &Config,
    environment: &Environment<'_>,
) -> Result<u8, Failure> {
    let group = failures::group(args.group.as_deref(), config)?;
    let by = operator::of(&args.operator, environment);
    let order = Order { group, json: args.json, wait: args.wait, by };
    carry_out(|_| Action::Resign { term: args.term.map(FencingToken::new) }, &order, config).await
}

/// Makes a message that was given up count as new.
pub(crate) async fn reset(
    args: &ClaimsResetArgs,
    config: &Config,
    environment: &Environment<'_>,
) -> Result<u8, Failure> {
    let by = operator::of(&args.operator, environment);
    let order = Order { group: "", json: args.json, wait: Duration::ZERO, by };
    carry_out(|_| Action::Reset { set: args.set.clone(), id: args.id.clone() }, &order, config).await
}

/// Carries out an action over a quorum that exists. Returns its result, also if the leader did not accept it.
///
/// # Errors
/// Nothing was tried, because there is no such target.
pub(crate) async fn act(
    quorum: &Quorum,
    (group, action): (&str, &Action),
    by: &Operator,
    wait: Duration,
) -> Result<Done, Failure> {
    match action.check(quorum, group).await {
        Ok(()) => {}
        Err(error) => return not_found(group, error),
    }
    Ok(noted(action.carry_out(quorum, group, by, wait).await))
}

/// Returns the failure for an action that was not carried out, with its exit status.
pub(crate) fn failure(error: &ActionError) -> Failure {
    let code = match error {
        ActionError::Jobs(error) => return failures::of_jobs(error),
        ActionError::Claims(error) => return failures::of_claims(error),
        ActionError::Resign(ResignError::NoMajority(report)) => {
            return connect::no_quorum(report.failed(), report);
        }
        ActionError::Group(error) => return Failure::new(CONFIG, format!("--group: {error}")),
        ActionError::NoJobs(_) | ActionError::NoMessage { .. } => NOT_FOUND,
        ActionError::Resign(ResignError::NoLeader { .. } | ResignError::OtherTerm { .. }) => NOT_FOUND,
        ActionError::Resign(ResignError::LeadsOn { .. }) => CONFLICT,
        ActionError::Resign(_) => NO_QUORUM,
    };
    Failure::new(code, error)
}

/// Returns an observer of the group's leader.
pub(crate) fn observer(quorum: &Quorum, group: &str) -> Result<Observer, Failure> {
    Election::new(quorum, group).observe().map_err(|error| Failure::new(CONFIG, format!("--group: {error}")))
}

impl<'a> Order<'a> {
    fn new(args: &'a WaitArgs, config: &'a Config, environment: &Environment<'_>) -> Result<Self, Failure> {
        let group = failures::group(args.group.group.as_deref(), config)?;
        let by = Operator::named(&operator::name(args.by.as_deref(), environment), None);
        Ok(Self { group, json: args.group.json, wait: args.wait, by })
    }
}

/// Carries out an action, and shows its result. The action may depend on the time of the quorum's clock, which is known
/// once the nodes have answered.
async fn carry_out(
    action: impl FnOnce(WallTime) -> Action,
    order: &Order<'_>,
    config: &Config,
) -> Result<u8, Failure> {
    // The command first only reads. If the list of nodes is mistyped, it finds no target, and ends before it has
    // written markers to these nodes.
    let looking = connect::only_looking(config)?;
    connect::meet(&looking).await;
    let action = action(looking.wall());
    let checked = action.check(&looking, order.group).await;
    looking.close().await;
    let done = match checked {
        Err(error) => not_found(order.group, error)?,
        Ok(()) => {
            let quorum = connect::quorum(config, config.settings.clone())?;
            // A missing quorum is not reported here, because the action below then fails with the reason for each
            // node.
            let _ = quorum.ready(PATIENCE).await;
            let doing = action.carry_out(&quorum, order.group, &order.by, order.wait);
            let done = match action.verb() {
                Verb::Reset => doing.await,
                verb => {
                    let text = match verb {
                        Verb::Resign => "waiting until the leader has resigned",
                        _ => "waiting for the leader's answer",
                    };
                    Progress::new(quorum.env(), text, Some(order.wait)).during(doing).await
                }
            };
            quorum.close().await;
            noted(done)
        }
    };
    match &done.error {
        Some(error) if !order.json => return Err(failure(error)),
        _ => show::print_page(order.json, &done.answer, || done.answer.text() + "\n")?,
    }
    Ok(done.error.as_ref().map_or(0, |error| failure(error).code))
}

/// Returns the result of an action without a target. That there is no leader is a result.
fn not_found(group: &str, error: ActionError) -> Result<Done, Failure> {
    match error {
        ActionError::Resign(ResignError::NoLeader { .. }) => {
            Ok(Done::of_resignation(group, Err(error), None))
        }
        error => Err(failure(&error)),
    }
}

/// Says if the audit list lacks an operation.
fn noted(done: Done) -> Done {
    if let Some(lacks) = &done.unaudited {
        log::say(&format!("quorate: {lacks}"));
    }
    done
}
