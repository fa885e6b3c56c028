use crate::{
    env::BootTime,
    lease::{
        deadline::LeaseDeadline, error::ExtendError, event::LeaseEvent, heartbeat::Health,
        params::LeaseParams,
    },
    node::{FencingToken, Owner, Resource},
    vote::{Grant, ReplyTo, VoteReceiver},
};
use std::{sync::Arc, time::Duration};
use tokio::sync::{mpsc, oneshot};

/// What handles ask of the keeper. Never refused while the keeper lives.
#[derive(Debug)]
pub(crate) enum RenewerCommand {
    /// Keep this lease from now on.
    Adopt(Box<Adoption>),
    /// Let go of a lease, which its handle has ended, and release it everywhere.
    Release { id: u64, reply: Option<ReplyTo> },
    /// Let go of a lease, which its handle has ended, and have the nodes keep it for an heir.
    Transfer { id: u64, heir: Owner, lasts: Duration, reply: ReplyTo },
    /// Let go of a lease, which its handle has ended, and leave its keys to the handle.
    Forget { id: u64 },
    /// Let it end by `until`, and extend only while `heartbeat` says yes.
    Limit { id: u64, until: Option<BootTime>, heartbeat: Option<Health> },
    /// Extend now and say what came of it.
    Extend { id: u64, done: oneshot::Sender<Result<(), ExtendError>> },
    /// Tell the events of a lease from now on, the present state first.
    Watch { id: u64, events: mpsc::UnboundedSender<LeaseEvent> },
}

/// A lease that was just won.
#[derive(Debug)]
pub(crate) struct Adoption {
    pub(crate) id: u64,
    pub(crate) resource: Resource,
    pub(crate) owner: Owner,
    pub(crate) token: FencingToken,
    pub(crate) params: LeaseParams,
    pub(crate) grants: Vec<(usize, Grant)>,
    /// Where the votes arrive that came after the verdict.
    pub(crate) late: Option<VoteReceiver>,
    pub(crate) deadline: Arc<LeaseDeadline>,
}
