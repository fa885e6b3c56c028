//! What the parent and its workers agree on.

use quorate::{env::BootTime, quorum::Quorum};
use quorate_redis::Connect;
use std::time::Duration;

/// How many servers there are.
pub(crate) const NODES: usize = 5;
/// A majority.
pub(crate) const MAJORITY: usize = NODES / 2 + 1;
/// How many worker processes there are.
pub(crate) const WORKERS: usize = 4;
/// The deployment's longest TTL.
pub(crate) const MAX_TTL: Duration = Duration::from_secs(3);
/// Of every lease, term and claim.
pub(crate) const TTL: Duration = Duration::from_secs(2);
/// How long work has to end.
pub(crate) const GRACE: Duration = Duration::from_millis(400);
/// A lease may be seen to be over before its work is told, if it was lost at once: within this it is.
pub(crate) const TO_BE_TOLD: Duration = Duration::from_secs(1);
/// The locks that the workers compete for.
pub(crate) const LOCKS: [&str; 2] = ["lock-0", "lock-1"];
/// The group whose leader runs the jobs.
pub(crate) const GROUP: &str = "soak";
/// The term's name in journals.
pub(crate) const TERM: &str = "election/soak";
/// The job of which each tick starts at most once.
pub(crate) const AT_MOST_ONCE: &str = "at-most-once";
/// The job of which each tick starts until it is done.
pub(crate) const AT_LEAST_ONCE: &str = "at-least-once";
/// Between two ticks of a job.
pub(crate) const TICK_EVERY: Duration = Duration::from_secs(1);
/// For how long missed ticks are made up.
pub(crate) const MAKE_UP: Duration = Duration::from_secs(60);
/// The set of the messages.
pub(crate) const MESSAGES: &str = "soak";
/// Between two messages.
pub(crate) const MESSAGE_EVERY: Duration = Duration::from_millis(100);
/// For how long a message is known to be done.
pub(crate) const RETENTION: Duration = Duration::from_secs(120);
/// How far back a worker that has just started looks for messages.
pub(crate) const LOOK_BACK: Duration = Duration::from_secs(60);
/// Between two looks of a worker at what it holds.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What a worker is started with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Post {
    /// Which member of the crew it is.
    pub(crate) member: usize,
    /// Which run of it.
    pub(crate) run: u32,
    /// What its choices follow from.
    pub(crate) seed: u64,
    /// When the first message was sent.
    pub(crate) epoch: BootTime,
    /// Where the servers are: proxies before them.
    pub(crate) urls: Vec<String>,
}

impl Post {
    /// The arguments that [`Post::parse`] reads.
    pub(crate) fn to_args(&self) -> Vec<String> {
        let numbers = [self.member as u64, u64::from(self.run), self.seed, self.epoch.as_nanos()];
        numbers.iter().map(u64::to_string).chain(self.urls.iter().cloned()).collect()
    }

    /// `None` where these are no worker's arguments.
    pub(crate) fn parse(args: &[String]) -> Option<Self> {
        let [member, run, seed, epoch, urls @ ..] = args else { return None };
        Some(Self {
            member: member.parse().ok()?,
            run: run.parse().ok()?,
            seed: seed.parse().ok()?,
            epoch: BootTime::from_nanos(epoch.parse().ok()?),
            urls: urls.to_vec(),
        })
    }
}

/// Returns whether the servers keep an append-only file, written before each answer, so that a restart is no loss of
/// memory: in one run, all of them; in the next, none.
pub(crate) fn is_durable(seed: u64) -> bool {
    !seed.is_multiple_of(2)
}

/// The quorum as every process here describes it. Within a runtime.
///
/// # Errors
/// What is wrong with the URLs or the timings.
pub(crate) fn quorum(urls: &[String], worker: &str, seed: u64) -> Result<Quorum, Box<dyn std::error::Error>> {
    Ok(Quorum::redis(urls)?.worker(worker).max_ttl(MAX_TTL).durable(is_durable(seed)).build()?)
}

/// When a message is sent.
pub(crate) fn sent_at(epoch: BootTime, message: u64) -> BootTime {
    epoch + MESSAGE_EVERY * u32::try_from(message).unwrap_or(u32::MAX)
}

/// How many messages have been sent by `now`.
pub(crate) fn sent_by(epoch: BootTime, now: BootTime) -> u64 {
    (now.since(epoch).as_millis() / MESSAGE_EVERY.as_millis()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_gets_what_it_was_told() {
        let urls = vec!["redis://127.0.0.1:1".to_owned(), "redis://127.0.0.1:2".to_owned()];
        let post = Post { member: 3, run: 2, seed: 77, epoch: BootTime::from_nanos(5), urls };
        assert_eq!(Post::parse(&post.to_args()), Some(post));
        assert_eq!(Post::parse(&["1".to_owned()]), None);
    }

    #[test]
    fn messages_are_counted_as_they_are_sent() {
        let epoch = BootTime::from_nanos(1_000);
        assert_eq!(sent_by(epoch, sent_at(epoch, 7)), 7);
        assert_eq!(sent_by(epoch, BootTime::from_nanos(0)), 0);
    }
}
