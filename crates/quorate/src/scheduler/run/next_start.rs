//! The moment at which the leader starts its next runs. The closed record of a run that has ended waits for this moment,
//! so that one call to each node carries it together with the *started* records of the next runs.
//!
//! Until its record is closed, the run is active: the leader makes no decision that depends on its end. So the record
//! waits only if no such decision is near: see [`RecordDelay`].
//!
//! # What is not guaranteed
//!
//! If the leader crashes while a record waits, the next leader finds a run that has started and has no end, as after a
//! crash during the run.

use crate::env::{Env, WallTime};
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::Notify;

/// The longest time for which a closed record waits.
const WAIT_MAX: Duration = Duration::from_millis(20);
/// The least time between the end of the wait and the job's next tick. It is longer than a write usually takes, so that
/// the wait does not make the run and the tick overlap.
const BEFORE_TICK: Duration = Duration::from_millis(500);

/// The leader's next start of runs. The event loop keeps it up to date.
#[derive(Debug)]
pub(in crate::scheduler) struct NextStart(Arc<Shared>);

/// Receives the moments at which the leader starts runs.
#[derive(Debug)]
pub(in crate::scheduler) struct Starts {
    shared: Arc<Shared>,
    /// The version of the moment that was returned last.
    seen: u64,
}

/// The wait of the closed record of one run.
#[derive(Debug)]
pub(in crate::scheduler) struct RecordDelay {
    shared: Arc<Shared>,
    /// The number of changes when the run started.
    changes: u64,
    /// The time at which a decision on the job may need the end of the run. `None` if the end is needed at once.
    needed_at: Option<WallTime>,
}

#[derive(Debug, Default)]
struct Shared {
    moment: Mutex<Moment>,
    /// Wakes the waiting tasks in their order. A channel of tokio's `watch` would draw the order, and a seed of the
    /// simulation would have several histories.
    changed: Notify,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Moment {
    /// The time at which the leader starts its next runs. `None` if no record may wait.
    at: Option<WallTime>,
    /// The number of requests and of changes of the jobs in this term. After such a change, a decision may need the end
    /// of an active run earlier than was known at the start of that run.
    changes: u64,
    /// The number of times that this value has changed.
    version: u64,
    /// True once the event loop has ended.
    ended: bool,
}

impl Shared {
    fn moment(&self) -> MutexGuard<'_, Moment> {
        self.moment.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Moment)) {
        let mut moment = self.moment();
        let before = *moment;
        change(&mut moment);
        if *moment != before {
            moment.version += 1;
            drop(moment);
            self.changed.notify_waiters();
        }
    }
}

impl NextStart {
    /// Creates the value for a leader that does not start runs yet.
    pub(in crate::scheduler) fn new() -> Self {
        Self(Arc::default())
    }

    /// Sets the time of the next start. `None` means that no record may wait: the leader starts no more runs, or runs
    /// wait for the end of others. If the time has changed, no record waits any longer for the previous one.
    pub(in crate::scheduler) fn set(&self, at: Option<WallTime>) {
        self.0.change(|moment| moment.at = at);
    }

    /// Ends the wait of all records. The records of the runs that are active now will not wait.
    pub(in crate::scheduler) fn change(&self) {
        self.0.change(|moment| moment.changes += 1);
    }

    /// Returns a receiver of the starts from now on.
    pub(in crate::scheduler) fn starts(&self) -> Starts {
        Starts { shared: Arc::clone(&self.0), seen: self.0.moment().version }
    }

    /// Returns the delay for the record of a run that starts now. Before `needed_at`, no decision on the job needs the
    /// end of the run, unless there is a [change](NextStart::change).
    pub(in crate::scheduler) fn delay(&self, needed_at: Option<WallTime>) -> RecordDelay {
        RecordDelay { shared: Arc::clone(&self.0), changes: self.0.moment().changes, needed_at }
    }
}

impl Drop for NextStart {
    fn drop(&mut self) {
        self.0.change(|moment| moment.ended = true);
    }
}

impl Starts {
    /// Waits until the leader starts runs. May end earlier, if the time of the next start has changed. Returns `None` if
    /// the leader starts no more runs.
    ///
    /// # Cancel safety
    /// Safe: the next call returns a start that the dropped future has not returned.
    pub(in crate::scheduler) async fn next(&mut self) -> Option<()> {
        loop {
            // From here on the future sees each change, even before it is polled.
            let changed = self.shared.changed.notified();
            let moment = *self.shared.moment();
            if moment.ended {
                return None;
            }
            if std::mem::replace(&mut self.seen, moment.version) != moment.version {
                return Some(());
            }
            changed.await;
        }
    }
}

