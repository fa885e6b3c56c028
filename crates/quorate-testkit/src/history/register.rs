use super::Specification;
use std::collections::BTreeMap;

/// A value outside of Quorate that holders of a lock read and replace, and that compares fences: it refuses a fence
/// that is smaller than the largest that it has seen, of a read or of a write.
///
/// A holder computes the new value from the value that it read. So an accepted write is only right if the value that
/// it replaces is the one from which it was computed: together, read and write are one atomic update, which is what
/// the lock is for. (In the same way Jepsen judges a compare-and-set register.) A store that does not compare is
/// judged with fences that are all equal.
///
/// Not judged: a refused write need not have been refused at once, and nothing is said about a read that is never
/// followed by a write.
#[derive(Clone, Debug)]
pub struct Register;

/// A fence: the fencing token, and a number that orders the accesses under one token. The number is 0 where a store
/// compares tokens alone.
pub type Fence = (u64, u64);

/// A call to a [`Register`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegisterCall {
    /// A process read a value.
    Read {
        /// The reader's fence.
        fence: Fence,
        /// The value.
        value: u64,
    },
    /// A process replaced the value.
    Written {
        /// The writer's fence.
        fence: Fence,
        /// The value from which the writer computed the new one.
        base: u64,
        /// The new value.
        value: u64,
    },
    /// A read or a write was refused because of its fence.
    Refused {
        /// The fence.
        fence: Fence,
    },
    /// A process read, and received no answer.
    ReadUnanswered {
        /// The reader's fence.
        fence: Fence,
    },
    /// A process sent a write, and received no answer. The write may arrive later, or never.
    WriteUnanswered {
        /// The writer's fence.
        fence: Fence,
        /// The value from which the writer computed the new one.
        base: u64,
        /// The new value.
        value: u64,
    },
}

/// The state of a [`Register`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RegisterState {
    newest: Fence,
    value: u64,
}

impl Specification for Register {
    type State = RegisterState;
    type Call = RegisterCall;

    fn initial() -> RegisterState {
        RegisterState::default()
    }

    fn apply(state: &RegisterState, call: &RegisterCall) -> Option<RegisterState> {
        let RegisterState { newest, value: stored } = *state;
        match *call {
            RegisterCall::Read { fence, value } => {
                (fence >= newest && value == stored).then_some(RegisterState { newest: fence, value })
            }
            RegisterCall::Written { fence, base, value } => {
                (fence >= newest && base == stored).then_some(RegisterState { newest: fence, value })
            }
            RegisterCall::Refused { fence } => (fence < newest).then_some(*state),
            RegisterCall::ReadUnanswered { fence } => {
                Some(RegisterState { newest: newest.max(fence), ..*state })
            }
            // If the write cannot be right now, it is judged as one that never arrives. If it did arrive, the value
            // that it stored is in no other accepted call, so a later read shows it.
            RegisterCall::WriteUnanswered { fence, base, value } => {
                let right = fence >= newest && base == stored;
                Some(if right { RegisterState { newest: fence, value } } else { *state })
            }
        }
    }

    /// The accepted writes form a path from the first value to the last. The last value is the only one that is
    /// reached once more often than it is left, whatever the order.
    fn settled(before: &RegisterState, calls: &[&RegisterCall]) -> Option<RegisterState> {
        let mut newest = before.newest;
        let mut reached: BTreeMap<u64, i64> = BTreeMap::from([(before.value, 1)]);
        for call in calls {
            match **call {
                RegisterCall::Read { fence, .. } => newest = newest.max(fence),
                RegisterCall::Written { fence, base, value } => {
                    newest = newest.max(fence);
                    *reached.entry(value).or_default() += 1;
                    *reached.entry(base).or_default() -= 1;
                }
                RegisterCall::Refused { .. } => {}
                RegisterCall::ReadUnanswered { .. } | RegisterCall::WriteUnanswered { .. } => return None,
            }
        }
        reached.retain(|_, times| *times != 0);
        match reached.first_key_value() {
            Some((value, 1)) if reached.len() == 1 => Some(RegisterState { newest, value: *value }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::testing::{accepted, during, open},
        *,
    };

    fn read(token: u64, value: u64) -> RegisterCall {
        RegisterCall::Read { fence: (token, 0), value }
    }

    fn written(token: u64, base: u64, value: u64) -> RegisterCall {
        RegisterCall::Written { fence: (token, 0), base, value }
    }

    fn refused(token: u64) -> RegisterCall {
        RegisterCall::Refused { fence: (token, 0) }
    }

    #[test]
    fn updates_follow_one_another() {
        assert!(accepted::<Register>(&[
            during(1, 2, read(5, 0)),
            during(3, 4, written(5, 0, 1)),
            during(5, 6, read(7, 1)),
            during(6, 9, written(7, 1, 2)),
            during(7, 10, read(8, 2)),
        ]));
    }

    #[test]
    fn a_lost_update_is_refused() {
        let lost = [
            during(1, 2, read(5, 0)),
            during(3, 4, read(7, 0)),
            during(5, 6, written(7, 0, 1)),
            during(7, 8, written(7, 0, 2)),
        ];
        assert!(!accepted::<Register>(&lost));
        let unfenced = [during(1, 2, written(0, 0, 1)), during(3, 4, written(0, 0, 2))];
        assert!(!accepted::<Register>(&unfenced), "a store that does not compare lost one too");
        assert!(
            !accepted::<Register>(&[during(1, 2, written(5, 0, 1)), during(3, 4, read(5, 0))]),
            "a stale read"
        );
    }

    #[test]
    fn a_smaller_fence_is_refused_and_no_other() {
        let late = |last| accepted::<Register>(&[during(1, 2, read(7, 0)), during(3, 4, last)]);
        assert!(late(refused(5)));
        assert!(!late(refused(7)));
        assert!(!late(written(5, 0, 1)));
        assert!(late(written(7, 0, 1)));
    }

    #[test]
    fn an_unanswered_write_may_arrive_late_or_never() {
        let unanswered = RegisterCall::WriteUnanswered { fence: (5, 0), base: 0, value: 9 };
        let then = |value| accepted::<Register>(&[open(1, unanswered), during(8, 9, read(5, value))]);
        assert!(then(0) && then(9));
        assert!(!then(3));
        assert!(!accepted::<Register>(&[during(1, 2, read(5, 9)), open(3, unanswered)]), "it was sent later");
        let reader = RegisterCall::ReadUnanswered { fence: (7, 0) };
        assert!(accepted::<Register>(&[open(1, reader), during(3, 4, refused(5))]));
        assert!(accepted::<Register>(&[open(1, reader), during(3, 4, written(5, 0, 1))]));
    }
}
