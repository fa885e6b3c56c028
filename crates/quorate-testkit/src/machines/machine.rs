use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io,
    net::Ipv4Addr,
    os::fd::AsFd,
    path::PathBuf,
    process::Command,
    time::Duration,
};

/// One machine of a [`Network`](super::Network).
#[derive(Clone, Debug)]
pub struct Machine {
    pub(super) name: String,
    pub(super) address: Ipv4Addr,
    /// The file of the network namespace.
    pub(super) network: PathBuf,
    /// The file of the time namespace, and the value by which the boot clock of the machine is ahead.
    pub(super) clock: Option<(PathBuf, Duration)>,
}

impl Machine {
    /// Returns the machine's address on the bridge.
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Returns the value by which the machine's boot clock is ahead of the caller's.
    pub fn boot_offset(&self) -> Duration {
        self.clock.as_ref().map_or(Duration::ZERO, |(_, offset)| *offset)
    }

    /// Returns a command that runs `program` on this machine. The process that the command starts is the program itself,
    /// with the same process id.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        let mut argument = OsString::from("--net=");
        argument.push(&self.network);
        command.arg("--no-fork").arg(argument);
        if let Some((file, _)) = &self.clock {
            let mut argument = OsString::from("--time=");
            argument.push(file);
            command.arg(argument);
        }
        command.arg("--").arg(program);
        command
    }

    /// Moves the calling thread to the network of this machine. Sockets that the thread makes afterwards belong to it. The
    /// other threads of the process stay where they are.
    ///
    /// # Errors
    /// If the namespace does not exist, or the process may not enter it.
    pub(crate) fn enter_network(&self) -> io::Result<()> {
        let file = File::open(&self.network)?;
        Ok(move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?)
    }
}
