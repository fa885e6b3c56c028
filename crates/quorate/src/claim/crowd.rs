use crate::{env::BootTime, lease::AskOrder, lease::IfHeld};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// The time for which a meeting with another worker counts as recent.
const RECENT: Duration = Duration::from_secs(1);

/// The time at which these claims last met another worker at a message. If that was lately, other workers probably see the
/// same messages.
#[derive(Clone, Debug, Default)]
pub(super) struct Crowd(Arc<AtomicU64>);

impl Crowd {
    /// Records that another worker had claimed or handled a message.
    pub(super) fn met(&self, now: BootTime) {
        self.0.store(now.as_nanos().max(1), Ordering::Relaxed);
    }

    /// Returns the order in which the nodes are asked for the next messages. A worker that is alone asks a majority at once.
    /// Workers that compete would split the votes of their majorities. So they ask one node first, the same for all of
    /// them, and only the one that it grants asks the others at once.
    pub(super) fn order(&self, now: BootTime) -> AskOrder {
        let met = self.0.load(Ordering::Relaxed);
        if met > 0 && BootTime::from_nanos(met) + RECENT > now {
            AskOrder::OneThenMajority(IfHeld::AskLater)
        } else {
            AskOrder::MajorityFirst
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_node_is_asked_first_for_a_second_after_another_worker_was_met() {
        let (crowd, at) = (Crowd::default(), |ms: u64| BootTime::from_nanos(ms * 1_000_000));
        assert_eq!(crowd.order(at(0)), AskOrder::MajorityFirst);
        crowd.clone().met(at(10));
        assert_eq!(crowd.order(at(1_009)), AskOrder::OneThenMajority(IfHeld::AskLater));
        assert_eq!(crowd.order(at(1_010)), AskOrder::MajorityFirst);
    }
}
