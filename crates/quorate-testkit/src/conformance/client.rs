use quorate::{
    env::{BootTime, Env},
    node::{
        AttemptCount, Batch, BatchReply, Cause, Cursor, DoneRecord, FencingToken, Hello, LedgerPage,
        LedgerState, Node, NodeTime, Owner, PushSender, Record, Reply, Request, Resource, Session,
    },
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// A TTL that is longer than any case takes.
pub(super) const LONG: Duration = Duration::from_secs(60);

/// The longest time that a case waits for a reply or a state that it expects.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// The marker that [`TestClient::marked`] stores on its node.
pub(super) const STAMP: &str = "{\"run\":\"conformance\"}";

/// An open session with a node, and helpers that send requests on it.
pub(super) struct TestClient<N: Node> {
    pub(super) node: N,
    pub(super) session: N::Session,
    pub(super) hello: Hello,
    pub(super) env: Env,
    pub(super) stamp: Arc<str>,
    pub(super) not_after: NodeTime,
}

impl<N: Node> TestClient<N> {
    /// Opens a session with a node that has no marker, and sets the node's marker to [`STAMP`].
    pub(super) async fn marked(node: N) -> Self {
        let mut client = Self::bare(node).await;
        let marked = client.ask(mark(None, STAMP)).await;
        assert_eq!(marked, Reply::Marked);
        client
    }

    /// Opens a session with a node, and leaves the node's marker as it is.
    pub(super) async fn bare(node: N) -> Self {
        let (session, hello) = expect(node.open(PushSender::channel().0).await);
        let env = Env::system();
        Self { node, session, hello, env, stamp: STAMP.into(), not_after: NodeTime::from_micros(u64::MAX) }
    }

    /// Opens another session with the same node.
    pub(super) async fn reopen(&mut self) {
        let (session, hello) = expect(self.node.open(PushSender::channel().0).await);
        (self.session, self.hello) = (session, hello);
    }

    pub(super) fn batch(&self, requests: Vec<Request>) -> Batch {
        Batch { requests, not_after: self.not_after, stamp: Arc::clone(&self.stamp) }
    }

    pub(super) async fn ask_all(&mut self, requests: Vec<Request>) -> BatchReply {
        let (asked, batch) = (requests.len(), self.batch(requests));
        let give_up = self.env.now() + PATIENCE;
        let answer = self.env.before(give_up, self.session.send(batch)).await;
        let reply = expect(answer.unwrap_or(Err(Cause::TimedOut)));
        assert_eq!(reply.replies.len(), asked, "one reply a request");
        reply
    }

    pub(super) async fn ask(&mut self, request: Request) -> Reply {
        let mut reply = self.ask_all(vec![request]).await;
        reply.replies.remove(0)
    }

    pub(super) async fn inspect(&mut self, resource: &Resource) -> ResourceState {
        match self.ask(Request::Inspect { resource: resource.clone() }).await {
            Reply::State { holder, counter, done, begun } => {
                ResourceState { holder, counter: counter.map(FencingToken::get), done, begun }
            }
            other => unexpected(&other),
        }
    }

    pub(super) async fn read(&mut self, group: &str) -> LedgerState {
        let (mut page, mut records) = (self.page(group, None).await, BTreeMap::new());
        loop {
            records.extend(page.state.records);
            let Some(next) = page.next else {
                return LedgerState { records: records.into_iter().collect(), ..page.state };
            };
            page = self.page(group, Some(next)).await;
        }
    }

    /// Reads a page of the ledger.
    pub(super) async fn page(&mut self, group: &str, after: Option<Cursor>) -> LedgerPage {
        match self.ask(Request::Read { ledger: group.into(), after, key: None }).await {
            Reply::Ledger(page) => page,
            other => unexpected(&other),
        }
    }

    /// Inspects `resource` until `wanted` returns `true` for its state. Returns this state.
    pub(super) async fn wait_until(
        &mut self,
        resource: &Resource,
        wanted: impl Fn(&ResourceState) -> bool,
    ) -> ResourceState {
        let give_up = self.env.now() + PATIENCE;
        loop {
            let seen = self.inspect(resource).await;
            if wanted(&seen) {
                return seen;
            }
            assert!(self.env.now() < give_up, "still {seen:?}");
            self.env.sleep(Duration::from_millis(2)).await;
        }
    }

    /// Waits a moment between two checks of a condition.
    pub(super) async fn pause(&self) {
        self.env.sleep(Duration::from_millis(2)).await;
    }

    pub(super) fn now(&self) -> BootTime {
        self.env.now()
    }

    /// Returns the node's wall clock. Every kind of node in this suite uses the clock of this machine.
    pub(super) fn wall(&self) -> NodeTime {
        self.env.wall()
    }

    /// Returns a request to acquire the resource for `ttl`. If the resource has no fencing counter yet, the
    /// node starts the counter at the time that the request proposes. The proposed time is the present, so that
    /// the node accepts it.
    pub(super) fn acquire(&self, resource: &Resource, owner: &Owner, ttl: Duration) -> Request {
        self.acquire_from(resource, owner, ttl, self.wall().as_micros())
    }

    pub(super) fn acquire_from(
        &self,
        resource: &Resource,
        owner: &Owner,
        ttl: Duration,
        propose: u64,
    ) -> Request {
        Request::Acquire {
            resource: resource.clone(),
            owner: owner.clone(),
            ttl,
            propose: FencingToken::new(propose),
            tolerance: Duration::from_secs(5),
            keep: LONG,
            ticket: None,
        }
    }

    /// Returns a request for a place in the queue. According to the request, the waiter has waited for the
    /// time `ago`.
    pub(super) fn queue(
        &self,
        resource: &Resource,
        ticket: &Owner,
        ago: Duration,
        ttl: Duration,
        exclusive: bool,
    ) -> Request {
        let (at, now) = ((self.wall() - ago).as_micros(), self.wall().as_micros());
        let tolerance = Duration::from_secs(5);
        Request::Queue {
            resource: resource.clone(),
            ticket: ticket.clone(),
            at,
            now,
            tolerance,
            ttl,
            exclusive,
        }
    }

    /// Acquires the resource, and returns the counter of the grant.
    pub(super) async fn must_acquire(&mut self, resource: &Resource, owner: &Owner, ttl: Duration) -> u64 {
        match self.ask(self.acquire(resource, owner, ttl)).await {
            Reply::Granted { counter, .. } => counter.get(),
            other => unexpected(&other),
        }
    }
}

/// The state of a resource, as the reply to [`Request::Inspect`] reports it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ResourceState {
    pub(super) holder: Option<(Owner, Option<Duration>)>,
    pub(super) counter: Option<u64>,
    pub(super) done: Option<DoneRecord>,
    pub(super) begun: Option<AttemptCount>,
}

