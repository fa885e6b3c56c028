use super::{Event, Invariant};
use std::{collections::BTreeSet, time::Duration};

/// Requires that a lease is never valid again once its worker has seen it as ended.
#[derive(Debug, Default)]
pub(super) struct Finality {
    ended: BTreeSet<u64>,
}

impl Invariant for Finality {
    fn name(&self) -> &'static str {
        "finality"
    }

    fn is_timeless(&self) -> bool {
        true
    }

    fn see(&mut self, _now: Duration, event: &Event<'_>) -> Result<(), String> {
        let Event::Looked(beliefs) = event else { return Ok(()) };
        for belief in *beliefs {
            if !belief.valid {
                self.ended.insert(belief.lease);
            } else if self.ended.contains(&belief.lease) {
                return Err(format!("{}'s lease under {} came back", belief.worker, belief.token));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{super::belief, *};

    #[test]
    fn an_ended_lease_stays_ended() {
        let mut finality = Finality::default();
        let mut see = |valid| finality.see(Duration::ZERO, &Event::Looked(&[belief(1, "a", 1, valid)]));
        assert!(see(true).is_ok() && see(false).is_ok() && see(false).is_ok());
        assert!(see(true).is_err());
    }
}
