use super::{Event, Invariant};
use crate::sim::{Belief, Excuse};
use std::time::Duration;

/// Requires that each lease which its worker considers valid is stored on a majority of the servers in the worker's
/// node list. A server
/// also counts if it cannot vote for another worker now, for example because it lost data recently
/// ([`Server::backs`](crate::sim::Server::backs)). This invariant is stronger than exclusion: it detects a
/// lease that too few servers store, even if no other worker acquires it. If a worker's clock stood still,
/// its lease is not judged until a majority has extended the lease by a request that was sent while the clock
/// ran. A lease that was released by force is judged again once its holder has extended it.
#[derive(Debug)]
pub(super) struct Backing;

impl Invariant for Backing {
    fn name(&self) -> &'static str {
        "backing"
    }

    fn see(&mut self, _now: Duration, event: &Event<'_>) -> Result<(), String> {
        let Event::Looked(beliefs) = event else { return Ok(()) };
        let lacks = |belief: &&Belief| {
            let majority = belief.nodes.majority();
            let stored_on = belief.backed_by - belief.without_lease.len();
            if belief.backed_by >= majority && stored_on < majority && !belief.clock_stood {
                belief.without_lease.iter().for_each(|excuse| excuse.count());
            }
            belief.backed_by < majority
                && !Excuse::BackingClock.excuses(belief.clock_stood)
                && !Excuse::BackingForced.excuses(belief.is_freed_by_force())
        };
        match beliefs.iter().filter(|belief| belief.valid).find(lacks) {
            Some(belief) => Err(format!(
                "{} believes in {} under {}, which stands on {} servers",
                belief.worker, belief.resource, belief.token, belief.backed_by
            )),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::belief, *};

    #[test]
    fn a_belief_needs_a_majority() {
        let see = |valid, backed_by| {
            let belief = Belief { backed_by, ..belief(1, "a", 1, valid) };
            Backing.see(Duration::ZERO, &Event::Looked(&[belief]))
        };
        assert!(see(true, 3).is_ok());
        assert!(see(true, 2).is_err());
        assert!(see(false, 0).is_ok());
        let stood = Belief { backed_by: 0, clock_stood: true, ..belief(1, "a", 1, true) };
        assert!(Backing.see(Duration::ZERO, &Event::Looked(&[stood])).is_ok());
    }
}
