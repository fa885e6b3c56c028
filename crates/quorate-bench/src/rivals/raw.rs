//! A task a node on a raw socket: what has gathered leaves in one write, answered at quorum. No time-out, no trust, no
//! reconnect, no keeper: what is left when all logic is taken away.

mod wire;

use super::{TTL, spawn};
use quorate::{
    env::{SystemWorld, World},
    internals::majority,
    node::{FencingToken, Owner, Request, Resource},
    quorum::QuorumConfig,
};
use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicUsize, Ordering},
};
use tokio::sync::{mpsc, oneshot};
use wire::Wire;

/// What is said to the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// The script calls of Quorate's own encoder.
    Quorate,
    /// `SET NX PX`, and a script that compares and deletes.
    Bare,
}

/// The drivers' mailboxes.
pub(crate) struct Raw {
    mail: Vec<mpsc::UnboundedSender<Job>>,
    setup: QuorumConfig,
}

/// What signs one lock.
pub(crate) struct Signed {
    resource: Resource,
    owner: Owner,
}

/// Something for one node to do.
struct Job {
    request: Request,
    poll: Arc<Poll>,
}

/// The votes on one question.
struct Poll {
    nodes: usize,
    yes: AtomicUsize,
    no: AtomicUsize,
    done: Mutex<Option<oneshot::Sender<bool>>>,
}

impl Poll {
    fn vote(&self, yes: bool) {
        let most = majority(self.nodes);
        let (count, at) = if yes { (&self.yes, most) } else { (&self.no, self.nodes - most + 1) };
        if count.fetch_add(1, Ordering::AcqRel) + 1 == at
            && let Some(done) = self.done.lock().unwrap_or_else(PoisonError::into_inner).take()
        {
            let _ = done.send(yes);
        }
    }
}

impl Raw {
    pub(crate) async fn start(urls: &[String], dialect: Dialect) -> Result<Self, String> {
        let mut mail = Vec::new();
        for url in urls {
            let wire = Wire::open(url, dialect).await.map_err(|error| format!("{url}: {error}"))?;
            let (mailbox, inbox) = mpsc::unbounded_channel();
            mail.push(mailbox);
            spawn(wire.drive(inbox));
        }
        Ok(Self { mail, setup: QuorumConfig::default() })
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
            tolerance: self.setup.max_clock_offset,
            keep: self.setup.fence_retention,
            ticket: None,
        };
        let won = self.ask(&request).await;
        if !won {
            self.release(signed).await;
            return None;
        }
        Some(signed)
    }

    pub(crate) async fn release(&self, Signed { resource, owner }: Signed) {
        self.ask(&Request::Release { resource, owner }).await;
    }

    async fn ask(&self, request: &Request) -> bool {
        let (done, answer) = oneshot::channel();
        let poll = Arc::new(Poll {
            nodes: self.mail.len(),
            yes: AtomicUsize::new(0),
            no: AtomicUsize::new(0),
            done: Mutex::new(Some(done)),
        });
        for mailbox in &self.mail {
            let _ = mailbox.send(Job { request: request.clone(), poll: Arc::clone(&poll) });
        }
        answer.await.unwrap_or(false)
    }
}
