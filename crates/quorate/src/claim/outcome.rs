use super::Claim;
use crate::{
    env::WallTime,
    node::{DoneRecord, FencingToken, Owner},
};
use std::{sync::Arc, time::Duration};

/// What came of a claim.
#[derive(Debug)]
#[non_exhaustive]
pub enum ClaimOutcome {
    /// The message is ours to handle.
    Claimed(Claim),
    /// Someone else is handling it.
    InProgress {
        /// When it may be free, by the nodes' word.
        retry_after: Option<Duration>,
        /// Who, where a majority names the same one.
        holder: Option<Owner>,
    },
    /// It has been handled.
    Done(Done),
    /// As many attempts as may have begun, and none has completed it: it is given up.
    DeadLettered(DeadLettered),
}

/// That a message has been handled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// What came of it.
    pub result: Arc<str>,
    /// When, by the clock of the worker that completed it.
    pub at: WallTime,
    /// The token of the claim that completed it.
    pub token: FencingToken,
}

/// That a message has been given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLettered {
    /// How many attempts had begun.
    pub attempts: u32,
    /// When it was handed to the dead-letter hook, which took it. `None` while none has: it will be handed over again.
    pub at: Option<WallTime>,
    /// What the hook left with it.
    pub note: Arc<str>,
}

/// What came of [`Claims::process`](super::Claims::process).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Processed {
    /// Handled here, and recorded.
    Handled,
    /// Someone else is handling it.
    InProgress {
        /// When it may be free, by the nodes' word.
        retry_after: Option<Duration>,
    },
    /// It had been handled.
    AlreadyDone(Done),
    /// It has been given up.
    DeadLettered(DeadLettered),
}

/// What came of [`Claims::once`](super::Claims::once): the same for whoever asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Once {
    /// What the handler said, wherever it ran.
    pub result: Arc<str>,
    /// When it was recorded.
    pub at: WallTime,
    /// Whether it ran here, for this call.
    pub first: bool,
}

impl Done {
    pub(super) fn of(record: &DoneRecord) -> Self {
        let at = WallTime::from_micros(record.at);
        Self { result: Arc::clone(&record.result), at, token: record.token }
    }
}

impl DeadLettered {
    /// Of a record that says so.
    pub(super) fn of(record: &DoneRecord) -> Option<Self> {
        let at = Some(WallTime::from_micros(record.at));
        Some(Self { attempts: record.poisoned?, at, note: Arc::clone(&record.result) })
    }
}

/// What a handler may return: nothing, or a small text to be kept with the done record.
pub trait ClaimResult {
    /// The text.
    fn text(&self) -> &str;
}

impl ClaimResult for () {
    fn text(&self) -> &str {
        ""
    }
}

impl ClaimResult for String {
    fn text(&self) -> &str {
        self
    }
}

impl ClaimResult for &str {
    fn text(&self) -> &str {
        self
    }
}

impl ClaimResult for Arc<str> {
    fn text(&self) -> &str {
        self
    }
}
