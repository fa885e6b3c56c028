use super::{
    Mode,
    store::{join, split},
};
use crate::{
    harness::{Assignment, Event, Journal, Point},
    work::Failure,
};
use quorate::{env::Env, quorum::Quorum};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeSet,
    hash::{DefaultHasher, Hash, Hasher},
    time::Duration,
};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufStream},
    net::TcpStream,
};

/// The time that a worker waits between the read and the check, and between the check and the write.
const THINKS: Duration = Duration::from_millis(25);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Task {
    pub(crate) mode: Mode,
    /// The port of the store.
    pub(crate) store: u16,
}

/// The work of one worker process. Again and again, it acquires the lock, reads the set, adds an element,
/// writes the set, and releases the lock.
pub(crate) async fn work(
    Task { mode, store }: &Task,
    assignment: &Assignment,
    quorum: &Quorum,
    journal: &Journal,
) -> Result<(), Failure> {
    let mut store = Client::connect(*store).await?;
    let env = quorum.env();
    let reached = |point, element| journal.write(Event::Reached { point, element });
    let lock = quorum.lock(format!("set-{mode:?}")).ttl(assignment.ttl);
    for element in assignment.member as u64 * 1_000_000.. {
        let lease = match lock.acquire().await {
            Ok(lease) => lease,
            Err(error) if error.is_permanent() => return Err(error.into()),
            Err(_) => continue,
        };
        let token = lease.token().get();
        journal.write(Event::StoreCalled { token, write: None });
        let read = store.read(token).await?;
        journal.write(Event::StoreReturned { value: read.as_ref().map(fingerprint) });
        if let Some(mut elements) = read {
            let base = fingerprint(&elements);
            reached(Point::Read, element);
            think(env).await;
            reached(Point::Checking, element);
            if *mode == Mode::Check && lease.fencing_token().is_err() {
                reached(Point::Skipped, element);
                continue;
            }
            reached(Point::Checked, element);
            think(env).await;
            elements.insert(element);
            let value = fingerprint(&elements);
            journal.write(Event::StoreCalled { token, write: Some([base, value]) });
            let accepted = store.write(token, element, &elements).await?;
            journal.write(Event::StoreReturned { value: accepted.then_some(value) });
            if accepted {
                reached(Point::Acknowledged, element);
            }
        }
        // If the worker has lost its lease, the release fails. This is not an error here.
        let _ = lease.release().await;
        think(env).await;
    }
    Ok(())
}

/// Returns a number that differs from that of every other set that occurs, except with a probability of about one in
/// 2^64. The number of the empty set is 0.
fn fingerprint(elements: &BTreeSet<u64>) -> u64 {
    let of = |element: &u64| {
        let mut hasher = DefaultHasher::new();
        element.hash(&mut hasher);
        hasher.finish()
    };
    elements.iter().map(of).fold(0, u64::wrapping_add)
}

/// Waits for a random time, so that the workers do not act at the same moments.
async fn think(env: &Env) {
    env.sleep(THINKS / 2 + env.random_below(THINKS)).await;
}

struct Client {
    stream: BufStream<TcpStream>,
    line: String,
}

impl Client {
    async fn connect(port: u16) -> Result<Self, Failure> {
        let stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufStream::new(stream), line: String::new() })
    }

    async fn read(&mut self, token: u64) -> Result<Option<BTreeSet<u64>>, Failure> {
        match self.request(&format!("read {token}\n")).await?.split_once(' ') {
            Some(("set", elements)) => Ok(Some(split(elements).ok_or("no set of numbers")?)),
            _ => Ok(None),
        }
    }

    async fn write(&mut self, token: u64, added: u64, elements: &BTreeSet<u64>) -> Result<bool, Failure> {
        Ok(self.request(&format!("write {token} {added} {}\n", join(elements))).await? == "ok")
    }

    async fn request(&mut self, request: &str) -> Result<&str, Failure> {
        self.stream.write_all(request.as_bytes()).await?;
        self.stream.flush().await?;
        self.line.clear();
        if self.stream.read_line(&mut self.line).await? == 0 {
            return Err("the store has ended".into());
        }
        Ok(self.line.trim_end_matches('\n'))
    }
}
