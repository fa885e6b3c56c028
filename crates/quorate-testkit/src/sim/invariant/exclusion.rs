use super::{Event, Invariant};
use crate::sim::{Belief, Excuse};
use std::time::Duration;

/// Requires that, at every true moment, at most one worker considers a lease on a resource valid by its own
/// clock. If a worker's clock stood still, its lease is not judged until a majority has extended the lease by a
/// request that was sent while the clock ran. If an operator releases a lock by force, the earlier holder need not know
/// until it has extended the lease, or its validity ends. The invariant *readers* judges readers' leases.
#[derive(Debug)]
pub(super) struct Exclusion;

impl Invariant for Exclusion {
    fn name(&self) -> &'static str {
        "exclusion"
    }

    fn see(&mut self, _now: Duration, event: &Event<'_>) -> Result<(), String> {
        let Event::Looked(beliefs) = event else { return Ok(()) };
        for (at, one) in beliefs.iter().enumerate().filter(|(_, belief)| writes(belief)) {
            let twins = beliefs[at + 1..].iter().filter(|two| writes(two) && two.resource == one.resource);
            let mut judged = twins.filter(|two| {
                let earlier = if one.token < two.token { one } else { two };
                !Excuse::ExclusionClock.excuses(one.clock_stood || two.clock_stood)
                    && !Excuse::ExclusionForced.excuses(earlier.is_freed_by_force())
            });
            if let Some(two) = judged.next() {
                return Err(format!(
                    "{} under {} and {} under {} both hold {}",
                    one.worker, one.token, two.worker, two.token, one.resource
                ));
            }
        }
        Ok(())
    }
}

fn writes(belief: &Belief) -> bool {
    belief.valid && !belief.reads
}

#[cfg(test)]
mod tests {
    use super::{super::belief, *};
    use crate::sim::Forced;

    #[test]
    fn two_valid_leases_break_exclusion() {
        let see = |beliefs: &[_]| Exclusion.see(Duration::ZERO, &Event::Looked(beliefs));
        assert!(see(&[belief(1, "a", 1, true), belief(2, "b", 2, false)]).is_ok());
        assert!(see(&[belief(1, "a", 1, true), belief(2, "b", 2, true)]).is_err());
        let stood = Belief { clock_stood: true, ..belief(2, "b", 2, true) };
        assert!(see(&[belief(1, "a", 1, true), stood.clone()]).is_ok());
        assert!(see(&[belief(1, "a", 1, true), stood, belief(3, "c", 3, true)]).is_err());
        let forced = |sent, token| {
            let freed_at = Some(Duration::from_millis(5));
            let forced = Forced { freed_at, final_at: None };
            Belief { forced, sent: Duration::from_millis(sent), ..belief(token, "a", token, true) }
        };
        assert!(see(&[forced(5, 1), belief(2, "b", 2, true)]).is_ok());
        assert!(see(&[forced(6, 1), belief(2, "b", 2, true)]).is_err(), "extended since");
        assert!(see(&[belief(1, "b", 1, true), forced(5, 2)]).is_err(), "the later one");
        let elsewhere = quorate::node::Resource::lock("y").unwrap();
        let elsewhere = Belief { resource: elsewhere, ..belief(2, "b", 2, true) };
        assert!(see(&[belief(1, "a", 1, true), elsewhere]).is_ok());
    }
}
