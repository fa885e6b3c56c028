use super::{MAX_TTL, server::Server};
use quorate::redis::RedisNode;
use quorate::{
    admin::{NodeSet, Replacement},
    env::Env,
    quorum::QuorumConfig,
};
use quorate_testkit::sim::SeedRng;
use std::{
    error::Error,
    thread::{self, JoinHandle},
    time::Duration,
};

/// The pause before a replacement that has failed is run again.
const AGAIN: Duration = Duration::from_millis(500);

/// The replacement of a server in progress, which a thread of its own carries out. The first run of the replacement is
/// dropped after a random time, as if its operator had ended, and the replacement is run again until it succeeds.
#[derive(Debug)]
pub(super) struct Replacing {
    node: usize,
    newcomer: Server,
    thread: JoinHandle<()>,
}

impl Replacing {
    /// Begins to replace the server `node` by `newcomer`. `lists` has the URLs of the old and of the new servers.
    pub(super) fn begin(node: usize, newcomer: Server, lists: (Vec<String>, Vec<String>), seed: u64) -> Self {
        let thread = thread::spawn(move || super::block_on(replace(&lists, seed)));
        Self { node, newcomer, thread }
    }

    /// Returns whether the replacement has been carried out.
    pub(super) fn is_done(&self) -> bool {
        self.thread.is_finished()
    }

    /// Returns the index of the server that has been replaced, and its successor.
    ///
    /// # Panics
    /// If the replacement could not be carried out.
    pub(super) fn end(self) -> (usize, Server) {
        self.thread.join().unwrap_or_else(|_| panic!("the replacement of server {} failed", self.node));
        (self.node, self.newcomer)
    }
}

async fn replace((old, new): &(Vec<String>, Vec<String>), seed: u64) {
    let env = Env::system();
    let first = env.now() + SeedRng::new(seed, "replacement").millis(0..=6000);
    if let Some(Ok(())) = env.before(first, attempt(&env, old, new)).await {
        return;
    }
    while let Err(error) = attempt(&env, old, new).await {
        eprintln!("workload: the replacement runs again: {error}");
        env.sleep(AGAIN).await;
    }
}

/// Runs the replacement once. It is an error if a server of the new set was left closed.
async fn attempt(env: &Env, old: &[String], new: &[String]) -> Result<(), Box<dyn Error>> {
    let config = QuorumConfig {
        worker: "operator".into(),
        max_ttl: MAX_TTL,
        durable: true,
        ..QuorumConfig::default()
    };
    let replacement = Replacement::new(env.clone(), config, set(old)?, set(new)?)?;
    let mut left = Vec::new();
    let new_names = set(new)?.names();
    replacement
        .run(|progress| {
            if let quorate::admin::Progress::Left(name, cause) = progress
                && new_names.contains(&name)
            {
                left.push(format!("{name}: {cause}"));
            }
        })
        .await?;
    if left.is_empty() { Ok(()) } else { Err(left.join("; ").into()) }
}

fn set(urls: &[String]) -> Result<NodeSet, Box<dyn Error>> {
    urls.iter().try_fold(NodeSet::default(), |set, url| Ok(set.node(RedisNode::parse(url)?)))
}
