//! The stamps, by which other nodes and workers notice that a node has lost data.

use super::{TestClient, client::*};
use quorate::node::{Node, NodeTime, Refusal, Reply, Request, STAMP_MAX, StampStep};
use std::{collections::BTreeMap, time::Duration};

fn stamp(step: StampStep, known: &[(&str, u64)]) -> Request {
    let known = known.iter().map(|(name, count)| ((*name).into(), *count)).collect();
    Request::Stamp { own: "redis://me:6379/0".into(), known, step }
}

/// The name of the node itself, as [`stamp`] gives it.
const ME: &str = "redis://me:6379/0";

pub(super) async fn a_stamp_grows_and_hides_no_loss<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    for (step, known, stored) in [
        (StampStep::Tell, 0, 0),
        (StampStep::Advance, 0, 1),
        // The worker has seen 9, and the node is at 1: the reply shows that the node has lost data.
        (StampStep::Tell, 9, 1),
        (StampStep::Advance, 9, 2),
        (StampStep::Raise, 9, 10),
        (StampStep::Raise, 3, 11),
        (StampStep::Advance, 0, 12),
        (StampStep::Raise, STAMP_MAX - 1, STAMP_MAX),
    ] {
        let reply = client.ask(stamp(step, &[(ME, known)])).await;
        assert_eq!(reply, Reply::Stamps(vec![stored]), "{step:?} {known}");
    }
}

pub(super) async fn the_stamps_of_other_nodes_are_merged_by_maximum<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let tell = |known: &[(&str, u64)]| stamp(StampStep::Tell, known);
    assert_eq!(client.ask(tell(&[("a", 9), (ME, 5), ("b", 0)])).await, Reply::Stamps(vec![9, 0, 0]));
    // Compared as text, 10 would be less than 9.
    assert_eq!(client.ask(tell(&[("b", 3), ("a", 10)])).await, Reply::Stamps(vec![3, 10]));
    assert_eq!(client.ask(tell(&[("a", 2), ("b", 4)])).await, Reply::Stamps(vec![10, 4]));
    let requests =
        vec![stamp(StampStep::Advance, &[(ME, 0)]), stamp(StampStep::Raise, &[("file:///ü", 1), (ME, 0)])];
    let replies = client.ask_all(requests).await.replies;
    assert_eq!(replies, [Reply::Stamps(vec![1]), Reply::Stamps(vec![1, 2])]);
    client.reopen().await;
    let stored = [("a", 10), ("b", 4), ("file:///ü", 1), (ME, 2)].map(|(name, count)| (name.into(), count));
    assert_eq!(client.hello.stamps, BTreeMap::from(stored));
}

pub(super) async fn a_stamp_needs_the_marker_and_the_time<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let advance = stamp(StampStep::Advance, &[(ME, 0), ("a", 7)]);
    client.stamp = "other".into();
    let refused = Reply::Refused(Refusal::Marker(Some(STAMP.into())));
    assert_eq!(client.ask(advance.clone()).await, refused);
    client.stamp = STAMP.into();
    client.not_after = NodeTime::default();
    assert_eq!(client.ask(advance).await, Reply::Refused(Refusal::Stale));
    client.not_after = client.wall() + Duration::from_secs(30);
    assert_eq!(client.ask(stamp(StampStep::Tell, &[(ME, 0), ("a", 0)])).await, Reply::Stamps(vec![0, 0]));
    // The stamp that follows a marker is stored only if the marker is.
    let marked = vec![mark(Some("old"), "new"), stamp(StampStep::Raise, &[(ME, 5)])];
    client.stamp = "new".into();
    let replies = client.ask_all(marked).await.replies;
    assert_eq!(replies, [refused.clone(), refused]);
    let marked = vec![mark(Some(STAMP), "new"), stamp(StampStep::Raise, &[(ME, 5)])];
    assert_eq!(client.ask_all(marked).await.replies, [Reply::Marked, Reply::Stamps(vec![6])]);
}
