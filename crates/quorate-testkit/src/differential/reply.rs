use quorate::node::{LedgerState, Owner, Record, Refusal, Reply};
use std::{collections::BTreeMap, time::Duration};

/// The largest permitted difference between the remaining times of a lease on two nodes. The nodes are asked
/// one after the other, so the times differ a little.
const SLACK: Duration = Duration::from_secs(2);

/// A longer time than this counts as endless. The latest time that a node can express differs by kind.
const FOR_EVER: Duration = Duration::from_secs(50 * 365 * 86_400);

/// The largest permitted difference between the clocks of two nodes. To let time pass, a history moves most
/// clocks forward. The clock of a Redis server stays, and its keys are changed to expire earlier.
const CLOCKS: Duration = Duration::from_secs(10 * 86_400);

/// Returns `true` if two replies to one request are equal, except for values that depend on the moment of the reply.
pub fn replies_alike(a: &Reply, b: &Reply) -> bool {
    match (a, b) {
        (Reply::Held { owner: one, remaining: left }, Reply::Held { owner: two, remaining: right }) => {
            one == two && lasts_alike(*left, *right)
        }
        (
            Reply::State { holder: one, counter: c1, done: d1, begun: b1 },
            Reply::State { holder: two, counter: c2, done: d2, begun: b2 },
        ) => c1 == c2 && d1 == d2 && b1 == b2 && holders_alike(one.as_ref(), two.as_ref()),
        (Reply::Refused(Refusal::Clock { apart: one }), Reply::Refused(Refusal::Clock { apart: two })) => {
            one.abs_diff(*two) <= CLOCKS
        }
        // Each node chooses the position of its next page, so the positions may differ. But if one node has a
        // next page, the other must have one too.
        (Reply::Ledger(one), Reply::Ledger(two)) => {
            ledgers_alike(&one.state, &two.state) && one.next.is_some() == two.next.is_some()
        }
        _ => a == b,
    }
}

type Holder = (Owner, Option<Duration>);

fn holders_alike(one: Option<&Holder>, two: Option<&Holder>) -> bool {
    match (one, two) {
        (Some((one, left)), Some((two, right))) => one == two && lasts_alike(*left, *right),
        (one, two) => one == two,
    }
}

fn lasts_alike(one: Option<Duration>, two: Option<Duration>) -> bool {
    match (one, two) {
        (Some(one), Some(two)) => one.min(FOR_EVER).abs_diff(two.min(FOR_EVER)) <= SLACK,
        (one, two) => one == two,
    }
}

fn ledgers_alike(one: &LedgerState, two: &LedgerState) -> bool {
    let marks = Duration::from_micros(one.low_water.abs_diff(two.low_water));
    // A low-water mark in the first thousand seconds of 1970 was set by a request of the history, so it must be
    // equal on both nodes. A later mark may be the node's own time.
    let by_number = one.low_water.min(two.low_water) < 1_000_000_000;
    by_key(one) == by_key(two) && if by_number { marks.is_zero() } else { marks <= CLOCKS }
}

/// Returns the records by their keys. A page is in no order, and may have a record twice: the later one is the newer one.
fn by_key(state: &LedgerState) -> BTreeMap<&str, &Record> {
    state.records.iter().map(|(key, record)| (&**key, record)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate::node::FencingToken;

    fn held(seconds: u64) -> Reply {
        Reply::Held { owner: Owner::sign("w", 1, 1), remaining: Some(Duration::from_secs(seconds)) }
    }

    #[test]
    fn what_depends_on_the_moment_is_forgiven_and_nothing_else() {
        assert!(replies_alike(&held(20), &held(21)) && !replies_alike(&held(20), &held(25)));
        let never = Reply::Held { owner: Owner::sign("w", 1, 1), remaining: None };
        assert!(!replies_alike(&held(20), &never));
        let other = Reply::Held { owner: Owner::sign("w", 1, 2), remaining: Some(Duration::from_secs(20)) };
        assert!(!replies_alike(&held(20), &other));
        let ledger = |low_water| Reply::Ledger(LedgerState { low_water, ..LedgerState::default() }.into());
        assert!(!replies_alike(&ledger(9), &ledger(10)));
        assert!(replies_alike(&ledger(1_700_000_000_000_000), &ledger(1_700_000_000_000_009)));
        let granted = |counter| Reply::Granted { counter: FencingToken::new(counter), begun: None };
        assert!(!replies_alike(&granted(1), &granted(2)));
    }
}
