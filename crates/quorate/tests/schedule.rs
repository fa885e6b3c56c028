//! Tests of schedulers through the public interface, with memory nodes and the real clock.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;
#[path = "common/cut.rs"]
mod cut;

use common::{SECOND, nodes, quorum};
use quorate::{
    env::Env,
    internals::RunRecord,
    lease::Heartbeat,
    node::{
        Batch, BatchReply, Cause, Hello, MemoryNode, MemorySession, Node, PushSender, Request, Session,
        copy::LeadAct,
    },
    quorum::Quorum,
    scheduler::{
        Delivery, Job, Jobs, Misfire, Placement, Retry, RunContext, RunOutcome, Schedule, Scheduler,
    },
};
use std::{
    collections::BTreeMap,
    convert::Infallible,
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio_util::sync::CancellationToken;

const PERIOD: Duration = Duration::from_millis(100);

/// The workers that started each tick. The key is the tick's time in microseconds.
type Starts = Arc<Mutex<BTreeMap<u64, Vec<&'static str>>>>;

fn counting(
    who: &'static str,
    starts: &Starts,
) -> impl Fn(RunContext) -> futures::Work + Send + Sync + 'static {
    let starts = Arc::clone(starts);
    move |tick| {
        starts.lock().expect("no panic").entry(tick.scheduled_at().as_micros()).or_default().push(who);
        Box::pin(async { Ok(()) })
    }
}

mod futures {
    use std::{convert::Infallible, pin::Pin};
    pub(crate) type Work = Pin<Box<dyn Future<Output = Result<(), Infallible>> + Send>>;
}

/// Tests a scheduler whose event loop runs on a blocked thread. The tasks that extend the lease run on other
/// threads, and continue.
#[tokio::test]
async fn a_scheduler_whose_loop_blocks_its_thread_loses_the_term_to_another() {
    let nodes = nodes();
    let starts = Starts::default();
    let scheduler = |quorum: &Quorum, who: &'static str, starts: &Starts| {
        let job = Job::new("j", Schedule::every(PERIOD).expect("a period"), counting(who, starts));
        Scheduler::new(quorum, "g").ttl(SECOND).job(job)
    };
    let until_runs = async |env: &Env, who: &str| {
        let (begun, give_up) = (env.wall().as_micros(), env.now() + 20 * SECOND);
        let runs = || starts.lock().expect("no panic").range(begun..).any(|(_, by)| by.contains(&who));
        while !runs() {
            assert!(env.now() < give_up, "{who} runs nothing");
            env.sleep(PERIOD).await;
        }
    };
    let (go_on, blocked) = std::sync::mpsc::channel::<()>();
    let (block, stop) = (CancellationToken::new(), CancellationToken::new());
    // This scheduler runs on a separate runtime, as if it were in another process.
    let leading = {
        let (nodes, starts, block, stop) = (nodes.clone(), Arc::clone(&starts), block.clone(), stop.clone());
        let work = async move {
            let quorum = quorum("a", &nodes);
            let env = quorum.env().clone();
            let heart = Heartbeat::new(&env, SECOND / 3);
            let scheduler = scheduler(&quorum, "a", &starts).renew_while_beating(&heart);
            let mut run = pin!(scheduler.run().until(stop.cancelled_owned()));
            let ended = loop {
                heart.beat();
                if block.is_cancelled() {
                    // `recv` returns an error when the test drops the sender. The thread is then no longer
                    // blocked.
                    let _ = blocked.recv();
                }
                tokio::select! { biased;
                    ended = &mut run => break ended.is_ok(),
                    () = env.sleep(SECOND / 12) => {}
                }
            };
            quorum.close().await;
            ended
        };
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.expect("a runtime");
        std::thread::spawn(move || runtime.block_on(work))
    };
    let quorum_b = quorum("b", &nodes);
    let env = quorum_b.env().clone();
    until_runs(&env, "a").await;
    env.sleep(SECOND * 2).await;
    until_runs(&env, "a").await;
    let b = scheduler(&quorum_b, "b", &starts);
    let following = env.spawn_scoped(b.run().until(stop.clone().cancelled_owned()));
    block.cancel();
    until_runs(&env, "b").await;
    drop(go_on);
    stop.cancel();
    assert!(leading.join().expect("no panic"));
    assert!(following.await.expect("no panic").is_ok());
    quorum_b.close().await;
}

