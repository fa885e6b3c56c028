use super::*;
use quorate::node::{AttemptCount, DoneRecord};

const AT_NANOS: u64 = 5_000 * NANOS;
const AT_MICROS: u64 = 6_000 * MICROS;

/// Checks that every row is read as it was written, and that it is written where the scripts look.
#[test]
fn rows_are_read_as_they_were_written() {
    let mut store = ScriptStore::new(None);
    let (lock, claim) = (Resource::lock("l").unwrap(), Resource::claim("s", "m").unwrap());
    let lease = |owner: &str, readers| LeaseRow { owner: owner.into(), until_nanos: AT_NANOS, readers };
    let reader = |owner: &str, until_nanos| ReaderRow { owner: owner.into(), until_nanos };
    let read = vec![reader("b", 4_000 * NANOS), reader("a", AT_NANOS - NANOS)];
    let counter = CounterRow { count: FencingToken::new(7), until_micros: AT_MICROS };
    for resource in [&lock, &claim] {
        assert_eq!(store.lease(resource), Ok(None));
        assert_eq!(store.counter(resource), Ok(None));
        let Ok(()) = store.set_lease(resource, Some(lease("w:1", Vec::new())));
        let Ok(()) = store.set_counter(resource, counter);
        assert_eq!(store.lease(resource), Ok(Some(lease("w:1", Vec::new()))));
        assert_eq!(store.counter(resource), Ok(Some(counter)));
        let Ok(()) = store.set_lease(resource, None);
        assert_eq!(store.lease(resource), Ok(None));
        assert_eq!(store.counter(resource), Ok(Some(counter)), "it outlives the lease");
    }
    let Ok(()) = store.set_lease(&lock, Some(lease(Owner::READERS, read.clone())));
    assert_eq!(store.lease(&lock), Ok(Some(lease(Owner::READERS, read))));
    assert_eq!(string(store.keys(), "quorate:l"), Some((Owner::READERS.to_owned(), Some(4_999))));
    assert_eq!(string(store.keys(), "{quorate:l}:fence"), Some(("7".to_owned(), Some(5_999))));
    assert_eq!(string(store.keys(), "quorate:claim/s/m"), Some(("c:0:7:5999:0:0::".to_owned(), Some(5_999))));
}

#[test]
fn records_and_queues_are_read_as_they_were_written() {
    let mut store = ScriptStore::new(None);
    let (lock, claim) = (Resource::lock("l").unwrap(), Resource::claim("s", "m").unwrap());
    let count = AttemptCount { attempts: 3, payload: Some("ab".into()) };
    let done = DoneRecord {
        token: FencingToken::new(9),
        at: 4,
        result: "a:b".into(),
        payload: None,
        dead_lettered: Some(2),
    };
    for record in [ClaimRecord::Begun(count), ClaimRecord::Done(done)] {
        let row = ClaimRow { record, until_micros: AT_MICROS };
        let Ok(()) = store.set_claim(&claim, Some(row.clone()));
        assert_eq!(store.claim(&claim), Ok(Some(row)));
    }
    assert_eq!(string(store.keys(), "quorate:claim/s/m"), Some(("d:9:4::2:a:b".to_owned(), Some(5_999))));
    let Ok(()) = store.set_claim(&claim, None);
    assert_eq!(store.claim(&claim), Ok(None));
    let place = |ticket: &str, at, exclusive| PlaceRow {
        at,
        ticket: ticket.into(),
        until_nanos: AT_NANOS,
        exclusive,
    };
    let queue = QueueRow { until_nanos: AT_NANOS, places: vec![place("b", 1, true), place("a", 2, false)] };
    let Ok(()) = store.set_queue(&lock, Some(queue.clone()));
    assert_eq!(store.queue(&lock), Ok(Some(queue)));
    let Ok(()) = store.set_queue(&lock, None);
    assert_eq!(store.queue(&lock), Ok(None));
    let record = Record { at: 1, term: FencingToken::new(2), last: true, value: "v:1".into() };
    let state = LedgerState {
        term: FencingToken::new(5),
        low_water: 6,
        records: vec![("a".into(), record.clone()), ("b".into(), record)],
    };
    let Ok(()) = store.set_ledger("g", state.clone());
    let life = LifeRow { millis: 8, until_micros: AT_MICROS };
    let Ok(()) = store.set_ledger_life("g", life);
    assert_eq!(store.ledger("g"), Ok(state));
    assert_eq!(store.ledger_life("g"), Ok(Some(life)));
    let Ok(()) = store.remove_ledger("g");
    assert_eq!(store.ledger("g"), Ok(LedgerState::default()));
    let Ok(()) = store.set_marker("m".into());
    assert_eq!(store.marker(), Ok(Some("m".into())));
}
