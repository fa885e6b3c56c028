use crate::{
    env::BootTime,
    lease::{Lease, LeaseLost},
    node::{FencingToken, Owner, Resource},
    vote::NoMajority,
};
use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio_util::sync::CancellationToken;

/// One shard in the hands of this worker. [`Shards::run`](super::Shards::run) passes it to the work. Clones are the same
/// shard, and do not prolong its ownership.
#[derive(Clone)]
pub struct Shard(Arc<Inner>);

struct Inner {
    set: Arc<str>,
    number: usize,
    count: usize,
    lease: Lease,
    step_down: CancellationToken,
    /// The time by which the work must end because the shard is handed over, in nanoseconds of the boot clock.
    stop_by: AtomicU64,
}

impl Shard {
    pub(super) fn new(set: &Arc<str>, number: usize, count: usize, lease: Lease) -> Self {
        let (step_down, stop_by) = (lease.step_down_token().child_token(), AtomicU64::new(u64::MAX));
        Self(Arc::new(Inner { set: Arc::clone(set), number, count, lease, step_down, stop_by }))
    }

    /// Returns the name of the set.
    pub fn set(&self) -> &Arc<str> {
        &self.0.set
    }

    /// Returns the lock that the owner of the shard holds.
    pub fn resource(&self) -> &Resource {
        self.0.lease.resource()
    }

    /// Returns the owner token of the shard's lease.
    #[doc(hidden)]
    pub fn owner(&self) -> &Owner {
        self.0.lease.owner()
    }

    /// Returns the number of the shard: 0 for the first one.
    pub fn number(&self) -> usize {
        self.0.number
    }

    /// Returns the number of shards in the set.
    pub fn count(&self) -> usize {
        self.0.count
    }

    /// Returns the fencing token if this worker owns the shard at this moment. Pass it to the write that follows. Each later
    /// owner of the shard has a larger token.
    ///
    /// # Errors
    /// [`LeaseLost`] once this worker does not own the shard any more.
    pub fn fencing_token(&self) -> Result<FencingToken, LeaseLost> {
        self.0.lease.fencing_token()
    }

    /// Returns the fencing token, even if this worker does not own the shard any more.
    pub fn unchecked_token(&self) -> FencingToken {
        self.0.lease.unchecked_token()
    }

    /// Returns whether this worker owns the shard at this moment.
    pub fn is_valid(&self) -> bool {
        self.0.lease.is_valid()
    }

    /// Returns how long this worker owns the shard from now on if no extension of its lease succeeds.
    pub fn remaining(&self) -> Duration {
        self.0.lease.remaining()
    }

    /// Returns the time until which the work may run, on this worker's boot clock, or `None` if this worker does not own the
    /// shard any more. In general this is the end of the lease. Once the shard is to be handed over, it is the end of the grace
    /// period if this is earlier. Work that runs longer is dropped. Other processes that act for the work must have ended by
    /// then.
    pub fn work_until(&self) -> Option<BootTime> {
        let stop_by = BootTime::from_nanos(self.0.stop_by.load(Ordering::Acquire));
        self.0.lease.valid_until().map(|until| until.min(stop_by))
    }

    /// Returns the token that is cancelled when the work should finish: when another worker is to get the shard, at a shutdown,
    /// or `step_down_grace` before the lease ends because too few nodes extended it.
    pub fn step_down_token(&self) -> &CancellationToken {
        &self.0.step_down
    }

    /// Returns the token that is cancelled when this worker does not own the shard any more.
    pub fn lost_token(&self) -> &CancellationToken {
        self.0.lease.lost_token()
    }

    /// Returns the answer of each node to the extensions that failed, if the work was asked to stop because of them.
    pub fn failed_extension(&self) -> Option<&NoMajority> {
        self.0.lease.failed_extension()
    }

    /// Lets the lease expire at its end, instead of releasing it. No other worker gets the shard before. Use this for work
    /// that may still run then and cannot be ended, such as a process of another user. The call cannot be undone.
    pub fn end_without_release(&self) {
        self.0.lease.keep_keys();
    }

    pub(super) fn lease(&self) -> &Lease {
        &self.0.lease
    }

    /// Asks the work to stop, and sets the time `by` which it must have ended.
    pub(super) fn stop(&self, by: BootTime) {
        self.0.stop_by.fetch_min(by.as_nanos(), Ordering::AcqRel);
        self.0.step_down.cancel();
    }

    /// Ends the ownership: releases the lease, without waiting, or lets it expire.
    pub(super) fn end(&self) {
        match self.0.lease.keeps_keys() {
            true => self.0.lease.forget(),
            false => self.0.lease.post_release(None),
        }
    }
}

impl fmt::Debug for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shard")
            .field("set", &self.0.set)
            .field("number", &self.0.number)
            .field("token", &self.unchecked_token())
            .field("remaining", &self.remaining())
            .finish()
    }
}
