use crate::{
    env::BootTime,
    lease::{
        StepDownCause,
        acquire::LeaseParams,
        deadline::LeaseDeadline,
        error::{ExtendError, LeaseLost, ReleaseError},
        heartbeat::Health,
        inner::QuorumInner,
        renewer::RenewerCommand,
    },
    node::{FencingToken, Owner, Resource},
    sabotage::Sabotage,
    vote::{NodeOutcome, ReplyTo, vote_channel},
};
use std::{fmt, pin::pin, sync::Arc, time::Duration};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

/// A held lease. The handle is the scope: dropping it releases, without waiting for the nodes.
///
/// The keeper extends it every third of its TTL. Its loss is a signal: [`Lease::step_down_token`] some time before
/// validity ends, [`Lease::lost_token`] at the end. What has ended stays ended.
#[must_use = "dropping a lease releases it"]
pub struct Lease {
    inner: Arc<QuorumInner>,
    id: u64,
    resource: Resource,
    owner: Owner,
    token: FencingToken,
    params: LeaseParams,
    deadline: Arc<LeaseDeadline>,
}

/// What happens to a lease, in the only order in which it can: `Held` and `AtRisk` in turn, then `StepDown`,
/// then `Lost`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LeaseEvent {
    /// The last round of extensions reached a majority.
    Held,
    /// The last round did not; it is retried until the deadline.
    AtRisk,
    /// Validity ends in `step_down_grace`, or the lease is being released: finish.
    StepDown,
    /// Over, for good.
    Lost,
}

/// The events of one lease, the state at the subscription first. Ends after [`LeaseEvent::Lost`].
#[derive(Debug)]
pub struct LeaseEvents(mpsc::UnboundedReceiver<LeaseEvent>);

impl Lease {
    pub(crate) fn new(
        inner: Arc<QuorumInner>,
        id: u64,
        resource: Resource,
        owner: Owner,
        token: FencingToken,
        params: LeaseParams,
        deadline: Arc<LeaseDeadline>,
    ) -> Self {
        Self { inner, id, resource, owner, token, params, deadline }
    }

    /// What is held.
    pub fn resource(&self) -> &Resource {
        &self.resource
    }

    /// The token that signs this lease on the nodes.
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// For how long each extension holds.
    pub fn ttl(&self) -> Duration {
        self.params.ttl
    }

    /// The fencing token, whether or not the lease is still held.
    pub fn token(&self) -> FencingToken {
        self.token
    }

    /// The fencing token, if the lease is valid at this moment: pass it to the write that follows.
    ///
    /// # Errors
    /// [`LeaseLost`] once the lease has ended.
    pub fn fencing_token(&self) -> Result<FencingToken, LeaseLost> {
        if self.is_valid() { Ok(self.token) } else { Err(LeaseLost) }
    }

    /// Whether the lease is valid at this moment.
    pub fn is_valid(&self) -> bool {
        self.deadline.remaining(self.now()).is_some()
    }

    /// How long the lease is valid from now on if no extension succeeds; zero once it has ended.
    pub fn remaining(&self) -> Duration {
        self.deadline.remaining(self.now()).unwrap_or_default()
    }

    /// When validity ends on this worker's boot clock if no extension succeeds; `None` once it has.
    pub fn valid_until(&self) -> Option<BootTime> {
        let now = self.now();
        self.deadline.remaining(now).map(|left| now + left)
    }

    /// Fires when the work should finish: `step_down_grace` before validity ends.
    pub fn step_down_token(&self) -> &CancellationToken {
        self.deadline.step_down.token()
    }

    /// Why the work was told to stop; `None` until it is.
    pub fn step_down_cause(&self) -> Option<StepDownCause> {
        self.deadline.why()
    }

    /// Fires when validity ends.
    pub fn lost_token(&self) -> &CancellationToken {
        self.deadline.lost.token()
    }

    /// The events from now on.
    pub fn events(&self) -> LeaseEvents {
        let (events, stream) = mpsc::unbounded_channel();
        self.inner.command(RenewerCommand::Watch { id: self.id, events });
        LeaseEvents(stream)
    }

