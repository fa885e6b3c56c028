use super::{AdjustableClock, SimClock, Truth};
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// The longest time for which the library sleeps before it reads the clock again. While the machine sleeps,
/// the library's timers stand still. The process notices the lost time at most one nap after the machine
/// wakes.
pub const NAP: Duration = Duration::from_millis(100);

/// The machine on which a worker's processes run. It has the clocks, which outlive the processes, and it can
/// sleep.
#[derive(Debug)]
pub struct Machine {
    truth: Truth,
    nap: Duration,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    boot: AdjustableClock,
    wall: AdjustableClock,
    /// The time that the boot clock showed when it last stopped. `None` if it never did.
    stood_at: Option<u64>,
    asleep_since: Option<Duration>,
    sleeps: Vec<Sleep>,
}

/// A period in which the machine slept. Its timers stopped, and its clocks continued.
#[derive(Clone, Copy, Debug)]
struct Sleep {
    from: Duration,
    until: Duration,
}

impl Machine {
    /// Creates a machine that is awake. Its processes sleep for at most `nap` before they read the clock again.
    /// (The library's own limit is [`NAP`].)
    pub fn new(truth: Truth, boot: SimClock, wall: SimClock, nap: Duration) -> Arc<Self> {
        let (boot, wall) = (AdjustableClock::new(boot), AdjustableClock::new(wall));
        let state = State { boot, wall, stood_at: None, asleep_since: None, sleeps: Vec::new() };
        Arc::new(Self { truth, nap, state: Mutex::new(state) })
    }

    /// Returns the time of the boot clock, in nanoseconds.
    pub fn boot(&self) -> u64 {
        self.state().boot.shows(self.truth.now())
    }

    /// Returns the time of the wall clock, in nanoseconds.
    pub fn wall(&self) -> u64 {
        self.state().wall.shows(self.truth.now())
    }

    /// Returns the time that the boot clock showed when it last stood still, or `None` if it never did. A
    /// request that was sent at this time or earlier is older than the boot clock shows.
    pub fn stood_at(&self) -> Option<u64> {
        self.state().stood_at
    }

    /// Waits like a timer of the library that is set now. The timer is due when the boot clock shows `nanos`,
    /// but after `at_most` at the latest. It fires `late` after it is due, or later if the machine sleeps.
    pub(super) async fn timer(self: Arc<Self>, nanos: u64, at_most: Duration, late: Duration) {
        let set = self.truth.now();
        let due = self.state().boot.will_show(set, nanos).min(set + at_most) + late;
        loop {
            let fires_at = fires_at(set, due, self.nap, &self.state().sleeps);
            if self.truth.now() >= fires_at {
                return;
            }
            self.truth.reach(fires_at).await;
        }
    }

    // --- faults -----------------------------------------------------------------------------------------

    /// Sets the wall clock forward, or back.
    pub fn step_wall(&self, by_millis: i64) {
        self.state().wall.step(by_millis);
    }

    /// Stops only the boot clock. The timers and the wall clock continue to run.
    pub fn stand(&self) {
        let now = self.truth.now();
        let mut state = self.state();
        state.boot.stand(now);
        state.stood_at = Some(state.boot.shows(now));
    }

    /// Stops every clock, as in a virtual machine that is paused.
    pub fn freeze(&self) {
        self.stand();
        let now = self.truth.now();
        self.state().wall.stand(now);
    }

    /// Lets stopped clocks continue from where they stopped, so that the machine does not notice the pause.
    pub fn go_on(&self) {
        let now = self.truth.now();
        let mut state = self.state();
        state.boot.go_on(now);
        state.wall.go_on(now);
    }

    /// Corrects the wall clock, as an operator would.
    pub fn set_wall_right(&self) {
        self.state().wall.set_right();
    }

    /// Puts the machine to sleep. Its timers stop, and its clocks continue to run.
    pub fn fall_asleep(&self) {
        let now = self.truth.now();
        self.state().asleep_since.get_or_insert(now);
    }

