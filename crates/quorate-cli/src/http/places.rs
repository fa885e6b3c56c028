//! The places of the open connections: who keeps one if there are too many.

use std::{
    collections::VecDeque,
    fmt,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio_util::sync::CancellationToken;

/// The largest number of connections of clients without a token, and of clients with one.
pub(super) const PLACES: Most = Most { of_each: 64, of_all: 64 };
/// The largest numbers of connections of the clients of leases, each of which waits in one for each lease.
pub(super) const CLIENTS: Most = Most { of_each: 1_024, of_all: 8_192 };

/// The largest number of connections of one client, and of all.
#[derive(Clone, Copy, Debug)]
pub(super) struct Most {
    of_each: usize,
    of_all: usize,
}

/// The open connections of a server.
///
/// A new connection always gets a place. If there are too many, the oldest one ends. So a client that keeps connections
/// open never shuts out the next health check. A connection that has sent a valid token counts apart from the others,
/// and so only other clients with a token can end it. Too many connections of one client end the oldest one of that client.
#[derive(Debug)]
pub(super) struct Places {
    most: Most,
    lists: Mutex<Lists>,
}

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
    pub(super) from: Origin,
    /// True if it connects where clients of leases do.
    pub(super) is_client: bool,
    pub(super) place: Arc<Place>,
}

/// Where a connection comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// An address.
    Tcp(SocketAddr),
    /// A process of this machine. One in another container has no id here.
    Unix { pid: Option<i32>, uid: u32 },
}

/// A client, for the limits on connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Client {
    Ip(IpAddr),
    Process(Option<i32>, u32),
}

/// The open connections, each list from the oldest to the newest.
#[derive(Debug, Default)]
struct Lists {
    last_id: u64,
    without_token: VecDeque<Entry>,
    with_token: VecDeque<Entry>,
}

#[derive(Debug)]
struct Entry {
    id: u64,
    client: Client,
    taken: CancellationToken,
}

impl Origin {
    fn client(self) -> Client {
        match self {
            Self::Tcp(address) => Client::Ip(address.ip()),
            Self::Unix { pid, uid } => Client::Process(pid, uid),
        }
    }

    /// Returns the name of an operator who connects from here, for the leader and the audit list.
    pub(super) fn operator(self) -> String {
        match self {
            Self::Tcp(address) => format!("http@{}", address.ip()),
            Self::Unix { uid, .. } => format!("http@uid {uid}"),
        }
    }
}

/// The text for operators, without the port, which differs for each connection of a client.
impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.ip().fmt(f),
            Self::Unix { pid: Some(pid), uid } => write!(f, "pid {pid}, uid {uid}"),
            Self::Unix { pid: None, uid } => write!(f, "uid {uid}"),
        }
    }
}

impl Places {
    pub(super) fn new(most: Most) -> Arc<Self> {
        Arc::new(Self { most, lists: Mutex::default() })
    }

    /// Gives a new connection a place.
    pub(super) fn enter(self: &Arc<Self>, from: Origin) -> Arc<Place> {
        let taken = CancellationToken::new();
        let mut lists = self.lists();
        lists.last_id += 1;
        let id = lists.last_id;
        let entry = Entry { id, client: from.client(), taken: taken.clone() };
        add(&mut lists.without_token, entry, self.most);
        drop(lists);
        Arc::new(Place { id, taken, places: Arc::clone(self) })
    }

    fn lists(&self) -> MutexGuard<'_, Lists> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Records that the client has sent a valid token.
    pub(super) fn has_token(&self) {
        let Lists { without_token, with_token, .. } = &mut *self.places.lists();
        let at = without_token.iter().position(|entry| entry.id == self.id);
        if let Some(entry) = at.and_then(|at| without_token.remove(at)) {
            add(with_token, entry, self.places.most);
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
            list.retain(|entry| entry.id != self.id);
        }
    }
}

/// Adds the newest connection, in the place of the oldest one of the client or of all if there is no other.
fn add(list: &mut VecDeque<Entry>, newest: Entry, most: Most) {
    let is_same = |entry: &&Entry| entry.client == newest.client;
    let oldest = if list.iter().filter(is_same).count() >= most.of_each {
        list.iter().position(|entry| entry.client == newest.client)
    } else {
        (list.len() >= most.of_all).then_some(0)
    };
    if let Some(entry) = oldest.and_then(|at| list.remove(at)) {
        entry.taken.cancel();
    }
    list.push_back(newest);
}

#[cfg(test)]
mod tests {
    use super::*;

    const EACH: usize = PLACES.of_each;

    fn from(pid: i32) -> Origin {
        Origin::Unix { pid: Some(pid), uid: 7 }
    }

    fn enter(places: &Arc<Places>, count: usize) -> Vec<Arc<Place>> {
        (0..count).map(|_| places.enter(from(1))).collect()
    }

    fn open(connections: &[Arc<Place>]) -> usize {
        connections.iter().filter(|place| !place.taken.is_cancelled()).count()
    }

    #[test]
    fn a_new_connection_takes_the_place_of_the_oldest() {
        let places = Places::new(PLACES);
        let idle = enter(&places, EACH);
        assert_eq!(open(&idle), EACH);
        let health = places.enter(from(1));
        assert!(!health.taken.is_cancelled());
        assert!(idle[0].taken.is_cancelled() && open(&idle) == EACH - 1);
        drop(health);
        let next = places.enter(from(1));
        assert!(!next.taken.is_cancelled() && open(&idle) == EACH - 1, "a place was free");
    }

    #[test]
    fn clients_without_a_token_never_end_a_connection_with_one() {
        let places = Places::new(PLACES);
        let operators = enter(&places, EACH);
        for operator in &operators {
            operator.has_token();
            operator.has_token();
        }
        let others = enter(&places, 3 * EACH);
        assert_eq!((open(&operators), open(&others)), (EACH, EACH));
        let more = enter(&places, 2);
        more[0].has_token();
        assert_eq!((open(&operators), open(&more)), (EACH - 1, 2), "the oldest with a token");
        drop((operators, others, more));
        let lists = places.lists();
        assert!(lists.without_token.is_empty() && lists.with_token.is_empty());
    }

    #[test]
    fn a_client_with_many_connections_ends_its_own() {
        let places = Places::new(Most { of_each: 2, of_all: 3 });
        let greedy = enter(&places, 3);
        let other = places.enter(from(2));
        assert!(greedy[0].taken.is_cancelled() && open(&greedy) == 2, "its own oldest one");
        let third = places.enter(from(3));
        assert!(greedy[1].taken.is_cancelled(), "there is no free place, and this one is the oldest of all");
        assert!(!other.taken.is_cancelled() && !third.taken.is_cancelled());
    }

    #[test]
    fn a_client_has_one_name_on_all_its_connections() {
        let tcp = |port| Origin::Tcp(([127, 0, 0, 1], port).into());
        assert!(tcp(1).client() == tcp(2).client() && tcp(1).to_string() == "127.0.0.1");
        assert!(from(1).client() != from(2).client() && from(1).to_string() == "pid 1, uid 7");
        assert_eq!(
            (tcp(1).operator(), from(1).operator()),
            ("http@127.0.0.1".to_owned(), "http@uid 7".to_owned())
        );
    }
}
