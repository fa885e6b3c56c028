//! The places of the open connections: who keeps one if there are too many.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio_util::sync::CancellationToken;

/// The largest number of connections of clients without a token, and of clients with one.
pub(super) const PLACES: usize = 64;

/// The open connections of a server.
///
/// A new connection always gets a place. If there are too many, the oldest one ends. So a client that keeps connections
/// open never shuts out the next health check. A connection that has sent a valid token counts apart from the others,
/// and so only other clients with a token can end it.
#[derive(Debug, Default)]
pub(super) struct Places(Mutex<Lists>);

/// The place of one connection. Dropping it gives it back.
#[derive(Debug)]
pub(super) struct Place {
    id: u64,
    taken: CancellationToken,
    places: Arc<Places>,
}

/// The connection of a client.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    pub(super) address: SocketAddr,
    pub(super) place: Arc<Place>,
}

/// The open connections, each list from the oldest to the newest.
#[derive(Debug, Default)]
struct Lists {
    last_id: u64,
    without_token: VecDeque<(u64, CancellationToken)>,
    with_token: VecDeque<(u64, CancellationToken)>,
}

impl Places {
    /// Gives a new connection a place.
    pub(super) fn enter(self: &Arc<Self>) -> Arc<Place> {
        let taken = CancellationToken::new();
        let mut lists = self.lists();
        lists.last_id += 1;
        let id = lists.last_id;
        add(&mut lists.without_token, (id, taken.clone()));
        drop(lists);
        Arc::new(Place { id, taken, places: Arc::clone(self) })
    }

    fn lists(&self) -> MutexGuard<'_, Lists> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Records that the client has sent a valid token.
    pub(super) fn has_token(&self) {
        let Lists { without_token, with_token, .. } = &mut *self.places.lists();
        let at = without_token.iter().position(|(id, _)| *id == self.id);
        if let Some(entry) = at.and_then(|at| without_token.remove(at)) {
            add(with_token, entry);
        }
    }

    /// Waits until a newer connection has taken the place.
    pub(super) async fn taken(&self) {
        self.taken.cancelled().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Lists { without_token, with_token, .. } = &mut *self.places.lists();
        for list in [without_token, with_token] {
            list.retain(|(id, _)| *id != self.id);
        }
    }
}

/// Adds the newest connection, in the place of the oldest if there is no other.
fn add(list: &mut VecDeque<(u64, CancellationToken)>, newest: (u64, CancellationToken)) {
    if list.len() >= PLACES
        && let Some((_, taken)) = list.pop_front()
    {
        taken.cancel();
    }
    list.push_back(newest);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn enter(places: &Arc<Places>, count: usize) -> Vec<Arc<Place>> {
        (0..count).map(|_| places.enter()).collect()
    }

    fn open(connections: &[Arc<Place>]) -> usize {
        connections.iter().filter(|place| !place.taken.is_cancelled()).count()
    }

    #[test]
    fn a_new_connection_takes_the_place_of_the_oldest() {
        let places = Arc::new(Places::default());
        let idle = enter(&places, PLACES);
        assert_eq!(open(&idle), PLACES);
        let health = places.enter();
        assert!(!health.taken.is_cancelled());
        assert!(idle[0].taken.is_cancelled() && open(&idle) == PLACES - 1);
        drop(health);
        let next = places.enter();
        assert!(!next.taken.is_cancelled() && open(&idle) == PLACES - 1, "a place was free");
    }

    #[test]
    fn clients_without_a_token_never_end_a_connection_with_one() {
        let places = Arc::new(Places::default());
        let operators = enter(&places, PLACES);
        for operator in &operators {
            operator.has_token();
            operator.has_token();
        }
        let others = enter(&places, 3 * PLACES);
        assert_eq!((open(&operators), open(&others)), (PLACES, PLACES));
        let more = enter(&places, 2);
        more[0].has_token();
        assert_eq!((open(&operators), open(&more)), (PLACES - 1, 2), "the oldest with a token");
        drop((operators, others, more));
        let lists = places.lists();
        assert!(lists.without_token.is_empty() && lists.with_token.is_empty());
    }
}
