use std::sync::{Arc, OnceLock};
use tokio_util::sync::CancellationToken;

/// The cancellation or interruption of one run, with its reason. Clones of this value share one signal.
#[derive(Clone, Debug, Default)]
pub(in crate::scheduler) struct Cancel {
    token: CancellationToken,
    reasons: Arc<Reasons>,
}

/// The reasons for which a run was cancelled and interrupted. Only the first reason of each kind is stored.
#[derive(Debug, Default)]
struct Reasons {
    /// The reason of a cancellation. If it is set, the run ends as cancelled and is not repeated, even if the
    /// job is at-least-once.
    cancel: OnceLock<Arc<str>>,
    /// The reason why the run was interrupted. If the run was interrupted but not cancelled, the tick may run
    /// again.
    interrupt: OnceLock<Arc<str>>,
}

impl Cancel {
    /// Cancels the run permanently: the tick does not run again, even if the run was interrupted before.
    pub(in crate::scheduler) fn cancel(&self, why: &str) {
        let _ = self.reasons.cancel.set(why.into());
        self.token.cancel();
    }

    /// Interrupts the run: the tick may run again.
    pub(in crate::scheduler) fn interrupt(&self, why: &str) {
        let _ = self.reasons.interrupt.set(why.into());
        self.token.cancel();
    }

    pub(in crate::scheduler) fn is_for_good(&self) -> bool {
        self.reasons.cancel.get().is_some()
    }

    pub(in crate::scheduler) fn is_cancelled(&self) -> bool {
        self.token.is_cancelled()
    }

    /// Waits until the run is cancelled or interrupted.
    pub(in crate::scheduler) async fn cancelled(&self) {
        self.token.cancelled().await;
    }

    /// Returns the reason. `None` if the run is neither cancelled nor interrupted.
    pub(in crate::scheduler) fn why(&self) -> Option<Arc<str>> {
        self.reasons.cancel.get().or(self.reasons.interrupt.get()).cloned()
    }
}

/// Returns the reason of a run that was cancelled on the request of `by`.
pub(in crate::scheduler) fn on_request(by: &str) -> String {
    format!("on request of {by}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cancellation_for_good_overrides_an_interruption() {
        let cancel = Cancel::default();
        cancel.interrupt("a shutdown");
        assert!(
            cancel.is_cancelled() && !cancel.is_for_good() && cancel.why().as_deref() == Some("a shutdown")
        );
        cancel.cancel("on request");
        cancel.interrupt("a shutdown");
        assert!(cancel.is_for_good() && cancel.why().as_deref() == Some("on request"));
    }
}
