//! The SQLite database in a node's directory.
//!
//! It is in WAL mode, where a commit is one append to `quorate.db-wal` and, at `synchronous=FULL`, one sync before any
//! other connection sees it. At `synchronous=NORMAL` a commit is not synced: a power loss keeps a prefix of the commits
//! that were not, and never a part of one. So a batch that changes only leases is committed at NORMAL, and any other at
//! FULL: <https://www.sqlite.org/pragma.html#pragma_synchronous>.
//!
//! SQLite locks with POSIX locks. A process loses them when it closes *any* descriptor of the file, so no code of this
//! process may open the database's files other than through SQLite.

use super::{access, error::FileError};
use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction, TransactionBehavior, config::DbConfig};
use std::{
    cell::Cell,
    fs::{File, Metadata, Permissions},
    io::{self, ErrorKind},
    os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::{Duration, UNIX_EPOCH},
};

/// The version of the tables below, which the database stores.
const FORMAT: i64 = 1;

/// A row is JSON. `until` is the time from which it may be removed: for leases and queues on the boot clock, in
/// nanoseconds; for all others on the wall clock, in microseconds.
const TABLES: &str = "
    CREATE TABLE rows (
        kind TEXT NOT NULL, name TEXT NOT NULL, until INTEGER NOT NULL, row TEXT NOT NULL, PRIMARY KEY (kind, name)
    ) WITHOUT ROWID;
    CREATE INDEX ends ON rows (kind, until);
    CREATE TABLE records (
        ledger TEXT NOT NULL, key TEXT NOT NULL, row TEXT NOT NULL, PRIMARY KEY (ledger, key)
    ) WITHOUT ROWID;
    PRAGMA user_version = 1;";

/// The pauses between tries of a lock that another connection holds, in microseconds. After the last one, the caller
/// answers the batches whose deadline has passed, and tries again.
const PAUSES: [u64; 6] = [100, 200, 400, 800, 1_500, 2_000];

/// The longest wait of a listing for a session that opens or closes the database.
const LISTING_PATIENCE: Duration = Duration::from_secs(5);

/// Says whether a commit must survive a power loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Durability {
    /// The commit is synced before any session sees it.
    Synced,
    /// The commit survives the end of the process only.
    Unsynced,
}

/// The number of a file, and the time at which it was created. A program that copies files can set neither. The device
/// is left out, because its number may change when the machine starts again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) struct FileId {
    inode: u64,
    /// The time of creation, in nanoseconds since 1970. Zero if the file system does not record it.
    created: u64,
}

impl FileId {
    fn of(meta: &Metadata) -> Self {
        let created = meta.created().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        let created = u64::try_from(created.unwrap_or_default().as_nanos()).unwrap_or(u64::MAX);
        Self { inode: meta.ino(), created }
    }
}

/// A connection to the database of a directory.
#[derive(Debug)]
pub(super) struct Database {
    connection: Connection,
    path: PathBuf,
    id: FileId,
    durability: Cell<Durability>,
}

/// The result of a try to begin a transaction.
pub(super) enum Begin<'a> {
    /// No other session reads or writes rows until the transaction ends.
    Begun(Transaction<'a>),
    /// Another session has the database.
    Busy,
    /// The file is missing or has been replaced, because the whole directory was replaced while the session was open.
    Replaced,
}

impl Database {
    /// Opens the database in `root`, and creates it if it does not exist. Returns `None` if another session has it.
    pub(super) fn open(root: &Path) -> Result<Option<Self>, FileError> {
        let path = file(root);
        refuse_old_format(root, &path)?;
        create(&path).map_err(|e| FileError::new(&path, "be created", &e))?;
        for end in ["-wal", "-shm"] {
            let mut beside = path.clone().into_os_string();
            beside.push(end);
            check(Path::new(&beside))?;
        }
        let Some(meta) = check(&path)? else { return Ok(None) };
        let id = FileId::of(&meta);
        let opened = connect(&path).and_then(|connection| {
            let settings =
                "PRAGMA synchronous = FULL; PRAGMA fullfsync = ON; PRAGMA checkpoint_fullfsync = ON;";
            let mode: String = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
            connection.execute_batch(settings)?;
            Ok((connection, mode))
        });
        let (connection, mode) = match opened {
            Err(e) if is_busy(&e) => return Ok(None),
            opened => opened.map_err(|e| FileError::of_database(&path, &e))?,
        };
        if mode != "wal" {
            let why = io::Error::other("the file system has no shared memory, which the database needs");
            return Err(FileError::new(&path, "be used", &why));
        }
        Ok(Some(Self { connection, path, id, durability: Cell::new(Durability::Synced) }))
    }

