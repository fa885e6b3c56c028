use super::{Event, Invariant, MAJORITY};
use std::time::Duration;

/// A lease that is taken for valid stands on a majority of servers, or on servers that cannot vote because
/// they forgot. Stronger than exclusion: it needs nobody to come and take what is not held.
#[derive(Debug)]
pub(super) struct Backing;

impl Invariant for Backing {
    fn name(&self) -> &'static str {
        "backing"
    }

    fn see(&mut self, _now: Duration, event: &Event<'_>) -> Result<(), String> {
        let Event::Looked(beliefs) = event else { return Ok(()) };
        match beliefs.iter().find(|belief| belief.valid && belief.backed_by < MAJORITY) {
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
    use crate::sim::Belief;

    #[test]
    fn a_belief_needs_a_majority() {
        let see = |valid, backed_by| {
            let belief = Belief { backed_by, ..belief(1, "a", 1, valid) };
            Backing.see(Duration::ZERO, &Event::Looked(&[belief]))
        };
        assert!(see(true, 3).is_ok());
        assert!(see(true, 2).is_err());
        assert!(see(false, 0).is_ok());
    }
}
