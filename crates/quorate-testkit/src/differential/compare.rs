use super::resolve::KnownState;
use super::{Ask, DynTarget, Late, Stamp, Step, replies_alike, values};
use quorate::{
    env::Env,
    node::{Batch, BatchReply, Cause, Hello, NodeTime, Refusal, Reply, Request},
};
use std::{fmt, sync::Arc, time::Duration};

/// The wait after a request with a brief lifetime ([`Ask::is_brief`]). It is longer than the longest brief
/// lifetime, 3 ms, plus a server's rounding.
const BRIEF: Duration = Duration::from_millis(8);

/// The time to a deadline that is so far away that scripts serve the batch: plain commands need one within an hour.
const FAR: Duration = Duration::from_secs(7_200);

/// The largest permitted difference between the time in a reply and the node's clock.
const SLACK: Duration = Duration::from_secs(30);

/// The first step at which a node answered differently from the first node of the comparison.
#[derive(Debug)]
pub struct Difference {
    /// The number of the step, from zero.
    pub step: usize,
    /// The request whose replies differ. `None` if the difference concerns the batch, the handshake or the
    /// node's clock.
    pub asked: Option<Request>,
    /// The first node and the node that differs, each with its reply. If a node failed before its reply was
    /// compared, the first entry says what the reply had to be.
    pub said: [(&'static str, String); 2],
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "step {}, asked {:?}", self.step, self.asked)?;
        self.said.iter().try_for_each(|(who, what)| {
            writeln!(f, "  {who} said {}", what.chars().take(2_000).collect::<String>())
        })
    }
}

/// Sends `steps` to every node, and compares each reply with that of the first node. All nodes must be empty,
/// and have no open session.
///
/// # Errors
/// The first [`Difference`].
pub async fn compare(steps: &[Step], targets: &mut [&mut dyn DynTarget]) -> Result<(), Difference> {
    let began =
        targets.iter().map(|target| target.wall()).min().unwrap_or_default() - Duration::from_secs(60);
    let known = KnownState { began, marker: None, counters: Vec::new(), ledgers: Vec::new() };
    let mut table = Table { targets, known, step: 0 };
    table.open().await?;
    table.mark().await?;
    for (number, step) in steps.iter().enumerate() {
        table.step = number;
        table.take(step).await?;
    }
    table.step = steps.len();
    table.look_around().await
}

struct Table<'a, 'b> {
    targets: &'a mut [&'b mut dyn DynTarget],
    known: KnownState,
    step: usize,
}

impl Table<'_, '_> {
    async fn take(&mut self, step: &Step) -> Result<(), Difference> {
        match step {
            Step::Batch(asks, late, stamp) => {
                // A request with a brief lifetime ends its batch. Otherwise a later request of the batch
                // might run before or after the end of that lifetime, depending on the speed of the node. An acquire is
                // alone in its batch, because it may need another attempt.
                let is_acquire = |ask: &Ask| matches!(ask, Ask::Acquire { .. });
                let ends = |ask: &Ask| ask.is_brief() || is_acquire(ask);
                for asks in asks.chunk_by(|ask, next| !ends(ask) && !is_acquire(next)) {
                    self.batch(asks, *late, *stamp).await?;
                }
            }
            Step::Pass(pass) => self.targets.iter_mut().for_each(|target| target.pass(pass.time())),
            Step::Reopen => self.open().await?,
            Step::Restart => {
                self.targets.iter_mut().for_each(|target| target.restart());
                self.open().await?;
            }
            Step::Flush => {
                self.targets.iter_mut().for_each(|target| target.flush());
                self.open().await?;
                self.mark().await?;
            }
        }
        Ok(())
    }

