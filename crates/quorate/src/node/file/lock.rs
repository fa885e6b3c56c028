//! Who may read and write the directory now.
//!
//! `flock` shuts out other processes. It also shuts out this process's other sessions, since each has opened
//! the lock file by itself; but `flock` with a time limit can only be polled, so the threads of one process
//! queue at a mutex first, which wakes the next one at once.

use super::access;
use rustix::fs::{FlockOperation, flock};
use std::{
    collections::BTreeMap,
    fs::File,
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

/// The first and the longest wait between two looks at a lock that another process holds.
const NAPS: (Duration, Duration) = (Duration::from_micros(100), Duration::from_millis(2));

/// A directory's lock, opened by one session.
#[derive(Debug)]
pub(super) struct DirLock {
    file: File,
    inode: (u64, u64),
    path: PathBuf,
    turn: Arc<Turn>,
}

/// What came of a try.
pub(super) enum Attempt<'a> {
    /// The directory is ours until the guard goes.
    Held(Held<'a>),
    /// Somebody else has it.
    Busy,
    /// The lock file is gone or another one: the directory was replaced under us.
    Replaced,
}

impl DirLock {
    /// Opens the lock file at `path`, and makes it where it does not exist.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let existing = || access::open(path, File::options().read(true).write(true));
        let file = match existing() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => match access::create_new(path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => existing()?,
                made => made?,
            },
            opened => opened?,
        };
        let inode = identify(&file.metadata()?);
        Ok(Self { file, inode, path: path.to_owned(), turn: Turn::of(inode) })
    }

    /// Tries for about `patience`.
    pub(super) fn attempt(&self, patience: Duration) -> io::Result<Attempt<'_>> {
        let Some(turn) = self.turn.take(patience) else { return Ok(Attempt::Busy) };
        let (mut nap, longest) = NAPS;
        let mut left = patience;
        loop {
            match flock(&self.file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                Err(rustix::io::Errno::WOULDBLOCK) if left.is_zero() => return Ok(Attempt::Busy),
                Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
            std::thread::sleep(nap.min(left));
            left = left.saturating_sub(nap);
            nap = (nap * 2).min(longest);
        }
        let held = Held { file: &self.file, _turn: turn };
        // Locked, but perhaps a file that no newcomer will ever lock.
        match std::fs::metadata(&self.path) {
            Ok(there) if identify(&there) == self.inode => Ok(Attempt::Held(held)),
            Ok(_) => Ok(Attempt::Replaced),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Attempt::Replaced),
            Err(e) => Err(e),
        }
    }
}

fn identify(meta: &std::fs::Metadata) -> (u64, u64) {
    (meta.dev(), meta.ino())
}

/// The lock, until it is dropped.
#[derive(Debug)]
pub(super) struct Held<'a> {
    file: &'a File,
    // After the unlocking below: the next thread finds the lock free.
    _turn: TurnGuard<'a>,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        // It cannot fail on an open file; if it did, closing the file would unlock it.
        let _ = flock(self.file, FlockOperation::Unlock);
    }
}

/// The mutex beside the lock file, one for each in this process, with a time limit.
#[derive(Debug, Default)]
struct Turn {
    taken: Mutex<bool>,
    free: Condvar,
}

impl Turn {
    fn of(inode: (u64, u64)) -> Arc<Self> {
        static TURNS: Mutex<BTreeMap<(u64, u64), Weak<Turn>>> = Mutex::new(BTreeMap::new());
        let mut turns = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
        turns.retain(|_, turn| turn.strong_count() > 0);
        if let Some(turn) = turns.get(&inode).and_then(Weak::upgrade) {
            return turn;
        }
        let turn = Arc::new(Self::default());
        turns.insert(inode, Arc::downgrade(&turn));
        turn
    }

    fn take(&self, patience: Duration) -> Option<TurnGuard<'_>> {
        let waited = self.free.wait_timeout_while(self.state(), patience, |taken| *taken);
        let (mut taken, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if *taken {
            return None;
        }
        *taken = true;
        Some(TurnGuard(self))
    }

    fn state(&self) -> MutexGuard<'_, bool> {
        // It guards one flag, which is whole whatever panicked.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct TurnGuard<'a>(&'a Turn);

impl Drop for TurnGuard<'_> {
    fn drop(&mut self) {
        *self.0.state() = false;
        self.0.free.notify_one();
    }
}
