use super::{
    Election, ElectionError, ElectionEvent, Term,
    end::{End, Failure, LedTerm, WorkResult, lost_because},
    following::{ask_for_the_lead, follow},
    history_writer::HistoryWriter,
    log_limit::LogLimit,
    restart::OnError,
    term::TermGuard,
    term_work::run_work,
};
use crate::{
    backoff::Failures,
    env::Env,
    lease::{AcquireError, Inspection, Lease, Lock, StepDownCause},
    sabotage::Sabotage,
};
use futures_util::{
    FutureExt,
    future::{BoxFuture, FusedFuture},
};
use std::{
    any::Any,
    fmt::{self, Display},
    panic::{AssertUnwindSafe, resume_unwind},
    pin::{Pin, pin},
    time::Duration,
};
use tracing::{Instrument, Span, field::Empty};

/// The pause after an error that only an operator can fix. After it, the candidate campaigns again.
const AFTER_ERROR: Duration = Duration::from_secs(1);
/// The time between two checks of whether the candidate may campaign.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

impl Election {
    /// Runs `work` on one copy of the service at a time. The campaign begins when the returned value is
    /// awaited, by itself or with [`Campaign::until`]. Work that fails is restarted after a pause, on this
    /// copy or another, unless the election [ends on an error](Election::end_on_error).
    pub fn run<W, F, E>(&self, work: W) -> Campaign<W>
    where
        W: FnMut(Term) -> F + Send,
        F: Future<Output = Result<(), E>> + Send + 'static,
    {
        Campaign { election: self.clone(), work }
    }
}

/// The end of a campaign.
enum CampaignEnd<E> {
    ShutDown,
    Error(ElectionError<E>),
    /// The panic of the work.
    Panic(Box<dyn Any + Send>),
}

/// A candidate with its work, made by [`Election::run`].
///
/// Await it to campaign for as long as the quorum is open, or use [`Campaign::until`] to end the campaign at
/// a shutdown.
#[must_use = "a campaign does nothing until it is awaited"]
pub struct Campaign<W> {
    election: Election,
    work: W,
}

impl<W> fmt::Debug for Campaign<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Campaign").field("election", &self.election).finish_non_exhaustive()
    }
}

/// Campaigns without a shutdown signal: see [`Campaign::until`]. The campaign ends only with an error, for example
/// when the quorum is closed.
///
/// If the error of the work is not `Send`, such as `Box<dyn Error>`, the campaign cannot be awaited in this
/// way. Use `Box<dyn Error + Send + Sync>`, or [`Campaign::until`] with [`std::future::pending`].
impl<W, F, E> IntoFuture for Campaign<W>
where
    W: FnMut(Term) -> F + Send + 'static,
    F: Future<Output = Result<(), E>> + Send + 'static,
    E: Display + Send + 'static,
{
    type Output = Result<(), ElectionError<E>>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.until(std::future::pending::<()>()).boxed()
    }
}