impl ResourceState {
    pub(super) fn held_by(&self, owner: &Owner) -> bool {
        self.holder.as_ref().is_some_and(|(holder, _)| holder == owner)
    }

    pub(super) fn is_free(&self) -> bool {
        self.holder.is_none()
    }

    pub(super) fn remaining(&self) -> Duration {
        self.holder.as_ref().and_then(|(_, remaining)| *remaining).unwrap_or_default()
    }
}

pub(super) fn mark(expect: Option<&str>, marker: &str) -> Request {
    Request::Mark { expect: expect.map(Into::into), marker: marker.into() }
}

pub(super) fn lock(name: &str) -> Resource {
    expect(Resource::lock(name))
}

pub(super) fn claim(id: &str) -> Resource {
    expect(Resource::claim("orders", id))
}

pub(super) fn owner(number: u64) -> Owner {
    Owner::sign("worker", number, 7)
}

pub(super) fn token(number: u64) -> FencingToken {
    FencingToken::new(number)
}

pub(super) fn record(at: u64, term: u64, last: bool, value: &str) -> Record {
    Record { at, term: token(term), last, value: value.into() }
}

pub(super) fn extend(resource: &Resource, owner: &Owner, ttl: Duration, to: u64) -> Request {
    Request::Extend { resource: resource.clone(), owner: owner.clone(), ttl, token: token(to), keep: LONG }
}

