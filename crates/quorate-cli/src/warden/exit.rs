use serde::{Deserialize, Serialize};
use std::{ffi::OsString, io};

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Status {
    /// With this exit code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

/// Why the warden ended a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum EndedBy {
    /// It was told to, with [`Warden::step_down`](super::Warden::step_down).
    StepDown,
    /// No later deadline came before the last one passed.
    Deadline,
    /// The warden's parent was gone.
    ParentGone,
    /// The warden itself was gone or silent, and its parent killed the group.
    WardenGone,
}

/// What came of a command: nothing of its process group runs any more, but for [`Exit::survivors`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// How the command itself ended.
    pub status: Status,
    /// Why it was told to end; `None` if it ended by itself.
    pub ended_by: Option<EndedBy>,
    /// Whether SIGKILL was needed, for it or for what it left behind.
    pub killed: bool,
    /// Whether something of its group was seen to survive SIGKILL, inside a system call that cannot be
    /// interrupted.
    pub survivors: bool,
}

impl Exit {
    /// The exit code by which a shell would tell of it: the command's own, or 128 and the signal.
    pub fn code(&self) -> u8 {
        let code = match self.status {
            Status::Code(code) => code,
            Status::Signal(signal) => 128 + signal,
        };
        u8::try_from(code & 0xFF).unwrap_or(u8::MAX)
    }
}

/// Why a command was not started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// There is no such program: exit code 127.
    #[error("{}: {why}", .program.display())]
    NotFound {
        /// What was asked for.
        program: OsString,
        /// What the system said.
        why: String,
    },
    /// The program is there and cannot be run: exit code 126.
    #[error("{}: {why}", .program.display())]
    NotExecutable {
        /// What was asked for.
        program: OsString,
        /// What the system said.
        why: String,
    },
    /// The warden could not be started: exit code 125.
    #[error("cannot start the warden that guards the command: {0}")]
    Io(#[from] io::Error),
    /// The warden gave no word, or there was no time left: exit code 125.
    #[error("the command was not started: {0}")]
    Warden(String),
}

impl StartError {
    /// The exit code by which a shell would tell of it.
    pub fn code(&self) -> u8 {
        match self {
            Self::NotFound { .. } => 127,
            Self::NotExecutable { .. } => 126,
            Self::Io(_) | Self::Warden(_) => 125,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_a_shells() {
        let exit = |status| Exit { status, ended_by: None, killed: false, survivors: false };
        assert_eq!(exit(Status::Code(0)).code(), 0);
        assert_eq!(exit(Status::Code(255)).code(), 255);
        assert_eq!(exit(Status::Signal(9)).code(), 137);
        assert_eq!(exit(Status::Signal(15)).code(), 143);
    }
}
