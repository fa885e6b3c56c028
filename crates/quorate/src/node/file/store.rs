//! The rows of a directory, read and written under its lock.

use super::{access, names::file_name};
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
    io::{self, Read, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

/// More new files than this in one batch are synced in one call for the whole file system.
const SYNC_SINGLY_UP_TO: usize = 32;

/// The longest file, in bytes: a ledger is the longest, and each write of a record writes it anew.
const PAGE_MAX: u64 = 64 << 20;

/// Which kind of row, in the order in which a batch is written: what is remembered comes before the lease
/// that rests on it, so that a worker that dies between has counted a grant that nobody got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Shelf {
    Root,
    Counters,
    Claims,
    /// How long each ledger lives: before the ledger itself, so that none is ever without an end.
    Lives,
    Ledgers,
    Leases,
}

/// The directory that holds the rows.
#[derive(Clone, Debug)]
pub(super) struct Directory {
    root: PathBuf,
    boot: Arc<str>,
    world: Arc<dyn World>,
}

impl Directory {
    /// The directory at `root` in the boot `boot`. `world` gives the random names of temporary files.
    pub(super) fn new(root: &Path, boot: Arc<str>, world: Arc<dyn World>) -> Self {
        Self { root: root.to_owned(), boot, world }
    }

    /// Makes what does not exist, and checks that nobody else can reach it. `given` is the path by which the user
    /// called the directory.
    pub(super) fn create(&self, given: &Path) -> Result<(), FileError> {
        let failed = |dir: &Path, e| FileError::new(dir, "be used", &e);
        access::secure_root(given, &self.root).map_err(|e| failed(&self.root, e))?;
        let leases = self.root.join("leases");
        let shelves =
            [Shelf::Counters, Shelf::Claims, Shelf::Lives, Shelf::Ledgers].map(|shelf| self.shelf(shelf));
        for dir in shelves.into_iter().chain([leases, self.shelf(Shelf::Leases)]) {
            access::secure_dir(&dir).map_err(|e| failed(&dir, e))?;
        }
        Ok(())
    }

    /// A new name for a file that is not complete. [`is_temporary`] knows it.
    fn temporary(&self, shelf: Shelf) -> PathBuf {
        self.shelf(shelf).join(format!(".{:016x}.tmp", self.world.random()))
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    pub(super) fn boot(&self) -> &str {
        &self.boot
    }

    pub(super) fn shelf(&self, shelf: Shelf) -> PathBuf {
        match shelf {
            Shelf::Root => self.root.clone(),
            Shelf::Counters => self.root.join("counters"),
            Shelf::Claims => self.root.join("claims"),
            Shelf::Lives => self.root.join("lives"),
            Shelf::Ledgers => self.root.join("ledgers"),
            Shelf::Leases => self.root.join("leases").join(&*self.boot),
        }
    }

    pub(super) fn path(&self, shelf: Shelf, name: &str) -> PathBuf {
        self.shelf(shelf).join(file_name(name))
    }
}

/// Returns whether a file of this name was never completed. Under the directory's lock nobody is writing it.
pub(super) fn is_temporary(name: &std::ffi::OsStr) -> bool {
    name.to_str().is_some_and(|name| name.starts_with('.') && name.ends_with(".tmp"))
}

/// A file's content: the row and whose it is.
#[derive(Serialize, Deserialize)]
pub(super) struct Page<N, T> {
    pub(super) name: N,
    pub(super) row: T,
}

/// A file of the directory that could not be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub(super) struct FileError {
    text: Arc<str>,
    /// Another user can reach the file: it stays so until an operator changes it.
    is_unsafe: bool,
}

impl FileError {
    pub(super) fn new(path: &Path, verb: &str, why: &io::Error) -> Self {
        if let Some(fault) = why.get_ref().and_then(|why| why.downcast_ref::<access::Fault>()) {
            return Self { text: fault.to_string().into(), is_unsafe: true };
        }
        let path = path.display();
        let text = format!("{path} cannot {verb}: {why}; see that it can be and that this user may");
        Self { text: text.into(), is_unsafe: false }
    }

    fn torn(path: &Path, why: &dyn std::fmt::Display) -> Self {
        let path = path.display();
        let text = format!(
            "{path} does not hold what it should: {why}; restore the file, or move the whole directory away to start \
             afresh"
        );
        Self { text: text.into(), is_unsafe: false }
    }

    /// The cause for which there is no session: `other` of the text, but for what only an operator can change.
    pub(super) fn cause(self, other: impl FnOnce(Arc<str>) -> Cause) -> Cause {
        if self.is_unsafe { Cause::Denied(self.text) } else { other(self.text) }
    }
}

/// What one batch reads and is about to write.
#[derive(Debug)]
pub(super) struct Transaction<'a> {
    dir: &'a Directory,
    /// Rows to be written, or with `None` removed, in the order of [`Shelf`].
    changes: BTreeMap<(Shelf, String), Option<Vec<u8>>>,
    /// Every request that votes asks for the marker.
    marker: OnceCell<Option<Arc<str>>>,
    /// The ledgers that were read, and whether they have changed: a long one is not taken apart for every record.
    ledgers: RefCell<BTreeMap<String, (LedgerState, bool)>>,
}

