//! Informs the user of an unoptimized build why a test of many virtual hours is slow.

use std::{
    io::Write,
    sync::{Mutex, PoisonError},
    time::Duration,
};

/// The virtual time of all tests of a process after which the hint is given.
const MUCH: Duration = Duration::from_secs(24 * 3600);
const HINT: &str = "quorate-test: this build is not optimized, so virtual days take about twenty times as long. \
                    Add to the Cargo.toml of the workspace:\n[profile.dev.package.\"*\"]\nopt-level = 1\n";

/// Adds up the virtual time of a process.
#[derive(Debug)]
struct Passed {
    time: Duration,
    is_optimized: bool,
    said: bool,
}

impl Passed {
    /// Adds `time`. Returns whether the hint is due now, which is so once at most.
    fn add(&mut self, time: Duration) -> bool {
        self.time = self.time.saturating_add(time);
        let due = !self.is_optimized && !self.said && self.time >= MUCH;
        self.said |= due;
        due
    }
}

/// Notes that `time` passes in a test.
pub(crate) fn passes(time: Duration) {
    const IS_OPTIMIZED: bool = !matches!(env!("QUORATE_TEST_OPT_LEVEL").as_bytes(), b"0");
    static PASSED: Mutex<Passed> =
        Mutex::new(Passed { time: Duration::ZERO, is_optimized: IS_OPTIMIZED, said: false });
    if PASSED.lock().unwrap_or_else(PoisonError::into_inner).add(time) {
        // `eprintln!` would be captured with the output of the test, and not be shown if the test passes.
        let _ = std::io::stderr().write_all(HINT.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hint_is_given_once_after_a_day_of_an_unoptimized_build() {
        let passed = |is_optimized| Passed { time: Duration::ZERO, is_optimized, said: false };
        let mut slow = passed(false);
        assert_eq!([1, 2, 1, 9].map(|thirds| slow.add(MUCH / 3 * thirds)), [false, true, false, false]);
        assert!(!passed(true).add(Duration::MAX));
        assert!(HINT.contains("[profile.dev.package.\"*\"]"));
    }
}
