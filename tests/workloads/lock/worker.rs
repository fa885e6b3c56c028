use super::Mode;
use crate::{
    harness::{Assignment, Event, Journal, Point, StoreClient},
    work::Failure,
};
use quorate::{env::Env, quorum::Quorum};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeSet,
    hash::{DefaultHasher, Hash, Hasher},
    net::SocketAddr,
    time::Duration,
};

/// The time that a worker waits between the read and the check, and between the check and the write.
const THINKS: Duration = Duration::from_millis(25);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Task {
    pub(crate) mode: Mode,
    /// The address of the store.
    pub(crate) store: SocketAddr,
}

/// The work of one worker process. Again and again, it acquires the lock, reads the set, adds an element,
/// writes the set, and releases the lock.
pub(crate) async fn work(
    Task { mode, store }: &Task,
    assignment: &Assignment,
    quorum: &Quorum,
    journal: &Journal,
) -> Result<(), Failure> {
    let mut store = StoreClient::connect(*store).await?;
    let env = quorum.env();
    let reached = |point, element| journal.write(Event::Reached { point, element });
    let lock = quorum.lock(format!("set-{mode:?}")).ttl(assignment.ttl);
    for element in assignment.member as u64 * 1_000_000.. {
        let lease = match lock.acquire().await {
            Ok(lease) => lease,
            Err(error) if error.is_permanent() => return Err(error.into()),
            Err(_) => continue,
        };
        let token = lease.unchecked_token().get();
        journal.write(Event::StoreCalled { token, write: None });
        let read = store.read(token).await?;
        journal.write(Event::StoreReturned { value: read.as_ref().map(fingerprint) });
        if let Some(mut elements) = read {
            let base = fingerprint(&elements);
            reached(Point::Read, element);
            think(env).await;
            reached(Point::Checking, element);
            if *mode == Mode::Check && lease.fencing_token().is_err() {
                reached(Point::Skipped, element);
                continue;
            }
            reached(Point::Checked, element);
            think(env).await;
            elements.insert(element);
            let value = fingerprint(&elements);
            journal.write(Event::StoreCalled { token, write: Some([base, value]) });
            let accepted = store.write(token, element, &elements).await?;
            journal.write(Event::StoreReturned { value: accepted.then_some(value) });
            if accepted {
                reached(Point::Acknowledged, element);
            }
        }
        // If the worker has lost its lease, the release fails. This is not an error here.
        let _ = lease.release().await;
        think(env).await;
    }
    Ok(())
}

/// Returns a number that differs from that of every other set that occurs, except with a probability of about one in
/// 2^64. The number of the empty set is 0.
fn fingerprint(elements: &BTreeSet<u64>) -> u64 {
    let of = |element: &u64| {
        let mut hasher = DefaultHasher::new();
        element.hash(&mut hasher);
        hasher.finish()
    };
    elements.iter().map(of).fold(0, u64::wrapping_add)
}

/// Waits for a random time, so that the workers do not act at the same moments.
async fn think(env: &Env) {
    env.sleep(THINKS / 2 + env.random_below(THINKS)).await;
}