#[tokio::test]
async fn every_tick_starts_once_over_crashes_and_resignations() {
    let nodes = nodes();
    let starts = Starts::default();
    let mut killed = Vec::new();
    for (round, who) in ["a", "b", "c"].into_iter().enumerate() {
        let quorum = quorum(who, &nodes);
        let job = Job::new("j", Schedule::every(PERIOD).expect("a period"), counting(who, &starts));
        let job = job.misfire(Misfire::run_all(30 * SECOND)).delivery(Delivery::AtMostOnce);
        let scheduler = Scheduler::new(&quorum, "g").ttl(SECOND).job(job);
        let stop = CancellationToken::new();
        let run = quorum.env().spawn_scoped(scheduler.run().until(stop.clone().cancelled_owned()));
        let mine = || starts.lock().expect("no panic").values().flatten().filter(|&&by| by == who).count();
        let deadline = quorum.env().now() + 10 * SECOND;
        while mine() < 15 {
            assert!(quorum.env().now() < deadline, "{who} ran {}", mine());
            quorum.env().sleep(PERIOD).await;
        }
        if round == 0 {
            // The run is dropped, as at a crash. In contrast to a crash, the lease is released.
            drop(run);
            quorum.env().sleep(SECOND / 2).await;
        } else {
            stop.cancel();
            run.await.expect("no panic").expect("a shutdown is Ok");
        }
        killed.push(quorum);
    }
    for quorum in killed {
        quorum.close().await;
        assert_eq!(quorum.env().tasks_alive(), 0);
    }
    let starts = starts.lock().expect("no panic");
    let twice: Vec<_> = starts.iter().filter(|(_, by)| by.len() > 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
    let (first, last) = (starts.keys().next().expect("ticks"), starts.keys().last().expect("ticks"));
    let due = (last - first) / 100_000 + 1;
    assert_eq!(starts.len() as u64, due, "none is missed between the first and the last");
}

/// A node that causes an event ([`Meddle`]) while the leader writes the *started* record of its third tick.
#[derive(Clone, Debug)]
struct Meddling {
    node: MemoryNode,
    writes: Arc<AtomicUsize>,
    with: Meddle,
}

#[derive(Clone, Debug)]
enum Meddle {
    /// The event is a shutdown of the campaign.
    Resign(CancellationToken),
    /// The event is a pause of the process for this time. The pause begins before the third node answers, whose
    /// answer would complete the majority.
    Pause(Duration, Arc<AtomicUsize>),
}

impl Meddle {
    fn meddle(&self) {
        match self {
            Self::Resign(stop) => stop.cancel(),
            // The whole test runs on one thread. So this sleep stops all of its tasks, like a pause of the
            // process.
            Self::Pause(pause, answers) if answers.fetch_add(1, Ordering::Relaxed) == 2 => {
                std::thread::sleep(*pause);
            }
            Self::Pause(..) => {}
        }
    }

    /// Returns the time that each answer takes.
    fn slowness(&self) -> Duration {
        match self {
            // The answers are slow. So the campaign notices the shutdown before a majority of the nodes has
            // answered the write.
            Self::Resign(_) => PERIOD / 5,
            Self::Pause(..) => Duration::ZERO,
        }
    }
}

impl Node for Meddling {
    type Session = MeddlingSession;
    fn name(&self) -> &str {
        self.node.name()
    }
    async fn open(&self, push_sender: PushSender) -> Result<(MeddlingSession, Hello), Cause> {
        let (session, hello) = self.node.open(push_sender).await?;
        Ok((MeddlingSession { session, by: self.clone() }, hello))
    }
}

#[derive(Debug)]
struct MeddlingSession {
    session: MemorySession,
    by: Meddling,
}

impl Session for MeddlingSession {
    fn send(&mut self, batch: Batch) -> impl Future<Output = Result<BatchReply, Cause>> + Send + 'static {
        let writes = batch.requests.iter().filter(|request| is_start_of_a_tick(request)).count();
        let before = self.by.writes.fetch_add(writes, Ordering::Relaxed);
        let meddle = before < 3 && before + writes >= 3;
        let (reply, with) = (self.session.send(batch), self.by.with.clone());
        async move {
            if meddle {
                with.meddle();
            }
            if !with.slowness().is_zero() {
                Env::system().sleep(with.slowness()).await;
            }
            reply.await
        }
    }
}

