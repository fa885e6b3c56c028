/// A rule of the protocol. The name in brackets is that of `docs/design/ledger.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A node refuses the requests of leaders below its seal (N1).
    Fence,
    /// A node serves a leader only if exactly its seal is stored in the node's present memory (N2).
    Exact,
    /// An incomplete copy does not count in a takeover (N3).
    Complete,
    /// Of *start* and *void*, the first wins at each node (N4).
    First,
    /// A copied assignment has no register (N5).
    CopyRegister,
    /// A node has a register only if it was marked by the assigning leader before (N5).
    MarkedRegister,
    /// Writing the same assignment again keeps its register (N5).
    KeepRegister,
    /// The first seal of a new memory drops the registers that came back with old data (N5).
    Empty,
    /// A leader confirms before it decides (L1).
    Confirm,
    /// Only the copies with the newest mark decide (L2).
    NewestMark,
    /// A record counts once a majority stores it (L3).
    Majority,
    /// A write counts only at nodes that this leader has marked (L3).
    CountMarked,
    /// A node is marked only when it has everything that the leader has sent (L3).
    CopyAll,
    /// Before a node that forgot is marked, a majority confirms, after the copy (L4).
    JoinConfirm,
    /// The node that joins does not count in that majority (L4).
    JoinOthers,
    /// Only the holder of the latest lease founds (L5).
    FoundLatest,
    /// After a founding, every run without an end is unknown, not new (L5).
    FoundUnknown,
    /// After a founding, no run is repeated before all earlier sessions have ended (L6).
    FoundWait,
    /// A generation ends as not started only after a majority has voided it (L7).
    VoidMajority,
    /// A generation ends as lost only after its worker's session (L7).
    Session,
    /// A leader starts a handler only within its lease (L8).
    Lease,
    /// A worker starts after a majority has registered the start (W1).
    StartMajority,
    /// The id of an assignment contains the term that created it (W1).
    AssignmentId,
    /// A start counts only within the session as it was when the start was sent (W2).
    Valid,
    /// Only the worker reports an end, after its handler (W3).
    EndTrue,
}
