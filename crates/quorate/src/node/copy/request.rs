use super::AssignmentId;
use crate::node::FencingToken;
use std::sync::Arc;

/// A request of the leader that has sealed a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeadAct {
    /// Changes nothing. The reply shows that the copy is still sealed by this leader, in the same memory.
    Confirm,
    /// Stores a record. A node that stores a later write of this term changes nothing.
    Put {
        /// The key of the record, which begins with a letter.
        key: Arc<str>,
        /// The number of the write in the leader's term.
        seq: u64,
        /// The assignment that the record is. `None` if it is none.
        assignment: Option<AssignmentId>,
        /// The value.
        value: Arc<str>,
    },
    /// Removes records, with their registers and their ends. A node keeps each record of which it stores a later write of
    /// this term.
    Remove {
        /// The keys of the records, each of which begins with a letter.
        keys: Arc<[Arc<str>]>,
        /// The number of the removal in the leader's term. Writes and removals are numbered together.
        seq: u64,
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
