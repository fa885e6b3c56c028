use super::{Event, Invariant};
use std::time::Duration;

/// Requires that a worker soon acquires a lease that no other worker holds, once the faults and the
/// quarantines are over.
#[derive(Debug)]
pub(super) struct Liveness;

impl Invariant for Liveness {
    fn name(&self) -> &'static str {
        "liveness"
    }

    fn see(&mut self, _now: Duration, event: &Event<'_>) -> Result<(), String> {
        match event {
            Event::Calm { worker, got: Err(why), .. } => Err(format!("{worker} got nothing: {why}")),
            Event::Calm { worker, took, bound, .. } if took > bound => {
                Err(format!("{worker} waited {took:?}, more than {bound:?}"))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_lease_and_a_late_lease_both_break_liveness() {
        let see = |ms, got| {
            let (took, bound) = (Duration::from_millis(ms), Duration::from_millis(10));
            Liveness.see(Duration::ZERO, &Event::Calm { worker: "a", took, bound, got })
        };
        assert!(see(10, Ok(1)).is_ok());
        assert!(see(11, Ok(1)).is_err());
        assert!(see(1, Err("no".to_owned())).is_err());
    }
}
