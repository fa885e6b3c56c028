use quorate::env::BootTime;
use serde::Serialize;
use std::time::Duration;

/// The state of a lease, as its client sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It is held.
    Held,
    /// It is held, and ends soon: the work should finish.
    StepDown,
    /// It has ended for good.
    Ended(End),
}

/// The reason why a lease ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum End {
    /// The client released it, or completed or abandoned its last message.
    Released,
    /// The client gave no sign for as long as it had said.
    Silent,
    /// The nodes did not extend it in time, or an operator released it.
    Lost,
    /// The daemon stopped.
    Stopped,
}

/// An event of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// A request of the client about the lease begins.
    Arrives,
    /// Such a request ends, because it was answered or because the connection closed.
    Leaves,
    /// The time has come at which the client may be silent for too long.
    Tick,
    /// The work should finish.
    StepDown,
    /// The daemon stops.
    Stops,
    /// The lease ends.
    Ends(End),
}

/// The change that an event makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Nothing that an observer has to look at.
    Nothing,
    /// The phase, or the time until which the client may be silent.
    Seen,
    /// The lease ended with this event, so what it holds must be given up. This is returned once.
    Ended,
}

/// The signs of a lease's client, and the phase of the lease.
#[derive(Clone, Debug)]
pub(super) struct Attendance {
    /// The longest time without a sign.
    keep: Duration,
    /// The longest time for which an answer can say that the lease may be used.
    promise: Duration,
    /// The time at which a lease ends whose daemon stops. Every promise of an answer is over by then.
    ends_by: Option<BootTime>,
    /// The number of requests that wait.
    waiting: u32,
    last_sign: BootTime,
    phase: Phase,
}

impl Attendance {
    pub(super) fn new(keep: Duration, ttl: Duration, now: BootTime) -> Self {
        let promise = keep.min(ttl);
        Self { keep, promise, ends_by: None, waiting: 0, last_sign: now, phase: Phase::Held }
    }

    pub(super) fn phase(&self) -> Phase {
        self.phase
    }

    /// Returns the longest time without a sign.
    pub(super) fn keep(&self) -> Duration {
        self.keep
    }

    /// Returns the time of the next [`Event::Tick`]: when the client will have been silent for too long, or when the daemon
    /// will have waited for it. Returns `None` while a request waits, and once the lease has ended.
    pub(super) fn due(&self) -> Option<BootTime> {
        let silent_at = (self.waiting == 0).then(|| self.last_sign + self.keep);
        [silent_at, self.ends_by].into_iter().flatten().min().filter(|_| !self.is_ended())
    }

    /// Returns how long the lease is kept if the client gives no sign after `now`.
    pub(super) fn kept(&self, now: BootTime) -> Duration {
        self.due().map_or(self.keep, |at| now.until(at))
    }

    /// Returns how long the client has given no sign.
    pub(super) fn quiet(&self, now: BootTime) -> Duration {
        if self.waiting > 0 { Duration::ZERO } else { self.last_sign.until(now) }
    }

    pub(super) fn is_ended(&self) -> bool {
        matches!(self.phase, Phase::Ended(_))
    }

    /// Applies an event that happens at `now`.
    pub(super) fn apply(&mut self, event: Event, now: BootTime) -> Change {
        if self.is_ended() {
            return Change::Nothing;
        }
        match event {
            Event::Arrives => {
                self.waiting += 1;
                Change::Nothing
            }
            Event::Leaves => {
                self.waiting = self.waiting.saturating_sub(1);
                self.last_sign = self.last_sign.max(now);
                if self.waiting == 0 { Change::Seen } else { Change::Nothing }
            }
            Event::Tick if self.due().is_none_or(|at| at > now) => Change::Nothing,
            Event::Tick if self.ends_by.is_some_and(|at| at <= now) => self.end(End::Stopped),
            Event::Tick => self.end(End::Silent),
            Event::Stops => {
                self.phase = Phase::StepDown;
                self.ends_by.get_or_insert(now + self.promise);
                Change::Seen
            }
            Event::StepDown if self.phase == Phase::Held => {
                self.phase = Phase::StepDown;
                Change::Seen
            }
            Event::StepDown => Change::Nothing,
            Event::Ends(end) => self.end(end),
        }
    }

