use crate::resp_values::{ElementCount, Scan};
use combine::{
    parser::combinator::AnySendSyncPartialState,
    stream::{Decoder, PointerOffset},
};
use redis::{RedisError, Value};
use std::{
    future::poll_fn,
    io, mem,
    pin::{Pin, pin},
    task::{Context, Poll, ready},
};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf, ReadHalf, WriteHalf};

/// The maximum number of bytes of one reply. The longest valid reply is a page of a ledger, so a server that
/// sends more is broken.
const REPLY_MAX: usize = 64 << 20;

/// The maximum number of bytes of one reply during a handshake.
const ANSWER_MAX: usize = 1 << 20;

/// The size of the input buffer of a connection. It grows for a longer reply, such as a page of a ledger.
const BUFFER: usize = 16 << 10;

/// The number of short replies in a row after which a connection gives the room for long ones back. Between two pages of a
/// ledger there is one short reply.
const SHORT_REPLIES: u8 = 8;

/// The result of an attempt to parse the beginning of some bytes.
#[derive(Debug, PartialEq)]
pub(crate) enum Parsed<T> {
    /// The bytes begin with a reply of this length.
    Reply { length: usize, reply: T },
    /// The bytes may be the beginning of a reply.
    Incomplete,
    /// The bytes begin with something else.
    Other,
}

/// A connection over any transport.
pub(crate) trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Duplex for S {}

/// Splits a connection into a reader and a writer.
pub(crate) fn split(stream: Box<dyn Duplex>) -> (Reader, Writer) {
    let (read, write) = tokio::io::split(stream);
    (
        Reader { input: Input::new(read), decoder: Decoder::new(), most: ANSWER_MAX, long: None },
        Writer { write },
    )
}

/// Reads the replies of a server, one after the other.
pub(crate) struct Reader {
    input: Input,
    decoder: Decoder<AnySendSyncPartialState, PointerOffset<[u8]>>,
    most: usize,
    /// The pass over a reply that is longer than the input buffer was.
    long: Option<Scan>,
}

impl Reader {
    /// Raises the limit for the length of a reply. Called after the handshake. Until then, the server is not
    /// trusted to send long replies.
    pub(crate) fn allow_long_replies(&mut self) {
        (self.most, self.input.remaining) = (REPLY_MAX, REPLY_MAX);
    }

    /// Returns the next reply.
    ///
    /// # Cancel safety
    /// Safe: the part of a reply that has arrived is kept.
    pub(crate) async fn next(&mut self) -> Result<Value, RedisError> {
        poll_fn(|context| self.poll_next(context)).await
    }

    /// Polls for the next reply.
    pub(crate) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<Value, RedisError>> {
        let value = {
            // The decoder keeps the state of an incomplete reply. So the future may be dropped after each poll.
            let next = pin!(redis::parse_redis_value_async(&mut self.decoder, &mut self.input));
            ready!(next.poll(context))
        };
        if self.input.give_back(self.decoder.buffer()) {
            self.decoder = Decoder::new();
        }
        self.input.remaining = self.most;
        // The bytes that the decoder keeps begin with the next reply.
        self.input.elements = ElementCount::default();
        if self.input.taken > 0 && !self.input.elements.add(self.decoder.buffer()) {
            return Poll::Ready(Err(too_many_elements().into()));
        }
        Poll::Ready(value)
    }

    /// Polls for bytes that `parse` accepts. The function `parse` returns the result and the number of bytes, or
    /// `None` if more bytes are needed. Returns `None` if `parse` refuses the bytes, or if the decoder has taken a
    /// part of the reply: then [`Reader::poll_next`] must be called.
    pub(crate) fn poll_parsed<T>(
        &mut self,
        context: &mut Context<'_>,
        mut parse: impl FnMut(&[u8]) -> Parsed<T>,
    ) -> Poll<Option<T>> {
        while self.input.taken == 0 {
            let unread = &self.input.bytes[self.input.start..self.input.end];
            let is_complete = match &mut self.long {
                // Parsing a long reply again for each of its pieces would take longer than passing over it.
                Some(scan) => scan.advance(unread).unwrap_or(true),
                None => true,
            };
            match if is_complete { parse(unread) } else { Parsed::Incomplete } {
                Parsed::Reply { length, reply } => {
                    self.input.start += length;
                    self.input.remaining = self.most;
                    self.long = None;
                    self.input.shrink_after(length);
                    return Poll::Ready(Some(reply));
                }
                // The reply has more parts than the pass found, or other ones.
                Parsed::Incomplete if is_complete && self.long.is_some() => break,
                Parsed::Incomplete => {
                    if unread.len() == self.input.bytes.len() {
                        self.long.get_or_insert_with(Scan::new);
                        self.input.grow();
                    }
                    if !ready!(self.input.poll_fill(context)) {
                        break;
                    }
                }
                Parsed::Other => break,
            }
        }
        self.long = None;
        Poll::Ready(None)
    }
}

/// Sends commands to a server, one after the other.
pub(crate) struct Writer {
    write: WriteHalf<Box<dyn Duplex>>,
}

