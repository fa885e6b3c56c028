//! The thread of one session. It executes the batches that have arrived, each in a transaction, and replies.

use super::database::{Begin, Database, Durability};
use super::machine::{Machine, Record, Verdict};
use super::store::{Identity, Kind, Rows};
use super::{FileNode, LINGER, access, error::FileError, filesystem, machine};
use crate::{
    env::{BootTime, WallTime, World},
    node::{
        Batch, BatchReply, Cause, DataId, Hello, Push, PushSender, Refusal, Reply, Request,
        engine::{self, Clocks, Store},
    },
};
use std::{
    collections::VecDeque,
    io::{self, ErrorKind},
    path::Path,
    sync::{Arc, mpsc},
    time::Duration,
};
use tokio::sync::oneshot;

/// The number of ended rows of each kind that may be removed for each request. It must be more than the rows that a
/// request writes, so that the removal keeps up.
const SWEEP_PER_REQUEST: usize = 4;
/// The number that must have come together before rows are removed: most batches take no time for it.
const SWEEP_MIN: usize = 64;

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
        Ok(Some((worker, facts))) => {
            if hello.send(Ok(facts)).is_ok() {
                worker.serve(&inbox, push_sender);
            }
        }
        // The caller of `FileNode::open` has stopped waiting, so this thread sends no answer.
        Ok(None) => {}
        Err(cause) => drop(hello.send(Err(cause))),
    }
}

struct SessionWorker {
    world: Arc<dyn World>,
    machine: Machine,
    database: Database,
    pending: VecDeque<PendingBatch>,
    /// The number of ended rows of each kind that the next sweep may remove.
    to_sweep: usize,
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
    /// Opens the directory. Returns `None` if `abandoned` returned true before the database was free.
    fn open(node: &FileNode, abandoned: impl Fn() -> bool) -> Result<Option<(Self, Hello)>, Cause> {
        let root = node.dir();
        let failed = |verb, e: &io::Error| FileError::new(root, verb, e).cause();
        let machine = node.machine().map_err(|e| failed("be used without a boot id", &e))?;
        while !abandoned() {
            if node.must_exist && !root.exists() {
                let why = format!(
                    "{} does not exist; the first worker that uses the node creates it",
                    root.display()
                );
                return Err(Cause::Unreachable(why.into()));
            }
            access::secure_root(&node.given, root).map_err(|e| failed("be used", &e))?;
            refuse_shared(root)?;
            let Some(database) = Database::open(root).map_err(FileError::cause)? else { continue };
            if let Some(hello) = begin(node, &database, &machine, &abandoned)? {
                let world = Arc::clone(&node.world);
                let worker =
                    Self { world, machine, database, pending: VecDeque::new(), to_sweep: 0, dropped: None };
                return Ok(Some((worker, hello)));
            }
        }
        Ok(None)
    }

    fn serve(mut self, inbox: &mpsc::Receiver<Job>, push_sender: &PushSender) {
        while self.receive(inbox) {
            if !self.run_pending() {
                return push_sender.push(Push::Closed(Cause::Closed));
            }
        }
    }

    /// Runs the pending batches until another session has the database. Returns `false` if the session must end.
    fn run_pending(&mut self) -> bool {
        while let Some(next) = self.pending.pop_front() {
            match self.execute(&next.batch) {
                Ok(Some(reply)) => next.answer(Ok(reply)),
                Ok(None) => {
                    self.pending.push_front(next);
                    self.time_out();
                    return true;
                }
                Err(cause) => {
                    self.pending.push_front(next);
                    self.pending.drain(..).for_each(|batch| batch.answer(Err(cause.clone())));
                    return false;
                }
            }
        }
        true
    }

