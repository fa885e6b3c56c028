use quorate::{
    env::Env,
    node::{
        Batch, Cause, DoneRecord, FencingToken, FileNode, Node, NodeTime, Owner, PushSender, Refusal, Reply,
        Request, Resource, Session,
    },
};
use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

pub(super) const PIECES: &[&str] = &[
    "\u{0}",
    "\u{1}",
    "\u{2}",
    "\u{3}",
    "\u{4}",
    "\u{5}",
    "{\"name\":\"r\",\"row\":",
    "{\"name\":\"g\",\"row\":",
    "{\"name\":\"marker\",\"row\":\"m\"}",
    "{\"name\":\"identity\",\"row\":{\"run_id\":\"\",\"since_micros\":18446744073709551615}}",
    "{\"name\":\"machine\",\"row\":{\"boot\":\"b\",\"host\":\"h\",\"machines\":[\"m\"],\"replaced\":[\"boot\"]}}",
    "{\"count\":1,\"until_micros\":",
    "18446744073709551615}",
    "{\"owner\":\"a\",\"until_nanos\":",
    "}",
    "{\"term\":1,\"low_water\":0,\"records\":[[\"b\",{\"at\":1,\"term\":1,\"last\":true,\"value\":\"\"}],[\"a\"",
    "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
    "-1",
    "1e400",
    "null",
    "\"",
    ",",
    "\\u0000",
    "{}",
    "0}}",
];

/// The number of files of a node. The first byte of the input selects one of them, and the other bytes become
/// its content.
const FILES: usize = 8;

/// Uses a file node after one of its files was overwritten. The node must answer each request, or refuse it
/// with the name of the file.
pub fn file_node(bytes: &[u8]) {
    let Some((&which, content)) = bytes.split_first() else { return };
    let home = scratch();
    #[expect(clippy::expect_used, reason = "without a runtime nothing can be looked at")]
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let node = FileNode::new(home.path().join("node")).with_boot_id("boot");
        // The files are created when the node is first used.
        assert!(ask(&node, requests()).await.is_ok(), "a new directory serves");
        let files = files_below(&home.path().join("node"));
        assert_eq!(files.len(), FILES, "{files:?}");
        let spoilt = &files[usize::from(which) % FILES];
        assert!(fs::write(spoilt, content).is_ok());
        match ask(&node, requests()).await {
            Ok(replies) => replies.iter().for_each(|reply| served_or_named(reply, spoilt)),
            Err(Cause::Protocol(why) | Cause::Unreachable(why) | Cause::Denied(why)) => {
                assert!(why.contains(&*spoilt.to_string_lossy()), "{why}");
                super::fit_to_print(&why);
            }
            other => assert!(other.is_ok(), "a node that neither serves nor says why: {other:?}"),
        }
    });
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

/// Returns requests that together use every file of the node.
fn requests() -> Vec<Request> {
    #[expect(clippy::expect_used, reason = "a name that may be used")]
    let resource = Resource::claim("s", "r").expect("a name");
    let (owner, keep) = (Owner::sign("w", 1, 1), Duration::from_secs(60));
    let token = FencingToken::new(5);
    let done = Resource::claim("s", "done").unwrap_or_else(|_| resource.clone());
    let record = DoneRecord { token, result: "ok".into(), ..DoneRecord::default() };
    vec![
        Request::Mark { expect: None, marker: "m".into() },
        Request::Extend { resource: resource.clone(), owner: owner.clone(), ttl: keep, token, keep },
        Request::Inspect { resource },
        Request::Complete { resource: done, owner, record, retention: keep },
        Request::Seal { ledger: "g".into(), term: token, after: None },
    ]
}

fn files_below(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    for path in entries.map(|entry| entry.path()) {
        if path.is_dir() {
            found.extend(files_below(&path));
        } else if path.extension().is_some_and(|end| end == "json") {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn scratch() -> tempfile::TempDir {
    let shm = Path::new("/dev/shm");
    let home = if shm.is_dir() { shm.to_owned() } else { std::env::temp_dir() };
    #[expect(clippy::expect_used, reason = "without a directory nothing can be looked at")]
    tempfile::Builder::new().prefix("quorate-unfriendly-").tempdir_in(home).expect("a directory")
}
