use std::{
    ffi::OsString,
    fmt,
    fs::File,
    io,
    os::fd::{AsFd, OwnedFd},
    path::PathBuf,
};

/// A command to run under a [`Supervisor`](super::Supervisor), with its environment and streams.
pub struct CommandSpec {
    pub(super) program: OsString,
    pub(super) args: Vec<OsString>,
    pub(super) env: Vec<(OsString, OsString)>,
    pub(super) without: Vec<OsString>,
    pub(super) dir: Option<PathBuf>,
    pub(super) streams: [Stream; 3],
    pub(super) job_control: bool,
    pub(super) leave_background: bool,
}

/// The target of one of a command's three standard streams.
#[derive(Debug, Default)]
pub enum Stream {
    /// The same stream as that of this process.
    #[default]
    Inherit,
    /// `/dev/null`.
    Null,
    /// An open file, pipe or socket.
    Fd(OwnedFd),
}

impl CommandSpec {
    /// Returns a specification of `program`, which is looked up in `PATH` if it contains no slash. By default it has this
    /// process's streams, directory and environment.
    pub fn new(program: impl Into<OsString>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            env: Vec::new(),
            without: Vec::new(),
            dir: None,
            streams: Default::default(),
            job_control: false,
            leave_background: false,
        }
    }

    /// Adds arguments.
    #[must_use]
    pub fn args(mut self, args: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Adds a variable to the environment.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Removes a variable that would be inherited from this process. A variable that is also added is kept.
    #[must_use]
    pub fn env_remove(mut self, name: impl Into<OsString>) -> Self {
        self.without.push(name.into());
        self
    }

    /// Sets the working directory.
    #[must_use]
    pub fn dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.dir = Some(dir.into());
        self
    }

    /// Sets the standard input.
    #[must_use]
    pub fn stdin(mut self, stream: Stream) -> Self {
        self.streams[0] = stream;
        self
    }

    /// Sets the standard output.
    #[must_use]
    pub fn stdout(mut self, stream: Stream) -> Self {
        self.streams[1] = stream;
        self
    }

    /// Sets the standard error.
    #[must_use]
    pub fn stderr(mut self, stream: Stream) -> Self {
        self.streams[2] = stream;
        self
    }

    /// Sets whether the command may use this process's terminal. If it may, this process also stops when the
    /// command is stopped.
    #[must_use]
    pub fn job_control(mut self, yes: bool) -> Self {
        self.job_control = yes;
        self
    }

    /// Sets whether processes that the command leaves behind in its group run on when the command ends by itself. By
    /// default they are ended. They are always ended if the command was ended, or was asked to end.
    #[must_use]
    pub fn leave_background(mut self, yes: bool) -> Self {
        self.leave_background = yes;
        self
    }

    /// Returns the three streams as open files.
    pub(super) fn open_streams(&self) -> io::Result<[OwnedFd; 3]> {
        let null = || File::options().read(true).write(true).open("/dev/null").map(OwnedFd::from);
        let open = |stream: &Stream, ours: io::Result<OwnedFd>| match stream {
            Stream::Inherit => ours,
            Stream::Null => null(),
            Stream::Fd(fd) => fd.try_clone(),
        };
        Ok([
            open(&self.streams[0], io::stdin().as_fd().try_clone_to_owned())?,
            open(&self.streams[1], io::stdout().as_fd().try_clone_to_owned())?,
            open(&self.streams[2], io::stderr().as_fd().try_clone_to_owned())?,
        ])
    }
}

impl fmt::Debug for CommandSpec {
    /// Arguments and variables are left out, because they may contain secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CommandSpec").field("program", &self.program).finish_non_exhaustive()
    }
}