    /// Executes a batch. Returns `None` if another session has the database. An error ends the session.
    fn execute(&mut self, batch: &Batch) -> Result<Option<BatchReply>, Cause> {
        let durability = durability(batch);
        let transaction = match self.database.begin(durability).map_err(FileError::cause)? {
            Begin::Begun(transaction) => transaction,
            Begin::Busy => return Ok(None),
            Begin::Replaced => return Err(Cause::Closed),
        };
        let mut rows = Rows::new(&self.database, transaction, durability);
        still_ours(&self.database, &rows, &self.machine)?;
        let clocks = Clocks { wall: self.world.wall(), lease_nanos: self.world.now().as_nanos() };
        let mut reply = engine::run(&mut rows, batch, clocks);
        self.to_sweep += SWEEP_PER_REQUEST * batch.requests.len();
        let swept = if self.to_sweep < SWEEP_MIN {
            Ok(())
        } else {
            rows.sweep(clocks, std::mem::take(&mut self.to_sweep))
        };
        if let Err(e) = swept.and_then(|()| rows.commit()) {
            let failed = Reply::Refused(Refusal::Unable(e.to_string().into()));
            for (request, reply) in batch.requests.iter().zip(&mut reply.replies) {
                if request.sets_a_key() || request.is_release() {
                    *reply = failed.clone();
                }
            }
        }
        Ok(Some(reply))
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

    fn enqueue(&mut self, Job { batch, reply }: Job) {
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

    fn answer(self, result: Result<BatchReply, Cause>) {
        if let Some(reply) = self.reply {
            // The send fails if the caller has stopped waiting. The batch has been executed nevertheless.
            let _ = reply.send(result);
        }
    }
}

/// Returns whether the changes of a batch must survive a power loss. Leases and queues need not: they are void after it.
fn durability(batch: &Batch) -> Durability {
    let changes_only_leases = |request: &Request| {
        request.is_release()
            || !request.sets_a_key()
            || matches!(
                request,
                Request::Reserve { .. }
                    | Request::Share { .. }
                    | Request::ExtendShare { .. }
                    | Request::Downgrade { .. }
                    | Request::Queue { .. }
            )
    };
    if batch.requests.iter().all(changes_only_leases) { Durability::Unsynced } else { Durability::Synced }
}

/// Begins a session on `database`. Returns `None` if the database was replaced, or `abandoned` returned true.
fn begin(
    node: &FileNode,
    database: &Database,
    machine: &Machine,
    abandoned: impl Fn() -> bool,
) -> Result<Option<Hello>, Cause> {
    while !abandoned() {
        match database.begin(Durability::Synced).map_err(FileError::cause)? {
            Begin::Begun(transaction) => {
                database.create_tables(&transaction).map_err(FileError::cause)?;
                let rows = Rows::new(database, transaction, Durability::Synced);
                claim_for(node.dir(), database, &rows, machine)?;
                let wall = node.world.wall();
                let hello = identify(node, database, &rows, wall).map_err(FileError::cause)?;
                // A process may have died after it appended a commit and before it synced it, and SQLite may have
                // recovered this commit just now. This commit syncs it too, before a batch can read it.
                rows.write(Kind::Node, "opened", u64::MAX, &wall.as_micros()).map_err(FileError::cause)?;
                rows.commit().map_err(FileError::cause)?;
                return Ok(Some(hello));
            }
            Begin::Busy => {}
            Begin::Replaced => break,
        }
    }
    Ok(None)
}

/// Reads the directory's identity, or creates it when the directory is first used.
///
/// A directory that was copied, or put back from a copy, has another file than the one that its identity names. It
/// gets a new run id, so that it counts as restarted with older data.
fn identify(
    node: &FileNode,
    database: &Database,
    rows: &Rows<'_>,
    wall: WallTime,
) -> Result<Hello, FileError> {
    let stored: Option<Identity> = rows.read(Kind::Node, "identity")?;
    let identity = match stored {
        Some(identity) if identity.file == database.id() => identity,
        stored => {
            let is_copied = stored.is_some();
            if is_copied {
                tracing::warn!(
                    directory = %node.dir().display(),
                    "the directory was copied or put back from a copy; it counts as a restarted node with older data"
                );
            }
            // The directory may be new too. Its name is synced before it has an identity. So a directory with an
            // identity survives a power loss, also if this process dies now.
            access::sync_names(node.dir()).map_err(|e| FileError::new(node.dir(), "be synced", &e))?;
            let run_id = format!("file:{:016x}{:016x}", node.world.random(), node.world.random()).into();
            let (file, since_micros) = (database.id(), wall.as_micros());
            let identity = Identity { run_id, since_micros, file, is_copied };
            rows.write(Kind::Node, "identity", u64::MAX, &identity)?;
            identity
        }
    };
    let since = WallTime::from_micros(identity.since_micros);
    Ok(Hello {
        node_time: wall,
        data: Some(DataId { id: Arc::clone(&identity.run_id), is_copied: identity.is_copied }),
        run_id: identity.run_id,
        marker: rows.marker()?,
        stamps: rows.stamps()?,
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

/// Records that `machine` uses the directory, unless the directory belongs to another machine. Removes the leases of
/// another boot.
fn claim_for(root: &Path, database: &Database, rows: &Rows<'_>, machine: &Machine) -> Result<(), Cause> {
    let record: Option<Record> = rows.read(Kind::Node, MACHINE).map_err(FileError::cause)?;
    // An operator creates this file if the recorded machine is gone.
    let order = root.join(machine::TAKE_OVER);
    let record = match std::fs::remove_file(&order) {
        Ok(()) => None,
        Err(e) if e.kind() == ErrorKind::NotFound => record,
        Err(e) => return Err(FileError::new(&order, "be removed", &e).cause()),
    };
    let is_other_boot = record.as_ref().is_none_or(|record| !machine::is_still_ours(record, machine));
    match machine::judge(record.as_ref(), machine) {
        Verdict::Ours => Ok(()),
        Verdict::Write(new) => {
            let removed = if is_other_boot { rows.remove_leases() } else { Ok(()) };
            removed.and_then(|()| rows.write(Kind::Node, MACHINE, u64::MAX, &new)).map_err(FileError::cause)
        }
        Verdict::Foreign(record) => Err(foreign(database, &record, machine)),
    }
}

/// Checks that no other machine has taken over the directory since [`claim_for`].
fn still_ours(database: &Database, rows: &Rows<'_>, machine: &Machine) -> Result<(), Cause> {
    match rows.read::<Record>(Kind::Node, MACHINE).map_err(FileError::cause)? {
        Some(record) if !machine::is_still_ours(&record, machine) => Err(foreign(database, &record, machine)),
        _ => Ok(()),
    }
}

fn foreign(database: &Database, record: &Record, machine: &Machine) -> Cause {
    let root = database.path().parent().unwrap_or(database.path());
    Cause::Denied(machine::refusal(root, record, machine).into())
}

fn refuse_shared(root: &Path) -> Result<(), Cause> {
    let shared =
        filesystem::shared_below(root).map_err(|e| FileError::new(root, "be looked at", &e).cause())?;
    let Some(name) = shared else { return Ok(()) };
    let root = root.display();
    let why = format!(
        "{root} is on a file system that other machines can mount too ({name}), and a file node serves one machine; \
         name a directory on a disk of this machine (ext4, xfs, btrfs, tmpfs …)"
    );
    Err(Cause::Denied(why.into()))
}
