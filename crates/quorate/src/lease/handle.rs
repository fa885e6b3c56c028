use super::{
    StepDownCause,
    attempt::Terms,
    error::{ExtendError, LeaseLost, ReleaseError},
    health::Health,
    hub::Hub,
    keeper::Order,
    tenure::Tenure,
};
use crate::{
    env::BootTime,
    node::{FencingToken, Owner, Resource},
    round::{NodeOutcome, ReplyTo, Sabotage, ballots},
};
use std::{pin::pin, sync::Arc, time::Duration};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

/// A held lease. The handle is the scope: dropping it releases, without waiting for the nodes.
///
/// The keeper extends it every third of its TTL. Its loss is a signal: [`Lease::step_down`] some time before
/// validity ends, [`Lease::lost`] at the end. What has ended stays ended.
#[derive(Debug)]
#[must_use = "dropping a lease releases it"]
pub struct Lease {
    hub: Arc<Hub>,
    id: u64,
    resource: Resource,
    owner: Owner,
    token: FencingToken,
    terms: Terms,
    tenure: Arc<Tenure>,
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
        hub: Arc<Hub>,
        id: u64,
        resource: Resource,
        owner: Owner,
        token: FencingToken,
        terms: Terms,
        tenure: Arc<Tenure>,
    ) -> Self {
        Self { hub, id, resource, owner, token, terms, tenure }
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
        self.terms.ttl
    }

    /// The fencing token, whether or not the lease is still held.
    pub fn token(&self) -> FencingToken {
        self.token
    }

    /// The fencing token, if the lease is valid at this moment: pass it to the write that follows.
    ///
    /// # Errors
    /// [`LeaseLost`] once the lease has ended.
    pub fn check(&self) -> Result<FencingToken, LeaseLost> {
        if self.is_valid() { Ok(self.token) } else { Err(LeaseLost) }
    }

    /// Whether the lease is valid at this moment.
    pub fn is_valid(&self) -> bool {
        self.tenure.remaining(self.now()).is_some()
    }

    /// How long the lease is valid from now on if no extension succeeds; zero once it has ended.
    pub fn remaining(&self) -> Duration {
        self.tenure.remaining(self.now()).unwrap_or_default()
    }

    /// When validity ends on this worker's boot clock if no extension succeeds; `None` once it has.
    pub fn valid_until(&self) -> Option<BootTime> {
        let now = self.now();
        self.tenure.remaining(now).map(|left| now + left)
    }

    /// Fires when the work should finish: `step_down_grace` before validity ends.
    pub fn step_down(&self) -> &CancellationToken {
        self.tenure.step_down.token()
    }

    /// Why the work was told to stop; `None` until it is.
    pub fn step_down_cause(&self) -> Option<StepDownCause> {
        self.tenure.why()
    }

    /// Fires when validity ends.
    pub fn lost(&self) -> &CancellationToken {
        self.tenure.lost.token()
    }

    /// The events from now on.
    pub fn events(&self) -> LeaseEvents {
        let (events, stream) = mpsc::unbounded_channel();
        self.hub.order(Order::Watch { id: self.id, events });
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
        self.hub.order(Order::Extend { id: self.id, done });
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
        let fleet = Arc::clone(self.hub.fleet());
        let (ballots, mut votes) = ballots();
        self.let_go(Some(ReplyTo { ballots, ticket: 0 }));
        let mut outcomes = vec![NodeOutcome::Pending; fleet.len()];
        let mut confirmed = 0;
        let deadline = fleet.env().now() + fleet.setup().node_timeout;
        // One timer for all of them.
        let mut over = pin!(fleet.env().sleep_until(deadline));
        while confirmed < fleet.majority() {
            let vote = tokio::select! { biased;
                vote = votes.recv() => vote,
                () = &mut over => None,
            };
            let Some(vote) = vote else { break };
            outcomes[vote.node] = NodeOutcome::of(&vote.answer);
            confirmed += usize::from(matches!(outcomes[vote.node], NodeOutcome::Granted));
        }
        if confirmed >= fleet.majority() {
            return Ok(());
        }
        Err(ReleaseError { report: Arc::new(fleet.report(outcomes)) })
    }

    /// Lets it end by `until`, and extends it only while `health` says yes.
    pub(crate) fn limit(&self, until: Option<BootTime>, health: Option<Health>) {
        self.hub.order(Order::Limit { id: self.id, until, health });
    }

    /// Ends the lease before the first message of its release leaves. A second call is nothing.
    pub(crate) fn let_go(&self, reply: Option<ReplyTo>) {
        if !self.hub.setup().sabotaged(Sabotage::LeaseOutlivesRelease) {
            self.tenure.end();
        }
        self.hub.order(Order::Release { id: self.id, reply });
    }

    /// Ends the lease, then has the keeper do something else with its keys than free them.
    pub(super) fn give_away(&self, order: impl FnOnce(u64) -> Order) {
        self.tenure.end();
        self.hub.order(order(self.id));
    }

    /// Ends the lease and leaves its keys standing: the caller replaces them.
    pub(crate) fn forget(&self) {
        self.tenure.end();
        self.hub.order(Order::Forget { id: self.id });
    }

    /// How it is held.
    pub(super) fn terms(&self) -> Terms {
        self.terms
    }

    /// What holds the lease.
    pub(crate) fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    fn now(&self) -> BootTime {
        if self.hub.setup().sabotaged(Sabotage::LooksWithoutClock) {
            return BootTime::default();
        }
        self.hub.env().now()
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
