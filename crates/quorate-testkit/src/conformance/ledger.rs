use super::{TestClient, client::*};
use quorate::node::{LedgerPage, LedgerState, Node, PAGE_RECORDS, Record, Refusal, Reply, Request};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

const PRUNED: Reply = Reply::Pruned { next: None };

pub(super) async fn a_fresh_ledger_is_empty<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    assert_eq!(client.read("g").await, LedgerState::default());
    assert_eq!(client.read("g").await, LedgerState::default(), "reading makes none");
}

pub(super) async fn a_write_needs_what_the_leader_saw<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let (first, second) = (record(5, 1, false, "first"), record(5, 2, false, "second"));
    let third = record(6, 2, false, "third");
    assert_eq!(client.ask(write("g", "k", None, &first)).await, Reply::Written);
    assert_eq!(client.ask(write("g", "k", None, &second)).await, Reply::Conflict(first.clone()));
    assert_eq!(client.ask(write("g", "k", Some(&third), &second)).await, Reply::Conflict(first.clone()));
    // A repeated write finds the record that its first attempt stored, and succeeds.
    assert_eq!(client.ask(write("g", "k", None, &first)).await, Reply::Written);
    assert_eq!(client.ask(write("g", "k", Some(&first), &second)).await, Reply::Written);
    assert_eq!(client.ask(write("g", "k", Some(&first), &third)).await, Reply::Conflict(second.clone()));
    assert_eq!(client.read("g").await.records, [("k".into(), second)]);
    // The write names the record that it replaces, which the leader saw on another node. This node missed that
    // record and stores none under the key, so it accepts the new record.
    assert_eq!(client.ask(write("g", "l", Some(&first), &third)).await, Reply::Written);
}

pub(super) async fn a_final_record_is_never_overwritten<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let (last, more) = (record(5, 1, true, "done"), record(5, 2, false, "more"));
    assert_eq!(client.ask(write("g", "k", None, &last)).await, Reply::Written);
    assert_eq!(client.ask(write("g", "k", Some(&last), &more)).await, Reply::Conflict(last.clone()));
    assert_eq!(client.ask(write("g", "k", None, &last)).await, Reply::Written);
    // The two records differ only in whether they are final.
    let open = record(5, 1, false, "done");
    assert_eq!(client.ask(write("g", "k", Some(&last), &open)).await, Reply::Conflict(last));
}

pub(super) async fn records_come_in_the_order_of_their_keys<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let mut keys = vec!["b", "a", "B", "é", "z", "a/2", "a/10", "~", "t", "w", "r:a", "with space", "\n"];
    let values = ["", ":", "1:2:1:x", "a\nb", "{\"ü\":1}"];
    for (number, key) in keys.iter().enumerate() {
        let one = record(number as u64, 1, false, values[number % values.len()]);
        assert_eq!(client.ask(write("g", key, None, &one)).await, Reply::Written);
    }
    let order = keys.clone();
    keys.sort_unstable();
    let expected: Vec<_> = keys
        .into_iter()
        .map(|key| {
            let number = order.iter().position(|k| *k == key).unwrap_or_default();
            (key.into(), record(number as u64, 1, false, values[number % values.len()]))
        })
        .collect();
    assert_eq!(client.read("g").await.records, expected);
}

pub(super) async fn a_prune_deletes_and_refuses_earlier_records<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let far = u64::MAX - 1;
    for (key, at) in [("9", 9), ("10", 10), ("99", 99), ("far", far)] {
        assert_eq!(client.ask(write("g", key, None, &record(at, 1, at == 9, "v"))).await, Reply::Written);
    }
    for below in [10, 5] {
        assert_eq!(client.ask(prune("g", below)).await, PRUNED);
        let state = client.read("g").await;
        assert_eq!(state.low_water, 10, "the mark never falls");
        let keys: Vec<_> = state.records.iter().map(|(key, _)| &**key).collect();
        assert_eq!(keys, ["10", "99", "far"]);
    }
    let pruned = Reply::Refused(Refusal::Pruned);
    assert_eq!(client.ask(write("g", "9", None, &record(9, 1, true, "v"))).await, pruned);
    assert_eq!(client.ask(write("g", "8", None, &record(8, 1, false, "v"))).await, pruned);
    assert_eq!(client.ask(write("g", "x", None, &record(10, 1, false, "v"))).await, Reply::Written);
    // A leader whose clock is ahead asks to prune even ticks that are still in the future. The node keeps the
    // records of those ticks.
    let pruned_at = client.ask_all(vec![prune("g", far)]).await;
    assert_eq!(pruned_at.replies, [PRUNED]);
    let state = client.read("g").await;
    assert!(state.low_water > 99 && state.low_water <= pruned_at.node_time.as_micros() + 1);
    let keys: Vec<_> = state.records.iter().map(|(key, _)| &**key).collect();
    assert_eq!(keys, ["far"]);
    assert_eq!(client.ask(write("g", "y", None, &record(far - 1, 1, false, "v"))).await, Reply::Written);
}