impl<'a> Transaction<'a> {
    /// Only under the directory's lock.
    pub(super) fn new(dir: &'a Directory) -> Self {
        Self { dir, changes: BTreeMap::new(), marker: OnceCell::new(), ledgers: RefCell::default() }
    }

    pub(super) fn read<T: DeserializeOwned>(&self, shelf: Shelf, name: &str) -> Result<Option<T>, FileError> {
        let path = self.dir.path(shelf, name);
        let bytes = match self.changes.get(&(shelf, name.to_owned())) {
            Some(Some(bytes)) => bytes.clone(),
            Some(None) => return Ok(None),
            None => match read_page(&path) {
                Ok(bytes) => bytes,
                Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(e) => return Err(FileError::new(&path, "be read", &e)),
            },
        };
        let page: Page<String, T> = serde_json::from_slice(&bytes).map_err(|e| FileError::torn(&path, &e))?;
        if page.name != name {
            let why = format!("it belongs to {:?}, not to {name:?}", page.name);
            return Err(FileError::torn(&path, &why));
        }
        Ok(Some(page.row))
    }

    pub(super) fn write<T: Serialize>(&mut self, shelf: Shelf, name: &str, row: &T) -> Result<(), FileError> {
        let page = serde_json::to_vec(&Page { name, row })
            .map_err(|e| FileError::torn(&self.dir.path(shelf, name), &e))?;
        if page.len() as u64 > PAGE_MAX {
            return Err(FileError::new(&self.dir.path(shelf, name), "be written", &too_long()));
        }
        self.changes.insert((shelf, name.to_owned()), Some(page));
        Ok(())
    }

    /// Makes the changes stand, and says how many there were. After an error some of them may stand.
    pub(super) fn commit(mut self) -> Result<usize, FileError> {
        for (group, (state, changed)) in std::mem::take(self.ledgers.get_mut()) {
            if changed {
                self.write(Shelf::Ledgers, &group, &state)?;
            }
        }
        let many = self.changes.len();
        let leases = self.changes.split_off(&(Shelf::Leases, String::new()));
        self.write_durably()?;
        for ((shelf, name), change) in &leases {
            let path = self.dir.path(*shelf, name);
            match change {
                Some(page) => {
                    let temp = self.dir.temporary(*shelf);
                    fill(&temp, page, false)?;
                    rename(&temp, &path)?;
                }
                None => remove(&path)?,
            }
        }
        Ok(many)
    }

    /// Writes all but leases: first whole new files, synced, then their names, then what goes, then the directories.
    fn write_durably(&self) -> Result<(), FileError> {
        let together = cfg!(target_os = "linux") && self.changes.len() > SYNC_SINGLY_UP_TO;
        let mut filled = Vec::new();
        for ((shelf, name), page) in &self.changes {
            let Some(page) = page else { continue };
            let temp = self.dir.temporary(*shelf);
            fill(&temp, page, !together)?;
            filled.push((temp, self.dir.path(*shelf, name)));
        }
        if together {
            sync_file_system(self.dir.root())?;
        }
        for (temp, path) in &filled {
            rename(temp, path)?;
        }
        // A ledger goes before what says that it has an end.
        for ((shelf, name), _) in self.changes.iter().rev().filter(|(_, page)| page.is_none()) {
            remove(&self.dir.path(*shelf, name))?;
        }
        let shelves: BTreeSet<Shelf> = self.changes.keys().map(|(shelf, _)| *shelf).collect();
        shelves.into_iter().try_for_each(|shelf| sync_dir(&self.dir.shelf(shelf)))
    }
}

fn remove(path: &Path) -> Result<(), FileError> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(FileError::new(path, "be removed", &e)),
        _ => Ok(()),
    }
}

