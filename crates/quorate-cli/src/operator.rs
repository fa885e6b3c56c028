//! The operator of a command, and the entries of the operations that only commands have in the audit list.

use crate::{
    args::OperatorArgs,
    config::Config,
    connect::{self, PATIENCE},
    log,
};
use quorate::{plain::plain, quorum::Quorum};
use quorate_operator::{Entry, Operator};

/// The longest name of an operator, in bytes.
const NAME_MAX: usize = 128;

/// Returns the operator of a command: the name of `--by`, or USER@HOST.
pub(crate) fn of(args: &OperatorArgs, config: &Config) -> Operator {
    Operator::named(&name(args.by.as_deref(), config), args.reason.as_deref())
}

/// Adds an entry to the audit list. If too few nodes store it, says so: the operation itself is done.
pub(crate) async fn note(operator: &Operator, quorum: &Quorum, entry: &Entry<'_>) {
    if let Err(lacks) = operator.note(quorum, entry).await {
        log::say(&format!("quorate: {lacks}"));
    }
}

/// Adds an entry to the audit list, over new connections.
pub(crate) async fn note_anew(operator: &Operator, config: &Config, entry: &Entry<'_>) {
    match connect::quorum(config, config.settings.clone()) {
        Ok(quorum) => {
            // Without a quorum the entry cannot be stored, which `note` reports.
            let _ = quorum.ready(PATIENCE).await;
            note(operator, &quorum, entry).await;
            quorum.close().await;
        }
        Err(failure) => log::say(&format!("quorate: the audit list lacks this operation: {failure}")),
    }
}

/// Returns the name of the requester: `by`, or USER@HOST. The leader logs it, and `jobs show` names it for a paused
/// job.
pub(crate) fn name(by: Option<&str>, config: &Config) -> String {
    by.map_or_else(|| config.person.clone(), |by| plain(by, NAME_MAX))
}
