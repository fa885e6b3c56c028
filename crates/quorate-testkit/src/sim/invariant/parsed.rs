//! Parses the records of runs that leaders write.

use quorate::internals::RunRecord;
use std::{cell::RefCell, collections::VecDeque, rc::Rc, sync::Arc};

/// The number of values that are kept. A leader writes few records at the same time.
const KEPT: usize = 16;

/// A parsed record, or the error of a value that is none.
type Parsed = Rc<Result<RunRecord, String>>;

thread_local! {
    static RECENT: RefCell<VecDeque<(Arc<str>, Parsed)>> = const { RefCell::new(VecDeque::new()) };
}

/// Parses the value of a record. A leader writes the same value to every server, and several invariants look at each
/// write. So the last values are kept. A value is recognized by its address, which no other value has while it is kept.
pub(super) fn run_record(value: &Arc<str>) -> Parsed {
    RECENT.with_borrow_mut(|recent| {
        if let Some((_, parsed)) = recent.iter().find(|(known, _)| Arc::ptr_eq(known, value)) {
            return Rc::clone(parsed);
        }
        let parsed = Rc::new(RunRecord::parse(value).map_err(|error| error.to_string()));
        recent.truncate(KEPT - 1);
        recent.push_front((Arc::clone(value), Rc::clone(&parsed)));
        parsed
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate::{env::WallTime, node::FencingToken};

    #[test]
    fn a_value_is_parsed_once_and_is_not_mistaken_for_another() {
        let record =
            |worker: &str| RunRecord::started(worker, (FencingToken::new(1), WallTime::from_micros(5)));
        let value = |worker: &str| record(worker).to_value();
        let (one, other) = (value("a"), value("b"));
        let parsed = run_record(&one);
        assert_eq!(*parsed, Ok(record("a")));
        assert_eq!(*run_record(&other), Ok(record("b")));
        assert!(Rc::ptr_eq(&parsed, &run_record(&one)));
        assert!(run_record(&"no record".into()).is_err());
        (0..KEPT).for_each(|number| drop(run_record(&value(&number.to_string()))));
        assert!(!Rc::ptr_eq(&parsed, &run_record(&one)), "it was dropped");
        assert_eq!(parsed, run_record(&one));
    }
}
