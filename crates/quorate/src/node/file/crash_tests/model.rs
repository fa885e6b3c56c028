//! A model of a disk with its cache: what is visible, what has been synced, and what a power loss may leave.

use std::{
    collections::BTreeMap,
    fs::{DirBuilder, OpenOptions},
    io::Write,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

/// The most unsynced names of which every subset is tried. Of more, the beginnings, the single ones, and all but
/// one are tried.
const SUBSETS_UP_TO: usize = 5;

/// One call that has changed the disk. Paths are relative to the home of the test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Op {
    MakeDir(PathBuf),
    Create(PathBuf),
    Write(PathBuf, Vec<u8>),
    SetLen(PathBuf, u64),
    SyncFile(PathBuf),
    SyncDir(PathBuf),
    SyncAll,
    Rename(PathBuf, PathBuf),
    RemoveFile(PathBuf),
    RemoveDir(PathBuf),
}

/// The files and directories of a disk, with the content of the files.
pub(super) type Tree = BTreeMap<PathBuf, Option<Vec<u8>>>;

#[derive(Clone, Copy, Debug)]
enum Entry {
    Dir,
    /// The index of a file in [`Model::files`]. A file keeps it when it is renamed.
    File(usize),
}

#[derive(Clone, Debug, Default)]
struct FileState {
    synced: Vec<u8>,
    content: Vec<u8>,
}

/// A change of the names in one directory that has not been synced.
#[derive(Clone, Debug)]
struct Unsynced {
    dir: PathBuf,
    names: Vec<(PathBuf, Option<Entry>)>,
}

/// The content of a file that was not synced, after a power loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Torn {
    Kept,
    Lost,
    Beginning,
    Zeros,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Model {
    files: Vec<FileState>,
    visible: BTreeMap<PathBuf, Entry>,
    synced: BTreeMap<PathBuf, Entry>,
    unsynced: Vec<Unsynced>,
}

impl Model {
    /// Returns a disk on which all of `tree` is synced.
    pub(super) fn of(tree: &Tree) -> Self {
        let mut model = Self::default();
        for (path, content) in tree {
            let entry = match content {
                None => Entry::Dir,
                Some(bytes) => {
                    model.files.push(FileState { synced: bytes.clone(), content: bytes.clone() });
                    Entry::File(model.files.len() - 1)
                }
            };
            model.visible.insert(path.clone(), entry);
        }
        model.synced.clone_from(&model.visible);
        model
    }

    pub(super) fn apply(&mut self, op: &Op) {
        match op {
            Op::MakeDir(dir) => self.name(&[(dir, Some(Entry::Dir))]),
            Op::Create(path) => {
                self.files.push(FileState::default());
                self.name(&[(path, Some(Entry::File(self.files.len() - 1)))]);
            }
            Op::Write(path, bytes) => self.file(path).content.clone_from(bytes),
            Op::SetLen(path, len) => {
                let len = usize::try_from(*len).unwrap();
                self.file(path).content.resize(len, 0);
            }
            Op::SyncFile(path) => {
                let file = self.file(path);
                file.synced.clone_from(&file.content);
            }
            Op::SyncDir(dir) => self.sync(|change| change.dir == *dir),
            Op::SyncAll => {
                self.files.iter_mut().for_each(|file| file.synced.clone_from(&file.content));
                self.sync(|_| true);
            }
            Op::Rename(from, to) => {
                let entry = self.visible[from];
                self.name(&[(from, None), (to, Some(entry))]);
            }
            Op::RemoveFile(path) | Op::RemoveDir(path) => self.name(&[(path, None)]),
        }
    }

    fn file(&mut self, path: &Path) -> &mut FileState {
        let Entry::File(file) = self.visible[path] else { panic!("{} is a directory", path.display()) };
        &mut self.files[file]
    }

    fn name(&mut self, names: &[(&PathBuf, Option<Entry>)]) {
        let names: Vec<_> = names.iter().map(|(path, entry)| ((*path).clone(), *entry)).collect();
        set(&mut self.visible, &names);
        let dir = names[0].0.parent().unwrap().to_owned();
        self.unsynced.push(Unsynced { dir, names });
    }

