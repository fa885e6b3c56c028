//! The messages: a file to which the demo appends and which every worker reads.

use super::journal::Lines;
use std::{
    fs::File,
    io::{self, Write},
    path::{Path, PathBuf},
};

fn path(dir: &Path) -> PathBuf {
    dir.join("inbox")
}

/// The sending side.
#[derive(Debug)]
pub(crate) struct Outlet {
    file: File,
    sent: usize,
}

impl Outlet {
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

/// Returns the receiving side, which reads every message from the first one on.
pub(crate) fn inbox(dir: &Path) -> Lines {
    Lines::of(path(dir))
}