pub(super) fn raise(resource: &Resource, owner: &Owner, to: u64) -> Request {
    Request::Raise { resource: resource.clone(), owner: owner.clone(), to: token(to), keep: LONG }
}

pub(super) fn release(resource: &Resource, owner: &Owner) -> Request {
    Request::Release { resource: resource.clone(), owner: owner.clone() }
}

pub(super) fn reserve(resource: &Resource, owner: &Owner, successor: &Owner, ttl: Duration) -> Request {
    Request::Reserve { resource: resource.clone(), owner: owner.clone(), successor: successor.clone(), ttl }
}

pub(super) fn share(resource: &Resource, reader: &Owner, ttl: Duration) -> Request {
    Request::Share { resource: resource.clone(), owner: reader.clone(), ttl, ticket: None }
}

pub(super) fn extend_share(resource: &Resource, reader: &Owner, ttl: Duration) -> Request {
    Request::ExtendShare { resource: resource.clone(), owner: reader.clone(), ttl }
}

pub(super) fn release_share(resource: &Resource, reader: &Owner) -> Request {
    Request::ReleaseShare { resource: resource.clone(), owner: reader.clone() }
}

pub(super) fn downgrade(
    resource: &Resource,
    owner: &Owner,
    by: u64,
    reader: &Owner,
    ttl: Duration,
) -> Request {
    let (resource, owner, reader) = (resource.clone(), owner.clone(), reader.clone());
    Request::Downgrade { resource, owner, token: token(by), reader, ttl }
}

pub(super) fn leave_queue(resource: &Resource, ticket: &Owner) -> Request {
    Request::LeaveQueue { resource: resource.clone(), ticket: ticket.clone() }
}

/// Returns the given acquire or share request, as the waiter with the ticket `place` in the queue sends it.
pub(super) fn from_place(mut request: Request, place: &Owner) -> Request {
    if let Request::Acquire { ticket, .. } | Request::Share { ticket, .. } = &mut request {
        *ticket = Some(place.clone());
    }
    request
}

pub(super) fn complete(resource: &Resource, owner: &Owner, by: u64, result: &str) -> Request {
    Request::Complete {
        resource: resource.clone(),
        owner: owner.clone(),
        record: done(by, result),
        retention: LONG,
    }
}

pub(super) fn done(by: u64, result: &str) -> DoneRecord {
    DoneRecord { token: token(by), at: 1_700_000_000_000_000, result: result.into(), ..DoneRecord::default() }
}

pub(super) fn count(resource: &Resource, owner: &Owner, attempts: u32, payload: Option<&str>) -> Request {
    Request::Count {
        resource: resource.clone(),
        owner: owner.clone(),
        attempts,
        payload: payload.map(Into::into),
        withdraw: false,
        keep: LONG,
    }
}

pub(super) fn count_back(resource: &Resource, owner: &Owner, attempts: u32) -> Request {
    let mut request = count(resource, owner, attempts, None);
    if let Request::Count { withdraw, .. } = &mut request {
        *withdraw = true;
    }
    request
}

pub(super) fn reset_attempts(resource: &Resource) -> Request {
    Request::ResetAttempts { resource: resource.clone(), keep: LONG }
}

pub(super) fn begun(attempts: u32, payload: Option<&str>) -> AttemptCount {
    AttemptCount { attempts, payload: payload.map(Into::into) }
}

pub(super) fn write(group: &str, key: &str, seen: Option<&Record>, record: &Record) -> Request {
    Request::Write { ledger: group.into(), key: key.into(), seen: seen.cloned(), record: record.clone() }
}

pub(super) fn prune(group: &str, below: u64) -> Request {
    Request::Prune { ledger: group.into(), below, after: None }
}

#[track_caller]
pub(super) fn expect<T, E: std::fmt::Debug>(result: Result<T, E>) -> T {
    #[expect(clippy::panic, reason = "the case has failed")]
    result.unwrap_or_else(|error| panic!("{error:?}"))
}

#[track_caller]
pub(super) fn unexpected(reply: &Reply) -> ! {
    #[expect(clippy::panic, reason = "the case has failed")]
    {
        panic!("unexpected reply: {reply:?}")
    }
}