impl<W, F, E> Campaign<W>
where
    W: FnMut(Term) -> F + Send,
    F: Future<Output = Result<(), E>> + Send + 'static,
    E: Display + 'static,
{
    /// Campaigns, leads, and campaigns again, until `shutdown` completes. The output of `shutdown` may be of
    /// any type, such as that of [`shutdown_signal`](crate::shutdown_signal()). See [what ends a
    /// term](crate::election#what-ends-a-term).
    ///
    /// # Errors
    /// - [`ElectionError::Acquire`] if the group's name or the settings cannot be used, or if the quorum is
    ///   closed. The same error is returned if no majority could vote since the quorum was built, for a
    ///   reason that only an operator can fix: a wrong password, or another node list.
    /// - [`ElectionError::AlreadyRunning`] if this candidate, or another election or scheduler of the same group on
    ///   this quorum, is already running.
    /// - [`ElectionError::Work`] with the error of the work, if the election [ends on an
    ///   error](Election::end_on_error). Otherwise the error is logged, and the work is restarted.
    ///
    /// A quorum that cannot be reached is not an error: the campaign waits for it. If a running worker loses
    /// its access to the nodes, it logs the failure and continues to try.
    ///
    /// # Panics
    /// Panics with the work's panic, after the leader has resigned, if the election [ends on an
    /// error](Election::end_on_error).
    ///
    /// # Cancel safety
    /// Dropping the future drops the work, then releases the lease. Runs of a [scheduler](crate::scheduler) are
    /// separate tasks: they are asked to end, and the drop does not wait for them.
    pub async fn until<S>(mut self, shutdown: S) -> Result<(), ElectionError<E>>
    where
        S: Future + Send,
    {
        let election = self.election.clone();
        let _running = election
            .begin_campaign()
            .ok_or_else(|| ElectionError::AlreadyRunning { group: election.group().to_string() })?;
        let history = HistoryWriter::start(&election);
        let shutdown = pin!(shutdown.map(drop).fuse());
        let ended = self.campaign(&history, shutdown).await;
        history.finish().await;
        match ended {
            CampaignEnd::ShutDown => Ok(()),
            CampaignEnd::Error(error) => Err(error),
            CampaignEnd::Panic(panic) => resume_unwind(panic),
        }
    }

    /// Campaigns and leads until the campaign ends.
    async fn campaign<S>(&mut self, history: &HistoryWriter, mut shutdown: Pin<&mut S>) -> CampaignEnd<E>
    where
        S: Future<Output = ()> + Send + FusedFuture,
    {
        let election = self.election.clone();
        let env = election.quorum().env().clone();
        let mut failures = Failures::default();
        loop {
            if shutdown.is_terminated() {
                return CampaignEnd::ShutDown;
            }
            let acquired = tokio::select! { biased;
                () = &mut shutdown => return CampaignEnd::ShutDown,
                acquired = acquire(&election, &env, failures.in_a_row()) => acquired,
            };
            let lease = match acquired {
                Ok(lease) => lease,
                Err(error) => return CampaignEnd::Error(error),
            };
            let span = term_span(&election, &lease);
            let led = self.lead(&env, lease, history, shutdown.as_mut()).instrument(span.clone()).await;
            span.record("outcome", led.end.as_str());
            drop(span); // It ends here: the pause is not a part of the term.
            let pause = match pause_after(&election, &env, &mut failures, led) {
                Ok(Some(pause)) => pause,
                Ok(None) => continue,
                Err(end) => return end,
            };
            if shutdown.is_terminated() {
                return CampaignEnd::ShutDown;
            }
            tokio::select! { biased;
                () = &mut shutdown => return CampaignEnd::ShutDown,
                () = env.sleep(pause) => {}
            }
        }
    }

    /// Leads for one term, from the acquisition of the lease to the end of the term. The work ends before the
    /// lease does, unless the lease is lost.
    async fn lead<S>(
        &mut self,
        env: &Env,
        lease: Lease,
        history: &HistoryWriter,
        shutdown: Pin<&mut S>,
    ) -> LedTerm<E>
    where
        S: Future<Output = ()> + Send + FusedFuture,
    {
        let election = &self.election;
        let mut events = lease.events();
        let term = election.new_term(lease);
        let token = term.unchecked_token();
        let term_guard = TermGuard(term.clone());
        election.begin_term(&term);
        election.emit(ElectionEvent::Elected(token));
        tracing::info!(group = &**election.group(), term = token.get(), "elected");
        history.begun(&term);
        let work = &mut self.work;
        let work: BoxFuture<'_, WorkResult<E>> = {
            let term = term.clone();
            AssertUnwindSafe(async move { work(term).await }).catch_unwind().boxed()
        };
        let began = env.now();
        let end = run_work(env, election, &term, work, &mut events, shutdown).await;
        let ran = began.until(env.now());
        let asked_to_stop = term.step_down_token().is_cancelled() || !term.is_valid();
        if matches!(end, End::Failed(_)) {
            election.emit(ElectionEvent::WorkFailed(token));
        }
        // The work has been dropped by now. The tasks that it started with [`Term::spawn`] must end too before
        // the lease ends.
        term.end_tasks();
        let waits = !election.quorum().config().sabotaged(Sabotage::WorkOutlivesTerm);
        if let Some(until) = term.valid_until().filter(|_| waits) {
            env.before(until, term.tasks_ended()).await;
        }
        let cause = term.step_down_cause();
        let is_lost = matches!(end, End::Lost { .. });
        let gave_up = term.has_given_up();
        history.ended(&term, &end, cause);
        if !is_lost {
            release(election, &term).await;
        }
        log_end(election, &term, &end, cause);
        election.end_term();
        drop(term_guard);
        let event = if is_lost { ElectionEvent::Lost(token) } else { ElectionEvent::Resigned(token) };
        election.emit(event);
        let by_choice = matches!(cause, Some(StepDownCause::MaxHold | StepDownCause::Unhealthy));
        LedTerm { end, by_choice, gave_up, asked_to_stop, ran }
    }
}

