use crate::{env::BootTime, lease::signal::Signal, measure::TermGauges, vote::NoMajority};
use std::{
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering},
    },
    time::Duration,
};

/// The bit of `valid_until` that is set once the lease has ended because its time was over. The other bits keep the
/// deadline that the lease had: its end, even if it is noticed later. No boot clock reaches this bit.
const ENDED: u64 = 1 << 63;
/// The value of `valid_until` once the holder has ended the lease.
const RELEASED: u64 = 1;
const NO_CAUSE: u8 = 0;

/// The reason why the holder of a lease was asked to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[repr(u8)]
pub enum StepDownCause {
    /// Too few nodes extended the lease in time, or automatic extension is off.
    NotExtended = 1,
    /// The lease reaches its longest holding time, `max_hold`.
    MaxHold,
    /// The health check returned false, or the heartbeat stopped.
    Unhealthy,
    /// The lease was released, transferred or dropped, or the quorum was closed.
    Released,
}

/// The deadline of one lease: the end of its validity, shared by its handle and the renewer. A check costs
/// one atomic load and one clock read.
///
/// The first check after the deadline *ends* the lease. A later extension cannot revive the lease, because
/// checks and extensions change the deadline by compare-and-swap on the same atomic.
#[derive(Debug)]
pub(crate) struct LeaseDeadline {
    /// The end of the validity that was granted when the lease was acquired, without any extension.
    granted_until: BootTime,
    valid_until: AtomicU64,
    /// The reason why the work was asked to stop. The reason is stored before the signal `step_down` fires.
    why: AtomicU8,
    /// The answer of each node when the work was asked to stop because too few nodes extended the lease.
    report: OnceLock<Box<NoMajority>>,
    /// True if the keys must expire on the nodes when the lease ends.
    keeps_keys: AtomicBool,
    pub(crate) step_down: Signal,
    pub(crate) lost: Signal,
    /// The gauges of the leader's term, if the lease is a leader's.
    gauges: TermGauges,
}

impl LeaseDeadline {
    pub(crate) fn new(valid_until: BootTime) -> Self {
        Self {
            granted_until: valid_until,
            valid_until: AtomicU64::new(stored(valid_until)),
            why: AtomicU8::new(NO_CAUSE),
            report: OnceLock::new(),
            keeps_keys: AtomicBool::new(false),
            step_down: Signal::default(),
            lost: Signal::default(),
            gauges: TermGauges::default(),
        }
    }

    /// Lets the keys expire on the nodes when the lease ends because its time is over. Otherwise they are released.
    pub(crate) fn keep_keys(&self) {
        self.keeps_keys.store(true, Ordering::Release);
    }

    pub(crate) fn keeps_keys(&self) -> bool {
        self.keeps_keys.load(Ordering::Acquire)
    }

    /// Reports the deadline and each later change of it to these gauges.
    pub(crate) fn report_to(&self, gauges: TermGauges, now: BootTime) {
        self.gauges.set(gauges);
        self.report_validity(self.remaining(now).unwrap_or_default());
    }

    /// Returns the end of the validity that was granted when the lease was acquired, without any extension.
    pub(crate) fn granted_until(&self) -> BootTime {
        self.granted_until
    }

    /// Returns how long the lease is valid from `now` on, or `None` if it has ended. If the deadline has
    /// passed, this call ends the lease.
    pub(crate) fn remaining(&self, now: BootTime) -> Option<Duration> {
        let mut seen = self.valid_until.load(Ordering::Acquire);
        loop {
            if is_over(seen) {
                return None;
            }
            let until = BootTime::from_nanos(seen);
            if now < until {
                return Some(now.until(until));
            }
            match self.swap(seen, ENDED | seen) {
                Ok(()) => {
                    self.report_validity(Duration::ZERO);
                    return None;
                }
                Err(other) => seen = other,
            }
        }
    }

    /// Moves the deadline to `until`, which may be earlier or later. Returns `false` if the lease has ended,
    /// either before this call or because its deadline has passed.
    pub(crate) fn set(&self, now: BootTime, until: BootTime) -> bool {
        let mut seen = self.valid_until.load(Ordering::Acquire);
        loop {
            if is_over(seen) {
                return false;
            }
            if seen == stored(until) && now < until {
                return true;
            }
            let alive = now < BootTime::from_nanos(seen) && now < until;
            match self.swap(seen, if alive { stored(until) } else { ENDED | seen }) {
                Ok(()) => {
                    self.report_validity(if alive { now.until(until) } else { Duration::ZERO });
                    return alive;
                }
                Err(other) => seen = other,
            }
        }
    }

    /// Returns when the lease ended, if its time was over by `now`: at its deadline, or by `now` if nodes lost their
    /// memory before the deadline. Returns `None` if the lease is valid, or if its holder has ended it.
    pub(crate) fn expired_at(&self, now: BootTime) -> Option<BootTime> {
        if self.remaining(now).is_some() {
            return None;
        }
        let seen = self.valid_until.load(Ordering::Acquire);
        (seen != RELEASED).then(|| BootTime::from_nanos(seen & !ENDED).min(now))
    }