    /// Extends now, rather than when the keeper would.
    ///
    /// # Errors
    /// [`ExtendError::NoMajority`] where too few nodes extended: the lease stands until its deadline.
    /// [`ExtendError::Lost`] where it has ended.
    ///
    /// # Cancel safety
    /// Safe: the extension goes on without the caller.
    pub async fn extend(&self) -> Result<(), ExtendError> {
        let (done, result) = oneshot::channel();
        self.inner.command(RenewerCommand::Extend { id: self.id, done });
        result.await.unwrap_or(Err(LeaseLost.into()))
    }

    /// Ends the lease and waits until a majority has confirmed its release, for the node timeout at most.
    ///
    /// # Errors
    /// [`ReleaseError`] where fewer than a majority confirmed: the lease is over all the same.
    ///
    /// # Cancel safety
    /// The lease ends and the releases leave at the first poll, or at the drop of the future: nothing is lost.
    pub async fn release(self) -> Result<(), ReleaseError> {
        self.end().await
    }

    /// Ends the lease without a release: it is not extended any more, and the nodes keep it from others until its TTL
    /// has run out. For work that may still run and cannot be ended, such as a process of another user.
    pub fn abandon(self) {
        self.forget();
    }

    /// As [`Lease::release`], for a lease that others look at: they see it ended.
    pub(crate) async fn end(&self) -> Result<(), ReleaseError> {
        let pool = Arc::clone(self.inner.pool());
        let (sender, mut votes) = vote_channel();
        self.let_go(Some(ReplyTo { sender, ticket: 0 }));
        let mut outcomes = vec![NodeOutcome::Pending; pool.len()];
        let mut confirmed = 0;
        let deadline = pool.env().now() + pool.config().node_timeout;
        // One timer for all of them.
        let mut over = pin!(pool.env().sleep_until(deadline));
        while confirmed < pool.majority() {
            let vote = tokio::select! { biased;
                vote = votes.recv() => vote,
                () = &mut over => None,
            };
            let Some(vote) = vote else { break };
            outcomes[vote.node] = NodeOutcome::of(&vote.answer);
            confirmed += usize::from(matches!(outcomes[vote.node], NodeOutcome::Granted));
        }
        if confirmed >= pool.majority() {
            return Ok(());
        }
        Err(ReleaseError { report: Arc::new(pool.report(outcomes)) })
    }

    /// Lets it end by `until`, and extends it only while `heartbeat` says yes.
    pub(crate) fn limit(&self, until: Option<BootTime>, heartbeat: Option<Health>) {
        self.inner.command(RenewerCommand::Limit { id: self.id, until, heartbeat });
    }

    /// Ends the lease before the first message of its release leaves. A second call is nothing.
    pub(crate) fn let_go(&self, reply: Option<ReplyTo>) {
        if !self.inner.config().sabotaged(Sabotage::LeaseOutlivesRelease) {
            self.deadline.end();
        }
        self.inner.command(RenewerCommand::Release { id: self.id, reply });
    }

    /// Ends the lease, then has the keeper do something else with its keys than free them.
    pub(super) fn give_away(&self, command: impl FnOnce(u64) -> RenewerCommand) {
        self.deadline.end();
        self.inner.command(command(self.id));
    }

    /// Ends the lease and leaves its keys standing: the caller replaces them.
    pub(crate) fn forget(&self) {
        self.deadline.end();
        self.inner.command(RenewerCommand::Forget { id: self.id });
    }

    /// How it is held.
    pub(super) fn params(&self) -> LeaseParams {
        self.params
    }

    /// What holds the lease.
    pub(crate) fn inner(&self) -> &Arc<QuorumInner> {
        &self.inner
    }

    fn now(&self) -> BootTime {
        if self.inner.config().sabotaged(Sabotage::LooksWithoutClock) {
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
        self.let_go(None);
    }
}

impl LeaseEvents {
    /// The next event; `None` after the last.
    ///
    /// # Cancel safety
    /// Safe: no event is lost.
    pub async fn next(&mut self) -> Option<LeaseEvent> {
        self.0.recv().await
    }
}
