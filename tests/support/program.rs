use super::{Ended, PATIENCE, Running};
use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
};
use tempfile::TempDir;

/// The program under test, with a directory of its own for the files of its processes. The processes do not see
/// the configuration of the user who runs the tests.
#[derive(Debug)]
pub struct Program {
    path: &'static str,
    dir: TempDir,
    started: AtomicUsize,
}

impl Program {
    /// Returns the program at `path`. Pass `env!("CARGO_BIN_EXE_quorate-under-test")`, which Cargo sets only
    /// for tests.
    ///
    /// # Panics
    /// If no temporary directory can be created.
    pub fn new(path: &'static str) -> Self {
        let dir = tempfile::Builder::new().prefix("quorate-test-").tempdir().expect("a directory");
        Self { path, dir, started: AtomicUsize::new(0) }
    }

    /// Returns the path of `name` in the directory.
    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes a file in the directory, and returns its path as text.
    ///
    /// # Panics
    ///
    /// If the file cannot be written.
    pub fn write(&self, name: &str, text: &str) -> String {
        let path = self.file(name);
        fs::write(&path, text).expect("a file in our own directory");
        path.display().to_string()
    }

    /// Returns the content of the file `name`, or an empty text if it does not exist.
    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.file(name)).unwrap_or_default()
    }

    /// Returns a command that runs the program with these arguments. Its home directory has no configuration,
    /// and its environment no `QUORATE_…` variable.
    pub fn command<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Command {
        let mut command = Command::new(self.path);
        for (name, _) in std::env::vars_os() {
            let name = name.to_string_lossy();
            if name.starts_with("QUORATE_") || name.starts_with("XDG_") {
                command.env_remove(&*name);
            }
        }
        command.env("HOME", self.dir.path()).current_dir(self.dir.path()).stdin(Stdio::null()).args(args);
        command
    }

    /// Starts a process with these arguments.
    pub fn start<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Running {
        self.start_command(self.command(args))
    }

    /// Starts a command of [`Program::command`].
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start_command(&self, command: Command) -> Running {
        let number = self.started.fetch_add(1, Ordering::Relaxed);
        Running::start(command, &self.dir.path().join(format!("process-{number}")))
    }

    /// Runs the program to its end.
    #[track_caller]
    pub fn run<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Ended {
        self.start(args).wait(PATIENCE)
    }

    /// Returns the directory.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }
}
