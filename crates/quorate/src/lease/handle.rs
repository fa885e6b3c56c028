use crate::{
    env::BootTime,
    lease::{
        LeaseEvent, StepDownCause,
        command::RenewerCommand,
        deadline::LeaseDeadline,
        error::{LeaseError, LeaseLost},
        heartbeat::Health,
        inner::QuorumInner,
        params::LeaseParams,
    },
    measure::TermGauges,
    node::{FencingToken, Owner, Resource},
    sabotage::Sabotage,
    vote::{NoMajority, NodeOutcome, ReplyTo, vote_channel},
};
use std::{fmt, pin::pin, sync::Arc, time::Duration};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

/// A held lock. Dropping the handle releases the lock, without waiting for the nodes.
///
/// The lease is extended automatically every third of its TTL. Two tokens signal its loss:
/// [`Lease::step_down_token`] some time before validity ends, and [`Lease::lost_token`] at the end. A lease
/// that has ended never becomes valid again.
///
/// ```
/// use quorate::{Quorum, node::MemoryNode};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let nodes = (0..3).map(|i| MemoryNode::new(&format!("memory-{i}")));
/// # let quorum = Quorum::builder().nodes(nodes).trust_new_nodes(true).build()?;
/// let lease = quorum.lock("invoice-42").acquire().await?;
/// tokio::select! {
///     () = lease.step_down_token().cancelled() => println!("stop: the lease is about to be lost"),
///     () = async { /* the work */ } => println!("done under token {}", lease.fencing_token()?),
/// }
/// lease.release().await?; // waits until a majority has freed the lock
/// quorum.close().await;
/// # Ok(())
/// # }
/// ```
///
/// # At the end of `main`
///
/// Dropping a lease only queues its release, which a task of the quorum then sends. If the runtime ends
/// first, for example because `drop(lease)` is the last line of `main`, the lock stays taken until its TTL is
/// over. To avoid this, call [`Lease::release`] before the end. Or call
/// [`Quorum::close`](crate::Quorum::close) in the last line: this call sends all queued releases.
#[must_use = "dropping a lease releases it"]
pub struct Lease {
    inner: Arc<QuorumInner>,
    id: u64,
    resource: Resource,
    owner: Owner,
    token: FencingToken,
    params: Arc<LeaseParams>,
    deadline: Arc<LeaseDeadline>,
}

impl Lease {
    pub(crate) fn new(
        inner: Arc<QuorumInner>,
        id: u64,
        resource: Resource,
        owner: Owner,
        token: FencingToken,
        params: Arc<LeaseParams>,
        deadline: Arc<LeaseDeadline>,
    ) -> Self {
        Self { inner, id, resource, owner, token, params, deadline }
    }

    /// Returns the lock that is held.
    pub fn resource(&self) -> &Resource {
        &self.resource
    }

    /// Returns the owner token, which identifies this lease on the nodes.
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// Returns the TTL: the time for which the nodes keep the lease after each extension.
    pub fn ttl(&self) -> Duration {
        self.params.ttl
    }

    /// Returns the fencing token, even if the lease has ended.
    pub fn unchecked_token(&self) -> FencingToken {
        self.token
    }

    /// Returns the fencing token if the lease is valid at this moment. Pass the token to the write that
    /// follows.
    ///
    /// # Errors
    /// [`LeaseLost`] once the lease has ended.
    pub fn fencing_token(&self) -> Result<FencingToken, LeaseLost> {
        if self.is_valid() { Ok(self.token) } else { Err(LeaseLost) }
    }

    /// Returns whether the lease is valid at this moment.
    pub fn is_valid(&self) -> bool {
        self.deadline.remaining(self.now()).is_some()
    }

    /// Returns how long the lease is valid from now on if no extension succeeds. Returns zero if the lease
    /// has ended.
    pub fn remaining(&self) -> Duration {
        self.deadline.remaining(self.now()).unwrap_or_default()
    }

