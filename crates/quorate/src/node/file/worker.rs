//! The thread of one session: it waits for the lock, runs what has gathered, and answers.

use super::lock::{Attempt, DirLock};
use super::machine::{Machine, Record, Verdict};
use super::store::{Directory, FileError, Shelf, Transaction, sync_dir};
use super::sweep::Sweeper;
use super::{FileNode, LINGER, filesystem, machine};
use crate::{
    env::{BootTime, WallTime, World},
    node::{
        Batch, BatchReply, Cause, Hello, Nudge, Push, Refusal, Reply, Request,
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

/// How long one try for the lock takes: what comes in, or passes its time, is looked at this often.
const PATIENCE: Duration = Duration::from_millis(5);

/// A batch and where its reply goes.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) batch: Batch,
    pub(super) reply: oneshot::Sender<Result<BatchReply, Cause>>,
}

/// The whole life of the thread. It ends when `inbox` is closed and empty, or the directory was replaced.
pub(super) fn run(
    node: &FileNode,
    nudge: &Nudge,
    hello: oneshot::Sender<Result<Hello, Cause>>,
    inbox: mpsc::Receiver<Job>,
) {
    match Desk::open(node, || hello.is_closed()) {
        Ok(Some((lock, desk, said))) => {
            if hello.send(Ok(said)).is_ok() {
                desk.serve(&lock, &inbox, nudge);
            }
        }
        // Nobody waits any more.
        Ok(None) => {}
        Err(cause) => drop(hello.send(Err(cause))),
    }
}

/// Who this directory is, drawn when it is first used.
#[derive(serde::Serialize, serde::Deserialize)]
struct Identity {
    run_id: Arc<str>,
    since_micros: u64,
}

struct Desk {
    world: Arc<dyn World>,
    machine: Machine,
    dir: Directory,
    sweeper: Sweeper,
    queue: VecDeque<Waiting>,
    /// When the session was found dropped.
    dropped: Option<BootTime>,
}

/// A batch that has not run.
struct Waiting {
    batch: Batch,
    /// `None` once it has been answered *timed out*; what is left are its releases.
    reply: Option<oneshot::Sender<Result<BatchReply, Cause>>>,
    /// The batch's `not_after` on the boot clock.
    not_after: BootTime,
}

impl Desk {
    /// `None` where `abandoned` came true before the lock was had.
    fn open(node: &FileNode, abandoned: impl Fn() -> bool) -> Result<Option<(DirLock, Self, Hello)>, Cause> {
        let root = node.dir();
        let failed = |e: FileError| e.cause(Cause::Unreachable);
        let machine =
            node.machine().map_err(|e| failed(FileError::new(root, "be used without a boot id", &e)))?;
        let dir = Directory::new(root, Arc::clone(&machine.boot), Arc::clone(&node.world));
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
            let lock = DirLock::open(&path).map_err(unlockable)?;
            while !abandoned() {
                let hello = match lock.attempt(PATIENCE).map_err(unlockable)? {
                    Attempt::Held(_held) => {
                        enter(&dir, &machine)?;
                        hello(&dir, &*node.world)?
                    }
                    Attempt::Busy => continue,
                    Attempt::Replaced => break,
                };
                let world = Arc::clone(&node.world);
                let sweeper = Sweeper::default();
                let desk = Self { world, machine, dir, sweeper, queue: VecDeque::new(), dropped: None };
                return Ok(Some((lock, desk, hello)));
            }
            if abandoned() {
                return Ok(None);
            }
        }
    }

    fn serve(mut self, lock: &DirLock, inbox: &mpsc::Receiver<Job>, nudge: &Nudge) {
        while self.gather(inbox) {
            match lock.attempt(PATIENCE) {
                Ok(Attempt::Held(_held)) => {
                    if let Err(cause) = still_ours(&self.dir, &self.machine) {
                        self.queue.drain(..).for_each(|waiting| waiting.answer(Err(cause.clone())));
                        return nudge.push(Push::Closed);
                    }
                    let (world, dir, sweeper) = (&*self.world, &self.dir, &mut self.sweeper);
                    self.queue.drain(..).for_each(|waiting| waiting.run(world, dir, sweeper));
                }
                Ok(Attempt::Busy) => self.give_up(),
                Ok(Attempt::Replaced) => return nudge.push(Push::Closed),
                Err(e) => {
                    let cause = FileError::new(&self.dir.root().join("lock"), "be locked", &e).to_string();
                    let cause = Cause::Unreachable(cause.into());
                    self.queue.drain(..).for_each(|waiting| waiting.answer(Err(cause.clone())));
                    return nudge.push(Push::Closed);
                }
            }
        }
    }

    /// Takes in what has come, waiting if there is nothing to do. `false` when nothing is left and nothing
    /// can come.
    fn gather(&mut self, inbox: &mpsc::Receiver<Job>) -> bool {
        if self.queue.is_empty() {
            let Ok(job) = inbox.recv() else { return false };
            self.admit(job);
        }
        loop {
            match inbox.try_recv() {
                Ok(job) => self.admit(job),
                Err(mpsc::TryRecvError::Empty) => return true,
                Err(mpsc::TryRecvError::Disconnected) => {
                    self.dropped.get_or_insert(self.world.now());
                    return true;
                }
            }
        }
    }

    fn admit(&mut self, Job { batch, reply }: Job) {
        let not_after = self.world.now() + self.world.wall().until(batch.not_after);
        self.queue.push_back(Waiting { batch, reply: Some(reply), not_after });
    }

    /// Answers what has waited too long for the lock. Its releases stay while the session lives: they free
    /// what an abandoned attempt may hold.
    fn give_up(&mut self) {
        let (now, wall) = (self.world.now(), self.world.wall());
        self.queue.retain_mut(|waiting| waiting.is_worth_waiting(now, wall));
        if self.dropped.is_some_and(|at| at + LINGER <= now) {
            self.queue.clear();
        }
    }
}

