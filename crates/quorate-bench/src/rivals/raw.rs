//! A rival that has one task with a raw socket for each node. A task sends waiting requests in one write.
//! A call returns once a majority has answered. The rival has no timeouts, no trust, no reconnects and no
//! renewal, so it shows the cost of the commands alone.

mod job;
mod listener;
mod wire;

pub(crate) use job::Dialect;
pub(crate) use listener::Listener;

use super::shared::{TTL, spawn};
use job::{Job, Poll};
use quorate::{
    env::{SystemWorld, World},
    node::{FencingToken, Owner, Request, Resource},
    quorum::QuorumConfig,
};
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};
use wire::RawConnection;

/// The rival: a channel to the task of each node.
pub(crate) struct Raw {
    senders: Vec<mpsc::UnboundedSender<Job>>,
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
        let mut senders = Vec::new();
        for url in urls {
            let connection =
                RawConnection::open(url, dialect).await.map_err(|error| format!("{url}: {error}"))?;
            let (sender, inbox) = mpsc::unbounded_channel();
            senders.push(sender);
            spawn(connection.drive(inbox));
        }
        Ok(Self { senders, config: QuorumConfig::default() })
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
        let granted = self.ask(&request).await;
        if !granted {
            self.release(signed).await;
            return None;
        }
        Some(signed)
    }

    pub(crate) async fn release(&self, Signed { resource, owner }: Signed) {
        self.ask(&Request::Release { resource, owner }).await;
    }

    async fn ask(&self, request: &Request) -> bool {
        let (done, result) = oneshot::channel();
        let poll = Arc::new(Poll::new(self.senders.len(), done));
        for sender in &self.senders {
            let _ = sender.send(Job { request: request.clone(), poll: Arc::clone(&poll) });
        }
        result.await.unwrap_or(false)
    }
}
