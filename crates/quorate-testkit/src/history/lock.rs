use super::Specification;
use std::collections::BTreeSet;

/// A lock that is held under leases. At most one holder believes in its lease, and the fencing tokens grow in the
/// order of the grants.
///
/// A lease is not a lock beyond its validity. So this specification is about the *belief* of the holder: the lease
/// begins when the holder could first see it valid, and ends when the holder gave it up or could no longer see it
/// valid. It does not judge how long a server still stores the lock's key, nor work that continues after the end of
/// the lease. Attempts that no process saw granted are no operations: nothing is held under them.
#[derive(Clone, Debug)]
pub struct Lock;

/// A call to a [`Lock`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockCall {
    /// A process acquired the lock.
    Acquired {
        /// The fencing token.
        token: u64,
    },
    /// The holder gave the lease up: it released, transferred or dropped the lease.
    Released {
        /// The fencing token.
        token: u64,
    },
    /// The holder found that the lease is not valid any more.
    Expired {
        /// The fencing token.
        token: u64,
    },
}

/// The state of a [`Lock`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct LockState {
    /// The token of the holder.
    holder: Option<u64>,
    /// The token of the last grant.
    newest: u64,
}

impl Specification for Lock {
    type State = LockState;
    type Call = LockCall;

    fn initial() -> LockState {
        LockState::default()
    }

    fn apply(state: &LockState, call: &LockCall) -> Option<LockState> {
        match *call {
            LockCall::Acquired { token } => (state.holder.is_none() && token > state.newest)
                .then_some(LockState { holder: Some(token), newest: token }),
            LockCall::Released { token } | LockCall::Expired { token } => {
                (state.holder == Some(token)).then_some(LockState { holder: None, ..*state })
            }
        }
    }

    fn settled(before: &LockState, calls: &[&LockCall]) -> Option<LockState> {
        let mut held: BTreeSet<u64> = before.holder.into_iter().collect();
        let mut newest = before.newest;
        for call in calls {
            if let LockCall::Acquired { token } = call {
                newest = newest.max(*token);
                held.insert(*token);
            }
        }
        for call in calls {
            if let LockCall::Released { token } | LockCall::Expired { token } = call {
                held.remove(token);
            }
        }
        (held.len() <= 1).then(|| LockState { holder: held.first().copied(), newest })
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::testing::{accepted, during, open},
        *,
    };

    fn acquired(token: u64) -> LockCall {
        LockCall::Acquired { token }
    }

    fn released(token: u64) -> LockCall {
        LockCall::Released { token }
    }

    fn expired(token: u64) -> LockCall {
        LockCall::Expired { token }
    }

    #[test]
    fn one_holder_follows_the_other() {
        assert!(accepted::<Lock>(&[]));
        assert!(accepted::<Lock>(&[
            during(1, 2, acquired(5)),
            during(3, 4, released(5)),
            during(5, 6, acquired(7)),
            during(8, 9, expired(7)),
            during(9, 12, acquired(8)),
        ]));
        // The second holder acquires while the first releases, and waited for it since the first acquired.
        assert!(accepted::<Lock>(&[
            during(1, 2, acquired(5)),
            during(3, 8, released(5)),
            during(2, 6, acquired(7))
        ]));
    }

    #[test]
    fn two_holders_at_one_time_are_refused() {
        let two = [during(1, 2, acquired(5)), during(3, 4, acquired(7)), during(5, 6, released(5))];
        assert!(!accepted::<Lock>(&two));
        assert!(!accepted::<Lock>(&two[..2]), "the first holder's lease does not end");
        let in_time = [two[0].clone(), two[1].clone(), during(2, 6, expired(5))];
        assert!(accepted::<Lock>(&in_time), "the lease may have ended before the second grant");
    }

    #[test]
    fn a_release_of_unknown_result_may_have_taken_effect() {
        let first = [during(1, 2, acquired(5)), open(3, released(5)), during(9, 10, acquired(7))];
        assert!(accepted::<Lock>(&first));
        let early = [during(1, 2, acquired(5)), open(11, released(5)), during(9, 10, acquired(7))];
        assert!(!accepted::<Lock>(&early), "it was sent after the second grant");
    }

    #[test]
    fn tokens_that_repeat_or_fall_are_refused() {
        let next = |token| {
            accepted::<Lock>(&[
                during(1, 2, acquired(5)),
                during(3, 4, released(5)),
                during(5, 6, acquired(token)),
            ])
        };
        assert!(next(6));
        assert!(!next(5));
        assert!(!next(4));
    }

    #[test]
    fn only_the_holder_releases() {
        assert!(!accepted::<Lock>(&[during(1, 2, acquired(5)), during(3, 4, released(6))]));
        assert!(!accepted::<Lock>(&[during(1, 2, released(5))]));
    }
}