    /// Records why the work is asked to stop. If a cause was recorded before, that cause is kept.
    pub(crate) fn record_cause(&self, cause: StepDownCause) {
        // An error means that a cause was recorded before. That cause is kept.
        let _ = self.why.compare_exchange(NO_CAUSE, cause as u8, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Returns the reason why the work was asked to stop. Returns `None` if it was not asked to stop.
    pub(crate) fn why(&self) -> Option<StepDownCause> {
        use StepDownCause::{MaxHold, NotExtended, Released, Unhealthy};
        let recorded = self.why.load(Ordering::Acquire);
        [NotExtended, MaxHold, Unhealthy, Released].into_iter().find(|cause| *cause as u8 == recorded)
    }

    /// Records the answer of each node to the extensions that failed. The first report is kept.
    pub(crate) fn record_report(&self, report: NoMajority) {
        self.report.get_or_init(|| Box::new(report));
    }

    /// Returns the answer of each node to the extensions that failed.
    pub(crate) fn report(&self) -> Option<&NoMajority> {
        self.report.get().map(|report| &**report)
    }

    /// Ends the lease.
    pub(crate) fn end(&self) {
        // An error means that the holder has ended the lease. The value `RELEASED` is kept then.
        let end = |seen| (!is_over(seen)).then_some(ENDED | seen);
        let ended = self.valid_until.fetch_update(Ordering::AcqRel, Ordering::Acquire, end);
        if ended.is_ok() {
            self.report_validity(Duration::ZERO);
        }
    }

    /// Returns whether the holder has ended the lease. In this case, the holder sends the renewer a command
    /// that says what happens to the lease's keys.
    pub(crate) fn is_released(&self) -> bool {
        self.valid_until.load(Ordering::Acquire) == RELEASED
    }

    /// Ends the lease because its holder releases it, and cancels the step-down token and the lost token. The
    /// caller must call this before it sends the first message of the release. So the work under the lease
    /// learns of the end before any node does.
    pub(crate) fn release(&self) {
        self.record_cause(StepDownCause::Released);
        self.valid_until.store(RELEASED, Ordering::Release);
        self.report_validity(Duration::ZERO);
        self.step_down.fire();
        self.lost.fire();
    }

    /// Reports the time for which the lease is valid.
    fn report_validity(&self, left: Duration) {
        self.gauges.remaining(left);
        // Another thread may have ended the lease, and reported that, before the line above.
        if is_over(self.valid_until.load(Ordering::Acquire)) {
            self.gauges.remaining(Duration::ZERO);
        }
    }

    fn swap(&self, seen: u64, new: u64) -> Result<(), u64> {
        self.valid_until.compare_exchange(seen, new, Ordering::AcqRel, Ordering::Acquire).map(drop)
    }
}

/// Returns the value of `valid_until` for a lease that is valid until `until`.
fn stored(until: BootTime) -> u64 {
    until.as_nanos().clamp(RELEASED + 1, ENDED - 1)
}

/// Returns whether `seen`, a value of `valid_until`, is that of a lease that has ended.
fn is_over(seen: u64) -> bool {
    seen == RELEASED || seen & ENDED != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(ms: u64) -> BootTime {
        BootTime::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn what_was_seen_ended_stays_ended() {
        let deadline = LeaseDeadline::new(at(100));
        assert_eq!(deadline.remaining(at(40)), Some(Duration::from_millis(60)));
        assert!(deadline.set(at(50), at(200)));
        assert_eq!(deadline.remaining(at(200)), None);
        assert!(
            !deadline.set(at(60), at(900)),
            "a late extension revives nothing, even by an older clock read"
        );
        assert_eq!(deadline.remaining(at(60)), None);
    }

    #[test]
    fn a_lease_expires_at_its_deadline_and_not_when_that_is_noticed() {
        let noticed = |deadline: &LeaseDeadline| deadline.expired_at(at(900));
        let unchecked = LeaseDeadline::new(at(100));
        assert_eq!(unchecked.expired_at(at(99)), None, "it is valid");
        assert_eq!(noticed(&unchecked), Some(at(100)), "this call is the first check");
        let renewed_late = LeaseDeadline::new(at(100));
        assert!(renewed_late.set(at(10), at(200)) && !renewed_late.set(at(700), at(800)));
        assert_eq!(noticed(&renewed_late), Some(at(200)), "the late extension does not prolong it");
        let forgotten = LeaseDeadline::new(at(1_000));
        assert!(!forgotten.set(at(500), at(0)));
        assert_eq!(
            forgotten.expired_at(at(501)),
            Some(at(501)),
            "nodes lost their memory before the deadline"
        );
        let ended = LeaseDeadline::new(at(100));
        ended.end();
        ended.end();
        assert_eq!(noticed(&ended), Some(at(100)));
        let released = LeaseDeadline::new(at(100));
        released.release();
        released.end();
        assert_eq!(noticed(&released), None, "its holder ended it");
        assert!(LeaseDeadline::new(BootTime::from_nanos(u64::MAX)).remaining(at(900)).is_some());
    }

    #[test]
    fn a_deadline_may_be_lowered_and_a_release_ends_it() {
        let deadline = LeaseDeadline::new(at(100));
        assert!(deadline.set(at(10), at(50)));
        assert_eq!(deadline.remaining(at(20)), Some(Duration::from_millis(30)));
        assert!(!deadline.set(at(20), at(15)), "lowered into the past, it ends");
        let released = LeaseDeadline::new(at(100));
        let (step_down, lost) = (released.step_down.token().clone(), released.lost.token().clone());
        released.release();
        assert_eq!(released.remaining(at(0)), None);
        assert_eq!(released.why(), Some(StepDownCause::Released));
        released.end();
        assert!(released.is_released() && !deadline.is_released(), "only the holder releases");
        assert!(step_down.is_cancelled() && lost.is_cancelled(), "at once, not once the renewer runs");
    }
}
