//! The output of commands, which this process copies to its own standard output and standard error.
//!
//! Each of the two has a [queue](super::queue::Queue) of its own, so that the output of commands displaces no log lines.
//! No run waits for a reader.

use super::{notice::notice, queue::Queue};
use std::{
    io::{stderr, stdout},
    sync::{Arc, OnceLock},
    time::Duration,
};

static STDOUT: OnceLock<CommandOutput> = OnceLock::new();
static STDERR: OnceLock<CommandOutput> = OnceLock::new();

/// One of the two outputs. Clones share its queue.
#[derive(Clone)]
pub(crate) struct CommandOutput {
    name: &'static str,
    queue: Arc<Queue>,
}

impl CommandOutput {
    pub(crate) fn stdout() -> Self {
        STDOUT.get_or_init(|| Self::new("stdout", stdout())).clone()
    }

    /// Returns the standard error of this process.
    pub(crate) fn stderr() -> Self {
        STDERR.get_or_init(|| Self::new("stderr", stderr())).clone()
    }

    pub(crate) fn new(name: &'static str, to: impl std::io::Write + Send + 'static) -> Self {
        let dropped = move |count| notice(count, "of commands' output", name);
        Self { name, queue: Queue::start("quorate-output", to, dropped) }
    }

    /// Queues a line. If the reader is too slow, the line is dropped. A dropped line is counted, and the log says when
    /// lines begin to be dropped.
    pub(crate) fn add(&self, line: &str) {
        if self.queue.add(line.as_bytes()).begins_gap() {
            tracing::warn!(
                "the output of commands is dropped because the reader of {} is too slow; files (output) and histories \
                 (keep_output) still get it",
                self.name
            );
        }
    }

    /// Waits until all lines are written, but at most `within`. Returns whether all were written.
    pub(crate) fn flush(&self, within: Duration) -> bool {
        self.queue.flush(within)
    }
}

/// Waits until the lines of both outputs are written, but at most `within` for each.
pub(super) fn finish(within: Duration) {
    for output in [&STDOUT, &STDERR].into_iter().filter_map(OnceLock::get) {
        output.flush(within);
    }
}
