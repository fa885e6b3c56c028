use super::{Event, Invariant};
use crate::sim::worker::group;
use std::{collections::BTreeSet, sync::Arc, time::Duration};

/// Requires that a worker that never leads has no term of the first group. That a preferred worker leads once the faults
/// are over is judged by the fault-free phase.
#[derive(Debug, Default)]
pub(super) struct Ranks {
    never: BTreeSet<Arc<str>>,
    judged: u64,
}

impl Invariant for Ranks {
    fn name(&self) -> &'static str {
        "ranks"
    }

    fn judged(&self) -> Vec<(&'static str, u64)> {
        vec![("term beside a worker that never leads", self.judged)]
    }

    fn see(&mut self, _now: Duration, event: &Event<'_>) -> Result<(), String> {
        match event {
            Event::NeverLeads { worker } => drop(self.never.insert((*worker).into())),
            Event::Granted(belief) if belief.resource == group() && !self.never.is_empty() => {
                self.judged += 1;
                if self.never.contains(&belief.worker) {
                    return Err(format!("{} never leads, and has the term {}", belief.worker, belief.token));
                }
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{super::belief, *};

    #[test]
    fn a_worker_that_never_leads_has_no_term() {
        let mut ranks = Ranks::default();
        let mut see = |event: &Event<'_>| ranks.see(Duration::ZERO, event);
        let granted = |worker| crate::sim::Belief { resource: group(), ..belief(1, worker, 1, true) };
        assert!(see(&Event::Granted(&granted("a"))).is_ok());
        assert!(see(&Event::NeverLeads { worker: "a" }).is_ok());
        assert!(see(&Event::Granted(&granted("b"))).is_ok());
        assert!(see(&Event::Granted(&granted("a"))).is_err());
        assert!(see(&Event::Granted(&belief(2, "a", 2, true))).is_ok(), "a lock");
        assert_eq!(ranks.judged(), [("term beside a worker that never leads", 2)]);
    }
}
