//! The work of the processes: two of them use one directory by turns, with every kind of row.

use super::{
    super::{FileNode, lock::DirLock, worker::Job, worker::SessionWorker},
    recorder::{ProcessDisk, Recording},
};
use crate::{
    env::{BootTime, SystemWorld, WallTime, World},
    node::{
        Batch, BatchReply, Cause, DoneRecord, FencingToken, Hello, NodeTime, Owner, Record, Reply, Request,
        Resource, StampStep,
    },
};
use futures_util::future::BoxFuture;
use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::sync::oneshot;
use tokio_util::task::TaskTracker;

const HOUR: Duration = Duration::from_secs(3600);
pub(super) const BEGIN: u64 = 1_000_000;

/// Clocks that the test moves, and numbers that are the same in each run.
#[derive(Debug)]
pub(super) struct CrashWorld {
    now_secs: AtomicU64,
    wall_secs: AtomicU64,
    random: AtomicU64,
}

impl CrashWorld {
    pub(super) fn new(now_secs: u64, wall_secs: u64, random: u64) -> Arc<Self> {
        let at = AtomicU64::new;
        Arc::new(Self { now_secs: at(now_secs), wall_secs: at(wall_secs), random: at(random) })
    }

    /// Returns the boot clock and the wall clock, in seconds.
    pub(super) fn at(&self) -> (u64, u64) {
        (self.now_secs.load(Ordering::Relaxed), self.wall_secs.load(Ordering::Relaxed))
    }

    pub(super) fn pass(&self, secs: u64) {
        self.now_secs.fetch_add(secs, Ordering::Relaxed);
        self.wall_secs.fetch_add(secs, Ordering::Relaxed);
    }
}

impl World for CrashWorld {
    fn now(&self) -> BootTime {
        BootTime::from_nanos(self.now_secs.load(Ordering::Relaxed) * 1_000_000_000)
    }
    fn wall(&self) -> WallTime {
        WallTime::from_micros(self.wall_secs.load(Ordering::Relaxed) * 1_000_000)
    }
    fn random(&self) -> u64 {
        self.random.fetch_add(1, Ordering::Relaxed)
    }
    fn sleep_until(&self, at: BootTime) -> BoxFuture<'static, ()> {
        SystemWorld.sleep_until(at)
    }
    fn spawn(&self, tasks: &TaskTracker, work: BoxFuture<'static, ()>) {
        SystemWorld.spawn(tasks, work);
    }
}

/// The directory of the node below the home of a test. Its parent does not exist at first.
pub(super) fn node_dir(home: &Path) -> PathBuf {
    home.join("up/node")
}

/// A process with one session, without a thread: each batch runs when it is sent.
pub(super) struct Process {
    disk: Arc<ProcessDisk>,
    recording: Arc<Recording>,
    lock: DirLock,
    worker: SessionWorker,
}

