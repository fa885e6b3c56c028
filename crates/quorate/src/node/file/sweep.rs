use super::store::{Directory, RowFile, Table, Transaction, is_temporary, read_row_file};
use super::{lock::DirGuard, names::file_name};
use crate::node::engine::{ClaimRow, Clocks, CounterRow, LEDGER_LIFE, LifeRow};
use serde::de::{DeserializeOwned, IgnoredAny};
use std::{
    ffi::OsStr,
    fs::{DirEntry, ReadDir},
    path::Path,
};

/// The number of files that the sweep checks for each file that is written. The number must be more than one,
/// so that the sweep keeps up with the writes.
const CHECKS_PER_WRITE: usize = 2;
/// A sweep starts once `MIN_CHECKS` checks are pending, and makes at most `MAX_CHECKS` checks.
const MIN_CHECKS: usize = 32;
const MAX_CHECKS: usize = 256;

/// The directories that the sweep visits in turn.
const TARGETS: [SweepTarget; 7] = [
    SweepTarget::Table(Table::Leases),
    SweepTarget::OtherBoots,
    SweepTarget::Table(Table::Counters),
    SweepTarget::Table(Table::Claims),
    SweepTarget::Table(Table::Lives),
    SweepTarget::Table(Table::Ledgers),
    SweepTarget::Table(Table::Root),
];

#[derive(Clone, Copy, Debug)]
enum SweepTarget {
    Table(Table),
    OtherBoots,
}

/// Removes expired rows and files that a crash left incomplete, a few at a time, so that the directory does
/// not grow without limit. Each sweep continues where the last one stopped.
#[derive(Debug, Default)]
pub(super) struct Sweeper {
    pending_checks: usize,
    next_target: usize,
    open: Option<ReadDir>,
}

impl Sweeper {
    /// Sweeps after `written` changes. The caller must hold the directory's lock. Files that cannot be read or
    /// removed are skipped, because a request that needs such a file reports the error.
    pub(super) fn sweep(&mut self, dir: &Directory, guard: &DirGuard, clocks: Clocks, written: usize) {
        self.pending_checks += written * CHECKS_PER_WRITE;
        if self.pending_checks < MIN_CHECKS {
            return;
        }
        let mut checks = std::mem::take(&mut self.pending_checks).min(MAX_CHECKS);
        while checks > 0 {
            checks -= 1;
            let target = TARGETS[self.next_target % TARGETS.len()];
            match self.next(dir, target) {
                Some(entry) => remove_if_ended(&entry, target, dir, guard, clocks),
                None => self.next_target = (self.next_target + 1) % TARGETS.len(),
            }
        }
    }

    fn next(&mut self, dir: &Directory, target: SweepTarget) -> Option<DirEntry> {
        if self.open.is_none() {
            let path = match target {
                SweepTarget::Table(table) => dir.table_dir(table),
                SweepTarget::OtherBoots => dir.root().join("leases"),
            };
            self.open = std::fs::read_dir(path).ok();
        }
        let next = self.open.as_mut()?.find_map(Result::ok);
        if next.is_none() {
            self.open = None;
        }
        next
    }
}

fn remove_if_ended(entry: &DirEntry, target: SweepTarget, dir: &Directory, guard: &DirGuard, clocks: Clocks) {
    let path = entry.path();
    let wall = clocks.wall.as_micros();
    let ended = match target {
        _ if is_temporary(&entry.file_name()) => true,
        SweepTarget::OtherBoots if entry.file_name() != OsStr::new(dir.boot()) => {
            return remove_boot(entry, dir);
        }
        SweepTarget::OtherBoots => false,
        SweepTarget::Table(Table::Leases) => {
            has_ended(&path, |row: Expiring| row.until_nanos <= clocks.lease_nanos)
        }
        SweepTarget::Table(Table::Counters) => has_ended(&path, |row: CounterRow| row.until_micros <= wall),
        SweepTarget::Table(Table::Claims) => has_ended(&path, |row: ClaimRow| row.until_micros <= wall),
        SweepTarget::Table(Table::Lives) => has_ended(&path, |row: LifeRow| row.until_micros <= wall),
        SweepTarget::Table(Table::Ledgers) => return give_retention(&path, dir, guard, clocks),
        SweepTarget::Table(Table::Root) => false,
    };
    if ended {
        if let (SweepTarget::Table(Table::Lives), Some(name)) = (target, path.file_name()) {
            // The ledger is removed from the disk before its retention. Otherwise it could be back after a crash,
            // as a ledger that has not ended.
            let removed = match dir.disk().remove_file(&dir.table_dir(Table::Ledgers).join(name)) {
                Err(error) => error.kind() == std::io::ErrorKind::NotFound,
                Ok(()) => true,
            };
            if !removed || dir.sync(Table::Ledgers).is_err() {
                return;
            }
        }
        let _ = dir.disk().remove_file(&path);
    }
}

/// Gives the ledger in the file `path` the default retention if it has none, so that it ends. A power loss can
/// keep the first write of a ledger and lose that of its retention.
fn give_retention(path: &Path, dir: &Directory, guard: &DirGuard, clocks: Clocks) {
    let Some(file) = path.file_name() else { return };
    if dir.table_dir(Table::Lives).join(file).symlink_metadata().is_ok() {
        return;
    }
    let content = read_row_file(path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let Some(RowFile::<String, IgnoredAny> { name, .. }) = content else { return };
    let millis = u64::try_from(LEDGER_LIFE.as_millis()).unwrap_or(u64::MAX);
    let life = LifeRow { millis, until_micros: (clocks.wall + LEDGER_LIFE).as_micros() };
    let mut store = Transaction::new(dir);
    if path.ends_with(file_name(&name)) && store.write(Table::Lives, &name, &life).is_ok() {
        // If the retention cannot be written, a later sweep tries again.
        let _ = store.commit(guard);
    }
}

/// The fields that a lease and a queue have in common.
#[derive(serde::Deserialize)]
struct Expiring {
    until_nanos: u64,
}

fn has_ended<T: DeserializeOwned>(path: &Path, ended: impl Fn(T) -> bool) -> bool {
    let content = read_row_file(path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
    // If a file's name does not match its content, the file is kept for an operator to examine. Requests that
    // need the file fail until the operator has removed it.
    content.is_some_and(|file: RowFile<String, T>| path.ends_with(file_name(&file.name)) && ended(file.row))
}

/// Removes leases of another boot, which are void. A large directory takes more than one call.
fn remove_boot(entry: &DirEntry, dir: &Directory) {
    // Only a directory is swept. A symbolic link might point outside of the node's directory.
    if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
        return;
    }
    let path = entry.path();
    let leases = std::fs::read_dir(&path).into_iter().flatten().flatten();
    for lease in leases.take(MIN_CHECKS) {
        let _ = dir.disk().remove_file(&lease.path());
    }
    let _ = dir.disk().remove_dir(&path);
}
