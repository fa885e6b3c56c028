use quorate::node::StampStep;

/// One step of a history. Names, owners, keys and texts are given as numbers, whose values are in the tables
/// of `values.rs`. A printed history is therefore short, and is Rust code that can be pasted into a
/// regression test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Sends one batch on the open session.
    Batch(Vec<Ask>, Late, Stamp),
    /// Lets time pass. A lease or counter with one of the lifetimes in [`Life`] may end.
    Pass(Pass),
    /// Opens another session.
    Reopen,
    /// Restarts the node's process or server with its data. The run id may change, but no data does.
    Restart,
    /// Makes the node forget everything, including its marker. The marker is then set again.
    Flush,
}

/// The deadline of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Late {
    /// `not_after` is an hour ahead, or, if no request has a brief lifetime, a second.
    InTime,
    /// `not_after` is a second ahead.
    Soon,
    /// `not_after` is the latest time that can be expressed.
    Never,
    /// `not_after` passed ten seconds ago.
    Past,
    /// `not_after` is the earliest time that can be expressed.
    Epoch,
}

/// The marker that a batch names. The node refuses most requests of a batch that names another marker than
/// the stored one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stamp {
    /// The marker that the node stores.
    Right,
    /// The marker with this number. It may be the stored one by chance.
    Other(u8),
}

/// A span of time that a history lets pass. Every sum of these spans differs from each [`Life`] by at least a
/// second. At every step it is therefore certain which leases have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// Six seconds.
    Little,
    /// Fourteen seconds.
    More,
    /// Two hours.
    Much,
}

/// The lifetime that a request sets for a lease, a counter or a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// No time.
    Zero,
    /// Half a millisecond, which a server rounds up to a whole one.
    Half,
    /// Three milliseconds.
    Tiny,
    /// Nine seconds.
    Short,
    /// Twenty-two seconds.
    Middle,
    /// An hour, less a second.
    Long,
    /// The longest time that can be expressed.
    Endless,
}

/// A token, a count or a term. Most variants are relative to the stored value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// The stored value, plus this number.
    Standing(i8),
    /// A small number, given here.
    Small(u8),
    /// The largest token, plus this number (which may be negative).
    Top(i8),
    /// The largest number of 64 bits.
    Huge,
}

/// The largest difference between a proposed time and the node's clock that a request asks the node to
/// accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tolerance {
    /// No difference.
    None,
    /// Twenty days, which is more than all the time that passes in a history.
    Days,
    /// Any difference.
    Any,
}

/// A time in a request. For example, a request proposes such a time as the start of a counter that a resource
/// does not have yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// This number of microseconds after the beginning of 1970.
    Early(u8),
    /// Shortly before the history began.
    Now,
    /// A year after the history began.
    Ahead,
    /// A year before the history began.
    Ago,
    /// The largest token, plus this number.
    Top(i8),
    /// The latest time that can be expressed.
    End,
}

/// The record that a write names as the one that its sender has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// The stored record.
    Right,
    /// No record.
    Nothing,
    /// The stored record, with the opposite value of the field that says whether a record is final.
    OtherFinality,
    /// The stored record with another value.
    OtherValue,
}

/// A request in which names and values are given by number.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are those of `Request`, by number")]
pub enum Ask {
    Acquire {
        resource: u8,
        owner: u8,
        ttl: Life,
        propose: When,
        tolerance: Tolerance,
        keep: Life,
        ticket: Option<u8>,
    },
    Raise {
        resource: u8,
        owner: u8,
        to: Count,
        keep: Life,
    },
    Extend {
        resource: u8,
        owner: u8,
        ttl: Life,
        token: Count,
        keep: Life,
    },
    Reserve {
        resource: u8,
        owner: u8,
        successor: u8,
        ttl: Life,
    },
    Release {
        resource: u8,
        owner: u8,
    },
    Share {
        resource: u8,
        owner: u8,
        ttl: Life,
        ticket: Option<u8>,
    },
    ExtendShare {
        resource: u8,
        owner: u8,
        ttl: Life,
    },
    ReleaseShare {
        resource: u8,
        owner: u8,
    },
    Downgrade {
        resource: u8,
        owner: u8,
        token: Count,
        reader: u8,
        ttl: Life,
    },
    Queue {
        resource: u8,
        ticket: u8,
        at: When,
        now: When,
        tolerance: Tolerance,
        ttl: Life,
        exclusive: bool,
    },
    LeaveQueue {
        resource: u8,
        ticket: u8,
    },
    Inspect {
        resource: u8,
    },
    Complete {
        resource: u8,
        owner: u8,
        token: Count,
        result: u8,
        payload: u8,
        dead_lettered: bool,
        retention: Life,
    },
    Count {
        resource: u8,
        owner: u8,
        attempts: u8,
        payload: u8,
        withdraw: bool,
        keep: Life,
    },
    ResetAttempts {
        resource: u8,
        keep: Life,
    },
    Write {
        ledger: u8,
        key: u8,
        seen: Seen,
        at: When,
        written_in: Count,
        last: bool,
        value: u8,
    },
    Prune {
        ledger: u8,
        below: When,
    },
    SealCopy {
        ledger: u8,
        seal: (u8, u8),
    },
    Lead {
        ledger: u8,
        seal: (u8, u8),
        memory: u8,
        act: Led,
    },
    Work {
        ledger: u8,
        key: u8,
        id: (u8, u8),
        end: Option<u8>,
    },
    Read {
        ledger: u8,
        key: Option<u8>,
    },
    Mark {
        expect: Option<Stamp>,
        marker: u8,
    },
    Stamp {
        own: u8,
        known: [u64; 2],
        step: StampStep,
    },
}

/// A request of the leader of a ledger, in which names and values are given by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are those of `LeadAct`, by number")]
pub enum Led {
    Confirm,
    Put { writes: [Option<Write>; 2] },
    Mark { founded: u8 },
    Void { key: u8, id: (u8, u8) },
}

/// A leader's write of a record, by numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are those of `Put`, by number")]
pub struct Write {
    pub key: u8,
    pub seq: u8,
    pub assignment: Option<(u8, u8)>,
    pub value: Option<u8>,
}

impl Ask {
    /// Returns `true` if this request sets a lifetime that may end before the batch does.
    pub(super) fn is_brief(&self) -> bool {
        match self {
            Self::Acquire { ttl, keep, .. } | Self::Extend { ttl, keep, .. } => {
                ttl.is_brief() || keep.is_brief()
            }
            Self::Share { ttl, .. }
            | Self::ExtendShare { ttl, .. }
            | Self::Downgrade { ttl, .. }
            | Self::Queue { ttl, .. } => ttl.is_brief(),
            Self::Raise { keep, .. } | Self::Count { keep, .. } | Self::ResetAttempts { keep, .. } => {
                keep.is_brief()
            }
            Self::Reserve { ttl, .. } => ttl.is_brief(),
            Self::Complete { retention, .. } => retention.is_brief(),
            _ => false,
        }
    }
}

impl Life {
    fn is_brief(self) -> bool {
        matches!(self, Self::Zero | Self::Half | Self::Tiny)
    }
}

/// Returns the number of requests in `steps` plus the number of all other steps. This size measures how far a
/// history has been shrunk.
pub fn asks_in(steps: &[Step]) -> usize {
    let size = |step: &Step| match step {
        Step::Batch(asks, ..) => asks.len(),
        _ => 1,
    };
    steps.iter().map(size).sum()
}
