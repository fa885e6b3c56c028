//! Tests a server that fails while it writes its append-only file, and restarts with only a part of the last
//! script. Wherever the file was cut, every key must have an expiry, and every lock and claim must have its
//! count.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panic, its helpers too")]

mod support;

use quorate::redis::RedisNode;
use quorate::{
    env::{SystemWorld, World},
    node::{Batch, DoneRecord, FencingToken, Request, Resource, Session},
};
use quorate_testkit::redis::{RedisConfig, RedisServer};
use std::{fs, path::PathBuf, time::Duration};
use support::{LONG, NodeClient, acquire, lock, owner};

/// The time until the deadline of a batch. It is shorter than the largest distance of the clocks that an acquire permits.
const SOON: Duration = Duration::from_secs(4);

/// The locks and claims of each batch.
const NAMES: [&str; 4] = ["a", "b", "c", "d"];

fn claim(name: &str) -> Resource {
    Resource::claim("s", name).unwrap()
}

fn claimed(name: &str, by: u64) -> Request {
    match acquire(name, by) {
        Request::Acquire { owner, ttl, propose, tolerance, keep, ticket, .. } => {
            Request::Acquire { resource: claim(name), owner, ttl, propose, tolerance, keep, ticket }
        }
        other => panic!("{other:?}"),
    }
}

fn release(resource: Resource, by: u64) -> Request {
    Request::Release { resource, owner: owner(by) }
}

fn extend(resource: Resource, by: u64) -> Request {
    let token = FencingToken::new(SystemWorld.wall().as_micros());
    Request::Extend { resource, owner: owner(by), ttl: 2 * LONG, token, keep: 2 * LONG }
}

fn completed(name: &str, by: u64) -> Request {
    let token = FencingToken::new(SystemWorld.wall().as_micros());
    let record = DoneRecord { token, at: 1, result: "fine".into(), ..DoneRecord::default() };
    Request::Complete { resource: claim(name), owner: owner(by), record, retention: LONG }
}

/// Returns the batches of the test. Each batch is sent as one call of a script. Together, the batches run every
/// branch of the scripts that writes.
fn batches() -> Vec<Vec<Request>> {
    let all = |of: &dyn Fn(&str) -> Request| NAMES.iter().map(|name| of(name)).collect::<Vec<_>>();
    vec![
        // No lock has a counter yet, so scripts serve this batch. The next acquires of these locks are a transaction.
        all(&|name| acquire(name, 1)),
        all(&|name| extend(lock(name), 1)),
        all(&|name| release(lock(name), 1)),
        all(&|name| acquire(name, 2)),
        vec![release(lock("a"), 2), acquire("e", 1), release(lock("b"), 2), extend(lock("c"), 2)],
        // The session knows the time, so plain commands acquire claims that are new.
        all(&|name| claimed(name, 1)),
        vec![extend(claim("a"), 1), completed("b", 1), release(claim("c"), 1), claimed("e", 1)],
        vec![completed("a", 1), claimed("c", 2), completed("d", 1), completed("e", 1)],
    ]
}

/// Returns the path and the content of the append-only file that a server writes.
fn append_only_file(server: &RedisServer) -> (PathBuf, Vec<u8>) {
    let folder = server.dir().join("appendonlydir");
    let files = fs::read_dir(if folder.is_dir() { folder } else { server.dir().to_owned() }).unwrap();
    let is_log = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.ends_with(".incr.aof") || name == "appendonly.aof"
    };
    let path = files.map(|file| file.unwrap().path()).find(is_log).unwrap();
    let bytes = fs::read(&path).unwrap();
    (path, bytes)
}

