use combine::{
    parser::combinator::AnySendSyncPartialState,
    stream::{Decoder, PointerOffset},
};
use redis::{RedisError, Value};
use std::{
    future::poll_fn,
    io,
    pin::{Pin, pin},
    task::{Context, Poll, ready},
};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf, ReadHalf, WriteHalf};

/// The maximum number of bytes of one reply. The longest valid reply is a page of a ledger, so a server that
/// sends more is broken.
const REPLY_MAX: usize = 64 << 20;

/// The maximum number of bytes of one reply during a handshake.
const ANSWER_MAX: usize = 1 << 20;

/// A connection over any transport.
pub(crate) trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Duplex for S {}

/// Splits a connection into a reader and a writer.
pub(crate) fn split(stream: Box<dyn Duplex>) -> (Reader, Writer) {
    let (read, write) = tokio::io::split(stream);
    (
        Reader {
            read: LimitedReader { read, remaining: ANSWER_MAX },
            decoder: Decoder::new(),
            most: ANSWER_MAX,
        },
        Writer { write },
    )
}

/// Reads the replies of a server, one after the other.
pub(crate) struct Reader {
    read: LimitedReader,
    decoder: Decoder<AnySendSyncPartialState, PointerOffset<[u8]>>,
    most: usize,
}

impl Reader {
    /// Raises the limit for the length of a reply. Called after the handshake. Until then, the server is not
    /// trusted to send long replies.
    pub(crate) fn allow_long_replies(&mut self) {
        (self.most, self.read.remaining) = (REPLY_MAX, REPLY_MAX);
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
        // The decoder keeps the state of an incomplete reply. So the future may be dropped after each poll.
        let value = {
            let next = pin!(redis::parse_redis_value_async(&mut self.decoder, &mut self.read));
            ready!(next.poll(context))
        };
        self.read.remaining = self.most;
        Poll::Ready(value)
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
    pub(crate) fn poll_send(&mut self, output: &mut Output, context: &mut Context<'_>) -> Poll<io::Result<()>> {
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

/// A reader that fails after `remaining` bytes. This limits the length of a reply.
struct LimitedReader {
    read: ReadHalf<Box<dyn Duplex>>,
    remaining: usize,
}

impl AsyncRead for LimitedReader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.remaining == 0 {
            let why = "a reply is longer than any valid one";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, why)));
        }
        let before = into.filled().len();
        let polled = Pin::new(&mut self.read).poll_read(context, into);
        self.remaining = self.remaining.saturating_sub(into.filled().len() - before);
        polled
    }
}

#[cfg(test)]
mod tests {
    use crate::probe;

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
