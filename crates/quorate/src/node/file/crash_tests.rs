//! The crash tests: a process is killed at every moment of its work, and the machine loses its power. Then another
//! session opens the directory, and what was answered must be there.
//!
//! A kill needs no model: a child of this program works, and its death by SIGKILL leaves what the kernel has of its
//! writes. A power loss is as SQLite defines it for its log: of what was written after the last sync, any part may be
//! missing. <https://www.sqlite.org/wal.html> and <https://www.sqlite.org/atomiccommit.html> say what SQLite makes of this;
//! here it is tested that the node asks for the syncs that its promises need.

use super::{
    FileNode, FileSession, SystemWorld, World,
    database::{Begin, Database, Durability},
    tests::{self, HELPER, Scratch, ask, granted, helper, marked, release, scratch_node, soon},
};
use crate::env::WallTime;
use crate::node::{DoneRecord, FencingToken, Node, Owner, PushSender, Record, Reply, Request, Resource};
use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

const HOUR: Duration = Duration::from_secs(3_600);

/// The numbers of kills, and the steps by which the moment of the kill moves after an answer.
const KILLS: u64 = 60;
const STEP: Duration = Duration::from_micros(37);

/// An answer that a client has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// The lock `n` was granted with this fencing token.
    Granted(u64, u64),
    /// The claim `n` was completed.
    Done(u64),
    /// The record `n` was written.
    Written(u64),
    /// The lock `n` was released.
    Released(u64),
}

/// Returns an acquire whose lease does not end during a test.
fn acquire(name: &str, n: u64, wall: WallTime) -> Request {
    let Request::Acquire { resource, owner, propose, tolerance, keep, ticket, .. } =
        tests::acquire(name, n, wall)
    else {
        unreachable!("it is an acquire")
    };
    Request::Acquire { resource, owner, ttl: HOUR, propose, tolerance, keep, ticket }
}

fn claim(n: u64) -> Resource {
    Resource::claim("set", &n.to_string()).unwrap()
}

fn record(n: u64) -> Record {
    Record { at: u64::MAX / 2, term: FencingToken::new(5), last: false, value: n.to_string().into() }
}

fn write(n: u64) -> Request {
    let key = format!("{n:020}").into();
    Request::Write { ledger: "g".into(), key, seen: None, record: record(n) }
}

fn complete(n: u64) -> Request {
    let record = DoneRecord { token: FencingToken::new(n + 1), result: "ok".into(), ..DoneRecord::default() };
    Request::Complete { resource: claim(n), owner: Owner::sign("test", 1, n), record, retention: HOUR }
}

/// Sends the `n`th set of requests, one of each kind, and calls `note` with each answer.
async fn work(session: &mut FileSession, n: u64, mut note: impl FnMut(Answer)) {
    let lock = format!("n{n}");
    let shared = ask(session, acquire("shared", n, SystemWorld.wall())).await;
    let token = granted(&ask(session, acquire(&lock, n, SystemWorld.wall())).await);
    note(Answer::Granted(n, token));
    assert_eq!(ask(session, complete(n)).await, Reply::Completed);
    note(Answer::Done(n));
    assert_eq!(ask(session, write(n)).await, Reply::Written);
    note(Answer::Written(n));
    if matches!(shared, Reply::Granted { .. }) {
        assert_eq!(ask(session, release("shared", n)).await, Reply::Released(true));
    }
    if n.is_multiple_of(2) {
        assert_eq!(ask(session, release(&lock, n)).await, Reply::Released(true));
        note(Answer::Released(n));
    }
}

