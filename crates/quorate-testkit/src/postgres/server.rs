use super::programs;
use crate::redis::port;
use quorate::env::{SystemWorld, World};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    fmt, fs, io,
    net::TcpStream,
    os::unix::{fs::chown, process::CommandExt},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};
use tempfile::TempDir;

/// The time limit for the server's start, and for its end.
const PATIENCE: Duration = Duration::from_secs(30);
/// The interval between two checks of a condition.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// A `postgres` process with a directory of its own. Dropping the value ends the process.
///
/// All methods block: call them from a plain test, or accept that they block the runtime for a second.
pub struct PostgresServer {
    dir: TempDir,
    port: u16,
    child: Option<Child>,
}

impl PostgresServer {
    /// Starts an empty server on a free loopback port, and waits until it accepts connections.
    ///
    /// # Errors
    /// [`StartPostgresError`]. If PostgreSQL is missing, the error says how to install it.
    pub fn start() -> Result<Self, StartPostgresError> {
        let folder = programs::folder().ok_or(StartPostgresError::Missing)?;
        let dir = tempfile::Builder::new().prefix("quorate-postgres-").tempdir()?;
        if let Some((user, group)) = programs::unprivileged_user() {
            chown(dir.path(), Some(user), Some(group))?;
        }
        let mut initdb = without_root(&folder.join("initdb"), dir.path());
        initdb.args(["--username=postgres", "--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync"]);
        let made = initdb.arg("--pgdata").arg(dir.path().join("data")).output()?;
        if !made.status.success() {
            return Err(StartPostgresError::Ended(String::from_utf8_lossy(&made.stderr).into_owned()));
        }
        let mut server = Self { dir, port: port::reserve()?, child: None };
        server.spawn(&folder)?;
        Ok(server)
    }

    /// Returns the URL of the server's only database. No password is needed.
    pub fn url(&self) -> String {
        format!("postgresql://postgres@127.0.0.1:{}/postgres", self.port)
    }

    /// Returns the server's log.
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("server.log")).unwrap_or_default()
    }

    fn spawn(&mut self, folder: &Path) -> Result<(), StartPostgresError> {
        let log = fs::File::create(self.dir.path().join("server.log"))?;
        let mut command = without_root(&folder.join("postgres"), self.dir.path());
        command.arg("-D").arg(self.dir.path().join("data")).args(["-p", &self.port.to_string()]);
        command.args(["-h", "127.0.0.1", "-F", "-c", "unix_socket_directories=", "-c", "max_connections=50"]);
        command.stdout(Stdio::null()).stderr(log);
        self.child = Some(command.spawn()?);
        let give_up = SystemWorld.now() + PATIENCE;
        // PostgreSQL listens before it is ready. Until it is ready, it answers every client with an error.
        // Its log shows when it is ready.
        while !self.log().contains("ready to accept connections")
            || TcpStream::connect(("127.0.0.1", self.port)).is_err()
        {
            let ended = self.child.as_mut().is_some_and(|child| !matches!(child.try_wait(), Ok(None)));
            if ended || SystemWorld.now() >= give_up {
                return Err(StartPostgresError::Ended(self.log()));
            }
            thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        // SIGQUIT requests an "immediate shutdown", which ends the server's child processes too. SIGKILL would leave
        // them running.
        if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::QUIT);
        }
        let give_up = SystemWorld.now() + PATIENCE;
        while matches!(child.try_wait(), Ok(None)) && SystemWorld.now() < give_up {
            thread::sleep(LOOK_EVERY);
        }
        let _ = child.kill();
        let _ = child.wait();
    }
}

impl fmt::Debug for PostgresServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresServer").field("port", &self.port).finish_non_exhaustive()
    }
}

/// The reason why no PostgreSQL server could be started for a test.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum StartPostgresError {
    /// The programs of PostgreSQL are not installed.
    #[error(
        "PostgreSQL is not installed, and these tests need it; install it with `bash tests/run.sh`, or \
         `apt-get install postgresql`, `dnf install postgresql-server`, `apk add postgresql`, `brew install postgresql`"
    )]
    Missing,
    /// The server, or the program that creates its data, ended at once. Or the server did not accept a
    /// connection.
    #[error("PostgreSQL did not start; it says: {0}")]
    Ended(String),
    /// The directory, the port or the process could not be created.
    #[error("PostgreSQL could not be started: {0}")]
    Io(#[from] io::Error),
}

// `unwrap` prints this text. A sentence is more useful there than the structure of the error.
impl fmt::Debug for StartPostgresError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn without_root(program: &Path, dir: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(dir).stdin(Stdio::null()).env("LC_ALL", "C");
    if let Some((user, group)) = programs::unprivileged_user() {
        command.uid(user).gid(group);
    }
    command
}
