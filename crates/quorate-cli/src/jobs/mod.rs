//! The command `quorate jobs`, which shows and controls the jobs of a group from any machine.

mod common;
mod history;
mod list;
mod logs;
mod next;
mod run_state;
mod stored;
mod why;

use crate::{
    args::JobsCommand,
    config::{Config, Environment},
    exit::Failure,
    operate, show,
};
pub(crate) use common::tone;
pub(crate) use history::Page as HistoryPage;
pub(crate) use list::Page as ListPage;
pub(crate) use list::{freeze_for_people, overview, overview_of_jobs};
pub(crate) use next::Page as NextPage;
pub(crate) use next::Upcoming;
use quorate::{env::WallTime, internals::JobAction, scheduler::Jobs};

/// Runs one of the commands, and returns the exit status.
pub(crate) async fn jobs(command: &JobsCommand) -> Result<u8, Failure> {
    let (flags, environment) = (command.group().nodes.flags(), Environment::process());
    if let JobsCommand::Next(args) = command
        && let Some(code) = next::from_file(args, &flags, &environment)?
    {
        return Ok(code);
    }
    let config = Config::load(&flags, &environment)?;
    match command {
        JobsCommand::List(args) => list::list(args, &config).await,
        JobsCommand::Next(args) => next::from_ledger(args, &config).await,
        JobsCommand::Show(args) => list::show(args, &config).await,
        JobsCommand::History(args) => history::history(args, &config).await,
        JobsCommand::Logs(args) => logs::logs(args, &config).await,
        JobsCommand::Why(args) => why::why(args, &config).await,
        JobsCommand::Trigger(args) => stored::trigger(args, &config).await,
        JobsCommand::Put(args) => stored::put(args, &config).await,
        JobsCommand::Edit(args) => stored::edit(args, &config).await,
        JobsCommand::At(args) => stored::at(args, &config).await,
        JobsCommand::Remove(args) => {
            let remove = JobAction::Remove { job: args.job.as_str().into(), expect: None };
            operate::request(remove, &args.wait, &config).await
        }
        JobsCommand::Pause(args) => operate::pause(args, &config).await,
        JobsCommand::Resume(args) => {
            let job = args.job.as_str().into();
            operate::request(JobAction::Resume { job }, &args.wait, &config).await
        }
        JobsCommand::Backfill(args) => operate::backfill(args, &config).await,
        JobsCommand::Cancel(args) => operate::cancel(args, &config).await,
    }
}

/// A question about the jobs of a group.
#[derive(Debug)]
pub(crate) enum Query<'a> {
    /// All jobs.
    List,
    /// One job.
    Show(&'a str),
    /// The newest entries of a job's history, at most this number of them.
    History(&'a str, u32),
    /// The next ticks of a job.
    Next(Upcoming<'a>),
    /// The reason why a job did or did not run at a time, or at its latest tick.
    Why(&'a str, Option<WallTime>),
}

/// Returns the JSON document that a command prints with `--json`.
pub(crate) async fn json(jobs: &Jobs, query: &Query<'_>) -> Result<String, Failure> {
    match query {
        Query::List => show::json(&list::all(jobs).await?),
        Query::Show(job) => show::json(&list::one(jobs, job).await?),
        Query::History(job, limit) => show::json(&history::of_job(jobs, job, *limit).await?),
        Query::Why(job, at) => show::json(&why::of_job(jobs, job, *at).await?.0),
        Query::Next(upcoming) => show::json(&next::registered(jobs, upcoming).await?.0),
    }
}
