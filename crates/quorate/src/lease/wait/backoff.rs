use crate::{
    driver::{Subscription, Wake},
    env::BootTime,
    lease::{acquire::is_contended, inner::QuorumInner, mode::Mode},
    node::{Owner, Reply, Request, Resource},
    vote::{Answer, RoundData, Tally},
};
use std::{ops::RangeInclusive, sync::Arc, time::Duration};

/// A waiter looks at least this often at first, whatever the holder's remaining TTL.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Where releases are told, how often the time between two looks is doubled at most: 400 ms.
const LOOKS_DOUBLED: u32 = 2;
/// What keeps waiters that poll from coming all at once.
const JITTER: Duration = Duration::from_millis(20);
/// Attempts that split the votes come again within twice the time of one, at first; how often that is doubled at
/// most.
const SPLITS_DOUBLED: u32 = 8;
/// What an attempt takes, as far as it matters to those that are told at once.
const ATTEMPT: RangeInclusive<Duration> = Duration::from_micros(100)..=Duration::from_millis(3);
/// Over how much time those that are told at once spread their attempts at most.
const SPREAD_MAX: Duration = Duration::from_millis(20);

/// How one caller waits for a resource between its attempts.
///
/// It comes back when a majority of nodes have told that the resource was released, and beneath that, for
/// pushes may be lost, at the holder's exact expiry and every 100 ms, less often once releases have proved to
/// be told. After attempts that split the votes between them, so that nobody holds, it comes back after a
/// random pause, which grows until one of them has won.
#[derive(Debug)]
pub(crate) struct RetryBackoff<'a> {
    inner: &'a Arc<QuorumInner>,
    resource: &'a Resource,
    mode: Mode,
    waiting: Option<Subscription>,
    /// Attempts lost to nobody, in a row.
    splits: u32,
    /// Looks since a release was told.
    looks: u32,
    /// What the quickest attempt took.
    attempt: Duration,
}

impl<'a> RetryBackoff<'a> {
    pub(crate) fn new(inner: &'a Arc<QuorumInner>, resource: &'a Resource, mode: Mode) -> Self {
        Self { inner, resource, mode, waiting: None, splits: 0, looks: 0, attempt: *ATTEMPT.end() }
    }

    /// To be called before every attempt: what this waiter was woken for is used up.
    pub(crate) fn attempts(&self) {
        if let Some(waiting) = &self.waiting {
            waiting.attempts();
        }
    }

    /// To be called once the resource is ours: nobody else is to come for it, but who may share it.
    pub(crate) fn won(&self) {
        let Some(waiting) = &self.waiting else { return };
        waiting.attempts();
        if self.mode == Mode::Shared {
            waiting.hand_on();
        }
    }

    /// Waits after an attempt that was begun at `began` and lost, until the next, but never beyond `deadline`.
    ///
    /// # Cancel safety
    /// Dropping it, or the whole, ends what was listened for.
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
            // What was released before we listened is told to nobody: look again at once.
            if !is_contended(tally) || split {
                let until = env.now() + self.pause(tally);
                env.sleep_until(deadline.map_or(until, |deadline| until.min(deadline))).await;
            }
            return;
        };
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

    /// Whether to attempt what was just told to be free, to so many workers. Where all came at once none might
    /// win, so each draws its moment; and who is not among the first asks one node whether somebody was.
    async fn is_worth_it(&self, wake: &Wake, until: BootTime) -> bool {
        let env = self.inner.env();
        if wake.notified <= 1 {
            return true;
        }
        let mine = env.random_below((self.attempt * wake.notified.min(1 << 16)).min(SPREAD_MAX));
        env.sleep_until((env.now() + mine).min(until)).await;
        mine < self.attempt || env.now() >= until || !self.is_taken(&wake.owner).await
    }

    /// Whether somebody else than `before` has it by now, as far as one node can tell.
    async fn is_taken(&self, before: &Owner) -> bool {
        let pool = self.inner.pool();
        let node = (pool.env().random() % pool.len() as u64) as usize;
        let look = |_| Request::Inspect { resource: self.resource.clone() };
        let vote = pool.ask_some([node], look).recv().await;
        vote.is_some_and(|vote| {
            matches!(vote.answer, Answer::Reply(Reply::State { holder: Some((holder, _)), .. })
                if holder != *before && !self.may_join(&holder))
        })
    }

    /// Whether an attempt of ours is granted though `holder` stands.
    fn may_join(&self, holder: &Owner) -> bool {
        let reads = self.mode == Mode::Shared && holder.as_str() == Owner::READERS;
        reads || self.inner.config().is_heir_of(holder)
    }

    /// How long to wait for the next attempt where nobody tells of a release.
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
            // Or a holder lacks a majority's word because a node is away: so later each time.
            _ if self.splits > 0 => {
                let most = self.attempt * (1 << self.splits.min(SPLITS_DOUBLED));
                env.random_below(most.min(LOOK_EVERY))
            }
            Some(left) => (left + jitter / 4).min(look - jitter),
            None => look - jitter,
        }
    }
}