impl Writer {
    /// Passes all of `bytes` to the kernel.
    pub(crate) async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write.write_all(bytes).await?;
        self.write.flush().await
    }

    /// Passes bytes of `output` to the kernel, and removes these from `output`. Ready once all of them were
    /// passed.
    pub(crate) fn poll_send(
        &mut self,
        output: &mut Output,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while let rest @ [_, ..] = &output.bytes[output.sent..] {
            let count = ready!(Pin::new(&mut self.write).poll_write(context, rest))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            output.sent += count;
            output.is_flushed = false;
        }
        output.bytes.clear();
        output.sent = 0;
        if !output.is_flushed {
            ready!(Pin::new(&mut self.write).poll_flush(context))?;
            output.is_flushed = true;
        }
        Poll::Ready(Ok(()))
    }

    /// Closes the sending direction. Bytes that have been sent still arrive at the server.
    pub(crate) fn poll_finish(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.write).poll_shutdown(context)
    }
}

/// Bytes to send with [`Writer::poll_send`].
#[derive(Debug)]
pub(crate) struct Output {
    bytes: Vec<u8>,
    /// The number of bytes at the beginning of `bytes` that were sent.
    sent: usize,
    /// False if bytes were written since the last flush. A transport such as TLS has a buffer of its own.
    is_flushed: bool,
}

impl Output {
    pub(crate) fn new() -> Self {
        Self { bytes: Vec::new(), sent: 0, is_flushed: true }
    }

    /// Appends bytes to send.
    pub(crate) fn push(&mut self, bytes: Vec<u8>) {
        if self.bytes.is_empty() {
            self.bytes = bytes;
        } else {
            self.bytes.extend_from_slice(&bytes);
        }
    }
}

/// The input of a connection. It fails after `remaining` bytes, which limits the length of a reply.
struct Input {
    read: ReadHalf<Box<dyn Duplex>>,
    remaining: usize,
    /// A buffer, of which the bytes from `start` to `end` have not been used.
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
    /// The number of bytes of the present reply that the decoder has taken.
    taken: usize,
    /// The elements of the present reply that the decoder has taken.
    elements: ElementCount,
    /// The number of short replies in a row, while the buffer has room for long ones.
    short_replies: u8,
}

impl Input {
    fn new(read: ReadHalf<Box<dyn Duplex>>) -> Self {
        let bytes = vec![0; BUFFER].into_boxed_slice();
        let elements = ElementCount::default();
        Self { read, remaining: ANSWER_MAX, bytes, start: 0, end: 0, taken: 0, elements, short_replies: 0 }
    }

    /// Reads into the buffer, which must have room. Returns false if the input has ended or failed: then the decoder
    /// gets the same error.
    fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<bool> {
        if self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.remaining == 0 {
            return Poll::Ready(false);
        }
        let mut into = ReadBuf::new(&mut self.bytes[self.end..]);
        let read = ready!(Pin::new(&mut self.read).poll_read(context, &mut into));
        let count = into.filled().len();
        self.end += count;
        self.remaining = self.remaining.saturating_sub(count);
        Poll::Ready(read.is_ok() && count > 0)
    }

    /// Doubles the buffer. [`Input::remaining`] limits its size, because a buffer grows only when it is full.
    fn grow(&mut self) {
        let mut bytes = mem::take(&mut self.bytes).into_vec();
        bytes.resize(bytes.len() * 2, 0);
        self.bytes = bytes.into_boxed_slice();
    }

    /// Gives the room for long replies back, after a reply of `length` bytes, if this one and the replies before needed
    /// none of it.
    fn shrink_after(&mut self, length: usize) {
        let unread = self.start..self.end;
        if self.bytes.len() <= BUFFER {
            return;
        }
        self.short_replies = if length < BUFFER / 2 { self.short_replies.saturating_add(1) } else { 0 };
        if self.short_replies >= SHORT_REPLIES && unread.len() < BUFFER {
            self.short_replies = 0;
            let mut bytes = vec![0; BUFFER].into_boxed_slice();
            bytes[..unread.len()].copy_from_slice(&self.bytes[unread.clone()]);
            (self.bytes, self.start, self.end) = (bytes, 0, unread.len());
        }
    }

    /// Puts bytes back that the decoder has taken and not used. Returns false if there is no room for them. Then the
    /// decoder keeps them.
    fn give_back(&mut self, unused: &[u8]) -> bool {
        let kept = self.end - self.start;
        if unused.len() + kept > self.bytes.len() {
            self.taken = unused.len();
            return false;
        }
        if !unused.is_empty() {
            self.bytes.copy_within(self.start..self.end, unused.len());
            self.bytes[..unused.len()].copy_from_slice(unused);
            (self.start, self.end) = (0, unused.len() + kept);
        }
        self.taken = 0;
        true
    }
}

