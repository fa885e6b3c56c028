//! A run's context, a term, a claim and a delivery for the unit test of one handler. They are real: each is
//! made by a scheduler, an election or a claim on a cluster of one node, which begins just before.

use crate::{Cluster, Worker};
use futures_util::stream;
use quorate::{
    Claim, Claims, Election, Job, Scheduler, Term,
    claim::{
        ClaimHandle, ClaimOutcome,
        stream::{Message, Received},
    },
    env::WallTime,
    scheduler::{RunContext, Schedule},
};
use std::{
    convert::Infallible,
    ops::Deref,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

/// The time between the beginning of the cluster and the tick of a run.
const AHEAD: Duration = Duration::from_secs(60);
/// The longest time until the value under test exists, or until its end has been noticed.
const PATIENCE: Duration = Duration::from_secs(60);
/// The names of the group and of the set in which the values under test live, and of their worker.
const NAME: &str = "test";

/// A value under test, and the cluster in which it lives. It derefs to the value, and ends when it is
/// dropped.
#[derive(Debug)]
pub struct UnderTest<T> {
    value: T,
    cluster: Cluster,
    worker: Worker,
    _finish: Option<DropGuard>,
}

impl<T> UnderTest<T> {
    /// Returns the cluster, whose clock the test may turn.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Shuts the worker down, and waits until this asks the handler to stop.
    ///
    /// # Panics
    /// If that takes more than a minute.
    ///
    /// # Cancel safety
    /// The worker remains asked to shut down.
    pub async fn shut_down(&self)
    where
        T: Held,
    {
        self.worker.ask_to_stop();
        self.cluster.until(PATIENCE, || self.value.stop_token().is_cancelled()).await;
    }

    /// Cuts the worker off from the node, and waits until the lease under which the handler works has ended.
    ///
    /// # Panics
    /// If that takes more than a minute.
    ///
    /// # Cancel safety
    /// The worker remains cut off.
    pub async fn lose(&self)
    where
        T: Held,
    {
        self.worker.isolate();
        self.cluster.until(PATIENCE, || !self.value.is_held()).await;
    }
}

impl<T> Deref for UnderTest<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

/// A value that lasts as long as a lease.
pub trait Held {
    /// Returns the token that asks the handler to stop.
    fn stop_token(&self) -> &CancellationToken;
    /// Returns `true` until the lease has ended.
    fn is_held(&self) -> bool;
}

impl Held for RunContext {
    fn stop_token(&self) -> &CancellationToken {
        self.cancellation_token()
    }

    fn is_held(&self) -> bool {
        self.fencing_token().is_ok()
    }
}

impl Held for Term {
    fn stop_token(&self) -> &CancellationToken {
        self.step_down_token()
    }

    fn is_held(&self) -> bool {
        self.is_valid()
    }
}

impl<M> Held for Received<M> {
    fn stop_token(&self) -> &CancellationToken {
        self.cancellation_token()
    }

    fn is_held(&self) -> bool {
        self.fencing_token().is_ok()
    }
}

impl Held for ClaimHandle {
    fn stop_token(&self) -> &CancellationToken {
        self.step_down_token()
    }

    fn is_held(&self) -> bool {
        self.fencing_token().is_ok()
    }
}

/// Makes the context of a run of `job` that was due at `tick`.
///
/// ```
/// use quorate::scheduler::RunContext;
/// use quorate_test::{run_context, time};
///
/// async fn nightly(run: RunContext) -> Result<String, quorate::LeaseLost> {
///     Ok(format!("report of {} under {}", run.scheduled_at(), run.fencing_token()?))
/// }
///
/// # quorate_test::run(async {
/// let run = run_context("nightly", time("2026-03-29T03:30[Europe/Berlin]")).await;
/// assert!(nightly(run.clone()).await.unwrap().starts_with("report of 2026-03-29T01:30:00Z"));
/// run.lose().await;
/// assert!(nightly(run.clone()).await.is_err());
/// # });
/// ```
///
/// # Panics
/// If the name cannot be used, or the runtime's clock is not paused.
///
/// # Cancel safety
/// Safe: dropping the future ends the cluster.
pub async fn run_context(job: &str, tick: WallTime) -> UnderTest<RunContext> {
    let cluster = Cluster::builder().nodes(1).starts_at(tick - AHEAD).start();
    let (name, job) = (cluster.worker(NAME), Arc::<str>::from(job));
    under_test(cluster, name, move |process, given, finish| {
        let job = Job::new(&job, Schedule::at(tick), move |run| {
            given.give(run);
            let finish = finish.clone();
            async move {
                finish.cancelled().await;
                Ok::<(), Infallible>(())
            }
        });
        let scheduler = Scheduler::new(process.quorum(), NAME).job(job);
        async move { scheduler.run().until(process.stopped()).await.map_err(|error| error.to_string()) }
    })
    .await
}

/// Makes a term of the group `group`, for the unit test of a leader's work.
///
/// ```
/// use quorate_test::term;
///
/// # quorate_test::run(async {
/// let term = term("billing").await;
/// assert!(term.fencing_token().is_ok());
/// term.shut_down().await;
/// assert!(term.step_down_token().is_cancelled());
/// # });
/// ```
///
/// # Panics
/// If the name cannot be used, or the runtime's clock is not paused.
///
/// # Cancel safety
/// Safe: dropping the future ends the cluster.
pub async fn term(group: &str) -> UnderTest<Term> {
    let cluster = Cluster::memory(1);
    let (worker, group) = (cluster.worker(NAME), group.to_owned());
    under_test(cluster, worker, move |process, given, finish| {
        let election = Election::new(process.quorum(), &group);
        async move {
            let work = election.run(move |term| {
                given.give(term);
                let finish = finish.clone();
                async move {
                    finish.cancelled().await;
                    Ok::<(), Infallible>(())
                }
            });
            work.until(process.stopped()).await.map_err(|error| error.to_string())
        }
    })
    .await
}

/// Makes the delivery of `message`, for the unit test of a handler of messages. A message is an `(id,
/// payload)`, or anything that implements [`Message`].
///
/// ```
/// use quorate_test::delivery;
///
/// # quorate_test::run(async {
/// let order = delivery(("order-1", "tea")).await;
/// assert_eq!(order.message().1, "tea");
/// assert!(order.fencing_token().is_ok());
/// # });
/// ```
///
/// # Panics
/// If the message cannot be claimed, or the runtime's clock is not paused.
///
/// # Cancel safety
/// Safe: dropping the future ends the cluster.
pub async fn delivery<M: Message>(message: M) -> UnderTest<Received<M>> {
    let cluster = Cluster::memory(1);
    let worker = cluster.worker(NAME);
    let message = Mutex::new(Some(message));
    under_test(cluster, worker, move |process, given, finish| {
        let message = crate::cluster::lock(&message).take();
        let consumed = Claims::new(process.quorum(), NAME).consume(stream::iter(message), move |delivery| {
            given.give(delivery);
            let finish = finish.clone();
            async move {
                finish.cancelled().await;
                Ok::<(), Infallible>(())
            }
        });
        async move { consumed.until(process.stopped()).await.map(drop).map_err(|error| error.to_string()) }
    })
    .await
}

/// Makes a claim on the message `id`. [`UnderTest::into_inner`] gives the claim itself, to complete or
/// abandon it.
///
/// ```
/// use quorate_test::claim;
///
/// # quorate_test::run(async {
/// let claim = claim("order-1").await;
/// assert!(claim.handle().fencing_token().is_ok());
/// let (claim, cluster) = claim.into_inner();
/// claim.complete("shipped").await?;
/// cluster.message("test", "order-1").await.assert_done("shipped");
/// # Ok::<(), quorate::ClaimError>(())
/// # }).unwrap();
/// ```
///
/// # Panics
/// If the id cannot be used, or the runtime's clock is not paused.
///
/// # Cancel safety
/// Safe: dropping the future ends the cluster.
pub async fn claim(id: &str) -> UnderTest<Claim> {
    let cluster = Cluster::memory(1);
    let worker = cluster.worker(NAME);
    let claims = Claims::new(&worker.quorum(), NAME);
    match claims.claim(id).await {
        Ok(ClaimOutcome::Claimed(value)) => UnderTest { value, cluster, worker, _finish: None },
        Ok(other) => panic!("no claim on {id:?}: {other:?}"),
        Err(error) => panic!("no claim on {id:?}: {error}"),
    }
}

impl UnderTest<Claim> {
    /// Returns the claim, and the cluster in which it lives. Its set of messages is called `test`.
    pub fn into_inner(self) -> (Claim, Cluster) {
        (self.value, self.cluster)
    }
}

/// Hands the value under test out of its service.
#[derive(Debug)]
struct Given<T>(mpsc::UnboundedSender<T>);

impl<T> Clone for Given<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Given<T> {
    fn give(&self, value: T) {
        // The test has ended if nothing receives the value.
        let _ = self.0.send(value);
    }
}

/// Runs `service` on `worker` until it has given a value.
async fn under_test<T, S, F>(cluster: Cluster, worker: Worker, service: S) -> UnderTest<T>
where
    T: Send + 'static,
    S: Fn(crate::Process, Given<T>, CancellationToken) -> F + Send + Sync + 'static,
    F: Future<Output = Result<(), String>> + Send + 'static,
{
    let (given, mut values) = mpsc::unbounded_channel();
    let (given, finish) = (Given(given), CancellationToken::new());
    let ends = finish.clone().drop_guard();
    worker.run(move |process| service(process, given.clone(), finish.clone()));
    let mut value = None;
    let mut is_there = || {
        value = value.take().or_else(|| values.try_recv().ok());
        value.is_some()
    };
    cluster.until(2 * PATIENCE, &mut is_there).await;
    let Some(value) = value else { panic!("the value under test was not made") };
    UnderTest { value, cluster, worker, _finish: Some(ends) }
}
