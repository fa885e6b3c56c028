//! What the project's own fuzz targets and benchmarks call. No part of the interface: it may change with any release.

use crate::{
    address::{Login, Secret},
    encode::{Encoded, Keys, encode},
    handshake, reply,
    scripts::{Loaded, Script},
    wire::{self, Reader, Writer},
};
use futures_util::FutureExt;
use quorate::node::{Batch, BatchReply, Cause, Hello};
use redis::Value;
use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};
use tokio::io::{AsyncRead, ReadBuf};

/// Every reply that a server's `bytes` hold before they end or break off, where `piece` of them arrive at a
/// time; and whether nothing but replies was among them.
pub fn values(bytes: &[u8], piece: usize) -> (Vec<Value>, bool) {
    let (mut reader, _writer) = connection(bytes, piece);
    let mut values = Vec::new();
    loop {
        match reader.next().now_or_never() {
            Some(Ok(value)) => values.push(value),
            Some(Err(error)) => return (values, error.is_connection_dropped()),
            None => return (values, false),
        }
    }
}

/// `values` as the replies to commands of as many items as `runs` says.
///
/// # Errors
/// The [`Cause`] for which they are no such replies.
pub fn replies(values: Vec<Value>, runs: &[usize]) -> Result<BatchReply, Cause> {
    reply::read(values, runs)
}

/// A handshake, with `password`, with a server that says `bytes`, whatever it is asked.
///
/// # Errors
/// The [`Cause`] for which there is no session.
pub fn handshake(bytes: &[u8], password: &str) -> Result<Hello, Cause> {
    let login = Login { user: None, password: Some(Secret::new(password)), database: 1 };
    let mut halves = connection(bytes, usize::MAX);
    let keys = Keys::new("quorate:");
    let shaken = handshake::handshake_on("redis://probe:6379/1", &mut halves, &login, &keys);
    shaken.now_or_never().unwrap_or(Err(Cause::TimedOut)).map(|shaken| shaken.hello)
}

/// The text of every script, in the order in which [`Calls::new`] takes their names.
pub fn sources() -> impl Iterator<Item = &'static str> {
    Script::ALL.into_iter().map(Script::source)
}

/// The script calls that a session makes.
#[derive(Debug)]
pub struct Calls {
    keys: Keys,
    scripts: Loaded,
}

impl Calls {
    /// On keys that begin with `prefix`, by the names under which a server has loaded [`sources`].
    pub fn new(prefix: &str, names: Vec<String>) -> Option<Self> {
        Some(Self { keys: Keys::new(prefix), scripts: Loaded::new(names)? })
    }

    /// A batch as bytes, and how many items each of its commands has.
    pub fn encode(&self, batch: &Batch) -> (Vec<u8>, Vec<usize>) {
        let Encoded { bytes, runs } = encode(batch, &self.keys, &self.scripts);
        (bytes, runs)
    }
}

fn connection(bytes: &[u8], piece: usize) -> (Reader, Writer) {
    let said = Said { bytes: bytes.to_vec(), at: 0, piece: piece.max(1) };
    wire::split(Box::new(tokio::io::join(said, tokio::io::sink())))
}

/// A server that has already said everything.
struct Said {
    bytes: Vec<u8>,
    at: usize,
    piece: usize,
}

impl AsyncRead for Said {
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
