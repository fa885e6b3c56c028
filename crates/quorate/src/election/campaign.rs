use super::{ElectionError, ElectionEvent, ElectionEvents, Observer, Term, events::Audience, term::Tenant};
use crate::{
    env::{BootTime, Env},
    lease::{AcquireError, Lease, LeaseEvent, LeaseEvents, Lock, Quorum},
    node::{NameError, Resource},
    round::{Sabotage, Setup},
};
use futures_util::{
    FutureExt,
    future::{BoxFuture, FusedFuture},
};
use std::{
    any::Any,
    fmt,
    panic::{AssertUnwindSafe, resume_unwind},
    pin::{Pin, pin},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// How long a candidate waits after an error that only an operator can mend, before it tries again.
const AFTER_ERROR: Duration = Duration::from_secs(1);

/// Elects one copy of a group at a time. Clones are the same candidate.
#[derive(Clone, Debug)]
pub struct Election {
    shared: Arc<Shared>,
    ttl: Duration,
    grace: Option<Duration>,
    back_off: Option<Duration>,
}

#[derive(Debug)]
struct Shared {
    quorum: Quorum,
    group: Arc<str>,
    resource: Result<Resource, NameError>,
    running: AtomicBool,
    term: Mutex<Option<Term>>,
    audience: Audience,
}

impl Election {
    /// A candidate for the leadership of `group`. It does nothing until it is [`run`](Election::run).
    pub fn new(quorum: &Quorum, group: &str) -> Self {
        let shared = Shared {
            quorum: quorum.clone(),
            group: group.into(),
            resource: Resource::election(group),
            running: AtomicBool::new(false),
            term: Mutex::new(None),
            audience: Audience::default(),
        };
        let ttl = quorum.setup().default_ttl();
        Self { shared: Arc::new(shared), ttl, grace: None, back_off: None }
    }

    /// How long a crashed leader blocks the others, at most. Default 10 s, at most `max_ttl`.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// How long the work has to end once it is told to. Default a fifth of the TTL.
    pub fn step_down_grace(mut self, grace: Duration) -> Self {
        self.grace = Some(grace);
        self
    }

    /// How long a leader whose work returned `Ok` lets others go first. Default a fifth of the TTL.
    pub fn back_off(mut self, back_off: Duration) -> Self {
        self.back_off = Some(back_off);
        self
    }

    /// The group.
    pub fn group(&self) -> &Arc<str> {
        &self.shared.group
    }

    /// The quorum that elects.
    pub fn quorum(&self) -> &Quorum {
        &self.shared.quorum
    }

    /// Whether this candidate leads at this moment. Before a write use [`Term::check`] instead, and pass on
    /// the token that it gives.
    pub fn is_leader(&self) -> bool {
        self.term().is_some_and(|term| term.is_valid())
    }

    /// How long this candidate leads from now on if no extension succeeds; zero if it does not lead.
    pub fn remaining(&self) -> Duration {
        self.term().map_or(Duration::ZERO, |term| term.remaining())
    }

    /// The present term, if this candidate leads.
    pub fn term(&self) -> Option<Term> {
        self.shared.term.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What happens to this candidate from now on.
    pub fn events(&self) -> ElectionEvents {
        self.shared.audience.join()
    }

    /// Who leads, seen from outside: for those who do not compete.
    ///
    /// # Errors
    /// [`NameError`] where the group's name cannot be used.
    pub fn observe(&self) -> Result<Observer, NameError> {
        Ok(Observer::new(self.shared.quorum.clone(), self.shared.resource.clone()?))
    }

    /// Runs `work` on one copy of the group at a time. Nothing happens until [`Campaign::until`].
    pub fn run<W, F, E>(&self, work: W) -> Campaign<W>
    where
        W: FnMut(Term) -> F + Send,
        F: Future<Output = Result<(), E>> + Send + 'static,
    {
        Campaign { election: self.clone(), work }
    }

    fn lock(&self) -> Lock {
        let shared = &self.shared;
        let lock = Lock::new(Arc::clone(shared.quorum.hub()), shared.resource.clone()).ttl(self.ttl);
        lock.step_down_grace(self.grace())
    }

    fn grace(&self) -> Duration {
        self.grace.unwrap_or(Setup::default_grace(self.ttl))
    }

    fn tell(&self, event: ElectionEvent) {
        self.shared.audience.tell(event);
    }

    fn set_term(&self, term: Option<Term>) {
        *self.shared.term.lock().unwrap_or_else(PoisonError::into_inner) = term;
    }
}

/// A candidate with its work: made by [`Election::run`].
#[must_use = "a campaign does nothing until it is told until when to run"]
pub struct Campaign<W> {
    election: Election,
    work: W,
}

impl<W> fmt::Debug for Campaign<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Campaign").field("election", &self.election).finish_non_exhaustive()
    }
}

