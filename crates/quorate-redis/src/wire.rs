use combine::{
    parser::combinator::AnySendSyncPartialState,
    stream::{Decoder, PointerOffset},
};
use redis::{RedisError, Value};
use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf, ReadHalf, WriteHalf};

/// The most bytes of one reply. A server that sends more has gone mad: a ledger is the longest that is read.
const REPLY_MAX: usize = 64 << 20;

/// The most bytes of one answer of a handshake.
const ANSWER_MAX: usize = 1 << 20;

/// A connection, whatever carries it.
pub(crate) trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Duplex for S {}

/// The two directions of a connection.
pub(crate) fn split(stream: Box<dyn Duplex>) -> (Reader, Writer) {
    let (read, write) = tokio::io::split(stream);
    (Reader { read: Measured { read, left: 0 }, decoder: Decoder::new(), most: ANSWER_MAX }, Writer { write })
}

/// Replies, one after the other.
pub(crate) struct Reader {
    read: Measured,
    decoder: Decoder<AnySendSyncPartialState, PointerOffset<[u8]>>,
    most: usize,
}

impl Reader {
    /// The handshake is done: from now on replies may be long.
    pub(crate) fn is_known(&mut self) {
        self.most = REPLY_MAX;
    }

    /// The next reply.
    pub(crate) async fn next(&mut self) -> Result<Value, RedisError> {
        self.read.left = self.most;
        redis::parse_redis_value_async(&mut self.decoder, &mut self.read).await
    }
}

/// Commands, one after the other.
pub(crate) struct Writer {
    write: WriteHalf<Box<dyn Duplex>>,
}

impl Writer {
    /// Hands all of `bytes` to the kernel.
    pub(crate) async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write.write_all(bytes).await?;
        self.write.flush().await
    }

    /// Says that no command will follow; what has been sent still arrives.
    pub(crate) async fn finish(&mut self) -> io::Result<()> {
        self.write.shutdown().await
    }
}

/// What is read, up to a bound.
struct Measured {
    read: ReadHalf<Box<dyn Duplex>>,
    left: usize,
}

impl AsyncRead for Measured {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.left == 0 {
            let why = "a reply is longer than any that was asked for";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, why)));
        }
        let before = into.filled().len();
        let polled = Pin::new(&mut self.read).poll_read(context, into);
        self.left = self.left.saturating_sub(into.filled().len() - before);
        polled
    }
}

#[cfg(test)]
mod tests {
    use crate::probe;

    /// At whichever byte a connection ends, and however the bytes came.
    #[test]
    fn a_reply_that_breaks_off_is_no_reply() {
        for said in [
            "*2\r\n*0\r\n+OK\r\n",
            "*2\r\n$2\r\n17\r\n*2\r\n$7\r\ngranted\r\n$1\r\n5\r\n",
            "*4\r\n$8\r\nreleased\r\n*0\r\n*-1\r\n$1\r\n1\r\n+OK\r\n",
        ] {
            let said = said.as_bytes();
            let whole = probe::values(said, usize::MAX).0;
            assert!(!whole.is_empty());
            for end in 0..=said.len() {
                for piece in [1, 2, 3, 7, usize::MAX] {
                    let values = probe::values(&said[..end], piece).0;
                    assert!(whole.starts_with(&values), "{end} bytes in pieces of {piece}: {values:?}");
                    assert_eq!(whole == values, end == said.len());
                }
            }
        }
    }
}