pub(super) async fn a_ledger_ends_with_its_life_and_is_not_created_by_being_kept<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let life = Duration::from_millis(200);
    let keep = |ledger: &str, life| Request::Keep { ledger: ledger.into(), life };
    assert_eq!(client.ask(keep("g", life)).await, Reply::Kept, "there is none");
    let one = record(5, 9, false, "v");
    for group in ["g", "kept"] {
        assert_eq!(client.ask(write(group, "k", None, &one)).await, Reply::Written);
        assert_eq!(client.ask(prune(group, 3)).await, PRUNED);
    }
    assert_eq!(client.ask(keep("kept", LONG)).await, Reply::Kept);
    let before = client.now();
    // The first request shortens the lifetime. A write restarts the lifetime of the whole ledger. To save work, a node may
    // leave the stored end of the lifetime unchanged if it is at most 1/64 of the lifetime too early. All three are one
    // batch, so that no pause of this program outlasts the ledger.
    let read = Request::Read { ledger: "g".into(), after: None, key: None };
    let asked = vec![keep("g", life), write("g", "l", None, &one), read];
    let replies = client.ask_all(asked).await.replies;
    let both_kept = |page: &LedgerPage| page.state.records.len() == 2;
    assert!(
        matches!(&replies[..], [Reply::Kept, Reply::Written, Reply::Ledger(page)] if both_kept(page)),
        "{replies:?}"
    );
    while client.read("g").await != LedgerState::default() {
        assert!(before.until(client.now()) < Duration::from_secs(10), "it does not end");
        client.pause().await;
    }
    assert!(before.until(client.now()) >= life - life / 64);
    // The ledger has expired completely. The node therefore accepts a write at a time below the former low-water
    // mark.
    assert_eq!(client.ask(write("g", "k", None, &record(1, 1, false, "v"))).await, Reply::Written);
    assert_eq!(client.read("kept").await.records.len(), 1);
}

pub(super) async fn ledgers_of_two_groups_are_separate<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let one = record(5, 1, false, "v");
    assert_eq!(client.ask(write("g", "k", None, &one)).await, Reply::Written);
    assert_eq!(client.ask(prune("h", 7)).await, PRUNED);
    assert_eq!(client.read("h").await, LedgerState { low_water: 7, records: Vec::new() });
    assert_eq!(client.read("g").await, LedgerState { low_water: 0, records: vec![("k".into(), one)] });
    assert_eq!(client.read("g/k").await, LedgerState::default());
}

/// A number of records that is too large for one page of any kind of node.
const MANY: usize = 7_000;

/// Stores [`MANY`] records, and returns them by key. The times of the records are 1, 2, 3 and so on.
async fn fill<N: Node>(client: &mut TestClient<N>) -> BTreeMap<Arc<str>, Record> {
    let all: BTreeMap<Arc<str>, Record> = (0..MANY)
        .map(|n| (format!("tick/{n}").into(), record(n as u64 + 1, 1, false, "{\"worker\":\"w\"}")))
        .collect();
    for some in all.iter().collect::<Vec<_>>().chunks(200) {
        let writes = some.iter().map(|(key, record)| write("g", key, None, record)).collect();
        assert!(client.ask_all(writes).await.replies.iter().all(|reply| *reply == Reply::Written));
    }
    all
}

pub(super) async fn a_long_ledger_is_read_in_pages<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let all = fill(&mut client).await;
    // No record is that old.
    assert!(matches!(client.ask(prune("g", 1)).await, Reply::Pruned { .. }));
    let (mut found, mut pages, mut after) = (BTreeMap::new(), 0, None);
    loop {
        let LedgerPage { state, next } = client.page("g", after).await;
        assert_eq!(state.low_water, 1, "every page has the mark");
        assert!(state.records.len() <= 11 * PAGE_RECORDS, "a page of {}", state.records.len());
        pages += 1;
        // Between two pages, a write adds a record. The later pages may contain it or not, but they must contain
        // every other record.
        let more = record(1, 2, false, "more");
        assert_eq!(client.ask(write("g", &format!("more/{pages}"), None, &more)).await, Reply::Written);
        found.extend(state.records);
        after = next;
        if after.is_none() {
            break;
        }
    }
    assert!(pages > 1, "all in one");
    found.retain(|key, _| !key.starts_with("more/"));
    assert!(found == all, "{} of {MANY} in {pages} pages", found.len());
}

pub(super) async fn a_long_ledger_is_pruned_in_steps<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let mut all = fill(&mut client).await;
    let below = MANY as u64 - 10;
    let (mut after, mut steps) = (None, 0);
    loop {
        let step = Request::Prune { ledger: "g".into(), below, after };
        let Reply::Pruned { next } = client.ask(step).await else { unreachable!("a prune is served") };
        steps += 1;
        // A prune may take several steps. The low-water mark is in effect from the first step on.
        let late = record(below - 1, 1, false, "late");
        assert_eq!(client.ask(write("g", "late", None, &late)).await, Reply::Refused(Refusal::Pruned));
        after = next;
        if after.is_none() {
            break;
        }
    }
    assert!(steps > 1, "all in one");
    all.retain(|_, record| record.at >= below);
    let state = client.read("g").await;
    assert_eq!(state.low_water, below);
    assert_eq!(state.records, all.into_iter().collect::<Vec<_>>());
}
