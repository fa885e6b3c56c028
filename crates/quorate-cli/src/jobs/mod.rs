//! `quorate jobs`: shows the jobs of a group and controls them, from any machine.

mod history;
mod list;
mod next;
mod page;
mod request;
mod why;

use crate::{
    args::{GroupArgs, JobsCommand},
    config::{Config, Environment},
    connect::{self, PATIENCE},
    exit::{CONFIG, CONFLICT, FAILURE, Failure, NO_QUORUM, NOT_FOUND},
    show,
};
use quorate::{
    quorum::Quorum,
    scheduler::{Jobs, JobsError},
};
use serde::Serialize;

/// Runs one of the commands, and returns the exit status.
pub(crate) async fn jobs(command: &JobsCommand, environment: &Environment<'_>) -> Result<u8, Failure> {
    let flags = command.group().nodes.flags();
    if let JobsCommand::Next(args) = command
        && let Some(code) = next::from_file(args, &flags, environment)?
    {
        return Ok(code);
    }
    let config = Config::load(&flags, environment)?;
    match command {
        JobsCommand::List(args) => list::list(args, &config).await,
        JobsCommand::Next(args) => next::from_ledger(args, &config).await,
        JobsCommand::Show(args) => list::show(args, &config).await,
        JobsCommand::History(args) => history::history(args, &config).await,
        JobsCommand::Why(args) => why::why(args, &config).await,
        JobsCommand::Trigger(args) => request::trigger(args, &config, environment).await,
        JobsCommand::Pause(args) => request::pause(args, &config, environment).await,
        JobsCommand::Resume(args) => request::resume(args, &config, environment).await,
        JobsCommand::Backfill(args) => request::backfill(args, &config, environment).await,
        JobsCommand::Cancel(args) => request::cancel(args, &config, environment).await,
    }
}

/// Returns the group of the jobs.
fn group<'a>(args: &'a GroupArgs, config: &'a Config) -> Result<&'a str, Failure> {
    let named = args.group.as_deref().or(config.group.as_deref());
    named.ok_or_else(|| {
        Failure::new(CONFIG, "no group; name it with --group, or in the file as group = \"billing\"")
    })
}

/// Connects without writing anything to the nodes.
pub(crate) async fn look(args: &GroupArgs, config: &Config) -> Result<(Quorum, Jobs), Failure> {
    let group = group(args, config)?;
    let quorum = connect::only_looking(config)?;
    let jobs =
        Jobs::new(&quorum, group).map_err(|error| Failure::new(CONFIG, format!("--group: {error}")))?;
    quorum.met(PATIENCE).await;
    Ok((quorum, jobs))
}

/// Returns the failure of a read or a request.
pub(crate) fn failure(error: &JobsError) -> Failure {
    match error {
        JobsError::NoMajority(report) => connect::no_quorum("cannot read the jobs of the group", report),
        _ => Failure::new(code(error), error),
    }
}

fn code(error: &JobsError) -> u8 {
    match error {
        JobsError::Group(_) | JobsError::Input { .. } => CONFIG,
        JobsError::NoMajority(_) | JobsError::NotPosted { .. } | JobsError::PerhapsPosted { .. } => NO_QUORUM,
        JobsError::UnknownJob { .. } | JobsError::Refused { .. } | JobsError::Schedule { .. } => NOT_FOUND,
        JobsError::Unanswered { .. } | JobsError::AnswerUnread { .. } => CONFLICT,
        _ => FAILURE,
    }
}

/// Prints `page` as one JSON document, or prints the text for people.
pub(crate) fn print(json: bool, page: &impl Serialize, text: impl FnOnce() -> String) -> Result<(), Failure> {
    show::print(&if json { show::json(page)? } else { text() })
}