/// Returns the span of a term, from the acquisition of the lease to its release or loss.
fn term_span(election: &Election, lease: &Lease) -> Span {
    tracing::debug_span!(
        "term",
        group = &**election.group(),
        term = lease.unchecked_token().get(),
        outcome = Empty
    )
}

/// Returns the pause before the next campaign. Returns `None` if no pause is needed: the candidate campaigns
/// at once, unless the caller finds that the campaign is shut down.
///
/// # Errors
/// The end of the campaign.
fn pause_after<E: Display>(
    election: &Election,
    env: &Env,
    failures: &mut Failures,
    led: LedTerm<E>,
) -> Result<Option<Duration>, CampaignEnd<E>> {
    let group = &**election.group();
    let back_off = election.pause_after_term();
    Ok(match (led.end, election.on_error()) {
        // A shutdown needs no pause. The caller checks for it and returns.
        (End::ShutDown, _) => None,
        // Another candidate may be able to do the work, so this one waits until it has had the time to be elected.
        (End::Done | End::Resigned | End::Lost { .. }, on_error) if led.gave_up => {
            let pause = failures.failed(on_error.backoff(), led.ran, env.random());
            Some(pause.max(election.lease_ttl()))
        }
        (End::Failed(Failure::Error(error)), OnError::End) => {
            return Err(CampaignEnd::Error(ElectionError::Work(error)));
        }
        (End::Failed(Failure::Panic(panic)), OnError::End) => return Err(CampaignEnd::Panic(panic)),
        (End::Failed(failure), OnError::Restart(_)) if led.asked_to_stop => {
            tracing::warn!(group, "the work failed after it was asked to stop: {failure}");
            Some(back_off)
        }
        (End::Failed(failure), OnError::Restart(backoff)) => {
            let pause = failures.failed(backoff, led.ran, env.random());
            let in_a_row = failures.in_a_row();
            tracing::warn!(
                group,
                in_a_row,
                "the work failed; it has resigned, and campaigns again in {pause:.1?}: {failure}"
            );
            Some(pause)
        }
        (end @ (End::Done | End::Resigned | End::Lost { .. }), on_error) => {
            if let OnError::Restart(backoff) = on_error {
                failures.ended(backoff, led.ran);
            }
            let at_once = matches!(end, End::Lost { .. }) && !led.by_choice;
            (!at_once).then_some(back_off)
        }
    })
}

/// Logs the end of a term. A term whose lease ends or would have ended is usually a warning, because another copy may
/// lead by now.
fn log_end<E>(election: &Election, term: &Term, end: &End<E>, cause: Option<StepDownCause>) {
    let why = lost_because(term.failed_extension());
    let (group, term) = (&**election.group(), term.unchecked_token().get());
    match (end, cause) {
        (End::Lost { .. } | End::Done, Some(StepDownCause::MaxHold)) => {
            tracing::info!(group, term, "the longest term is over");
        }
        (End::Lost { .. } | End::Done, Some(StepDownCause::Unhealthy)) => {
            tracing::warn!(group, term, "lost the term: the health check of this worker failed");
        }
        (End::Lost { without_notice: true }, _) => tracing::warn!(
            group,
            term,
            "lost the term without notice: this process was paused or its runtime was blocked, or nodes lost the lease: {why}"
        ),
        (End::Lost { .. }, _) => tracing::warn!(group, term, "lost the term: {why}"),
        (End::Done, Some(StepDownCause::NotExtended)) => {
            tracing::warn!(group, term, "lost the term, and the work ended before the lease did: {why}");
        }
        _ => tracing::info!(group, term, "resigned"),
    }
}

