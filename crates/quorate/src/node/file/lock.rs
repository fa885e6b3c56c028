//! The lock on a node's directory: one session at a time reads and writes it.
//!
//! `flock` excludes other processes. It also excludes the other sessions of this process, because each
//! session opens the lock file by itself. But a wait for `flock` cannot have a time limit, so a session calls
//! `flock` repeatedly and does not block. The sessions of one process avoid these repeated calls: they first
//! wait for an in-process lock. That wait has a time limit, and the next thread wakes as soon as the
//! in-process lock is free.

use super::{
    access,
    disk::{Disk, FileId},
};
use rustix::fs::{FlockOperation, flock};
use std::{
    cell::Cell,
    collections::BTreeMap,
    fs::File,
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

/// The first and the longest pause between two tries of a lock that another process holds.
const PAUSES: (Duration, Duration) = (Duration::from_micros(100), Duration::from_millis(2));

/// A directory's lock file, opened by one session.
#[derive(Debug)]
pub(super) struct DirLock {
    file: File,
    inode: (u64, u64),
    id: FileId,
    path: PathBuf,
    thread_lock: Arc<ThreadLock>,
}

/// The result of a try to lock.
pub(super) enum LockAttempt<'a> {
    /// The directory is locked until the guard is dropped.
    Locked(DirGuard<'a>),
    /// Another session holds the lock.
    Busy,
    /// The lock file is missing or has been replaced, because the whole directory was replaced while the
    /// session was open.
    Replaced,
}

impl DirLock {
    /// Opens the lock file at `path`, and creates it if it does not exist.
    pub(super) fn open(disk: &dyn Disk, path: &Path) -> io::Result<Self> {
        let existing = || access::open(path, File::options().read(true).write(true));
        let file = match existing() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => match disk.create(path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => existing()?,
                made => made?,
            },
            opened => opened?,
        };
        let (inode, id) = (identify(&file.metadata()?), disk.identify(&file)?);
        Ok(Self { file, inode, id, path: path.to_owned(), thread_lock: ThreadLock::of(inode) })
    }

    /// Returns an id of this lock file that the lock file in a copy of the directory does not have.
    pub(super) fn id(&self) -> FileId {
        self.id
    }

    /// Tries to lock the directory. Waits for about `patience` at most for other sessions of this process,
    /// and then for `patience` at most for other processes.
    pub(super) fn attempt(&self, patience: Duration) -> io::Result<LockAttempt<'_>> {
        let Some(thread_lock) = self.thread_lock.take(patience) else { return Ok(LockAttempt::Busy) };
        let (mut pause, longest) = PAUSES;
        let mut remaining = patience;
        loop {
            match flock(&self.file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                Err(rustix::io::Errno::WOULDBLOCK) if remaining.is_zero() => return Ok(LockAttempt::Busy),
                Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
            std::thread::sleep(pause.min(remaining));
            remaining = remaining.saturating_sub(pause);
            pause = (pause * 2).min(longest);
        }
        let locked = Locked { file: &self.file, _thread: thread_lock };
        // The locked file may have been deleted or replaced. New sessions then open another file, and this lock
        // does not exclude them.
        match std::fs::metadata(&self.path) {
            Ok(there) if identify(&there) == self.inode => {
                let unsynced = Cell::new(there.len() > 0);
                Ok(LockAttempt::Locked(DirGuard { path: &self.path, unsynced, locked }))
            }
            Ok(_) => Ok(LockAttempt::Replaced),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(LockAttempt::Replaced),
            Err(e) => Err(e),
        }
    }
}

fn identify(meta: &std::fs::Metadata) -> (u64, u64) {
    (meta.dev(), meta.ino())
}

/// A guard of a locked directory. Dropping the guard unlocks the directory.
///
/// The length of the lock file says whether the last session that changed durable rows has synced them: zero if
/// it has, one if it died before, or failed. A length takes no space on a full disk, and it is read together
/// with the number of the file.
#[derive(Debug)]
pub(super) struct DirGuard<'a> {
    path: &'a Path,
    unsynced: Cell<bool>,
    locked: Locked<'a>,
}

impl DirGuard<'_> {
    /// Returns whether the directory may have changes that a power loss would undo.
    pub(super) fn is_unsynced(&self) -> bool {
        self.unsynced.get()
    }

    /// Records whether the directory may have such changes.
    pub(super) fn set_unsynced(&self, disk: &dyn Disk, unsynced: bool) -> io::Result<()> {
        disk.set_len(self.path, self.locked.file, unsynced.into())?;
        self.unsynced.set(unsynced);
        Ok(())
    }
}

#[derive(Debug)]
struct Locked<'a> {
    file: &'a File,
    // A guard of the in-process lock. It is dropped only after `drop` below has unlocked the file, so that the
    // next thread finds the file unlocked.
    _thread: ThreadGuard<'a>,
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // Unlocking an open file does not fail. If it did, closing the file would unlock it too.
        let _ = flock(self.file, FlockOperation::Unlock);
    }
}

/// The in-process lock for one lock file. All sessions of the process share it. A wait for it has a time limit.
#[derive(Debug, Default)]
struct ThreadLock {
    taken: Mutex<bool>,
    free: Condvar,
}

impl ThreadLock {
    fn of(inode: (u64, u64)) -> Arc<Self> {
        static LOCKS: Mutex<BTreeMap<(u64, u64), Weak<ThreadLock>>> = Mutex::new(BTreeMap::new());
        let mut locks = LOCKS.lock().unwrap_or_else(PoisonError::into_inner);
        locks.retain(|_, thread_lock| thread_lock.strong_count() > 0);
        if let Some(thread_lock) = locks.get(&inode).and_then(Weak::upgrade) {
            return thread_lock;
        }
        let thread_lock = Arc::new(Self::default());
        locks.insert(inode, Arc::downgrade(&thread_lock));
        thread_lock
    }

    fn take(&self, patience: Duration) -> Option<ThreadGuard<'_>> {
        let waited = self.free.wait_timeout_while(self.state(), patience, |taken| *taken);
        let (mut taken, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if *taken {
            return None;
        }
        *taken = true;
        Some(ThreadGuard(self))
    }

    fn state(&self) -> MutexGuard<'_, bool> {
        // The mutex protects only a flag, which is valid even after a panic. So a poisoned mutex can be used.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct ThreadGuard<'a>(&'a ThreadLock);

impl Drop for ThreadGuard<'_> {
    fn drop(&mut self) {
        *self.0.state() = false;
        self.0.free.notify_one();
    }
}
