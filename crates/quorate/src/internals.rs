//! Items for the test-kit and for node implementations. They are not part of the public interface, and may
//! change in any version.

#[cfg(feature = "claims")]
pub use crate::claim::{ClaimTally, attempts};
#[cfg(feature = "scheduler")]
pub use crate::scheduler::{
    control::{AuditEntry, GroupOverview, GroupWorker},
    job::{JobDefinition, JobRules},
    policy::{DUE_MAX, DueTicks, MisfireReason, MisfiredTicks, due},
    schedule::{OffsetChange, OffsetEffect, ScheduleSpec},
    store::{
        AssignedTo, DefinitionText, Expect, GroupFreeze, JobAction, JobRequest, JobResponse, JobRow, OpenRun,
        Paused, RecordError, RunKey, RunRecord, StoredJob,
        verdict::{Decision, SkipReason, first_opened, voided},
    },
};
pub use crate::{
    config::majority,
    node::Incarnation,
    sabotage::Sabotage,
    trust::{Marker, MarkerError, NodeEpoch},
    vote::{Answer, Grant, RoundData, Tally, Verdict, Vote},
};