    async fn batch(&mut self, asks: &[Ask], late: Late, stamp: Stamp) -> Result<(), Difference> {
        self.look(asks).await?;
        let requests: Vec<Request> = asks.iter().map(|ask| self.known.request(ask)).collect();
        let stamp = self.known.stamp(stamp).unwrap_or_default();
        // A key of plain commands ends later than that of a script, by the time until the deadline.
        let late = if asks.iter().any(Ask::is_brief) { late } else { late.soon() };
        let replies = self.ask(&requests, late, &stamp).await?;
        for (request, reply) in requests.iter().zip(&replies) {
            if let (Request::Mark { marker, .. }, Reply::Marked) = (request, reply) {
                self.known.marker = Some(Arc::clone(marker));
            }
        }
        if asks.iter().any(Ask::is_brief) {
            Env::system().sleep(BRIEF).await;
        }
        Ok(())
    }

    /// Sends `requests` to all nodes, and returns the first node's reply. Fails if another node replies
    /// differently.
    async fn ask(
        &mut self,
        requests: &[Request],
        late: Late,
        stamp: &Arc<str>,
    ) -> Result<Vec<Reply>, Difference> {
        let mut first: Option<(&'static str, Vec<Reply>)> = None;
        for target in self.targets.iter_mut() {
            let batch = Batch {
                requests: requests.to_vec(),
                not_after: late.time(target.wall()),
                stamp: Arc::clone(stamp),
            };
            let said = finally(&mut **target, batch).await;
            let who = target.name();
            let differs = |asked: Option<&Request>, one: String, two: String| Difference {
                step: self.step,
                asked: asked.cloned(),
                said: [(first.as_ref().map_or("the request", |(who, _)| who), one), (who, two)],
            };
            let said = said.map_err(|cause| {
                differs(None, "must be answered".into(), format!("{cause:?} to {requests:?}"))
            })?;
            if said.node_time.distance(target.wall()) > SLACK {
                let wall = format!("the node's clock shows {:?}", target.wall());
                return Err(differs(None, wall, format!("its time is {:?}", said.node_time)));
            }
            let Some((_, expected)) = &first else {
                first = Some((who, said.replies));
                continue;
            };
            if expected.len() != said.replies.len() {
                return Err(differs(None, format!("{expected:?}"), format!("{:?}", said.replies)));
            }
            for (request, (one, two)) in requests.iter().zip(expected.iter().zip(&said.replies)) {
                if !replies_alike(one, two) {
                    return Err(differs(Some(request), format!("{one:?}"), format!("{two:?}")));
                }
            }
        }
        Ok(first.map(|(_, replies)| replies).unwrap_or_default())
    }

    /// Reads from the first node the state that is needed to compute the values in `asks`.
    async fn look(&mut self, asks: &[Ask]) -> Result<(), Difference> {
        let (named, looks): (Vec<u8>, Vec<Request>) = KnownState::looks(asks).into_iter().unzip();
        self.known.counters.clear();
        self.known.ledgers.clear();
        let Some(target) = self.targets.first_mut() else { return Ok(()) };
        let batch = Batch { requests: looks, not_after: NodeTime::default(), stamp: "".into() };
        let said = target.ask(batch).await.map_err(|cause| Difference {
            step: self.step,
            asked: None,
            said: [("a look", "must be answered".into()), (target.name(), format!("{cause:?}"))],
        })?;
        for (number, reply) in named.into_iter().zip(said.replies) {
            match reply {
                Reply::State { counter: Some(counter), .. } => self.known.counters.push((number, counter)),
                Reply::Ledger(page) => self.known.ledgers.push((number, page.state)),
                _ => {}
            }
        }
        Ok(())
    }

    /// Compares the whole state at the end, including resources and ledgers that no request has named.
    async fn look_around(&mut self) -> Result<(), Difference> {
        let resources = (0..values::RESOURCES).map(|n| Request::Inspect { resource: values::resource(n) });
        let ledgers = (0..values::LEDGERS + values::COPIES).map(|n| Request::Read {
            ledger: values::ledger(n),
            after: None,
            key: None,
        });
        let looks: Vec<Request> = resources.chain(ledgers).collect();
        self.ask(&looks, Late::Past, &"".into()).await?;
        self.open().await
    }

    async fn open(&mut self) -> Result<(), Difference> {
        let mut first: Option<(&'static str, Hello)> = None;
        for target in self.targets.iter_mut() {
            let said = target.open().await;
            let who = target.name();
            let differs = |one: String, two: String| Difference {
                step: self.step,
                asked: None,
                said: [(first.as_ref().map_or("the handshake", |(who, _)| who), one), (who, two)],
            };
            let hello = said.map_err(|cause| differs("must succeed".into(), format!("{cause:?}")))?;
            if let Some((_, expected)) = &first {
                let facts = |hello: &Hello| {
                    (hello.marker.clone(), hello.replica, hello.eviction.clone(), hello.stamps.clone())
                };
                if facts(expected) != facts(&hello) {
                    return Err(differs(format!("{expected:?}"), format!("{hello:?}")));
                }
            } else {
                first = Some((who, hello));
            }
        }
        Ok(())
    }

    async fn mark(&mut self) -> Result<(), Difference> {
        let marker = values::marker(0);
        let request = Request::Mark { expect: None, marker: Arc::clone(&marker) };
        self.ask(&[request], Late::Never, &marker).await?;
        self.known.marker = Some(marker);
        Ok(())
    }
}

/// Returns the node's reply to `batch`. If plain commands have served it, an acquire, and did not grant it,
/// this function undoes what they did, as an attempt does, and acquires again. The next attempt is served by a script. The same
/// holds for a claim that commands could not acquire because it was not new.
///
/// An attempt has an owner of its own. If the request names the holder, a script serves it: its release would free the lock.
async fn finally(target: &mut dyn DynTarget, mut batch: Batch) -> Result<BatchReply, Cause> {
    if let [Request::Acquire { resource, owner, .. }] = &batch.requests[..] {
        let look = Request::Inspect { resource: resource.clone() };
        let seen = target.ask(Batch { requests: vec![look], ..batch.clone() }).await?;
        if let [Reply::State { holder: Some((holder, _)), .. }] = &seen.replies[..]
            && holder == owner
        {
            batch.not_after = batch.not_after + FAR;
        }
    }
    let mut said = target.ask(batch.clone()).await?;
    if let ([Request::Acquire { resource, keep, ttl, .. }], [Reply::Granted { .. }]) =
        (&batch.requests[..], &said.replies[..])
        && (*keep).min(*ttl) > BRIEF
        && !resource.is_claim()
    {
        target.keep_count(resource, *keep);
    }
    let is_unsure = matches!(
        said.replies.last(),
        Some(Reply::MayHold(_) | Reply::Held { remaining: None, .. } | Reply::Refused(Refusal::NotNew))
    );
    if let Some(request @ Request::Acquire { resource, owner, .. }) = batch.requests.last()
        && is_unsure
    {
        let request = request.clone();
        let mut has_counted = !resource.is_claim();
        if let Some(Reply::MayHold(_)) = said.replies.pop() {
            let release = Request::Release { resource: resource.clone(), owner: owner.clone() };
            let released = target.ask(Batch { requests: vec![release], ..batch.clone() }).await?;
            has_counted |= released.replies == [Reply::Released(true)];
        }
        if has_counted {
            target.take_back_count(resource);
        }
        let again = target.ask(Batch { requests: vec![request], ..batch.clone() }).await?;
        said.replies.extend(again.replies);
    }
    Ok(said)
}

impl Late {
    /// Returns a deadline that is at most a second ahead.
    fn soon(self) -> Self {
        if self == Self::InTime { Self::Soon } else { self }
    }

    fn time(self, wall: NodeTime) -> NodeTime {
        match self {
            Self::InTime => wall + FAR,
            Self::Soon => wall + Duration::from_secs(1),
            Self::Never => NodeTime::from_micros(u64::MAX),
            Self::Past => wall - Duration::from_secs(10),
            Self::Epoch => NodeTime::default(),
        }
    }
}
