//! The thread of one session. It waits for the directory's lock, executes the batches that have arrived, and
//! replies.

use super::disk::FileId;
use super::lock::{DirGuard, DirLock, LockAttempt};
use super::machine::{Machine, Record, Verdict};
use super::store::{Directory, FileError, Table, Transaction};
use super::sweep::Sweeper;
use super::{FileNode, LINGER, filesystem, machine};
use crate::{
    env::{BootTime, WallTime, World},
    node::{
        Batch, BatchReply, Cause, DataId, Hello, Push, PushSender, Refusal, Reply, Request,
        engine::{self, Clocks, Store},
    },
};
use std::{
    collections::VecDeque,
    path::Path,
    sync::{Arc, mpsc},
    time::Duration,
};
use tokio::sync::oneshot;

/// The longest time that the thread waits for the directory's lock in one try. Between two tries, it receives
/// new batches and answers those whose deadline has passed.
const LOCK_TRY: Duration = Duration::from_millis(5);

/// A batch and the channel for its reply.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) batch: Batch,
    pub(super) reply: oneshot::Sender<Result<BatchReply, Cause>>,
}

/// Runs the thread of a session. The thread ends when `inbox` is closed and empty, or when the directory can
/// no longer be used.
pub(super) fn run(
    node: &FileNode,
    push_sender: &PushSender,
    hello: oneshot::Sender<Result<Hello, Cause>>,
    inbox: mpsc::Receiver<Job>,
) {
    match SessionWorker::open(node, || hello.is_closed()) {
        Ok(Some((lock, worker, facts))) => {
            if hello.send(Ok(facts)).is_ok() {
                worker.serve(&lock, &inbox, push_sender);
            }
        }
        // The caller of `FileNode::open` has stopped waiting, so this thread sends no answer.
        Ok(None) => {}
        Err(cause) => drop(hello.send(Err(cause))),
    }
}

/// The identity of a directory, which is created when the directory is first used.
#[derive(serde::Serialize, serde::Deserialize)]
struct Identity {
    run_id: Arc<str>,
    since_micros: u64,
    /// The lock file that the directory had then. A copy of the directory has another one.
    #[serde(default)]
    lock: Option<FileId>,
    /// True if the directory is a copy, so that its data may be older than what workers have seen.
    #[serde(default)]
    is_copied: bool,
}

pub(super) struct SessionWorker {
    world: Arc<dyn World>,
    machine: Machine,
    dir: Directory,
    sweeper: Sweeper,
    pending: VecDeque<PendingBatch>,
    /// The time at which this thread noticed that the session was dropped.
    dropped: Option<BootTime>,
}

/// A batch that has not been executed yet.
struct PendingBatch {
    batch: Batch,
    /// The channel for the reply. `None` once the batch was answered with *timed out*. From then on, only its
    /// releases remain to be executed.
    reply: Option<oneshot::Sender<Result<BatchReply, Cause>>>,
    /// The batch's `not_after`, converted to the boot clock.
    not_after: BootTime,
}

impl SessionWorker {
    /// Opens the directory. Returns `None` if `abandoned` returned true before the lock was acquired.
    pub(super) fn open(
        node: &FileNode,
        abandoned: impl Fn() -> bool,
    ) -> Result<Option<(DirLock, Self, Hello)>, Cause> {
        let root = node.dir();
        let failed = |e: FileError| e.cause(Cause::Unreachable);
        let machine =
            node.machine().map_err(|e| failed(FileError::new(root, "be used without a boot id", &e)))?;
        let dir =
            Directory::new(root, Arc::clone(&machine.boot), Arc::clone(&node.world), Arc::clone(&node.disk));
        loop {
            if node.must_exist && !root.exists() {
                let why = format!(
                    "{} does not exist; the first worker that uses the node creates it",
                    root.display()
                );
                return Err(Cause::Unreachable(why.into()));
            }
            dir.create(&node.given).map_err(failed)?;
            refuse_shared(root)?;
            let path = root.join("lock");
            let unlockable = |e| failed(FileError::new(&path, "be locked", &e));
            let lock = DirLock::open(dir.disk(), &path).map_err(unlockable)?;
            while !abandoned() {
                let hello = match lock.attempt(LOCK_TRY).map_err(unlockable)? {
                    LockAttempt::Locked(guard) => {
                        dir.sync_leftovers(&guard).map_err(failed)?;
                        claim_for(&dir, &guard, &machine)?;
                        read_identity(&dir, (&guard, lock.id()), &*node.world)?
                    }
                    LockAttempt::Busy => continue,
                    LockAttempt::Replaced => break,
                };
                let world = Arc::clone(&node.world);
                let sweeper = Sweeper::default();
                let worker = Self { world, machine, dir, sweeper, pending: VecDeque::new(), dropped: None };
                return Ok(Some((lock, worker, hello)));
            }
            if abandoned() {
                return Ok(None);
            }
        }
    }

