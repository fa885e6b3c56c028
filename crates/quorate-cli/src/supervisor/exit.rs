use serde::{Deserialize, Serialize};
use std::{ffi::OsString, fmt, io};

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Status {
    /// With this exit code.
    Code(i32),
    /// By this signal.
    Signal(i32),
    /// Nobody could observe how: another process has reaped it, its supervisor was gone, or it still runs.
    Unknown,
}

/// Why the warden ended a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum EndedBy {
    /// It was told to, with [`Supervisor::step_down`](super::Supervisor::step_down).
    StepDown,
    /// No later deadline came before the last one passed, or the end of everything that the command had started was
    /// observed only after it.
    Deadline,
    /// The warden's parent was gone.
    ParentGone,
    /// The warden itself was gone, and its parent killed the group. What had left the group may run.
    SupervisorGone,
    /// The warden did not answer, and its parent killed it and everything that the command had started.
    SupervisorSilent,
}

/// A process of a command that could not be ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Survivor {
    /// Its number.
    pub pid: i32,
    /// Its name, without control characters.
    pub name: String,
    /// The number of the user as whom it runs; `None` where the system hides it.
    pub user: Option<u32>,
    /// Whether this user may signal it. If so, it is inside a system call that cannot be interrupted.
    pub permitted: bool,
}

impl fmt::Display for Survivor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {}", self.pid)?;
        let user = match self.user {
            Some(0) => Some("user root".to_owned()),
            Some(number) => Some(format!("user id {number}")),
            None => None,
        };
        let name = Some(self.name.clone()).filter(|name| !name.is_empty());
        let known: Vec<String> = [name, user].into_iter().flatten().collect();
        if !known.is_empty() {
            write!(f, " ({})", known.join(", "))?;
        }
        f.write_str(match self.permitted {
            true => ", which has not obeyed SIGKILL: it is inside a system call",
            false => ", which this user is not permitted to signal",
        })
    }
}

/// How a command ended: nothing of its process group runs any more, but for [`Exit::survivors`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// How the command itself ended.
    pub status: Status,
    /// Why it was told to end; `None` if it ended by itself.
    pub ended_by: Option<EndedBy>,
    /// Whether SIGKILL was needed, for it or for what it left behind.
    pub killed: bool,
    /// What runs on, though it was to end: processes of other users, and processes inside a system call that cannot be
    /// interrupted. The lease must not be released before it has run out.
    pub survivors: Vec<Survivor>,
}

impl Exit {
    /// Whether everything that had to end was observed to have ended, so that the lease may be released.
    pub fn is_complete(&self) -> bool {
        self.survivors.is_empty() && self.ended_by != Some(EndedBy::SupervisorGone)
    }

    /// The exit code that a shell would give: the command's own, or 128 and the signal; 125 where it is unknown.
    pub fn code(&self) -> u8 {
        let code = match self.status {
            Status::Code(code) => code,
            Status::Signal(signal) => 128 + signal,
            Status::Unknown => 125,
        };
        u8::try_from(code & 0xFF).unwrap_or(u8::MAX)
    }
}

/// Why a command was not started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// There is no such program: exit code 127.
    #[error("{}: {why}", shown(.program))]
    NotFound {
        /// What was asked for.
        program: OsString,
        /// What the system said.
        why: String,
    },
    /// The program is there and cannot be run: exit code 126.
    #[error("{}: {why}", shown(.program))]
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
    Supervisor(String),
}

/// The name of a program on one line, whatever it holds.
fn shown(program: &std::ffi::OsStr) -> String {
    match program.to_string_lossy() {
        name if name.is_empty() => "\"\"".to_owned(),
        name => quorate::plain::plain(&name, 200),
    }
}

impl StartError {
    /// The exit code by which a shell would tell of it.
    pub fn code(&self) -> u8 {
        match self {
            Self::NotFound { .. } => 127,
            Self::NotExecutable { .. } => 126,
            Self::Io(_) | Self::Supervisor(_) => 125,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_a_shells() {
        let exit = |status| Exit { status, ended_by: None, killed: false, survivors: Vec::new() };
        assert_eq!(exit(Status::Code(0)).code(), 0);
        assert_eq!(exit(Status::Code(255)).code(), 255);
        assert_eq!(exit(Status::Signal(9)).code(), 137);
        assert_eq!(exit(Status::Signal(15)).code(), 143);
        assert_eq!(exit(Status::Unknown).code(), 125);
    }

    #[test]
    fn a_survivor_is_named_with_its_user_and_the_reason() {
        let mut one = Survivor { pid: 7, name: "sh".into(), user: Some(0), permitted: false };
        assert_eq!(one.to_string(), "process 7 (sh, user root), which this user is not permitted to signal");
        one = Survivor { user: Some(33), permitted: true, ..one };
        assert!(one.to_string().starts_with("process 7 (sh, user id 33), which has not obeyed SIGKILL"));
        one = Survivor { user: None, name: String::new(), ..one };
        assert!(one.to_string().starts_with("process 7, which"));
    }
}
