//! What the parent and its workers agree on.

use quorate::{
    node::{Cause, Hello, Node, Nudge},
    quorum::Quorum,
    schedule::Delivery,
};
use quorate_redis::{Connect, RedisNode, RedisSession};
use std::{error::Error, time::Duration};

/// How many servers there are.
pub(crate) const NODES: usize = 5;
/// How many worker processes there are.
pub(crate) const WORKERS: usize = 3;
/// The group whose leader runs the jobs.
pub(crate) const GROUP: &str = "promises";
/// Between two ticks of a job.
pub(crate) const TICK_EVERY: Duration = Duration::from_secs(1);
/// For how long missed ticks are made up.
pub(crate) const MAKE_UP: Duration = Duration::from_secs(60);
/// The newest so many ticks of a job are held against its history.
pub(crate) const HISTORY: usize = 100;

/// A job that each worker has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct JobKind {
    pub(crate) name: &'static str,
    pub(crate) delivery: Delivery,
    /// How long a run takes.
    pub(crate) takes: Duration,
}

/// Two of each delivery rule: one whose runs are over at once, and one whose runs are often under way when
/// something happens.
pub(crate) const JOBS: [JobKind; 4] = [
    job("most-quick", Delivery::AtMostOnce, 5),
    job("most-long", Delivery::AtMostOnce, 450),
    job("least-quick", Delivery::AtLeastOnce, 5),
    job("least-long", Delivery::AtLeastOnce, 450),
];

const fn job(name: &'static str, delivery: Delivery, takes_ms: u64) -> JobKind {
    JobKind { name, delivery, takes: Duration::from_millis(takes_ms) }
}

/// What a worker is started with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Post {
    /// What it is called: its member and its run.
    pub(crate) name: String,
    /// The lease's TTL.
    pub(crate) ttl: Duration,
    /// Each server: the name that all workers know it by, and this worker's own road to it.
    pub(crate) roads: Vec<(String, String)>,
}

impl Post {
    /// The arguments that [`Post::parse`] reads.
    pub(crate) fn to_args(&self) -> Vec<String> {
        let head = [self.name.clone(), self.ttl.as_millis().to_string()];
        let roads = self.roads.iter().flat_map(|(name, url)| [name.clone(), url.clone()]);
        head.into_iter().chain(roads).collect()
    }

    /// `None` where these are no worker's arguments.
    pub(crate) fn parse(args: &[String]) -> Option<Self> {
        let [name, ttl, roads @ ..] = args else { return None };
        let ttl = Duration::from_millis(ttl.parse().ok()?);
        let roads = roads.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
        Some(Self { name: name.clone(), ttl, roads })
    }

    /// The quorum as everybody here describes it. Within a runtime.
    ///
    /// # Errors
    /// What is wrong with the URLs or the timings.
    pub(crate) fn quorum(&self) -> Result<Quorum, Box<dyn Error>> {
        let roads: Result<Vec<_>, _> = self.roads.iter().map(|(name, url)| Road::new(name, url)).collect();
        let builder = Quorum::builder().nodes(roads?).worker(&self.name).max_ttl(self.ttl);
        Ok(builder.trust_new_nodes(true).build()?)
    }
}

/// The quorum without roads: for whoever looks at the end.
///
/// # Errors
/// What is wrong with the URLs or the timings.
pub(crate) fn plain_quorum(urls: &[String], worker: &str, ttl: Duration) -> Result<Quorum, Box<dyn Error>> {
    Ok(Quorum::redis(urls)?.worker(worker).max_ttl(ttl).trust_new_nodes(true).build()?)
}

/// A server, called as all call it, over a proxy of this worker's own: so that one worker can be cut off alone.
struct Road {
    name: String,
    node: RedisNode,
}

impl Road {
    fn new(name: &str, url: &str) -> Result<Self, Box<dyn Error>> {
        Ok(Self { name: RedisNode::parse(name)?.name().to_owned(), node: RedisNode::parse(url)? })
    }
}

impl Node for Road {
    type Session = RedisSession;

    fn name(&self) -> &str {
        &self.name
    }

    async fn open(&self, nudge: Nudge) -> Result<(RedisSession, Hello), Cause> {
        self.node.open(nudge).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_gets_what_it_was_told() {
        let road = |n: u16| (format!("redis://127.0.0.1:{n}"), format!("redis://127.0.0.1:{}", n + 1));
        let post =
            Post { name: "w-1.2".to_owned(), ttl: Duration::from_secs(1), roads: vec![road(1), road(7)] };
        assert_eq!(Post::parse(&post.to_args()), Some(post));
        assert_eq!(Post::parse(&[]), None);
    }
}
