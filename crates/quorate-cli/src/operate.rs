//! The commands that change something: requests to the leader, `quorate leader resign` and `quorate claims reset`.

use crate::{
    args::{BackfillArgs, CancelArgs, ClaimsResetArgs, FreezeArgs, PauseArgs, ResignArgs, WaitArgs},
    config::Config,
    connect::{self, PATIENCE},
    exit::{CONFIG, CONFLICT, Failure, NO_QUORUM, NOT_FOUND},
    failures, log, operator,
    progress::Progress,
    show,
};
use jiff::tz::TimeZone;
use quorate::{
    election::{Election, Observer, ResignError},
    env::WallTime,
    internals::JobAction,
    node::FencingToken,
    quorum::Quorum,
    scheduler::{Jobs, Zone},
};
use quorate_operator::{Action, ActionError, Done, Moment, Operator, Verb};
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
pub(crate) async fn request(what: JobAction, args: &WaitArgs, config: &Config) -> Result<u8, Failure> {
    carry_out(async |_| Ok(Action::Job(what)), &Order::new(args, config)?, config).await
}

/// Pauses a job, for a time or until it is resumed.
pub(crate) async fn pause(args: &PauseArgs, config: &Config) -> Result<u8, Failure> {
    let order = Order::new(&args.wait, config)?;
    let pause = async |looking: &Quorum| {
        let now = looking.wall();
        let until = match (args.until, args.length) {
            (Some(until), _) => {
                Some(until.end(&zone(looking, (order.group, &args.job), &[until]).await?, now))
            }
            (None, length) => length.map(|length| now + length),
        };
        let (job, reason) = (args.job.as_str().into(), args.reason.as_deref().map(Into::into));
        Ok(Action::Job(JobAction::Pause { job, reason, until }))
    };
    carry_out(pause, &order, config).await
}

/// Freezes all jobs of the group until a time.
pub(crate) async fn freeze(args: &FreezeArgs, config: &Config) -> Result<u8, Failure> {
    // The clap definition requires one of the two. The leader compares the end with the quorum's clock, from which
    // the clock of this machine may differ.
    let freeze = async |looking: &Quorum| {
        let now = looking.wall();
        let until = match args.until {
            Some(until) => until.end(&of_machine(), now),
            None => now + args.length.unwrap_or_default(),
        };
        Ok(Action::Job(JobAction::Freeze { reason: args.reason.as_deref().map(Into::into), until }))
    };
    carry_out(freeze, &Order::new(&args.wait, config)?, config).await
}

/// Runs a job for each tick of a span.
pub(crate) async fn backfill(args: &BackfillArgs, config: &Config) -> Result<u8, Failure> {
    let order = Order::new(&args.wait, config)?;
    let backfill = async |looking: &Quorum| {
        let (zone, now) =
            (zone(looking, (order.group, &args.job), &[args.from, args.until]).await?, looking.wall());
        let [from, until] = [args.from, args.until].map(|moment| moment.span(&zone, now).start);
        if from >= until {
            let text = "--until is not later than --from; the span includes --from and excludes --until";
            return Err(Failure::new(CONFIG, text));
        }
        Ok(Action::Job(JobAction::Backfill { job: args.job.as_str().into(), from, until }))
    };
    carry_out(backfill, &order, config).await
}

/// Cancels the active runs of a job, or one of them.
pub(crate) async fn cancel(args: &CancelArgs, config: &Config) -> Result<u8, Failure> {
    let order = Order::new(&args.wait, config)?;
    let cancel = async |looking: &Quorum| {
        let tick = match args.at {
            None => None,
            Some(moment) => Some(active_tick(looking, (order.group, &args.job), moment).await?),
        };
        Ok(Action::Job(JobAction::Cancel { job: args.job.as_str().into(), tick }))
    };
    carry_out(cancel, &order, config).await
}

