use super::{moment, process};
use crate::harness::{Entry, Event};
use quorate::env::BootTime;
use quorate_testkit::history::{Findings, History, Limits, Operation, Register, RegisterCall};
use quorate_tests::support::Who;
use std::collections::BTreeMap;

/// The calls of workers to the store that their lock protects.
#[derive(Debug)]
pub(crate) struct Calls {
    /// True if the store compares tokens. Otherwise the history has no tokens, so that each accepted write must be
    /// right by itself.
    fences: bool,
    history: History<Register>,
    /// The calls that have not returned.
    open: BTreeMap<Who, Call>,
}

#[derive(Clone, Copy, Debug)]
struct Call {
    at: BootTime,
    token: u64,
    write: Option<[u64; 2]>,
}

impl Calls {
    pub(crate) fn new(fences: bool) -> Self {
        Self { fences, history: History::default(), open: BTreeMap::new() }
    }

    pub(crate) fn on_event(&mut self, who: Who, entry: &Entry) {
        match entry.event {
            Event::StoreCalled { token, write } => {
                self.open.insert(who, Call { at: entry.at(), token, write });
            }
            Event::StoreReturned { value } => {
                let Some(call) = self.open.remove(&who) else { return };
                let fence = self.fence(&call);
                let returned = match (call.write, value) {
                    (_, None) => RegisterCall::Refused { fence },
                    (None, Some(value)) => RegisterCall::Read { fence, value },
                    (Some([base, _]), Some(value)) => RegisterCall::Written { fence, base, value },
                };
                self.push(Operation::during(&process(who), returned, moment(call.at), moment(entry.at())));
            }
            _ => {}
        }
    }

    /// Checks the history, in which each call that has not returned may or may not have taken effect.
    pub(crate) fn finish(mut self) -> Findings {
        for (who, call) in std::mem::take(&mut self.open) {
            let fence = self.fence(&call);
            let unanswered = match call.write {
                None => RegisterCall::ReadUnanswered { fence },
                Some([base, value]) => RegisterCall::WriteUnanswered { fence, base, value },
            };
            self.push(Operation::open(&process(who), unanswered, moment(call.at)));
        }
        self.history.check(&Limits::default())
    }

    fn fence(&self, call: &Call) -> (u64, u64) {
        if self.fences { (call.token, 0) } else { (0, 0) }
    }

    fn push(&mut self, operation: Operation<RegisterCall>) {
        self.history.push(&"the store".into(), operation);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{line, who};

    /// Returns the number of violations in calls, each with its worker, its begin, its token, its write, and its end
    /// and result.
    fn found(
        fences: bool,
        calls: &[(usize, u64, u64, Option<[u64; 2]>, Option<(u64, Option<u64>)>)],
    ) -> usize {
        let mut all = Calls::new(fences);
        for (member, begin, token, write, returned) in calls {
            all.on_event(who(*member), &line(*begin, Event::StoreCalled { token: *token, write: *write }));
            if let Some((end, value)) = returned {
                all.on_event(who(*member), &line(*end, Event::StoreReturned { value: *value }));
            }
        }
        let found = all.finish();
        assert!(found.undecided.is_empty(), "{found:?}");
        found.violations.len()
    }

    #[test]
    fn the_late_write_of_a_paused_worker_is_found_unless_the_store_refuses_it() {
        let before = [
            (0, 1, 5, None, Some((2, Some(0)))),
            (1, 3, 7, None, Some((4, Some(0)))),
            (1, 5, 7, Some([0, 8]), Some((6, Some(8)))),
        ];
        let with = |late| [before.to_vec(), vec![late]].concat();
        let (accepted, refused) = (Some((9, Some(9))), Some((9, None)));
        assert_eq!(found(true, &with((0, 8, 5, Some([0, 9]), refused))), 0);
        assert_eq!(found(true, &with((0, 8, 5, Some([0, 9]), accepted))), 1);
        assert_eq!(found(false, &with((0, 8, 5, Some([0, 9]), accepted))), 1);
        assert_eq!(
            found(false, &with((0, 8, 5, Some([8, 9]), accepted))),
            0,
            "it read after the other's write"
        );
    }

    #[test]
    fn a_write_of_a_killed_worker_may_have_taken_effect() {
        let killed = |read| {
            let late = (1, 8, 7, None, Some((9, Some(read))));
            found(true, &[(0, 1, 5, None, Some((2, Some(0)))), (0, 3, 5, Some([0, 9]), None), late])
        };
        assert_eq!((killed(9), killed(0), killed(4)), (0, 0, 1));
    }
}
