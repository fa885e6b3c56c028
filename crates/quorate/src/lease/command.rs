use crate::{
    env::BootTime,
    lease::{
        deadline::LeaseDeadline, error::LeaseError, event::LeaseEvent, heartbeat::Health, params::LeaseParams,
    },
    node::{FencingToken, Owner, Resource},
    vote::{Grant, ReplyTo, VoteReceiver},
};
use std::{sync::Arc, time::Duration};
use tokio::sync::{mpsc, oneshot};

/// A command from a lease's handle to the renewer.
#[derive(Debug)]
pub(crate) enum RenewerCommand {
    /// Renew this lease from now on.
    Adopt(Box<Adoption>),
    /// Release a lease, which its handle has ended, on every node.
    Release { id: u64, reply: Option<ReplyTo> },
    /// Transfer a lease, which its handle has ended: the nodes reserve the resource for the successor.
    Transfer { id: u64, successor: Owner, lasts: Duration, reply: ReplyTo },
    /// Stop renewing a lease, which its handle has ended. The renewer leaves the lease's keys on the nodes;
    /// the handle may replace them.
    Forget { id: u64 },
    /// End the lease by `until`, and renew it only while the health check `heartbeat` succeeds.
    Limit { id: u64, until: Option<BootTime>, heartbeat: Option<Health> },
    /// Renew the lease now, and report the result.
    Extend { id: u64, done: oneshot::Sender<Result<(), LeaseError>> },
    /// Report the present state of a lease to `events`, and its events from now on.
    Watch { id: u64, events: mpsc::UnboundedSender<LeaseEvent> },
}

/// A lease that was just acquired, for the renewer.
#[derive(Debug)]
pub(crate) struct Adoption {
    pub(crate) id: u64,
    pub(crate) resource: Resource,
    pub(crate) owner: Owner,
    pub(crate) token: FencingToken,
    pub(crate) params: LeaseParams,
    pub(crate) grants: Vec<(usize, Grant)>,
    /// The nodes that were not asked.
    pub(crate) spared: Vec<usize>,
    /// The channel of the votes that come after the verdict.
    pub(crate) late: Option<VoteReceiver>,
    pub(crate) deadline: Arc<LeaseDeadline>,
}
