//! A rival that has one task with a raw socket for each node. A task sends waiting requests in one write.
//! A call returns once a majority has answered. The rival has no timeouts, no trust, no reconnects and no
//! renewal, so it shows the cost of the commands alone.
//!
//! It asks all nodes, or only a majority, which depends on the name of the lock.

mod job;
mod listener;
mod wire;

pub(crate) use job::Dialect;
pub(crate) use listener::Listener;

use super::shared::{TTL, spawn};
use job::{Job, Poll};
use quorate::{
    env::{SystemWorld, World},
    internals::majority,
    node::{FencingToken, Owner, Request, Resource},
    quorum::QuorumConfig,
};
use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};
use tokio::sync::{mpsc, oneshot};
use wire::RawConnection;

/// The rival: a channel to the task of each node.
pub(crate) struct Raw {
    senders: Vec<mpsc::UnboundedSender<Job>>,
    /// The number of nodes that are asked.
    asked: usize,
    config: QuorumConfig,
}

/// A held lock, with its owner token.
pub(crate) struct Signed {
    resource: Resource,
    owner: Owner,
}

impl Signed {
    pub(crate) fn owner(&self) -> &str {
        self.owner.as_str()
    }
}

impl Raw {
    pub(crate) async fn start(urls: &[String], dialect: Dialect) -> Result<Self, String> {
        Self::open(urls, dialect, false).await
    }

    /// Lets a majority of the nodes be asked, in place of all.
    pub(crate) async fn of_majority(urls: &[String], dialect: Dialect) -> Result<Self, String> {
        Self::open(urls, dialect, true).await
    }

    async fn open(urls: &[String], dialect: Dialect, of_majority: bool) -> Result<Self, String> {
        let mut senders = Vec::new();
        for url in urls {
            let connection = RawConnection::open(url, dialect, of_majority)
                .await
                .map_err(|error| format!("{url}: {error}"))?;
            let (sender, inbox) = mpsc::unbounded_channel();
            senders.push(sender);
            spawn(connection.drive(inbox));
        }
        let asked = if of_majority { majority(senders.len()) } else { senders.len() };
        Ok(Self { senders, asked, config: QuorumConfig::default() })
    }

    pub(crate) async fn acquire(&self, resource: &str) -> Option<Signed> {
        let world = SystemWorld;
        let owner = Owner::sign("bench", world.random(), world.random());
        let signed = Signed { resource: Resource::lock(resource).ok()?, owner };
        let request = Request::Acquire {
            resource: signed.resource.clone(),
            owner: signed.owner.clone(),
            ttl: TTL,
            propose: FencingToken::new(world.wall().as_micros()),
            tolerance: self.config.max_clock_offset,
            keep: self.config.fence_retention,
            ticket: None,
        };
        let granted = self.ask(&signed.resource, &request).await;
        if !granted {
            self.release(signed).await;
            return None;
        }
        Some(signed)
    }

    pub(crate) async fn release(&self, Signed { resource, owner }: Signed) {
        self.ask(&resource, &Request::Release { resource: resource.clone(), owner }).await;
    }

    async fn ask(&self, resource: &Resource, request: &Request) -> bool {
        let (done, result) = oneshot::channel();
        let poll = Arc::new(Poll::new((self.asked, majority(self.senders.len())), done));
        let mut hasher = DefaultHasher::new();
        resource.hash(&mut hasher);
        let first = usize::try_from(hasher.finish() % self.senders.len() as u64).unwrap_or(0);
        for sender in self.senders.iter().cycle().skip(first).take(self.asked) {
            let _ = sender.send(Job { request: request.clone(), poll: Arc::clone(&poll) });
        }
        result.await.unwrap_or(false)
    }
}
