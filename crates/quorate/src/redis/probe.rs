//! Functions for the project's own fuzz targets and benchmarks. They are not part of the
//! public interface, and may change with any release.

use crate::config::SettingError;
use crate::node::{Batch, BatchReply, Cause, FencingToken, Hello, NodeTime, Owner, Request, Resource};
pub use crate::redis::encoded::ExpectedReply;
use crate::redis::{
    address::{Login, Secret},
    encode::encode,
    encoded::Encoded,
    fault, handshake,
    keys::Keys,
    link::Link,
    plain_acquires::PlainAcquires,
    replies::Replies,
    scripts::{Loaded, Script},
    wire::{self, ReadError, Reader, Writer},
};
use futures_util::FutureExt;
use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use tokio::io::{AsyncRead, ReadBuf};

/// Interprets a server's output `bytes`, of which `piece` bytes arrive at a time, as the `expected` replies to commands.
/// All requests are acquires: of a lock, and at odd positions of a claim.
///
/// # Errors
/// The [`Cause`] if the bytes are not such replies.
pub fn replies(bytes: &[u8], piece: usize, expected: &[ExpectedReply]) -> Result<BatchReply, Cause> {
    let (mut reader, _writer) = connection(bytes, piece);
    let items = expected.iter().map(|reply| match reply {
        ExpectedReply::Items(items) => *items,
        ExpectedReply::Commands { acquires, .. } => *acquires,
        ExpectedReply::Page => 0,
    });
    let order: Vec<usize> = (0..items.sum()).collect();
    let counts = vec![0; order.len()];
    let named = |resource: Result<Resource, SettingError>| {
        resource.map_err(|error| Cause::Protocol(error.to_string().into()))
    };
    let resources = [named(Resource::lock("r"))?, named(Resource::claim("s", "r"))?];
    let (time, propose) = (Duration::from_secs(1), FencingToken::new(1));
    let acquire = |position: &usize| Request::Acquire {
        resource: resources[position % 2].clone(),
        owner: Owner::from_node("w"),
        ttl: time,
        propose,
        tolerance: time,
        keep: time,
        ticket: None,
    };
    let requests = order.iter().map(acquire).collect();
    let encoded = Encoded { expected: expected.to_vec(), order, counts, ..Encoded::default() };
    let batch = Batch { requests, not_after: NodeTime::from_micros(u64::MAX), stamp: "stamp".into() };
    let mut replies =
        Replies::new(encoded, batch, &Keys::new(""), Arc::new(PlainAcquires::new(false)), false);
    while !replies.is_complete() {
        let next = reader.next().now_or_never().unwrap_or(Err(ReadError::Malformed("it waits")));
        replies.add(&next.map_err(|error| fault::of_broken("the server", &error))?, None);
    }
    replies.finish(None)
}

/// Parses the replies in a server's output `bytes`, of which `piece` bytes arrive at a time, as texts.
#[cfg(test)]
pub(crate) fn values(bytes: &[u8], piece: usize) -> Vec<String> {
    let (mut reader, _writer) = connection(bytes, piece);
    let mut values = Vec::new();
    while let Some(Ok(value)) = reader.next().now_or_never() {
        values.push(format!("{value:?}"));
    }
    values
}

/// Performs a handshake under `password` with a server that sends `bytes`, whatever commands it receives.
///
/// # Errors
/// The [`Cause`] of the failure.
pub fn handshake(bytes: &[u8], password: &str) -> Result<Hello, Cause> {
    let login = Login { user: None, password: Some(Secret::new(password)), database: 1 };
    let halves = connection(bytes, usize::MAX);
    let mut link = Link::new("redis://probe:6379/1", halves, login, fault::RIGHTS);
    let keys = Keys::new("quorate:");
    let result = handshake::perform(&mut link, &keys);
    result.now_or_never().unwrap_or(Err(Cause::TimedOut)).map(|handshake| handshake.hello)
}

/// Returns the text of every script, in the order in which [`Calls::new`] expects their names.
pub fn sources() -> impl Iterator<Item = &'static str> {
    Script::ALL.into_iter().map(Script::source)
}

/// Encodes the script calls of a session.
#[derive(Debug)]
pub struct Calls {
    keys: Keys,
    scripts: Loaded,
}

impl Calls {
    /// Returns an encoder for keys with the prefix `prefix`. The server has loaded the [`sources`], and `names`
    /// are the names that it gave them.
    pub fn new(prefix: &str, names: Vec<String>) -> Option<Self> {
        Some(Self { keys: Keys::new(prefix), scripts: Loaded::new(names)? })
    }

    /// Returns a batch as bytes, the expected reply to each of its calls, and the positions of its requests in the order of
    /// the replies.
    pub fn encode(&self, batch: &Batch) -> (Vec<u8>, Vec<ExpectedReply>, Vec<usize>) {
        let plain = PlainAcquires::new(false);
        let Encoded { bytes, expected, order, .. } = encode(batch, &self.keys, &self.scripts, &plain);
        (bytes, expected, order)
    }

    /// Returns the channel to which a waiter for `resource` subscribes.
    pub fn freed_channel(&self, resource: &Resource) -> String {
        self.keys.freed(resource).concat()
    }

    /// Returns the channel to which every session with a waiter subscribes.
    pub fn waiters_channel(&self) -> String {
        self.keys.waiters().concat()
    }
}

pub(crate) fn connection(bytes: &[u8], piece: usize) -> (Reader, Writer) {
    let server = RecordedServer { bytes: bytes.to_vec(), at: 0, piece: piece.max(1) };
    wire::split(Box::new(tokio::io::join(server, tokio::io::sink())))
}

/// A server whose whole output is fixed in advance.
struct RecordedServer {
    bytes: Vec<u8>,
    at: usize,
    piece: usize,
}

impl AsyncRead for RecordedServer {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let some = self.piece.min(into.remaining()).min(self.bytes.len() - self.at);
        into.put_slice(&self.bytes[self.at..self.at + some]);
        self.at += some;
        Poll::Ready(Ok(()))
    }
}
