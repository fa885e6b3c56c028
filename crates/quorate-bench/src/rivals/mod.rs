//! The lock implementations that are measured: the rivals.

mod ours;
mod raw;
mod rslocks;
mod shared;
mod sidecar;

use crate::measure::{Samples, now};
use quorate::lease::Lease;
use std::{sync::Arc, time::Duration};

use ours::Ours;
pub(crate) use ours::{quorum, quorum_of_one};
pub(crate) use raw::{Dialect, Listener, Raw};
use rslocks::Rslock;
pub(crate) use shared::{TTL, spawn};
use sidecar::{Sidecar, SidecarLease};

/// The rivals that are measured everywhere, in the order of the table.
pub(crate) const ALL: [Kind; 5] = [Kind::Quorate, Kind::QuorateAll, Kind::Rslock, Kind::Limit, Kind::Bare];

/// All rivals that acquire and release as fast as possible. Three of them ask a majority only, as Quorate does first.
pub(crate) const RACERS: [Kind; 8] = [
    Kind::Quorate,
    Kind::QuorateAll,
    Kind::Rslock,
    Kind::Limit,
    Kind::Limit3,
    Kind::Plain,
    Kind::Bare,
    Kind::Bare3,
];

/// A kind of rival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// This library.
    Quorate,
    /// This library, with the setting `ask_all_nodes`.
    QuorateAll,
    /// The crate `rslock`.
    Rslock,
    /// Quorate's script calls on raw sockets, without the work of the library. This rival shows the best
    /// figures that the library could reach.
    Limit,
    /// The same, with a majority of the nodes.
    Limit3,
    /// The plain commands and the script for releases that Quorate sends for locks that it knows, on raw sockets, to a majority.
    Plain,
    /// A client of `quorate serve` on a unix socket.
    Sidecar,
    /// The plain Redlock commands on raw sockets: `SET NX PX`, and a script that deletes a key if it has the
    /// expected value.
    Bare,
    /// The same, with a majority of the nodes.
    Bare3,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Quorate => "quorate",
            Self::QuorateAll => "quorate-all",
            Self::Rslock => "rslock",
            Self::Limit => "limit",
            Self::Limit3 => "limit-3",
            Self::Plain => "plain",
            Self::Sidecar => "sidecar",
            Self::Bare => "bare",
            Self::Bare3 => "bare-3",
        }
    }

    /// Connects to the servers at `urls`.
    pub(crate) async fn start(self, urls: &[String]) -> Result<Rival, String> {
        Ok(match self {
            Self::Quorate => Rival::Quorate(Ours::start(urls).await?),
            Self::QuorateAll => Rival::Quorate(Ours::asking_all(urls).await?),
            Self::Rslock => Rival::Rslock(Rslock::start(urls)),
            Self::Limit => Rival::Raw(Raw::start(urls, Dialect::Quorate).await?),
            Self::Limit3 => Rival::Raw(Raw::of_majority(urls, Dialect::Quorate).await?),
            Self::Plain => Rival::Raw(Raw::of_majority(urls, Dialect::Plain).await?),
            Self::Sidecar => Rival::Sidecar(Sidecar::start(urls).await?),
            Self::Bare => Rival::Raw(Raw::start(urls, Dialect::Bare).await?),
            Self::Bare3 => Rival::Raw(Raw::of_majority(urls, Dialect::Bare).await?),
        })
    }
}

/// Returns each rival's settings, for the report.
pub(crate) fn settings() -> Vec<(&'static str, String)> {
    let ttl = format!("TTL {TTL:?}");
    vec![
        (
            "quorate",
            format!(
                "{ttl}, everything at its default: fencing, auto-extend, markers, node timeout 100 ms; new nodes trusted"
            ),
        ),
        ("quorate-all", "the same, and each round asks all nodes at once (`ask_all_nodes`)".to_owned()),
        ("rslock", format!("{ttl}, its own defaults: 3 tries, 200 ms between them; `lock` and `unlock`")),
        (
            "limit",
            format!(
                "{ttl}; Quorate's own script calls on raw sockets, one batching task for each node, reply at quorum, no logic"
            ),
        ),
        (
            "sidecar",
            format!("{ttl}, `quorate serve` at its defaults in a process of its own, over a unix socket"),
        ),
        ("bare", format!("{ttl}; SET NX PX and a compare-and-delete script in the same way")),
        (
            "limit-3, bare-3",
            "the same as limit and bare, and only a majority of the servers is asked, by the name".to_owned(),
        ),
        (
            "plain",
            format!(
                "{ttl}; the transaction of plain commands and the script for releases that Quorate sends for locks that it knows, in the same way, to a majority"
            ),
        ),
    ]
}

/// A rival that can acquire and release.
pub(crate) enum Rival {
    Quorate(Ours),
    Rslock(Rslock),
    Raw(Raw),
    Sidecar(Sidecar),
}

/// A lock that a rival holds.
pub(crate) enum HeldLock {
    Quorate(Lease),
    Rslock(rslock::Lock),
    Raw(raw::Signed),
    Sidecar(SidecarLease),
}

impl Rival {
    /// Makes one attempt to acquire the lock `resource`.
    pub(crate) async fn acquire(&self, resource: &str) -> Option<HeldLock> {
        match self {
            Self::Quorate(ours) => ours.acquire(resource).await.map(HeldLock::Quorate),
            Self::Rslock(rslock) => rslock.acquire(resource).await.map(HeldLock::Rslock),
            Self::Raw(raw) => raw.acquire(resource).await.map(HeldLock::Raw),
            Self::Sidecar(sidecar) => sidecar.acquire(resource).await.map(HeldLock::Sidecar),
        }
    }

    pub(crate) async fn release(&self, held: HeldLock) {
        match (self, held) {
            (Self::Quorate(_), HeldLock::Quorate(lease)) => {
                // The release may fail because too few nodes confirm it in time. The lease has ended
                // nevertheless.
                let _ = lease.release().await;
            }
            (Self::Rslock(rslock), HeldLock::Rslock(lock)) => rslock.release(&lock).await,
            (Self::Raw(raw), HeldLock::Raw(signed)) => raw.release(signed).await,
            (Self::Sidecar(sidecar), HeldLock::Sidecar(lease)) => sidecar.release(lease).await,
            _ => {}
        }
    }
}

/// The result of all tasks in one round.
#[derive(Debug, Default)]
pub(crate) struct Cycles {
    /// The duration of each acquire.
    pub(crate) acquires: Samples,
    /// The number of attempts that were not granted.
    pub(crate) failed: u64,
}

/// Runs `tasks` tasks, each of which acquires and releases its own resource, until `length` has
/// passed.
pub(crate) async fn cycle(rival: &Arc<Rival>, tasks: usize, length: Duration) -> Cycles {
    let until = now() + length;
    let task = |number: usize| {
        let rival = Arc::clone(rival);
        async move {
            let resource = format!("bench-{number}");
            let mut done = Cycles::default();
            loop {
                let began = now();
                if began >= until {
                    return done;
                }
                match rival.acquire(&resource).await {
                    Some(held) => {
                        done.acquires.add(now().since(began));
                        rival.release(held).await;
                    }
                    None => done.failed += 1,
                }
            }
        }
    };
    let tasks: Vec<_> = (0..tasks).map(|number| spawn(task(number))).collect();
    let mut all = Cycles::default();
    for task in tasks {
        if let Ok(done) = task.await {
            all.acquires.extend(done.acquires);
            all.failed += done.failed;
        }
    }
    all
}