/// Checks that the node has what it has answered. Leases are checked only if they are `held`.
async fn check(session: &mut FileSession, answers: &[Answer], held: bool) -> Result<(), String> {
    for answer in answers {
        let is_there = match *answer {
            Answer::Granted(n, token) => {
                let lock = Resource::lock(&format!("n{n}")).unwrap();
                let state = ask(session, Request::Inspect { resource: lock }).await;
                let Reply::State { holder, counter, .. } = state else { return Err(format!("{state:?}")) };
                // A release may have happened although its answer was lost.
                let is_free = n.is_multiple_of(2) || !held;
                counter.is_some_and(|counter| counter.get() >= token) && (is_free || holder.is_some())
            }
            Answer::Done(n) => {
                let state = ask(session, Request::Inspect { resource: claim(n) }).await;
                matches!(state, Reply::State { done: Some(_), .. })
            }
            Answer::Written(n) => {
                let key = Some(format!("{n:020}").into());
                let read = ask(session, Request::Read { ledger: "g".into(), after: None, key }).await;
                matches!(read, Reply::Ledger(page) if page.state.records.iter().any(|(_, found)| *found == record(n)))
            }
            Answer::Released(n) => {
                let lock = Resource::lock(&format!("n{n}")).unwrap();
                matches!(
                    ask(session, Request::Inspect { resource: lock }).await,
                    Reply::State { holder: None, .. }
                )
            }
        };
        if !is_there {
            return Err(format!("{answer:?} is not there"));
        }
    }
    Ok(())
}

/// The code of a process that works until it is killed. It notes each answer in the file `answers`.
#[tokio::test]
#[ignore = "run by an_answer_survives_a_kill_at_any_moment, in processes of its own"]
async fn child_process() {
    let Some(home) = std::env::var_os(HELPER).map(PathBuf::from) else { return };
    let mut notes = fs::File::options().append(true).create(true).open(home.join("answers")).unwrap();
    let (mut session, _) = marked(&FileNode::new(home.join("node"))).await;
    let begin = u64::from(std::process::id()) << 32;
    for n in begin.. {
        work(&mut session, n, |answer| {
            let line = match answer {
                Answer::Granted(n, token) => format!("granted {n} {token}\n"),
                Answer::Done(n) => format!("done {n} 0\n"),
                Answer::Written(n) => format!("written {n} 0\n"),
                Answer::Released(n) => format!("released {n} 0\n"),
            };
            notes.write_all(line.as_bytes()).unwrap();
        })
        .await;
    }
}

fn answers(home: &Path) -> Vec<Answer> {
    let text = fs::read_to_string(home.join("answers")).unwrap_or_default();
    // The kill may have cut the last line.
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let answer = |line: &str| {
        let mut words = line.split(' ');
        let kind = words.next().unwrap();
        let [n, token] = [words.next().unwrap(), words.next().unwrap()].map(|word| word.parse().unwrap());
        match kind {
            "granted" => Answer::Granted(n, token),
            "done" => Answer::Done(n),
            "written" => Answer::Written(n),
            _ => Answer::Released(n),
        }
    };
    whole.lines().map(answer).collect()
}

/// The moment of the kill moves, in steps that are shorter than a write, through more than the time of a whole set of
/// requests. The other session is open all the time in half of the kills, so that the log is recovered in the others.
#[tokio::test]
async fn an_answer_survives_a_kill_at_any_moment() {
    let scratch = Scratch::in_memory();
    let (session, first) = marked(&scratch_node(&scratch)).await;
    let (mut survivor, mut seen) = (Some(session), 0);
    for kill in 0..KILLS {
        let mut child = helper("node::file::crash_tests::child_process", scratch.path());
        if kill.is_multiple_of(2) {
            drop(survivor.take());
        }
        soon("the child works", || answers(scratch.path()).len() > seen + 4).await;
        std::thread::sleep(STEP * u32::try_from(kill).unwrap());
        child.kill().unwrap();
        child.wait().unwrap();
        let (mut session, hello) = scratch_node(&scratch).open(PushSender::channel().0).await.unwrap();
        assert_eq!((hello.run_id, hello.marker.as_deref()), (first.run_id.clone(), Some("test")));
        let all = answers(scratch.path());
        check(&mut session, &all[seen..], true).await.unwrap();
        // The node continues to work, also with what the process that was killed may have held.
        let n = kill + 1;
        let mut own = Vec::new();
        work(&mut session, n, |answer| own.push(answer)).await;
        check(&mut session, &own, true).await.unwrap();
        (survivor, seen) = (Some(session), all.len());
    }
    let mut session = survivor.unwrap();
    check(&mut session, &answers(scratch.path()), false).await.unwrap();
}

