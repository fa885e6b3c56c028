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

impl ElectionEvent {
    /// The names of all events, in metrics.
    pub(super) const NAMES: [&'static str; 9] = [
        "elected",
        "at-risk",
        "recovered",
        "step-down",
        "asked-to-resign",
        "handed-over",
        "work-failed",
        "resigned",
        "lost",
    ];

    /// Returns the name that metrics use.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Elected(_) => "elected",
            Self::AtRisk(_) => "at-risk",
            Self::Recovered(_) => "recovered",
            Self::StepDown(_) => "step-down",
            Self::AskedToResign(_) => "asked-to-resign",
            Self::HandedOver { .. } => "handed-over",
            Self::WorkFailed(_) => "work-failed",
            Self::Resigned(_) => "resigned",
            Self::Lost(_) => "lost",
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_has_its_own_name_in_the_list() {
        let term = FencingToken::new(1);
        let events = [
            ElectionEvent::Elected(term),
            ElectionEvent::AtRisk(term),
            ElectionEvent::Recovered(term),
            ElectionEvent::StepDown(term),
            ElectionEvent::AskedToResign(term),
            ElectionEvent::HandedOver { term, reserved: true },
            ElectionEvent::WorkFailed(term),
            ElectionEvent::Resigned(term),
            ElectionEvent::Lost(term),
        ];
        assert_eq!(events.map(ElectionEvent::as_str), ElectionEvent::NAMES);
    }
}
