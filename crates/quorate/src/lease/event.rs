use tokio::sync::mpsc;

/// A change of a lease's state. The order is fixed: `Held` and `AtRisk` alternate, then `StepDown`, then `Lost`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LeaseEvent {
    /// The last round of extensions reached a majority.
    Held,
    /// The last round of extensions did not reach a majority. It is retried until the step-down.
    AtRisk,
    /// Validity ends within `step_down_grace`, or the lease is being released: the work should finish.
    StepDown,
    /// The lease has ended for good.
    Lost,
}

/// The events of one lease, beginning with its state at the time of the subscription. Ends after [`LeaseEvent::Lost`].
#[derive(Debug)]
pub struct LeaseEvents(mpsc::UnboundedReceiver<LeaseEvent>);

impl LeaseEvents {
    pub(super) fn new(events: mpsc::UnboundedReceiver<LeaseEvent>) -> Self {
        Self(events)
    }

    /// Returns the next event, or `None` after the last.
    ///
    /// # Cancel safety
    /// Safe: no event is lost.
    pub async fn next(&mut self) -> Option<LeaseEvent> {
        self.0.recv().await
    }
}
