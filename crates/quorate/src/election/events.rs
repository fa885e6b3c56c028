use crate::node::FencingToken;
use std::sync::{Mutex, PoisonError};
use tokio::sync::mpsc;

/// What happens to a candidate, in the order in which it happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ElectionEvent {
    /// It leads, for this term.
    Elected(FencingToken),
    /// An extension failed to reach a majority; it is being retried.
    AtRisk(FencingToken),
    /// An extension reached a majority again.
    Recovered(FencingToken),
    /// The work of this term has been told to stop.
    StepDown(FencingToken),
    /// Somebody outside has asked the leader to resign, and it does.
    AskedToResign(FencingToken),
    /// The lease of this term was handed to the worker that was named. `Resigned` follows.
    HandedOver {
        /// Which.
        term: FencingToken,
        /// Whether a majority of nodes keeps it for the heir; if not, whoever comes first leads.
        reserved: bool,
    },
    /// The work of this term returned an error or panicked. `Resigned` follows.
    WorkFailed(FencingToken),
    /// The term ended by resignation: its work had ended before.
    Resigned(FencingToken),
    /// The term ended because validity did; what still ran has been dropped.
    Lost(FencingToken),
}

/// The events of one candidate from the subscription on. Ends with the election.
#[derive(Debug)]
pub struct ElectionEvents(mpsc::UnboundedReceiver<ElectionEvent>);

impl ElectionEvents {
    /// The next event; `None` once the election has gone.
    ///
    /// # Cancel safety
    /// Safe: no event is lost.
    pub async fn next(&mut self) -> Option<ElectionEvent> {
        self.0.recv().await
    }
}

/// Who hears of events.
#[derive(Debug, Default)]
pub(super) struct EventBroadcast(Mutex<Vec<mpsc::UnboundedSender<ElectionEvent>>>);

impl EventBroadcast {
    pub(super) fn join(&self) -> ElectionEvents {
        let (tell, events) = mpsc::unbounded_channel();
        let mut listeners = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // An election may be watched often, and tell nothing for long.
        listeners.retain(|one| !one.is_closed());
        listeners.push(tell);
        drop(listeners);
        ElectionEvents(events)
    }

    pub(super) fn tell(&self, event: ElectionEvent) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|one| one.send(event).is_ok());
    }
}
