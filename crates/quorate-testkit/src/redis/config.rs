use super::{RedisServer, StartError};
use crate::machines::Machine;
use std::{fmt::Write as _, net::Ipv4Addr, path::Path};

/// The configuration of a [`RedisServer`]. By default the server listens on TCP on loopback, without a
/// password, persistence or eviction.
#[derive(Clone, Debug, Default)]
pub struct RedisConfig {
    append_only: bool,
    unix_socket: bool,
    own_clock: bool,
    own_group: bool,
    machine: Option<Machine>,
    password: Option<String>,
    lines: Vec<String>,
}

impl RedisConfig {
    /// Creates the default configuration: no data outlives the process.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets the server keep an append-only file, synced at every write. The server restarts with all data that it
    /// acknowledged.
    #[must_use]
    pub fn append_only(mut self) -> Self {
        self.append_only = true;
        self
    }

    /// Lets the server also listen on a Unix socket ([`RedisServer::socket`]).
    #[must_use]
    pub fn unix_socket(mut self) -> Self {
        self.unix_socket = true;
        self
    }

    /// Gives the server a wall clock of its own, which [`RedisServer::step_clock`] steps. Works on Linux only, and
    /// needs `cc`.
    #[must_use]
    pub fn own_clock(mut self) -> Self {
        self.own_clock = true;
        self
    }

    /// Puts the server in a process group of its own. A Ctrl-C on the terminal then does not reach the server, and the
    /// caller ends the server by dropping it.
    #[must_use]
    pub fn own_process_group(mut self) -> Self {
        self.own_group = true;
        self
    }

    /// Runs the server on this machine, where it listens at the machine's address.
    #[must_use]
    pub fn on(mut self, machine: Machine) -> Self {
        self.machine = Some(machine);
        self
    }

    /// Requires this password of every client.
    #[must_use]
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self
    }

    /// Adds a user with these rules, as in `user NAME on >PASSWORD ~* +@all`.
    #[must_use]
    pub fn user(self, name: &str, rules: &str) -> Self {
        self.line(&format!("user {name} {rules}"))
    }

    /// Lets the server evict keys by this policy once its memory is full.
    #[must_use]
    pub fn maxmemory_policy(self, policy: &str) -> Self {
        self.line(&format!("maxmemory-policy {policy}"))
    }

    /// Adds a line to `redis.conf`. If two lines contradict each other, the later one counts.
    #[must_use]
    pub fn line(mut self, line: &str) -> Self {
        self.lines.push(line.to_owned());
        self
    }

    /// Starts a server.
    ///
    /// # Errors
    /// [`StartError`]. If `redis-server` is missing, the error says how to install it.
    pub fn start(self) -> Result<RedisServer, StartError> {
        RedisServer::start_with(self)
    }

    /// Returns the password that every client must give.
    pub(super) fn asks_for(&self) -> Option<&str> {
        self.password.as_deref()
    }

    /// Returns the machine on which the server runs, if it is not the caller's.
    pub(super) fn machine(&self) -> Option<&Machine> {
        self.machine.as_ref()
    }

    pub(super) fn address(&self) -> Ipv4Addr {
        self.machine.as_ref().map_or(Ipv4Addr::LOCALHOST, Machine::address)
    }

    /// Returns `true` if the server listens on a Unix socket.
    pub(super) fn has_socket(&self) -> bool {
        self.unix_socket
    }

    /// Returns `true` if the server gets a process group of its own.
    pub(super) fn has_own_group(&self) -> bool {
        self.own_group
    }

    /// Returns `true` if the server gets a wall clock of its own.
    pub(super) fn has_own_clock(&self) -> bool {
        self.own_clock
    }

    pub(super) fn render(&self, port: u16, dir: &Path, socket: &Path) -> String {
        let mut text = format!(
            "port {port}\nbind {}\ndir {}\nsave \"\"\ndaemonize no\nlogfile server.log\n",
            self.address(),
            dir.display()
        );
        if self.append_only {
            text.push_str("appendonly yes\nappendfsync always\n");
        }
        if self.unix_socket {
            let _ = writeln!(text, "unixsocket {}", socket.display());
        }
        if let Some(password) = &self.password {
            let _ = writeln!(text, "requirepass {password}");
        }
        if self.machine.is_some() {
            // The network of the machine has no other access.
            text.push_str("protected-mode no\n");
        }
        for line in &self.lines {
            let _ = writeln!(text, "{line}");
        }
        text
    }
}
