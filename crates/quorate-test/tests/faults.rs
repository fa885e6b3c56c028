//! Each fault and each clock of a cluster, seen by the workers.

use quorate::{
    AcquireError, Claims, Election, Scheduler, TryAcquire,
    claim::ClaimOutcome,
    election::TermEndCause,
    env::WallTime,
    scheduler::{AlertKind, Job, Jobs, Placement, Schedule},
};
use quorate_test::{Cluster, Process, time};
use std::{
    convert::Infallible,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

const SECOND: Duration = Duration::from_secs(1);

async fn lead(process: Process) -> Result<(), String> {
    let election = Election::new(process.quorum(), "billing");
    let work = election.run(|term| async move {
        term.step_down_token().cancelled().await;
        Ok::<(), Infallible>(())
    });
    work.until(process.stopped()).await.map_err(|error| error.to_string())
}

fn three_candidates(cluster: &Cluster) {
    for name in ["a", "b", "c"] {
        cluster.worker(name).run(lead);
    }
}

#[tokio::test(start_paused = true)]
async fn a_killed_leader_is_replaced_when_its_lease_ends_and_may_come_back() {
    let cluster = Cluster::memory(5);
    three_candidates(&cluster);
    cluster.advance(60 * SECOND).await;
    let first = cluster.leader("billing").await.unwrap();
    cluster.worker(&first).kill();
    cluster.advance(3 * SECOND).await;
    assert_eq!(cluster.leader("billing").await.as_deref(), Some(&*first), "its lease of 10 s has not ended");
    cluster.advance(8 * SECOND).await;
    let second = cluster.leader("billing").await.unwrap();
    assert_ne!(second, first);
    cluster.worker(&first).restart();
    cluster.advance(10 * SECOND).await;
    cluster.worker(&second).stop().await;
    cluster.advance(SECOND).await;
    let terms = cluster.terms("billing").await;
    assert_eq!(terms.leaders()[..2], [&*first, &*second], "{terms}");
    assert_eq!(terms.len(), 3, "{terms}");
    terms.assert_one_at_a_time();
}

#[tokio::test(start_paused = true)]
async fn a_paused_leader_has_lost_its_lease_when_it_wakes() {
    let cluster = Cluster::memory(3);
    let (a, b) = (cluster.worker("a"), cluster.worker("b"));
    let lease = a.quorum().lock("report").acquire().await.unwrap();
    a.pause();
    cluster.advance(5 * SECOND).await;
    assert!(matches!(b.quorum().lock("report").try_acquire().await, Ok(TryAcquire::Contended { .. })));
    assert!(lease.is_valid());
    cluster.advance(6 * SECOND).await;
    assert!(!lease.is_valid());
    let next = b.quorum().lock("report").acquire().await.unwrap();
    a.resume();
    cluster.advance(SECOND).await;
    assert!(lease.lost_token().is_cancelled());
    assert!(next.fencing_token().unwrap() > lease.unchecked_token());
}

/// The leader notices only when it is resumed that its lease has ended. In the history its term ends with the lease.
#[tokio::test(start_paused = true)]
async fn the_term_of_a_paused_leader_ended_with_its_lease() {
    let cluster = Cluster::memory(3);
    three_candidates(&cluster);
    cluster.advance(SECOND).await;
    let first = cluster.leader("billing").await.unwrap();
    let paused_at = cluster.now();
    cluster.worker(&first).pause();
    cluster.advance(30 * SECOND).await;
    cluster.worker(&first).resume();
    cluster.advance(5 * SECOND).await;
    let terms = cluster.terms("billing").await;
    assert_eq!((terms.len(), terms.leaders()[0]), (2, &*first), "{terms}");
    terms.assert_one_at_a_time();
    let history = Election::new(&cluster.quorum(), "billing").observe().unwrap().history(9).await.unwrap();
    let end = history[1].end.as_ref().unwrap();
    assert_eq!(end.cause, TermEndCause::LeaseLost, "{terms}");
    assert!((paused_at..paused_at + 10 * SECOND).contains(&end.at), "the TTL is 10 s: {terms}");
}

#[tokio::test(start_paused = true)]
async fn a_minority_cannot_lock_and_can_after_the_partition() {
    let cluster = Cluster::memory(5);
    let (a, b) = (cluster.worker("a"), cluster.worker("b"));
    cluster.partition([&a], [0, 1, 2]);
    let refused = a.quorum().lock("x").wait(SECOND).acquire().await;
    assert!(matches!(refused, Err(AcquireError::Unreachable { .. })), "{refused:?}");
    let lease = b.quorum().lock("x").acquire().await.unwrap();
    lease.release().await.unwrap();
    cluster.heal();
    drop(a.quorum().lock("x").wait(10 * SECOND).acquire().await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn dead_and_paused_nodes_are_outvoted_up_to_a_minority() {
    let cluster = Cluster::memory(5);
    let worker = cluster.worker("a");
    cluster.node(0).kill();
    cluster.node(1).pause();
    drop(worker.quorum().lock("x").acquire().await.unwrap());
    cluster.node(2).kill();
    cluster.advance(20 * SECOND).await;
    let refused = worker.quorum().lock("y").wait(SECOND).acquire().await;
    assert!(matches!(refused, Err(AcquireError::Unreachable { .. })), "{refused:?}");
    cluster.node(1).resume();
    cluster.advance(5 * SECOND).await;
    drop(worker.quorum().lock("y").acquire().await.unwrap());
    // A node without its data does not vote at once. With its data it does.
    cluster.node(1).kill();
    cluster.node(0).restart_empty();
    cluster.advance(5 * SECOND).await;
    let refused = worker.quorum().lock("z").wait(SECOND).acquire().await;
    let text = format!("{refused:?}");
    assert!(text.contains("node-0") && text.contains("Quarantined"), "{text}");
    cluster.advance(60 * SECOND).await;
    drop(worker.quorum().lock("z").acquire().await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn clocks_turn_together_and_apart() {
    let start = time("2026-03-29T00:00:00Z");
    let cluster = Cluster::builder().nodes(3).starts_at(start).start();
    let (a, node) = (cluster.worker("a"), cluster.node(2));
    assert_eq!(a.now(), start);
    cluster.advance_to(start + 90 * SECOND).await;
    assert_eq!([cluster.now(), a.now(), node.now()], [start + 90 * SECOND; 3]);
    let behind = start + 89 * SECOND;
    a.set_clock(behind);
    assert_eq!([cluster.now(), a.now(), node.now()], [start + 90 * SECOND, behind, start + 90 * SECOND]);
    drop(a.quorum().lock("x").wait(SECOND).acquire().await.unwrap());
    node.set_clock(start + 3600 * SECOND);
    cluster.advance(SECOND).await;
    assert_eq!(node.now(), start + 3601 * SECOND);
    cluster.set_clocks(start + 7200 * SECOND);
    assert_eq!([cluster.now(), a.now(), node.now()], [start + 7200 * SECOND; 3]);
    cluster.advance_to(start).await;
    assert_eq!(cluster.now(), start + 7200 * SECOND, "it is later already");
}

#[tokio::test(start_paused = true)]
async fn the_states_of_a_message_are_seen() {
    let cluster = Cluster::memory(3);
    let a = cluster.worker("a");
    let claims = Claims::new(&a.quorum(), "orders");
    cluster.message("orders", "1").await.assert_free();
    let Ok(ClaimOutcome::Claimed(claim)) = claims.claim("1").await else { panic!("it is free") };
    cluster.message("orders", "1").await.assert_claimed_by("a");
    claim.complete("shipped").await.unwrap();
    cluster.message("orders", "1").await.assert_done("shipped");
}

/// A waiter does not poll while nothing changes. It must still notice each end of a lease at once.
#[tokio::test(start_paused = true)]
async fn a_waiter_has_the_lock_as_soon_as_its_holder_dies_or_releases_it() {
    let cluster = Cluster::memory(5);
    let (a, b) = (cluster.worker("a"), cluster.worker("b"));
    for ends in ["release", "kill"] {
        let lease = a.quorum().lock("x").acquire().await.unwrap();
        let quorum = b.quorum();
        let had: Arc<Mutex<Option<WallTime>>> = Arc::default();
        let (gets, clock) = (Arc::clone(&had), b.clone());
        b.spawn(async move {
            let lease = quorum.lock("x").acquire().await.unwrap();
            *gets.lock().unwrap() = Some(clock.now());
            lease.release().await.unwrap();
        });
        cluster.advance(3600 * SECOND).await;
        assert_eq!(*had.lock().unwrap(), None);
        let ended = cluster.now();
        if ends == "kill" {
            a.kill();
            drop(lease);
        } else {
            lease.release().await.unwrap();
        }
        cluster.until(20 * SECOND, || had.lock().unwrap().is_some()).await;
        let took = ended.until(had.lock().unwrap().unwrap());
        let most = if ends == "kill" { 11 * SECOND } else { SECOND };
        assert!(took <= most, "{ends}: {took:?}");
    }
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "the worker a: the service returned no such table")]
async fn the_error_of_a_service_fails_the_test() {
    let cluster = Cluster::memory(1);
    cluster.worker("a").run(|_process| async { Err::<(), _>("no such table") });
    cluster.advance(SECOND).await;
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "the worker a: a task panicked: on purpose")]
async fn the_panic_of_a_task_fails_the_test() {
    let cluster = Cluster::memory(1);
    cluster.worker("a").spawn(async { panic!("on purpose") });
    cluster.advance(SECOND).await;
}

#[tokio::test]
#[should_panic(expected = "a cluster needs a paused clock")]
async fn a_clock_that_runs_is_refused() {
    Cluster::memory(1);
}

#[tokio::test(start_paused = true)]
async fn a_killed_worker_stops_and_a_paused_task_stands_still() {
    let cluster = Cluster::memory(1);
    let worker = cluster.worker("a");
    let ticks = Arc::new(AtomicU64::new(0));
    let counts = Arc::clone(&ticks);
    worker.run(move |process| {
        let counts = Arc::clone(&counts);
        async move {
            #[expect(clippy::disallowed_methods, reason = "a service may use tokio's timers")]
            let mut every = tokio::time::interval(SECOND);
            while tokio::select! { biased; () = process.stopped() => false, _ = every.tick() => true } {
                counts.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    cluster.advance(10 * SECOND).await;
    let at_ten = ticks.load(Ordering::Relaxed);
    assert!((10..=11).contains(&at_ten));
    worker.kill();
    cluster.advance(10 * SECOND).await;
    assert_eq!(ticks.load(Ordering::Relaxed), at_ten);
    worker.restart();
    cluster.advance(10 * SECOND).await;
    assert!(ticks.load(Ordering::Relaxed) >= at_ten + 10);
    worker.stop().await;
    let stopped = ticks.load(Ordering::Relaxed);
    cluster.advance(10 * SECOND).await;
    assert_eq!(ticks.load(Ordering::Relaxed), stopped);
}

/// The clocks of the nodes are set back: no tick runs twice, so the jobs stand still, and every face says so.
#[tokio::test(start_paused = true)]
async fn jobs_that_stand_still_because_clocks_were_set_back_are_overdue_by_elapsed_time() {
    let cluster = Cluster::memory(3);
    let alerts = Arc::new(Mutex::new(Vec::new()));
    let worker = cluster.worker("a");
    let reported = Arc::clone(&alerts);
    worker.run(move |process| {
        let reported = Arc::clone(&reported);
        async move {
            let job = Job::new("beat", Schedule::every(5 * SECOND).unwrap(), |_| async {
                Ok::<(), Infallible>(())
            });
            let job = job.expect_within(20 * SECOND).on_alert(move |alert| {
                reported.lock().unwrap().push((alert.kind, alert.at));
                async {}
            });
            Scheduler::new(process.quorum(), "g").job(job).run().until(process.stopped()).await
        }
    });
    cluster.advance(60 * SECOND).await;
    let jobs = Jobs::new(&cluster.quorum(), "g").unwrap();
    let set_back_at = cluster.node(0).now();
    for node in cluster.nodes() {
        node.set_clock(node.now() - 60 * SECOND);
    }
    cluster.advance(15 * SECOND).await;
    assert_eq!(*alerts.lock().unwrap(), [], "20 s have not passed since the last success");
    let why = jobs.why("beat", None).await.unwrap();
    assert_eq!(why.reason.as_str(), "clock", "{why:#?}");
    assert!(why.text.contains("were set back: they are 4"), "60 s less 15 s: {why:#?}");
    let status = jobs.show("beat").await.unwrap();
    assert!(status.next.unwrap() >= set_back_at - 10 * SECOND, "the ticks before have run: {status:#?}");
    cluster.advance(15 * SECOND).await;
    let overdue = alerts.lock().unwrap().clone();
    assert!(matches!(overdue[..], [(AlertKind::Overdue, since)] if since > set_back_at), "{overdue:?}");
    let status = jobs.show("beat").await.unwrap();
    assert_eq!(status.overdue_since, Some(overdue[0].1), "{status:#?}");
    cluster.advance(60 * SECOND).await;
    let kinds: Vec<AlertKind> = alerts.lock().unwrap().iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, [AlertKind::Overdue, AlertKind::Recovered]);
    assert_eq!(jobs.show("beat").await.unwrap().overdue_since, None);
    assert_eq!(jobs.why("beat", None).await.unwrap().reason.as_str(), "ran");
    cluster.runs("g", "beat").await.assert_none_twice();
}

/// A worker wakes only if it has a run to look for, which here are the runs for any worker.
#[tokio::test(start_paused = true)]
async fn runs_for_any_worker_go_on_after_the_leader_s_death_and_return() {
    let cluster = Cluster::memory(3);
    let run_jobs = |process: Process| async move {
        let job = |name| {
            Job::new(name, Schedule::every(60 * SECOND).unwrap(), |_| async { Ok::<(), Infallible>(()) })
        };
        let scheduler = Scheduler::new(process.quorum(), "g").job(job("leader's"));
        let scheduler = scheduler.job(job("any").placement(Placement::AnyWorker));
        scheduler.run().until(process.stopped()).await
    };
    for name in ["a", "b", "c"] {
        cluster.worker(name).run(run_jobs);
    }
    cluster.advance(600 * SECOND).await;
    let leader = cluster.worker(&cluster.leader("g").await.unwrap());
    leader.kill();
    cluster.advance(600 * SECOND).await;
    leader.restart();
    cluster.advance(600 * SECOND).await;
    for job in ["leader's", "any"] {
        let runs = cluster.runs("g", job).await;
        assert!((29..=31).contains(&runs.done().len()), "{runs}");
        runs.assert_all_done();
        runs.assert_none_twice();
    }
}
