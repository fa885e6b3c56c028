//! Tests with servers whose wall clock steps. The keys of such a server expire by that clock.
//!
//! # What is not guaranteed
//!
//! A worker notices a step beyond `clock_step_allowance` only if the node has answered this worker both before
//! and after the step. A worker whose first contact with the node was after the step cannot notice the step.
//! If the clocks of a majority of the nodes stepped, that worker and the holder may both hold the lease, with
//! different tokens. See also `kleppmann.rs`.
//!
//! The tests do not set back the clocks of nodes whose step was noticed. The quarantine of such a node ends by
//! the node's own clock, so setting back the clock would make the quarantine longer.

use super::bench::{Bench, Sink, TTL, Worker, eventually, far_off, jumped, take_over};
use quorate::{
    env::{SystemWorld, World},
    lease::{Lease, TryAcquire},
    quorum::QuorumConfig,
    scheduler::{Delivery, Job, Misfire, Schedule, Scheduler},
};
use quorate_testkit::{proxy::Directions, redis::RedisConfig};
use quorate_tests::support::PATIENCE;
use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio_util::sync::CancellationToken;

/// A step within the allowance of 200 ms. At a TTL of two seconds, the allowance applies in full.
pub(crate) const SMALL: Duration = Duration::from_millis(150);
pub(crate) const LARGE: Duration = Duration::from_secs(60);

/// The holder probes idle nodes, but not in the last part of a lease, which is this long. So the holder cannot
/// notice a step of a node's clock that comes in this part.
const LAST_LOOK: Duration = Duration::from_millis(400);

pub(crate) async fn bench() -> Bench {
    Bench::with(&RedisConfig::new().own_clock(), false).await
}

fn left(bench: &Bench, index: usize) -> i64 {
    bench.servers[index].command(&["PTTL", "quorate:x"]).parse().expect("milliseconds")
}

/// Acquires a lease on all five servers, without automatic extension. Then steps the clocks of all five forward
/// by `by`.
async fn stepped_under(bench: &Bench, holder: &Worker, by: Duration) -> Lease {
    let lease = holder.lock("x").auto_extend(false).acquire().await.expect("a quorum");
    eventually("lease on all five", || (bench.holders_of("x").len() == 5).then_some(())).await;
    step_all(bench, by);
    lease
}

