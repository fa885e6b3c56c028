use super::AssignmentId;
use crate::node::FencingToken;
use std::sync::Arc;

/// The largest number of writes in one request. The writes for one node share requests, because a request costs a node and
/// this program more than a write in it.
const WRITES_AT_ONCE: usize = 64;
/// The largest number of bytes of the writes in one request, except for a single longer write. A server serves nothing else
/// meanwhile.
const BYTES_AT_ONCE: usize = 64 << 10;

/// A request of the leader that has sealed a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeadAct {
    /// Changes nothing. The reply shows that the copy is still sealed by this leader, in the same memory.
    Confirm,
    /// Stores or removes records. A node leaves out each write of a record of which it stores a later one of this term.
    Put {
        /// The writes, no two of one record.
        writes: Arc<[Put]>,
    },
    /// Marks the copy as equal to that of the leader.
    Mark {
        /// The term of the leader that founded the ledger.
        founded: FencingToken,
    },
    /// Registers that the assignment must not start.
    Void {
        /// The key of the record.
        key: Arc<str>,
        /// The assignment.
        id: AssignmentId,
    },
}

impl LeadAct {
    /// Puts the writes into as few requests as their limits allow, in their order.
    pub(crate) fn puts(writes: impl Iterator<Item = Put>) -> Vec<Self> {
        let (mut requests, mut bytes): (Vec<Vec<Put>>, usize) = (Vec::new(), 0);
        for write in writes {
            let size = write.key.len() + write.value.as_ref().map_or(0, |value| value.len());
            bytes += size;
            match requests.last_mut().filter(|last| last.len() < WRITES_AT_ONCE && bytes <= BYTES_AT_ONCE) {
                Some(last) => last.push(write),
                None => {
                    requests.push(vec![write]);
                    bytes = size;
                }
            }
        }
        requests.into_iter().map(|writes| Self::Put { writes: writes.into() }).collect()
    }
}

/// A leader's write of one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Put {
    /// The key of the record, which begins with a letter.
    pub key: Arc<str>,
    /// The number of the write in the leader's term.
    pub seq: u64,
    /// The assignment that the record is. `None` if it is none, or if it is removed.
    pub assignment: Option<AssignmentId>,
    /// The value. `None` removes the record, with its register and its end.
    pub value: Option<Arc<str>>,
}

/// A request of the worker to which a run was assigned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkAct {
    /// Registers that the assignment starts.
    Start,
    /// Stores the end of the run.
    End {
        /// The end.
        value: Arc<str>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of writes in each request for writes of these sizes.
    fn shared(sizes: impl IntoIterator<Item = usize>) -> Vec<usize> {
        let put = |size: usize| Put {
            key: "k".into(),
            seq: 1,
            assignment: None,
            value: Some("v".repeat(size - 1).into()),
        };
        let count = |act| match act {
            LeadAct::Put { writes } => writes.len(),
            other => panic!("{other:?}"),
        };
        LeadAct::puts(sizes.into_iter().map(put)).into_iter().map(count).collect()
    }

    #[test]
    fn writes_share_requests_up_to_a_number_and_a_size() {
        assert_eq!(shared([]), [0; 0]);
        assert_eq!(shared([9; WRITES_AT_ONCE + 1]), [WRITES_AT_ONCE, 1]);
        let half = BYTES_AT_ONCE / 2;
        assert_eq!(shared([half, half, 1, 2 * half, 1, half, half]), [2, 1, 1, 2, 1]);
        assert_eq!(shared([2 * BYTES_AT_ONCE, 1]), [1, 1], "a long write has a request of its own");
    }
}
