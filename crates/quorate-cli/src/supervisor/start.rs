//! The process that becomes the command.
//!
//! The supervisor process starts this same binary once more. The new process already leads the command's process
//! group, and waits for the command's streams. It replaces itself with the command when it has received them. So the
//! parent of the supervisor process knows the group before the first instruction of the command, which may kill the
//! supervisor process.

use super::passing::{receive_streams, send_streams, this_binary};
use super::wire::{self, Report};
use super::{ARGUMENT, START};
use quorate::env::{BootTime, SystemWorld, World};
use rustix::process::Pid;
use std::{
    ffi::{OsStr, OsString},
    io::{self, Read, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::{net::UnixStream, process::CommandExt},
    },
    process::{Command, ExitCode},
    time::Duration,
};

/// The shortest wait for the start of the program.
const START_WITHIN: Duration = Duration::from_millis(1);

/// A process that waits for the command's streams. If this value is dropped, the process ends.
#[derive(Debug)]
pub(super) struct Waiting {
    process: Pid,
    socket: UnixStream,
}

impl Waiting {
    /// Starts the process, in a process group of its own.
    pub(super) fn spawn(program: &OsStr, args: &[OsString]) -> io::Result<Self> {
        let (socket, theirs) = UnixStream::pair()?;
        let child = Command::new(this_binary()?)
            .arg0("quorate")
            .args([ARGUMENT, START])
            .arg(program)
            .args(args)
            .stdin(OwnedFd::from(theirs))
            .process_group(0)
            .spawn()?;
        Ok(Self { process: Pid::from_child(&child), socket })
    }

    /// Returns the id of the process, which is also the id of its group.
    pub(super) fn process(&self) -> Pid {
        self.process
    }

    /// Starts the command with these streams. Returns a report if it was not started by `until`.
    ///
    /// The streams are closed in this process. So a reader of the command's output sees its end when the command ends.
    pub(super) fn start(mut self, streams: [OwnedFd; 3], until: BootTime) -> io::Result<Option<Report>> {
        send_streams(&self.socket, &streams)?;
        drop(streams);
        self.socket.set_read_timeout(Some(SystemWorld.now().until(until).max(START_WITHIN)))?;
        // The connection closes when the program replaces the process, or when the process ends.
        let mut report = Vec::new();
        match self.socket.read_to_end(&mut report) {
            Ok(_) => Ok(wire::take(&mut report).transpose()?),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                Err(io::Error::other("the file system of the program did not answer in time"))
            }
            Err(error) => Err(error),
        }
    }
}

/// The main function of the process. Returns only if the command was not started.
pub(super) fn main(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    let failed = ExitCode::from(125);
    let Some(program) = args.next() else { return failed };
    // The copy of the connection is closed when the program replaces this process.
    let Ok(socket) = io::stdin().as_fd().try_clone_to_owned() else { return failed };
    let Ok(Some([stdin, stdout, stderr])) = receive_streams() else { return failed };
    let error = Command::new(program).args(args).stdin(stdin).stdout(stdout).stderr(stderr).exec();
    let report = match error.kind() {
        io::ErrorKind::NotFound => Report::NotFound(error.to_string()),
        _ => Report::NotExecutable(error.to_string()),
    };
    // If the supervisor process has ended, no process needs the report.
    let _ = UnixStream::from(socket).write_all(&wire::line(&report));
    failed
}