/// Steps the clocks of all five. A server that does not store the lease does not show the step.
fn step_all(bench: &Bench, by: Duration) {
    let millis = i64::try_from(by.as_millis()).expect("small");
    let steps = (0..5).filter(|&index| {
        let before = left(bench, index);
        bench.servers[index].step_clock(by, true);
        before - left(bench, index) >= millis
    });
    assert!(steps.count() >= 3, "no step");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn steps_within_the_allowance_on_all_nodes_make_no_second_holder() {
    let bench = bench().await;
    let (holder, rival) = (bench.worker("a").await, bench.worker("b").await);
    let lease = stepped_under(&bench, &holder, SMALL).await;
    let next = take_over(&rival, &lease).await;
    next.release().await.expect("a majority answers");
    for server in bench.servers.iter() {
        server.step_clock(SMALL, false);
    }
    // While the lease is extended, the clock of one server steps back, and that of another one steps forward.
    // Neither step affects the lease.
    let lease = holder.must_acquire("x").await;
    bench.servers[0].step_clock(SMALL, false);
    bench.servers[1].step_clock(SMALL, true);
    holder.keeps(&lease, TTL + TTL / 2).await;
    lease.release().await.expect("a majority answers");
    bench.clean().await;
}

/// Shows that without `clock_step_allowance`, a small step lets two workers hold the lease. No worker here has
/// the allowance, because workers with different values are refused. The holder probes idle nodes every third
/// of `max_ttl`. The step comes after the last probe, so the holder cannot notice the step.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_allowance_there_are_two_holders() {
    let bench = bench().await;
    // The markers contain the allowance of other workers. So the test deletes the markers. The workers of this
    // test then write their own markers, and wait until the servers vote.
    bench.servers.iter().for_each(|server| drop(server.command(&["DEL", "quorate:node"])));
    let reckless = |setup| QuorumConfig { clock_step_allowance: Duration::ZERO, ..setup };
    let holder = bench.worker_on_roads_with("a", reckless).await;
    let mut seen = false;
    // Both workers hold the lease for only 130 ms, which the test may miss on a busy machine. So the test
    // tries several times.
    for _ in 0..15 {
        let lease = holder.lock("x").auto_extend(false).acquire().await.expect("a quorum");
        eventually("end that is near", || (lease.remaining() < LAST_LOOK).then_some(())).await;
        step_all(&bench, SMALL);
        // The rival connects only now. If it had observed these clocks before, it would notice the step.
        let rival = bench.worker_on_roads_with("b", reckless).await;
        let give_up = rival.now() + PATIENCE;
        let next = loop {
            let attempt = rival.lock("x").try_acquire().await;
            if let Ok(TryAcquire::Acquired(next)) = attempt {
                break next;
            }
            assert!(rival.now() < give_up, "never free: {attempt:?}");
        };
        seen |= lease.is_valid();
        next.release().await.expect("a majority answers");
        rival.quorum.close().await;
        if seen {
            return;
        }
    }
    panic!("no worker saw two holders: the test above proves nothing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_step_on_one_node_ends_its_key_early_and_the_majority_holds() {
    let bench = bench().await;
    let (holder, rival) = (bench.worker("a").await, bench.worker("b").await);
    let lease = holder.must_acquire("x").await;
    eventually("lease on all five", || (bench.holders_of("x").len() == 5).then_some(())).await;
    bench.servers[2].step_clock(LARGE, true);
    assert!(!bench.is_stored(2, "quorate:x"), "the step did not end the key");
    assert!(rival.must_not_acquire("x").await.is_none(), "a majority reports the holder");
    // The holder computes the `not_after` of its requests from the old clock of server 2. So this server
    // refuses the requests as late for a moment, and then grants again.
    eventually("lease on all five again", || (bench.holders_of("x").len() == 5).then_some(())).await;
    holder.keeps(&lease, TTL).await;
    let token = lease.unchecked_token();
    lease.release().await.expect("a majority answers");
    let next = rival.must_acquire("x").await;
    assert!(next.unchecked_token() > token);
    next.release().await.expect("a majority answers");
    bench.clean().await;
}

/// Checks one server whose clock steps back far. By true time, the server keeps a dead holder's key for longer
/// than the TTL. One server is only a minority, so it blocks no worker.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_step_back_on_one_node_delays_nobody_after_a_crash() {
    let bench = bench().await;
    let (holder, rival) = (bench.worker_on_roads("a").await, bench.worker("b").await);
    let lease = holder.must_acquire("x").await;
    eventually("lease on all five", || (bench.holders_of("x").len() == 5).then_some(())).await;
    bench.servers[2].step_clock(LARGE, false);
    assert!(left(&bench, 2) > 30_000, "the step did not lengthen the key's life");
    let crashed = rival.now();
    let token = lease.unchecked_token();
    holder.crash();
    drop(lease);
    let next = rival.must_acquire("x").await;
    assert!(crashed.until(rival.now()) < TTL * 3, "free only {:?} later", crashed.until(rival.now()));
    assert!(next.unchecked_token() > token);
    next.release().await.expect("a majority answers");
    // The server's clock is corrected. Then the key expires, and no key is left.
    bench.servers[2].step_clock(LARGE, true);
    bench.clean().await;
    rival.serves("x").await;
}

/// Checks a large step on a majority of the servers, which ends the keys on them at once. A rival that has
/// observed these servers' clocks before counts none of their votes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_step_on_a_majority_makes_no_second_holder_of_a_rival_that_watched() {
    let bench = bench().await;
    let (holder, rival) = (bench.worker("a").await, bench.worker("b").await);
    let sink = Sink::default();
    let lease = holder.lock("x").auto_extend(false).acquire().await.expect("a quorum");
    sink.write(lease.fencing_token().expect("just acquired")).expect("the first");
    let since = rival.now();
    (0..3).for_each(|index| bench.servers[index].step_clock(LARGE, true));
    assert!((0..3).all(|index| !bench.is_stored(index, "quorate:x")), "the step did not end the keys");
    let next = take_over(&rival, &lease).await;
    assert!(since.until(rival.now()) >= rival.quorum.config().quarantine(), "they voted too soon");
    sink.write(next.fencing_token().expect("just acquired")).expect("a larger token");
    assert_eq!(
        sink.write(lease.unchecked_token()),
        Err(next.unchecked_token()),
        "the sink took an old holder's write"
    );
    holder.sees_the_end(&lease).await;
    rival.keeps(&next, TTL).await;
    next.release().await.expect("a majority answers");
    holder.serves("x").await;
    bench.clean().await;
}