/// Copies the database in `node` to `to`, with the first `keep` bytes of its log, and then zeros up to `zeros` bytes. Only
/// another process may open the files of the database.
fn cut(node: &Path, to: &Path, (keep, zeros): (u64, u64)) {
    let script = "rm -rf \"$2\"; mkdir -m 700 \"$2\"; cp \"$1/quorate.db\" \"$2\"; \
                  head -c \"$3\" \"$1/quorate.db-wal\" > \"$2/quorate.db-wal\"; \
                  truncate -s \"$4\" \"$2/quorate.db-wal\"; chmod 600 \"$2\"/*";
    let done = Command::new("sh")
        .args(["-ec", script, "sh"])
        .args([node, to])
        .args([keep, zeros.max(keep)].map(|bytes| bytes.to_string()))
        .status();
    assert!(done.unwrap().success());
}

/// After each answer to a batch that must survive a power loss, the whole log is synced. A power loss then takes any end
/// of what batches of leases have appended since.
#[tokio::test]
async fn an_answer_survives_a_power_loss_that_takes_the_unsynced_end_of_the_log() {
    let scratch = Scratch::in_memory();
    let (mut session, _) = marked(&scratch_node(&scratch)).await;
    let (node, after) = (scratch.path().join("node"), scratch.path().join("after"));
    let log = node.join("quorate.db-wal");
    let mut done = Vec::new();
    work(&mut session, 1, |answer| done.push(answer)).await;
    granted(&ask(&mut session, acquire("a", 1, SystemWorld.wall())).await);
    // This batch is the last one that is synced.
    assert_eq!(ask(&mut session, write(7)).await, Reply::Written);
    done.push(Answer::Written(7));
    let synced = fs::metadata(&log).unwrap().len();
    for n in 0..3 {
        let resource = Resource::lock("b").unwrap();
        let share = Request::Share { resource, owner: Owner::sign("test", 2, n), ttl: HOUR, ticket: None };
        assert_eq!(ask(&mut session, share).await, Reply::Shared);
    }
    assert_eq!(ask(&mut session, release("a", 1)).await, Reply::Released(true));
    let end = fs::metadata(&log).unwrap().len();
    assert!(end > synced, "batches of leases are in the log");

    let on = |boot: &str| FileNode::new(&after).with_boot_id(boot);
    for kept in (synced..=end).step_by(1_009).chain([end]) {
        for zeros in [0, end] {
            cut(&node, &after, (kept, zeros));
            let (mut session, hello) = on("next").open(PushSender::channel().0).await.unwrap();
            assert_eq!(hello.marker.as_deref(), Some("test"));
            let found = check(&mut session, &done, false).await;
            assert_eq!(found, Ok(()), "{kept} of {end} bytes of the log");
            granted(&ask(&mut session, acquire("b", 3, SystemWorld.wall())).await);
        }
    }
    // The test notices a loss: without its last synced bytes, the log lacks the last synced batch.
    cut(&node, &after, (synced - 1, 0));
    let (mut session, _) = on("next").open(PushSender::channel().0).await.unwrap();
    check(&mut session, &done, false).await.unwrap_err();
}

/// SQLite promises that a commit survives a power loss only with these settings.
#[test]
fn the_database_syncs_what_must_survive_a_power_loss() {
    let scratch = Scratch::new();
    let database = Database::open(scratch.path()).map(Option::unwrap);
    // The directory of the test is open to others; the database in it is not.
    let database = database.unwrap();
    let number = |name: &str| -> i64 {
        database.connection().query_row(&format!("PRAGMA {name}"), [], |row| row.get(0)).unwrap()
    };
    let mode: String = database.connection().query_row("PRAGMA journal_mode", [], |row| row.get(0)).unwrap();
    assert_eq!(mode, "wal");
    assert_eq!((number("fullfsync"), number("checkpoint_fullfsync")), (1, 1));
    for (durability, level) in [(Durability::Synced, 2), (Durability::Unsynced, 1), (Durability::Synced, 2)] {
        let begun = database.begin(durability).unwrap();
        assert!(matches!(begun, Begin::Begun(_)));
        assert_eq!(number("synchronous"), level, "{durability:?}");
    }
}
