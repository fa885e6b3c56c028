use super::{Event, Invariant};
use crate::sim::Waiter;
use std::time::Duration;

/// Requires that, in the fault-free phase, no worker acquires a lock while a waiter is in its queue that began
/// to wait earlier. A worker that does not wait acquires the lock only if the queue is empty.
///
/// [`Lock::fair`](quorate::lease::Lock::fair) promises this, with three exceptions:
///
/// - The waiters' wall clocks determine the order. The invariant therefore compares the times at which the waits
///   began as the waiters' clocks showed them, and not the true times. These clocks are at most
///   `max_clock_offset` apart, so a waiter that truly began earlier by more than this goes first.
/// - A waiter joins the queue only after its patience. Until then it is not judged as a waiter in the queue.
/// - The order needs a majority that confirms the waiter's entry again and again. It is therefore judged in the
///   fault-free phase only, and not in plans where servers' clocks step far: such a server refuses the entry.
#[derive(Debug, Default)]
pub(super) struct Fair {
    queue: Vec<Waiter>,
    judged: u64,
}

impl Invariant for Fair {
    fn name(&self) -> &'static str {
        "fair"
    }

    fn judged(&self) -> Vec<(&'static str, u64)> {
        vec![("order of waiters judged", self.judged)]
    }

    fn see(&mut self, _now: Duration, event: &Event<'_>) -> Result<(), String> {
        match event {
            Event::Queued(waiter) => self.queue.push((*waiter).clone()),
            Event::Served { worker, waiter } => {
                self.queue.retain(|queued| waiter.is_none_or(|waiter| queued.number != waiter.number));
                let is_earlier = |queued: &&Waiter| waiter.is_none_or(|waiter| queued.began < waiter.began);
                self.judged += u64::from(!self.queue.is_empty());
                if let Some(first) = self.queue.iter().find(is_earlier) {
                    return Err(format!(
                        "{worker} acquired before {}, which had waited longer",
                        first.worker
                    ));
                }
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate::env::WallTime;

    fn waiter(number: u64, began: u64) -> Waiter {
        Waiter { number, worker: "a".into(), began: WallTime::from_micros(began) }
    }

    fn served(fair: &mut Fair, waiter: Option<&Waiter>) -> Result<(), String> {
        fair.see(Duration::ZERO, &Event::Served { worker: "a", waiter })
    }

    #[test]
    fn the_earliest_of_the_queue_goes_first() {
        let (first, second, third) = (waiter(1, 10), waiter(2, 20), waiter(3, 5));
        let mut fair = Fair::default();
        for queued in [&second, &first] {
            fair.see(Duration::ZERO, &Event::Queued(queued)).unwrap();
        }
        assert!(served(&mut fair, Some(&third)).is_ok(), "it had begun earlier, and was just joining");
        assert!(served(&mut fair, None).is_err(), "it does not wait");
        assert!(served(&mut fair, Some(&first)).is_ok());
        assert!(served(&mut fair, Some(&second)).is_ok());
        assert!(served(&mut fair, None).is_ok(), "the queue is empty");
        assert_eq!(fair.judged(), [("order of waiters judged", 3)]);
    }

    #[test]
    fn a_later_waiter_does_not_go_first() {
        let mut fair = Fair::default();
        fair.see(Duration::ZERO, &Event::Queued(&waiter(1, 10))).unwrap();
        assert!(served(&mut fair, Some(&waiter(2, 20))).is_err());
    }
}
