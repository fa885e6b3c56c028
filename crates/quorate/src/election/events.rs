use crate::node::FencingToken;
use std::sync::{Mutex, PoisonError};
use tokio::sync::mpsc;

/// An event of a candidate. Events are delivered in the order in which they happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ElectionEvent {
    /// The candidate was elected, for this term.
    Elected(FencingToken),
    /// An extension failed to reach a majority, or the health check failed. The worker tries to extend the
    /// lease again.
    AtRisk(FencingToken),
    /// An extension reached a majority again.
    Recovered(FencingToken),
    /// The work of this term has been asked to stop.
    StepDown(FencingToken),
    /// An observer has asked the leader to resign, and the leader is resigning.
    AskedToResign(FencingToken),
    /// The leader resigned in favour of a named worker. `Resigned` follows.
    HandedOver {
        /// The term that ends.
        term: FencingToken,
        /// True if a majority of the nodes reserves the lease for that worker. Otherwise any candidate may
        /// lead next.
        reserved: bool,
    },
    /// The work of this term returned an error or panicked. `Resigned` follows.
    WorkFailed(FencingToken),
    /// The leader resigned: its work ended first, then its lease.
    Resigned(FencingToken),
    /// The term ended because the lease's validity ended. Work that still ran has been dropped.
    Lost(FencingToken),
}

/// Sends each event to every subscriber.
#[derive(Debug, Default)]
pub(super) struct EventBroadcast(Mutex<Vec<mpsc::UnboundedSender<ElectionEvent>>>);

impl EventBroadcast {
    pub(super) fn join(&self) -> mpsc::UnboundedReceiver<ElectionEvent> {
        let (sender, events) = mpsc::unbounded_channel();
        let mut subscribers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Closed subscribers are removed here too. If there is no event for a long time, they would otherwise
        // accumulate.
        subscribers.retain(|one| !one.is_closed());
        subscribers.push(sender);
        drop(subscribers);
        events
    }

    pub(super) fn emit(&self, event: ElectionEvent) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|one| one.send(event).is_ok());
    }
}