/// Returns whether a leader records with this request that it starts a tick.
fn is_start_of_a_tick(request: &Request) -> bool {
    let Request::Lead { act: LeadAct::Put { writes }, .. } = request else { return false };
    writes.iter().filter(|put| put.key.starts_with("tick/")).any(|put| {
        let record =
            put.value.as_ref().map(|value| RunRecord::parse(value).expect("a record of this version"));
        record.is_some_and(|record| !record.is_closed())
    })
}

#[tokio::test]
async fn a_resignation_during_the_write_of_started_loses_no_tick() {
    for delivery in [Delivery::AtMostOnce, Delivery::AtLeastOnce] {
        let (nodes, starts, stop) = (nodes(), Starts::default(), CancellationToken::new());
        let meddling = nodes.iter().map(|node| Meddling {
            node: node.clone(),
            writes: Arc::default(),
            with: Meddle::Resign(stop.clone()),
        });
        let builder = Quorum::builder().worker("a").nodes(meddling).trust_new_nodes(true);
        let first = builder.build().expect("a sound setup");
        let second = quorum("b", &nodes);
        for (who, quorum) in [("a", &first), ("b", &second)] {
            let job = Job::new("j", Schedule::every(PERIOD).expect("a period"), counting(who, &starts));
            let job = job.misfire(Misfire::run_all(30 * SECOND)).delivery(delivery);
            let run = Scheduler::new(quorum, "g").ttl(SECOND).job(job).run();
            let mine =
                || starts.lock().expect("no panic").values().flatten().filter(|&&by| by == who).count();
            let deadline = quorum.env().now() + 10 * SECOND;
            let enough = async {
                while if who == "a" { !stop.is_cancelled() } else { mine() < 3 } {
                    assert!(quorum.env().now() < deadline, "{who} ran {}", mine());
                    quorum.env().sleep(PERIOD / 10).await;
                }
            };
            run.until(enough).await.expect("a shutdown is Ok");
            assert!(mine() >= 2, "{who} ran {}", mine());
            quorum.close().await;
        }
        let starts = starts.lock().expect("no panic");
        assert!(starts.values().all(|by| by.len() == 1), "{delivery}: {starts:?}");
        let (first, last) = (starts.keys().next().expect("ticks"), starts.keys().last().expect("ticks"));
        assert_eq!(
            starts.len() as u64,
            (last - first) / 100_000 + 1,
            "{delivery}: one is missing: {starts:?}"
        );
    }
}

/// Tests a leader that pauses after it has written the *started* record of a tick. After the pause it must not
/// start the handler, because a later leader may already have run the tick.
#[tokio::test]
async fn a_pause_between_started_and_the_work_starts_nothing_after_the_term() {
    let (nodes, late, answers) = (nodes(), Arc::new(AtomicUsize::new(0)), Arc::<AtomicUsize>::default());
    let with = Meddle::Pause(SECOND * 3 / 2, Arc::clone(&answers));
    let meddling =
        nodes.iter().map(|node| Meddling { node: node.clone(), writes: Arc::default(), with: with.clone() });
    let builder = Quorum::builder().worker("a").nodes(meddling).trust_new_nodes(true);
    let quorum = builder.build().expect("a sound setup");
    let (after, starts) = (Arc::clone(&answers), Arc::new(AtomicUsize::new(0)));
    let (tell_late, tell) = (Arc::clone(&late), Arc::clone(&starts));
    let job = Job::new("j", Schedule::every(PERIOD).expect("a period"), move |tick: RunContext| {
        tell_late.fetch_add(usize::from(tick.fencing_token().is_err()), Ordering::Relaxed);
        tell.fetch_add(usize::from(after.load(Ordering::Relaxed) > 2), Ordering::Relaxed);
        async { Ok::<(), Infallible>(()) }
    });
    let job = job.misfire(Misfire::run_all(30 * SECOND)).delivery(Delivery::AtMostOnce);
    let deadline = quorum.env().now() + 20 * SECOND;
    let enough = async {
        while starts.load(Ordering::Relaxed) < 3 {
            assert!(quorum.env().now() < deadline, "no term after the pause");
            quorum.env().sleep(PERIOD / 10).await;
        }
    };
    Scheduler::new(&quorum, "g").ttl(SECOND).job(job).run().until(enough).await.expect("a shutdown is Ok");
    assert_eq!(late.load(Ordering::Relaxed), 0, "started after its term");
    quorum.close().await;
}

