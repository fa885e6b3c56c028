use crate::node::{NodeTime, Owner, Refusal, Reply, Request, Resource};
use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// The longest time for which a lock is acquired by plain commands after a script has acquired it. The commands do not
/// prolong the retention of the lock's counter.
const KNOWN_FOR: Duration = Duration::from_secs(3600);

/// The time for which a lock is acquired by scripts after it was held. The commands count each attempt, also one that is
/// refused. So the counters of the nodes would run apart under contention, and raises would fail.
const CONTENDED_FOR: Duration = Duration::from_secs(1);

/// The largest number of locks that are known, and of claims that are known not to be new. If more are used in turn, scripts
/// acquire some of the locks, and some claims are asked for once more.
const KNOWN_MAX: usize = 1_024;

/// The acquires that a session sends as plain commands: of locks that a script has acquired on the same session, and of claims that
/// are not known to be used.
#[derive(Debug)]
pub(crate) struct PlainAcquires {
    /// False if the server, or the permissions of its user, do not allow the plain commands.
    enabled: bool,
    locks: Mutex<Locks>,
}

#[derive(Debug, Default)]
struct Locks {
    /// The node time of the last reply.
    latest: NodeTime,
    /// By the hash of the lock's name, so that the list keeps no names. A lock that is taken for another one is refused: its
    /// counter does not follow that of the other.
    known: BTreeMap<u64, Known>,
    /// The hashes of the names of claims of which the server has data of an earlier attempt. Commands cannot acquire those.
    /// A claim that is missing here, or is taken for another one, costs a request that is refused or a script. The second set
    /// has the earlier ones: once the first is full, it takes the place of the second.
    used_claims: [BTreeSet<u64>; 2],
}

#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// The count of the last grant by a script.
    count: u64,
    /// The node time until which the counter is known to be kept.
    until: NodeTime,
    /// The node time from which the lock is expected to be free.
    contended_until: NodeTime,
    /// True if the lock also has readers. Scripts serve it, because a node refuses a downgrade once it has counted the attempt
    /// of a loser.
    is_shared: bool,
}

impl Locks {
    fn is_used(&self, claim: &Resource) -> bool {
        let has_any = self.used_claims.iter().any(|used| !used.is_empty());
        has_any && self.used_claims.iter().any(|used| used.contains(&hash_of(claim)))
    }
}

impl PlainAcquires {
    /// Permits no acquire of a lock yet, and none at all if `enabled` is false.
    pub(crate) fn new(enabled: bool) -> Self {
        Self { enabled, locks: Mutex::default() }
    }

    /// Returns the count above which a grant by plain commands counts, if they may serve the request until `not_after`: that of
    /// the last grant by a script. A new claim has no count yet, so zero.
    pub(crate) fn floor(&self, request: &Request, not_after: NodeTime) -> Option<u64> {
        let Request::Acquire { resource, propose, tolerance, ticket: None, .. } = request else {
            return None;
        };
        let all = self.all();
        if resource.is_claim() {
            // A key that commands set lasts longer by the time to the deadline. So the server's time must be known.
            let is_known = all.latest > NodeTime::default();
            let is_soon = all.latest <= not_after && not_after < all.latest + KNOWN_FOR;
            // The server's clock shows a time between these two when it sets the record in time.
            let proposed = NodeTime::from_micros(propose.get());
            let is_near = [all.latest, not_after].iter().all(|time| proposed.distance(*time) <= *tolerance);
            return (self.enabled && is_known && is_soon && is_near && !all.is_used(resource)).then_some(0);
        }
        let known = all.known.get(&hash_of(resource))?;
        let is_free = known.contended_until <= all.latest && all.latest <= not_after;
        (is_free && !known.is_shared && not_after < known.until).then_some(known.count)
    }

    /// Notes the server's time in a reply.
    pub(crate) fn saw(&self, at: NodeTime) {
        self.all().latest = at;
    }

