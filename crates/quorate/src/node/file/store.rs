//! The rows of a directory, read and written under its lock.

use super::{access, disk::Disk, lock::DirGuard, names::file_name};
use crate::{
    env::World,
    node::{
        Cause, LedgerState, PAGE_RECORDS, Resource,
        engine::{ClaimRow, CounterRow, LeaseRow, LifeRow, QueueRow, Store},
    },
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{
    cell::{OnceCell, RefCell},
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{self, Read},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
};

/// The maximum number of new files of a batch that are synced one by one. If there are more, one call syncs the
/// whole file system.
const SYNC_SINGLY_UP_TO: usize = 32;

/// The longest file, in bytes. Ledgers are the longest files: a ledger is one file, which each write of a
/// record replaces.
const FILE_MAX: u64 = 64 << 20;

/// The kinds of rows, in the order in which a batch writes them. Counters, claims and ledgers are written
/// before leases. If a worker dies between the two, it has counted a grant that no worker received, which is
/// harmless.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Table {
    Root,
    Counters,
    Claims,
    /// The retention of each ledger. A crash may leave a ledger without one; the sweep then gives it one.
    Lives,
    Ledgers,
    Leases,
}

/// The tables whose rows survive a power loss.
const DURABLE: [Table; 5] = [Table::Root, Table::Counters, Table::Claims, Table::Lives, Table::Ledgers];

/// The steps in which a batch changes the durable tables. Each step is on the disk before the next begins. So
/// after a crash, a row may be missing only if the row that replaces it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    /// Rows that hold something new.
    Add,
    /// Removed rows, and counters that may be forgotten at once: what they held is in rows of the step before
    /// (a done record holds the token, a counter the token of a dead letter that was reset). Also the
    /// retention of a ledger that had ended and begins again: before, the old records would begin again too.
    Forget,
    /// The retention of a removed ledger. A ledger without a retention would not end.
    End,
}

/// The directory of a file node, which contains the rows.
#[derive(Clone, Debug)]
pub(super) struct Directory {
    root: PathBuf,
    boot: Arc<str>,
    world: Arc<dyn World>,
    disk: Arc<dyn Disk>,
}

impl Directory {
    /// Returns the directory at `root` in the boot `boot`. `world` supplies the random names of temporary
    /// files.
    pub(super) fn new(root: &Path, boot: Arc<str>, world: Arc<dyn World>, disk: Arc<dyn Disk>) -> Self {
        Self { root: root.to_owned(), boot, world, disk }
    }

    /// Creates the directories that do not exist, and checks that no other user can access them. `given` is
    /// the path that the user named.
    pub(super) fn create(&self, given: &Path) -> Result<(), FileError> {
        let failed = |dir: &Path, e| FileError::new(dir, "be used", &e);
        access::secure_root(self.disk(), given, &self.root).map_err(|e| failed(&self.root, e))?;
        let leases = self.root.join("leases");
        let tables =
            [Table::Counters, Table::Claims, Table::Lives, Table::Ledgers].map(|table| self.table_dir(table));
        for dir in tables.into_iter().chain([leases, self.table_dir(Table::Leases)]) {
            access::secure_dir(self.disk(), &dir).map_err(|e| failed(&dir, e))?;
        }
        Ok(())
    }

    /// Returns a new name for an incomplete file. [`is_temporary`] recognises it.
    fn temporary(&self, table: Table) -> PathBuf {
        self.table_dir(table).join(format!(".{:016x}.tmp", self.world.random()))
    }

    /// Syncs the names in the directory of `table`, so that they survive a power loss.
    pub(super) fn sync(&self, table: Table) -> Result<(), FileError> {
        let dir = self.table_dir(table);
        self.disk.sync_dir(&dir).map_err(|e| FileError::new(&dir, "be synced", &e))
    }

