//! The journals of the workers, with one JSON object per line, and one `write` call per line.

use quorate::env::{BootTime, Env};
use serde::{Deserialize, Serialize};
use std::{
    fs::File,
    io::{self, Read, Write},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

/// A run of a worker process. A worker that is started again keeps its name, and gets another run
/// number.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct WorkerId {
    pub(crate) worker: Arc<str>,
    pub(crate) run: u32,
}

impl WorkerId {
    pub(crate) fn journal(&self, dir: &Path) -> PathBuf {
        dir.join(format!("{}.{}.jsonl", self.worker, self.run))
    }
}

/// An event of a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub(crate) enum Event {
    /// The worker leads, for this term. The worker writes this event before it does any work under the term.
    Elected { term: u64 },
    /// A tick is about to run. Writing this is the first action of its handler.
    TickStart { tick: u64 },
    /// A message is about to be handled.
    MessageStart { id: Arc<str>, token: u64 },
    /// The work of the term has been cancelled.
    StepDown { term: u64 },
    /// The lease of the term expired.
    Lost { term: u64 },
}

/// A line of a journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    /// The time at which the line was written, on the host's boot clock in nanoseconds.
    pub(crate) at: u64,
    #[serde(flatten)]
    pub(crate) who: WorkerId,
    #[serde(flatten)]
    pub(crate) event: Event,
}

impl Entry {
    pub(crate) fn at(&self) -> BootTime {
        BootTime::from_nanos(self.at)
    }
}

/// The journal of a worker, for writing. Clones write to the same file.
#[derive(Clone, Debug)]
pub(crate) struct Journal {
    env: Env,
    who: WorkerId,
    file: Arc<Mutex<File>>,
}

impl Journal {
    pub(crate) fn create(env: &Env, who: WorkerId, dir: &Path) -> io::Result<Self> {
        let file = File::options().append(true).create_new(true).open(who.journal(dir))?;
        Ok(Self { env: env.clone(), who, file: Arc::new(Mutex::new(file)) })
    }

    /// Writes a line. When this method returns, the kernel has the line, so a SIGKILL cannot undo the write.
    pub(crate) fn write(&self, event: Event) -> io::Result<()> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = Entry { at: self.env.now().as_nanos(), who: self.who.clone(), event };
        let mut line = serde_json::to_vec(&entry)?;
        line.push(b'\n');
        match file.write(&line)? {
            whole if whole == line.len() => Ok(()),
            _ => Err(io::Error::other("only a part of the line was written; the disk may be full")),
        }
    }
}

/// The lines of a growing file.
#[derive(Debug)]
pub(crate) struct Lines {
    path: PathBuf,
    file: Option<File>,
    half: Vec<u8>,
}

impl Lines {
    /// Returns the lines of a file that may not exist yet.
    pub(crate) fn of(path: PathBuf) -> Self {
        Self { path, file: None, half: Vec::new() }
    }

    /// Returns the complete lines since the last call.
    pub(crate) fn read(&mut self) -> io::Result<Vec<String>> {
        if self.file.is_none() {
            match File::open(&self.path) {
                Ok(file) => self.file = Some(file),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
                Err(error) => return Err(error),
            }
        }
        if let Some(file) = &mut self.file {
            file.read_to_end(&mut self.half)?;
        }
        let Some(end) = self.half.iter().rposition(|byte| *byte == b'\n') else { return Ok(Vec::new()) };
        let rest = self.half.split_off(end + 1);
        let whole = std::mem::replace(&mut self.half, rest);
        let text = String::from_utf8(whole).map_err(io::Error::other)?;
        Ok(text.lines().map(str::to_owned).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_entries_are_read_line_by_line() {
        let dir = tempfile::tempdir().unwrap();
        let who = WorkerId { worker: "worker-1".into(), run: 2 };
        let mut lines = Lines::of(who.journal(dir.path()));
        assert!(lines.read().unwrap().is_empty(), "no file yet");
        let journal = Journal::create(&Env::system(), who.clone(), dir.path()).unwrap();
        let events = [
            Event::Elected { term: 1_790_000_000_000_000 },
            Event::MessageStart { id: "m-1".into(), token: 7 },
        ];
        for event in events.clone() {
            journal.write(event).unwrap();
        }
        let mut raw = File::options().append(true).open(who.journal(dir.path())).unwrap();
        raw.write_all(b"{\"at\":1").unwrap();
        let read = lines.read().unwrap();
        let entries: Vec<Entry> = read.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(entries.iter().map(|e| e.event.clone()).collect::<Vec<_>>(), events);
        assert!(entries.iter().all(|entry| entry.who == who && entry.at > 0));
        assert!(lines.read().unwrap().is_empty(), "an incomplete line is not returned");
        raw.write_all(b"}\n").unwrap();
        assert_eq!(lines.read().unwrap(), ["{\"at\":1}"]);
    }

    #[test]
    fn a_journal_has_one_writer() {
        let dir = tempfile::tempdir().unwrap();
        let who = WorkerId { worker: "worker-1".into(), run: 1 };
        let _first = Journal::create(&Env::system(), who.clone(), dir.path()).unwrap();
        assert!(Journal::create(&Env::system(), who, dir.path()).is_err());
    }
}
