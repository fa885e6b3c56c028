use quorate::node::{
    Batch, BatchReply, FencingToken, MemoryStore, NodeTime, Owner, Refusal, ReleasedLease, Reply, Request,
    Resource,
    engine::{self, ClaimRecord, Clocks, CounterRow, LeaseRow, Store as _},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// Of this many acquires that plain commands may serve, a script serves one.
const SCRIPT_OF: u64 = 8;

/// Serves acquires of locks and claims as plain commands do on a Redis server, in place of the engine. The module `redis` sends
/// most acquires in this way; its `transaction` module has the rules.
///
/// The simulation differs from the module `redis`: what a session knows, all sessions of a server know at once, and an acquire
/// need not wait for a second after a refusal.
#[derive(Debug, Default)]
pub(super) struct PlainCommands(Mutex<Session>);

#[derive(Debug, Default)]
struct Session {
    /// The marker of the last batch. Another one belongs to a new session, which knows no lock.
    stamp: Arc<str>,
    /// The server's time at the last batch.
    latest: NodeTime,
    known: BTreeMap<Resource, Known>,
    /// The claims that are not new. Scripts serve them.
    used_claims: BTreeSet<Resource>,
}

#[derive(Clone, Copy, Debug)]
enum Known {
    /// A script has granted the lock with this count, and no acquire by commands has failed since.
    Granted(FencingToken),
    /// The lock has readers at times. Scripts serve it.
    Shared,
}

impl PlainCommands {
    /// Runs a batch, and adds the leases that it released to `freed`.
    pub(super) fn run(
        &self,
        store: &mut MemoryStore,
        batch: &Batch,
        clocks: Clocks,
        freed: &mut Vec<ReleasedLease>,
    ) -> BatchReply {
        let mut session = self.session();
        if session.stamp != batch.stamp {
            *session = Session { stamp: Arc::clone(&batch.stamp), ..Session::default() };
        }
        drop(session);
        let by_commands = |request: &Request| self.last_count(request, batch.not_after);
        if !batch.requests.iter().any(|request| by_commands(request).is_some()) {
            let reply = engine::run_telling(store, batch, clocks, freed);
            batch.requests.iter().zip(&reply.replies).for_each(|(request, reply)| self.learn(request, reply));
            self.session().latest = clocks.wall;
            return reply;
        }
        let mut serve = |request: &Request| {
            if let Some(last) = by_commands(request) {
                let reply = self.acquire(store, batch, request, last, clocks);
                if matches!(request, Request::Acquire { resource, .. } if resource.is_claim()) {
                    self.learn(request, &reply);
                }
                return reply;
            }
            let alone = Batch {
                requests: vec![request.clone()],
                not_after: batch.not_after,
                stamp: batch.stamp.clone(),
            };
            let reply = engine::run_telling(store, &alone, clocks, freed).replies.remove(0);
            self.learn(request, &reply);
            reply
        };
        let replies = batch.requests.iter().map(&mut serve).collect();
        self.session().latest = clocks.wall;
        BatchReply { node_time: clocks.wall, replies }
    }

    /// Returns the count of the last grant by a script, if commands serve this request. For a claim, it is zero.
    fn last_count(&self, request: &Request, not_after: NodeTime) -> Option<FencingToken> {
        let Request::Acquire { resource, owner, propose, tolerance, ticket: None, .. } = request else {
            return None;
        };
        let session = self.session();
        // The worker must see before it sends the request that the clocks are not too far apart: the count stays.
        let proposed = NodeTime::from_micros(propose.get());
        let is_near = |time: NodeTime| proposed.distance(time) <= *tolerance;
        let may_claim = session.latest <= not_after && is_near(session.latest) && is_near(not_after);
        let count = match session.known.get(resource) {
            None if resource.is_claim() && may_claim && !session.used_claims.contains(resource) => {
                FencingToken::new(0)
            }
            Some(Known::Granted(count)) => *count,
            _ => return None,
        };
        let mut hasher = DefaultHasher::new();
        owner.as_str().hash(&mut hasher);
        (!hasher.finish().is_multiple_of(SCRIPT_OF)).then_some(count)
    }

    fn learn(&self, request: &Request, reply: &Reply) {
        match (request, reply) {
            (Request::Acquire { resource, .. }, Reply::Granted { counter, .. }) if !resource.is_claim() => {
                let mut session = self.session();
                let known = session.known.entry(resource.clone()).or_insert(Known::Granted(*counter));
                if let Known::Granted(count) = known {
                    *count = *counter;
                }
            }
            (Request::Share { resource, .. } | Request::Downgrade { resource, .. }, _) => {
                self.session().known.insert(resource.clone(), Known::Shared);
            }
            (_, Reply::Refused(Refusal::Marker(_))) => self.session().known.clear(),
            (Request::Acquire { resource, .. }, Reply::Refused(Refusal::NotNew) | Reply::MayHold(_))
            | (Request::Release { resource, .. }, Reply::Released(true))
                if resource.is_claim() =>
            {
                self.session().used_claims.insert(resource.clone());
            }
            (Request::Acquire { resource, .. }, Reply::Granted { .. } | Reply::Done(_)) => {
                self.session().used_claims.remove(resource);
            }
            _ => {}
        }
    }

    /// Carries out `SET … NX GET PXAT` and `INCRBY`, and then judges the grant.
    fn acquire(
        &self,
        store: &mut MemoryStore,
        batch: &Batch,
        request: &Request,
        last: FencingToken,
        clocks: Clocks,
    ) -> Reply {
        let Request::Acquire { resource, owner, ttl, .. } = request else { unreachable!("an acquire") };
        if resource.is_claim() {
            return self.claim(store, batch, request, clocks);
        }
        let Ok(before) = store.lease(resource);
        let holder = before.filter(|row| row.until_nanos > clocks.lease_nanos);
        if holder.is_none() {
            set_owner(store, resource, owner, batch.not_after + *ttl);
        }
        let count = increment(store, resource, clocks);
        let Ok(queue) = store.queue(resource);
        let against = against(store, batch, clocks);
        let is_queued = queue.is_some_and(|row| row.until_nanos > clocks.lease_nanos);
        let reply = match (against, holder) {
            (Some(why), _) => Reply::MayHold(why),
            (None, Some(row)) => Reply::Held { owner: Owner::from_node(&row.owner), remaining: None },
            (None, None) if is_queued => Reply::MayHold(Refusal::Queued),
            (None, None) if count <= last => Reply::MayHold(Refusal::Failed("the counter was lost".into())),
            (None, None) => return Reply::Granted { counter: count, begun: None },
        };
        let mut session = self.session();
        session.known.remove(resource);
        if matches!(reply, Reply::MayHold(Refusal::Marker(_))) {
            session.known.clear();
        }
        reply
    }

    /// Carries out `SET … NX GET PXAT` of the record of a claim, and then judges the grant.
    fn claim(&self, store: &mut MemoryStore, batch: &Batch, request: &Request, clocks: Clocks) -> Reply {
        let Request::Acquire { resource, owner, ttl, propose, tolerance, keep, .. } = request else {
            unreachable!("an acquire")
        };
        let micros = clocks.wall.as_micros();
        let Ok(lease) = store.lease(resource);
        let Ok(counter) = store.counter(resource);
        let Ok(record) = store.claim(resource);
        let holder = lease.filter(|row| row.until_nanos > clocks.lease_nanos);
        let record = record.filter(|row| row.until_micros > micros);
        let is_new =
            holder.is_none() && record.is_none() && counter.is_none_or(|row| row.until_micros <= micros);
        let count = FencingToken::new(propose.get() + 1);
        if is_new {
            set_owner(store, resource, owner, batch.not_after + *ttl);
            let until_micros = (batch.not_after + *keep).as_micros();
            let Ok(()) = store.set_counter(resource, CounterRow { count, until_micros });
        }
        let apart = clocks.wall.distance(NodeTime::from_micros(propose.get()));
        match (against(store, batch, clocks), record.map(|row| row.record), holder) {
            (Some(why), _, _) => {
                if matches!(why, Refusal::Marker(_)) {
                    self.session().known.clear();
                }
                Reply::MayHold(why)
            }
            (None, Some(ClaimRecord::Done(done)), _) => Reply::Done(done),
            (None, _, Some(row)) => {
                let left = Duration::from_nanos(row.until_nanos - clocks.lease_nanos);
                Reply::Held { owner: Owner::from_node(&row.owner), remaining: Some(left) }
            }
            (None, _, None) if !is_new => Reply::Refused(Refusal::NotNew),
            (None, _, None) if apart > *tolerance => Reply::MayHold(Refusal::Clock { apart }),
            (None, _, None) => Reply::Granted { counter: count, begun: None },
        }
    }

    fn session(&self) -> MutexGuard<'_, Session> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the reason against all grants of a batch, which is known once its commands have run.
fn against(store: &MemoryStore, batch: &Batch, clocks: Clocks) -> Option<Refusal> {
    let Ok(marker) = store.marker();
    if clocks.wall > batch.not_after {
        Some(Refusal::Stale)
    } else if marker.as_deref() != Some(&*batch.stamp) {
        Some(Refusal::Marker(marker))
    } else {
        None
    }
}

/// Sets the key until this time of the node's clock. A key whose time has passed is not stored.
fn set_owner(store: &mut MemoryStore, resource: &Resource, owner: &Owner, until: NodeTime) {
    let until_nanos = until.as_micros().saturating_mul(1_000);
    let row = LeaseRow { owner: owner.as_str().into(), until_nanos, readers: Vec::new() };
    let Ok(()) = store.set_lease(resource, Some(row));
}

/// Increments the counter, also for an acquire that is refused. A counter that is missing starts at one and has no end: for
/// the engine, as for the scripts, it is still missing.
fn increment(store: &mut MemoryStore, resource: &Resource, clocks: Clocks) -> FencingToken {
    let Ok(row) = store.counter(resource);
    let is_there = |row: &CounterRow| row.until_micros == 0 || row.until_micros > clocks.wall.as_micros();
    let row = row.filter(is_there).unwrap_or(CounterRow { count: FencingToken::new(0), until_micros: 0 });
    let count = FencingToken::new(row.count.get() + 1);
    let Ok(()) = store.set_counter(resource, CounterRow { count, ..row });
    count
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const TTL: Duration = Duration::from_secs(3);

    fn clocks(ms: u64) -> Clocks {
        Clocks { wall: NodeTime::from_micros(ms * 1_000), lease_nanos: ms * 1_000_000 }
    }

    /// A server with the marker `m`, and the time in milliseconds until which batches are valid.
    struct Bench(PlainCommands, MemoryStore);

    impl Bench {
        fn new() -> Self {
            let mut store = MemoryStore::default();
            let Ok(()) = store.set_marker("m".into());
            Self(PlainCommands::default(), store)
        }

        fn ask(&mut self, at: u64, request: Request) -> Reply {
            let not_after = NodeTime::from_micros(10_000_000);
            let batch = Batch { requests: vec![request], not_after, stamp: "m".into() };
            self.0.run(&mut self.1, &batch, clocks(at), &mut Vec::new()).replies.remove(0)
        }

        fn acquire(&mut self, at: u64, owner: &Owner) -> Reply {
            self.ask(
                at,
                Request::Acquire {
                    resource: lock(),
                    owner: owner.clone(),
                    ttl: TTL,
                    propose: FencingToken::new(1_000_000),
                    tolerance: TTL,
                    keep: TTL * 10,
                    ticket: None,
                },
            )
        }

        /// Lets a script grant and release the lock, after which commands may serve it.
        fn known() -> Self {
            let mut bench = Self::new();
            let owner = owner(0);
            assert!(matches!(bench.acquire(1_000, &owner), Reply::Granted { .. }));
            bench.release(&owner);
            bench
        }

        fn release(&mut self, owner: &Owner) {
            let released = self.ask(1_000, Request::Release { resource: lock(), owner: owner.clone() });
            assert_eq!(released, Reply::Released(true));
        }

        fn count(&self) -> (u64, u64) {
            let Ok(row) = self.1.counter(&lock());
            row.map(|row| (row.count.get(), row.until_micros)).unwrap()
        }
    }

    fn lock() -> Resource {
        Resource::lock("x").unwrap()
    }

    fn owner(number: u64) -> Owner {
        Owner::sign("w", 1, number)
    }

    /// Returns an owner whose acquire of a known lock the commands serve.
    fn served_by_commands(bench: &Bench) -> Owner {
        let request = |owner: &Owner| Request::Acquire {
            resource: lock(),
            owner: owner.clone(),
            ttl: TTL,
            propose: FencingToken::new(0),
            tolerance: TTL,
            keep: TTL,
            ticket: None,
        };
        (1..100)
            .map(owner)
            .find(|owner| bench.0.last_count(&request(owner), NodeTime::default()).is_some())
            .unwrap()
    }

    #[test]
    fn a_grant_ends_one_ttl_after_the_deadline_and_counts_once() {
        let mut bench = Bench::known();
        let (before, until) = bench.count();
        let owner = served_by_commands(&bench);
        let counter = FencingToken::new(before + 1);
        assert_eq!(bench.acquire(2_000, &owner), Reply::Granted { counter, begun: None });
        assert_eq!(bench.count(), (before + 1, until), "the retention is that of the script's grant");
        let Ok(Some(row)) = bench.1.lease(&lock()) else { panic!("no lease") };
        assert_eq!(row.until_nanos, 13_000_000_000);
    }

    #[test]
    fn a_new_claim_is_set_until_one_ttl_after_the_deadline_and_another_is_not_acquired() {
        let claim = Resource::claim("s", "m").unwrap();
        let of = |owner: &Owner, propose| Request::Acquire {
            resource: claim.clone(),
            owner: owner.clone(),
            ttl: TTL,
            propose: FencingToken::new(propose),
            tolerance: TTL * 3,
            keep: TTL * 10,
            ticket: None,
        };
        let (mut bench, deadline) = (Bench::new(), NodeTime::from_micros(10_000_000));
        let by_commands = |owner: &Owner| bench.0.last_count(&of(owner, 1_000_000), deadline).is_some();
        let owners: Vec<Owner> = (0..100).map(owner).filter(by_commands).collect();
        assert!(
            bench.0.last_count(&of(&owners[0], 999_999), deadline).is_none(),
            "the clocks may be too far apart"
        );
        let mut owners = owners.into_iter();
        let (first, second) = (owners.next().unwrap(), owners.next().unwrap());
        let counter = FencingToken::new(1_000_001);
        assert_eq!(bench.ask(1_000, of(&first, 1_000_000)), Reply::Granted { counter, begun: None });
        let Ok(Some(row)) = bench.1.lease(&claim) else { panic!("no lease") };
        let Ok(Some(count)) = bench.1.counter(&claim) else { panic!("no count") };
        assert_eq!((row.until_nanos, count.until_micros), (13_000_000_000, 40_000_000), "10 s and the times");
        let held = bench.ask(2_000, of(&second, 2_000_000));
        assert!(matches!(held, Reply::Held { owner, remaining: Some(_) } if owner == first));
        let released = Request::Release { resource: claim.clone(), owner: first.clone() };
        assert_eq!(bench.ask(2_000, released), Reply::Released(true));
        // A session that has not released it is refused, and a script serves it then.
        bench.0 = PlainCommands::default();
        assert_eq!(bench.ask(3_000, of(&second, 3_000_000)), Reply::Refused(Refusal::NotNew));
        let counter = FencingToken::new(1_000_002);
        assert_eq!(bench.ask(3_000, of(&second, 3_000_000)), Reply::Granted { counter, begun: None });

        let (mut far, apart) = (Bench::new(), Duration::from_micros(9_000_001));
        far.ask(9_000, Request::Inspect { resource: claim.clone() });
        assert_eq!(
            far.ask(1, of(&first, 9_001_001)),
            Reply::MayHold(Refusal::Clock { apart }),
            "the server's clock stepped"
        );
        assert!(far.1.lease(&claim).is_ok_and(|row| row.is_some()), "it may be held");
    }

    #[test]
    fn a_loser_counts_and_is_served_by_a_script_afterwards() {
        let mut bench = Bench::known();
        let (before, _) = bench.count();
        let first = served_by_commands(&bench);
        bench.acquire(2_000, &first);
        assert_eq!(
            bench.acquire(2_000, &served_by_commands(&bench)),
            Reply::Held { owner: first, remaining: None }
        );
        assert_eq!(bench.count().0, before + 2);
        assert!(matches!(bench.acquire(2_000, &owner(7)), Reply::Held { remaining: Some(_), .. }));
        assert_eq!(bench.count().0, before + 2, "a script counts no loser");
    }

    #[test]
    fn what_is_set_in_vain_may_hold() {
        let mut late = Bench::known();
        let owner = served_by_commands(&late);
        assert_eq!(late.acquire(10_001, &owner), Reply::MayHold(Refusal::Stale));

        let mut forgot = Bench::known();
        forgot.1 = MemoryStore::default();
        assert_eq!(forgot.acquire(2_000, &owner), Reply::MayHold(Refusal::Marker(None)));
        assert_eq!(forgot.count(), (1, 0), "a counter without an end");

        let mut lost = Bench::known();
        let Ok(()) =
            lost.1.set_counter(&lock(), CounterRow { count: FencingToken::new(4), until_micros: u64::MAX });
        assert!(matches!(lost.acquire(2_000, &owner), Reply::MayHold(Refusal::Failed(_))));
    }

    #[test]
    fn a_script_treats_a_counter_without_an_end_as_missing() {
        let mut bench = Bench::known();
        let Ok(()) =
            bench.1.set_counter(&lock(), CounterRow { count: FencingToken::new(9), until_micros: 0 });
        bench.0 = PlainCommands::default();
        let counter = FencingToken::new(1_000_001);
        assert_eq!(bench.acquire(1_000, &owner(1)), Reply::Granted { counter, begun: None });
    }

    #[test]
    fn scripts_serve_a_lock_that_has_readers() {
        let mut bench = Bench::known();
        let share = Request::Share { resource: lock(), owner: owner(3), ttl: TTL, ticket: None };
        bench.ask(1_000, share);
        assert!(matches!(bench.0.session().known.get(&lock()), Some(Known::Shared)));
        let before = bench.count();
        assert!(matches!(bench.acquire(1_000, &owner(1)), Reply::Held { remaining: Some(_), .. }));
        assert_eq!(bench.count(), before);
    }

    #[test]
    fn a_session_with_another_marker_knows_no_lock() {
        let mut bench = Bench::known();
        let owner = served_by_commands(&bench);
        let Ok(()) = bench.1.set_marker("another".into());
        let not_after = NodeTime::from_micros(10_000_000);
        let look = Request::Inspect { resource: lock() };
        let batch = Batch { requests: vec![look], not_after, stamp: "another".into() };
        bench.0.run(&mut bench.1, &batch, clocks(1_000), &mut Vec::new());
        assert!(bench.0.session().known.is_empty());
        assert!(matches!(bench.acquire(2_000, &owner), Reply::Refused(Refusal::Marker(_))), "by a script");
    }
}
