use super::AssignmentId;
use crate::node::FencingToken;
use std::sync::Arc;

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
