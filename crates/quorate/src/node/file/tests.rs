use super::{FileNode, FileSession, LINGER, database, store::Kind};
use crate::{
    env::{BootTime, Env, SystemWorld, WallTime, World},
    node::{
        Batch, BatchReply, Cause, FencingToken, Hello, Node, NodeTime, Owner, Push, PushSender, Refusal,
        Reply, Request, Resource, Session,
    },
};
use futures_util::future::{BoxFuture, join_all};
use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio_util::task::TaskTracker;

const TTL: Duration = Duration::from_secs(10);
const KEEP: Duration = Duration::from_secs(3600);
pub(super) const HELPER: &str = "QUORATE_TEST_FILE_NODE";

/// A directory for one test, which is removed when this value is dropped.
pub(super) struct Scratch(PathBuf);

impl Scratch {
    pub(super) fn new() -> Self {
        let dir = std::env::temp_dir().join(format!("quorate-file-{:016x}", SystemWorld.random()));
        std::fs::create_dir(&dir).unwrap();
        Self(dir)
    }

    /// Returns a directory in memory if the machine has one, for a test that writes many files.
    pub(super) fn in_memory() -> Self {
        let memory = Path::new("/dev/shm");
        let home = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let dir = home.join(format!("quorate-file-{:016x}", SystemWorld.random()));
        std::fs::create_dir(&dir).unwrap();
        Self(dir)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    fn node(&self) -> FileNode {
        FileNode::new(self.0.join("node"))
    }

    /// Returns the number of rows of this kind, or of those called `name`.
    fn rows(&self, kind: Kind, name: Option<&str>) -> u32 {
        let connection = database::connect_to_list(&self.0.join("node")).unwrap().unwrap();
        let count = "SELECT count(*) FROM rows WHERE kind = ?1 AND (?2 IS NULL OR name = ?2)";
        connection.query_row(count, (kind.name(), name), |row| row.get(0)).unwrap()
    }

    fn is_leased(&self, name: &str) -> bool {
        self.rows(Kind::Lease, Some(name)) > 0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Clocks that a test sets.
#[derive(Debug, Default)]
struct ManualWorld(Mutex<(u64, u64)>);

impl ManualWorld {
    fn at(boot_secs: u64, wall_secs: u64) -> Arc<Self> {
        let world = Self::default();
        world.set(boot_secs, wall_secs);
        Arc::new(world)
    }

    fn set(&self, boot_secs: u64, wall_secs: u64) {
        *self.0.lock().unwrap() = (boot_secs, wall_secs);
    }
}

impl World for ManualWorld {
    fn now(&self) -> BootTime {
        BootTime::from_nanos(self.0.lock().unwrap().0 * 1_000_000_000)
    }
    fn wall(&self) -> WallTime {
        WallTime::from_micros(self.0.lock().unwrap().1 * 1_000_000)
    }
    fn random(&self) -> u64 {
        SystemWorld.random()
    }
    fn sleep_until(&self, at: BootTime) -> BoxFuture<'static, ()> {
        SystemWorld.sleep_until(at)
    }
    fn spawn(&self, tasks: &TaskTracker, work: BoxFuture<'static, ()>) {
        SystemWorld.spawn(tasks, work);
    }
}

/// The code of a helper process that holds the database of `HELPER` until it is killed.
#[test]
#[ignore = "run by StoppedHolder, in a process of its own"]
fn holder_process() {
    let Some(home) = std::env::var_os(HELPER).map(PathBuf::from) else { return };
    let database = database::Database::open(&home.join("node")).unwrap().unwrap();
    let begun = database.begin(database::Durability::Synced).unwrap();
    assert!(matches!(begun, database::Begin::Begun(_)));
    std::fs::write(home.join("held"), "").unwrap();
    loop {
        std::thread::park();
    }
}

/// A process that was stopped by SIGSTOP while it holds the database.
struct StoppedHolder(Child);

impl StoppedHolder {
    async fn of(scratch: &Scratch) -> Self {
        let held = scratch.path().join("held");
        let _ = std::fs::remove_file(&held);
        let holder = Self(helper("node::file::tests::holder_process", scratch.path()));
        soon("the helper holds the database", || held.exists()).await;
        rustix::process::kill_process(holder.pid(), rustix::process::Signal::STOP).unwrap();
        holder
    }

    fn pid(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_child(&self.0)
    }
}

impl Drop for StoppedHolder {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// Starts this program with only the test `name`, which uses the directory `home`.
pub(super) fn helper(name: &str, home: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--ignored"])
        .env(HELPER, home)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

pub(super) fn scratch_node(scratch: &Scratch) -> FileNode {
    scratch.node()
}

fn lock(name: &str) -> Resource {
    Resource::lock(name).unwrap()
}

fn owner(n: u64) -> Owner {
    Owner::sign("test", n, n)
}

pub(super) fn acquire(name: &str, n: u64, wall: WallTime) -> Request {
    let propose = FencingToken::new(wall.as_micros());
    let tolerance = Duration::from_secs(1);
    Request::Acquire {
        resource: lock(name),
        owner: owner(n),
        ttl: TTL,
        propose,
        tolerance,
        keep: KEEP,
        ticket: None,
    }
}

pub(super) fn release(name: &str, n: u64) -> Request {
    Request::Release { resource: lock(name), owner: owner(n) }
}

fn in_time(request: Request, not_after: NodeTime) -> Batch {
    Batch { requests: vec![request], not_after, stamp: "test".into() }
}

fn never_late(request: Request) -> Batch {
    in_time(request, NodeTime::from_micros(u64::MAX))
}

/// Opens a session on `node`, and sets the node's marker unless it has one.
pub(super) async fn marked(node: &FileNode) -> (FileSession, Hello) {
    let (mut session, hello) = node.open(PushSender::channel().0).await.unwrap();
    let _ = ask(&mut session, Request::Mark { expect: None, marker: "test".into() }).await;
    (session, hello)
}

pub(super) async fn ask(session: &mut FileSession, request: Request) -> Reply {
    one(session.send(never_late(request)).await)
}

fn one(reply: Result<BatchReply, Cause>) -> Reply {
    let [reply] = <[Reply; 1]>::try_from(reply.unwrap().replies).unwrap();
    reply
}

pub(super) fn granted(reply: &Reply) -> u64 {
    let Reply::Granted { counter, .. } = reply else { panic!("not granted: {reply:?}") };
    counter.get()
}

/// Waits until `until` returns true. Fails after 30 seconds.
pub(super) async fn soon(what: &str, until: impl Fn() -> bool) {
    let env = Env::system();
    let late = env.now() + Duration::from_secs(30);
    while !until() {
        assert!(env.now() < late, "not within 30 seconds: {what}");
        env.sleep(Duration::from_millis(5)).await;
    }
}

/// Returns the number of threads of this process that serve a session over `dir`. Each of them has the log open.
fn open_sessions(dir: &Path) -> usize {
    let lock = dir.join("quorate.db-wal");
    let fds = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    fds.filter(|fd| std::fs::read_link(fd.path()).is_ok_and(|to| to == lock)).count()
}

#[tokio::test]
async fn one_of_many_sessions_gets_the_lease_and_counters_grow() {
    let scratch = Scratch::new();
    let mut sessions = Vec::new();
    for _ in 0..8 {
        sessions.push(marked(&scratch.node()).await.0);
    }
    let mut last = 0;
    for round in 0..5 {
        let wall = SystemWorld.wall();
        let asked: Vec<_> = (1..)
            .zip(&mut sessions)
            .map(|(n, session)| session.send(never_late(acquire("r", n, wall))))
            .collect();
        let replies: Vec<Reply> = join_all(asked).await.into_iter().map(one).collect();
        let won: Vec<(u64, u64)> = (1..)
            .zip(&replies)
            .filter(|(_, reply)| !matches!(reply, Reply::Held { .. }))
            .map(|(n, reply)| (n, granted(reply)))
            .collect();
        let [(winner, counter)] = won[..] else { panic!("round {round}: {replies:?}") };
        assert!(counter > last);
        last = counter;
        assert_eq!(ask(&mut sessions[0], release("r", winner)).await, Reply::Released(true));
    }
}

/// The code of a helper process. It acquires and releases one lease repeatedly, and fails if another process
/// ever holds the lease at the same time.
#[tokio::test]
#[ignore = "run by processes_exclude_each_other, in processes of its own"]
async fn helper_process() {
    let Some(home) = std::env::var_os(HELPER).map(PathBuf::from) else { return };
    let (mut session, _) = marked(&FileNode::new(home.join("node"))).await;
    let me = u64::from(std::process::id());
    let mut left = 20;
    while left > 0 {
        match ask(&mut session, acquire("shared", me, SystemWorld.wall())).await {
            Reply::Granted { counter, .. } => {
                let inside = home.join("inside");
                std::fs::File::create_new(&inside).expect("no other process is inside");
                std::fs::File::create_new(home.join(counter.to_string()))
                    .expect("each token is granted once");
                std::fs::remove_file(&inside).unwrap();
                assert_eq!(ask(&mut session, release("shared", me)).await, Reply::Released(true));
                left -= 1;
            }
            Reply::Held { .. } => Env::system().sleep(Duration::from_millis(1)).await,
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn processes_exclude_each_other() {
    let scratch = Scratch::new();
    let helpers: Vec<Child> =
        (0..4).map(|_| helper("node::file::tests::helper_process", scratch.path())).collect();
    for mut helper in helpers {
        assert!(helper.wait().unwrap().success());
    }
    let tokens = std::fs::read_dir(scratch.path()).unwrap().flatten();
    let tokens = tokens.filter(|entry| entry.file_name() != "node").count();
    assert_eq!(tokens, 4 * 20, "every grant had a token of its own");
}

#[tokio::test]
async fn batches_run_in_order_even_if_their_replies_are_dropped() {
    let scratch = Scratch::new();
    let (mut session, _) = marked(&scratch.node()).await;
    let wall = SystemWorld.wall();
    drop(session.send(never_late(acquire("r", 1, wall))));
    drop(session.send(never_late(release("r", 1))));
    drop(session.send(never_late(acquire("r", 2, wall))));
    let held = ask(&mut session, acquire("r", 3, wall)).await;
    assert!(matches!(&held, Reply::Held { owner: by, .. } if *by == owner(2)), "{held:?}");
    // The batch must run although its session is dropped right after it was sent.
    drop(session.send(never_late(release("r", 2))));
    drop(session);
    let (mut other, _) = marked(&scratch.node()).await;
    soon("the release of the dropped session has run", || !scratch.is_leased("r")).await;
    assert!(granted(&ask(&mut other, acquire("r", 4, wall)).await) > wall.as_micros() + 2);
}

#[tokio::test]
async fn a_request_past_its_deadline_is_refused() {
    let scratch = Scratch::new();
    let (mut session, _) = marked(&scratch.node()).await;
    let wall = SystemWorld.wall();
    let late = session.send(in_time(acquire("r", 1, wall), wall - Duration::from_secs(1))).await;
    assert_eq!(one(late), Reply::Refused(Refusal::Stale));
    let release = session.send(in_time(release("r", 1), wall - Duration::from_secs(1))).await;
    assert_eq!(one(release), Reply::Released(false));
}

#[tokio::test]
async fn a_reboot_voids_leases_and_keeps_counters_and_identity() {
    let scratch = Scratch::new();
    let world = ManualWorld::at(1000, 5_000);
    let dir = scratch.path().join("node");
    let (mut before, hello) = marked(&FileNode::with_world(&dir, world.clone()).with_boot_id("one")).await;
    let first = granted(&ask(&mut before, acquire("r", 1, world.wall())).await);
    drop(before);

    // After a reboot the boot clock starts at zero again. Compared with this clock, the end of the old lease
    // is far in the future. So leases of another boot must not count.
    world.set(3, 5_060);
    let (mut after, again) = marked(&FileNode::with_world(&dir, world.clone()).with_boot_id("two")).await;
    assert_eq!(again.run_id, hello.run_id);
    assert_eq!(again.marker.as_deref(), Some("test"));
    assert_eq!(granted(&ask(&mut after, acquire("r", 2, world.wall())).await), first + 1);
    assert_eq!(scratch.rows(Kind::Lease, None), 1, "only the new one");
}

#[tokio::test]
async fn leases_are_timed_by_the_boot_clock_and_counters_by_the_wall_clock() {
    let scratch = Scratch::new();
    let world = ManualWorld::at(1000, 500_000);
    let node = FileNode::with_world(scratch.path().join("node"), world.clone());
    let (mut session, _) = marked(&node).await;
    let first = granted(&ask(&mut session, acquire("r", 1, world.wall())).await);

    // The wall clock steps by half an hour. The lease remains, because it is measured by the boot clock.
    world.set(1005, 501_800);
    let held = ask(&mut session, acquire("r", 2, world.wall())).await;
    let remaining = Some(Duration::from_secs(5));
    assert_eq!(held, Reply::Held { owner: owner(1), remaining });

    // Ten seconds later by the boot clock, the lease has ended. The counter is kept, because an hour of
    // wall-clock time has not passed.
    world.set(1010, 501_800);
    assert_eq!(granted(&ask(&mut session, acquire("r", 2, world.wall())).await), first + 1);
    world.set(1030, 501_800 + 3_601);
    let later = granted(&ask(&mut session, acquire("r", 3, world.wall())).await);
    assert_eq!(later, world.wall().as_micros() + 1, "the counter was forgotten and starts at the proposal");
}

#[tokio::test]
async fn a_listing_of_a_database_that_is_being_created_finds_nothing() {
    let scratch = Scratch::new();
    drop(marked(&scratch.node()).await);
    let root = scratch.path().join("node");
    assert!(database::connect_to_list(&root).unwrap().is_some());
    // The file exists before its tables do.
    let file = database::file(&root);
    for end in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(format!("{}{end}", file.display()));
    }
    let created = std::fs::File::create_new(&file).unwrap();
    created.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    assert!(database::connect_to_list(&root).unwrap().is_none());
}

#[tokio::test]
async fn an_unreadable_row_fails_only_its_own_request_and_is_named() {
    let scratch = Scratch::new();
    let (mut session, _) = marked(&scratch.node()).await;
    let wall = SystemWorld.wall();
    let connection = database::connect_to_list(&scratch.path().join("node")).unwrap().unwrap();
    for (kind, name) in [(Kind::Lease, "broken-lease"), (Kind::Counter, "broken-counter")] {
        granted(&ask(&mut session, acquire(name, 1, wall)).await);
        if kind == Kind::Counter {
            ask(&mut session, release(name, 1)).await;
        }
        for content in ["", "{\"count\":", "null"] {
            let spoil = "UPDATE rows SET row = ?1 WHERE kind = ?2 AND name = ?3";
            connection.execute(spoil, (content, kind.name(), name)).unwrap();
            let requests =
                vec![acquire(name, 2, wall), acquire(&format!("whole{name}{}", content.len()), 2, wall)];
            let batch = Batch { requests, not_after: NodeTime::from_micros(u64::MAX), stamp: "test".into() };
            let replies = session.send(batch).await.unwrap().replies;
            let Reply::Refused(Refusal::Failed(why)) = &replies[0] else { panic!("{content:?} {replies:?}") };
            assert!(why.contains("node/quorate.db") && why.contains(name), "{why}");
            granted(&replies[1]);
        }
    }
}

#[tokio::test]
async fn a_batch_that_cannot_be_written_is_not_granted() {
    let scratch = Scratch::new();
    let (mut session, _) = marked(&scratch.node()).await;
    // A database that refuses a row, as one on a full disk does.
    let connection = database::connect_to_list(&scratch.path().join("node")).unwrap().unwrap();
    let refuse = "CREATE TRIGGER full BEFORE INSERT ON rows WHEN new.kind = 'lease'
                  BEGIN SELECT raise(ABORT, 'full'); END";
    connection.execute_batch(refuse).unwrap();
    let reply = ask(&mut session, acquire("r", 1, SystemWorld.wall())).await;
    let Reply::Refused(Refusal::Unable(why)) = &reply else { panic!("{reply:?}") };
    assert!(why.contains("node/quorate.db"), "{why}");
    assert_eq!(scratch.rows(Kind::Counter, Some("r")), 0, "the batch has happened as a whole or not at all");
    connection.execute_batch("DROP TRIGGER full").unwrap();
    granted(&ask(&mut session, acquire("r", 2, SystemWorld.wall())).await);
}

#[tokio::test]
async fn a_file_that_is_no_database_and_an_old_directory_are_refused() {
    let scratch = Scratch::new();
    let dir = scratch.path().join("node");
    drop(marked(&scratch.node()).await);
    soon("the session has ended", || open_sessions(&dir) == 0).await;
    std::fs::write(dir.join("quorate.db"), "x".repeat(5_000)).unwrap();
    let opened = scratch.node().open(PushSender::channel().0).await.map(drop);
    let Err(Cause::Protocol(why)) = opened else { panic!("{opened:?}") };
    assert!(why.contains("node/quorate.db") && why.contains("move the whole directory away"), "{why}");

    std::fs::remove_file(dir.join("quorate.db")).unwrap();
    std::fs::write(dir.join("identity.json"), "{}").unwrap();
    let opened = scratch.node().open(PushSender::channel().0).await.map(drop);
    let Err(Cause::Protocol(why)) = opened else { panic!("{opened:?}") };
    assert!(why.contains("an earlier version") && why.contains("move the whole directory away"), "{why}");
    assert!(!dir.join("quorate.db").exists());
}

#[tokio::test]
async fn a_directory_moved_away_is_another_node() {
    let scratch = Scratch::new();
    let (push_sender, mut pushes) = PushSender::channel();
    let (_, hello) = marked(&scratch.node()).await;
    let (mut session, _) = scratch.node().open(push_sender).await.unwrap();
    std::fs::rename(scratch.path().join("node"), scratch.path().join("old")).unwrap();
    let inspect = || never_late(Request::Inspect { resource: lock("r") });
    assert_eq!(session.send(inspect()).await, Err(Cause::Closed));
    assert_eq!(pushes.recv().await, Some(Push::Closed(Cause::Closed)));
    assert_eq!(session.send(inspect()).await, Err(Cause::Closed));

    let (_, fresh) = scratch.node().open(PushSender::channel().0).await.unwrap();
    assert_ne!(fresh.run_id, hello.run_id);
    assert_eq!(fresh.marker, None);
}

#[tokio::test]
async fn a_directory_that_cannot_be_created_is_named_with_the_fix() {
    let scratch = Scratch::new();
    std::fs::write(scratch.path().join("file"), "").unwrap();
    let node = FileNode::new(scratch.path().join("file/node"));
    let Err(Cause::Unreachable(why)) = node.open(PushSender::channel().0).await.map(drop) else { panic!() };
    assert!(why.contains("file/node") && why.contains("this user may"), "{why}");
}

#[tokio::test]
async fn other_sessions_time_out_while_the_lock_holder_is_stopped() {
    let scratch = Scratch::new();
    let env = Env::system();
    let (mut session, _) = marked(&scratch.node()).await;
    granted(&ask(&mut session, acquire("r", 1, env.wall())).await);
    let holder = StoppedHolder::of(&scratch).await;

    // Both calls return in time, although the directory is locked. The release is not executed yet, and stays
    // pending.
    let began = env.now();
    let soon_late = env.wall() + Duration::from_millis(50);
    let freed = session.send(in_time(release("r", 1), soon_late));
    let asked = session.send(in_time(acquire("s", 1, env.wall()), soon_late));
    assert_eq!(asked.await, Err(Cause::TimedOut));
    assert_eq!(freed.await, Err(Cause::TimedOut));
    assert!(
        env.now().since(began) < Duration::from_millis(500),
        "the calls took {:?}",
        env.now().since(began)
    );
    assert!(scratch.is_leased("r"));

    // The holder of the directory's lock dies. A request that still has time then gets the lock.
    let patient = session.send(never_late(acquire("r", 2, env.wall())));
    drop(holder);
    granted(&one(patient.await));
    let later = ask(&mut session, Request::Inspect { resource: lock("s") }).await;
    assert!(
        matches!(later, Reply::State { holder: None, .. }),
        "the acquire that timed out never ran: {later:?}"
    );
}

#[tokio::test]
async fn a_release_outlives_its_session_and_the_thread_ends() {
    let scratch = Scratch::new();
    let env = Env::system();
    let dir = scratch.path().join("node").canonicalize().unwrap_or(scratch.path().join("node"));
    let (mut session, _) = marked(&scratch.node()).await;
    let (mut lost, _) = marked(&scratch.node()).await;
    granted(&ask(&mut session, acquire("r", 1, env.wall())).await);
    granted(&ask(&mut session, acquire("s", 1, env.wall())).await);
    assert_eq!(open_sessions(&dir), 2);

    let holder = StoppedHolder::of(&scratch).await;
    drop(session.send(in_time(release("r", 1), env.wall())));
    drop(session);
    env.sleep(Duration::from_millis(50)).await;
    assert!(scratch.is_leased("r"));
    drop(holder);
    soon("the release has run", || !scratch.is_leased("r")).await;
    soon("the dropped session's thread has ended", || open_sessions(&dir) == 1).await;

    // If the directory's lock never becomes free, even a release is discarded after [`LINGER`].
    let _holder = StoppedHolder::of(&scratch).await;
    drop(lost.send(never_late(release("s", 1))));
    let began = env.now();
    drop(lost);
    while open_sessions(&dir) > 0 {
        assert!(env.now().since(began) < LINGER + Duration::from_secs(5), "the thread has not ended");
        env.sleep(Duration::from_millis(20)).await;
    }
    assert!(env.now().since(began) >= LINGER);
    assert!(scratch.is_leased("s"));
}

#[tokio::test]
async fn an_abandoned_open_ends() {
    let scratch = Scratch::new();
    let env = Env::system();
    let dir = scratch.path().join("node");
    drop(marked(&scratch.node()).await);
    soon("no thread is left", || open_sessions(&dir) == 0).await;
    let _holder = StoppedHolder::of(&scratch).await;
    let node = scratch.node();
    let opened = env.before(env.now() + Duration::from_millis(50), node.open(PushSender::channel().0)).await;
    assert!(opened.is_none());
    soon("the abandoned open has ended", || open_sessions(&dir) == 0).await;
}

#[tokio::test]
async fn expired_rows_are_removed_in_small_steps() {
    let scratch = Scratch::new();
    let world = ManualWorld::at(1000, 500_000);
    let node = FileNode::with_world(scratch.path().join("node"), world.clone());
    let (mut session, _) = marked(&node).await;
    let requests = (0..300).map(|n| acquire(&format!("old{n}"), 1, world.wall())).collect();
    let many = Batch { requests, not_after: NodeTime::from_micros(u64::MAX), stamp: "test".into() };
    assert!(session.send(many).await.unwrap().replies.iter().all(|reply| granted(reply) > 0));
    let rows = || [Kind::Lease, Kind::Counter].map(|kind| scratch.rows(kind, None));
    assert_eq!(rows(), [300; 2]);

    world.set(2000, 500_000 + 7_200);
    for n in 0..60 {
        granted(&ask(&mut session, acquire(&format!("new{}", n % 10), n, world.wall())).await);
        ask(&mut session, release(&format!("new{}", n % 10), n)).await;
    }
    assert_eq!(rows(), [0, 10]);
}

/// Ids such as those in `/etc/machine-id`.
const ALPHA: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
const BETA: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";

#[tokio::test]
async fn two_machines_with_one_directory_refuse_each_other() {
    let scratch = Scratch::new();
    let on = |id: &str, host: &str, boot: &str| scratch.node().with_machine(id, host).with_boot_id(boot);
    let (mut first, _) = marked(&on(ALPHA, "alpha", "one")).await;
    granted(&ask(&mut first, acquire("r", 1, SystemWorld.wall())).await);

    let refused = on(BETA, "beta", "two").open(PushSender::channel().0).await.map(|(_, hello)| hello);
    let Err(Cause::Denied(why)) = refused else { panic!("two machines: {refused:?}") };
    for part in
        ["alpha (machine ", "boot one", "beta (machine ", "boot two", "create the file ", "/take-over"]
    {
        assert!(why.contains(part), "{part}: {why}");
    }
    assert!(!why.contains(ALPHA) && !why.contains(BETA), "the ids themselves are not shown: {why}");
    // The first machine can still use the directory, even after a restart.
    granted(&ask(&mut first, acquire("s", 1, SystemWorld.wall())).await);
    let (_, again) = marked(&on(ALPHA, "alpha", "three")).await;
    assert_eq!(again.marker.as_deref(), Some("test"));

    // The test does what the error message says as the fix.
    std::fs::write(scratch.path().join("node/take-over"), "").unwrap();
    marked(&on(BETA, "beta", "two")).await;
    on(ALPHA, "alpha", "three")
        .open(PushSender::channel().0)
        .await
        .map(drop)
        .expect_err("the directory is beta's now");
}

#[tokio::test]
async fn a_machine_whose_directory_was_taken_over_grants_nothing_more() {
    let scratch = Scratch::new();
    // The two machines are clones of one image. So the second looks like the first after a restart.
    let on = |boot: &str| scratch.node().with_machine(ALPHA, "clone").with_boot_id(boot);
    let (push_sender, mut pushes) = PushSender::channel();
    marked(&on("one")).await;
    let (mut first, _) = on("one").open(push_sender).await.unwrap();
    let (mut second, _) = marked(&on("two")).await;

    let late = first.send(never_late(acquire("r", 1, SystemWorld.wall()))).await;
    let Err(Cause::Denied(why)) = late else { panic!("granted on two machines: {late:?}") };
    assert!(why.contains("boot one") && why.contains("boot two"), "{why}");
    assert_eq!(pushes.recv().await, Some(Push::Closed(Cause::Closed)));
    let back = on("one").open(PushSender::channel().0).await.map(|(_, hello)| hello);
    assert!(matches!(back, Err(Cause::Denied(_))), "{back:?}");
    granted(&ask(&mut second, acquire("r", 2, SystemWorld.wall())).await);
}

/// Returns the run id of the node, and whether its data counts as copied.
async fn identity(node: &FileNode) -> (Arc<str>, bool) {
    let (session, hello) = marked(node).await;
    drop(session);
    soon("the session has ended", || open_sessions(node.dir()) == 0).await;
    (hello.run_id, hello.data.unwrap().is_copied)
}

fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
}

/// Seen with `exec --local`: the directory was put back from a copy, and the next five fencing tokens were the same as
/// the last five.
#[tokio::test]
async fn a_directory_that_is_put_back_from_a_copy_is_another_run_with_older_data() {
    let scratch = Scratch::new();
    let (node, backup) = (scratch.path().join("node"), scratch.path().join("backup"));
    let first = identity(&scratch.node()).await;
    assert_eq!(identity(&scratch.node()).await, first);
    assert!(!first.1);
    copy(&node, &backup);
    std::fs::remove_dir_all(&node).unwrap();
    std::fs::rename(&backup, &node).unwrap();
    let restored = identity(&scratch.node()).await;
    assert!(restored.0 != first.0 && restored.1);
    assert_eq!(identity(&scratch.node()).await, restored, "once");
    // A directory that is only renamed is the same.
    std::fs::rename(&node, &backup).unwrap();
    std::fs::rename(&backup, &node).unwrap();
    assert_eq!(identity(&scratch.node()).await, restored);
}