/// Returns the commands of an append-only file, each with the position at which it ends.
fn commands(bytes: &[u8]) -> Vec<(Vec<String>, usize)> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let line = |at: &mut usize| {
            let length = bytes[*at..].windows(2).position(|two| two == b"\r\n").unwrap();
            let text = String::from_utf8(bytes[*at + 1..*at + length].to_vec()).unwrap();
            *at += length + 2;
            text.parse::<usize>().unwrap()
        };
        let words = line(&mut at);
        let command = (0..words).map(|_| {
            let length = line(&mut at);
            at += length + 2;
            String::from_utf8_lossy(&bytes[at - length - 2..at - 2]).into_owned()
        });
        let command = command.collect();
        found.push((command, at));
    }
    found
}

/// Checks that every key has an expiry, and that each live lock has a count.
fn check(server: &RedisServer, when: &str) {
    let script = "local wrong = {}
        for _, key in ipairs(redis.call('KEYS', '*')) do
          if key ~= 'quorate:node' and redis.call('PTTL', key) < 0 then
            wrong[#wrong + 1] = key .. ' has no end'
          end
          local name = string.match(key, '^quorate:(.)$')
          if name and redis.call('EXISTS', '{' .. key .. '}:fence') == 0 then
            wrong[#wrong + 1] = key .. ' has no count'
          end
        end
        return table.concat(wrong, ', ')";
    let wrong = server.command(&["EVAL", script, "0"]);
    assert_eq!(wrong, "", "{when}");
}

#[tokio::test]
async fn no_key_is_left_without_an_end_wherever_the_file_is_cut() {
    let config = || RedisConfig::new().append_only().line("auto-aof-rewrite-percentage 0");
    let server = config().start().unwrap();
    let mut client = NodeClient::marked(RedisNode::parse(&server.url()).unwrap()).await;
    let began = SystemWorld.wall();
    for batch in batches() {
        let not_after = SystemWorld.wall() + SOON;
        let batch = Batch { not_after, ..client.batch(batch) };
        for reply in support::soon(client.session.send(batch)).await.unwrap().replies {
            assert!(!matches!(reply, quorate::node::Reply::Refused(_)), "{reply:?}");
        }
    }
    let (_, bytes) = append_only_file(&server);
    let commands = commands(&bytes);
    let count = |word: &str| commands.iter().filter(|(command, _)| command[0] == word).count();
    // A record that plain commands set holds the claim until one TTL after the deadline.
    let ends =
        |record: &str| record.split(':').nth(1).and_then(|end| end.parse::<u64>().ok()).unwrap_or_default();
    let late = (began + LONG + SOON).as_micros() / 1_000;
    let is_claim = |command: &[String]| command[1].starts_with("quorate:claim/") && ends(&command[2]) >= late;
    let claims = commands.iter().filter(|(command, _)| command[0] == "SET" && is_claim(command)).count();
    let has_commands = !server.version().is_redis_before(7, 0);
    assert!(claims >= 4 || !has_commands, "{commands:?}");
    assert!(count("INCRBY") >= 4 && count("MULTI") >= 7 && count("SET") >= 20, "{commands:?}");

    // The server loads the file up to each command, and up to the middle of the next one. The server drops a
    // transaction that is not complete.
    let mut cut = config().start().unwrap();
    let (path, _) = append_only_file(&cut);
    for (command, end) in &commands {
        cut.kill();
        fs::write(&path, &bytes[..*end]).unwrap();
        cut.restart().unwrap();
        check(&cut, &format!("cut after {command:?}"));
    }
    for end in (0..bytes.len()).step_by(bytes.len() / 20) {
        cut.kill();
        fs::write(&path, &bytes[..end]).unwrap();
        cut.restart().unwrap();
        check(&cut, &format!("cut at byte {end}"));
    }

    // Without the commands of transactions, each command takes effect by itself, as on a server that does not
    // write transactions.
    cut.flushall();
    let plain = |word: &str| !matches!(word, "SELECT" | "MULTI" | "EXEC");
    for (command, _) in commands.iter().filter(|(command, _)| plain(&command[0])) {
        let args: Vec<&str> = command.iter().map(String::as_str).collect();
        let reply = cut.command(&args);
        assert!(!reply.starts_with("(error)"), "{args:?}: {reply}");
        check(&cut, &format!("after {command:?}"));
    }
}