    fn sync(&mut self, which: impl Fn(&Unsynced) -> bool) {
        for change in self.unsynced.iter().filter(|change| which(change)) {
            set(&mut self.synced, &change.names);
        }
        self.unsynced.retain(|change| !which(change));
    }

    /// Returns what other processes see, which does not change when a process is killed.
    pub(super) fn visible(&self) -> Tree {
        self.tree(&self.visible, Torn::Kept)
    }

    /// Returns what a power loss may leave: each unsynced name kept or lost, and the content of unsynced files
    /// kept, lost, cut, or replaced by zeros. Names of leases are kept or lost together, because leases are void
    /// after a power loss. If not `thorough`, all the names or none are kept.
    pub(super) fn after_power_loss(&self, thorough: bool) -> Vec<Tree> {
        let is_lease = |change: &Unsynced| change.dir.components().any(|part| part.as_os_str() == "leases");
        let durable = self.unsynced.iter().filter(|change| !is_lease(change)).count();
        let mut trees: Vec<Tree> = Vec::new();
        for (kept, leases) in choices(durable, thorough) {
            let (mut names, mut kept) = (self.synced.clone(), kept.into_iter());
            for change in &self.unsynced {
                if if is_lease(change) { leases } else { kept.next().unwrap() } {
                    set(&mut names, &change.names);
                }
            }
            for torn in [Torn::Kept, Torn::Lost, Torn::Beginning, Torn::Zeros] {
                let tree = self.tree(&names, torn);
                if !trees.contains(&tree) {
                    trees.push(tree);
                }
            }
        }
        trees
    }

    /// Returns the entries whose directories exist.
    fn tree(&self, names: &BTreeMap<PathBuf, Entry>, torn: Torn) -> Tree {
        let mut tree = Tree::new();
        for (path, entry) in names {
            // A directory comes before what it contains.
            let parent = path.parent().unwrap();
            if parent != Path::new("") && tree.get(parent) != Some(&None) {
                continue;
            }
            let content = match entry {
                Entry::Dir => None,
                Entry::File(file) => Some(self.files[*file].after(torn)),
            };
            tree.insert(path.clone(), content);
        }
        tree
    }
}

impl FileState {
    fn after(&self, torn: Torn) -> Vec<u8> {
        match torn {
            _ if self.synced == self.content => self.content.clone(),
            Torn::Kept => self.content.clone(),
            Torn::Lost => self.synced.clone(),
            Torn::Beginning => self.content[..self.content.len() / 2].to_vec(),
            Torn::Zeros => vec![0; self.content.len()],
        }
    }
}

fn set(names: &mut BTreeMap<PathBuf, Entry>, changes: &[(PathBuf, Option<Entry>)]) {
    for (path, entry) in changes {
        match entry {
            Some(entry) => drop(names.insert(path.clone(), *entry)),
            None => drop(names.remove(path)),
        }
    }
}

/// Returns which of `count` changes are kept, in each of the cases to try, and whether the leases are kept.
fn choices(count: usize, thorough: bool) -> Vec<(Vec<bool>, bool)> {
    let mut all = vec![(vec![true; count], true), (vec![false; count], true)];
    if !thorough {
        return all;
    }
    if count <= SUBSETS_UP_TO {
        let subset = |bits: usize| (0..count).map(|at| bits >> at & 1 == 1).collect();
        all.extend((0..1 << count).map(|bits| (subset(bits), false)));
    } else {
        for at in 0..=count {
            all.push(((0..count).map(|other| other < at).collect(), false));
            all.push(((0..count).map(|other| other == at).collect(), false));
            all.push(((0..count).map(|other| other != at).collect(), false));
        }
    }
    all
}

/// Creates the files of `tree` below `home`.
pub(super) fn write_tree(home: &Path, tree: &Tree) {
    for (path, content) in tree {
        let path = home.join(path);
        match content {
            None => DirBuilder::new().mode(0o700).create(&path).unwrap(),
            Some(bytes) => {
                let mut file =
                    OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).unwrap();
                file.write_all(bytes).unwrap();
            }
        }
    }
}
