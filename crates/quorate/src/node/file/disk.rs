//! The calls with which a file node changes its directory. All of them go through one trait, so that a test can
//! record them, let any of them fail, and compute what a disk may keep after a power loss.

use rustix::fs::OFlags;
use std::{
    fmt,
    fs::{DirBuilder, File, OpenOptions, Permissions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::Path,
    time::UNIX_EPOCH,
};

/// The calls that change a directory. Each takes the path of what it changes, also if it uses an open file.
pub(super) trait Disk: fmt::Debug + Send + Sync {
    /// Creates `dir`, closed to other users whatever the umask. A directory that exists is left as it is.
    fn make_dir(&self, dir: &Path) -> io::Result<()>;
    /// Creates the file at `path`, which must not exist, closed to other users whatever the umask.
    fn create(&self, path: &Path) -> io::Result<File>;
    /// Writes the whole content of a new file.
    fn write(&self, path: &Path, file: &File, content: &[u8]) -> io::Result<()>;
    /// Sets the length of a file.
    fn set_len(&self, path: &Path, file: &File, len: u64) -> io::Result<()>;
    /// Waits until the disk has the content of a file.
    fn sync_file(&self, path: &Path, file: &File) -> io::Result<()>;
    /// Waits until the disk has the names in `dir`.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// Waits until the disk has everything in the file system of `root`.
    fn sync_file_system(&self, root: &Path) -> io::Result<()>;
    /// Gives a file the name `to`, in place of the file that had this name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// Removes an empty directory.
    fn remove_dir(&self, dir: &Path) -> io::Result<()>;
    /// Returns an id of a file that no copy of it has.
    fn identify(&self, file: &File) -> io::Result<FileId> {
        let meta = file.metadata()?;
        let created =
            meta.created().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
        Ok(FileId { inode: meta.ino(), created: u64::try_from(created.as_nanos()).unwrap_or(u64::MAX) })
    }
}

/// The number of a file, and the time at which it was created. A program that copies files can set neither. The device
/// is left out, because its number may change when the machine starts again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) struct FileId {
    pub(super) inode: u64,
    /// The time of creation, in nanoseconds since 1970. Zero if the file system does not record it.
    pub(super) created: u64,
}

/// The disk of this machine.
#[derive(Debug)]
pub(super) struct SystemDisk;

impl Disk for SystemDisk {
    fn make_dir(&self, dir: &Path) -> io::Result<()> {
        match DirBuilder::new().mode(0o700).create(dir) {
            // The umask may have removed a permission that the owner needs, and the parent may have passed on
            // its set-group-id bit. So the mode is set again.
            Ok(()) => std::fs::set_permissions(dir, Permissions::from_mode(0o700)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn create(&self, path: &Path) -> io::Result<File> {
        let flags = OFlags::NOFOLLOW.bits().cast_signed();
        let file =
            OpenOptions::new().write(true).create_new(true).mode(0o600).custom_flags(flags).open(path)?;
        // The umask may have removed a permission that the owner needs. So the mode is set again.
        if file.metadata()?.mode() & 0o777 != 0o600 {
            file.set_permissions(Permissions::from_mode(0o600))?;
        }
        Ok(file)
    }

    fn write(&self, _path: &Path, mut file: &File, content: &[u8]) -> io::Result<()> {
        file.write_all(content)
    }

    fn set_len(&self, _path: &Path, file: &File, len: u64) -> io::Result<()> {
        file.set_len(len)
    }

    fn sync_file(&self, _path: &Path, file: &File) -> io::Result<()> {
        file.sync_data()
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        open_dir(dir)?.sync_all()
    }

    #[cfg(target_os = "linux")]
    fn sync_file_system(&self, root: &Path) -> io::Result<()> {
        Ok(rustix::fs::syncfs(open_dir(root)?)?)
    }

    #[cfg(not(target_os = "linux"))]
    fn sync_file_system(&self, _root: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        std::fs::remove_dir(dir)
    }
}

/// Opens a directory that was checked before. The caller needs it open to sync it, or to query its file
/// system.
pub(super) fn open_dir(dir: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::DIRECTORY;
    OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(dir)
}