/// What ended a term.
enum End<E> {
    Lost,
    Done,
    Failed(E),
    Panicked(Box<dyn Any + Send>),
    ShutDown,
}

type Outcome<E> = Result<Result<(), E>, Box<dyn Any + Send>>;

impl<W, F, E> Campaign<W>
where
    W: FnMut(Term) -> F + Send,
    F: Future<Output = Result<(), E>> + Send + 'static,
    E: Send + 'static,
{
    /// Campaigns, leads, and campaigns again, until `shutdown` is ready. The module says what ends a term.
    ///
    /// # Errors
    /// [`ElectionError::Work`] with what the work returned; [`ElectionError::Setup`] for a group or timings
    /// that cannot be used and for a closed quorum; [`ElectionError::AlreadyRunning`]. An unreachable quorum
    /// is no error: it is waited for.
    ///
    /// # Panics
    /// With the work's panic, once the leader has resigned.
    ///
    /// # Cancel safety
    /// Dropping it drops the work, then releases the lease. Runs of a [scheduler](crate::schedule) are tasks of
    /// their own: they are told to end, and not waited for.
    pub async fn until(mut self, shutdown: impl Future<Output = ()> + Send) -> Result<(), ElectionError<E>> {
        let election = self.election.clone();
        let _running = Running::begin(&election)?;
        let env = election.quorum().env().clone();
        let mut shutdown = pin!(shutdown.fuse());
        loop {
            if shutdown.is_terminated() {
                return Ok(());
            }
            let acquired = tokio::select! { biased;
                () = &mut shutdown => return Ok(()),
                acquired = acquire(&election, &env) => acquired?,
            };
            let end = self.lead(&env, acquired, shutdown.as_mut()).await;
            match end {
                End::Lost => {}
                End::ShutDown => return Ok(()),
                End::Failed(error) => return Err(ElectionError::Work(error)),
                End::Panicked(panic) => resume_unwind(panic),
                End::Done => {
                    let pause = env.sleep(election.back_off.unwrap_or(election.ttl / 5));
                    tokio::select! { biased;
                        () = &mut shutdown => return Ok(()),
                        () = pause => {}
                    }
                }
            }
        }
    }

    /// One term, from its grant to its end. The work ends first, then the lease.
    async fn lead<S>(&mut self, env: &Env, lease: Lease, shutdown: Pin<&mut S>) -> End<E>
    where
        S: Future<Output = ()> + Send + FusedFuture,
    {
        let election = &self.election;
        let mut events = lease.events();
        let term = Term::new(election.quorum().clone(), Arc::clone(election.group()), lease);
        let number = term.number();
        let tenant = Tenant(term.clone());
        election.set_term(Some(term.clone()));
        election.tell(ElectionEvent::Elected(number));
        tracing::info!(group = &**election.group(), term = number.get(), "elected");
        let work = &mut self.work;
        let work: BoxFuture<'_, Outcome<E>> = {
            let term = term.clone();
            AssertUnwindSafe(async move { work(term).await }).catch_unwind().boxed()
        };
        let end = tend(env, election, &term, work, &mut events, shutdown).await;
        // The work has been dropped by now; tasks that it has started for the term end with it, and first.
        let waits = !election.quorum().setup().sabotaged(Sabotage::WorkOutlivesTerm);
        if let Some(until) = term.valid_until().filter(|_| waits) {
            env.before(until, term.ended()).await;
        }
        let (event, told) = match &end {
            End::Lost => (ElectionEvent::Lost(number), "lost the term: too few nodes extended it in time"),
            _ => (ElectionEvent::Resigned(number), "resigned"),
        };
        if !matches!(end, End::Lost)
            && let Err(error) = term.lease().end().await
        {
            tracing::warn!(group = &**election.group(), term = number.get(), "{error}");
        }
        election.set_term(None);
        drop(tenant);
        tracing::info!(group = &**election.group(), term = number.get(), "{told}");
        election.tell(event);
        end
    }
}

