//! The operator of a command, and the entries of the operations that only commands have in the audit list.

use crate::{
    args::OperatorArgs,
    config::{Config, Environment},
    connect::{self, PATIENCE},
    log,
};
use nix::unistd::User;
use quorate::{plain::plain, quorum::Quorum};
use quorate_operator::{Entry, Operator};

/// The longest name of an operator, in bytes.
const NAME_MAX: usize = 128;

/// Returns the operator of a command: the name of `--by`, or USER@HOST.
pub(crate) fn of(args: &OperatorArgs, environment: &Environment<'_>) -> Operator {
    Operator::named(&name(args.by.as_deref(), environment), args.reason.as_deref())
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
pub(crate) fn name(by: Option<&str>, environment: &Environment<'_>) -> String {
    let named = || ["USER", "LOGNAME"].into_iter().find_map(|name| environment.env.get(name).cloned());
    by.map_or_else(
        || format!("{}@{}", named().unwrap_or_else(user), environment.host),
        |by| plain(by, NAME_MAX),
    )
}

/// Returns the name of the user of this process, or its number if it has no name.
fn user() -> String {
    let uid = nix::unistd::geteuid();
    match User::from_uid(uid) {
        Ok(Some(user)) => user.name,
        Ok(None) | Err(_) => format!("uid {uid}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{collections::BTreeMap, io};

    #[test]
    fn an_operator_is_named_by_the_flag_the_environment_or_the_user_of_the_process() {
        let read = |_: &std::path::Path| Err(io::ErrorKind::NotFound.into());
        let named = |by: Option<&str>, user: Option<&str>| {
            let env: BTreeMap<_, _> =
                user.map(|user| ("USER".to_owned(), user.to_owned())).into_iter().collect();
            name(by, &Environment { env, read: &read, is_own: &|_| true, host: "oak".to_owned(), pid: 7 })
        };
        assert_eq!(named(Some("ann"), Some("bob")), "ann");
        assert_eq!(named(None, Some("bob")), "bob@oak");
        let of_process = named(None, None);
        assert!(of_process.ends_with("@oak") && !of_process.starts_with("unknown"), "{of_process}");
        assert!(of_process.len() > "@oak".len(), "{of_process}");
    }
}