impl Process {
    /// Opens the node below `home`. Returns `None` if the process was killed meanwhile.
    pub(super) fn open(
        recording: &Arc<Recording>,
        home: &Path,
        world: &Arc<CrashWorld>,
        boot: &str,
    ) -> Option<Result<(Self, Hello), Cause>> {
        let disk = recording.process();
        let mut node = FileNode::with_world(node_dir(home), Arc::clone(world) as Arc<dyn World>)
            .with_boot_id(boot)
            .with_machine("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "host");
        node.disk = Arc::clone(&disk) as _;
        let opened = SessionWorker::open(&node, || false);
        if disk.is_killed() {
            return None;
        }
        Some(opened.map(|opened| {
            let (lock, worker, hello) = opened.unwrap();
            recording.answered();
            (Self { disk, recording: Arc::clone(recording), lock, worker }, hello)
        }))
    }

    /// Sends a batch. Returns `None` if the process was killed before it answered.
    pub(super) fn send(&mut self, requests: Vec<Request>) -> Option<Result<BatchReply, Cause>> {
        let not_after = NodeTime::from_micros(u64::MAX);
        let (reply, answer) = oneshot::channel();
        self.recording.expect(answer);
        self.worker.enqueue(Job { batch: Batch { requests, not_after, stamp: "m".into() }, reply });
        self.worker.run_pending(&self.lock);
        self.recording.answer(self.is_killed())
    }

    pub(super) fn is_killed(&self) -> bool {
        self.disk.is_killed()
    }
}

/// A batch of the workload: the time that passes before it, the process that sends it, and its requests.
pub(super) struct Step {
    pub(super) secs: u64,
    pub(super) process: usize,
    pub(super) requests: Vec<Request>,
}

fn lock(name: &str) -> Resource {
    Resource::lock(name).unwrap()
}

fn claim(id: &str) -> Resource {
    Resource::claim("set", id).unwrap()
}

fn owner(n: u64) -> Owner {
    Owner::sign("test", n, n)
}

fn acquire(resource: Resource, n: u64, ttl: u64, keep: Duration) -> Request {
    Request::Acquire {
        resource,
        owner: owner(n),
        ttl: Duration::from_secs(ttl),
        // The worker's clock is some minutes behind, so a forgotten counter would show as a smaller token.
        propose: FencingToken::new((BEGIN - 300 + n) * 1_000_000),
        tolerance: HOUR * 24 * 365,
        keep,
        ticket: None,
    }
}

fn release(resource: Resource, n: u64) -> Request {
    Request::Release { resource, owner: owner(n) }
}

fn record(value: &str) -> Record {
    Record { at: BEGIN * 1_000_000, term: FencingToken::new(5), last: false, value: value.into() }
}

fn seal(ledger: &str, term: u64) -> Request {
    Request::Seal { ledger: ledger.into(), term: FencingToken::new(term), after: None }
}

fn write(ledger: &str, key: &str, seen: Option<&str>, value: &str) -> Request {
    let (term, seen) = (FencingToken::new(5), seen.map(record));
    Request::Write { ledger: ledger.into(), term, key: key.into(), seen, record: record(value) }
}

fn complete(id: &str, n: u64, token: u64, dead_lettered: Option<u32>) -> Request {
    let token = FencingToken::new(token);
    let record = DoneRecord { token, result: "ok".into(), dead_lettered, ..DoneRecord::default() };
    Request::Complete { resource: claim(id), owner: owner(n), record, retention: HOUR }
}

fn count(id: &str, n: u64, attempts: u32) -> Request {
    let payload = Some("abcd".into());
    Request::Count { resource: claim(id), owner: owner(n), attempts, payload, withdraw: false, keep: HOUR }
}

/// Returns the workload: locks, claims, ledgers, a queue, readers, rows that expire and are swept.
pub(super) fn workload() -> Vec<Step> {
    let token = (BEGIN - 100) * 1_000_000;
    let short = Duration::from_secs(20);
    let keep = |ledger: &str, life| Request::Keep { ledger: ledger.into(), life };
    let extend = Request::Extend {
        resource: lock("a"),
        owner: owner(1),
        ttl: Duration::from_secs(50),
        token: FencingToken::new(token),
        keep: HOUR,
    };
    let raise =
        Request::Raise { resource: claim("c"), owner: owner(3), to: FencingToken::new(token), keep: HOUR };
    let share = Request::Share { resource: lock("r"), owner: owner(6), ttl: HOUR, ticket: None };
    let now = BEGIN * 1_000_000;
    let queue = Request::Queue {
        resource: lock("a"),
        ticket: owner(7),
        at: now,
        now,
        tolerance: HOUR,
        ttl: HOUR,
        exclusive: true,
    };
    let prune =
        Request::Prune { ledger: "g".into(), term: FencingToken::new(5), below: now + 1, after: None };
    let batches = vec![
        (0, 0, vec![Request::Mark { expect: None, marker: "m".into() }]),
        (0, 0, vec![stamp(StampStep::Advance)]),
        (0, 0, vec![acquire(lock("a"), 1, 20, HOUR)]),
        (0, 1, vec![stamp(StampStep::Raise)]),
        (1, 1, vec![acquire(lock("b"), 2, 5, short)]),
        (0, 0, vec![extend]),
        (0, 1, vec![acquire(claim("c"), 3, 60, HOUR)]),
        (0, 1, vec![raise, count("c", 3, 1)]),
        (1, 0, vec![acquire(claim("d"), 4, 60, HOUR), count("d", 4, 1)]),
        (0, 1, vec![complete("c", 3, token, None)]),
        (0, 0, vec![release(lock("a"), 1)]),
        (0, 1, vec![acquire(lock("a"), 5, 600, HOUR), share, queue]),
        (1, 0, vec![complete("d", 4, token, Some(1))]),
        (0, 1, vec![Request::ResetAttempts { resource: claim("d"), keep: HOUR }]),
        (0, 1, vec![seal("g", 5), write("g", "k1", None, "one")]),
        (0, 0, vec![write("g", "k1", Some("one"), "two"), write("g", "k2", None, "one")]),
        (0, 1, vec![seal("h", 5), write("h", "k", None, "old"), keep("h", short)]),
        (1, 0, vec![seal("i", 5), write("i", "k", None, "old"), keep("i", short)]),
        (0, 0, vec![seal("j", 5), keep("j", short)]),
        (1, 1, vec![prune]),
        // From here on, `b`, `h`, `i` and `j` have ended. `h` begins again, `i` is removed, `j` is swept.
        (100, 0, vec![seal("h", 6)]),
        (0, 1, vec![Request::Read { ledger: "i".into(), after: None, key: None }]),
        (0, 0, vec![acquire(lock("b"), 8, 5, HOUR), acquire(claim("d"), 9, 60, HOUR)]),
        (0, 1, vec![acquire(lock("e"), 10, 5, HOUR), release(lock("e"), 10)]),
        (8_000, 0, (0..6).map(|n| acquire(lock(&format!("x{n}")), 20 + n, 5, HOUR)).collect()),
        (0, 1, (0..6).map(|n| acquire(lock(&format!("y{n}")), 30 + n, 5, HOUR)).collect()),
    ];
    batches.into_iter().map(|(secs, process, requests)| Step { secs, process, requests }).collect()
}

fn stamp(step: StampStep) -> Request {
    Request::Stamp { own: "n".into(), known: [("n".into(), 3), ("m".into(), 8)].into(), step }
}

/// Returns a workload with a batch that is synced as a whole.
pub(super) fn large_batch() -> Vec<Step> {
    let mark = Request::Mark { expect: None, marker: "m".into() };
    let many = (0..33).map(|n| acquire(lock(&format!("x{n}")), n, 5, HOUR)).collect();
    let steps = [(0, vec![mark]), (0, vec![acquire(lock("x1"), 50, 1, HOUR)]), (1, many)];
    let step = |(process, requests)| Step { secs: 10, process, requests };
    steps.into_iter().map(step).collect()
}

/// Returns what a process does after a crash. The first batch reads every row that the workload uses.
pub(super) fn after_crash() -> Vec<Step> {
    let inspect = |resource| Request::Inspect { resource };
    let mut read: Vec<Request> = ["a", "b", "e", "r"].map(|name| inspect(lock(name))).into();
    read.extend((0..6).flat_map(|n| ["x", "y"].map(|of| inspect(lock(&format!("{of}{n}"))))));
    read.extend(["c", "d"].map(|id| inspect(claim(id))));
    read.extend(["g", "h", "i", "j"].map(|ledger| Request::Read {
        ledger: ledger.into(),
        after: None,
        key: None,
    }));
    let mark = Request::Mark { expect: Some("m".into()), marker: "m".into() };
    let work =
        vec![acquire(lock("z"), 90, 5, HOUR), write("g", "k9", None, "new"), complete("z", 91, 7, None)];
    [read, vec![mark], work].into_iter().map(|requests| Step { secs: 0, process: 0, requests }).collect()
}

/// Fails if the node could not serve a request for a reason that is not in the request.
pub(super) fn served(reply: &Result<BatchReply, Cause>) -> Result<(), String> {
    let replies = match reply {
        Ok(reply) => &reply.replies,
        Err(cause) => return Err(format!("the batch failed: {cause}")),
    };
    let failed = replies.iter().find(|reply| {
        matches!(reply, Reply::Refused(refusal) if matches!(refusal, crate::node::Refusal::Failed(_) | crate::node::Refusal::Unable(_)))
    });
    failed.map_or(Ok(()), |reply| Err(format!("the node could not serve: {reply:?}")))
}