/// Polls the work, and watches what may end it.
async fn tend<E, S>(
    env: &Env,
    election: &Election,
    term: &Term,
    mut work: BoxFuture<'_, Outcome<E>>,
    events: &mut LeaseEvents,
    mut shutdown: Pin<&mut S>,
) -> End<E>
where
    S: Future<Output = ()> + Send + FusedFuture,
{
    let number = term.number();
    let mut told_to_stop = false;
    let mut at_risk = false;
    let mut stop_at = BootTime::from_nanos(u64::MAX);
    loop {
        tokio::select! { biased;
            () = term.lost().cancelled() => return End::Lost,
            Some(event) = events.next() => match event {
                LeaseEvent::AtRisk => {
                    at_risk = true;
                    election.tell(ElectionEvent::AtRisk(number));
                }
                LeaseEvent::StepDown if !told_to_stop => {
                    told_to_stop = true;
                    election.tell(ElectionEvent::StepDown(number));
                }
                LeaseEvent::Held if at_risk => {
                    at_risk = false;
                    election.tell(ElectionEvent::Recovered(number));
                }
                LeaseEvent::Held | LeaseEvent::StepDown | LeaseEvent::Lost => {}
            },
            () = &mut shutdown, if !shutdown.is_terminated() => {
                stop_at = env.now() + election.grace();
                term.stop(stop_at);
                if !told_to_stop {
                    told_to_stop = true;
                    election.tell(ElectionEvent::StepDown(number));
                }
            }
            outcome = &mut work => {
                let shut_down = shutdown.is_terminated();
                return match outcome {
                    Ok(Ok(())) if shut_down => End::ShutDown,
                    Ok(Ok(())) => End::Done,
                    Ok(Err(error)) => End::Failed(error),
                    Err(panic) => End::Panicked(panic),
                };
            }
            () = env.sleep_until(stop_at) => return End::ShutDown,
        }
    }
}

/// Campaigns until the lease is ours. What only an operator can mend is told, and tried again.
async fn acquire<E>(election: &Election, env: &Env) -> Result<Lease, ElectionError<E>> {
    let lock = election.lock();
    loop {
        match lock.acquire().await {
            Ok(lease) => return Ok(lease),
            Err(error @ (AcquireError::Name(_) | AcquireError::Setup(_) | AcquireError::Closed)) => {
                return Err(ElectionError::Setup(error));
            }
            Err(error) => {
                tracing::error!(group = &**election.group(), "cannot campaign: {error}");
                env.sleep(AFTER_ERROR).await;
            }
        }
    }
}

/// That a candidate is being run, once.
struct Running(Arc<Shared>);

impl Running {
    fn begin<E>(election: &Election) -> Result<Self, ElectionError<E>> {
        if election.shared.running.swap(true, Ordering::AcqRel) {
            return Err(ElectionError::AlreadyRunning { group: election.group().to_string() });
        }
        Ok(Self(Arc::clone(&election.shared)))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        *self.0.term.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.0.running.store(false, Ordering::Release);
    }
}
