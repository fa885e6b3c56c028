//! The records of messages that have ended: done or given up.

use crate::{
    env::WallTime,
    node::{DoneRecord, FencingToken},
};
use std::sync::Arc;

/// The record of a message that has been handled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// The handler's result.
    pub result: Arc<str>,
    /// The time at which the message was completed, by the clock of the worker that completed it.
    pub at: WallTime,
    /// The token of the claim under which the message was completed.
    pub token: FencingToken,
}

/// The record of a message that has been given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLettered {
    /// The number of attempts that had begun.
    pub attempts: u32,
    /// The time at which the dead-letter hook handled the message. `None` if no hook has handled it yet, so
    /// that the next claim calls the hook.
    pub at: Option<WallTime>,
    /// The hook's result.
    pub note: Arc<str>,
}

impl Done {
    pub(super) fn of(record: &DoneRecord) -> Self {
        let at = WallTime::from_micros(record.at);
        Self { result: Arc::clone(&record.result), at, token: record.token }
    }
}

impl DeadLettered {
    /// Returns the dead letter in `record`, or `None` if the record is that of a completed message.
    pub(super) fn of(record: &DoneRecord) -> Option<Self> {
        let at = Some(WallTime::from_micros(record.at));
        Some(Self { attempts: record.dead_lettered?, at, note: Arc::clone(&record.result) })
    }
}
