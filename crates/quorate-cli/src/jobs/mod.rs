//! `quorate jobs`: jobs seen and operated from outside.

mod ask;
mod history;
mod list;
mod next;
mod page;
mod table;

use crate::{
    args::{GroupArgs, JobsCommand},
    config::{Config, Environment},
    connect,
    exit::{CONFIG, CONFLICT, FAILURE, Failure, NO_QUORUM, NOTHING},
    show,
    status::PATIENCE,
};
use quorate::{
    quorum::{Quorum, QuorumConfig},
    schedule::{Jobs, JobsError},
};
use serde::Serialize;

/// Does what is asked, and gives the exit status.
pub(crate) async fn jobs(command: &JobsCommand, around: &Environment<'_>) -> Result<u8, Failure> {
    let flags = command.group().nodes.flags();
    if let JobsCommand::Next(args) = command
        && let Some(code) = next::from_file(args, &flags, around)?
    {
        return Ok(code);
    }
    let config = Config::load(&flags, around)?;
    match command {
        JobsCommand::List(args) => list::list(args, &config).await,
        JobsCommand::Next(args) => next::from_ledger(args, &config).await,
        JobsCommand::Show(args) => list::show(args, &config).await,
        JobsCommand::History(args) => history::history(args, &config).await,
        JobsCommand::Trigger(args) => ask::trigger(args, &config, around).await,
        JobsCommand::Pause(args) => ask::pause(args, &config, around).await,
        JobsCommand::Resume(args) => ask::resume(args, &config, around).await,
        JobsCommand::Backfill(args) => ask::backfill(args, &config, around).await,
        JobsCommand::Cancel(args) => ask::cancel(args, &config, around).await,
    }
}

/// Whose jobs are meant.
fn group<'a>(args: &'a GroupArgs, config: &'a Config) -> Result<&'a str, Failure> {
    let named = args.group.as_deref().or(config.group.as_deref());
    named.ok_or_else(|| {
        Failure::new(CONFIG, "no group; name it with --group, or in the file as group = \"billing\"")
    })
}

/// A worker that only looks: a mistyped list of nodes must not be marked as a cluster.
async fn looking(args: &GroupArgs, config: &Config) -> Result<(Quorum, Jobs), Failure> {
    let group = group(args, config)?;
    let quorum = connect::quorum(config, QuorumConfig { only_looks: true, ..config.setup.clone() })?;
    let jobs =
        Jobs::new(&quorum, group).map_err(|error| Failure::new(CONFIG, format!("--group: {error}")))?;
    quorum.met(PATIENCE).await;
    Ok((quorum, jobs))
}

/// Why a look or a request came to nothing.
fn failure(quorum: &Quorum, error: &JobsError) -> Failure {
    match error {
        JobsError::NoMajority(_) => Failure::new(NO_QUORUM, connect::explain(&quorum.nodes())),
        _ => Failure::new(code(error), error),
    }
}

fn code(error: &JobsError) -> u8 {
    match error {
        JobsError::Group(_) | JobsError::Input { .. } => CONFIG,
        JobsError::NoMajority(_) | JobsError::NotPosted { .. } | JobsError::PerhapsPosted { .. } => NO_QUORUM,
        JobsError::UnknownJob { .. } | JobsError::Refused { .. } | JobsError::Schedule { .. } => NOTHING,
        JobsError::Unanswered { .. } | JobsError::AnswerUnread { .. } => CONFLICT,
        _ => FAILURE,
    }
}

/// Prints one JSON document, or the text for people.
fn print(json: bool, page: &impl Serialize, text: impl FnOnce() -> String) -> Result<(), Failure> {
    let text = if json { show::json(page)? } else { text() };
    show::print(&text);
    Ok(())
}
