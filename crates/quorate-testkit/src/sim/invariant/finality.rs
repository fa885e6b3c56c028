use super::{Event, Invariant};
use std::{collections::BTreeSet, time::Duration};

/// Requires that a lease is never valid again once its worker has seen it as ended, and that a forced release of which
/// the operator learned that it is final ends a lease: from then on, no extension makes the lease valid for longer.
/// So the holder does not hold the lock again after another worker's lease, whose token is larger. A worker whose boot
/// clock stood still may believe that a request was sent later than it was.
#[derive(Debug, Default)]
pub(super) struct Finality {
    ended: BTreeSet<u64>,
    /// The leases that were valid when the operator learned that their forced release is final.
    forced: BTreeSet<u64>,
}

impl Invariant for Finality {
    fn name(&self) -> &'static str {
        "finality"
    }

    fn is_timeless(&self) -> bool {
        true
    }

    fn judged(&self) -> Vec<(&'static str, u64)> {
        vec![("final forced release judged", self.forced.len() as u64)]
    }

    fn see(&mut self, _now: Duration, event: &Event<'_>) -> Result<(), String> {
        let Event::Looked(beliefs) = event else { return Ok(()) };
        for belief in *beliefs {
            if !belief.valid {
                self.ended.insert(belief.lease);
            } else if self.ended.contains(&belief.lease) {
                return Err(format!("{}'s lease under {} came back", belief.worker, belief.token));
            } else if let Some(at) = belief.forced.final_at {
                self.forced.insert(belief.lease);
                if at < belief.sent && !belief.clock_stood {
                    return Err(format!(
                        "{} extended its lease on {} under {} after a final forced release",
                        belief.worker, belief.resource, belief.token
                    ));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{super::belief, *};
    use crate::sim::{Belief, Forced};

    #[test]
    fn an_ended_lease_stays_ended() {
        let mut finality = Finality::default();
        let mut see = |valid| finality.see(Duration::ZERO, &Event::Looked(&[belief(1, "a", 1, valid)]));
        assert!(see(true).is_ok() && see(false).is_ok() && see(false).is_ok());
        assert!(see(true).is_err());
    }

    #[test]
    fn nothing_extends_a_lease_after_a_final_forced_release() {
        let mut finality = Finality::default();
        let mut see = |sent, final_at: Option<u64>, valid| {
            let forced = Forced { freed_at: Some(SECOND), final_at: final_at.map(Duration::from_millis) };
            let sent = Duration::from_millis(sent);
            let belief = Belief { sent, forced, ..belief(1, "a", 1, valid) };
            finality.see(SECOND, &Event::Looked(&[belief]))
        };
        assert!(see(600, None, true).is_ok(), "not final");
        assert!(see(500, Some(500), true).is_ok(), "sent before");
        assert!(see(501, Some(500), true).is_err());
        assert_eq!(finality.judged()[0].1, 1);
    }

    const SECOND: Duration = Duration::from_secs(1);
}