/// Ends the lease of a term whose work has ended. Releases the lease, or hands it over if the term has a
/// successor. If the term [must not release the lease](Term::end_without_release), the lease expires by
/// itself.
async fn release(election: &Election, term: &Term) {
    let token = term.unchecked_token();
    if term.is_unreleased() {
        tracing::warn!(
            group = &**election.group(),
            term = token.get(),
            "the lease is not released, and ends by itself: work that it covers may still run"
        );
        return term.lease().forget();
    }
    let released = match term.successor() {
        None => term.lease().end().await.map_err(|error| error.to_string()),
        Some(successor) => {
            let reserved = term.lease().hand_over(&successor).await;
            election.emit(ElectionEvent::HandedOver { term: token, reserved: reserved.is_ok() });
            reserved.map(drop).map_err(|error| error.to_string())
        }
    };
    if let Err(error) = released {
        tracing::warn!(group = &**election.group(), term = token.get(), "{error}");
    }
}

/// Campaigns until this candidate holds the lease.
///
/// If this worker has never had a quorum, an error that only an operator can fix ends the campaign: the
/// worker was probably started with a wrong configuration. A worker that has had a quorum logs such an error
/// and continues to try: an operator may be changing a password at that moment.
async fn acquire<E>(election: &Election, env: &Env, failures: u32) -> Result<Lease, ElectionError<E>> {
    let ignored = election.quorum().config().sabotaged(Sabotage::NeverLeadIgnored);
    if election.preference().never_lead && !ignored {
        return Err(ElectionError::Acquire(follow(election, env).await));
    }
    let lock = election.lock().map_err(|error| ElectionError::Acquire(error.into()))?;
    let mut log = LogLimit::default();
    loop {
        wait_for_turn(election, env).await;
        let Some(acquired) = acquire_while_eligible(election, &lock, env, failures).await else { continue };
        match acquired {
            Ok(lease) => return Ok(lease),
            Err(error @ (AcquireError::Setting(_) | AcquireError::Closed)) => {
                return Err(ElectionError::Acquire(error));
            }
            Err(error) if error.is_permanent() && !election.quorum().pool().has_had_quorum() => {
                return Err(ElectionError::Acquire(error));
            }
            Err(error) => {
                if log.allows(error.kind(), env.now()) {
                    tracing::error!(
                        group = &**election.group(),
                        "cannot campaign, and tries again every second: {error}"
                    );
                }
                env.sleep(AFTER_ERROR).await;
            }
        }
    }
}

/// Acquires the lease. Returns `None`, without a lease, once the candidate is no longer eligible.
async fn acquire_while_eligible(
    election: &Election,
    lock: &Lock,
    env: &Env,
    failures: u32,
) -> Option<Result<Lease, AcquireError>> {
    let ineligible = async {
        while election.is_eligible() {
            env.sleep(LOOK_AGAIN).await;
        }
    };
    let acquired = tokio::select! { biased;
        acquired = lock.acquire() => acquired,
        () = ineligible, if election.has_condition() => return None,
        never = ask_for_the_lead(election, env, failures), if election.preference().priority > 0 => match never {},
    };
    // If the candidate is no longer eligible, the acquired lease is dropped here, which releases it.
    (acquired.is_err() || election.is_eligible()).then_some(acquired)
}

/// Waits until the candidate is eligible. If the candidate has a delay, also waits until there has been no leader for
/// that time.
async fn wait_for_turn(election: &Election, env: &Env) {
    loop {
        while !election.is_eligible() {
            env.sleep(LOOK_AGAIN).await;
        }
        if election.delay().is_zero() {
            return;
        }
        let Some(resource) = election.resource() else { return };
        let config = election.quorum().config();
        let is_ours =
            |seen: &Inspection| seen.holder.as_ref().is_some_and(|holder| config.is_successor_of(holder));
        let is_led = |seen: &Inspection| seen.holder.is_some() || seen.contended;
        loop {
            match election.quorum().inspect(resource).await {
                // The lease is reserved for this worker. So the worker tries to acquire the lease without a
                // delay.
                Ok(seen) if is_ours(&seen) => return,
                Ok(seen) if is_led(&seen) => env.sleep(LOOK_AGAIN).await,
                // Either there is no leader, or too few nodes answered. In the second case the attempt to
                // acquire the lease fails and reports the reason.
                _ => break,
            }
        }
        env.sleep(election.delay()).await;
        let is_led = election.quorum().inspect(resource).await.as_ref().is_ok_and(is_led);
        if !is_led && election.is_eligible() {
            return;
        }
    }
}
