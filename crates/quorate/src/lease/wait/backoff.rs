use crate::{
    driver::{Subscription, Wake},
    env::BootTime,
    lease::{acquire::is_contended, inner::QuorumInner, mode::Mode},
    node::{Owner, Reply, Request, Resource},
    vote::{Answer, RoundData, Tally},
};
use std::{ops::RangeInclusive, sync::Arc, time::Duration};

/// The longest time between two attempts of a waiter, until a majority of the nodes has reported a release to
/// this process.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The maximum number of doublings of `LOOK_EVERY` once releases are reported: up to 400 ms.
const LOOKS_DOUBLED: u32 = 2;
/// The range of the random offset that keeps polling waiters from attempting all at once.
const JITTER: Duration = Duration::from_millis(20);
/// The maximum number of doublings of the pause after split votes. The first pause is shorter than twice the
/// time of one attempt.
const SPLITS_DOUBLED: u32 = 8;
/// The limits for the measured duration of an attempt. Waiters that are woken together use this duration to
/// spread their attempts.
const ATTEMPT: RangeInclusive<Duration> = Duration::from_micros(100)..=Duration::from_millis(3);
/// The longest time over which waiters that are woken together spread their attempts.
const SPREAD_MAX: Duration = Duration::from_millis(20);

/// The waits of one caller between its attempts at a resource.
///
/// A wait ends when a majority of the nodes has reported a release of the resource. Reports may be lost, so a
/// wait also ends when the holder's TTL is over, and after 100 ms. This interval grows to 400 ms once a
/// majority has reported any release to this process.
///
/// If attempts split the votes, so that no client holds the resource, the wait is a random pause. It grows
/// until one of the attempts wins.
#[derive(Debug)]
pub(crate) struct RetryBackoff<'a> {
    inner: &'a Arc<QuorumInner>,
    resource: &'a Resource,
    mode: Mode,
    waiting: Option<Subscription>,
    /// The number of consecutive attempts that were lost although no client held the resource.
    splits: u32,
    /// The number of consecutive waits that ended without a reported release.
    looks: u32,
    /// The duration of the fastest attempt so far.
    attempt: Duration,
}

impl<'a> RetryBackoff<'a> {
    pub(crate) fn new(inner: &'a Arc<QuorumInner>, resource: &'a Resource, mode: Mode) -> Self {
        Self { inner, resource, mode, waiting: None, splits: 0, looks: 0, attempt: *ATTEMPT.end() }
    }

    /// Discards a pending wake-up, which reports a release: the next attempt itself finds out whether the
    /// resource is free. Must be called before every attempt.
    pub(crate) fn attempts(&self) {
        if let Some(waiting) = &self.waiting {
            waiting.attempts();
        }
    }

    /// Discards a pending wake-up after a successful attempt. If this caller is a reader, wakes the next
    /// waiter of this process, which may share the resource. A writer wakes no other waiter. Must be called
    /// once the resource is held.
    pub(crate) fn won(&self) {
        let Some(waiting) = &self.waiting else { return };
        waiting.attempts();
        if self.mode == Mode::Shared {
            waiting.hand_on();
        }
    }

    /// Waits after a lost attempt, which began at `began`, until the next one is due, but never beyond `deadline`.
    ///
    /// # Cancel safety
    /// Safe. The subscription to releases ends when the `RetryBackoff` is dropped.
    pub(crate) async fn rest<D: RoundData>(
        &mut self,
        tally: &Tally<D>,
        began: BootTime,
        deadline: Option<BootTime>,
    ) {
        let env = self.inner.env();
        let took = began.until(env.now()).clamp(*ATTEMPT.start(), *ATTEMPT.end());
        self.attempt = self.attempt.min(took);
        let split = is_contended(tally) && tally.holder().is_none();
        self.splits = if split { self.splits + 1 } else { 0 };
        let Some(waiting) = &self.waiting else {
            if is_contended(tally) {
                self.waiting = Some(Subscription::begin(self.inner.pool(), self.resource));
            }
            // The resource may have been released before the subscription began, and this waiter got no
            // report of that. So if another client held it, the next attempt is made at once.
            if !is_contended(tally) || split {
                let until = env.now() + self.pause(tally);
                env.sleep_until(deadline.map_or(until, |deadline| until.min(deadline))).await;
            }
            return;
        };
        waiting.refused_by(tally.holder_on());
        let until = env.now() + self.pause(tally);
        let until = deadline.map_or(until, |deadline| until.min(deadline));
        loop {
            let woken = tokio::select! { biased;
                wake = waiting.woken() => Some(wake),
                () = env.stopped().cancelled() => None,
                () = env.sleep_until(until) => None,
            };
            let Some(wake) = woken else {
                self.looks += 1;
                return;
            };
            self.looks = 0;
            if self.is_worth_it(&wake, until).await {
                return;
            }
        }
    }

    /// Returns whether to attempt a resource whose release was just reported. If all notified workers
    /// attempted at once, perhaps none would win. So each worker first waits for a random time. If that time
    /// is longer than one attempt, the worker then asks one node whether another worker has acquired the
    /// resource.
    async fn is_worth_it(&self, wake: &Wake, until: BootTime) -> bool {
        let env = self.inner.env();
        if wake.notified <= 1 {
            return true;
        }
        let mine = env.random_below((self.attempt * wake.notified.min(1 << 16)).min(SPREAD_MAX));
        env.sleep_until((env.now() + mine).min(until)).await;
        mine < self.attempt || env.now() >= until || !self.is_taken(&wake.owner).await
    }

    /// Returns whether one node, chosen at random among the first majority, names a holder other than `before` that excludes this caller.
    async fn is_taken(&self, before: &Owner) -> bool {
        let pool = self.inner.pool();
        // A lease that was acquired just now may be stored on no other node.
        let first = pool.env().random() % pool.majority() as u64;
        let node = pool.order(self.resource)[first as usize];
        let look = |_| Request::Inspect { resource: self.resource.clone() };
        let vote = pool.ask_some([node], look).recv().await;
        vote.is_some_and(|vote| {
            matches!(vote.answer, Answer::Reply(Reply::State { holder: Some((holder, _)), .. })
                if holder != *before && !self.may_join(&holder))
        })
    }

    /// Returns whether an attempt of this caller can be granted although `holder` holds the resource.
    fn may_join(&self, holder: &Owner) -> bool {
        let reads = self.mode == Mode::Shared && holder.as_str() == Owner::READERS;
        reads || self.inner.config().is_successor_of(holder)
    }

    /// Returns the time until the next attempt if no release is reported.
    fn pause<D: RoundData>(&self, tally: &Tally<D>) -> Duration {
        let env = self.inner.env();
        let jitter = env.random_below(JITTER);
        let look = match &self.waiting {
            Some(waiting) if waiting.releases_are_reported() => {
                LOOK_EVERY * (1 << self.looks.min(LOOKS_DOUBLED))
            }
            _ => LOOK_EVERY,
        };
        match tally.retry_after() {
            // No majority names a holder. Either the votes were split, or the nodes that answered cannot show
            // a holder that exists. The second case may last, so the pause grows with each attempt.
            _ if self.splits > 0 => {
                let most = self.attempt * (1 << self.splits.min(SPLITS_DOUBLED));
                env.random_below(most.min(LOOK_EVERY))
            }
            Some(left) => (left + jitter / 4).min(look - jitter),
            None => look - jitter,
        }
    }
}