impl AsyncRead for Input {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let polled = if self.start < self.end {
            let end = self.end.min(self.start + into.remaining().min(BUFFER));
            into.put_slice(&self.bytes[self.start..end]);
            self.start = end;
            Poll::Ready(Ok(()))
        } else if self.remaining == 0 {
            let why = "a reply is longer than any valid one";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, why)));
        } else {
            // Short pieces: the elements of a piece count for the reply that it ends.
            let room = into.remaining().min(BUFFER);
            let mut piece = ReadBuf::new(into.initialize_unfilled_to(room));
            let polled = Pin::new(&mut self.read).poll_read(context, &mut piece);
            let count = piece.filled().len();
            into.advance(count);
            self.remaining = self.remaining.saturating_sub(count);
            polled
        };
        self.taken += into.filled().len() - before;
        if !self.elements.add(&into.filled()[before..]) {
            return Poll::Ready(Err(too_many_elements()));
        }
        polled
    }
}

fn too_many_elements() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a reply has more elements than any valid one")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe;

    /// Parses a line of a length that is announced in it.
    fn bulk(bytes: &[u8]) -> Parsed<()> {
        let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else { return Parsed::Incomplete };
        let announced: usize = std::str::from_utf8(&bytes[1..end - 1]).unwrap().parse().unwrap();
        let length = end + 1 + announced + 2;
        if bytes.len() < length { Parsed::Incomplete } else { Parsed::Reply { length, reply: () } }
    }

    #[test]
    fn room_for_long_replies_is_kept_between_pages_and_given_back_after_them() {
        let of = |length: usize| format!("${length}\r\n{}\r\n", "x".repeat(length));
        let page = [of(100_000), of(50)].concat();
        let bytes = page.repeat(3) + &of(50).repeat(usize::from(SHORT_REPLIES));
        let (mut reader, _writer) = probe::connection(bytes.as_bytes(), usize::MAX);
        reader.allow_long_replies();
        let mut context = Context::from_waker(std::task::Waker::noop());
        let mut lengths = Vec::new();
        for _ in 0..6 + SHORT_REPLIES {
            assert!(matches!(reader.poll_parsed(&mut context, bulk), Poll::Ready(Some(()))));
            lengths.push(reader.input.bytes.len());
        }
        let long = lengths[0];
        assert!(long > 100_000, "{lengths:?}");
        assert!(lengths[..12].iter().all(|length| *length == long), "kept: {lengths:?}");
        assert_eq!(lengths.last(), Some(&BUFFER), "given back: {lengths:?}");
    }

    /// The decoder needs much more memory for an element than the server needs bytes for it.
    #[test]
    fn a_reply_of_too_many_elements_is_refused_before_it_is_complete() {
        let most = usize::try_from(ElementCount::MOST).unwrap();
        for element in ["_\r\n", ":1\r\n", "$0\r\n\r\n", "*0\r\n", "+\r\n", "$-1\r\n"] {
            let bytes = |count: usize| format!("*{count}\r\n{}", element.repeat(count));
            for piece in [4_001, usize::MAX] {
                let (mut reader, _writer) = probe::connection(bytes(most + 100_000).as_bytes(), piece);
                reader.allow_long_replies();
                let mut context = Context::from_waker(std::task::Waker::noop());
                let error = match reader.poll_next(&mut context) {
                    Poll::Ready(Err(error)) => error.to_string(),
                    other => panic!("{element:?}: {}", other.is_pending()),
                };
                assert!(error.contains("more elements"), "{element:?}: {error}");
            }
        }
        // Lines within a text are no elements, and the count begins again with the next reply.
        let text = "\r\n".repeat(most + 1);
        let long = format!("${}\r\n{text}\r\n", text.len());
        let half = format!("*{}\r\n{}", most / 2, ":1\r\n".repeat(most / 2));
        let all = [long.as_str(), &half, &half, &half, "+OK\r\n"].concat();
        let (mut reader, _writer) = probe::connection(all.as_bytes(), usize::MAX);
        reader.allow_long_replies();
        let mut context = Context::from_waker(std::task::Waker::noop());
        for _ in 0..5 {
            assert!(matches!(reader.poll_next(&mut context), Poll::Ready(Ok(_))));
        }
    }

    /// Checks that an incomplete reply is never returned. The connection ends after each possible byte, and the
    /// bytes arrive in pieces of several sizes.
    #[test]
    fn an_incomplete_reply_is_not_returned() {
        for bytes in [
            "*2\r\n*0\r\n+OK\r\n",
            "*2\r\n$2\r\n17\r\n*2\r\n$7\r\ngranted\r\n$1\r\n5\r\n",
            "*4\r\n$8\r\nreleased\r\n*0\r\n*-1\r\n$1\r\n1\r\n+OK\r\n",
        ] {
            let bytes = bytes.as_bytes();
            let whole = probe::values(bytes, usize::MAX).0;
            assert!(!whole.is_empty());
            for end in 0..=bytes.len() {
                for piece in [1, 2, 3, 7, usize::MAX] {
                    let values = probe::values(&bytes[..end], piece).0;
                    assert!(whole.starts_with(&values), "{end} bytes in pieces of {piece}: {values:?}");
                    assert_eq!(whole == values, end == bytes.len());
                }
            }
        }
    }
}
