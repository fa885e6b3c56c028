use tokio::sync::mpsc;

/// A change of a lease's state. `Held` and `AtRisk` may alternate several times; `StepDown` follows, and
/// `Lost` is the last event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LeaseEvent {
    /// The lease was acquired, or the last round of extensions reached a majority of the nodes.
    Held,
    /// The last round of extensions did not reach a majority of the nodes, or the health check failed. The
    /// renewer tries again until the step-down.
    AtRisk,
    /// Validity ends within `step_down_grace`, or the lease is being released: the work should finish.
    StepDown,
    /// The lease has ended for good.
    Lost,
}

/// A subscription to the events of a lease or an election.
///
/// A subscription to a lease begins with the lease's state at that time, and ends after [`LeaseEvent::Lost`]. A
/// subscription to an election begins with the next event, and ends with the election.
#[derive(Debug)]
pub struct Events<E>(mpsc::UnboundedReceiver<E>);

impl<E> Events<E> {
    pub(crate) fn new(events: mpsc::UnboundedReceiver<E>) -> Self {
        Self(events)
    }

    /// Returns the next event, or `None` after the last.
    ///
    /// # Cancel safety
    /// Safe: no event is lost.
    pub async fn next(&mut self) -> Option<E> {
        self.0.recv().await
    }
}
