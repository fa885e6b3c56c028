use crate::{env::WallTime, scheduler::schedule::error::shown};
use std::{
    any::Any,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, OnceLock},
};

/// A user-defined schedule, for [`Schedule::custom`](super::Schedule::custom).
///
/// [`Timetable::next_after`] must be a pure function: for the same argument, it returns the same tick on every
/// worker and at any time. Otherwise the workers compute different ticks, and a tick may run twice or not at
/// all. If each result is passed to the next call, the calls must return all ticks in order. The method should
/// not read files or use the network, because a new leader calls it about a hundred times when it takes over
/// the job.
pub trait Timetable: fmt::Debug + Send + Sync {
    /// Returns the first tick strictly later than `after`, or `None` after the last tick.
    ///
    /// A panic is an error, and so is a result that is not later than `after`. The error is logged once, and
    /// [`Schedule::error`](super::Schedule::error) returns it. From then on the job has no ticks on this
    /// worker.
    fn next_after(&self, after: WallTime) -> Option<WallTime>;

    /// Returns a description for people, in one line. Two timetables with the same description are treated as
    /// equal. If the description changes, the schedule of the job has changed.
    fn describe(&self) -> String;
}

/// A [`Timetable`] whose results are checked, and whose panics are caught.
#[derive(Clone)]
pub(super) struct GuardedTimetable {
    table: Arc<dyn Timetable>,
    text: Arc<str>,
    error: Arc<OnceLock<String>>,
}

impl GuardedTimetable {
    pub(super) fn new(table: impl Timetable + 'static) -> Self {
        let error = OnceLock::new();
        let text = match catch_unwind(AssertUnwindSafe(|| table.describe())) {
            Ok(text) => shown(&text),
            Err(_) => "a timetable whose description panicked".to_owned(),
        };
        Self { table: Arc::new(table), text: text.into(), error: Arc::new(error) }
    }

    /// Returns the first tick strictly later than `after`. Returns `None` if the timetable has no such tick, or
    /// if the timetable has caused an error before.
    pub(super) fn next_after(&self, after: WallTime) -> Option<WallTime> {
        if self.error.get().is_some() {
            return None;
        }
        let error = match catch_unwind(AssertUnwindSafe(|| self.table.next_after(after))) {
            Ok(None) => return None,
            Ok(Some(tick)) if tick > after => return Some(tick),
            Ok(Some(tick)) => format!("asked for a tick later than {after:?} it gave {tick:?}"),
            Err(panic) => format!("asked for a tick later than {after:?} it panicked: {}", message(&*panic)),
        };
        if self.error.set(error).is_ok() {
            let reason = self.error().unwrap_or_default();
            tracing::error!(
                schedule = &*self.text,
                "a job has no more ticks, because its timetable is invalid: {reason}"
            );
        }
        None
    }

    /// Returns the first error of the timetable.
    pub(super) fn error(&self) -> Option<&str> {
        self.error.get().map(String::as_str)
    }
}

fn message(panic: &(dyn Any + Send)) -> String {
    shown(crate::panic::message(panic))
}

/// Two timetables are equal if they are the same object, or if their descriptions are the same.
impl PartialEq for GuardedTimetable {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.error, &other.error) || self.text == other.text
    }
}

impl Eq for GuardedTimetable {}

impl fmt::Display for GuardedTimetable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for GuardedTimetable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GuardedTimetable({:?})", self.table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Rule(fn(u64) -> Option<u64>);

    impl Timetable for Rule {
        fn next_after(&self, after: WallTime) -> Option<WallTime> {
            (self.0)(after.as_micros()).map(WallTime::from_micros)
        }
        fn describe(&self) -> String {
            "by\na rule of its own".to_owned()
        }
    }

    #[test]
    fn a_valid_timetable_is_called_and_an_invalid_one_ends() {
        let at = WallTime::from_micros;
        let good = GuardedTimetable::new(Rule(|after| (after < 10).then_some(after + 1)));
        assert_eq!((good.next_after(at(3)), good.next_after(at(10))), (Some(at(4)), None));
        assert_eq!((good.error(), good.to_string()), (None, "by a rule of its own".to_owned()));

        let stuck = GuardedTimetable::new(Rule(|after| Some(after.min(7))));
        assert_eq!(stuck.next_after(at(3)), None, "not later: a walk would never end");
        assert!(stuck.error().unwrap().contains("later than 0.000003 it gave 0.000003"));
        let wild =
            GuardedTimetable::new(Rule(|after| if after > 5 { panic!("no idea") } else { Some(after + 1) }));
        assert_eq!(wild.next_after(at(1)), Some(at(2)));
        assert_eq!(wild.next_after(at(6)), None);
        assert!(wild.error().unwrap().ends_with("panicked: no idea"));
        assert_eq!(wild.next_after(at(1)), None, "no more ticks, for every clone");
        assert_eq!(wild.clone().next_after(at(1)), None);
    }
}
