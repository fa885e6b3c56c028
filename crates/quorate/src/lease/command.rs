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
    /// Release a lease on every node. Its handle has already ended the lease.
    Release { id: u64, reply: Option<ReplyTo> },
    /// Transfer a lease. Its handle has already ended the lease. The nodes reserve the resource for the
    /// successor.
    Transfer { id: u64, successor: Owner, lasts: Duration, reply: ReplyTo },
    /// Stop renewing a lease, and leave its keys on the nodes. Its handle has already ended the lease, and may
    /// replace the keys.
    Forget { id: u64 },
    /// End the lease by `until`, and renew it only while the health check `heartbeat` succeeds.
    Limit { id: u64, until: Option<BootTime>, heartbeat: Option<Health> },
    /// Renew the lease now, and report the result.
    Extend { id: u64, done: oneshot::Sender<Result<(), LeaseError>> },
    /// Send the present state of a lease to `events`, and then each change of the state.
    Watch { id: u64, events: mpsc::UnboundedSender<LeaseEvent> },
}

/// A lease that was just acquired, with the data that the renewer needs.
#[derive(Debug)]
pub(crate) struct Adoption {
    pub(crate) id: u64,
    pub(crate) resource: Resource,
    pub(crate) owner: Owner,
    pub(crate) token: FencingToken,
    pub(crate) params: Arc<LeaseParams>,
    pub(crate) grants: Vec<(usize, Grant)>,
    /// The nodes that the acquire did not ask.
    pub(crate) spared: Vec<usize>,
    /// The channel of the votes that arrive after the acquire was decided. `None` if no node is awaited, because a channel takes
    /// more memory than the rest of a lease.
    pub(crate) late: Option<VoteReceiver>,
    pub(crate) deadline: Arc<LeaseDeadline>,
}
