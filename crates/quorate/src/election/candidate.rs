use super::{
    ElectionEvent, Leader, Observer, Term, events::EventBroadcast, impediment::Impediment,
    known_leader::KnownLeader, preference::Preference, restart::OnError,
};
use crate::{
    config::SettingError,
    lease::{Bell, Health, Lease, LeaseOptions, Lock, lease_options},
    ledger::Ledger,
    measure::ElectionMeasures,
    node::{Owner, Resource},
    quorum::Quorum,
};
use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::sync::mpsc;

/// A candidate for the leadership of a group. At most one candidate of a group leads at a time. Clones are
/// the same candidate.
///
/// ```
/// use quorate::{Election, Quorum, node::MemoryNode};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let nodes = (0..3).map(|i| MemoryNode::new(&format!("memory-{i}")));
/// # let quorum = Quorum::builder().nodes(nodes).trust_new_nodes(true).build()?;
/// let election = Election::new(&quorum, "billing");
/// let (done, shutdown) = tokio::sync::oneshot::channel();
/// let mut done = Some(done);
/// let work = move |term: quorate::Term| {
///     let done = done.take();
///     async move {
///         println!("leader, term {}", term.fencing_token()?);
///         done.map(|done| done.send(())); // this example ends; a service works until `term.step_down_token()` fires
///         term.step_down_token().cancelled().await;
///         Ok::<(), Box<dyn std::error::Error>>(())
///     }
/// };
/// election.run(work).until(shutdown).await?; // a service: `.until(quorate::shutdown_signal())`, or only `.await`
/// quorum.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Election {
    shared: Arc<Shared>,
    options: LeaseOptions,
    back_off: Option<Duration>,
    allow_remote_resign: bool,
    eligible: Option<Health>,
    candidate_delay: Duration,
    preference: Preference,
    on_error: OnError,
}

/// The state that all clones of a candidate share.
struct Shared {
    quorum: Quorum,
    group: Arc<str>,
    resource: Result<Resource, SettingError>,
    term: Mutex<Option<Term>>,
    events: EventBroadcast,
    known_leader: KnownLeader,
    impediment: Arc<Impediment>,
    measures: ElectionMeasures,
}

impl Election {
    /// Returns a candidate for the leadership of `group`. The candidate does nothing until it is
    /// [`run`](Election::run).
    pub fn new(quorum: &Quorum, group: impl AsRef<str>) -> Self {
        let group = group.as_ref();
        let shared = Shared {
            quorum: quorum.clone(),
            group: group.into(),
            resource: Resource::election(group),
            term: Mutex::new(None),
            events: EventBroadcast::default(),
            known_leader: KnownLeader::default(),
            impediment: Arc::default(),
            measures: ElectionMeasures::new(group, &ElectionEvent::NAMES),
        };
        Self {
            shared: Arc::new(shared),
            options: LeaseOptions::new(),
            back_off: None,
            allow_remote_resign: true,
            eligible: None,
            candidate_delay: Duration::ZERO,
            preference: Preference::DEFAULT,
            on_error: OnError::DEFAULT,
        }
    }

    lease_options!();

    /// Campaigns only while `check` returns true. `check` is called at least once a second while the candidate
    /// waits for the lease, and before each term. A term that has begun does not end if `check` returns false.
    pub fn eligible_while(mut self, check: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        self.eligible = Some(Health::Check(Arc::new(check)));
        self
    }

    /// Sets how long this candidate waits before it campaigns when there is no leader. Default zero.
    ///
    /// For a candidate of lower priority, set a delay that is longer than a round of requests. Such a
    /// candidate leads only if no other candidate does. The delay is only a preference: a leader stays when a
    /// candidate of higher priority appears.
    pub fn candidate_delay(mut self, delay: Duration) -> Self {
        self.candidate_delay = delay;
        self
    }

