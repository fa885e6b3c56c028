//! The messages: a file that the demo appends to and every worker reads.

use super::journal::Lines;
use std::{
    fs::File,
    io::{self, Write},
    path::{Path, PathBuf},
};

fn path(dir: &Path) -> PathBuf {
    dir.join("inbox")
}

/// The demo's side.
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

    /// How many messages have been sent: `m-1` and so on.
    pub(crate) fn sent(&self) -> usize {
        self.sent
    }
}

/// A worker's side: every message from the first.
pub(crate) fn inbox(dir: &Path) -> Lines {
    Lines::of(path(dir))
}
