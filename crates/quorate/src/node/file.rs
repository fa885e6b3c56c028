//! The file node: a directory on one host that several processes share.
//!
//! # What is not guaranteed
//!
//! * **One machine only.** Leases are timed by the machine's boot clock and void after a reboot. File systems that
//!   several machines can have mounted are refused where the kernel tells them: NFS, SMB, 9p, virtiofs, FUSE (but for
//!   local disks), CephFS, AFS, GFS2, OCFS2, Lustre, GPFS, BeeGFS and more. For the others (a shared disk, a file
//!   system below an overlay) the directory records the boot id and machine id of its machine: another machine is
//!   refused, with a message that names both. Machines with one machine id (clones of an image), or without any, look
//!   like one that has restarted: the second one takes the directory over and the first one is refused from its next
//!   request on, but leases from before may overlap for up to their TTL. Containers with time namespaces of their
//!   own would have two leaders.
//! * **One user only.** Directories are made with mode 0700 and files with 0600, whatever the umask. A directory is
//!   refused that belongs to another user, is open to others, or lies below one in which others could put another in
//!   its place (as for OpenSSH's `StrictModes`; a sticky one such as `/tmp` is fine). Its mode is never changed: a
//!   directory of an earlier version (0755) is refused with the command that closes it, `chmod -R go= DIR`, since
//!   another user's process may hold its lock at this moment. Root can do everything.
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
//! | `machine.json` | the machine and boot that used it last | yes |
//! | `marker.json` | the node's marker | yes |
//! | `counters/`, `claims/`, `ledgers/` | one small JSON file a resource or group, with its full name | yes |
//! | `leases/<boot id>/` | the same for leases; other boots' are void and swept | no |
//!
//! Every write goes to a new file of a random name that is then renamed, so a crash leaves the old content or the
//! new. No symbolic link is followed. A file
//! that cannot be read spoils the requests that need it, with a message that names it; it is never taken for
//! "free".

mod access;
#[cfg(test)]
mod access_tests;
mod boot;
mod filesystem;
mod lock;
mod machine;
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
    /// The directory as the caller named it, perhaps through symbolic links.
    given: PathBuf,
    name: Arc<str>,
    world: Arc<dyn World>,
    /// A boot id, a machine id and a host name in place of this machine's, for tests.
    boot: Option<Arc<str>>,
    machine: Option<(Arc<str>, Arc<str>)>,
    /// Whether a directory that does not exist is an error rather than created.
    must_exist: bool,
}

impl FileNode {
    /// The node in `dir`, which is created when first used. It is called `file://` and its absolute path.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self::with_world(dir, Arc::new(SystemWorld))
    }

    /// The same on the clocks of `world`. (Waiting for the lock takes real time.)
    pub fn with_world(dir: impl Into<PathBuf>, world: Arc<dyn World>) -> Self {
        let given = dir.into();
        let given = std::path::absolute(&given).unwrap_or(given);
        let dir = paths::canonical(&given);
        let name = format!("file://{}", dir.display()).into();
        Self { dir, given, name, world, boot: None, machine: None, must_exist: false }
    }

    /// Reports a directory that does not exist as unreachable, instead of creating it: for a program that only looks.
    #[must_use]
    pub fn must_exist(mut self) -> Self {
        self.must_exist = true;
        self
    }

    /// The same as if the host had been booted under `id`, for a test of what a reboot does.
    #[must_use]
    pub fn with_boot_id(mut self, id: &str) -> Self {
        self.boot = Some(id.into());
        self
    }

    /// The same as if it ran on the machine with this id (empty: none) and this host name, for a test of two machines
    /// with one directory. Use [`with_boot_id`](Self::with_boot_id) as well: processes of one boot share a machine.
    #[must_use]
    pub fn with_machine(mut self, id: &str, host: &str) -> Self {
        self.machine = Some((id.into(), host.into()));
        self
    }

    /// The machine of this process, or the one that a test has set.
    fn machine(&self) -> std::io::Result<machine::Machine> {
        if let (Some(boot), Some((id, host))) = (&self.boot, &self.machine) {
            let (boot, host) = (Arc::clone(boot), Arc::clone(host));
            return Ok(machine::Machine { boot, id: machine::digest(id), host });
        }
        let mut this = machine::Machine::this()?;
        if let Some(boot) = &self.boot {
            this.boot = Arc::clone(boot);
        }
        if let Some((id, host)) = &self.machine {
            (this.id, this.host) = (machine::digest(id), Arc::clone(host));
        }
        Ok(this)
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
