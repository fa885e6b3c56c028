use quorate::claim::ClaimState;
use std::{fmt, sync::Arc};

/// The state of a message, read by [`Cluster::message`](crate::Cluster::message).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageState {
    id: Arc<str>,
    state: ClaimState,
}

impl MessageState {
    pub(crate) fn new(id: &str, state: ClaimState) -> Self {
        Self { id: id.into(), state }
    }

    /// Returns the state, with its details.
    pub fn state(&self) -> &ClaimState {
        &self.state
    }

    /// Asserts that the message is done, with this result.
    ///
    /// # Panics
    /// If it is not.
    #[track_caller]
    pub fn assert_done(&self, result: &str) {
        let done = matches!(&self.state, ClaimState::Done(done) if &*done.result == result);
        assert!(done, "expected that {self} is done with {result:?}");
    }

    /// Asserts that this worker holds a claim on the message.
    ///
    /// # Panics
    /// If it does not.
    #[track_caller]
    pub fn assert_claimed_by(&self, worker: &str) {
        let claimed =
            matches!(&self.state, ClaimState::Claimed { by: Some(by), .. } if by.worker() == worker);
        assert!(claimed, "expected that {self} is claimed by {worker:?}");
    }

    /// Asserts that no worker holds the message, and that it is neither done nor dead-lettered.
    ///
    /// # Panics
    /// If it is not free.
    #[track_caller]
    pub fn assert_free(&self) {
        assert!(matches!(self.state, ClaimState::Free { .. }), "expected that {self} is free");
    }

    /// Asserts that the message was given up.
    ///
    /// # Panics
    /// If it was not.
    #[track_caller]
    pub fn assert_dead_lettered(&self) {
        let given_up = matches!(self.state, ClaimState::DeadLettered(_));
        assert!(given_up, "expected that {self} is dead-lettered");
    }
}

impl fmt::Display for MessageState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the message {:?}, whose state is {:?},", self.id, self.state)
    }
}
