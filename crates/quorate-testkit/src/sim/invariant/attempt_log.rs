//! The attempts on messages that have an attempt limit, as the servers have counted them.

use super::Event;
use crate::sim::{AttemptStep, AttemptStepKind, is_limited};
use quorate::node::{Owner, Reply, Request, Resource};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// All attempts that a server has ever counted, for each message.
#[derive(Debug, Default)]
pub(super) struct AttemptLog {
    messages: BTreeMap<Resource, Message>,
}

/// The attempts on one message.
#[derive(Debug, Default)]
pub(super) struct Message {
    pub(super) attempts: Vec<Attempt>,
    /// True if a server has come back with a snapshot since the last reset. It may have counts that were withdrawn
    /// or reset.
    pub(super) restored: bool,
    /// The true time at which the last reset was confirmed.
    reset_at: Option<Duration>,
    /// The true time at which a server first granted each claim.
    granted: BTreeMap<Owner, Duration>,
    /// The fingerprints in the done records that a server has stored.
    pub(super) recorded: BTreeSet<Arc<str>>,
}

/// One attempt, which a server has counted.
#[derive(Debug)]
pub(super) struct Attempt {
    owner: Owner,
    pub(super) number: u32,
    pub(super) payload: Option<Arc<str>>,
    /// The true time at which a server counted the attempt last.
    counted_at: Duration,
    /// The servers that have ever counted the attempt.
    pub(super) ever: BTreeSet<String>,
    /// The servers that have counted the attempt, without those on which the count was withdrawn since. A server that
    /// forgot still counts, because it may come back with a snapshot.
    pub(super) counted: BTreeSet<String>,
    /// The servers that have counted the attempt, and have neither forgotten, reset nor withdrawn it since.
    pub(super) remembered: BTreeSet<String>,
    pub(super) began: bool,
    /// True if a server has reported this count with a grant.
    pub(super) seen: bool,
    /// True if the servers must withdraw the count before they release the claim.
    pub(super) is_withdrawn: bool,
    /// True if the claim was cancelled, and a server may keep the count: the claim was made during or soon after the
    /// faults.
    pub(super) may_stay: bool,
    /// True if the message was reset since the attempt was counted.
    pub(super) is_reset: bool,
    /// True if the attempt was counted while a reset was under way, or its worker was granted the claim by then. A node that
    /// had not carried the reset out may have reported the attempts before.
    pub(super) during_reset: bool,
}

impl AttemptLog {
    /// Handles an event at the true time `now`.
    pub(super) fn see(&mut self, now: Duration, event: &Event<'_>) {
        match event {
            Event::Forgot { node } => self.all_attempts().for_each(|attempt| {
                attempt.remembered.remove(*node);
            }),
            Event::Restored { .. } => self.messages.values_mut().for_each(|message| message.restored = true),
            Event::Ran {
                node,
                request: Request::Count { resource, owner, attempts, payload, withdraw, .. },
                reply: Reply::Counted,
            } if is_limited(resource) => {
                let message = self.messages.entry(resource.clone()).or_default();
                match withdraw {
                    true => message.withdraw(node, *attempts),
                    false => message.count(now, node, owner, *attempts, payload.as_ref()),
                }
            }
            Event::Ran {
                node,
                request: Request::Acquire { resource, owner, .. },
                reply: Reply::Granted { begun, .. },
            } if is_limited(resource) => {
                let message = self.messages.entry(resource.clone()).or_default();
                message.granted.entry(owner.clone()).or_insert(now);
                let Some(begun) = begun else { return };
                let counted = message.attempts.iter_mut().filter(|attempt| attempt.counted.contains(*node));
                counted
                    .filter(|attempt| attempt.number == begun.attempts)
                    .for_each(|attempt| attempt.seen = true);
            }
            Event::Ran {
                node,
                request: Request::ResetAttempts { resource, .. },
                reply: Reply::AttemptsReset,
            } => {
                let Some(message) = self.messages.get_mut(resource) else { return };
                message.attempts.iter_mut().for_each(|attempt| {
                    attempt.remembered.remove(*node);
                });
            }
            Event::Ran {
                request: Request::Complete { resource, record, .. },
                reply: Reply::Completed,
                ..
            } => {
                let Some(message) = self.messages.get_mut(resource) else { return };
                message.recorded.extend(record.payload.clone());
            }
            Event::Attempt(AttemptStep { resource, kind: AttemptStepKind::Reset { began }, .. }) => {
                let Some(message) = self.messages.get_mut(*resource) else { return };
                (message.restored, message.reset_at) = (false, Some(now));
                for attempt in &mut message.attempts {
                    attempt.is_reset |= attempt.counted_at < *began;
                    attempt.during_reset |= attempt.counted_at >= *began;
                }
            }
            _ => {}
        }
    }

    pub(super) fn message(&mut self, resource: &Resource) -> &mut Message {
        self.messages.entry(resource.clone()).or_default()
    }

    /// Returns the attempt whose claim a server releases with this request, if the server has counted it.
    pub(super) fn released(&self, node: &str, resource: &Resource, owner: &Owner) -> Option<&Attempt> {
        let mut attempts = self.messages.get(resource)?.attempts.iter();
        attempts.find(|attempt| attempt.owner == *owner && attempt.counted.contains(node))
    }

    fn all_attempts(&mut self) -> impl Iterator<Item = &mut Attempt> {
        self.messages.values_mut().flat_map(|message| &mut message.attempts)
    }
}

impl Message {
    fn count(&mut self, now: Duration, node: &str, owner: &Owner, number: u32, payload: Option<&Arc<str>>) {
        let at = self.attempts.iter().position(|attempt| attempt.owner == *owner && attempt.number == number);
        let at = at.unwrap_or_else(|| {
            self.attempts.push(Attempt {
                owner: owner.clone(),
                number,
                payload: payload.cloned(),
                counted_at: now,
                ever: BTreeSet::new(),
                counted: BTreeSet::new(),
                remembered: BTreeSet::new(),
                began: false,
                seen: false,
                is_withdrawn: false,
                may_stay: false,
                is_reset: false,
                during_reset: self
                    .granted
                    .get(owner)
                    .zip(self.reset_at)
                    .is_some_and(|(granted, at)| *granted < at),
            });
            self.attempts.len() - 1
        });
        let attempt = &mut self.attempts[at];
        attempt.counted_at = now;
        // A request that was under way during a reset can store the count again.
        attempt.is_reset = false;
        for nodes in [&mut attempt.ever, &mut attempt.counted, &mut attempt.remembered] {
            nodes.insert(node.to_owned());
        }
    }

    fn withdraw(&mut self, node: &str, number: u32) {
        for attempt in self.attempts.iter_mut().filter(|attempt| attempt.number == number) {
            attempt.counted.remove(node);
            attempt.remembered.remove(node);
        }
    }

    /// Returns the attempt of `worker` with this number that has not begun and that most servers have counted.
    pub(super) fn counted(&mut self, worker: &str, number: u32) -> Option<&mut Attempt> {
        let ours = self
            .attempts
            .iter_mut()
            .filter(|attempt| !attempt.began && attempt.number == number && attempt.owner.worker() == worker);
        ours.max_by_key(|attempt| attempt.ever.len())
    }
}