    /// Syncs what a session has left unsynced that died, or failed, while it changed durable rows. Call it
    /// before any row is read: what this session reads, and then answers, must survive a power loss.
    pub(super) fn sync_leftovers(&self, guard: &DirGuard) -> Result<(), FileError> {
        if !guard.is_unsynced() {
            return Ok(());
        }
        DURABLE.into_iter().try_for_each(|table| self.sync(table))?;
        self.set_unsynced(guard, false)
    }

    /// Syncs the name of the node's directory, and those of the directories above it up to the file system's
    /// root. The first session of a node may have created them.
    pub(super) fn sync_own_name(&self) -> Result<(), FileError> {
        let Some(parent) = self.root.parent() else { return Ok(()) };
        self.disk.sync_dir(parent).map_err(|e| FileError::new(parent, "be synced", &e))?;
        let device = |dir: &Path| dir.symlink_metadata().map(|meta| meta.dev()).ok();
        let here = device(parent);
        for above in parent.ancestors().skip(1).take_while(|dir| device(dir) == here) {
            // A directory that this user must not read cannot be synced. No session has created a name in it.
            match self.disk.sync_dir(above) {
                Err(e) if e.kind() != io::ErrorKind::PermissionDenied => {
                    return Err(FileError::new(above, "be synced", &e));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn set_unsynced(&self, guard: &DirGuard, unsynced: bool) -> Result<(), FileError> {
        guard
            .set_unsynced(self.disk(), unsynced)
            .map_err(|e| FileError::new(&self.root.join("lock"), "be written", &e))
    }

    pub(super) fn disk(&self) -> &dyn Disk {
        &*self.disk
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    pub(super) fn boot(&self) -> &str {
        &self.boot
    }

    pub(super) fn table_dir(&self, table: Table) -> PathBuf {
        match table {
            Table::Root => self.root.clone(),
            Table::Counters => self.root.join("counters"),
            Table::Claims => self.root.join("claims"),
            Table::Lives => self.root.join("lives"),
            Table::Ledgers => self.root.join("ledgers"),
            Table::Leases => self.root.join("leases").join(&*self.boot),
        }
    }

    pub(super) fn path(&self, table: Table, name: &str) -> PathBuf {
        self.table_dir(table).join(file_name(name))
    }
}

/// Returns whether `name` is the name of an incomplete file. While the directory's lock is held, no other
/// session writes such a file, so it is left from a crash.
pub(super) fn is_temporary(name: &std::ffi::OsStr) -> bool {
    name.to_str().is_some_and(|name| name.starts_with('.') && name.ends_with(".tmp"))
}

/// The content of a file: the row and the full name that it belongs to.
#[derive(Serialize, Deserialize)]
pub(super) struct RowFile<N, T> {
    pub(super) name: N,
    pub(super) row: T,
}

/// The error for a file of the directory that could not be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub(super) struct FileError {
    text: Arc<str>,
    /// True if another user can access the file. Only an operator can change that.
    is_unsafe: bool,
}

impl FileError {
    pub(super) fn new(path: &Path, verb: &str, why: &io::Error) -> Self {
        if let Some(fault) = why.get_ref().and_then(|why| why.downcast_ref::<access::AccessError>()) {
            return Self { text: fault.to_string().into(), is_unsafe: true };
        }
        let path = path.display();
        let text = format!("{path} cannot {verb}: {why}; see that it can be and that this user may");
        Self { text: text.into(), is_unsafe: false }
    }

    fn unreadable(path: &Path, why: &dyn std::fmt::Display) -> Self {
        let path = path.display();
        let text = format!(
            "{path} does not hold what it should: {why}; restore the file, or move the whole directory away to start \
             afresh"
        );
        Self { text: text.into(), is_unsafe: false }
    }

    /// Converts the error to the [`Cause`] for a session that cannot be opened. The cause is `Denied` if
    /// other users can access the file, and otherwise the result of `other`.
    pub(super) fn cause(self, other: impl FnOnce(Arc<str>) -> Cause) -> Cause {
        if self.is_unsafe { Cause::Denied(self.text) } else { other(self.text) }
    }
}

/// The rows that one batch reads, and the changes that it is about to write.
#[derive(Debug)]
pub(super) struct Transaction<'a> {
    dir: &'a Directory,
    /// The rows to write, in the order of [`Table`]. `None` stands for a row to remove.
    changes: BTreeMap<(Table, String), Option<Vec<u8>>>,
    /// The changes that are not made in the step of their table.
    later: BTreeMap<(Table, String), Step>,
    /// The marker, once it has been read. The marker is cached, because every request whose reply is a vote
    /// needs it.
    marker: OnceCell<Option<Arc<str>>>,
    /// The ledgers that were read, each with true if it has changed. Ledgers are cached, so that a long
    /// ledger is not parsed for every record.
    ledgers: RefCell<BTreeMap<String, (LedgerState, bool)>>,
}

impl<'a> Transaction<'a> {
    /// Begins a transaction. Call it only while the directory's lock is held.
    pub(super) fn new(dir: &'a Directory) -> Self {
        Self {
            dir,
            changes: BTreeMap::new(),
            later: BTreeMap::new(),
            marker: OnceCell::new(),
            ledgers: RefCell::default(),
        }
    }

    pub(super) fn read<T: DeserializeOwned>(&self, table: Table, name: &str) -> Result<Option<T>, FileError> {
        let path = self.dir.path(table, name);
        let bytes = match self.changes.get(&(table, name.to_owned())) {
            Some(Some(bytes)) => bytes.clone(),
            Some(None) => return Ok(None),
            None => match read_row_file(&path) {
                Ok(bytes) => bytes,
                Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(e) => return Err(FileError::new(&path, "be read", &e)),
            },
        };
        let content: RowFile<String, T> =
            serde_json::from_slice(&bytes).map_err(|e| FileError::unreadable(&path, &e))?;
        if content.name != name {
            let why = format!("it belongs to {:?}, not to {name:?}", content.name);
            return Err(FileError::unreadable(&path, &why));
        }
        Ok(Some(content.row))
    }

    pub(super) fn write<T: Serialize>(&mut self, table: Table, name: &str, row: &T) -> Result<(), FileError> {
        let content = serde_json::to_vec(&RowFile { name, row })
            .map_err(|e| FileError::unreadable(&self.dir.path(table, name), &e))?;
        if content.len() as u64 > FILE_MAX {
            return Err(FileError::new(&self.dir.path(table, name), "be written", &too_long()));
        }
        self.changes.insert((table, name.to_owned()), Some(content));
        Ok(())
    }

    /// Makes the change of a row in another step than that of its table. `None`: in that of its table.
    fn set_later(&mut self, table: Table, name: &str, step: Option<Step>) {
        let row = (table, name.to_owned());
        match step {
            Some(step) => drop(self.later.insert(row, step)),
            None => drop(self.later.remove(&row)),
        }
    }

    /// Writes the changes, and returns their number. After an error some of them may have been written.
    pub(super) fn commit(mut self, guard: &DirGuard) -> Result<usize, FileError> {
        for (group, (state, changed)) in std::mem::take(self.ledgers.get_mut()) {
            if changed {
                self.write(Table::Ledgers, &group, &state)?;
            }
        }
        let many = self.changes.len();
        let leases = self.changes.split_off(&(Table::Leases, String::new()));
        if !self.changes.is_empty() {
            self.write_durably(guard)?;
        }
        for ((table, name), change) in &leases {
            let path = self.dir.path(*table, name);
            match change {
                Some(content) => {
                    let temp = self.dir.temporary(*table);
                    self.write_file(&temp, content, false)?;
                    self.rename(&temp, &path)?;
                }
                None => self.remove(&path)?,
            }
        }
        Ok(many)
    }

    /// Writes everything except leases. First writes and syncs the new files under temporary names. Then
    /// renames these files, removes the files of removed rows, and syncs the directories, [`Step`] by step.
    fn write_durably(&self, guard: &DirGuard) -> Result<(), FileError> {
        let together = cfg!(target_os = "linux") && self.changes.len() > SYNC_SINGLY_UP_TO;
        let mut steps: BTreeMap<Step, Vec<(Table, Option<PathBuf>, PathBuf)>> = BTreeMap::new();
        for (row, content) in &self.changes {
            let (table, name) = row;
            let temp = content.as_ref().map(|content| {
                let temp = self.dir.temporary(*table);
                self.write_file(&temp, content, !together).map(|()| temp)
            });
            let change = (*table, temp.transpose()?, self.dir.path(*table, name));
            let usual = if content.is_some() { Step::Add } else { Step::Forget };
            steps.entry(self.later.get(row).copied().unwrap_or(usual)).or_default().push(change);
        }
        if together {
            let root = self.dir.root();
            let synced = self.dir.disk().sync_file_system(root);
            synced.map_err(|e| FileError::new(root, "be synced", &e))?;
        }
        self.dir.set_unsynced(guard, true)?;
        for (step, changes) in &steps {
            let mut tables = BTreeSet::new();
            for (table, temp, path) in changes {
                match temp {
                    Some(temp) => self.rename(temp, path)?,
                    None => self.remove(path)?,
                }
                // A counter that may be forgotten may also be remembered.
                if !matches!((step, table, temp), (Step::Forget, Table::Counters, Some(_))) {
                    tables.insert(*table);
                }
            }
            tables.into_iter().try_for_each(|table| self.dir.sync(table))?;
        }
        self.dir.set_unsynced(guard, false)
    }

    fn write_file(&self, path: &Path, content: &[u8], sync: bool) -> Result<(), FileError> {
        let disk = self.dir.disk();
        let write = || {
            let file = disk.create(path)?;
            disk.write(path, &file, content)?;
            if sync { disk.sync_file(path, &file) } else { Ok(()) }
        };
        write().map_err(|e| {
            // The disk may be full, so the incomplete file is removed at once. If that fails too, the sweep
            // removes it later.
            let _ = disk.remove_file(path);
            FileError::new(path, "be written", &e)
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), FileError> {
        self.dir.disk().rename(from, to).map_err(|e| FileError::new(to, "be written", &e))
    }

    fn remove(&self, path: &Path) -> Result<(), FileError> {
        match self.dir.disk().remove_file(path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(FileError::new(path, "be removed", &e)),
            _ => Ok(()),
        }
    }
}

impl Store for Transaction<'_> {
    type Error = FileError;

    fn lease(&self, resource: &Resource) -> Result<Option<LeaseRow>, FileError> {
        self.read(Table::Leases, resource.key())
    }

    fn set_lease(&mut self, resource: &Resource, row: Option<LeaseRow>) -> Result<(), FileError> {
        match row {
            Some(row) => self.write(Table::Leases, resource.key(), &row)?,
            None => drop(self.changes.insert((Table::Leases, resource.key().to_owned()), None)),
        }
        Ok(())
    }

    fn queue(&self, resource: &Resource) -> Result<Option<QueueRow>, FileError> {
        self.read(Table::Leases, &queue_name(resource))
    }

    fn set_queue(&mut self, resource: &Resource, row: Option<QueueRow>) -> Result<(), FileError> {
        let name = queue_name(resource);
        match row {
            Some(row) => self.write(Table::Leases, &name, &row)?,
            // Most locks have no queue, so there is no file to remove.
            None if self.queue(resource)?.is_none() => {}
            None => drop(self.changes.insert((Table::Leases, name), None)),
        }
        Ok(())
    }

    fn counter(&self, resource: &Resource) -> Result<Option<CounterRow>, FileError> {
        self.read(Table::Counters, resource.key())
    }

    fn set_counter(&mut self, resource: &Resource, row: CounterRow) -> Result<(), FileError> {
        let ends_now = row.until_micros <= self.dir.world.wall().as_micros();
        self.set_later(Table::Counters, resource.key(), ends_now.then_some(Step::Forget));
        self.write(Table::Counters, resource.key(), &row)
    }

    fn claim(&self, resource: &Resource) -> Result<Option<ClaimRow>, FileError> {
        self.read(Table::Claims, resource.key())
    }

    fn set_claim(&mut self, resource: &Resource, row: Option<ClaimRow>) -> Result<(), FileError> {
        match row {
            Some(row) => self.write(Table::Claims, resource.key(), &row)?,
            None => drop(self.changes.insert((Table::Claims, resource.key().to_owned()), None)),
        }
        Ok(())
    }

    fn ledger(&self, group: &str) -> Result<LedgerState, FileError> {
        if let Some((state, _)) = self.ledgers.borrow().get(group) {
            return Ok(state.clone());
        }
        let state: LedgerState = self.read(Table::Ledgers, group)?.unwrap_or_default();
        self.ledgers.borrow_mut().insert(group.to_owned(), (state.clone(), false));
        Ok(state)
    }

    fn set_ledger(&mut self, group: &str, state: LedgerState) -> Result<(), FileError> {
        self.ledgers.get_mut().insert(group.to_owned(), (state, true));
        Ok(())
    }

    fn ledger_life(&self, group: &str) -> Result<Option<LifeRow>, FileError> {
        self.read(Table::Lives, group)
    }

    fn set_ledger_life(&mut self, group: &str, life: LifeRow) -> Result<(), FileError> {
        let begins_again = self.later.contains_key(&(Table::Lives, group.to_owned()));
        self.set_later(Table::Lives, group, begins_again.then_some(Step::Forget));
        self.write(Table::Lives, group, &life)
    }

    fn remove_ledger(&mut self, group: &str) -> Result<(), FileError> {
        self.ledgers.get_mut().insert(group.to_owned(), (LedgerState::default(), false));
        for table in [Table::Lives, Table::Ledgers] {
            self.changes.insert((table, group.to_owned()), None);
        }
        self.set_later(Table::Lives, group, Some(Step::End));
        Ok(())
    }

    /// Returns a large number, because reading a page reads the whole file anyway.
    fn page_records(&self) -> usize {
        10 * PAGE_RECORDS
    }

    fn marker(&self) -> Result<Option<Arc<str>>, FileError> {
        if let Some(known) = self.marker.get() {
            return Ok(known.clone());
        }
        let marker: Option<Arc<str>> = self.read(Table::Root, "marker")?;
        Ok(self.marker.get_or_init(|| marker).clone())
    }

    fn set_marker(&mut self, marker: Arc<str>) -> Result<(), FileError> {
        self.write(Table::Root, "marker", &marker)?;
        self.marker = OnceCell::from(Some(marker));
        Ok(())
    }

    fn stamps(&self) -> Result<BTreeMap<Arc<str>, u64>, FileError> {
        Ok(self.read(Table::Root, "stamps")?.unwrap_or_default())
    }

    fn set_stamps(&mut self, stamps: BTreeMap<Arc<str>, u64>) -> Result<(), FileError> {
        self.write(Table::Root, "stamps", &stamps)
    }
}

/// Returns the name under which a resource's queue is stored among the leases. The key of a resource never
/// begins with a brace, so the two cannot collide.
fn queue_name(resource: &Resource) -> String {
    format!("{{{}}}:queue", resource.key())
}

/// Reads a whole file. Fails if the file is longer than any file that a node writes.
pub(super) fn read_row_file(path: &Path) -> io::Result<Vec<u8>> {
    let file = access::open(path, File::options().read(true))?;
    if file.metadata()?.len() > FILE_MAX {
        return Err(too_long());
    }
    let mut content = Vec::new();
    file.take(FILE_MAX).read_to_end(&mut content)?;
    Ok(content)
}

fn too_long() -> io::Error {
    io::Error::new(io::ErrorKind::FileTooLarge, "it is longer than 64 MiB")
}