    /// Sets the priority of this candidate. Default 0. A candidate with a priority above 0 that has waited for long
    /// enough ([`Election::take_over_after`]) asks a leader of lower priority to hand the lead over to it. The leader
    /// then ends its work within the grace period, as for [`Term::transfer_to`], and this candidate leads next.
    ///
    /// A priority is a preference, and not a guarantee: if there is no leader, any candidate may be elected. Candidates
    /// of equal priority leave each other alone. A leader that does not allow
    /// [remote resignation](Election::allow_remote_resign) hands nothing over.
    ///
    /// ```
    /// # use quorate::{Election, Quorum, node::MemoryNode};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let quorum = Quorum::builder().node(MemoryNode::new("memory")).trust_new_nodes(true).build()?;
    /// let preferred = Election::new(&quorum, "billing").priority(10);
    /// let never = Election::new(&quorum, "billing").never_lead();
    /// # drop((preferred, never));
    /// # quorum.close().await;
    /// # Ok(())
    /// # }
    /// ```
    pub fn priority(mut self, priority: u32) -> Self {
        self.preference.priority = priority;
        self
    }

    /// Sets how long a candidate with a [priority](Election::priority) must have been healthy before it asks for the
    /// lead: it campaigns, is eligible, and a majority of the nodes answers. Default 30 s. After each failure of its own
    /// work in a row, the time is twice as long, up to eight times, so that the leadership does not move to and fro.
    pub fn take_over_after(mut self, time: Duration) -> Self {
        self.preference.take_over_after = time;
        self
    }

    /// Makes this candidate follow the leader and never lead, for example on a machine that is too small for the
    /// leader's work. A [scheduler](crate::scheduler) on it still executes the runs that the leader assigns to it. If no
    /// other candidate runs, the group has no leader.
    pub fn never_lead(mut self) -> Self {
        self.preference.never_lead = true;
        self
    }

    /// Sets whether the leader resigns when an [`Observer`] [asks it to](Observer::ask_to_resign). Default true.
    pub fn allow_remote_resign(mut self, allowed: bool) -> Self {
        self.allow_remote_resign = allowed;
        self
    }

    /// Sets how long a leader waits after its term before it campaigns again. The pause applies if the work
    /// returned `Ok`, if the leader was asked to resign, or if `max_hold` or the health check ended the term.
    /// The default is a fifth of the TTL.
    pub fn back_off(mut self, back_off: Duration) -> Self {
        self.back_off = Some(back_off);
        self
    }

    /// Sets the pause after a failure of the work, before the candidate campaigns again. The pause is `first`
    /// after the first failure, and twice as long after each further failure, up to `longest`. The actual
    /// pause is random, between half of this time and all of it. If the work ran for `longest` without an
    /// error, the pauses begin again with `first`. Default 1 s to 30 s, at least 10 ms.
    ///
    /// The leader releases its lease before the pause, so that other candidates may lead. See [the
    /// module](crate::election#when-the-work-fails).
    pub fn restart_backoff(mut self, first: Duration, longest: Duration) -> Self {
        self.on_error = OnError::restart(first, longest);
        self
    }

    /// Ends the campaign when the work returns an error or panics, instead of restarting the work. Use this
    /// setting for errors that only a person can fix, and for programs that are restarted as a whole. By
    /// default the work is restarted.
    ///
    /// ```
    /// use quorate::election::{Election, ElectionError};
    /// # use quorate::{node::MemoryNode, quorum::Quorum};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let nodes = (0..3).map(|i| MemoryNode::new(&format!("memory-{i}")));
    /// # let quorum = Quorum::builder().nodes(nodes).trust_new_nodes(true).build()?;
    /// let election = Election::new(&quorum, "billing").end_on_error();
    /// let ended = election.run(|_term| async { Err("no such table") }).await;
    /// assert!(matches!(ended, Err(ElectionError::Work("no such table"))));
    /// # quorum.close().await;
    /// # Ok(())
    /// # }
    /// ```
    pub fn end_on_error(mut self) -> Self {
        self.on_error = OnError::End;
        self
    }

    /// Returns the name of the group.
    pub fn group(&self) -> &Arc<str> {
        &self.shared.group
    }

