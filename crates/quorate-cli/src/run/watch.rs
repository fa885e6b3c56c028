//! Detects changes of the configuration file from the states of the file that were observed. All functions are
//! pure.

use std::{fs, io, os::unix::fs::MetadataExt, path::Path, time::Duration};

/// The time between two checks of the file. A change counts only if two checks in a row find the same state,
/// because an editor may still be writing the file.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The properties of a file that show whether it has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    device: u64,
    inode: u64,
    length: u64,
    /// The time of the last modification, in nanoseconds since the epoch.
    modified: i128,
}

impl Stamp {
    /// Returns the stamp of the file at `path`. Symbolic links are followed, so that a replaced directory is
    /// detected too.
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let file = fs::metadata(path)?;
        Ok(Self {
            device: file.dev(),
            inode: file.ino(),
            length: file.len(),
            modified: i128::from(file.mtime()) * 1_000_000_000 + i128::from(file.mtime_nsec()),
        })
    }
}

/// The states of the file that were seen so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    /// The state of the file when it was last read. `None` before the first check, because the file may have
    /// changed since the program read it.
    read: Option<Stamp>,
    /// The state at the last check. `None` if there was no file.
    last: Option<Stamp>,
}

impl Seen {
    /// Records the state that a check has found. Returns whether the file must be read now.
    pub(super) fn look(&mut self, now: Option<Stamp>) -> bool {
        let settled = now.is_some() && now == self.last;
        self.last = now;
        let news = settled && now != self.read;
        if news {
            self.read = now;
        }
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(inode: u64, length: u64, modified: i128) -> Option<Stamp> {
        Some(Stamp { device: 1, inode, length, modified })
    }

    #[test]
    fn a_change_is_read_once_and_only_when_it_has_settled() {
        let mut seen = Seen::default();
        let looks = [
            (stamp(1, 9, 5), false, "first look"),
            (stamp(1, 9, 5), true, "it may have changed since the start"),
            (stamp(1, 9, 5), false, "nothing new"),
            (stamp(1, 0, 6), false, "being written"),
            (stamp(1, 7, 7), false, "being written yet"),
            (stamp(1, 7, 7), true, "written"),
            (stamp(1, 7, 7), false, "read"),
            (None, false, "between unlink and rename"),
            (stamp(2, 7, 7), false, "another file of the same length and time"),
            (stamp(2, 7, 7), true, "settled"),
            (None, false, "gone"),
            (None, false, "gone for good: what was read goes on"),
            (stamp(2, 7, 7), false, "back as it was"),
            (stamp(2, 7, 7), false, "and read already"),
        ];
        for (at, (look, read, why)) in looks.into_iter().enumerate() {
            assert_eq!(seen.look(look), read, "look {at}: {why}");
        }
    }

    #[test]
    fn a_change_that_is_reverted_before_it_settles_is_ignored() {
        let mut seen = Seen { read: stamp(1, 9, 5), last: stamp(1, 9, 5) };
        assert!(!seen.look(stamp(1, 9, 6)));
        assert!(!seen.look(stamp(1, 9, 5)));
        assert!(!seen.look(stamp(1, 9, 5)));
    }

    #[test]
    fn a_file_that_is_replaced_or_touched_has_another_stamp() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        fs::write(&path, "one").unwrap();
        let first = Stamp::of(&path).unwrap();
        assert_eq!(Stamp::of(&path).unwrap(), first);
        fs::write(dir.path().join("b"), "two").unwrap();
        fs::rename(dir.path().join("b"), &path).unwrap();
        assert_ne!(Stamp::of(&path).unwrap(), first);
        fs::remove_file(&path).unwrap();
        assert!(Stamp::of(&path).is_err());
    }
}