    /// Wakes the machine. Timers continue from where they stopped.
    pub fn wake(&self) {
        let until = self.truth.now();
        let mut state = self.state();
        if let Some(from) = state.asleep_since.take() {
            state.sleeps.push(Sleep { from, until });
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the time at which a timer fires. The timer was set at the time `set` for the time `due`. The
/// machine was asleep in the periods `sleeps`. The process sleeps in naps of `nap`, and reads the clock after
/// each nap. If a sleep of the machine interrupts a nap, the nap continues after the machine wakes.
fn fires_at(set: Duration, due: Duration, nap: Duration, sleeps: &[Sleep]) -> Duration {
    let mut from = set;
    for sleep in sleeps.iter().filter(|sleep| sleep.from >= set) {
        if sleep.from >= from.max(due) {
            break; // The timer fired before this sleep.
        }
        let nap_left = if sleep.from < from {
            // The previous sleep interrupted a nap, and the machine fell asleep again before that nap ended.
            from - sleep.from
        } else {
            let napped = (sleep.from - from).as_nanos() % nap.as_nanos();
            let napped = Duration::from_nanos(u64::try_from(napped).unwrap_or_default());
            (nap - napped).min(due - sleep.from)
        };
        from = sleep.until + nap_left;
    }
    from.max(due)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_sleeping_timer_fires_at_the_end_of_its_nap() {
        let slept = |from, until| [Sleep { from: ms(from), until: ms(until) }];
        assert_eq!(fires_at(ms(0), ms(1_000), NAP, &[]), ms(1_000));
        assert_eq!(fires_at(ms(0), ms(1_000), NAP, &slept(1_000, 9_000)), ms(1_000), "it rang before");
        assert_eq!(
            fires_at(ms(0), ms(1_000), NAP, &slept(230, 600)),
            ms(1_000),
            "it looked at 670 and slept on"
        );
        assert_eq!(fires_at(ms(0), ms(1_000), NAP, &slept(230, 5_000)), ms(5_070), "30 of 100 ms had passed");
        assert_eq!(fires_at(ms(0), ms(240), NAP, &slept(230, 5_000)), ms(5_010), "a shorter nap at the end");
        assert_eq!(fires_at(ms(9_500), ms(9_700), NAP, &slept(230, 5_000)), ms(9_700), "set afterwards");
        let twice = [Sleep { from: ms(230), until: ms(600) }, Sleep { from: ms(700), until: ms(2_000) }];
        assert_eq!(fires_at(ms(0), ms(1_000), NAP, &twice), ms(2_070), "naps began again at 670");
        let dozed = [Sleep { from: ms(10), until: ms(500) }, Sleep { from: ms(520), until: ms(800) }];
        assert_eq!(fires_at(ms(0), ms(400), NAP, &dozed), ms(870), "the nap of 90 had 70 left");
    }

    #[tokio::test(start_paused = true)]
    async fn a_sleeping_machine_sees_time_pass_and_a_frozen_one_does_not() {
        let truth = Truth::begin();
        let clock = SimClock { start_nanos: 1_000_000_000, rate_ppm: 0 };
        let machine = Machine::new(truth, clock, clock, NAP);
        machine.freeze();
        truth.pass(ms(5_000)).await;
        assert_eq!((machine.boot(), machine.wall()), (clock.start_nanos, clock.start_nanos));
        machine.go_on();
        assert_eq!(machine.stood_at(), Some(clock.start_nanos));
        machine.fall_asleep();
        truth.pass(ms(1_000)).await;
        machine.wake();
        assert_eq!(machine.boot(), 2_000_000_000);
        machine.stand();
        truth.pass(ms(1_000)).await;
        assert_eq!((machine.boot(), machine.wall()), (2_000_000_000, 3_000_000_000));
        machine.set_wall_right();
        assert_eq!(machine.wall(), 8_000_000_000);
    }
}
