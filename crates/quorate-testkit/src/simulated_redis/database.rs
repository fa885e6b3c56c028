use super::{KeySpace, Reply, commands};
use std::fmt::Debug;

/// The clients that are subscribed to channels.
pub trait Subscribers: Debug + Send {
    /// Returns the number of subscribers of `channel`.
    fn count(&self, channel: &[u8]) -> usize;
}

/// No client is subscribed to anything.
#[derive(Debug)]
pub struct NoSubscribers;

impl Subscribers for NoSubscribers {
    fn count(&self, _: &[u8]) -> usize {
        0
    }
}

/// Everything that a command from a client or a script can read or change.
#[derive(Debug)]
pub struct Database {
    /// The keys.
    pub keys: KeySpace,
    /// The server's clock, in microseconds. It does not move while a command or a script runs.
    pub now_micros: u64,
    /// The subscribers of the channels.
    pub subscribers: Box<dyn Subscribers>,
    /// The published messages, each with its channel.
    pub published: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Default for Database {
    fn default() -> Self {
        let (keys, published) = (KeySpace::default(), Vec::new());
        Self { keys, now_micros: 0, subscribers: Box::new(NoSubscribers), published }
    }
}

impl Database {
    /// Runs a command on the keys or the channels.
    pub fn run(&mut self, args: &[&[u8]]) -> Reply {
        commands::run(self, args).unwrap_or_else(|error| error)
    }

    pub(super) fn now_ms(&self) -> u64 {
        self.now_micros / 1_000
    }
}
