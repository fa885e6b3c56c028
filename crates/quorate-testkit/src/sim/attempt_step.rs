//! The steps of the consumers of messages that have an attempt limit and payload fingerprints.

use quorate::node::Resource;
use std::time::Duration;

/// The number of attempts after which these messages are given up.
pub const ATTEMPT_LIMIT: u32 = 3;

/// The set of claims to which these messages belong.
pub const LIMITED_SET: &str = "limited";

/// A step of a consumer with a message that has an attempt limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttemptStep<'a> {
    /// The consumer's worker.
    pub worker: &'a str,
    /// The claim on the message.
    pub resource: &'a Resource,
    /// The step.
    pub kind: AttemptStepKind<'a>,
}

/// The kind of an [`AttemptStep`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptStepKind<'a> {
    /// An attempt has begun.
    Began {
        /// The number of the attempt, as the library reports it.
        attempt: u32,
        /// The fingerprint of the payload that the consumer gave.
        payload: &'a str,
        /// True if the worker considers its claim valid, and its boot clock has not stood still.
        valid: bool,
    },
    /// The consumer is about to cancel a valid claim, whose handler has not started.
    Cancelled {
        /// The number of the attempt.
        attempt: u32,
        /// True if the claim was made long after the faults had ended, so that the withdrawal of the count reaches
        /// every node that has counted the attempt.
        steady: bool,
    },
    /// The dead-letter hook is about to run.
    GivenUp {
        /// The number of attempts that had begun, as the library reports it.
        attempts: u32,
        /// True if the worker considers its claim valid, and its boot clock has not stood still.
        valid: bool,
    },
    /// The dead-letter hook is about to return successfully.
    HandedOver {
        /// The token of the claim under which the hook runs.
        token: u64,
        /// The hook's result.
        note: &'a str,
    },
    /// The dead-letter hook is about to fail.
    HookFailed,
    /// The consumer learns that the message is given up.
    ToldDead {
        /// The number of attempts that had begun, as the library reports it.
        attempts: u32,
        /// The hook's result, if the dead letter is recorded.
        note: Option<&'a str>,
    },
    /// The library refuses the message, because of another payload under the same id.
    OtherPayload {
        /// The fingerprint of the payload that the consumer gave.
        given: &'a str,
        /// The fingerprint that the nodes store, as the library reports it.
        stored: &'a str,
    },
    /// Every node has confirmed that it has reset the message.
    Reset {
        /// The true time at which the consumer began the reset.
        began: Duration,
    },
}

/// Returns `true` if `resource` is the claim on a message with an attempt limit.
pub(super) fn is_limited(resource: &Resource) -> bool {
    let id = resource.key().strip_prefix("claim/").and_then(|key| key.strip_prefix(LIMITED_SET));
    id.is_some_and(|id| id.starts_with('/'))
}
