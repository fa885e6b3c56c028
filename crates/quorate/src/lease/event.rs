/// A change of a lease's state. The events of a lease have a fixed order: `Held` and `AtRisk` alternate, then
/// comes `StepDown`, then `Lost`.
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