    /// Begins a transaction that excludes all other sessions, and waits some milliseconds for it.
    pub(super) fn begin(&self, durability: Durability) -> Result<Begin<'_>, FileError> {
        let failed = |e| FileError::of_database(&self.path, &e);
        if durability != self.durability.get() {
            let level = if durability == Durability::Synced { "FULL" } else { "NORMAL" };
            self.connection.pragma_update(None, "synchronous", level).map_err(failed)?;
            self.durability.set(durability);
        }
        let begun = match Transaction::new_unchecked(&self.connection, TransactionBehavior::Immediate) {
            Err(e) if is_busy(&e) => return Ok(Begin::Busy),
            begun => begun.map_err(failed)?,
        };
        match self.path.symlink_metadata() {
            Ok(meta) if FileId::of(&meta) == self.id => Ok(Begin::Begun(begun)),
            Ok(_) => Ok(Begin::Replaced),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(Begin::Replaced),
            Err(e) => Err(FileError::new(&self.path, "be used", &e)),
        }
    }

    /// Creates the tables of a new database. Fails if the database has the tables of another version.
    pub(super) fn create_tables(&self, transaction: &Transaction<'_>) -> Result<(), FileError> {
        let failed = |e| FileError::of_database(&self.path, &e);
        match transaction.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(failed)? {
            FORMAT => Ok(()),
            0 => transaction.execute_batch(TABLES).map_err(failed),
            other => {
                Err(FileError::unreadable(&self.path, &format!("it has the format {other}, not {FORMAT}")))
            }
        }
    }

    /// Returns an id of the file that no copy of it has.
    pub(super) fn id(&self) -> FileId {
        self.id
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    #[cfg(test)]
    pub(super) fn connection(&self) -> &Connection {
        &self.connection
    }
}

impl Drop for Database {
    /// Closes the connection. The last one removes the log by its name, which must not be that of another directory that
    /// has the place now.
    fn drop(&mut self) {
        if !self.path.symlink_metadata().is_ok_and(|meta| FileId::of(&meta) == self.id) {
            // The call only sets a flag of the connection.
            let _ = self.connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
        }
    }
}

pub(super) fn file(root: &Path) -> PathBuf {
    root.join("quorate.db")
}

/// Opens a connection that lists names, and returns `None` if there is no database, or no table in it yet. It waits while the database opens
/// or closes, and does not wait for a transaction.
pub(super) fn connect_to_list(root: &Path) -> Result<Option<Connection>, FileError> {
    let path = file(root);
    if check(&path)?.is_none() {
        return Ok(None);
    }
    let opened = connect(&path).and_then(|connection| {
        connection.busy_timeout(LISTING_PATIENCE)?;
        // The first session creates the file, and then the tables.
        let version: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
        Ok((version != 0).then_some(connection))
    });
    opened.map_err(|e| FileError::of_database(&path, &e))
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW
        | OpenFlags::SQLITE_OPEN_EXRESCODE;
    let mut connection = Connection::open_with_flags(path, flags)?;
    connection.busy_handler(Some(pause))?;
    Ok(connection)
}

fn pause(tries: i32) -> bool {
    let pause = usize::try_from(tries).ok().and_then(|tries| PAUSES.get(tries));
    pause.inspect(|micros| std::thread::sleep(Duration::from_micros(**micros))).is_some()
}

fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

/// Creates an empty file, closed to other users whatever the umask, if there is none.
fn create(path: &Path) -> io::Result<()> {
    // The new file is closed again before another session of this process may lock it.
    static CREATING: Mutex<()> = Mutex::new(());
    let _creating = CREATING.lock().unwrap_or_else(PoisonError::into_inner);
    match File::options().write(true).create_new(true).mode(0o600).open(path) {
        Err(e) if e.kind() == ErrorKind::AlreadyExists => Ok(()),
        // The umask may have removed a permission that the owner needs. So the mode is set again.
        created => created?.set_permissions(Permissions::from_mode(0o600)),
    }
}

/// Checks that no other user can access the file at `path`. Returns `None` if it does not exist.
fn check(path: &Path) -> Result<Option<Metadata>, FileError> {
    match access::check_file(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        checked => checked.map(Some).map_err(|e| FileError::new(path, "be used", &e)),
    }
}

/// Fails if an earlier version, which stored each row in a file of its own, has created the directory.
fn refuse_old_format(root: &Path, path: &Path) -> Result<(), FileError> {
    if path.exists() || !root.join("identity.json").exists() {
        return Ok(());
    }
    let why = "an earlier version wrote it, as one file for each row, which this version does not read";
    Err(FileError::unreadable(root, &why))
}
