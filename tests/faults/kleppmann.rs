//! Tests of the two scenarios of Martin Kleppmann, "How to do distributed locking" (2016), on real servers.

use super::{
    bench::{Bench, Sink, TTL, Worker, eventually, jumped, take_over},
    clock::{LARGE, SMALL, bench},
    worker::Probe,
};
use quorate::lease::{Lease, TryAcquire};
use quorate_testkit::proxy::Directions;

/// Nodes A to E. Client 1 reaches only A, B and C. Client 2 reaches only C, D and E.
struct Scene {
    bench: Bench,
    clients: [Worker; 2],
}

const C: usize = 2;

impl Scene {
    async fn new() -> Self {
        let bench = bench().await;
        let clients = [bench.worker_on_roads("client-1").await, bench.worker_on_roads("client-2").await];
        // This grant sets the counters of all nodes to the same value. So the counters show later which nodes
        // have counted which grant.
        clients[0].serves("x").await;
        eventually("lock freed", || bench.holders_of("x").is_empty().then_some(())).await;
        clients[0].roads[3..].iter().for_each(|road| road.cut(Directions::Both));
        clients[1].roads[..2].iter().for_each(|road| road.cut(Directions::Both));
        Self { bench, clients }
    }

    /// Lets client 1 acquire the lease on A, B and C, which is a bare majority. The lease is not extended.
    async fn client_1_acquires(&self) -> Lease {
        let lease = self.clients[0].lock("x").auto_extend(false).acquire().await.expect("A, B and C answer");
        assert_eq!(self.bench.holders_of("x"), [0, 1, 2]);
        lease
    }

    async fn ends_clean(&self) {
        for client in &self.clients {
            client.heal();
            client.trusts(5).await;
        }
        self.clients[0].serves("x").await;
        self.clients[1].serves("x").await;
        self.bench.clean().await;
    }
}

/// "The clock on node C jumps forward, causing the lock to expire. Client 2 acquires lock on nodes C, D, E.
/// Clients 1 and 2 now both believe they hold the lock."
///
/// In this test the clock jumps by no more than `clock_step_allowance`, and the two clients never both believe
/// that they hold the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clock_jump_on_node_c_within_the_allowance() {
    let scene = Scene::new().await;
    let lease = scene.client_1_acquires().await;
    scene.bench.servers[C].step_clock(SMALL, true);
    let next = take_over(&scene.clients[1], &lease).await;
    next.release().await.expect("C, D and E answer");
    scene.ends_clean().await;
}

/// Makes the same jump, but by more than the allowance, on the one node that both majorities share. Client 2
/// has observed the clock of C before. So client 2 notices the jump in C's vote, and does not count the vote.
/// The two clients never both believe that they hold the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clock_jump_on_node_c_is_seen_by_a_rival_that_watched_it() {
    let scene = Scene::new().await;
    let [client_1, client_2] = &scene.clients;
    let sink = Sink::default();
    let lease = scene.client_1_acquires().await;
    sink.write(lease.fencing_token().expect("just acquired")).expect("the first");
    let since = client_2.now();
    scene.bench.servers[C].step_clock(LARGE, true);
    assert!(!scene.bench.is_stored(C, "quorate:x"), "the jump did not end the key");
    let error = client_2.must_not_acquire("x").await.expect("no worker holds it on C, D and E");
    client_2.sees(C, "jump of", jumped).await;
    let next = take_over(client_2, &lease).await;
    let quarantine = client_2.quorum.config().quarantine();
    assert!(since.until(client_2.now()) >= quarantine, "C voted too soon: {error}");
    sink.write(next.fencing_token().expect("just acquired")).expect("a larger token");
    assert_eq!(
        sink.write(lease.unchecked_token()),
        Err(next.unchecked_token()),
        "client 1's late write was taken"
    );
    client_1.sees_the_end(&lease).await;
    client_2.keeps(&next, TTL).await;
    next.release().await.expect("C, D and E answer");
    scene.ends_clean().await;
}

