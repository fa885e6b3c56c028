//! The failures of commands about jobs and messages, with their exit statuses.

use crate::{
    config::Config,
    connect,
    exit::{CONFIG, CONFLICT, FAILURE, Failure, NO_QUORUM, NOT_FOUND},
};
use quorate::{AcquireError, claim::ClaimError, scheduler::JobsError};

pub(crate) fn group<'a>(named: Option<&'a str>, config: &'a Config) -> Result<&'a str, Failure> {
    let named = named.or(config.group.as_deref());
    named.ok_or_else(|| {
        Failure::new(CONFIG, "no group; name it with --group, or in the file as group = \"billing\"")
    })
}

/// Converts the error of a read or a request to a failure with its exit status.
pub(crate) fn of_jobs(error: &JobsError) -> Failure {
    match error {
        JobsError::NoMajority(report) => connect::no_quorum("cannot read the state of the group", report),
        _ => Failure::new(jobs_code(error), error),
    }
}

fn jobs_code(error: &JobsError) -> u8 {
    match error {
        JobsError::Group(_) | JobsError::Input { .. } => CONFIG,
        JobsError::NoMajority(_) | JobsError::NotPosted { .. } | JobsError::PerhapsPosted { .. } => NO_QUORUM,
        JobsError::UnknownJob { .. } | JobsError::Refused { .. } | JobsError::Schedule { .. } => NOT_FOUND,
        JobsError::Unanswered { .. } | JobsError::AnswerUnread { .. } => CONFLICT,
        _ => FAILURE,
    }
}

/// Returns the failure of a read or a reset, with its exit status.
pub(crate) fn of_claims(error: &ClaimError) -> Failure {
    match error {
        ClaimError::NoMajority(report) => connect::no_quorum(report.failed(), report),
        ClaimError::Acquire(
            AcquireError::Unreachable { report, .. } | AcquireError::Untrusted { report, .. },
        ) => connect::no_quorum(report.failed(), report),
        _ => Failure::new(claims_code(error), error),
    }
}

fn claims_code(error: &ClaimError) -> u8 {
    match error {
        ClaimError::NoMajority(_) => NO_QUORUM,
        ClaimError::InProgress { .. } | ClaimError::TakenOver { .. } => CONFLICT,
        ClaimError::Acquire(AcquireError::Setting(_)) => CONFIG,
        ClaimError::Acquire(_) => NO_QUORUM,
        _ => FAILURE,
    }
}