    /// Learns from the reply of a script or, if `by_commands` is true, of the plain commands.
    pub(crate) fn learn(&self, request: &Request, reply: &Reply, at: NodeTime, by_commands: bool) {
        let (resource, keep) = match request {
            _ if !self.enabled => return,
            Request::Acquire { resource, .. } | Request::Release { resource, .. } if resource.is_claim() => {
                return self.learn_claim(resource, reply, at);
            }
            Request::Acquire { resource, keep, .. } => (resource, *keep),
            Request::Share { resource, .. } | Request::Downgrade { resource, .. } => {
                return self.update(resource, |known| known.is_shared = true);
            }
            _ => return,
        };
        self.all().latest = at;
        match reply {
            Reply::Held { owner, .. } if owner.as_str() == Owner::READERS => {
                self.update(resource, |known| known.is_shared = true);
            }
            // The node may have lost the counters.
            Reply::Refused(Refusal::Marker(_)) | Reply::MayHold(Refusal::Marker(_)) => {
                self.all().known.clear();
            }
            Reply::Granted { counter, .. } if !by_commands => {
                let known_for = KNOWN_FOR.min(keep / 2);
                self.update(resource, |known| (known.count, known.until) = (counter.get(), at + known_for));
            }
            Reply::Granted { .. } => {}
            // The next attempts also need what only a script reports, or serves.
            _ if by_commands => self.update(resource, |known| {
                (known.until, known.contended_until) = (NodeTime::default(), at + CONTENDED_FOR);
            }),
            Reply::Held { .. } => self.update(resource, |known| known.contended_until = at + CONTENDED_FOR),
            _ => {}
        }
    }

    fn learn_claim(&self, resource: &Resource, reply: &Reply, at: NodeTime) {
        let mut all = self.all();
        all.latest = at;
        if reply.other_marker().is_some() {
            all.known.clear();
        }
        match reply {
            // The count outlives the lease, so that a later token is larger. What commands may have set is in the way of others.
            Reply::Refused(Refusal::NotNew) | Reply::MayHold(_) | Reply::Released(true) => {
                if all.used_claims[0].len() >= KNOWN_MAX {
                    all.used_claims.swap(0, 1);
                    all.used_claims[0].clear();
                }
                all.used_claims[0].insert(hash_of(resource));
            }
            Reply::Granted { .. } | Reply::Done(_) if all.is_used(resource) => {
                let hash = hash_of(resource);
                all.used_claims.iter_mut().for_each(|used| _ = used.remove(&hash));
            }
            _ => {}
        }
    }

    fn update(&self, resource: &Resource, change: impl FnOnce(&mut Known)) {
        let (known, hash) = (&mut self.all().known, hash_of(resource));
        if known.len() >= KNOWN_MAX && !known.contains_key(&hash) {
            known.clear();
        }
        change(known.entry(hash).or_default());
    }