    fn serve(mut self, lock: &DirLock, inbox: &mpsc::Receiver<Job>, push_sender: &PushSender) {
        while self.receive(inbox) {
            if !self.run_pending(lock) {
                return push_sender.push(Push::Closed(Cause::Closed));
            }
        }
    }

    /// Runs the pending batches if the directory's lock is free. Returns `false` if the session must end.
    pub(super) fn run_pending(&mut self, lock: &DirLock) -> bool {
        let usable = match lock.attempt(LOCK_TRY) {
            Ok(LockAttempt::Locked(guard)) => self.usable(&guard).map(|()| {
                let (world, dir, sweeper) = (&*self.world, &self.dir, &mut self.sweeper);
                self.pending.drain(..).for_each(|batch| batch.run(world, dir, &guard, sweeper));
            }),
            Ok(LockAttempt::Busy) => {
                self.time_out();
                Ok(())
            }
            Ok(LockAttempt::Replaced) => return false,
            Err(e) => {
                Err(FileError::new(&self.dir.root().join("lock"), "be locked", &e).cause(Cause::Unreachable))
            }
        };
        let Err(cause) = usable else { return true };
        self.pending.drain(..).for_each(|batch| batch.answer(Err(cause.clone())));
        false
    }

    /// Checks that the directory can be used, after this session has locked it again.
    fn usable(&self, guard: &DirGuard) -> Result<(), Cause> {
        self.dir.sync_leftovers(guard).map_err(|e| e.cause(Cause::Unreachable))?;
        still_ours(&self.dir, &self.machine)
    }

    /// Receives the batches that have arrived. If no batch is pending, waits for one. Returns `false` if no
    /// batch is pending and the session has been dropped.
    fn receive(&mut self, inbox: &mpsc::Receiver<Job>) -> bool {
        if self.pending.is_empty() {
            let Ok(job) = inbox.recv() else { return false };
            self.enqueue(job);
        }
        loop {
            match inbox.try_recv() {
                Ok(job) => self.enqueue(job),
                Err(mpsc::TryRecvError::Empty) => return true,
                Err(mpsc::TryRecvError::Disconnected) => {
                    self.dropped.get_or_insert(self.world.now());
                    return true;
                }
            }
        }
    }

    pub(super) fn enqueue(&mut self, Job { batch, reply }: Job) {
        let not_after = self.world.now() + self.world.wall().until(batch.not_after);
        self.pending.push_back(PendingBatch { batch, reply: Some(reply), not_after });
    }

    /// Answers *timed out* for the batches whose `not_after` has passed. Their releases stay pending, since an
    /// abandoned attempt may hold a lease. Once the session has been dropped, the releases stay pending for
    /// [`LINGER`] at most.
    fn time_out(&mut self) {
        let (now, wall) = (self.world.now(), self.world.wall());
        self.pending.retain_mut(|pending| pending.is_in_time(now, wall));
        if self.dropped.is_some_and(|at| at + LINGER <= now) {
            self.pending.clear();
        }
    }
}

impl PendingBatch {
    fn is_in_time(&mut self, now: BootTime, wall: WallTime) -> bool {
        if now <= self.not_after && wall <= self.batch.not_after {
            return true;
        }
        if let Some(reply) = self.reply.take() {
            let _ = reply.send(Err(Cause::TimedOut));
        }
        // Only the releases are kept. The deadline of the other requests has passed, so the node would refuse
        // them.
        self.batch.requests.retain(Request::is_release);
        !self.batch.requests.is_empty()
    }

    /// Runs the batch, while `guard` holds the directory's lock.
    fn run(self, world: &dyn World, dir: &Directory, guard: &DirGuard, sweeper: &mut Sweeper) {
        let clocks = Clocks { wall: world.wall(), lease_nanos: world.now().as_nanos() };
        let mut store = Transaction::new(dir);
        let mut reply = engine::run(&mut store, &self.batch, clocks);
        let written = store.commit(guard).unwrap_or_else(|e| {
            // It is not known which changes of the batch have been stored. So every request that makes a change
            // is answered with the error.
            let failed = Reply::Refused(Refusal::Unable(e.to_string().into()));
            for (request, reply) in self.batch.requests.iter().zip(&mut reply.replies) {
                if request.sets_a_key() || request.is_release() {
                    *reply = failed.clone();
                }
            }
            0
        });
        self.answer(Ok(reply));
        sweeper.sweep(dir, guard, clocks, written);
    }

    fn answer(self, result: Result<BatchReply, Cause>) {
        if let Some(reply) = self.reply {
            // The send fails if the caller has stopped waiting. The batch has been executed nevertheless.
            let _ = reply.send(result);
        }
    }
}

