use crate::env::WallTime;
use crate::scheduler::schedule::crontab::shown;
use std::{
    any::Any,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, OnceLock},
};

/// A schedule of one's own.
///
/// It must be pure: the same answer to the same question, on every worker, at any time; otherwise workers
/// disagree on what a tick is, and one may run twice or not at all. Asked again with its own answer it walks
/// through all ticks. It is asked often (at a hand-over some hundred times): it should look nothing up.
pub trait Timetable: fmt::Debug + Send + Sync {
    /// The first tick strictly later than `after`; `None` where there is none any more.
    ///
    /// An answer that is not later, or a panic, is a fault: it is told once, in the log and by
    /// [`Schedule::fault`](super::Schedule::fault), and from then on the job has no ticks on this worker.
    fn next_after(&self, after: WallTime) -> Option<WallTime>;

    /// What people are shown, in one line. Equal timetables are told apart from changed ones by it.
    fn describe(&self) -> String;
}

/// A [`Timetable`], guarded.
#[derive(Clone)]
pub struct CustomSchedule {
    table: Arc<dyn Timetable>,
    text: Arc<str>,
    fault: Arc<OnceLock<String>>,
}

impl CustomSchedule {
    /// Takes a timetable in.
    pub fn new(table: impl Timetable + 'static) -> Self {
        let fault = OnceLock::new();
        let text = match catch_unwind(AssertUnwindSafe(|| table.describe())) {
            Ok(text) => shown(&text),
            Err(_) => "a timetable that cannot say what it is".to_owned(),
        };
        Self { table: Arc::new(table), text: text.into(), fault: Arc::new(fault) }
    }

    /// The first tick strictly later than `after`; none after a fault.
    pub fn next_after(&self, after: WallTime) -> Option<WallTime> {
        if self.fault.get().is_some() {
            return None;
        }
        let fault = match catch_unwind(AssertUnwindSafe(|| self.table.next_after(after))) {
            Ok(None) => return None,
            Ok(Some(tick)) if tick > after => return Some(tick),
            Ok(Some(tick)) => format!("asked for a tick later than {after:?} it gave {tick:?}"),
            Err(panic) => format!("asked for a tick later than {after:?} it panicked: {}", message(&*panic)),
        };
        if self.fault.set(fault).is_ok() {
            let why = self.error().unwrap_or_default();
            tracing::error!(
                schedule = &*self.text,
                "a job has no more ticks: its timetable is at fault: {why}"
            );
        }
        None
    }

    /// What its timetable did that it must not.
    pub fn error(&self) -> Option<&str> {
        self.fault.get().map(String::as_str)
    }
}

fn message(panic: &(dyn Any + Send)) -> String {
    shown(crate::panic::message(panic))
}

/// The same timetable, or one that says the same of itself.
impl PartialEq for CustomSchedule {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.fault, &other.fault) || self.text == other.text
    }
}

impl Eq for CustomSchedule {}

impl fmt::Display for CustomSchedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for CustomSchedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CustomSchedule({:?})", self.table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct By(fn(u64) -> Option<u64>);

    impl Timetable for By {
        fn next_after(&self, after: WallTime) -> Option<WallTime> {
            (self.0)(after.as_micros()).map(WallTime::from_micros)
        }
        fn describe(&self) -> String {
            "by\na rule of its own".to_owned()
        }
    }

    #[test]
    fn a_good_one_is_asked_and_a_bad_one_ends() {
        let at = WallTime::from_micros;
        let good = CustomSchedule::new(By(|after| (after < 10).then_some(after + 1)));
        assert_eq!((good.next_after(at(3)), good.next_after(at(10))), (Some(at(4)), None));
        assert_eq!((good.error(), good.to_string()), (None, "by a rule of its own".to_owned()));

        let stuck = CustomSchedule::new(By(|after| Some(after.min(7))));
        assert_eq!(stuck.next_after(at(3)), None, "not later: no walk may hang on it");
        assert!(stuck.error().unwrap().contains("later than 0.000003 it gave 0.000003"));
        let wild =
            CustomSchedule::new(By(|after| if after > 5 { panic!("no idea") } else { Some(after + 1) }));
        assert_eq!(wild.next_after(at(1)), Some(at(2)));
        assert_eq!(wild.next_after(at(6)), None);
        assert!(wild.error().unwrap().ends_with("panicked: no idea"));
        assert_eq!(wild.next_after(at(1)), None, "it has ended, for every clone");
        assert_eq!(wild.clone().next_after(at(1)), None);
    }
}
