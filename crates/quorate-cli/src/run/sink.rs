use std::{
    io::{self, Write},
    sync::LazyLock,
    thread,
};
use tokio::sync::{mpsc, oneshot};

/// An output of this process that receives the output of commands. One thread writes to it, however many
/// commands have output. If each command had a thread, blocked writes could use up all threads.
#[derive(Clone, Debug)]
pub(super) struct Sink(mpsc::Sender<Chunk>);

#[derive(Debug)]
struct Chunk {
    bytes: Vec<u8>,
    written: oneshot::Sender<io::Result<()>>,
}

impl Sink {
    /// Returns the sink of standard output.
    pub(super) fn stdout() -> Self {
        static STDOUT: LazyLock<Sink> = LazyLock::new(|| Sink::new("quorate-stdout", io::stdout()));
        STDOUT.clone()
    }

    /// Returns the sink of standard error.
    pub(super) fn stderr() -> Self {
        static STDERR: LazyLock<Sink> = LazyLock::new(|| Sink::new("quorate-stderr", io::stderr()));
        STDERR.clone()
    }

    /// Starts a sink and its thread. The thread ends when the last clone of the sink is dropped.
    pub(super) fn new(name: &str, mut to: impl Write + Send + 'static) -> Self {
        let (sink, mut chunks) = mpsc::channel::<Chunk>(1);
        let write = move || {
            while let Some(Chunk { bytes, written }) = chunks.blocking_recv() {
                let result = to.write_all(&bytes).and_then(|()| to.flush());
                // The send fails if the run that waits for the result has ended.
                let _ = written.send(result);
            }
        };
        // If the thread cannot be started, the channel is closed, and each write returns an error.
        let _ = thread::Builder::new().name(name.to_owned()).spawn(write);
        Self(sink)
    }

    /// Writes `bytes`, and waits until the write has completed, which may depend on the reader of the output.
    ///
    /// # Errors
    /// The error of the write, such as a closed output.
    ///
    /// # Cancel safety
    /// `bytes` are written completely or not at all.
    pub(super) async fn write(&self, bytes: &[u8]) -> io::Result<()> {
        let closed = || io::Error::from(io::ErrorKind::BrokenPipe);
        let (written, result) = oneshot::channel();
        self.0.send(Chunk { bytes: bytes.to_owned(), written }).await.map_err(|_| closed())?;
        result.await.map_err(|_| closed())?
    }
}