impl Waiting {
    fn is_worth_waiting(&mut self, now: BootTime, wall: WallTime) -> bool {
        if now <= self.not_after && wall <= self.batch.not_after {
            return true;
        }
        if let Some(reply) = self.reply.take() {
            let _ = reply.send(Err(Cause::TimedOut));
        }
        // The node would refuse the rest for its time, unless the wall clock stepped back meanwhile.
        self.batch.requests.retain(Request::is_release);
        !self.batch.requests.is_empty()
    }

    /// Under the directory's lock.
    fn run(self, world: &dyn World, dir: &Directory, sweeper: &mut Sweeper) {
        let clocks = Clocks { wall: world.wall(), lease_nanos: world.now().as_nanos() };
        let mut store = Transaction::new(dir);
        let mut reply = engine::run(&mut store, &self.batch, clocks);
        let written = store.commit().unwrap_or_else(|e| {
            // Nothing that the batch was to change is known to stand.
            let failed = Reply::Refused(Refusal::Failed(e.to_string().into()));
            for (request, reply) in self.batch.requests.iter().zip(&mut reply.replies) {
                if request.sets_a_key() || request.is_release() {
                    *reply = failed.clone();
                }
            }
            0
        });
        self.answer(Ok(reply));
        sweeper.sweep(dir, clocks, written);
    }

    fn answer(self, answer: Result<BatchReply, Cause>) {
        if let Some(reply) = self.reply {
            // The asker may have gone; the batch has run all the same.
            let _ = reply.send(answer);
        }
    }
}

/// Reads, or on first use draws, the identity. Only under the directory's lock.
fn hello(dir: &Directory, world: &dyn World) -> Result<Hello, Cause> {
    let torn = |e: FileError| e.cause(Cause::Protocol);
    let failed = |e: FileError| e.cause(Cause::Unreachable);
    let wall = world.wall();
    let mut store = Transaction::new(dir);
    let identity = match store.read(Shelf::Root, "identity").map_err(torn)? {
        Some(identity) => identity,
        None => {
            let run_id = format!("file:{:016x}{:016x}", world.random(), world.random()).into();
            let identity = Identity { run_id, since_micros: wall.as_micros() };
            store.write(Shelf::Root, "identity", &identity).map_err(failed)?;
            identity
        }
    };
    let marker = store.marker().map_err(torn)?;
    if store.commit().map_err(failed)? > 0 {
        // The directory itself is new as well.
        dir.root().parent().map_or(Ok(()), sync_dir).map_err(failed)?;
    }
    let since = WallTime::from_micros(identity.since_micros);
    Ok(Hello {
        node_time: wall,
        run_id: identity.run_id,
        marker,
        uptime: since.until(wall).min(Duration::from_secs(u32::MAX.into())),
        version: "file".into(),
        replica: false,
        eviction: Some("noeviction".into()),
        durable: Some(true),
        volatile: None,
    })
}

/// The name of the row that holds a [`Record`].
const MACHINE: &str = "machine";

/// Records that `machine` uses the directory, unless it is another machine's. Only under the directory's lock.
fn enter(dir: &Directory, machine: &Machine) -> Result<(), Cause> {
    let torn = |e: FileError| e.cause(Cause::Protocol);
    let mut store = Transaction::new(dir);
    let record: Option<Record> = store.read(Shelf::Root, MACHINE).map_err(torn)?;
    match machine::judge(record.as_ref(), machine) {
        Verdict::Ours => Ok(()),
        Verdict::Write(new) => {
            let written = store.write(Shelf::Root, MACHINE, &new).and_then(|()| store.commit());
            written.map(drop).map_err(|e| e.cause(Cause::Unreachable))
        }
        Verdict::Foreign(record) => Err(foreign(dir, &record, machine)),
    }
}

/// Checks that no other machine has taken the directory since [`enter`]. Only under the directory's lock.
fn still_ours(dir: &Directory, machine: &Machine) -> Result<(), Cause> {
    match Transaction::new(dir).read::<Record>(Shelf::Root, MACHINE) {
        Ok(Some(record)) if !machine::is_still_ours(&record, machine) => Err(foreign(dir, &record, machine)),
        Ok(_) => Ok(()),
        Err(e) => Err(e.cause(Cause::Protocol)),
    }
}

fn foreign(dir: &Directory, record: &Record, machine: &Machine) -> Cause {
    let file = dir.path(Shelf::Root, MACHINE);
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
