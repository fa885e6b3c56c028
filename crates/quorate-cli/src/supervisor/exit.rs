use serde::{Deserialize, Serialize};
use std::{ffi::OsString, fmt, io, path::PathBuf};

/// The exit status of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Status {
    /// The command ended with this exit code.
    Code(i32),
    /// This signal ended the command.
    Signal(i32),
    /// The status is not known. Another process has reaped the command, or its supervisor process had ended, or
    /// the command still runs.
    Unknown,
}

/// The reason why the supervisor process ended a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum EndedBy {
    /// [`Supervisor::step_down`](super::Supervisor::step_down) was called.
    StepDown,
    /// The deadline passed before a later deadline arrived. Or the command itself had ended, but the
    /// supervisor process observed the end of its last process only after the time of SIGKILL.
    Deadline,
    /// The parent of the supervisor process had ended, or had closed the connection because it could send no
    /// more orders.
    ParentGone,
    /// The supervisor process had ended, and its parent killed the group. Processes that had left the group
    /// may still run.
    SupervisorGone,
    /// The supervisor process did not answer. Its parent killed everything that the command had started,
    /// before the deadline.
    SupervisorSilent,
}

/// A process of a command that could not be ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Survivor {
    /// The process id.
    pub pid: i32,
    /// The name, without control characters.
    pub name: String,
    /// The user id, or `None` if the system hides it.
    pub user: Option<u32>,
    /// True if this user has the right to signal the process. Such a process survives SIGKILL only while it is
    /// inside a system call that cannot be interrupted.
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
            true => ", which has not ended on SIGKILL: it is inside a system call",
            false => ", which this user is not permitted to signal",
        })
    }
}

/// The end of a command. No process of its group still runs, except those in [`Exit::survivors`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// The exit status of the command itself.
    pub status: Status,
    /// The reason why the command was ended. `None` if it ended by itself.
    pub ended_by: Option<EndedBy>,
    /// True if SIGKILL was necessary, for the command or for processes that it left behind.
    pub killed: bool,
    /// The processes that still run although they had to end: processes of other users, and processes inside a
    /// system call that cannot be interrupted. While there are such processes, the lease must not be released.
    /// It ends when it expires.
    pub survivors: Vec<Survivor>,
    /// The number of processes that the command had left behind in its group when it ended by itself. They were ended.
    #[serde(default)]
    pub background: usize,
    /// The number of processes that had left the command's group (`setsid`, a daemon) when it ended by itself. They run
    /// on, and no lease covers them. Zero with [`CommandSpec::leave_background`](super::CommandSpec::leave_background),
    /// which asks for this, and where the descendants of a process cannot be listed.
    #[serde(default)]
    pub escaped: usize,
}

impl Exit {
    /// Returns whether the end of every process that had to end was observed. Then the lease may be released.
    pub fn is_complete(&self) -> bool {
        self.survivors.is_empty() && self.ended_by != Some(EndedBy::SupervisorGone)
    }

    /// Describes the processes that the command had left behind. Returns `None` if there were none.
    pub fn background_text(&self) -> Option<String> {
        let ended = match self.background {
            0 => None,
            1 => Some("1 process that it left in the background was ended".to_owned()),
            many => Some(format!("{many} processes that it left in the background were ended")),
        };
        let escaped = match self.escaped {
            0 => None,
            1 => Some("1 process that left its process group runs on, and no lease covers it".to_owned()),
            many => {
                Some(format!("{many} processes that left its process group run on, and no lease covers them"))
            }
        };
        let both: Vec<String> = ended.into_iter().chain(escaped).collect();
        (!both.is_empty()).then(|| both.join("; "))
    }

    /// Returns the exit code that a shell would return: the command's own, or 128 plus the signal's number.
    /// Returns 125 if the status is not known.
    pub fn code(&self) -> u8 {
        let code = match self.status {
            Status::Code(code) => code,
            Status::Signal(signal) => 128 + signal,
            Status::Unknown => 125,
        };
        u8::try_from(code & 0xFF).unwrap_or(u8::MAX)
    }
}

/// The reason why a command was not started. No process of the command has run, so the lease may be released.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The program does not exist. Exit code 127.
    #[error("{}: {why}", shown(.program))]
    NotFound {
        /// The program as it was given.
        program: OsString,
        /// The error of the system.
        why: String,
    },
    /// The program exists but cannot be executed. Exit code 126.
    #[error("{}: {why}", shown(.program))]
    NotExecutable {
        /// The program as it was given.
        program: OsString,
        /// The error of the system.
        why: String,
    },
    /// The working directory cannot be entered. Exit code 125.
    #[error("cannot enter the directory {}: {why}", shown(.dir.as_os_str()))]
    Directory {
        /// The directory as it was given.
        dir: PathBuf,
        /// The error of the system.
        why: String,
    },
    /// The supervisor process could not be started. Exit code 125.
    #[error("cannot start the supervisor process that guards the command: {0}")]
    Io(#[from] io::Error),
    /// The supervisor process did not start the command, because the deadline was too near, for example. Exit code 125.
    #[error("the command was not started: {0}")]
    NotStarted(String),
}

/// Returns the name of a program on one line, without control characters.
fn shown(program: &std::ffi::OsStr) -> String {
    match program.to_string_lossy() {
        name if name.is_empty() => "\"\"".to_owned(),
        name => quorate::plain::plain(&name, 200),
    }
}

impl StartError {
    /// Returns the exit code that a shell would use for this error.
    pub fn code(&self) -> u8 {
        match self {
            Self::NotFound { .. } => 127,
            Self::NotExecutable { .. } => 126,
            Self::Directory { .. } | Self::Io(_) | Self::NotStarted(_) => 125,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_those_of_a_shell() {
        let exit = |status| Exit {
            status,
            ended_by: None,
            killed: false,
            survivors: Vec::new(),
            background: 0,
            escaped: 0,
        };
        assert_eq!(exit(Status::Code(0)).code(), 0);
        assert_eq!(exit(Status::Code(255)).code(), 255);
        assert_eq!(exit(Status::Signal(9)).code(), 137);
        assert_eq!(exit(Status::Signal(15)).code(), 143);
        assert_eq!(exit(Status::Unknown).code(), 125);
    }

    #[test]
    fn what_a_command_left_behind_is_described() {
        let exit = |background, escaped| Exit {
            status: Status::Code(0),
            ended_by: None,
            killed: false,
            survivors: Vec::new(),
            background,
            escaped,
        };
        assert_eq!(exit(0, 0).background_text(), None);
        let text = exit(2, 1).background_text().unwrap();
        assert!(
            text.contains("2 processes that it left in the background were ended; 1 process that left"),
            "{text}"
        );
    }

    #[test]
    fn a_survivor_is_named_with_its_user_and_the_reason() {
        let mut one = Survivor { pid: 7, name: "sh".into(), user: Some(0), permitted: false };
        assert_eq!(one.to_string(), "process 7 (sh, user root), which this user is not permitted to signal");
        one = Survivor { user: Some(33), permitted: true, ..one };
        assert!(one.to_string().starts_with("process 7 (sh, user id 33), which has not ended on SIGKILL"));
        one = Survivor { user: None, name: String::new(), ..one };
        assert!(one.to_string().starts_with("process 7, which"));
    }
}
