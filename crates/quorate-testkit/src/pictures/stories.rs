//! The stories of the pictures.

use super::{
    scene::Scene,
    timeline::{Kind, Timeline},
};
use crate::sim::Truth;
use quorate::{FencingToken, Lease, quorum::QuorumConfig};
use std::time::Duration;

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A holder is cut off from the nodes: its lease ends before the nodes free the lock.
pub(super) async fn life_of_a_lease(truth: Truth) -> Timeline {
    let lanes = ["worker a", "worker b", "node 1", "node 2", "node 3"];
    let title = "A lease of 10 s: held and extended, at risk, step-down, lost; then the nodes free the lock";
    let mut scene = Scene::start(truth, QuorumConfig::default(), title, &lanes, 2).await;
    scene.begin();
    scene.acquire(0, |lock| lock.ttl(seconds(10)));
    scene.until(seconds(1)).await;
    scene.acquire(1, |lock| lock.ttl(seconds(10)));
    scene.until(seconds(9)).await;
    scene.set_links(0, 0..3, false);
    scene.picture.mark(0, scene.now(), "cut off");
    scene.until(seconds(24)).await;
    assert!(!scene.lease(0, Lease::is_valid), "the lease of a has ended");
    assert!(scene.lease(1, Lease::is_valid), "b holds the lock");
    scene.picture
}

/// The first story of Kleppmann: the holder is stopped between its check and its write.
pub(super) async fn stopped_holder(truth: Truth) -> Timeline {
    let lanes = ["worker a", "worker b", "storage, tokens", "node 1", "node 2", "node 3"];
    let title = "A stopped holder: the storage refuses its late write, because the token is smaller";
    let mut scene = Scene::start(truth, QuorumConfig::default(), title, &lanes, 3).await;
    let mut storage = Storage::default();
    scene.begin();
    scene.acquire(0, |lock| lock.ttl(seconds(4)));
    scene.until(seconds(2)).await;
    let checked = scene.lease(0, Lease::unchecked_token);
    scene.set_stopped(0, true);
    scene.acquire(1, |lock| lock.ttl(seconds(4)));
    scene.until(seconds(8)).await;
    let token = scene.lease(1, Lease::unchecked_token);
    assert!(storage.write(&mut scene, token, "b") && token > checked, "the token of b is larger");
    scene.until(seconds(11)).await;
    scene.set_stopped(0, false);
    assert!(!storage.write(&mut scene, checked, "a"), "the late write is refused");
    scene.until(seconds(14)).await;
    scene.picture
}

/// The second story of Kleppmann: the clock of a node jumps, and so the node frees the lock early.
pub(super) async fn clock_jump(truth: Truth) -> Timeline {
    let lanes = ["client 1", "client 2", "node A", "node B", "node C", "node D", "node E"];
    let title = "The clock of C jumps ahead by 20 s: C frees the lock early, and stops voting";
    let setup = QuorumConfig { max_ttl: seconds(10), ..QuorumConfig::default() };
    let mut scene = Scene::start(truth, setup, title, &lanes, 2).await;
    // Both clients observe all nodes for `max_ttl` before the picture begins.
    scene.truth.pass(seconds(15)).await;
    scene.set_links(0, [3, 4], false);
    scene.set_links(1, [0, 1], false);
    scene.truth.pass(seconds(5)).await;
    scene.begin();
    scene.acquire(0, |lock| lock.ttl(seconds(10)));
    scene.until(seconds(2)).await;
    scene.acquire(1, |lock| lock.ttl(seconds(10)));
    scene.until(seconds(4)).await;
    assert!(scene.lease(0, Lease::is_valid), "client 1 holds the lock on A, B and C");
    scene.servers[2].step(20_000);
    scene.picture.mark(4, scene.now(), "the clock jumps");
    let mut second = false;
    for at in 5..=24 {
        scene.until(seconds(at)).await;
        let first = scene.lease(0, Lease::is_valid);
        second |= scene.holds(1);
        assert!(!(first && scene.holds(1)), "two holders at {at} s");
    }
    assert!(second, "client 2 holds the lock after the quarantine of C");
    scene.picture
}

/// A store that compares tokens.
#[derive(Debug, Default)]
struct Storage {
    largest: FencingToken,
}

impl Storage {
    /// Writes under a token, enters the result into the picture, and returns true if the store accepted it.
    fn write(&mut self, scene: &mut Scene, token: FencingToken, by: &str) -> bool {
        let accepted = token >= self.largest;
        self.largest = self.largest.max(token);
        let (kind, verdict) = match accepted {
            true => (Kind::Second, "accepted"),
            false => (Kind::Ending, "refused"),
        };
        let span = (scene.now(), scene.now() + Duration::from_millis(100));
        scene.picture.state(2, span, kind, "");
        let last = token.get() % 1_000;
        scene.picture.mark(2, span.0, &format!("{by}: …{last:03} {verdict}"));
        accepted
    }
}