/// Reads the directory's identity, or creates it when the directory is first used. The caller must hold the
/// directory's lock.
///
/// A directory that was copied, or put back from a copy, has another lock file than the one that its identity names. It
/// gets a new run id, so that it counts as restarted with older data.
fn read_identity(
    dir: &Directory,
    (guard, lock): (&DirGuard, FileId),
    world: &dyn World,
) -> Result<Hello, Cause> {
    let unreadable = |e: FileError| e.cause(Cause::Protocol);
    let failed = |e: FileError| e.cause(Cause::Unreachable);
    let wall = world.wall();
    let mut store = Transaction::new(dir);
    let stored: Option<Identity> = store.read(Table::Root, "identity").map_err(unreadable)?;
    let identity = match stored {
        Some(identity) if identity.lock == Some(lock) => identity,
        stored => {
            let run_id = || format!("file:{:016x}{:016x}", world.random(), world.random()).into();
            let identity = match stored {
                // An earlier version has created the directory, and did not note the lock file.
                Some(identity) if identity.lock.is_none() => Identity { lock: Some(lock), ..identity },
                Some(_) => {
                    tracing::warn!(
                        directory = %dir.root().display(),
                        "the directory was copied or put back from a copy; it counts as a restarted node with older data"
                    );
                    let since_micros = wall.as_micros();
                    Identity { run_id: run_id(), since_micros, lock: Some(lock), is_copied: true }
                }
                None => {
                    let since_micros = wall.as_micros();
                    Identity { run_id: run_id(), since_micros, lock: Some(lock), is_copied: false }
                }
            };
            // The directory may be new too. Its name is synced before it has an identity. So a directory with an
            // identity survives a power loss, also if this process dies now.
            dir.sync_own_name().map_err(failed)?;
            store.write(Table::Root, "identity", &identity).map_err(failed)?;
            identity
        }
    };
    let marker = store.marker().map_err(unreadable)?;
    let stamps = store.stamps().map_err(unreadable)?;
    store.commit(guard).map_err(failed)?;
    let since = WallTime::from_micros(identity.since_micros);
    Ok(Hello {
        node_time: wall,
        data: Some(DataId { id: Arc::clone(&identity.run_id), is_copied: identity.is_copied }),
        run_id: identity.run_id,
        marker,
        stamps,
        uptime: since.until(wall).min(Duration::from_secs(u32::MAX.into())),
        version: "file".into(),
        replica: false,
        eviction: Some("noeviction".into()),
        durable: Some(true),
        volatile: None,
        unable: None,
    })
}

/// The name of the row that contains the machine's [`Record`].
const MACHINE: &str = "machine";

/// Records that `machine` uses the directory, unless the directory belongs to another machine. The caller must
/// hold the directory's lock.
fn claim_for(dir: &Directory, guard: &DirGuard, machine: &Machine) -> Result<(), Cause> {
    let unreadable = |e: FileError| e.cause(Cause::Protocol);
    let mut store = Transaction::new(dir);
    let record: Option<Record> = store.read(Table::Root, MACHINE).map_err(unreadable)?;
    match machine::judge(record.as_ref(), machine) {
        Verdict::Ours => Ok(()),
        Verdict::Write(new) => {
            let written = store.write(Table::Root, MACHINE, &new).and_then(|()| store.commit(guard));
            written.map(drop).map_err(|e| e.cause(Cause::Unreachable))
        }
        Verdict::Foreign(record) => Err(foreign(dir, &record, machine)),
    }
}

/// Checks that no other machine has taken over the directory since [`claim_for`]. The caller must hold the
/// directory's lock.
fn still_ours(dir: &Directory, machine: &Machine) -> Result<(), Cause> {
    match Transaction::new(dir).read::<Record>(Table::Root, MACHINE) {
        Ok(Some(record)) if !machine::is_still_ours(&record, machine) => Err(foreign(dir, &record, machine)),
        Ok(_) => Ok(()),
        Err(e) => Err(e.cause(Cause::Protocol)),
    }
}

fn foreign(dir: &Directory, record: &Record, machine: &Machine) -> Cause {
    let file = dir.path(Table::Root, MACHINE);
    Cause::Denied(machine::refusal(dir.root(), &file, record, machine).into())
}

fn refuse_shared(root: &Path) -> Result<(), Cause> {
    let shared = filesystem::shared_below(root)
        .map_err(|e| FileError::new(root, "be looked at", &e).cause(Cause::Unreachable))?;
    let Some(name) = shared else { return Ok(()) };
    let root = root.display();
    let why = format!(
        "{root} is on a file system that other machines can mount too ({name}), and a file node serves one machine; \
         name a directory on a disk of this machine (ext4, xfs, btrfs, tmpfs …)"
    );
    Err(Cause::Denied(why.into()))
}
