use combine::{
    parser::combinator::AnySendSyncPartialState,
    stream::{Decoder, PointerOffset},
};
use redis::{RedisError, Value};
use std::io;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};

/// A connection, whatever carries it.
pub(crate) trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Duplex for S {}

/// The two directions of a connection.
pub(crate) fn split(stream: Box<dyn Duplex>) -> (Reader, Writer) {
    let (read, write) = tokio::io::split(stream);
    (Reader { read, decoder: Decoder::new() }, Writer { write })
}

/// Replies, one after the other.
pub(crate) struct Reader {
    read: ReadHalf<Box<dyn Duplex>>,
    decoder: Decoder<AnySendSyncPartialState, PointerOffset<[u8]>>,
}

impl Reader {
    /// The next reply.
    pub(crate) async fn next(&mut self) -> Result<Value, RedisError> {
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