/// Shows a limit of the guarantee. Client 2 connects to C only after the jump, and so cannot notice it. C votes
/// for client 2 at once, and both clients may believe that they hold the lock. The tokens are in order, because
/// C counted both grants. So the sink refuses client 1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clock_jump_on_node_c_is_fenced_where_the_rival_met_it_later() {
    let scene = Scene::new().await;
    let sink = Sink::default();
    let lease = scene.client_1_acquires().await;
    sink.write(lease.fencing_token().expect("just acquired")).expect("the first");
    scene.bench.servers[C].step_clock(LARGE, true);
    let late = scene.bench.worker_on_roads("late").await;
    late.roads[..C].iter().for_each(|road| road.cut(Directions::Both));
    let next = late.must_acquire("x").await;
    assert!(scene.bench.is_stored(C, "quorate:x"), "without C's vote");
    assert!(!jumped(&late.quorum.nodes()[C].state), "no worker can know");
    assert!(
        next.unchecked_token() > lease.unchecked_token(),
        "{:?} after {:?}",
        next.unchecked_token(),
        lease.unchecked_token()
    );
    sink.write(next.fencing_token().expect("just acquired")).expect("a larger token");
    assert_eq!(
        sink.write(lease.unchecked_token()),
        Err(next.unchecked_token()),
        "client 1's late write was taken"
    );
    scene.clients[0].sees_the_end(&lease).await;
    late.keeps(&next, TTL).await;
    next.release().await.expect("C, D and E answer");
    scene.ends_clean().await;
}

/// Makes the same jump, after client 1 has acquired the lease on all five nodes. More than a bare majority
/// store the lease, so the jump of C has no effect.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clock_jump_on_node_c_does_nothing_to_a_lease_on_all_nodes() {
    let scene = Scene::new().await;
    let [client_1, client_2] = &scene.clients;
    client_1.heal();
    client_1.trusts(5).await;
    let lease = client_1.must_acquire("x").await;
    eventually("lease on all five", || (scene.bench.holders_of("x").len() == 5).then_some(())).await;
    scene.bench.servers[C].step_clock(LARGE, true);
    let until = client_2.now() + TTL * 3 / 2;
    let mut tries = 0;
    while client_2.now() < until {
        let attempt = client_2.lock("x").try_acquire().await;
        assert!(!matches!(attempt, Ok(TryAcquire::Acquired(_))), "two hold it: {attempt:?}");
        assert!(lease.is_valid());
        tries += 1;
    }
    assert!(tries > 3, "only {tries} attempts");
    lease.release().await.expect("a majority answers");
    scene.ends_clean().await;
}

/// "Client 1 requests lock on nodes A, B, C, D, E. While the responses to client 1 are in flight, client 1
/// goes into stop-the-world GC. Locks expire on all Redis nodes. Client 2 acquires lock. Client 1 finishes
/// GC".
///
/// In this test, client 1 is stopped (SIGSTOP) once it has the lease, for longer than the TTL. When client 1
/// continues, it writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pause_after_acquire() {
    let bench = Bench::new().await;
    let client_2 = bench.worker("client-2").await;
    let client_1 = Probe::start(&bench, "client-1", "write-when-notified");
    let first = client_1.until_it_notes("held").await;
    client_1.stop();
    let next = client_2.must_acquire("job").await;
    assert!(next.unchecked_token().get() > first.token);
    assert!(client_1.sink().write(next.fencing_token().expect("just acquired").get()).expect("a server"));
    client_1.tell();
    let woke = client_1.go_on();
    // The very first check of client 1 after the pause reports the loss, even before a cancellation token
    // notifies client 1.
    let refused = client_1.until_it_notes("lost").await;
    assert_eq!((refused.token, client_1.first_since(woke).what), (first.token, "lost".to_owned()));
    // Client 1 writes although it has lost the lease. The sink refuses the write.
    let written = client_1.until_it_notes("refused").await;
    assert_eq!(written.token, first.token);
    assert_eq!(client_1.sink().highest().expect("a server"), next.unchecked_token().get());
    client_2.keeps(&next, TTL).await;
    next.release().await.expect("a majority answers");
    drop(client_1);
    client_2.serves("job").await;
    bench.clean().await;
}
