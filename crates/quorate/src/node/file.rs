//! The file node: a directory on one host that several processes share.
//!
//! # What is not guaranteed
//!
//! * **One host only.** Leases are timed by the host's boot clock and void after a reboot. Network file
//!   systems that can be told are refused; a directory that reaches two hosts in another way, or containers
//!   with time namespaces of their own, would have two leaders.
//! * **A worker stopped inside the critical section blocks the node** for every other worker until it goes on
//!   or dies: `flock` ends with its process, not with time. The others time out, and go on with their other
//!   nodes; a quorum of several file nodes only helps where the stop did not happen in all of them.
//! * **Whoever edits the directory by hand edits the votes.** Deleting `lock` while a worker is inside lets a
//!   second one in; deleting single files forgets what they held. To start afresh, move the whole directory
//!   away and then delete it: sessions notice, and the new directory has a new run id.
//! * Leases are not synced to the disk, since no holder survives a power loss. A disk that acknowledges a
//!   sync it did not do can forget counters and ledgers.
//!
//! # What is in the directory
//!
//! | file | holds | survives a power loss |
//! | --- | --- | --- |
//! | `lock` | nothing; locked by whoever reads or writes, and never replaced | |
//! | `identity.json` | the run id and when it was drawn | yes |
//! | `marker.json` | the node's marker | yes |
//! | `counters/`, `done/`, `ledgers/` | one small JSON file a resource or group, with its full name | yes |
//! | `leases/<boot id>/` | the same for leases; other boots' are void and swept | no |
//!
//! Every write goes to a new file that is then renamed, so a crash leaves the old content or the new. A file
//! that cannot be read spoils the requests that need it, with a message that names it; it is never taken for
//! "free".

mod boot;
mod lock;
mod names;
mod paths;
mod store;
mod sweep;
#[cfg(test)]
mod tests;
mod worker;

use super::{Batch, BatchReply, Cause, Hello, Node, Nudge, Session};
use crate::env::{SystemWorld, World};
use std::{
    path::{Path, PathBuf},
    sync::{Arc, mpsc},
    time::Duration,
};
use tokio::sync::oneshot;

/// How long what a dropped session had sent goes on trying for a lock that somebody holds. After this it is
/// given up: leases then end at their time.
pub const LINGER: Duration = Duration::from_secs(5);

/// A node in a directory that processes of one host share. See the [module](self) for what it cannot do.
///
/// Each session has one thread of its own, since locks and files block; it ends when the session has been
/// dropped and what it had sent has run (at most [`LINGER`] later).
#[derive(Clone, Debug)]
pub struct FileNode {
    dir: PathBuf,
    name: Arc<str>,
    world: Arc<dyn World>,
    boot: Option<Arc<str>>,
}

impl FileNode {
    /// The node in `dir`, which is created when first used. It is called `file://` and its absolute path.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self::with_world(dir, Arc::new(SystemWorld))
    }

    /// The same on the clocks of `world`. (Waiting for the lock takes real time.)
    pub fn with_world(dir: impl Into<PathBuf>, world: Arc<dyn World>) -> Self {
        let dir = paths::canonical(&dir.into());
        let name = format!("file://{}", dir.display()).into();
        Self { dir, name, world, boot: None }
    }

    /// The same as if the host had been booted under `id`, for a test of what a reboot does.
    #[must_use]
    pub fn with_boot_id(mut self, id: &str) -> Self {
        self.boot = Some(id.into());
        self
    }

    /// Where it is.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

impl Node for FileNode {
    type Session = FileSession;

    fn name(&self) -> &str {
        &self.name
    }

    // The boot clock does.
    fn ends_leases_by_wall_clock(&self) -> bool {
        false
    }

    async fn open(&self, nudge: Nudge) -> Result<(FileSession, Hello), Cause> {
        let (hello_tx, hello) = oneshot::channel();
        let (jobs, inbox) = mpsc::channel();
        let node = self.clone();
        std::thread::Builder::new()
            .name("quorate-file".into())
            .spawn(move || worker::run(&node, &nudge, hello_tx, inbox))
            .map_err(|e| Cause::Unreachable(format!("no thread for {}: {e}", self.name).into()))?;
        let hello = hello.await.map_err(|_| Cause::Closed)??;
        Ok((FileSession { jobs }, hello))
    }
}

/// A session of a [`FileNode`].
#[derive(Debug)]
pub struct FileSession {
    jobs: mpsc::Sender<worker::Job>,
}

impl Session for FileSession {
    fn send(&mut self, batch: Batch) -> impl Future<Output = Result<BatchReply, Cause>> + Send + 'static {
        let (reply_tx, reply) = oneshot::channel();
        // A thread that has ended drops the job, and the reply with it.
        let _ = self.jobs.send(worker::Job { batch, reply: reply_tx });
        async move { reply.await.unwrap_or(Err(Cause::Closed)) }
    }
}