impl Store for Transaction<'_> {
    type Error = FileError;

    fn lease(&self, resource: &Resource) -> Result<Option<LeaseRow>, FileError> {
        self.read(Shelf::Leases, resource.key())
    }

    fn set_lease(&mut self, resource: &Resource, row: Option<LeaseRow>) -> Result<(), FileError> {
        match row {
            Some(row) => self.write(Shelf::Leases, resource.key(), &row)?,
            None => drop(self.changes.insert((Shelf::Leases, resource.key().to_owned()), None)),
        }
        Ok(())
    }

    fn queue(&self, resource: &Resource) -> Result<Option<QueueRow>, FileError> {
        self.read(Shelf::Leases, &queue_of(resource))
    }

    fn set_queue(&mut self, resource: &Resource, row: Option<QueueRow>) -> Result<(), FileError> {
        let name = queue_of(resource);
        match row {
            Some(row) => self.write(Shelf::Leases, &name, &row)?,
            // Nothing to remove where nothing stands: a lock without a queue is asked about all the time.
            None if self.queue(resource)?.is_none() => {}
            None => drop(self.changes.insert((Shelf::Leases, name), None)),
        }
        Ok(())
    }

    fn counter(&self, resource: &Resource) -> Result<Option<CounterRow>, FileError> {
        self.read(Shelf::Counters, resource.key())
    }

    fn set_counter(&mut self, resource: &Resource, row: CounterRow) -> Result<(), FileError> {
        self.write(Shelf::Counters, resource.key(), &row)
    }

    fn claim(&self, resource: &Resource) -> Result<Option<ClaimRow>, FileError> {
        self.read(Shelf::Claims, resource.key())
    }

    fn set_claim(&mut self, resource: &Resource, row: Option<ClaimRow>) -> Result<(), FileError> {
        match row {
            Some(row) => self.write(Shelf::Claims, resource.key(), &row)?,
            None => drop(self.changes.insert((Shelf::Claims, resource.key().to_owned()), None)),
        }
        Ok(())
    }

    fn ledger(&self, group: &str) -> Result<LedgerState, FileError> {
        if let Some((state, _)) = self.ledgers.borrow().get(group) {
            return Ok(state.clone());
        }
        let state: LedgerState = self.read(Shelf::Ledgers, group)?.unwrap_or_default();
        self.ledgers.borrow_mut().insert(group.to_owned(), (state.clone(), false));
        Ok(state)
    }

    fn set_ledger(&mut self, group: &str, state: LedgerState) -> Result<(), FileError> {
        self.ledgers.get_mut().insert(group.to_owned(), (state, true));
        Ok(())
    }

    fn ledger_life(&self, group: &str) -> Result<Option<LifeRow>, FileError> {
        self.read(Shelf::Lives, group)
    }

    fn set_ledger_life(&mut self, group: &str, life: LifeRow) -> Result<(), FileError> {
        self.write(Shelf::Lives, group, &life)
    }

    fn remove_ledger(&mut self, group: &str) -> Result<(), FileError> {
        self.ledgers.get_mut().insert(group.to_owned(), (LedgerState::default(), false));
        for shelf in [Shelf::Lives, Shelf::Ledgers] {
            self.changes.insert((shelf, group.to_owned()), None);
        }
        Ok(())
    }

    /// The file is read whole for each page.
    fn page_records(&self) -> usize {
        10 * PAGE_RECORDS
    }

    fn marker(&self) -> Result<Option<Arc<str>>, FileError> {
        if let Some(known) = self.marker.get() {
            return Ok(known.clone());
        }
        let marker: Option<Arc<str>> = self.read(Shelf::Root, "marker")?;
        Ok(self.marker.get_or_init(|| marker).clone())
    }

    fn set_marker(&mut self, marker: Arc<str>) -> Result<(), FileError> {
        self.write(Shelf::Root, "marker", &marker)?;
        self.marker = OnceCell::from(Some(marker));
        Ok(())
    }
}

/// Under what name a resource's queue stands among the leases, where no name of a resource holds a brace.
fn queue_of(resource: &Resource) -> String {
    format!("{{{}}}:queue", resource.key())
}

/// The whole of a file, unless it is longer than any that is written here.
pub(super) fn read_page(path: &Path) -> io::Result<Vec<u8>> {
    let file = access::open(path, File::options().read(true))?;
    if file.metadata()?.len() > PAGE_MAX {
        return Err(too_long());
    }
    let mut page = Vec::new();
    file.take(PAGE_MAX).read_to_end(&mut page)?;
    Ok(page)
}

fn too_long() -> io::Error {
    io::Error::new(io::ErrorKind::FileTooLarge, "it is longer than 64 MiB")
}

fn fill(path: &Path, page: &[u8], sync: bool) -> Result<(), FileError> {
    let write = || {
        let mut file = access::create_new(path)?;
        file.write_all(page)?;
        if sync { file.sync_data() } else { Ok(()) }
    };
    write().map_err(|e| {
        // A full disk should not be filled further; where this fails too, the sweep removes it.
        let _ = std::fs::remove_file(path);
        FileError::new(path, "be written", &e)
    })
}

fn rename(from: &Path, to: &Path) -> Result<(), FileError> {
    std::fs::rename(from, to).map_err(|e| FileError::new(to, "be written", &e))
}

/// Makes the names in `dir` survive a power loss.
pub(super) fn sync_dir(dir: &Path) -> Result<(), FileError> {
    access::open_dir(dir).and_then(|dir| dir.sync_all()).map_err(|e| FileError::new(dir, "be synced", &e))
}

#[cfg(target_os = "linux")]
fn sync_file_system(root: &Path) -> Result<(), FileError> {
    let sync = || Ok(rustix::fs::syncfs(access::open_dir(root)?)?);
    sync().map_err(|e: io::Error| FileError::new(root, "be synced", &e))
}

#[cfg(not(target_os = "linux"))]
fn sync_file_system(_root: &Path) -> Result<(), FileError> {
    Ok(())
}
