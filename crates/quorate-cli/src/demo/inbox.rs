//! The messages: a file to which the demo appends and which every worker reads.

use super::journal::Lines;
use futures_util::{Stream, stream};
use quorate::env::Env;
use std::{
    collections::VecDeque,
    fs::File,
    io::{self, Write},
    path::{Path, PathBuf},
    time::Duration,
};

/// The shortest time between two looks at the inbox. A random time is added to it, so that the workers do not
/// look at the same moments.
const LOOK_EVERY: Duration = Duration::from_millis(60);

fn path(dir: &Path) -> PathBuf {
    dir.join("inbox")
}

/// The sending side.
#[derive(Debug)]
pub(crate) struct InboxSender {
    file: File,
    sent: usize,
}

impl InboxSender {
    pub(crate) fn create(dir: &Path) -> io::Result<Self> {
        Ok(Self { file: File::options().append(true).create_new(true).open(path(dir))?, sent: 0 })
    }

    /// Sends this many messages, to all workers.
    pub(crate) fn send(&mut self, many: usize) -> io::Result<()> {
        let lines: String = (1..=many).map(|n| format!("m-{}\n", self.sent + n)).collect();
        self.file.write_all(lines.as_bytes())?;
        self.sent += many;
        Ok(())
    }

    /// Returns the number of messages that have been sent. Their ids are `m-1`, `m-2` and so on.
    pub(crate) fn sent(&self) -> usize {
        self.sent
    }
}

/// A message: its id, and no payload.
pub(crate) type Message = (String, ());

/// Returns the receiving side, which reads every message from the first one on.
pub(crate) fn messages(env: &Env, dir: &Path) -> impl Stream<Item = io::Result<Message>> + use<> {
    let start = (env.clone(), Lines::of(path(dir)), VecDeque::new());
    stream::unfold(start, |(env, mut lines, mut waiting)| async move {
        loop {
            if let Some(id) = waiting.pop_front() {
                return Some((Ok((id, ())), (env, lines, waiting)));
            }
            match lines.read() {
                Ok(new) if new.is_empty() => env.sleep(LOOK_EVERY + env.random_below(LOOK_EVERY)).await,
                Ok(new) => waiting.extend(new),
                Err(error) => return Some((Err(error), (env, lines, waiting))),
            }
        }
    })
}
