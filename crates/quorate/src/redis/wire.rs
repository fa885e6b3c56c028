use crate::redis::resp::{Malformed, Scan, Value};
use std::{
    future::poll_fn,
    io, mem,
    pin::Pin,
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

/// A connection over any transport.
pub(crate) trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Duplex for S {}

/// Splits a connection into a reader and a writer.
pub(crate) fn split(stream: Box<dyn Duplex>) -> (Reader, Writer) {
    let (read, write) = tokio::io::split(stream);
    (Reader::new(read), Writer { write })
}

/// The reason why no reply was read.
#[derive(Debug)]
pub(crate) enum ReadError {
    Io(io::Error),
    Malformed(&'static str),
}

impl From<Malformed> for ReadError {
    fn from(Malformed(why): Malformed) -> Self {
        Self::Malformed(why)
    }
}

/// Reads the replies of a server, one after the other.
pub(crate) struct Reader {
    read: ReadHalf<Box<dyn Duplex>>,
    /// The maximum number of bytes of a reply.
    most: usize,
    /// A buffer, of which the bytes from `start` to `end` have not been used. They begin with a reply.
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
    /// The pass over that reply.
    scan: Scan,
    /// The length of that reply, once all of it has arrived.
    arrived: Option<usize>,
    /// The number of short replies in a row, while the buffer has room for long ones.
    short_replies: u8,
}

impl Reader {
    fn new(read: ReadHalf<Box<dyn Duplex>>) -> Self {
        let bytes = vec![0; BUFFER].into_boxed_slice();
        let (scan, arrived) = (Scan::new(), None);
        Self { read, most: ANSWER_MAX, bytes, start: 0, end: 0, scan, arrived, short_replies: 0 }
    }

    /// Raises the limit for the length of a reply. Called after the handshake. Until then, the server is not
    /// trusted to send long replies.
    pub(crate) fn allow_long_replies(&mut self) {
        self.most = REPLY_MAX;
    }

    /// Returns the next reply.
    ///
    /// # Cancel safety
    /// Safe: the part of a reply that has arrived is kept.
    pub(crate) async fn next(&mut self) -> Result<Value<'_>, ReadError> {
        poll_fn(|context| self.poll_arrived(context)).await?;
        self.take()
    }

    /// Ready once the whole next reply has arrived. [`Reader::take`] returns it.
    pub(crate) fn poll_arrived(&mut self, context: &mut Context<'_>) -> Poll<Result<(), ReadError>> {
        while self.arrived.is_none() {
            let unread = &self.bytes[self.start..self.end];
            self.arrived = self.scan.advance(unread)?;
            if self.arrived.is_none() {
                if unread.len() >= self.most {
                    return Poll::Ready(Err(ReadError::Malformed("a reply is longer than any valid one")));
                }
                ready!(self.poll_fill(context))?;
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Returns the reply that has arrived.
    pub(crate) fn take(&mut self) -> Result<Value<'_>, ReadError> {
        let length = self.arrived.take().unwrap_or_default();
        let reply = self.start..self.start + length;
        self.start += length;
        self.scan = Scan::new();
        self.short_replies = if length < BUFFER / 2 { self.short_replies.saturating_add(1) } else { 0 };
        Ok(Value::parse(&self.bytes[reply])?)
    }

    /// Reads into the buffer, whose bytes do not end with a whole reply.
    fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<Result<(), ReadError>> {
        self.make_room();
        let mut into = ReadBuf::new(&mut self.bytes[self.end..]);
        ready!(Pin::new(&mut self.read).poll_read(context, &mut into)).map_err(ReadError::Io)?;
        let count = into.filled().len();
        self.end += count;
        let ended = || ReadError::Io(io::ErrorKind::UnexpectedEof.into());
        Poll::Ready(if count > 0 { Ok(()) } else { Err(ended()) })
    }

    /// Moves the unread bytes to the beginning of the buffer, and doubles the buffer if they fill it. Gives the room for
    /// long replies back if no recent reply needed it.
    fn make_room(&mut self) {
        let unread = self.end - self.start;
        self.bytes.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, unread);
        let length = match self.bytes.len() {
            full if full == unread => full * 2,
            long if long > BUFFER && unread < BUFFER && self.short_replies >= SHORT_REPLIES => BUFFER,
            enough => enough,
        };
        if length != self.bytes.len() {
            let mut bytes = mem::take(&mut self.bytes).into_vec();
            bytes.resize(length, 0);
            self.bytes = bytes.into_boxed_slice();
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::probe;

    #[test]
    fn room_for_long_replies_is_kept_between_pages_and_given_back_after_them() {
        let of = |length: usize| format!("${length}\r\n{}\r\n", "x".repeat(length));
        let page = [of(100_000), of(50)].concat();
        let bytes = page.repeat(3) + &of(50).repeat(2 * usize::from(SHORT_REPLIES));
        // A server sends a reply after a request, so each reply arrives alone.
        let (mut reader, _writer) = probe::connection(bytes.as_bytes(), of(50).len());
        reader.allow_long_replies();
        let mut context = Context::from_waker(std::task::Waker::noop());
        let mut lengths = Vec::new();
        for _ in 0..6 + 2 * SHORT_REPLIES {
            assert!(matches!(reader.poll_arrived(&mut context), Poll::Ready(Ok(()))));
            assert!(reader.take().is_ok());
            lengths.push(reader.bytes.len());
        }
        let long = lengths[0];
        assert!(long > 100_000, "{lengths:?}");
        assert!(lengths[..12].iter().all(|length| *length == long), "kept: {lengths:?}");
        assert_eq!(lengths.last(), Some(&BUFFER), "given back: {lengths:?}");
    }

    /// Returns the error that ends a connection whose server sends `bytes`.
    fn error(bytes: &[u8], allow_long: bool) -> ReadError {
        let (mut reader, _writer) = probe::connection(bytes, 4_001);
        if allow_long {
            reader.allow_long_replies();
        }
        let mut context = Context::from_waker(std::task::Waker::noop());
        loop {
            match reader.poll_arrived(&mut context) {
                Poll::Ready(Ok(())) => assert!(reader.take().is_ok()),
                Poll::Ready(Err(error)) => return error,
                Poll::Pending => panic!("the server does not wait"),
            }
        }
    }

    #[test]
    fn a_reply_that_is_too_long_or_has_too_many_elements_is_refused_before_its_end() {
        for element in ["_\r\n", ":1\r\n", "$0\r\n\r\n", "*0\r\n", "+\r\n", "$-1\r\n"] {
            let many = format!("*1000000\r\n{}", element.repeat(1000));
            let refused = error(many.as_bytes(), true);
            assert!(
                matches!(refused, ReadError::Malformed(why) if why.contains("more elements")),
                "{refused:?}"
            );
        }
        let long = format!("${}\r\n{}\r\n", ANSWER_MAX, "x".repeat(ANSWER_MAX));
        let refused = error(long.as_bytes(), false);
        assert!(matches!(refused, ReadError::Malformed(why) if why.contains("longer")), "{refused:?}");
        assert!(matches!(error(long.as_bytes(), true), ReadError::Io(_)), "the end comes after the reply");
        let refused = error(&vec![b'+'; REPLY_MAX + 1], true);
        assert!(matches!(refused, ReadError::Malformed(why) if why.contains("longer")), "{refused:?}");
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
            let whole = probe::values(bytes, usize::MAX);
            assert!(!whole.is_empty());
            for end in 0..=bytes.len() {
                for piece in [1, 2, 3, 7, usize::MAX] {
                    let values = probe::values(&bytes[..end], piece);
                    assert!(whole.starts_with(&values), "{end} bytes in pieces of {piece}: {values:?}");
                    assert_eq!(whole == values, end == bytes.len());
                }
            }
        }
    }
}
