use super::{
    Event, Moments,
    grants::{ChangeKind, Grants},
    judge,
};
use crate::{
    history::{Findings, History, Lock, LockCall, Operation},
    sim::invariant::Invariant,
};
use quorate::node::ResourceKind;
use std::time::Duration;

/// Requires that the grants of each lock and of each group's leadership are linearizable as a [`Lock`].
#[derive(Debug)]
pub(in super::super) struct LockHistory {
    moments: Moments,
    grants: Grants,
    history: History<Lock>,
    findings: Findings,
}

impl Default for LockHistory {
    fn default() -> Self {
        Self {
            moments: Moments::default(),
            grants: Grants::of(&[ResourceKind::Lock, ResourceKind::Election]),
            history: History::default(),
            findings: Findings::default(),
        }
    }
}

impl Invariant for LockHistory {
    fn name(&self) -> &'static str {
        "lock history"
    }

    fn judged(&self) -> Vec<(&'static str, u64)> {
        super::judged!(self.findings, "locks")
    }

    fn see(&mut self, now: Duration, event: &Event<'_>) -> Result<(), String> {
        let at = self.moments.next(now);
        for change in self.grants.see(at, event) {
            let token = change.token;
            let call = match change.kind {
                ChangeKind::Begins => LockCall::Acquired { token },
                ChangeKind::GivenUp => LockCall::Released { token },
                ChangeKind::Expires => LockCall::Expired { token },
            };
            let operation = Operation::during(&change.worker, call, change.from, change.to);
            self.history.push(&change.name, operation);
        }
        match event {
            Event::Over => judge(&self.history, &mut self.findings),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::super::belief, *};

    #[test]
    fn two_believers_at_one_moment_are_found() {
        let run = |beliefs: &[_]| {
            let mut locks = LockHistory::default();
            let first = belief(1, "a", 5, true);
            let second = belief(2, "b", 7, true);
            let mut see = |event: Event<'_>| locks.see(Duration::from_millis(1), &event);
            see(Event::Granted(&first)).unwrap();
            see(Event::Looked(std::slice::from_ref(&first))).unwrap();
            see(Event::Granted(&second)).unwrap();
            see(Event::Looked(beliefs)).unwrap();
            let verdict = see(Event::Over);
            assert_eq!(locks.judged()[1].1, 0);
            verdict
        };
        let (first, second) = (belief(1, "a", 5, true), belief(2, "b", 7, true));
        assert_eq!(run(&[belief(1, "a", 5, false), second.clone()]), Ok(()));
        assert_eq!(run(std::slice::from_ref(&second)), Ok(()));
        let why = run(&[first, second]).unwrap_err();
        assert!(why.starts_with("x: no order is right"), "{why}");
    }
}
