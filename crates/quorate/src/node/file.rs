//! The file node: a directory on one host that several processes share.
//!
//! # Files in the directory
//!
//! The rows are in an SQLite database, `quorate.db`, with its write-ahead log `quorate.db-wal` and the log's index
//! `quorate.db-shm`. SQLite was chosen because several processes may use one database, a wait for its lock has a time
//! limit, and its crash safety is tested further than ours could be. LMDB is as fast, but it has no limit for this wait, and
//! its Rust interface is not safe: another process that changes the file changes memory that Rust borrows. The design
//! document `lease-and-trust.md` has the figures.
//!
//! * **Each batch is one transaction.** After a crash it has happened as a whole or not at all. If a process dies at any
//!   moment, what it has answered is there.
//! * **What must survive a power loss is synced before the answer:** the node's identity, marker and stamps, fencing
//!   counters, claims and ledgers. A batch that changes only leases and queues is not synced, because they are void after
//!   a reboot.
//! * If the database cannot be read, the requests that need it fail, with an error that names the file. The resource is
//!   never treated as free. No symbolic link is followed.
//! * A directory in the format of an earlier version, one file for each row, is refused.
//!
//! # What is not guaranteed
//!
//! * **One machine only.** Leases are timed by the machine's boot clock, and are void after a reboot. File
//!   systems that several machines can mount are refused if the kernel reports them: NFS, SMB, 9p, virtiofs,
//!   FUSE (except for local disks), CephFS, AFS, GFS2, OCFS2, Lustre, GPFS, BeeGFS and more. Others, such as
//!   a shared disk or a file system below an overlay, are not recognised. Therefore the directory also
//!   records the boot id and the machine id of the machine that uses it. Another machine is refused, with a
//!   message that names both machines. Two machines with the same machine id (clones of an image), or without
//!   one, look like one machine that has restarted. The second machine then takes over the directory, and the
//!   first is refused from its next request on. Leases that the first machine acquired before may overlap
//!   with new ones for up to their TTL. Containers with time namespaces of their own have different boot
//!   clocks, so two of them could hold one lease.
//! * **One user only.** Directories are created with mode 0700 and files with 0600, whatever the umask. A
//!   directory is refused if it belongs to another user, is open to others, or lies below a directory in
//!   which others could replace it. (OpenSSH's `StrictModes` has the same rule; a sticky directory such as
//!   `/tmp` is accepted.) The node never changes the mode of an existing directory, since a process of
//!   another user may hold its locks. So a directory that an earlier version created (0755) is refused, with
//!   an error that names the command that closes it: `chmod -R go= DIR`. These checks do not protect the
//!   files from root.
//! * **A worker that is stopped while it writes blocks the node** for all other workers until the stopped worker
//!   continues or dies. SQLite's lock ends with its process, not with time. The other workers time out and continue with
//!   their other nodes. A quorum of several file nodes therefore still works if the stopped worker holds the locks of
//!   fewer than half of their directories.
//! * **A copy counts as older data.** A directory that was copied, or put back from a copy, has a new `quorate.db`. Then
//!   the node gets a new run id: it is quarantined, and its counters count as lost. The same happens to a directory that
//!   is moved to another file system. Two things are not noticed: a snapshot of the whole file system or machine that is
//!   put back, and a content of the database that is written into the same file. On a file system that records no time of
//!   creation, a copy is not noticed either if its `quorate.db` gets the number of the old one.
//! * **Editing the directory by hand changes the votes.** If the log or its index is deleted while a worker uses them, the
//!   database may be damaged. To start again with an empty node, move the whole directory away and then delete it. Open
//!   sessions notice that the directory is gone, and the new directory has a new run id.
//! * A disk that acknowledges a sync without performing it can lose counters and ledgers.

mod access;
#[cfg(test)]
mod access_tests;
mod boot;
#[cfg(test)]
mod crash_tests;
mod database;
mod error;
mod filesystem;
mod machine;
mod paths;
mod store;
#[cfg(test)]
mod tests;
mod worker;

use super::{Batch, BatchReply, Cause, Hello, NamesQuery, Node, PushSender, Session, StoredNames};
use crate::env::{SystemWorld, World};
use std::{
    path::{Path, PathBuf},
    sync::{Arc, mpsc},
    time::Duration,
};
use tokio::sync::oneshot;

/// The longest time for which the batches of a dropped session wait for the database. After that they
/// are discarded, and the leases that they would have released expire by themselves.
pub const LINGER: Duration = Duration::from_secs(5);