    fn end(&mut self, end: End) -> Change {
        self.phase = Phase::Ended(end);
        Change::Ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEEP: Duration = Duration::from_secs(10);

    fn at(seconds: u64) -> BootTime {
        BootTime::default() + Duration::from_secs(100 + seconds)
    }

    fn attendance() -> Attendance {
        Attendance::new(KEEP, KEEP, at(0))
    }

    #[test]
    fn a_client_without_a_sign_loses_the_lease_after_its_own_time() {
        let mut attendance = attendance();
        assert_eq!((attendance.due(), attendance.kept(at(4))), (Some(at(10)), 6 * KEEP / 10));
        assert_eq!(attendance.apply(Event::Tick, at(9)), Change::Nothing);
        assert_eq!(attendance.apply(Event::Tick, at(10)), Change::Ended);
        assert_eq!(attendance.phase(), Phase::Ended(End::Silent));
    }

    #[test]
    fn a_request_that_waits_keeps_it_and_its_end_is_a_sign() {
        let mut attendance = attendance();
        for _ in 0..2 {
            assert_eq!(attendance.apply(Event::Arrives, at(1)), Change::Nothing);
        }
        assert_eq!((attendance.due(), attendance.quiet(at(50))), (None, Duration::ZERO));
        assert_eq!(attendance.kept(at(50)), KEEP, "the answer itself will be a sign");
        assert_eq!(attendance.apply(Event::Tick, at(50)), Change::Nothing);
        assert_eq!(attendance.apply(Event::Leaves, at(60)), Change::Nothing, "the other one waits");
        assert_eq!(attendance.apply(Event::Leaves, at(61)), Change::Seen);
        assert_eq!((attendance.due(), attendance.quiet(at(65))), (Some(at(71)), 4 * KEEP / 10));
        // A sign that was observed late does not shorten the time.
        attendance.apply(Event::Arrives, at(62));
        attendance.apply(Event::Leaves, at(60));
        assert_eq!(attendance.due(), Some(at(71)));
        assert_eq!(
            attendance.apply(Event::Tick, at(70)),
            Change::Nothing,
            "a tick that was due before the sign"
        );
    }

    #[test]
    fn the_phases_come_in_order_and_an_end_is_final() {
        let mut attendance = attendance();
        assert_eq!(attendance.apply(Event::StepDown, at(1)), Change::Seen);
        assert_eq!(attendance.apply(Event::StepDown, at(1)), Change::Nothing);
        assert_eq!(attendance.phase(), Phase::StepDown);
        attendance.apply(Event::Arrives, at(2));
        assert_eq!(attendance.apply(Event::Ends(End::Lost), at(3)), Change::Ended);
        for event in [Event::Ends(End::Released), Event::StepDown, Event::Leaves, Event::Arrives, Event::Tick]
        {
            assert_eq!(attendance.apply(event, at(99)), Change::Nothing, "{event:?}");
        }
        assert_eq!((attendance.phase(), attendance.due()), (Phase::Ended(End::Lost), None));
    }

    #[test]
    fn when_the_daemon_stops_a_lease_ends_once_every_answer_about_it_has_run_out() {
        let mut attendance = Attendance::new(6 * KEEP, KEEP, at(0));
        attendance.apply(Event::Arrives, at(1));
        assert_eq!(attendance.apply(Event::Stops, at(2)), Change::Seen);
        assert_eq!((attendance.phase(), attendance.due()), (Phase::StepDown, Some(at(12))));
        assert_eq!(attendance.apply(Event::Stops, at(5)), Change::Seen);
        assert_eq!(
            (attendance.due(), attendance.kept(at(9))),
            (Some(at(12)), 3 * KEEP / 10),
            "once, and no answer says more"
        );
        assert_eq!(attendance.apply(Event::Tick, at(11)), Change::Nothing);
        assert_eq!(attendance.apply(Event::Tick, at(12)), Change::Ended);
        assert_eq!(attendance.phase(), Phase::Ended(End::Stopped));
    }
}
