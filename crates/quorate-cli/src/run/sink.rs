use std::{
    io::{self, Write},
    sync::LazyLock,
    thread,
};
use tokio::sync::{mpsc, oneshot};

/// Where the outputs of commands go. One thread writes to it, however many wait for its reader: a blocked thread for
/// each of them would leave none for anything else.
#[derive(Clone, Debug)]
pub(super) struct Sink(mpsc::Sender<Chunk>);

#[derive(Debug)]
struct Chunk {
    bytes: Vec<u8>,
    written: oneshot::Sender<io::Result<()>>,
}

impl Sink {
    /// Standard output.
    pub(super) fn stdout() -> Self {
        static STDOUT: LazyLock<Sink> = LazyLock::new(|| Sink::new("quorate-stdout", io::stdout()));
        STDOUT.clone()
    }

    /// Standard error.
    pub(super) fn stderr() -> Self {
        static STDERR: LazyLock<Sink> = LazyLock::new(|| Sink::new("quorate-stderr", io::stderr()));
        STDERR.clone()
    }

    /// A sink and its thread, which ends with the last clone.
    pub(super) fn new(name: &str, mut to: impl Write + Send + 'static) -> Self {
        let (sink, mut chunks) = mpsc::channel::<Chunk>(1);
        let write = move || {
            while let Some(Chunk { bytes, written }) = chunks.blocking_recv() {
                let result = to.write_all(&bytes).and_then(|()| to.flush());
                // A command's run may have ended.
                let _ = written.send(result);
            }
        };
        // Without a thread the channel is closed: each write is an error.
        let _ = thread::Builder::new().name(name.to_owned()).spawn(write);
        Self(sink)
    }

    /// Writes `bytes`, and waits for the reader.
    ///
    /// # Errors
    /// Where the output is closed.
    ///
    /// # Cancel safety
    /// `bytes` are written whole or not at all.
    pub(super) async fn write(&self, bytes: &[u8]) -> io::Result<()> {
        let closed = || io::Error::from(io::ErrorKind::BrokenPipe);
        let (written, result) = oneshot::channel();
        self.0.send(Chunk { bytes: bytes.to_owned(), written }).await.map_err(|_| closed())?;
        result.await.map_err(|_| closed())?
    }
}
