use quorate::{
    env::Env,
    node::{
        Batch, Cause, DoneRecord, FencingToken, FileNode, Node, NodeTime, Owner, PushSender, Record, Refusal,
        Reply, Request, Resource, Session,
    },
};
use std::{
    fs::File,
    io::{self, Seek, SeekFrom, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
    time::Duration,
};

pub(super) const PIECES: &[&str] = &[
    "\u{0}",
    "\u{1}",
    "\u{d}",
    "\u{7f}",
    "SQLite format 3\u{0}",
    "\u{10}\u{0}\u{2}\u{2}\u{0}@  ",
    "7\u{7f}\u{6}\u{2}\u{0}-\u{e2}\u{18}",
    "CREATE TABLE rows (",
    "marker",
    "\"m\"",
    "{\"run_id\":\"\",\"since_micros\":18446744073709551615}",
    "{\"count\":1,\"until_micros\":18446744073709551615}",
    "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
    "-1",
    "null",
    "\"",
];

/// Uses a file node after its database, or its log, was overwritten. The first byte of the input is the place, and the
/// other bytes become the content. The node must answer each request, or refuse it with the name of the file.
pub fn file_node(bytes: &[u8]) {
    let Some((&place, content)) = bytes.split_first() else { return };
    let home = scratch();
    #[expect(clippy::expect_used, reason = "without a runtime nothing can be looked at")]
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let node = FileNode::new(home.path().join("node")).with_boot_id("boot");
        let database = node.dir().join("quorate.db");
        let log = node.dir().join("quorate.db-wal");
        // The files are created when the node is first used, and the last session removes the log.
        assert!(ask(&node, requests()).await.is_ok(), "a new directory serves");
        let env = Env::system();
        while log.exists() {
            env.sleep(Duration::from_millis(1)).await;
        }
        assert!(spoil(&database, &log, (place, content)).is_ok());
        match ask(&node, requests()).await {
            Ok(replies) => replies.iter().for_each(|reply| served_or_named(reply, &database)),
            Err(Cause::Protocol(why) | Cause::Unreachable(why) | Cause::Denied(why)) => {
                assert!(why.contains(&*database.to_string_lossy()), "{why}");
                super::fit_to_print(&why);
            }
            other => assert!(other.is_ok(), "a node that neither serves nor says why: {other:?}"),
        }
    });
}

/// Writes the content into the database at a place of 255, or makes it the log.
fn spoil(database: &Path, log: &Path, (place, content): (u8, &[u8])) -> io::Result<()> {
    if place == u8::MAX {
        let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(log)?;
        return file.write_all(content);
    }
    let mut file = File::options().write(true).open(database)?;
    let at = file.metadata()?.len() * u64::from(place) / 255;
    file.seek(SeekFrom::Start(at))?;
    file.write_all(content)
}

fn served_or_named(reply: &Reply, spoilt: &Path) {
    if let Reply::Refused(Refusal::Failed(why) | Refusal::Unable(why)) = reply {
        assert!(why.contains(&*spoilt.to_string_lossy()), "{why} is not about {}", spoilt.display());
        super::fit_to_print(why);
    }
}

async fn ask(node: &FileNode, requests: Vec<Request>) -> Result<Vec<Reply>, Cause> {
    let env = Env::system();
    let give_up = env.now() + Duration::from_secs(10);
    let work = async {
        let (mut session, hello) = node.open(PushSender::channel().0).await?;
        let stamp = hello.marker.unwrap_or_else(|| "m".into());
        let batch = Batch { requests, not_after: NodeTime::from_micros(u64::MAX), stamp };
        session.send(batch).await.map(|reply| reply.replies)
    };
    env.before(give_up, work).await.unwrap_or(Err(Cause::TimedOut))
}

/// Returns requests that together use every kind of row.
fn requests() -> Vec<Request> {
    #[expect(clippy::expect_used, reason = "a name that may be used")]
    let resource = Resource::claim("s", "r").expect("a name");
    let (owner, keep) = (Owner::sign("w", 1, 1), Duration::from_secs(60));
    let token = FencingToken::new(5);
    let done = Resource::claim("s", "done").unwrap_or_else(|_| resource.clone());
    let end = DoneRecord { token, result: "ok".into(), ..DoneRecord::default() };
    let record = Record { at: 5, term: token, last: false, value: "v".into() };
    vec![
        Request::Mark { expect: None, marker: "m".into() },
        Request::Extend { resource: resource.clone(), owner: owner.clone(), ttl: keep, token, keep },
        Request::Inspect { resource },
        Request::Complete { resource: done, owner, record: end, retention: keep },
        Request::Write { ledger: "g".into(), key: "k".into(), seen: None, record },
        Request::Read { ledger: "g".into(), after: None, key: None },
    ]
}

fn scratch() -> tempfile::TempDir {
    let shm = Path::new("/dev/shm");
    let home = if shm.is_dir() { shm.to_owned() } else { std::env::temp_dir() };
    #[expect(clippy::expect_used, reason = "without a directory nothing can be looked at")]
    tempfile::Builder::new().prefix("quorate-unfriendly-").tempdir_in(home).expect("a directory")
}