    /// Returns the quorum whose nodes elect the leader.
    pub fn quorum(&self) -> &Quorum {
        &self.shared.quorum
    }

    /// Returns whether this candidate leads at this moment. Before a write, call [`Term::fencing_token`]
    /// instead, and pass the token to the write.
    pub fn is_leader(&self) -> bool {
        self.term().is_some_and(|term| term.is_valid())
    }

    /// Returns how long this candidate will lead from now on if no extension succeeds. The result is zero if
    /// the candidate does not lead.
    pub fn remaining(&self) -> Duration {
        self.term().map_or(Duration::ZERO, |term| term.remaining())
    }

    /// Returns the current term, if this candidate leads.
    pub fn term(&self) -> Option<Term> {
        self.shared.term.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the leader as this candidate knows it, from its own term or from its last attempt to be elected.
    /// The call sends no request. To ask the nodes, use [`Election::observe`].
    ///
    /// While a candidate waits for the lease, it learns of a new leader within about half a second. The method
    /// returns `None` in three cases: while the candidate is not running, before it has learned of a leader,
    /// and once that leader's lease has expired. A candidate that does not lead does not know the leader's
    /// term, so its [`Leader::term`] is `None`.
    pub fn leader(&self) -> Option<Leader> {
        let env = self.quorum().env();
        let config = self.quorum().config();
        self.shared.known_leader.get(env.now()).map(|known| {
            let own = self.term().filter(|_| known.worker == config.worker);
            Leader {
                term: own.as_ref().map(Term::unchecked_token),
                remaining: own.map(|term| term.remaining()).or(known.remaining),
                worker: known.worker,
                seen_since: known.since,
            }
        })
    }

    /// Returns the events of this candidate from now on. The channel closes when all clones of the candidate
    /// have been dropped.
    pub fn events(&self) -> mpsc::UnboundedReceiver<ElectionEvent> {
        self.shared.events.join()
    }

    /// Returns an observer of the leadership, for a program that does not campaign.
    ///
    /// # Errors
    /// [`SettingError`] if the group's name cannot be used.
    pub fn observe(&self) -> Result<Observer, SettingError> {
        let ledger = Ledger::new(self.quorum(), self.group())?;
        Ok(Observer::new(self.shared.quorum.clone(), self.shared.resource.clone()?, ledger))
    }

    /// Returns the reason why this candidate cannot do the leader's work, although it is or was elected. For a
    /// scheduler: too few nodes accept the writes of the group's ledger. The candidate then gives up the lead after one
    /// TTL, so that another worker may lead. Returns `None` if no such reason is known.
    pub fn impediment(&self) -> Option<Arc<str>> {
        let (known, env) = (&self.shared.known_leader, self.quorum().env());
        let own = &self.quorum().config().worker;
        let other = known.get(env.now()).filter(|known| known.worker != *own);
        let followed = other.map(|known| known.since.until(env.wall()));
        self.shared.impediment.get(followed, self.lease_ttl())
    }

    pub(super) fn new_term(&self, lease: Lease) -> Term {
        let (quorum, group) = (self.quorum().clone(), Arc::clone(self.group()));
        Term::new(quorum, group, lease, Arc::clone(&self.shared.impediment))
    }

    /// Returns the lock that the leader holds. If an attempt at the lock finds that another worker leads, this
    /// candidate notes that leader.
    pub(super) fn lock(&self) -> Result<Lock, SettingError> {
        let resource = self.shared.resource.clone()?;
        let election = self.clone();
        let on_holder = move |holder: &Owner, remaining| election.note_holder(holder, remaining);
        let lock = Lock::new(Arc::clone(self.shared.quorum.inner()), Ok(resource));
        Ok(lock.options(self.options.clone()).on_holder(Arc::new(on_holder)))
    }

    /// Tells the leader that there is a request for it on the nodes. The leader looks at once, or after some seconds if the nodes
    /// do not report the bell to it.
    pub(crate) async fn ring_leader(&self) {
        if let Some(resource) = self.resource() {
            Bell::new(self.quorum().inner(), resource.bell()).ring().await;
        }
    }

    pub(super) fn resource(&self) -> Option<&Resource> {
        self.shared.resource.as_ref().ok()
    }

    pub(crate) fn lease_ttl(&self) -> Duration {
        self.options.effective_ttl(self.quorum().config())
    }

    pub(crate) fn grace(&self) -> Duration {
        self.options.effective_grace(self.quorum().config())
    }

    pub(super) fn pause_after_term(&self) -> Duration {
        self.back_off.unwrap_or(self.lease_ttl() / 5)
    }

    pub(super) fn on_error(&self) -> OnError {
        self.on_error
    }

    pub(super) fn allows_remote_resign(&self) -> bool {
        self.allow_remote_resign
    }

    pub(super) fn preference(&self) -> Preference {
        self.preference
    }

    pub(super) fn delay(&self) -> Duration {
        self.candidate_delay
    }

    /// Returns whether a condition was set with [`Election::eligible_while`].
    pub(super) fn has_condition(&self) -> bool {
        self.eligible.is_some() || self.options.health().is_some()
    }

    /// Returns whether this candidate may campaign now.
    pub(super) fn is_eligible(&self) -> bool {
        self.eligible.iter().chain(self.options.health()).all(Health::may_begin)
    }

    pub(super) fn emit(&self, event: ElectionEvent) {
        self.shared.measures.event(event.as_str());
        self.shared.events.emit(event);
    }

    /// Records that this candidate leads, in the term `term`.
    pub(super) fn begin_term(&self, term: &Term) {
        self.shared.measures.elected();
        term.lease().report_to(self.shared.measures.term());
        *self.shared.term.lock().unwrap_or_else(PoisonError::into_inner) = Some(term.clone());
        let quorum = self.quorum();
        self.shared.known_leader.leads(&quorum.config().worker, quorum.env().wall());
    }

    /// Records that this candidate does not lead any more.
    pub(super) fn end_term(&self) {
        self.shared.term.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.shared.known_leader.clear();
    }

    /// Notes the holder of the group's lease as the leader, and logs a change of the leader. Two kinds of owner
    /// token do not name a leader and are ignored: a reservation for a successor, and [`Owner::QUEUE`], which a
    /// node reports if the lease is free but waiters queue for it.
    pub(super) fn note_holder(&self, holder: &Owner, remaining: Option<Duration>) {
        if holder.reserved_for().is_some() || holder.as_str() == Owner::QUEUE {
            return;
        }
        let env = self.quorum().env();
        let worker = holder.worker();
        let (group, leader) = (&**self.group(), crate::plain::plain(worker, 200));
        if self.shared.known_leader.follows(worker, remaining, env.now(), env.wall()) {
            tracing::info!(group, leader, "following the leader");
        }
        let is_namesake = *worker == *self.quorum().config().worker;
        if is_namesake && self.shared.known_leader.outlives(self.lease_ttl(), env.now()) {
            tracing::warn!(
                group,
                leader,
                "the leader has the name of this worker: another process, or another quorum of this process, leads \
                 under it. Give each worker a name of its own, and each group one election or scheduler in a process"
            );
        }
    }

    /// Marks the candidate as running until the returned guard is dropped. Returns `None` if this candidate, or
    /// another one of the same group and quorum, is already running.
    pub(super) fn begin_campaign(&self) -> Option<RunningGuard> {
        self.quorum().inner().begin_campaign(self.group()).then(|| RunningGuard(self.clone()))
    }
}

impl fmt::Debug for Election {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Election")
            .field("group", &self.shared.group)
            .field("options", &self.options)
            .field("term", &self.term().map(|term| term.unchecked_token()))
            .finish_non_exhaustive()
    }
}

/// A guard that keeps two campaigns of one group and quorum from running at the same time. Dropping the guard ends the
/// candidate's run.
pub(super) struct RunningGuard(Election);

impl Drop for RunningGuard {
    fn drop(&mut self) {
        self.0.end_term();
        self.0.quorum().inner().end_campaign(self.0.group());
    }
}
