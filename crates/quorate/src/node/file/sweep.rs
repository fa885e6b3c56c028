use super::names::file_name;
use super::store::{Directory, Page, Shelf, is_temporary, read_page};
use crate::node::engine::{ClaimRow, Clocks, CounterRow, LifeRow};
use serde::de::DeserializeOwned;
use std::{
    ffi::OsStr,
    fs::{DirEntry, ReadDir},
    path::Path,
};

/// Files looked at for each one written: more than one, so that the sweep keeps up.
const LOOKS_A_WRITE: usize = 2;
/// No sweep for fewer looks than this, and none goes on for more than [`MOST`].
const LEAST: usize = 32;
const MOST: usize = 256;

/// The directories of one round of the sweep.
const ROUND: [Place; 7] = [
    Place::Shelf(Shelf::Leases),
    Place::OtherBoots,
    Place::Shelf(Shelf::Counters),
    Place::Shelf(Shelf::Claims),
    Place::Shelf(Shelf::Lives),
    Place::Shelf(Shelf::Ledgers),
    Place::Shelf(Shelf::Root),
];

#[derive(Clone, Copy, Debug)]
enum Place {
    Shelf(Shelf),
    OtherBoots,
}

/// Removes rows that have ended and files that a crash left incomplete, a few at a time, so that the directory does
/// not grow for ever. Each sweep continues where the last one stopped.
#[derive(Debug, Default)]
pub(super) struct Sweeper {
    owed: usize,
    round: usize,
    open: Option<ReadDir>,
}

impl Sweeper {
    /// After `written` changes, under the directory's lock. What cannot be read or removed is left: whoever
    /// needs it will say so.
    pub(super) fn sweep(&mut self, dir: &Directory, clocks: Clocks, written: usize) {
        self.owed += written * LOOKS_A_WRITE;
        if self.owed < LEAST {
            return;
        }
        let mut looks = std::mem::take(&mut self.owed).min(MOST);
        while looks > 0 {
            looks -= 1;
            let place = ROUND[self.round % ROUND.len()];
            match self.next(dir, place) {
                Some(entry) => remove_if_ended(&entry, place, dir, clocks),
                None => self.round = (self.round + 1) % ROUND.len(),
            }
        }
    }

    fn next(&mut self, dir: &Directory, place: Place) -> Option<DirEntry> {
        if self.open.is_none() {
            let path = match place {
                Place::Shelf(shelf) => dir.shelf(shelf),
                Place::OtherBoots => dir.root().join("leases"),
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

fn remove_if_ended(entry: &DirEntry, place: Place, dir: &Directory, clocks: Clocks) {
    let path = entry.path();
    let wall = clocks.wall.as_micros();
    let ended = match place {
        _ if is_temporary(&entry.file_name()) => true,
        Place::OtherBoots if entry.file_name() != OsStr::new(dir.boot()) => return remove_boot(entry),
        Place::OtherBoots => false,
        Place::Shelf(Shelf::Leases) => row(&path, |row: Ends| row.until_nanos <= clocks.lease_nanos),
        Place::Shelf(Shelf::Counters) => row(&path, |row: CounterRow| row.until_micros <= wall),
        Place::Shelf(Shelf::Claims) => row(&path, |row: ClaimRow| row.until_micros <= wall),
        Place::Shelf(Shelf::Lives) => row(&path, |row: LifeRow| row.until_micros <= wall),
        Place::Shelf(Shelf::Ledgers | Shelf::Root) => false,
    };
    if ended {
        if let (Place::Shelf(Shelf::Lives), Some(name)) = (place, path.file_name()) {
            // First the ledger: what is left of it without its life would stay for ever.
            match std::fs::remove_file(dir.shelf(Shelf::Ledgers).join(name)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return,
                _ => {}
            }
        }
        let _ = std::fs::remove_file(path);
    }
}

/// What a lease and a queue have in common.
#[derive(serde::Deserialize)]
struct Ends {
    until_nanos: u64,
}

fn row<T: DeserializeOwned>(path: &Path, ended: impl Fn(T) -> bool) -> bool {
    let page = read_page(path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
    // A file that is not its name's own is evidence, and must go on spoiling the requests that need it.
    page.is_some_and(|page: Page<String, T>| path.ends_with(file_name(&page.name)) && ended(page.row))
}

/// Removes another boot's leases, which are void. A large directory takes more than one visit.
fn remove_boot(entry: &DirEntry) {
    // A link might lead out of the node's directory.
    if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
        return;
    }
    let path = entry.path();
    let leases = std::fs::read_dir(&path).into_iter().flatten().flatten();
    for lease in leases.take(LEAST) {
        let _ = std::fs::remove_file(lease.path());
    }
    let _ = std::fs::remove_dir(path);
}
