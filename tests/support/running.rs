use super::{Ended, PATIENCE, until};
use quorate::env::{BootTime, SystemWorld, World};
use rustix::process::Signal;
use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus},
    time::Duration,
};

/// A process that was started. Dropping this value kills the process, and its supervisor process then ends the
/// command that it guards.
#[derive(Debug)]
pub struct Running {
    child: Child,
    since: BootTime,
    stdout: PathBuf,
    stderr: PathBuf,
}

impl Running {
    /// Starts the process. Its outputs are written to files, so that the process never waits for a reader.
    pub(super) fn start(mut command: Command, outputs: &Path) -> Self {
        let (stdout, stderr) = (outputs.with_extension("out"), outputs.with_extension("err"));
        let file = |path| File::create(path).expect("a file in our own directory");
        let since = SystemWorld.now();
        let child = command.stdout(file(&stdout)).stderr(file(&stderr)).spawn().expect("the program starts");
        Self { child, since, stdout, stderr }
    }

    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the standard input of the process, if it was given a pipe.
    pub fn stdin(&mut self) -> Option<std::process::ChildStdin> {
        self.child.stdin.take()
    }

    /// Sends a signal to the process.
    ///
    /// # Panics
    ///
    /// If the signal cannot be sent. The test would prove nothing without it.
    pub fn signal(&self, signal: Signal) {
        super::signal(self.pid(), signal);
    }

    /// Kills the process (SIGKILL).
    pub fn kill(&self) {
        self.signal(Signal::KILL);
    }

    /// Returns the standard output of the process so far.
    pub fn stdout(&self) -> String {
        fs::read_to_string(&self.stdout).unwrap_or_default()
    }

    /// Returns the standard error of the process so far.
    pub fn stderr(&self) -> String {
        fs::read_to_string(&self.stderr).unwrap_or_default()
    }

    /// Waits until standard error contains `text`.
    #[track_caller]
    pub fn until_it_says(&self, text: &str) {
        until(&format!("{text:?} from process {}", self.pid()), PATIENCE, || {
            self.stderr().contains(text).then_some(())
        });
    }

    /// Returns whether the process has not ended.
    ///
    /// # Panics If the system does not report the state of the process.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("our own child").is_none()
    }

    /// Waits until the process has ended, but at most `within`.
    ///
    /// # Panics
    ///
    /// If the process does not end in this time. The message contains its output.
    #[track_caller]
    pub fn wait(mut self, within: Duration) -> Ended {
        let give_up = SystemWorld.now() + within;
        while self.is_running() {
            assert!(
                SystemWorld.now() < give_up,
                "process {} still runs after {within:?}:\n{}{}",
                self.pid(),
                self.stdout(),
                self.stderr()
            );
            std::thread::sleep(Duration::from_millis(2));
        }
        let status: ExitStatus = self.child.wait().expect("our own child");
        let took = SystemWorld.now().since(self.since);
        Ended { code: status.code(), stdout: self.stdout(), stderr: self.stderr(), took }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
