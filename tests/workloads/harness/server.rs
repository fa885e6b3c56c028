use super::truth::vote_again_after;
use quorate::{
    env::{BootTime, SystemWorld, World},
    quorum::QuorumConfig,
};
use quorate_testkit::{
    machines::Machine,
    redis::{RedisConfig, RedisServer},
};
use std::time::Duration;

/// The shortest time between two steps of one server's clock. Two steps within one lease could together exceed the
/// allowance.
const STEPS_APART: Duration = Duration::from_secs(4);

/// A Redis server of a plan, and the faults that it has.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) process: RedisServer,
    pub(super) down: bool,
    pub(super) stopped: bool,
    pub(super) cut: bool,
    /// True if the server has no memory for new keys.
    pub(super) full: bool,
    /// The difference between the server's clock and the machine's, in milliseconds, and the time of the last step.
    pub(super) clock: (i64, BootTime),
    /// The machine of the server, if it has one of its own.
    pub(super) machine: Option<Machine>,
    /// The time from which the server can vote, unless another fault prevents it.
    pub(super) votes_from: BootTime,
}

impl Server {
    /// Starts a server, on a machine of its own if one is given.
    ///
    /// # Panics
    /// If `redis-server` cannot be started. The message says how to install it.
    pub(super) fn start(durable: bool, machine: Option<Machine>) -> Self {
        // The servers are in a process group of their own. So a Ctrl-C on the terminal reaches only this process, which
        // then ends the servers.
        let config = RedisConfig::new().own_process_group();
        let config = if durable { config.append_only() } else { config };
        let config = match &machine {
            Some(machine) => config.own_clock().on(machine.clone()),
            None => config,
        };
        let process = config.start().unwrap_or_else(|error| panic!("{error}"));
        let (down, stopped, cut, full) = (false, false, false, false);
        let (clock, votes_from) = ((0, BootTime::default()), BootTime::default());
        Self { process, down, stopped, cut, full, clock, machine, votes_from }
    }

    /// Returns whether the clock may be stepped now.
    pub(super) fn may_step(&self, ms: i64) -> bool {
        ms != self.clock.0 && (ms == 0 || self.clock.1 + STEPS_APART < SystemWorld.now())
    }

    /// Gives the server the memory that it is to have. A server that does not run gets it later.
    pub(super) fn set_memory(&self) {
        if !(self.down || self.stopped) {
            let bytes = if self.full { "1" } else { "0" };
            self.process.command(&["CONFIG", "SET", "maxmemory", bytes]);
        }
    }

    /// Steps the clock, and returns the time after which the server can vote again.
    pub(super) fn set_clock(&mut self, ms: i64) -> Duration {
        let by = ms - self.clock.0;
        self.process.step_clock(Duration::from_millis(by.unsigned_abs()), by > 0);
        self.clock = (ms, SystemWorld.now());
        // The quarantine ends by the server's own clock, which may have been set back.
        let back = Duration::from_millis(by.min(0).unsigned_abs());
        if is_far(by) { vote_again_after() + back } else { Duration::ZERO }
    }
}

/// Returns whether a step of this many milliseconds is beyond the allowance.
pub(crate) fn is_far(ms: i64) -> bool {
    u128::from(ms.unsigned_abs()) > QuorumConfig::default().clock_step_allowance.as_millis()
}
