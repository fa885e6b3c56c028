use super::{
    ElectionError, ElectionEvent, ElectionEvents, Observer, Term,
    end::{End, Failure, Led, Outcome},
    events::EventBroadcast,
    restart::{Failures, OnError},
    term::TermGuard,
};
use crate::{
    config::QuorumConfig,
    env::{BootTime, Env},
    lease::{
        AcquireError, Health, Heartbeat, Inspection, Lease, LeaseEvent, LeaseEvents, Lock, Options,
        StepDownCause, asked_to_let_go,
    },
    node::{NameError, Resource},
    quorum::Quorum,
    sabotage::Sabotage,
};
use futures_util::{
    FutureExt,
    future::{BoxFuture, FusedFuture},
};
use std::{
    fmt::{self, Display},
    panic::{AssertUnwindSafe, resume_unwind},
    pin::{Pin, pin},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// How long a candidate waits after an error that only an operator can fix, before it tries again.
const AFTER_ERROR: Duration = Duration::from_secs(1);
/// How often a candidate looks whether its turn has come.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Elects one copy of a group at a time. Clones are the same candidate.
#[derive(Clone, Debug)]
pub struct Election {
    shared: Arc<Shared>,
    options: Options,
    back_off: Option<Duration>,
    obeys: bool,
    eligible: Option<Health>,
    delay: Duration,
    on_error: OnError,
}

#[derive(Debug)]
struct Shared {
    quorum: Quorum,
    group: Arc<str>,
    resource: Result<Resource, NameError>,
    running: AtomicBool,
    term: Mutex<Option<Term>>,
    audience: EventBroadcast,
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
            audience: EventBroadcast::default(),
        };
        let options = Options::new(quorum.config());
        let (obeys, delay) = (true, Duration::ZERO);
        let on_error = OnError::DEFAULT;
        Self { shared: Arc::new(shared), options, back_off: None, obeys, eligible: None, delay, on_error }
    }

    /// How long a crashed leader blocks the others, at most. Default 10 s, at most `max_ttl`.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.options.ttl = ttl;
        self
    }

    /// How long the work has to end once it is told to. Default a fifth of the TTL.
    pub fn step_down_grace(mut self, grace: Duration) -> Self {
        self.options.grace = Some(grace);
        self
    }

    /// How long one term lasts at most: the work is told to stop its grace before, then the term ends, and this
    /// candidate lets others go first. Default for ever. See [`Lock::max_hold`](crate::lease::Lock::max_hold).
    pub fn max_term(mut self, most: Duration) -> Self {
        self.options.max_hold = Some(most);
        self
    }

    /// Leads only while `check` says yes, so that a leader that is stuck stops extending its lease: it is told to
    /// step down, and its term ends. Nor does it campaign meanwhile. See
    /// [`Lock::renew_while`](crate::lease::Lock::renew_while) for when it is asked; it must not wait.
    pub fn renew_while(mut self, check: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        self.options.health = Some(Health::Check(Arc::new(check)));
        self
    }

    /// As [`Election::renew_while`], by a heartbeat that the work gives: its silence counts from the beginning of a
    /// term. [`Heartbeat`] says where to beat, and how long a silence to allow.
    pub fn renew_while_beating(mut self, heart: &Heartbeat) -> Self {
        self.options.health = Some(Health::Beats(heart.clone()));
        self
    }

    /// Campaigns only while `check` says yes; a term that has begun goes on. Asked before each attempt.
    pub fn eligible_while(mut self, check: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        self.eligible = Some(Health::Check(Arc::new(check)));
        self
    }

    /// Comes this much later than the others where nobody leads: candidates of lower priority are told a delay,
    /// longer than a round takes, and lead where no other does. It is a preference and no order: whoever leads,
    /// leads on when a candidate of higher priority comes. Default zero.
    pub fn candidate_delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Whether the leader resigns when it is [asked to from outside](Observer::ask_to_resign). Default true.
    pub fn allow_remote_resign(mut self, obeys: bool) -> Self {
        self.obeys = obeys;
        self
    }

    /// How long a leader whose work returned `Ok` lets others go first. Default a fifth of the TTL.
    pub fn back_off(mut self, back_off: Duration) -> Self {
        self.back_off = Some(back_off);
        self
    }

    /// Sets the pause after which a candidate whose work failed campaigns again: `first` after the first failure, twice that
    /// after each further one, up to `longest`. The pause that is taken is drawn at random from between half of that and all
    /// of it. Work that ran for `longest` without an error begins anew with `first`. Default 1 s to 30 s, at least 10 ms.
    ///
    /// The leader has released its lease by then, so that other candidates may lead. See
    /// [the module](crate::election#when-the-work-fails).
    pub fn restart_backoff(mut self, first: Duration, longest: Duration) -> Self {
        self.on_error = OnError::restart(first, longest);
        self
    }

    /// Ends the campaign when the work returns an error or panics, instead of restarting it: for errors that only a person can
    /// fix, and for programs that are restarted as a whole. Without it the work is restarted.
    ///
    /// ```
    /// use quorate::election::{Election, ElectionError};
    /// # use quorate::{node::MemoryNode, quorum::Quorum};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let nodes = (0..3).map(|i| MemoryNode::new(&format!("memory-{i}")));
    /// # let quorum = Quorum::builder().nodes(nodes).trust_new_nodes(true).build()?;
    /// let election = Election::new(&quorum, "billing").end_on_error();
    /// let ended = election.run(|_term| async { Err("no such table") }).until(std::future::pending()).await;
    /// assert!(matches!(ended, Err(ElectionError::Work("no such table"))));
    /// # quorum.close().await;
    /// # Ok(())
    /// # }
    /// ```
    pub fn end_on_error(mut self) -> Self {
        self.on_error = OnError::End;
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

    /// Whether this candidate leads at this moment. Before a write use [`Term::fencing_token`] instead, and pass on
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

    /// Runs `work` on one copy of the group at a time. Nothing happens until [`Campaign::until`]. Work that fails is
    /// restarted after a pause, on this copy or another, unless the election [ends on an error](Election::end_on_error).
    pub fn run<W, F, E>(&self, work: W) -> Campaign<W>
    where
        W: FnMut(Term) -> F + Send,
        F: Future<Output = Result<(), E>> + Send + 'static,
    {
        Campaign { election: self.clone(), work }
    }

    fn lock(&self) -> Result<Lock, NameError> {
        let resource = self.shared.resource.clone()?;
        Ok(Lock::with(Arc::clone(self.shared.quorum.inner()), resource, self.options.clone()))
    }

    pub(crate) fn lease_ttl(&self) -> Duration {
        self.options.ttl
    }

    pub(crate) fn grace(&self) -> Duration {
        self.options.grace.unwrap_or(QuorumConfig::default_grace(self.options.ttl))
    }

    /// Whether it may campaign now.
    fn is_eligible(&self) -> bool {
        [&self.eligible, &self.options.health].into_iter().flatten().all(Health::may_begin)
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

impl<W, F, E> Campaign<W>
where
    W: FnMut(Term) -> F + Send,
    F: Future<Output = Result<(), E>> + Send + 'static,
    E: Display + Send + 'static,
{
    /// Campaigns, leads, and campaigns again, until `shutdown` is ready. The module says what ends a term.
    ///
    /// # Errors
    /// [`ElectionError::QuorumConfig`] for a group or timings that cannot be used, for a closed quorum, and where only an operator can
    /// fix what keeps a majority of the nodes from voting (a wrong password, another node list) and none has voted since the
    /// quorum was built; [`ElectionError::AlreadyRunning`]; and [`ElectionError::Work`] with the error of the work, if the
    /// election [ends on an error](Election::end_on_error). Otherwise an error of the work is logged, and the work is
    /// restarted. An unreachable quorum is no error: it is waited for. Where this worker loses its access while it runs, it
    /// logs that, and goes on trying.
    ///
    /// # Panics
    /// With the work's panic, once the leader has resigned, if the election [ends on an error](Election::end_on_error).
    ///
    /// # Cancel safety
    /// Dropping it drops the work, then releases the lease. Runs of a [scheduler](crate::schedule) are tasks of
    /// their own: they are told to end, and not waited for.
    pub async fn until(mut self, shutdown: impl Future<Output = ()> + Send) -> Result<(), ElectionError<E>> {
        let election = self.election.clone();
        let _running = Running::begin(&election)?;
        let env = election.quorum().env().clone();
        let mut shutdown = pin!(shutdown.fuse());
        let mut failures = Failures::default();
        loop {
            if shutdown.is_terminated() {
                return Ok(());
            }
            let acquired = tokio::select! { biased;
                () = &mut shutdown => return Ok(()),
                acquired = acquire(&election, &env) => acquired?,
            };
            let led = self.lead(&env, acquired, shutdown.as_mut()).await;
            let back_off = election.back_off.unwrap_or(election.options.ttl / 5);
            let pause = match (led.end, election.on_error) {
                (End::ShutDown, _) => return Ok(()),
                (End::Failed(Failure::Error(error)), OnError::End) => return Err(ElectionError::Work(error)),
                (End::Failed(Failure::Panic(panic)), OnError::End) => resume_unwind(panic),
                (End::Failed(failure), OnError::Restart(_)) if led.told_to_stop => {
                    let group = &**election.group();
                    tracing::warn!(group, "the work failed after it was told to stop: {failure}");
                    back_off
                }
                (End::Failed(failure), OnError::Restart(backoff)) => {
                    let pause = failures.failed(backoff, led.ran, env.random());
                    let (group, in_a_row) = (&**election.group(), failures.in_a_row());
                    tracing::warn!(
                        group,
                        in_a_row,
                        "the work failed; it has resigned, and campaigns again in {pause:.1?}: {failure}"
                    );
                    pause
                }
                (end @ (End::Done | End::Left | End::Lost), on_error) => {
                    if let OnError::Restart(backoff) = on_error {
                        failures.ended(backoff, led.ran);
                    }
                    if matches!(end, End::Lost) && !led.rests {
                        continue;
                    }
                    back_off
                }
            };
            if shutdown.is_terminated() {
                return Ok(());
            }
            tokio::select! { biased;
                () = &mut shutdown => return Ok(()),
                () = env.sleep(pause) => {}
            }
        }
    }

    /// Leads for one term, from its grant to its end. The work ends first, then the lease.
    async fn lead<S>(&mut self, env: &Env, lease: Lease, shutdown: Pin<&mut S>) -> Led<E>
    where
        S: Future<Output = ()> + Send + FusedFuture,
    {
        let election = &self.election;
        let mut events = lease.events();
        let term = Term::new(election.quorum().clone(), Arc::clone(election.group()), lease);
        let number = term.token();
        let term_guard = TermGuard(term.clone());
        election.set_term(Some(term.clone()));
        election.tell(ElectionEvent::Elected(number));
        tracing::info!(group = &**election.group(), term = number.get(), "elected");
        let work = &mut self.work;
        let work: BoxFuture<'_, Outcome<E>> = {
            let term = term.clone();
            AssertUnwindSafe(async move { work(term).await }).catch_unwind().boxed()
        };
        let began = env.now();
        let end = tend(env, election, &term, work, &mut events, shutdown).await;
        let ran = began.until(env.now());
        let told_to_stop = term.step_down_token().is_cancelled() || !term.is_valid();
        if matches!(end, End::Failed(_)) {
            election.tell(ElectionEvent::WorkFailed(number));
        }
        // The work has been dropped by now; tasks that it has started for the term end with it, and first.
        let waits = !election.quorum().config().sabotaged(Sabotage::WorkOutlivesTerm);
        if let Some(until) = term.valid_until().filter(|_| waits) {
            env.before(until, term.ended()).await;
        }
        let cause = term.step_down_cause();
        let (event, told) = match (&end, cause) {
            (End::Lost, Some(StepDownCause::MaxHold)) => {
                (ElectionEvent::Lost(number), "the longest term is over")
            }
            (End::Lost, Some(StepDownCause::Unhealthy)) => {
                (ElectionEvent::Lost(number), "lost the term: its worker gave no sign of life")
            }
            (End::Lost, _) => {
                (ElectionEvent::Lost(number), "lost the term: too few nodes extended it in time")
            }
            _ => (ElectionEvent::Resigned(number), "resigned"),
        };
        let rests = matches!(cause, Some(StepDownCause::MaxHold | StepDownCause::Unhealthy));
        if !matches!(end, End::Lost) {
            let_go(election, &term).await;
        }
        election.set_term(None);
        drop(term_guard);
        tracing::info!(group = &**election.group(), term = number.get(), "{told}");
        election.tell(event);
        Led { end, rests, told_to_stop, ran }
    }
}

/// Ends the lease of a term whose work has ended, and hands it over where an heir is named.
async fn let_go(election: &Election, term: &Term) {
    let number = term.token();
    if term.is_unreleased() {
        tracing::warn!(
            group = &**election.group(),
            term = number.get(),
            "the lease is not released, and ends by itself: work that it covers may still run"
        );
        return term.lease().forget();
    }
    let gone = match term.heir() {
        None => term.lease().end().await.map_err(|error| error.to_string()),
        Some(heir) => {
            let reserved = term.lease().hand_over(&heir).await;
            election.tell(ElectionEvent::HandedOver { term: number, reserved: reserved.is_ok() });
            reserved.map(drop).map_err(|error| error.to_string())
        }
    };
    if let Err(error) = gone {
        tracing::warn!(group = &**election.group(), term = number.get(), "{error}");
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
    let number = term.token();
    let mut told_to_stop = false;
    let mut at_risk = false;
    let mut leaving = false;
    let mut stop_at = BootTime::from_nanos(u64::MAX);
    let mut asked = pin!(asked_to_let_go(term.lease()).fuse());
    loop {
        tokio::select! { biased;
            () = term.lost_token().cancelled() => return End::Lost,
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
            () = term.leaving().cancelled(), if !leaving => {
                leaving = true;
                stop_at = stop_at.min(env.now() + election.grace());
                term.stop(stop_at);
                if !told_to_stop {
                    told_to_stop = true;
                    election.tell(ElectionEvent::StepDown(number));
                }
            }
            () = &mut asked, if election.obeys && !asked.is_terminated() => {
                tracing::info!(group = &**election.group(), term = number.get(), "asked to resign");
                election.tell(ElectionEvent::AskedToResign(number));
                term.resign();
            }
            outcome = &mut work => {
                let shut_down = shutdown.is_terminated();
                return match outcome {
                    Ok(Ok(())) if shut_down => End::ShutDown,
                    Ok(Ok(())) if leaving => End::Left,
                    Ok(Ok(())) => End::Done,
                    Ok(Err(error)) => End::Failed(Failure::Error(error)),
                    Err(panic) => End::Failed(Failure::Panic(panic)),
                };
            }
            () = env.sleep_until(stop_at) => {
                return if shutdown.is_terminated() { End::ShutDown } else { End::Left };
            }
        }
    }
}

/// Campaigns until the lease is ours.
///
/// What only an operator can fix ends a campaign that has never had a quorum: this worker was started with a mistake. A
/// worker that has had one goes on trying, and logs each failure: an operator may be rotating a password.
async fn acquire<E>(election: &Election, env: &Env) -> Result<Lease, ElectionError<E>> {
    let lock = election.lock().map_err(|error| ElectionError::QuorumConfig(error.into()))?;
    loop {
        wait_for_its_turn(election, env).await;
        match lock.acquire().await {
            Ok(lease) => return Ok(lease),
            Err(error @ (AcquireError::Name(_) | AcquireError::QuorumConfig(_) | AcquireError::Closed)) => {
                return Err(ElectionError::QuorumConfig(error));
            }
            Err(error) if error.is_permanent() && !election.quorum().pool().has_had_quorum() => {
                return Err(ElectionError::QuorumConfig(error));
            }
            Err(error) => {
                tracing::error!(group = &**election.group(), "cannot campaign: {error}");
                env.sleep(AFTER_ERROR).await;
            }
        }
    }
}

/// Waits until the candidate is eligible, and for one of lower priority until nobody has led for its delay.
async fn wait_for_its_turn(election: &Election, env: &Env) {
    loop {
        while !election.is_eligible() {
            env.sleep(LOOK_AGAIN).await;
        }
        if election.delay.is_zero() {
            return;
        }
        let Ok(resource) = &election.shared.resource else { return };
        // Nodes that cannot be asked cannot be asked for the lease either; the attempt says why.
        let config = election.quorum().config();
        let heir =
            |seen: &Inspection| seen.holder.as_ref().is_some_and(|holder| config.is_heir_of(&holder.owner));
        let led = |seen: &Inspection| seen.holder.is_some() || seen.contended;
        loop {
            match election.quorum().inspect(resource).await {
                // What is kept for us waits for nobody's delay.
                Ok(seen) if heir(&seen) => return,
                Ok(seen) if led(&seen) => env.sleep(LOOK_AGAIN).await,
                _ => break,
            }
        }
        env.sleep(election.delay).await;
        let led = election.quorum().inspect(resource).await.as_ref().is_ok_and(led);
        if !led && election.is_eligible() {
            return;
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