    /// Returns the time, on this worker's boot clock, at which validity ends if no extension succeeds.
    /// Returns `None` if the lease has ended.
    pub fn valid_until(&self) -> Option<BootTime> {
        let now = self.now();
        self.deadline.remaining(now).map(|left| now + left)
    }

    /// Returns when validity ended, on this worker's boot clock, if the lease ended because its time was over. The
    /// caller may learn of the end later, for instance after a pause of the process. Returns `None` if the lease is
    /// valid, or if its holder has ended it.
    pub(crate) fn expired_at(&self) -> Option<BootTime> {
        self.deadline.expired_at(self.now())
    }

    /// Returns the token that is cancelled when the work should finish: `step_down_grace` before validity ends.
    pub fn step_down_token(&self) -> &CancellationToken {
        self.deadline.step_down.token()
    }

    /// Lets the keys expire on the nodes when the lease ends because its time is over. Otherwise they are released then.
    pub(crate) fn keep_keys(&self) {
        self.deadline.keep_keys();
    }

    /// Returns whether [`Lease::keep_keys`] was called.
    pub(crate) fn keeps_keys(&self) -> bool {
        self.deadline.keeps_keys()
    }

    /// Returns the reason why the work was asked to stop. Returns `None` if it was not asked to stop.
    pub fn step_down_cause(&self) -> Option<StepDownCause> {
        self.deadline.why()
    }

    /// Returns the answer of each node to the extensions that failed, if the work was asked to stop because of
    /// them ([`StepDownCause::NotExtended`]). The text of the report is the reason for logs and errors.
    pub fn failed_extension(&self) -> Option<&NoMajority> {
        self.deadline.report()
    }

    /// Returns the token that is cancelled when validity ends.
    pub fn lost_token(&self) -> &CancellationToken {
        self.deadline.lost.token()
    }

    /// Returns the events of this lease: first its present state, then each change. The last is [`LeaseEvent::Lost`].
    #[doc(hidden)]
    pub fn events(&self) -> mpsc::UnboundedReceiver<LeaseEvent> {
        let (events, stream) = mpsc::unbounded_channel();
        self.inner.command(RenewerCommand::Watch { id: self.id, events });
        stream
    }

    /// Extends the lease now, rather than at the next automatic extension.
    ///
    /// # Errors
    /// [`LeaseError::NoMajority`] if too few nodes extended the lease. The lease then stays valid until its
    /// present deadline. [`LeaseError::Lost`] if the lease has ended.
    ///
    /// # Cancel safety
    /// Safe: if the future is dropped, the extension continues.
    pub async fn extend(&self) -> Result<(), LeaseError> {
        let (done, result) = oneshot::channel();
        self.inner.command(RenewerCommand::Extend { id: self.id, done });
        result.await.unwrap_or(Err(LeaseLost.into()))
    }

    /// Ends the lease and waits until a majority has confirmed its release. The wait lasts for the node
    /// timeout at most.
    ///
    /// A node to which no request of the lease was sent has nothing to release, and confirms at once. While
    /// the other nodes may still confirm in time, such a node does not count toward the majority. It counts
    /// once each of the other nodes has answered or is late.
    ///
    /// # Errors
    /// [`NoMajority`] if fewer than a majority confirmed. The lease has ended even then. If the lease was lost before
    /// this call, its release was sent then, and this call fails without asking the nodes.
    ///
    /// # Cancel safety
    /// The lease ends at the first poll, or when the future is dropped. The releases are sent in both cases.
    pub async fn release(self) -> Result<(), NoMajority> {
        self.end().await
    }

    /// Ends the lease without releasing the lock. The lease is not extended any more, so the lock stays taken
    /// until its TTL is over. Use this for work that may still run and cannot be ended, such as a process of
    /// another user.
    pub fn abandon(self) {
        self.forget();
    }