/// Returns the tick of the one active run in the time that a moment names. An exact time is a tick by itself, also that of
/// a run which is not due yet.
async fn active_tick(
    looking: &Quorum,
    (group, job): (&str, &str),
    moment: Moment,
) -> Result<WallTime, Failure> {
    if let Some(tick) = moment.exact() {
        return Ok(tick);
    }
    let status = jobs_of(looking, group)?.show(job).await.map_err(|error| failures::of_jobs(&error))?;
    let span = moment.span(&status.zone, looking.wall());
    let shown = |ticks: &[WallTime]| {
        ticks.iter().map(|tick| status.zone.rfc3339(*tick)).collect::<Vec<_>>().join(", ")
    };
    let active: Vec<WallTime> = status.running.iter().map(|run| run.tick).collect();
    let named: Vec<WallTime> = active.iter().copied().filter(|tick| span.contains(tick)).collect();
    let text = match named[..] {
        [tick] => return Ok(tick),
        [] => {
            let from = status.zone.rfc3339(span.start);
            let active = if active.is_empty() { "none".to_owned() } else { shown(&active) };
            format!("--at: no run of this time, from {from}, is active; active runs: {active}")
        }
        _ => format!("--at: several runs of this time are active, name one: {}", shown(&named)),
    };
    Err(Failure::new(NOT_FOUND, text))
}

/// Returns the zone of a job, in which these moments are. It is read only if one of them has no offset.
async fn zone(looking: &Quorum, (group, job): (&str, &str), moments: &[Moment]) -> Result<Zone, Failure> {
    if moments.iter().all(|moment| moment.exact().is_some()) {
        return Ok(Zone::UTC);
    }
    let status = jobs_of(looking, group)?.show(job).await;
    status.map(|status| status.zone).map_err(|error| failures::of_jobs(&error))
}

/// Returns the jobs of the group.
pub(crate) fn jobs_of(quorum: &Quorum, group: &str) -> Result<Jobs, Failure> {
    Jobs::new(quorum, group).map_err(|error| Failure::new(CONFIG, format!("--group: {error}")))
}

/// Returns the zone of this machine, for a time that concerns no single job.
fn of_machine() -> Zone {
    let name = TimeZone::system().iana_name().map(str::to_owned);
    name.and_then(|name| Zone::named(&name).ok()).unwrap_or(Zone::UTC)
}

/// Asks the leader to resign, and waits until it has resigned.
pub(crate) async fn resign(args: &ResignArgs, config: &Config) -> Result<u8, Failure> {
    let group = failures::group(args.group.as_deref(), config)?;
    let by = operator::of(&args.operator, config);
    let order = Order { group, json: args.json, wait: args.wait, by };
    let action = Action::Resign { term: args.term.map(FencingToken::new) };
    carry_out(async |_| Ok(action), &order, config).await
}

/// Makes a message that was given up count as new.
pub(crate) async fn reset(args: &ClaimsResetArgs, config: &Config) -> Result<u8, Failure> {
    let by = operator::of(&args.operator, config);
    let order = Order { group: "", json: args.json, wait: Duration::ZERO, by };
    let action = Action::Reset { set: args.set.clone(), id: args.id.clone() };
    carry_out(async |_| Ok(action), &order, config).await
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
    fn new(args: &'a WaitArgs, config: &'a Config) -> Result<Self, Failure> {
        let group = failures::group(args.group.group.as_deref(), config)?;
        let by = Operator::named(&operator::name(args.by.as_deref(), config), None);
        Ok(Self { group, json: args.group.json, wait: args.wait, by })
    }
}

/// Carries out an action, and shows its result. The action may depend on the time of the quorum's clock, and on what the
/// nodes have of a job.
async fn carry_out(
    action: impl AsyncFnOnce(&Quorum) -> Result<Action, Failure>,
    order: &Order<'_>,
    config: &Config,
) -> Result<u8, Failure> {
    // The command first only reads. If the list of nodes is mistyped, it finds no target, and ends before it has
    // written markers to these nodes.
    let looking = connect::only_looking(config)?;
    connect::meet(&looking).await;
    let asked = action(&looking).await;
    let checked = match &asked {
        Ok(action) => action.check(&looking, order.group).await,
        Err(_) => Ok(()),
    };
    looking.close().await;
    let action = asked?;
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
