use super::{Event, Invariant};
use crate::sim::{Belief, Excuse};
use quorate::node::Resource;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// Requires that the tokens of a resource are unique, and grow in the order of the grants.
#[derive(Debug, Default)]
pub(super) struct Fencing {
    seen: BTreeSet<(Resource, u64)>,
    newest: BTreeMap<Resource, u64>,
}

impl Invariant for Fencing {
    fn name(&self) -> &'static str {
        "fencing"
    }

    fn see(&mut self, _now: Duration, event: &Event<'_>) -> Result<(), String> {
        let Event::Granted(belief) = event else { return Ok(()) };
        let (resource, token) = (&belief.resource, belief.token);
        if !self.seen.insert((resource.clone(), token)) {
            return Err(format!("{} got the token {token} of {resource} a second time", belief.worker));
        }
        // This grant ended before its worker saw it, for example because the worker was paused after its
        // round was granted. Another worker may have acquired the lease since then. A worker whose clock
        // stood still cannot know whether its grant has ended. `Order` also compares the tokens of such
        // grants, except those of claims.
        // The same holds for a lease that was released by force before its worker saw it.
        if !belief.valid || belief.clock_stood || belief.is_freed_by_force() {
            if self.newest.get(resource).is_some_and(|newest| token < *newest) {
                let excuse = match belief {
                    Belief { valid: false, .. } => Excuse::FencingEnded,
                    Belief { clock_stood: true, .. } => Excuse::FencingClock,
                    _ => Excuse::FencingForced,
                };
                excuse.count();
            }
            return Ok(());
        }
        let newest = self.newest.insert(resource.clone(), token).unwrap_or_default();
        if token < newest {
            return Err(format!("{} got the token {token} of {resource} after {newest}", belief.worker));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{super::belief, *};

    #[test]
    fn tokens_are_unique_and_grow() {
        let mut fencing = Fencing::default();
        let mut see =
            |token, valid| fencing.see(Duration::ZERO, &Event::Granted(&belief(token, "a", token, valid)));
        assert!(see(5, true).is_ok());
        assert!(see(7, true).is_ok());
        assert!(see(6, false).is_ok(), "a grant that had ended before it was seen");
        assert!(see(7, true).is_err());
        assert!(see(4, true).is_err());
    }
}