#[tokio::test]
async fn a_slow_job_delays_no_other_and_is_asked_to_stop() {
    let nodes = nodes();
    let quorum = quorum("a", &nodes);
    let starts = Starts::default();
    let stopped = CancellationToken::new();
    let tell = stopped.clone();
    let slow = Job::new("slow", Schedule::every(PERIOD).expect("a period"), move |tick: RunContext| {
        let tell = tell.clone();
        async move {
            tick.cancellation_token().cancelled().await;
            assert!(tick.fencing_token().is_ok(), "asked to stop before the term ends");
            tell.cancel();
            Ok::<(), Infallible>(())
        }
    });
    let panics = Job::new("panics", Schedule::every(PERIOD).expect("a period"), |_| async {
        if true { panic!("oops") } else { Ok::<(), Infallible>(()) }
    });
    let late = Job::new("late", Schedule::every(PERIOD).expect("a period"), |_| {
        std::future::pending::<Result<(), String>>()
    });
    let scheduler = Scheduler::new(&quorum, "g")
        .ttl(SECOND)
        .job(slow)
        .job(panics)
        .job(late.timeout(PERIOD))
        .job(Job::new("quick", Schedule::every(PERIOD).expect("a period"), counting("a", &starts)));
    let stop = CancellationToken::new();
    let run = quorum.env().spawn_scoped(scheduler.run().until(stop.clone().cancelled_owned()));
    let deadline = quorum.env().now() + 10 * SECOND;
    while starts.lock().expect("no panic").len() < 10 {
        assert!(quorum.env().now() < deadline);
        quorum.env().sleep(PERIOD).await;
    }
    stop.cancel();
    run.await.expect("no panic").expect("a shutdown is Ok");
    assert!(stopped.is_cancelled());
    quorum.close().await;
}

/// Tests the two ways to run a scheduler. Without a shutdown future, a scheduler runs until it is drained. The
/// output of a shutdown future may have any type.
#[tokio::test]
async fn a_run_is_awaited_by_itself_until_it_is_drained_or_with_any_future_as_its_shutdown() {
    let quorum = quorum("a", &nodes());
    let starts = Starts::default();
    let job = || Job::new("j", Schedule::every(PERIOD).expect("a period"), counting("a", &starts));
    let scheduler = Scheduler::new(&quorum, "g").job(job());
    let handle = scheduler.handle();
    let env = quorum.env().clone();
    let give_up = env.now() + 20 * SECOND;
    let drain = async {
        while starts.lock().expect("no panic").is_empty() {
            assert!(env.now() < give_up, "nothing runs");
            env.sleep(PERIOD).await;
        }
        handle.drain().await;
    };
    let (ended, ()) = tokio::join!(scheduler.run().into_future(), drain);
    ended.expect("a drained scheduler ends without an error");

    let shutdown = std::future::ready(Ok::<&str, std::io::Error>("a signal"));
    let stopped = Scheduler::new(&quorum, "g").job(job()).run().until(shutdown).await;
    stopped.expect("a scheduler ends at its shutdown");
    quorum.close().await;
}

#[tokio::test]
async fn names_that_key_ticks_are_checked_before_the_first_campaign() {
    let quorum = quorum("a", &nodes());
    let job = |name: &str| {
        Job::new(name, Schedule::every(SECOND).expect("a period"), |_| async { Ok::<(), Infallible>(()) })
    };
    let never = std::future::pending::<()>;
    let twice = Scheduler::new(&quorum, "g").job(job("x")).job(job("x")).run().until(never()).await;
    assert!(
        twice
            .expect_err("one name")
            .to_string()
            .contains("the name of a job is \"x\", which another job has")
    );
    let slash = Scheduler::new(&quorum, "g").job(job("x/y")).run().until(never()).await;
    assert!(slash.expect_err("a slash").to_string().contains("x/y"));
}

