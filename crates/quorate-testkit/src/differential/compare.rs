use super::resolve::Ground;
use super::{Ask, Late, Sits, Stamp, Step, replies_alike, words};
use quorate::{
    env::Env,
    node::{Batch, Hello, NodeTime, Reply, Request},
};
use std::{fmt, sync::Arc, time::Duration};

/// Longer than the longest of the lifetimes that really pass, with its rounding.
const BRIEF: Duration = Duration::from_millis(8);

/// The largest difference between a reply's time and the node's clock.
const SLACK: Duration = Duration::from_secs(30);

/// The first difference between a node's reply and the first node's.
#[derive(Debug)]
pub struct Difference {
    /// The number of the step, from zero.
    pub step: usize,
    /// The request, if the step had one.
    pub asked: Option<Request>,
    /// The two nodes, each with its reply.
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

/// Sends `steps` to every node, all of which are empty and without a session, and compares each reply with
/// the first node's.
///
/// # Errors
/// The first [`Difference`].
pub async fn compare(steps: &[Step], seats: &mut [&mut dyn Sits]) -> Result<(), Difference> {
    let began = seats.iter().map(|seat| seat.wall()).min().unwrap_or_default() - Duration::from_secs(60);
    let ground = Ground { began, marker: None, counters: Vec::new(), ledgers: Vec::new() };
    let mut table = Table { seats, ground, step: 0 };
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
    seats: &'a mut [&'b mut dyn Sits],
    ground: Ground,
    step: usize,
}

impl Table<'_, '_> {
    async fn take(&mut self, step: &Step) -> Result<(), Difference> {
        match step {
            Step::Batch(asks, late, stamp) => {
                // A request with a brief lifetime is the last of its batch: the time that further requests
                // take would differ by node.
                for asks in asks.split_inclusive(Ask::is_brief) {
                    self.batch(asks, *late, *stamp).await?;
                }
            }
            Step::Pass(pass) => self.seats.iter_mut().for_each(|seat| seat.pass(pass.time())),
            Step::Reopen => self.open().await?,
            Step::Restart => {
                self.seats.iter_mut().for_each(|seat| seat.restart());
                self.open().await?;
            }
            Step::Flush => {
                self.seats.iter_mut().for_each(|seat| seat.flush());
                self.open().await?;
                self.mark().await?;
            }
        }
        Ok(())
    }

    async fn batch(&mut self, asks: &[Ask], late: Late, stamp: Stamp) -> Result<(), Difference> {
        self.look(asks).await?;
        let requests: Vec<Request> = asks.iter().map(|ask| self.ground.request(ask)).collect();
        let stamp = self.ground.stamp(stamp).unwrap_or_default();
        let replies = self.ask(&requests, late, &stamp).await?;
        for (request, reply) in requests.iter().zip(&replies) {
            if let (Request::Mark { marker, .. }, Reply::Marked) = (request, reply) {
                self.ground.marker = Some(Arc::clone(marker));
            }
        }
        if asks.iter().any(Ask::is_brief) {
            Env::system().sleep(BRIEF).await;
        }
        Ok(())
    }

    /// Returns the first node's reply to `requests`, once all nodes have given the same one.
    async fn ask(
        &mut self,
        requests: &[Request],
        late: Late,
        stamp: &Arc<str>,
    ) -> Result<Vec<Reply>, Difference> {
        let mut first: Option<(&'static str, Vec<Reply>)> = None;
        for seat in self.seats.iter_mut() {
            let batch = Batch {
                requests: requests.to_vec(),
                not_after: late.time(seat.wall()),
                stamp: Arc::clone(stamp),
            };
            let said = seat.ask(batch).await;
            let who = seat.name();
            let differs = |asked: Option<&Request>, one: String, two: String| Difference {
                step: self.step,
                asked: asked.cloned(),
                said: [(first.as_ref().map_or("the request", |(who, _)| who), one), (who, two)],
            };
            let said = said.map_err(|cause| {
                differs(None, "must be answered".into(), format!("{cause:?} to {requests:?}"))
            })?;
            if said.node_time.distance(seat.wall()) > SLACK {
                let wall = format!("the node's clock shows {:?}", seat.wall());
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

    /// Reads from the first node the state that `asks` refer to.
    async fn look(&mut self, asks: &[Ask]) -> Result<(), Difference> {
        let (named, looks): (Vec<u8>, Vec<Request>) = Ground::looks(asks).into_iter().unzip();
        self.ground.counters.clear();
        self.ground.ledgers.clear();
        let Some(seat) = self.seats.first_mut() else { return Ok(()) };
        let batch = Batch { requests: looks, not_after: NodeTime::default(), stamp: "".into() };
        let said = seat.ask(batch).await.map_err(|cause| Difference {
            step: self.step,
            asked: None,
            said: [("a look", "must be answered".into()), (seat.name(), format!("{cause:?}"))],
        })?;
        for (number, reply) in named.into_iter().zip(said.replies) {
            match reply {
                Reply::State { counter: Some(counter), .. } => self.ground.counters.push((number, counter)),
                Reply::Ledger(page) => self.ground.ledgers.push((number, page.state)),
                _ => {}
            }
        }
        Ok(())
    }

    /// Compares all state at the end, whether a request referred to it or not.
    async fn look_around(&mut self) -> Result<(), Difference> {
        let resources = (0..words::RESOURCES).map(|n| Request::Inspect { resource: words::resource(n) });
        let ledgers = (0..words::LEDGERS).map(|n| Request::Read { ledger: words::ledger(n), after: None });
        let looks: Vec<Request> = resources.chain(ledgers).collect();
        self.ask(&looks, Late::Past, &"".into()).await?;
        self.open().await
    }

    async fn open(&mut self) -> Result<(), Difference> {
        let mut first: Option<(&'static str, Hello)> = None;
        for seat in self.seats.iter_mut() {
            let said = seat.open().await;
            let who = seat.name();
            let differs = |one: String, two: String| Difference {
                step: self.step,
                asked: None,
                said: [(first.as_ref().map_or("the handshake", |(who, _)| who), one), (who, two)],
            };
            let hello = said.map_err(|cause| differs("must succeed".into(), format!("{cause:?}")))?;
            if let Some((_, expected)) = &first {
                let facts = |hello: &Hello| (hello.marker.clone(), hello.replica, hello.eviction.clone());
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
        let marker = words::marker(0);
        let request = Request::Mark { expect: None, marker: Arc::clone(&marker) };
        self.ask(&[request], Late::Never, &marker).await?;
        self.ground.marker = Some(marker);
        Ok(())
    }
}

impl Late {
    fn time(self, wall: NodeTime) -> NodeTime {
        match self {
            Self::InTime => wall + Duration::from_secs(3_600),
            Self::Never => NodeTime::from_micros(u64::MAX),
            Self::Past => wall - Duration::from_secs(10),
            Self::Epoch => NodeTime::default(),
        }
    }
}