    /// Releases the lease like [`Lease::release`], but does not consume the handle. Other users of the handle
    /// see that the lease has ended.
    pub(crate) async fn end(&self) -> Result<(), NoMajority> {
        let pool = Arc::clone(self.inner.pool());
        let (sender, mut votes) = vote_channel();
        votes.wake_after(pool.majority());
        self.post_release(Some(ReplyTo { sender, ticket: 0 }));
        let mut outcomes = vec![NodeOutcome::Pending; pool.len()];
        // The number of nodes that confirmed the release, and the number of nodes to which no message of the
        // lease was sent.
        let (mut confirmed, mut unasked) = (0, 0);
        let now = pool.env().now();
        let deadline = now + pool.config().node_timeout;
        let mut is_late = false;
        // One timer serves both the patience and the timeout. A timer for each vote would cost more.
        let mut timer = pin!(pool.env().sleep_until(now + pool.patience()));
        while confirmed + (if is_late { unasked } else { 0 }) < pool.majority() {
            let vote = tokio::select! { biased;
                vote = votes.recv() => vote,
                () = &mut timer => None,
            };
            if vote.is_none() && !is_late {
                is_late = true;
                timer.set(pool.env().sleep_until(deadline));
                continue;
            }
            let Some(vote) = vote else { break };
            outcomes[vote.node] = NodeOutcome::of(&vote.answer);
            match outcomes[vote.node] {
                NodeOutcome::Granted if vote.sent.is_some() => confirmed += 1,
                NodeOutcome::Granted => unasked += 1,
                _ => {}
            }
        }
        confirmed += unasked;
        if confirmed >= pool.majority() {
            return Ok(());
        }
        let reason = "the lease is over, but its release did not reach a majority in time";
        Err(pool.report(outcomes).of(reason))
    }

    /// Makes the renewer end the lease by `until`, and extend it only while the health check `heartbeat`
    /// succeeds.
    pub(crate) fn limit(&self, until: Option<BootTime>, heartbeat: Option<Health>) {
        self.inner.command(RenewerCommand::Limit { id: self.id, until, heartbeat });
    }

    /// Ends the lease, then commands the renewer to release the lease's keys. No message of the release is
    /// sent before the lease has ended. A second call has no effect.
    pub(crate) fn post_release(&self, reply: Option<ReplyTo>) {
        if !self.inner.config().sabotaged(Sabotage::LeaseOutlivesRelease) {
            self.deadline.release();
        }
        self.inner.command(RenewerCommand::Release { id: self.id, reply });
    }

    /// Ends the lease, then sends `command` to the renewer. The command may do something else with the lease's
    /// keys than release them, for example transfer the lease.
    pub(super) fn give_away(&self, command: impl FnOnce(u64) -> RenewerCommand) {
        self.deadline.release();
        self.inner.command(command(self.id));
    }

    /// Ends the lease and leaves its keys on the nodes. The caller replaces the keys, or lets them expire.
    pub(crate) fn forget(&self) {
        self.deadline.release();
        self.inner.command(RenewerCommand::Forget { id: self.id });
    }

    /// Reports the end of the lease's validity, and each later change of it, to these gauges.
    pub(crate) fn report_to(&self, gauges: TermGauges) {
        self.deadline.report_to(gauges, self.now());
    }

    /// Returns the time, on this worker's boot clock, at which the requests that acquired the lease were
    /// sent.
    pub(crate) fn acquired_at(&self) -> BootTime {
        self.deadline.granted_until() - self.inner.config().validity(self.params.ttl)
    }

    pub(super) fn params(&self) -> LeaseParams {
        *self.params
    }

    /// Returns the quorum whose nodes granted the lease.
    pub(crate) fn inner(&self) -> &Arc<QuorumInner> {
        &self.inner
    }

    fn now(&self) -> BootTime {
        if self.inner.config().sabotaged(Sabotage::ChecksWithoutClock) {
            return BootTime::default();
        }
        self.inner.env().now()
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("resource", &self.resource)
            .field("owner", &self.owner)
            .field("token", &self.token)
            .field("remaining", &self.remaining())
            .finish()
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.post_release(None);
    }
}