impl RecordDelay {
    /// Waits for the leader's next start of runs, if the record of a run that has just ended may wait for it. `now` is
    /// the quorum's clock.
    ///
    /// # Cancel safety
    /// Safe: dropping the future only stops the wait.
    pub(in crate::scheduler) async fn wait(&self, env: &Env, now: WallTime) {
        // From here on the future sees each change, even before it is polled.
        let changed = self.shared.changed.notified();
        let moment = *self.shared.moment();
        if self.may_wait(moment, now) {
            // The event loop ends the wait. The limit matters only if the loop is late.
            let _ = env.before(env.now() + WAIT_MAX, changed).await;
        }
    }

    /// Returns whether the record of a run that ends at `now` waits. It waits if the leader starts runs soon, if
    /// nothing has changed since the run started, and if the job's next tick is not near.
    fn may_wait(&self, moment: Moment, now: WallTime) -> bool {
        let latest = now + WAIT_MAX;
        let is_free = self.needed_at.is_some_and(|needed| needed >= latest + BEFORE_TICK);
        let is_soon = moment.at.is_some_and(|at| now < at && at <= latest);
        is_free && is_soon && !moment.ended && moment.changes == self.changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    const NOW: WallTime = WallTime::from_micros(1_000_000_000);
    const SECOND: Duration = Duration::from_secs(1);

    fn ms(number: u64) -> Duration {
        Duration::from_millis(number)
    }

    fn waits(next: Option<WallTime>, needed_at: Option<WallTime>) -> bool {
        let start = NextStart::new();
        start.set(next);
        let delay = start.delay(needed_at);
        let moment = *delay.shared.moment();
        delay.may_wait(moment, NOW)
    }

    #[test]
    fn a_record_waits_only_for_a_start_within_the_limit() {
        let free = Some(NOW + SECOND);
        for (next, is_so) in [
            (None, false),
            (Some(NOW - ms(1)), false),
            (Some(NOW), false),
            (Some(NOW + ms(1)), true),
            (Some(NOW + WAIT_MAX), true),
            (Some(NOW + WAIT_MAX + ms(1)), false),
        ] {
            assert_eq!(waits(next, free), is_so, "{next:?}");
        }
    }

    #[test]
    fn a_record_that_is_needed_soon_does_not_wait() {
        let next = Some(NOW + ms(2));
        let first = NOW + WAIT_MAX + BEFORE_TICK;
        for (needed_at, is_so) in [
            (None, false),
            (Some(NOW - SECOND), false),
            (Some(NOW), false),
            (Some(first - ms(1)), false),
            (Some(first), true),
        ] {
            assert_eq!(waits(next, needed_at), is_so, "{needed_at:?}");
        }
    }

    #[test]
    fn a_run_that_was_active_at_a_change_does_not_wait() {
        let start = NextStart::new();
        start.set(Some(NOW + ms(2)));
        let (earlier, _) = (start.delay(Some(NOW + SECOND)), start.change());
        let later = start.delay(Some(NOW + SECOND));
        let moment = *later.shared.moment();
        assert_eq!((earlier.may_wait(moment, NOW), later.may_wait(moment, NOW)), (false, true));
    }

    #[test]
    fn a_receiver_gets_a_new_start_once_and_nothing_after_the_last() {
        let start = NextStart::new();
        start.set(Some(NOW));
        let mut starts = start.starts();
        let mut next = || starts.next().now_or_never();
        assert_eq!(next(), None, "no start since then");
        start.set(Some(NOW));
        assert_eq!(next(), None, "the same start");
        start.set(Some(NOW + ms(2)));
        assert_eq!((next(), next()), (Some(Some(())), None));
        drop(start);
        assert_eq!(next(), Some(None));
    }

    #[tokio::test(start_paused = true)]
    async fn the_next_start_a_change_and_the_end_of_the_loop_end_the_wait() {
        let env = Env::system();
        let first = Some(NOW + ms(2));
        let ends: [fn(NextStart) -> Option<NextStart>; 4] = [
            |start| {
                start.set(Some(NOW + ms(4)));
                Some(start)
            },
            |start| {
                start.set(None);
                Some(start)
            },
            |start| {
                start.change();
                Some(start)
            },
            |_| None,
        ];
        for (number, end) in ends.into_iter().enumerate() {
            let start = NextStart::new();
            start.set(first);
            let delay = start.delay(Some(NOW + SECOND));
            let mut wait = Box::pin(delay.wait(&env, NOW));
            assert_eq!(wait.as_mut().now_or_never(), None, "{number}");
            start.set(first);
            assert_eq!(wait.as_mut().now_or_never(), None, "{number}: the time is the same");
            let _start = end(start);
            assert_eq!(wait.as_mut().now_or_never(), Some(()), "{number}");
        }
    }
}