#[tokio::test]
async fn more_ticks_than_a_ledger_can_carry_are_refused() {
    let quorum = quorum("a", &nodes());
    let job = Job::new("busy", Schedule::every(PERIOD / 10).expect("a period"), |_| async {
        Ok::<(), Infallible>(())
    });
    let job = job.misfire(Misfire::run_all(SECOND * 3600));
    let refused = Scheduler::new(&quorum, "g").job(job).run().until(std::future::pending::<()>()).await;
    let error = refused.expect_err("360,000 ticks").to_string();
    assert!(error.contains("busy") && error.contains("3600s") && error.contains("shorten"), "{error}");
    quorum.close().await;
}

#[tokio::test]
async fn work_dropped_by_a_resignation_ends_before_the_lease() {
    let nodes = nodes();
    let quorum = quorum("a", &nodes);
    let (ended, seen) = (CancellationToken::new(), CancellationToken::new());
    /// A guard that the handler of a run owns. When the guard is dropped, it checks that the term is still
    /// valid, and reports the drop.
    struct Dropped(RunContext, CancellationToken);
    impl Drop for Dropped {
        fn drop(&mut self) {
            assert!(self.0.fencing_token().is_ok(), "the work ends first, then the lease");
            self.1.cancel();
        }
    }
    let (tell, started) = (ended.clone(), seen.clone());
    let stubborn =
        Job::new("stubborn", Schedule::every(PERIOD).expect("a period"), move |tick: RunContext| {
            let (dropped, started) = (Dropped(tick, tell.clone()), started.clone());
            async move {
                let _dropped = dropped;
                started.cancel();
                std::future::pending::<Result<(), Infallible>>().await
            }
        });
    let stop = CancellationToken::new();
    let scheduler = Scheduler::new(&quorum, "g").ttl(SECOND).job(stubborn);
    let run = quorum.env().spawn_scoped(scheduler.run().until(stop.clone().cancelled_owned()));
    seen.cancelled().await;
    stop.cancel();
    run.await.expect("no panic").expect("a shutdown is Ok");
    assert!(ended.is_cancelled());
    quorum.close().await;
}

/// Tests a handler that takes far less than a millisecond.
#[tokio::test]
async fn a_history_shows_the_duration_of_a_short_run_and_the_error_of_a_failed_attempt() {
    let nodes = nodes();
    let quorum = quorum("a", &nodes);
    let env = quorum.env().clone();
    let job = |name: &str, placement, good: u32| {
        let handler = move |run: RunContext| async move {
            if run.attempt() < good { Err(format!("attempt {} failed", run.attempt())) } else { Ok(()) }
        };
        let job =
            Job::new(name, Schedule::every(2 * PERIOD).expect("a period"), handler).placement(placement);
        job.retries(Retry::new(2).backoff(PERIOD / 50, PERIOD / 50))
    };
    let scheduler = Scheduler::new(&quorum, "g").ttl(SECOND);
    let scheduler = scheduler.job(job("leader-short", Placement::Leader, 1));
    let scheduler = scheduler.job(job("leader-retried", Placement::Leader, 2));
    let scheduler = scheduler.job(job("worker-short", Placement::AnyWorker, 1));
    let scheduler = scheduler.job(job("worker-retried", Placement::AnyWorker, 2));
    let scheduler = scheduler.job(job("worker-fails", Placement::AnyWorker, 3));
    let stop = CancellationToken::new();
    let run = env.spawn_scoped(scheduler.run().until(stop.clone().cancelled_owned()));
    let jobs = Jobs::new(&quorum, "g").expect("a group");
    let first = async |name: &str, end: RunOutcome| {
        let give_up = env.now() + 20 * SECOND;
        loop {
            let found = jobs.history(name, 100).await.unwrap_or_default();
            if let Some(entry) = found.into_iter().find(|entry| entry.end == end) {
                break entry;
            }
            assert!(env.now() < give_up, "{name} has no entry");
            env.sleep(PERIOD).await;
        }
    };
    for placed in ["leader", "worker"] {
        let short = first(&format!("{placed}-short"), RunOutcome::Done).await;
        assert!(short.took.is_some_and(|took| !took.is_zero()), "{short:?}");
        assert_eq!((short.attempts, short.last_error()), (1, None));
        let retried = first(&format!("{placed}-retried"), RunOutcome::Done).await;
        assert_eq!((retried.attempts, retried.last_error()), (2, Some("attempt 1 failed")), "{retried:?}");
        assert!(retried.reason.is_empty());
    }
    let fails = first("worker-fails", RunOutcome::Failed).await;
    assert_eq!((fails.attempts, fails.last_error()), (2, Some("attempt 2 failed")), "{fails:?}");
    assert_eq!(fails.attempt_error, None, "it is the reason");
    stop.cancel();
    run.await.expect("no panic").expect("a shutdown is Ok");
    quorum.close().await;
}