    fn all(&self) -> MutexGuard<'_, Locks> {
        self.locks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn hash_of(resource: &Resource) -> u64 {
    let mut hasher = DefaultHasher::new();
    resource.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::FencingToken;

    const KEEP: Duration = Duration::from_secs(40);

    fn at(seconds: u64) -> NodeTime {
        NodeTime::from_micros(seconds * 1_000_000)
    }

    fn acquire(name: &str) -> Request {
        Request::Acquire {
            resource: Resource::lock(name).unwrap(),
            owner: Owner::sign("w", 1, 2),
            ttl: KEEP,
            propose: FencingToken::new(7),
            tolerance: KEEP,
            keep: KEEP,
            ticket: None,
        }
    }

    fn granted() -> Reply {
        Reply::Granted { counter: FencingToken::new(7), begun: None }
    }

    fn held() -> Reply {
        Reply::Held { owner: Owner::sign("w", 3, 4), remaining: None }
    }

    #[test]
    fn a_lock_is_known_after_a_grant_by_a_script_for_half_of_its_retention() {
        let (known, lock) = (PlainAcquires::new(true), acquire("a"));
        assert_eq!(known.floor(&lock, at(100)), None);
        known.learn(&acquire("a"), &granted(), at(100), false);
        assert_eq!(known.floor(&lock, at(100)), Some(7));
        known.learn(&acquire("a"), &granted(), at(119), true);
        assert_eq!([119, 120].map(|seconds| known.floor(&lock, at(seconds))), [Some(7), None]);
        known.learn(&acquire("a"), &Reply::MayHold(Refusal::Marker(None)), at(100), true);
        assert_eq!(known.floor(&lock, at(101)), None, "the node may have lost the counter");
        let disabled = PlainAcquires::new(false);
        disabled.learn(&acquire("a"), &granted(), at(100), false);
        assert_eq!(disabled.floor(&lock, at(100)), None);
    }

    #[test]
    fn a_refused_lock_is_acquired_by_scripts_until_a_grant_and_for_a_second() {
        let lock = acquire("a");
        for refusal in [held(), Reply::MayHold(Refusal::Queued), Reply::MayHold(Refusal::Stale)] {
            let known = PlainAcquires::new(true);
            known.learn(&acquire("a"), &granted(), at(100), false);
            assert_eq!(known.floor(&lock, at(110)), Some(7));
            known.learn(&acquire("a"), &refusal, at(110), true);
            known.learn(&acquire("b"), &granted(), at(115), false);
            assert_eq!(known.floor(&lock, at(116)), None, "only a script may have what is missing");
            known.learn(&acquire("a"), &granted(), at(115), false);
            assert_eq!(known.floor(&lock, at(116)), Some(7));
            known.learn(&acquire("a"), &held(), at(116), false);
            known.learn(&acquire("a"), &granted(), at(116), false);
            assert_eq!(known.floor(&lock, at(119)), None, "within a second");
            known.learn(&acquire("b"), &granted(), at(117), false);
            assert_eq!(known.floor(&lock, at(119)), Some(7));
        }
    }

    #[test]
    fn scripts_serve_a_lock_that_has_readers() {
        let lock = Resource::lock("a").unwrap();
        let share =
            Request::Share { resource: lock.clone(), owner: Owner::sign("w", 1, 2), ttl: KEEP, ticket: None };
        let readers = Reply::Held { owner: Owner::from_node(Owner::READERS), remaining: None };
        for (request, reply) in [(share, Reply::Shared), (acquire("a"), readers)] {
            let known = PlainAcquires::new(true);
            known.learn(&request, &reply, at(100), false);
            known.learn(&acquire("a"), &granted(), at(102), false);
            assert_eq!(known.floor(&acquire("a"), at(104)), None, "{request:?}");
        }
    }

    #[test]
    fn the_number_of_known_locks_is_bounded() {
        let known = PlainAcquires::new(true);
        for number in 0..=KNOWN_MAX {
            known.learn(&acquire(&number.to_string()), &granted(), at(100), false);
            assert!(known.all().known.len() <= KNOWN_MAX);
        }
        let last = acquire(&KNOWN_MAX.to_string());
        assert_eq!(known.floor(&last, at(100)), Some(7));
    }

    /// Regression guard: once the set of used claims was full, the claims whose nodes were just asked again were forgotten.
    #[test]
    fn a_claim_that_is_not_new_is_remembered_though_many_follow() {
        let known = PlainAcquires::new(true);
        let of = |number: usize| match acquire("a") {
            Request::Acquire { owner, ttl, propose, tolerance, keep, ticket, .. } => {
                let resource = Resource::claim("s", &number.to_string()).unwrap();
                Request::Acquire { resource, owner, ttl, propose, tolerance, keep, ticket }
            }
            other => other,
        };
        known.saw(at(30));
        let may = |number| known.floor(&of(number), at(30)).is_some();
        for number in 0..5 * KNOWN_MAX {
            assert!(may(number));
            known.learn(&of(number), &Reply::Refused(Refusal::NotNew), at(30), true);
            assert!(!may(number) && !may(number.saturating_sub(KNOWN_MAX - 1)), "{number}");
        }
        let all: usize = known.all().used_claims.iter().map(BTreeSet::len).sum();
        assert!(all <= 2 * KNOWN_MAX);
        known.learn(&of(5 * KNOWN_MAX - 1), &granted(), at(30), false);
        assert!(
            may(5 * KNOWN_MAX - 1),
            "what is granted and done is new for the next attempt, or is found done"
        );
    }
}