/// Shows a limit of the guarantee. A rival whose first contact with the nodes is after the step cannot notice
/// the step, and the nodes vote for it at once. The tokens still grow, so a sink that compares them refuses the
/// old holder.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_step_on_a_majority_is_fenced_where_the_rival_came_after_it() {
    let bench = bench().await;
    let holder = bench.worker_on_roads("a").await;
    let sink = Sink::default();
    let lease = holder.lock("x").auto_extend(false).acquire().await.expect("a quorum");
    sink.write(lease.fencing_token().expect("just acquired")).expect("the first");
    eventually("lease on all five", || (bench.holders_of("x").len() == 5).then_some(())).await;
    // The network of the holder is cut. Otherwise the holder would write the step into the markers of the
    // nodes, and so warn the rival.
    holder.roads.iter().for_each(|road| road.cut(Directions::Both));
    (0..3).for_each(|index| bench.servers[index].step_clock(LARGE, true));
    let rival = bench.newcomer("b");
    let next = rival.must_acquire("x").await;
    let node_states = rival.quorum.nodes();
    assert!(!node_states.iter().any(|node| jumped(&node.state)), "no worker can know: {node_states:?}");
    assert!(next.unchecked_token() > lease.unchecked_token());
    sink.write(next.fencing_token().expect("just acquired")).expect("a larger token");
    assert_eq!(
        sink.write(lease.unchecked_token()),
        Err(next.unchecked_token()),
        "the sink took an old holder's write"
    );
    holder.sees_the_end(&lease).await;
    rival.keeps(&next, TTL).await;
    next.release().await.expect("a majority answers");
    rival.serves("x").await;
    bench.clean().await;
}

/// Checks nodes whose clocks are far off. If a node has no fencing counter, the counter starts from the
/// worker's wall clock. A node does not grant if its own clock differs too much from the worker's clock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_whose_clock_is_far_off_seeds_no_counter_and_says_so() {
    let bench = bench().await;
    (0..3).for_each(|index| bench.servers[index].step_clock(LARGE, true));
    // This worker connects only now. If it had observed the nodes before, it would report that their clocks
    // stepped.
    let worker = bench.worker("a").await;
    let seen: Vec<bool> = worker.quorum.nodes().iter().map(|node| far_off(&node.state)).collect();
    assert_eq!(seen, [true, true, true, false, false], "before the first request");
    let error =
        worker.lock("new").wait(Duration::from_secs(1)).acquire().await.expect_err("three do not grant");
    assert!(error.is_untrusted() && error.to_string().contains("apart; set both by NTP"), "{error}");
    assert!((0..3).all(|index| !bench.is_stored(index, "{quorate:new}:fence")));
    bench.clean().await;
    (0..3).for_each(|index| bench.servers[index].step_clock(LARGE, false));
    worker.serves("new").await;
    bench.clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_on_all_nodes_is_safe_from_a_step_of_a_minority() {
    let bench = bench().await;
    let (holder, rival) = (bench.worker("a").await, bench.worker("b").await);
    let lease = holder.lock("x").auto_extend(false).acquire().await.expect("a quorum");
    eventually("lease on all five", || (bench.holders_of("x").len() == 5).then_some(())).await;
    bench.servers[0].step_clock(LARGE, true);
    bench.servers[4].step_clock(LARGE, true);
    let next = take_over(&rival, &lease).await;
    next.release().await.expect("a majority answers");
    bench.clean().await;
}

/// Checks that a minority does not decide when ticks are due. Two servers of five step far, one ahead and one
/// back, and no tick moves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn steps_of_a_minority_move_no_tick() {
    const PERIOD: Duration = Duration::from_millis(100);
    let bench = bench().await;
    let worker = bench.worker("a").await;
    let starts = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&starts);
    let job = Job::new("j", Schedule::every(PERIOD).expect("a period"), move |tick| {
        noted.lock().expect("no panic").push((tick.scheduled_at(), SystemWorld.wall()));
        async { Ok::<(), Infallible>(()) }
    });
    let job = job.misfire(Misfire::run_all(LARGE / 2)).delivery(Delivery::AtMostOnce);
    let stop = CancellationToken::new();
    let scheduler = Scheduler::new(&worker.quorum, "g").ttl(TTL).job(job);
    let leads = worker.quorum.env().spawn_scoped(scheduler.run().until(stop.clone().cancelled_owned()));
    let started = || starts.lock().expect("no panic").len();
    let goes_on = async || {
        let enough = started() + 20;
        eventually("more ticks", || (started() >= enough).then_some(())).await;
        let apart = worker.quorum.wall().distance(SystemWorld.wall());
        assert!(apart < PERIOD, "the quorum's clock is {apart:?} off");
    };
    goes_on().await;
    bench.servers[0].step_clock(LARGE, true);
    goes_on().await;
    bench.servers[4].step_clock(LARGE, false);
    goes_on().await;
    stop.cancel();
    leads.await.expect("no panic").expect("a shutdown is Ok");

    let starts = starts.lock().expect("no panic").clone();
    for (before, after) in starts.iter().zip(&starts[1..]) {
        assert_eq!(before.0 + PERIOD, after.0, "each tick once, in order");
    }
    let early: Vec<_> = starts.iter().filter(|(at, when)| when < at).collect();
    assert!(early.is_empty(), "{early:?}");
    bench.clean().await;
}