/// Regression: the task that takes open runs was stopped with the quorum, which was taken for a panic of that task.
#[tokio::test]
async fn a_scheduler_whose_quorum_is_closed_ends_with_an_error() {
    let nodes = nodes();
    let holder = quorum("holder", &nodes);
    // This worker leads the second group.
    let first = CancellationToken::new();
    let leading = first.clone();
    let job = Job::new("j", Schedule::every(PERIOD).expect("a period"), move |_| {
        leading.cancel();
        async { Ok::<(), Infallible>(()) }
    });
    let other = holder.env().spawn_scoped(Scheduler::new(&holder, "held").job(job).run().into_future());
    first.cancelled().await;
    for leads in [true, false] {
        let quorum = quorum("a", &nodes);
        let starts = Starts::default();
        let job = Job::new("j", Schedule::every(PERIOD).expect("a period"), counting("a", &starts));
        let _other = (!leads).then_some(&other);
        let scheduler = Scheduler::new(&quorum, if leads { "led" } else { "held" }).ttl(SECOND).job(job);
        let run = holder.env().spawn_scoped(scheduler.run().into_future());
        let env = Env::system();
        let give_up = env.now() + 20 * SECOND;
        while leads && starts.lock().expect("no panic").is_empty() {
            assert!(env.now() < give_up, "nothing runs");
            env.sleep(PERIOD).await;
        }
        quorum.close().await;
        let ended = run.await.expect("no panic");
        let error = ended.expect_err("the quorum is closed").to_string();
        assert!(error.contains("closed"), "{error}");
    }
    holder.close().await;
}

/// Regression: an entry was given up after about 1.5 s without a majority.
#[tokio::test]
async fn a_history_has_the_ticks_that_were_skipped_while_no_node_answered() {
    let (nodes, off) = (nodes(), Arc::new(std::sync::atomic::AtomicBool::new(false)));
    let cut = nodes.iter().map(|node| cut::Cut::new(node, &off));
    let builder = Quorum::builder().worker("a").nodes(cut).trust_new_nodes(true);
    let quorum = builder.build().expect("a sound setup");
    let env = quorum.env().clone();
    let begun = CancellationToken::new();
    let told = begun.clone();
    // Each tick that comes due while the first run goes on takes the place of the one before.
    let endless = Job::new("j", Schedule::every(PERIOD).expect("a period"), move |_| {
        told.cancel();
        std::future::pending::<Result<(), Infallible>>()
    });
    let stop = CancellationToken::new();
    let run = Scheduler::new(&quorum, "g").ttl(20 * SECOND).job(endless.history(1_000)).run();
    let run = env.spawn_scoped(run.until(stop.clone().cancelled_owned()));
    begun.cancelled().await;
    off.store(true, Ordering::Relaxed);
    let from = quorum.wall() + PERIOD;
    env.sleep(3 * SECOND).await;
    let until = quorum.wall() - PERIOD * 2;
    off.store(false, Ordering::Relaxed);
    let jobs = Jobs::new(&quorum, "g").expect("a group");
    let give_up = env.now() + 15 * SECOND;
    loop {
        let found = jobs.history("j", 1_000).await.unwrap_or_default();
        let skipped = found.iter().filter(|entry| from <= entry.tick && entry.tick <= until).count();
        if skipped >= 25 {
            break;
        }
        assert!(env.now() < give_up, "{skipped} entries: {found:#?}");
        env.sleep(PERIOD).await;
    }
    stop.cancel();
    run.await.expect("no panic").expect("a shutdown is Ok");
    quorum.close().await;
}