/// A node in a directory that processes of one host share.
///
/// ```
/// use quorate::{node::FileNode, quorum::Quorum};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = std::env::temp_dir().join(format!("quorate-doc-{}", std::process::id()));
/// let node = FileNode::new(&dir); // such as /var/lib/quorate
/// let quorum = Quorum::builder().nodes([node]).trust_new_nodes(true).build()?;
/// let lease = quorum.lock("report").acquire().await?;
/// lease.release().await?;
/// quorum.close().await;
/// # std::fs::remove_dir_all(&dir)?;
/// # Ok(())
/// # }
/// ```
///
/// Each session has a thread of its own, because operations on locks and files block. The thread ends when
/// the session has been dropped and its batches have been executed, at most [`LINGER`] later. See the
/// [module](self) for what is not guaranteed.
#[derive(Clone, Debug)]
pub struct FileNode {
    dir: PathBuf,
    /// The path that the caller gave. It may contain symbolic links.
    given: PathBuf,
    name: Arc<str>,
    world: Arc<dyn World>,
    /// The boot id that a test sets in place of this machine's. In the same way, `machine` replaces the machine
    /// id and the host name.
    boot: Option<Arc<str>>,
    machine: Option<(Arc<str>, Arc<str>)>,
    /// True if a missing directory is an error. Otherwise the node creates it.
    must_exist: bool,
}

impl FileNode {
    /// Returns the node in `dir`, which is created on first use. Its name is `file://` and the absolute path.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self::with_world(dir, Arc::new(SystemWorld))
    }

    /// Returns the node like [`new`](Self::new), but with the clocks of `world`. Even then, the wait for the
    /// database takes real time.
    #[doc(hidden)]
    pub fn with_world(dir: impl Into<PathBuf>, world: Arc<dyn World>) -> Self {
        let given = dir.into();
        let given = std::path::absolute(&given).unwrap_or(given);
        let dir = paths::canonical(&given);
        let name = format!("file://{}", dir.display()).into();
        Self { dir, given, name, world, boot: None, machine: None, must_exist: false }
    }

    /// Makes the node unreachable if its directory does not exist. Without this setting, the node creates the
    /// directory. Programs that only inspect a node use this setting.
    #[must_use]
    pub fn must_exist(mut self) -> Self {
        self.must_exist = true;
        self
    }

    /// Replaces the host's boot id, to test the effect of a reboot.
    #[must_use]
    #[doc(hidden)]
    pub fn with_boot_id(mut self, id: &str) -> Self {
        self.boot = Some(id.into());
        self
    }

    /// Replaces the machine id (empty: none) and the host name, to test two machines that share a directory.
    /// Use [`with_boot_id`](Self::with_boot_id) as well: processes of the same boot are on the same machine.
    #[must_use]
    #[doc(hidden)]
    pub fn with_machine(mut self, id: &str, host: &str) -> Self {
        self.machine = Some((id.into(), host.into()));
        self
    }

    /// Returns the machine of this process, or the one that a test has set.
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

    /// Returns the names in the directory that `query` lists. The call excludes no session. It blocks while it
    /// reads.
    ///
    /// # Errors
    /// Returns an error if the directory cannot be read. A directory that does not exist is not an error: it
    /// has no names.
    #[doc(hidden)]
    pub fn stored_names(&self, query: &NamesQuery) -> std::io::Result<StoredNames> {
        let Some(connection) = database::connect_to_list(&self.dir)? else {
            return Ok(StoredNames::default());
        };
        let names = store::stored_names(&connection, query);
        Ok(names.map_err(|e| error::FileError::of_database(&database::file(&self.dir), &e))?)
    }

    /// Returns the node's directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

impl Node for FileNode {
    type Session = FileSession;

    fn name(&self) -> &str {
        &self.name
    }

    // Leases on this node end by the boot clock, so steps of the wall clock do not matter.
    fn ends_leases_by_wall_clock(&self) -> bool {
        false
    }

    async fn open(&self, push_sender: PushSender) -> Result<(FileSession, Hello), Cause> {
        let (hello_tx, hello) = oneshot::channel();
        let (jobs, inbox) = mpsc::channel();
        let node = self.clone();
        std::thread::Builder::new()
            .name("quorate-file".into())
            .spawn(move || worker::run(&node, &push_sender, hello_tx, inbox))
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
        // The send fails if the thread has ended. Then the reply channel is dropped with the job, and the
        // caller gets `Closed`.
        let _ = self.jobs.send(worker::Job { batch, reply: reply_tx });
        async move { reply.await.unwrap_or(Err(Cause::Closed)) }
    }
}
