use std::{
    io::{self, Write},
    mem,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

/// The largest number of bytes that wait to be written.
const BYTES_MAX: usize = 1 << 20;

/// Lines that wait to be written, and the thread that writes them. [`Queue::add`] never waits for the reader.
///
/// The writer of `tracing-appender` is not used here. It limits the number of lines and not their bytes, and
/// does not report the lines that it dropped. It also prints to standard output if it cannot end in time.
pub(crate) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The waiting lines, each of them complete.
    waiting: Vec<u8>,
    /// The number of lines that were dropped because the queue was full.
    dropped: u64,
    /// True while the thread is writing lines that it has taken out of the queue.
    writing: bool,
}

impl Queue {
    /// Starts a queue and its thread, which ends with the process. `notice` formats the number of dropped lines.
    pub(super) fn start(
        thread: &str,
        mut to: impl Write + Send + 'static,
        notice: impl Fn(u64) -> String + Send + 'static,
    ) -> Arc<Self> {
        let queue = Arc::new(Self { state: Mutex::default(), changed: Condvar::new() });
        let shared = Arc::clone(&queue);
        let write = move || {
            loop {
                let (lines, dropped) = shared.take();
                // A failed write does not end the thread, because a terminal or a file may become writable
                // again.
                let _ = to.write_all(&lines).and_then(|()| match dropped {
                    0 => to.flush(),
                    count => to.write_all(notice(count).as_bytes()).and_then(|()| to.flush()),
                });
                shared.lock().writing = false;
                shared.changed.notify_all();
            }
        };
        // If the thread cannot be started, the queue fills up and drops lines, and the rest of the process
        // continues.
        let _ = thread::Builder::new().name(thread.to_owned()).spawn(write);
        queue
    }

    /// Queues a line. If the queue is full, drops the line and counts it.
    pub(super) fn add(&self, line: &[u8]) -> Added {
        let mut state = self.lock();
        // Once a line was dropped, all further lines are dropped until the thread takes the queue. So the
        // notice about dropped lines appears exactly where the lines are missing.
        let fits = state.dropped == 0 && state.waiting.len() + line.len() <= BYTES_MAX;
        if fits {
            state.waiting.extend_from_slice(line);
        } else {
            state.dropped = state.dropped.saturating_add(1);
        }
        let added = Added { dropped: state.dropped };
        drop(state);
        self.changed.notify_all();
        added
    }

    /// Waits until all lines are written, but at most `within`. Returns whether all were written.
    pub(super) fn flush(&self, within: Duration) -> bool {
        let is_busy = |state: &mut State| state.is_waiting() || state.writing;
        let waited = self.changed.wait_timeout_while(self.lock(), within, is_busy);
        !is_busy(&mut waited.unwrap_or_else(PoisonError::into_inner).0)
    }

    /// Waits for lines, and removes them from the queue. Returns them with the number of dropped lines.
    fn take(&self) -> (Vec<u8>, u64) {
        let waited = self.changed.wait_while(self.lock(), |state| !state.is_waiting());
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        state.writing = true;
        (mem::take(&mut state.waiting), mem::take(&mut state.dropped))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The result of [`Queue::add`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Added {
    /// The number of lines that are missing at the end of the queue.
    dropped: u64,
}

impl Added {
    /// Returns whether this line is the first one that was dropped since the thread last took the queue.
    pub(super) fn begins_gap(self) -> bool {
        self.dropped == 1
    }
}

impl State {
    fn is_waiting(&self) -> bool {
        !self.waiting.is_empty() || self.dropped > 0
    }
}

/// A writer that queues lines. Each call of `write` must pass one whole line.
impl Write for &Queue {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.add(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A buffer that a test uses as the output of a queue.
#[cfg(test)]
#[derive(Clone, Default)]
pub(crate) struct Shared(Arc<Mutex<Vec<u8>>>);

#[cfg(test)]
impl Shared {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

#[cfg(test)]
impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    const PATIENCE: Duration = Duration::from_secs(20);

    #[test]
    fn a_blocked_reader_delays_no_writer_and_gets_a_notice_of_each_gap() {
        let (mut reader, writer) = io::pipe().unwrap();
        let queue = Queue::start("test", writer, |count| format!("{count} dropped\n"));
        let line = |number: usize| format!("{number:099}\n").into_bytes();
        // The lines together are many times larger than the pipe and the queue.
        let (lines, mut gaps) = (40_000, 0);
        for number in 0..lines {
            gaps += usize::from(queue.add(&line(number)).begins_gap());
        }
        assert!(!queue.flush(Duration::from_millis(10)), "the reader has not read");
        let reading = thread::spawn(move || {
            let (mut text, mut bytes) = (String::new(), [0; 4096]);
            while !text.ends_with("the last\n") {
                let n = reader.read(&mut bytes).unwrap();
                text += std::str::from_utf8(&bytes[..n]).unwrap();
            }
            text
        });
        assert!(queue.flush(PATIENCE), "all that waited is written now");
        queue.add(b"the last\n");
        let text = reading.join().unwrap();
        let (mut next, mut notices) = (0, 0);
        for line in text.lines().filter(|line| *line != "the last") {
            match line.strip_suffix(" dropped") {
                Some(count) => {
                    next += count.parse::<usize>().unwrap();
                    notices += 1;
                }
                None => {
                    assert_eq!(line.parse::<usize>().unwrap(), next, "in order, with each gap counted");
                    next += 1;
                }
            }
        }
        assert!(next == lines && notices > 0, "{next} lines accounted for, {notices} notices");
        assert_eq!(gaps, notices, "each gap was reported to the writer when it began");
    }

    #[test]
    fn a_closed_reader_does_not_stop_the_queue() {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let queue = Queue::start("test", writer, |_| String::new());
        for _ in 0..3 {
            queue.add(b"one\n");
            assert!(queue.flush(PATIENCE));
        }
    }
}
