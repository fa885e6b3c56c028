use super::{attempt::is_contended, hub::Hub};
use crate::{
    env::BootTime,
    node::Resource,
    round::{Tally, Waiting},
};
use std::{sync::Arc, time::Duration};

/// A waiter looks at least this often at first, whatever the holder's remaining TTL.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Where releases are told, how often the time between two looks is doubled at most: 400 ms.
const LOOKS_DOUBLED: u32 = 2;
/// What keeps waiters that poll from coming all at once.
const JITTER: Duration = Duration::from_millis(20);
/// Attempts that split the votes come again within this, or twice the time that they took, at first.
const SPLIT_PAUSE: Duration = Duration::from_micros(500);
const SPLIT_PAUSE_MAX: Duration = Duration::from_millis(20);
/// How often that is doubled at most.
const SPLITS_DOUBLED: u32 = 6;

/// How one caller waits for a resource between its attempts.
///
/// It comes back when a majority of nodes have told that the resource was released, and beneath that, for
/// pushes may be lost, at the holder's exact expiry and every 100 ms, less often once releases have proved to
/// be told. After attempts that split the votes between them, so that nobody holds, it comes back after a
/// random pause, which grows until one of them has won.
#[derive(Debug)]
pub(crate) struct Patience<'a> {
    hub: &'a Arc<Hub>,
    resource: &'a Resource,
    waiting: Option<Waiting>,
    /// Attempts lost to nobody, in a row.
    splits: u32,
    /// Looks since a release was told.
    looks: u32,
}

impl<'a> Patience<'a> {
    pub(crate) fn new(hub: &'a Arc<Hub>, resource: &'a Resource) -> Self {
        Self { hub, resource, waiting: None, splits: 0, looks: 0 }
    }

    /// To be called before every attempt, and once the resource is ours: what this waiter was woken for is
    /// used up.
    pub(crate) fn attempts(&self) {
        if let Some(waiting) = &self.waiting {
            waiting.attempts();
        }
    }

    /// Waits after an attempt that was begun at `began` and lost, until the next, but never beyond `deadline`.
    ///
    /// # Cancel safety
    /// Dropping it, or the whole, ends what was listened for.
    pub(crate) async fn rest(&mut self, tally: &Tally, began: BootTime, deadline: Option<BootTime>) {
        let env = self.hub.env();
        let split = is_contended(tally) && tally.holder().is_none();
        self.splits = if split { self.splits + 1 } else { 0 };
        let Some(waiting) = &self.waiting else {
            if is_contended(tally) {
                self.waiting = Some(self.hub.fleet().waiting(self.resource));
            }
            // What was released before we listened is told to nobody: look again at once.
            if !is_contended(tally) || split {
                let until = env.now() + self.pause(tally, began);
                env.sleep_until(deadline.map_or(until, |deadline| until.min(deadline))).await;
            }
            return;
        };
        let until = env.now() + self.pause(tally, began);
        tokio::select! { biased;
            () = waiting.woken() => self.looks = 0,
            () = env.stopped().cancelled() => {}
            () = env.sleep_until(deadline.map_or(until, |deadline| until.min(deadline))) => self.looks += 1,
        }
    }

    /// How long to wait for the next attempt where nobody tells of a release.
    fn pause(&self, tally: &Tally, began: BootTime) -> Duration {
        let env = self.hub.env();
        let jitter = env.random_below(JITTER);
        let look = match &self.waiting {
            Some(waiting) if waiting.is_told() => LOOK_EVERY * (1 << self.looks.min(LOOKS_DOUBLED)),
            _ => LOOK_EVERY,
        };
        match tally.retry_after() {
            // Or a holder lacks a majority's word because a node is away: so later each time.
            _ if self.splits > 0 => {
                let first = (began.until(env.now()) * 2).clamp(SPLIT_PAUSE, SPLIT_PAUSE_MAX);
                let most = first * (1 << (self.splits - 1).min(SPLITS_DOUBLED));
                env.random_below(most.min(LOOK_EVERY))
            }
            Some(left) => (left + jitter / 4).min(look - jitter),
            None => look - jitter,
        }
    }
}
