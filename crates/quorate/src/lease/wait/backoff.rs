use crate::{
    backoff::poll_pause,
    driver::{Subscription, Wake, WakeOrder},
    env::BootTime,
    lease::{
        acquire::is_contended,
        contact::{AskOrder, IfHeld},
        inner::QuorumInner,
        mode::Mode,
        wait::QueueTicket,
    },
    node::{Owner, Reply, Request, Resource},
    vote::{Answer, RoundData, Tally},
};
use std::{mem, ops::RangeInclusive, sync::Arc, time::Duration};

/// The longest time between two attempts at the beginning of a wait, until a majority of the nodes has reported a
/// release to this process.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Once the nodes report releases, the longest time between two attempts doubles this many times, to 400 ms.
const LOOKS_DOUBLED: u32 = 2;
/// The longest time between two attempts of a caller that has waited for long.
const LOOK_AT_LEAST_EVERY: Duration = Duration::from_secs(3);
/// The largest random offset of a pause. The offset keeps polling waiters from attempting at the same moment.
const JITTER: Duration = Duration::from_millis(20);
/// The number of times that the longest pause after split votes doubles. Before the second attempt, it is
/// twice the duration of one attempt.
const SPLITS_DOUBLED: u32 = 8;
/// The limits for the measured duration of an attempt. Waiters that are woken together delay their attempts by
/// multiples of this duration.
const ATTEMPT: RangeInclusive<Duration> = Duration::from_micros(100)..=Duration::from_millis(3);
/// The longest delay of such an attempt.
const SPREAD_MAX: Duration = Duration::from_millis(20);
/// The range of the pause after which a waiter asks a majority, because one node alone named a new holder.
const CONFIRM_AFTER: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_millis(20);
/// A waiter with more waiters ahead in the queue does not attempt when the resource is released.
const AHEAD_MAX: u32 = 3;
/// Of the waiters that are woken together, about this many attempt at once, and as many a moment later. Each attempt
/// costs the first node a call, and the waiter that wins needs this node's time.
const AT_ONCE: u64 = 4;
/// The range of the delay of those that attempt a moment later. Timers have a resolution of 1 ms.
const A_MOMENT: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_millis(3);
/// The contact of an attempt that competes with those of other waiters.
const ONE_FIRST: AskOrder = AskOrder::OneThenMajority(IfHeld::End);

/// The waits of one caller between its attempts at a resource.
///
/// A wait ends when enough nodes have reported a release of the resource. Reports may be lost, so a
/// wait also ends when the holder's TTL is over, and after 100 ms at the latest. Once a majority has reported
/// any release to this process, this longest wait grows to 400 ms. For a caller that has waited for long, it grows
/// to a sixteenth of the time since the last reported release, and to 3 s at most, while a majority names the
/// holder. If none does, nodes are away, and the caller must learn soon that they are back.
///
/// Waiters that are woken together ask one node first, the same for all of them, so that they do not split the votes.
/// A waiter that is refused there waits for the next release. One node proves nothing, so such a waiter asks a majority
/// soon, unless the resource is released before.
///
/// If concurrent attempts split the votes, no client holds the resource, and the wait is a random pause. The
/// pauses grow until one of the attempts wins.
#[derive(Debug)]
pub(crate) struct RetryBackoff<'a> {
    inner: &'a Arc<QuorumInner>,
    resource: &'a Resource,
    mode: Mode,
    /// The contact of the caller's attempts, except those that ask one node first.
    contact: AskOrder,
    /// True if the caller's present attempt asks one node first.
    asks_one: bool,
    /// The holder that a majority named last.
    known: Option<Owner>,
    /// The number of waiters that came before this one when the resource was released last.
    ahead: u32,
    waiting: Option<Subscription>,
    /// The number of consecutive attempts that were lost although no client held the resource.
    splits: u32,
    /// The number of consecutive waits that ended without a reported release, and the begin of the first of them.
    looks: u32,
    quiet_since: Option<BootTime>,
    /// The duration of the fastest attempt so far.
    attempt: Duration,
}

impl<'a> RetryBackoff<'a> {
    pub(crate) fn new(
        inner: &'a Arc<QuorumInner>,
        resource: &'a Resource,
        mode: Mode,
        contact: AskOrder,
    ) -> Self {
        Self {
            inner,
            resource,
            mode,
            contact,
            asks_one: false,
            known: None,
            ahead: 0,
            waiting: None,
            splits: 0,
            looks: 0,
            quiet_since: None,
            attempt: *ATTEMPT.end(),
        }
    }

    /// Returns the contact of the first attempt. It asks one node first if several workers, this one among them, have
    /// waited for the resource lately.
    pub(crate) fn first_contact(&mut self) -> AskOrder {
        self.asks_one =
            self.inner.recent_waits().contains(self.resource, self.inner.env().now()) && self.can_ask_one();
        if self.asks_one { ONE_FIRST } else { self.contact }
    }

    /// Returns the contact of the last attempt, which needs the answers of a majority.
    pub(crate) fn last_contact(&mut self) -> AskOrder {
        self.asks_one = false;
        self.contact
    }

    /// Drops the reported releases that have not been used to wake this waiter. The next attempt itself finds
    /// out whether the resource is free. Must be called before every attempt.
    pub(crate) fn attempts(&self) {
        if let Some(waiting) = &self.waiting {
            waiting.attempts();
        }
    }

    /// Must be called once the resource is held. Drops the reported releases that have not been used. If this
    /// caller is a reader, wakes the next waiter of this process, which may be a reader too.
    pub(crate) fn won(&self) {
        let Some(waiting) = &self.waiting else { return };
        waiting.won();
        if self.mode == Mode::Shared {
            waiting.hand_on();
        }
    }

    /// Waits after a lost attempt, which began at `began`, until the next attempt is due. Never waits beyond
    /// `deadline`. Returns the contact of the next attempt. `queue` is the caller's ticket, if it waits in order.
    ///
    /// # Cancel safety
    /// Safe. The subscription to releases ends when the `RetryBackoff` is dropped.
    pub(crate) async fn rest<D: RoundData>(
        &mut self,
        tally: &Tally<D>,
        began: BootTime,
        deadline: Option<BootTime>,
        mut queue: Option<&mut QueueTicket>,
    ) -> AskOrder {
        let (refused_by_one, split) = self.note_attempt(tally, began);
        let Some(waiting) = &self.waiting else {
            let order = queue.map_or(WakeOrder::Arrival, |queue| queue.order());
            return self.begin(tally, order, split, deadline).await;
        };
        let env = self.inner.env();
        let bounded = |pause| end_of(env.now() + pause, deadline);
        let named = || tally.first_named().map(|owner| (owner, tally.majority()));
        waiting.refused_by(if refused_by_one { named() } else { tally.holder_on() });
        self.quiet_since.get_or_insert(began);
        // The first node named a holder that no majority has confirmed, although it was this waiter's turn.
        let is_doubtful = refused_by_one && self.ahead == 0 && tally.first_named() != self.known.as_ref();
        // A waiter far behind cannot be granted. It attempts only when it must renew its entry, which ends the wait.
        let is_far = queue.as_deref_mut().is_some_and(|queue| queue.ahead() > AHEAD_MAX);
        let (pause, latest) = match is_doubtful {
            true => self.confirmation(),
            false if is_far => (LOOK_AT_LEAST_EVERY, LOOK_AT_LEAST_EVERY),
            false => self.pause(tally),
        };
        let (mut until, mut latest) = (bounded(pause), bounded(latest));
        loop {
            let woken = tokio::select! { biased;
                wake = waiting.woken() => Some(wake),
                () = env.stopped().cancelled() => None,
                () = env.sleep_until_poll(began, until, latest) => None,
            };
            let Some(wake) = woken else {
                self.looks += 1;
                self.ahead = queue.map_or(0, QueueTicket::ahead);
                self.asks_one = self.ahead > 0 && self.can_ask_one();
                return if self.asks_one { ONE_FIRST } else { self.contact };
            };
            self.looks = 0;
            self.quiet_since = None;
            // A waiter that is woken alone competes only with the worker that has released the lock. One node
            // first would take it one round trip more.
            if wake.notified > 1 && self.can_ask_one() {
                self.inner.recent_waits().add(self.resource, env.now());
                let delay = match queue.as_deref_mut() {
                    Some(queue) => {
                        self.ahead = queue.ahead_in_this_turn();
                        (self.ahead <= AHEAD_MAX).then(|| self.attempt * (2 * self.ahead))
                    }
                    None => self.lot(wake.notified),
                };
                let Some(delay) = delay else {
                    // Others attempt. Should they all be gone, this waiter asks a majority soon.
                    if queue.is_none() {
                        until = bounded(self.confirmation().0);
                        latest = until;
                    }
                    continue;
                };
                env.sleep_until((env.now() + delay).min(until)).await;
                self.asks_one = true;
                return ONE_FIRST;
            }
            if self.is_worth_it(&wake, until).await {
                return self.contact;
            }
        }
    }

    /// Begins to wait: subscribes to the releases of the resource, if another client holds it. Returns the contact of the next
    /// attempt.
    ///
    /// The resource may have been released between the attempt and the subscription, without a report to this waiter. So
    /// if another client held the resource, the next attempt follows at once. It asks a majority, so that each of
    /// these nodes has the subscription if it names a holder.
    async fn begin<D: RoundData>(
        &mut self,
        tally: &Tally<D>,
        order: WakeOrder,
        split: bool,
        deadline: Option<BootTime>,
    ) -> AskOrder {
        let is_contended = is_contended(tally);
        if is_contended {
            self.waiting = Some(Subscription::begin(self.inner.pool(), self.resource, order));
        }
        if !is_contended || split {
            let env = self.inner.env();
            env.sleep_until(end_of(env.now() + self.pause(tally).0, deadline)).await;
        }
        self.contact
    }

    /// Notes the result of an attempt that began at `began`. Returns whether it ended at the first node, which named a
    /// holder, and whether the nodes were split among several callers.
    fn note_attempt<D: RoundData>(&mut self, tally: &Tally<D>, began: BootTime) -> (bool, bool) {
        let took = began.until(self.inner.env().now()).clamp(*ATTEMPT.start(), *ATTEMPT.end());
        self.attempt = self.attempt.min(took);
        let refused_by_one =
            mem::take(&mut self.asks_one) && tally.holder().is_none() && tally.names_one_holder();
        let split = !refused_by_one && is_contended(tally) && tally.holder().is_none();
        self.splits = if split { self.splits + 1 } else { 0 };
        if let Some(holder) = tally.holder() {
            self.known = Some(holder.clone());
        }
        (refused_by_one, split)
    }

    /// Returns whether an attempt can ask one node first.
    fn can_ask_one(&self) -> bool {
        self.contact == AskOrder::MajorityFirst && self.contact.spares(self.inner, self.resource, self.mode)
    }

    /// Draws the delay of this waiter among `notified` waiters that were woken together. `None` if it leaves the
    /// attempt to others.
    fn lot(&self, notified: u32) -> Option<Duration> {
        let env = self.inner.env();
        let (first, last) = (*A_MOMENT.start(), *A_MOMENT.end());
        match env.random() % u64::from(notified) {
            lot if lot < AT_ONCE => Some(Duration::ZERO),
            lot if lot < 2 * AT_ONCE => Some(first + env.random_below(last - first)),
            _ => None,
        }
    }

    /// Returns the pause after an attempt that one node refused, in the form of [`RetryBackoff::pause`].
    fn confirmation(&self) -> (Duration, Duration) {
        let (first, last) = (*CONFIRM_AFTER.start(), *CONFIRM_AFTER.end());
        let pause = first + self.inner.env().random_below(last - first);
        (pause, pause)
    }

    /// Returns whether this caller should attempt to acquire a resource whose release was just reported. If
    /// all notified workers attempted at once, they would split the votes. So each worker first waits for a
    /// random time. If this time is longer than one attempt, the worker then asks one node whether another
    /// worker has acquired the resource.
    async fn is_worth_it(&self, wake: &Wake, until: BootTime) -> bool {
        let env = self.inner.env();
        if wake.notified <= 1 {
            return true;
        }
        let mine = env.random_below((self.attempt * wake.notified.min(1 << 16)).min(SPREAD_MAX));
        env.sleep_until((env.now() + mine).min(until)).await;
        mine < self.attempt || env.now() >= until || !self.is_taken(&wake.owner).await
    }

    /// Asks one node, chosen at random from the nodes that an acquire asks first. Returns whether this node
    /// names a new holder: a holder other than `before` that excludes this caller.
    async fn is_taken(&self, before: &Owner) -> bool {
        let pool = self.inner.pool();
        // Only nodes that an acquire asks first are useful here, because a lease that was acquired just now
        // may be stored on no other node.
        let first = pool.env().random() % pool.majority() as u64;
        let node = pool.order(self.resource)[first as usize];
        let look = Request::Inspect { resource: self.resource.clone() };
        let vote = pool.ask_some([node], look).recv().await;
        vote.is_some_and(|vote| {
            matches!(vote.answer, Answer::Reply(Reply::State { holder: Some((holder, _)), .. })
                if holder != *before && !self.may_join(&holder))
        })
    }

    /// Returns whether an attempt of this caller may succeed although `holder` holds the resource: both are
    /// readers, or `holder` is a reservation for this worker.
    fn may_join(&self, holder: &Owner) -> bool {
        let reads = self.mode == Mode::Shared && holder.as_str() == Owner::READERS;
        reads || self.inner.config().is_successor_of(holder)
    }

    /// Returns the time until the next attempt, if no release is reported before. The second time is the longest
    /// one until the next attempt if it is known that nothing changes on the nodes. It ends before the holder's
    /// lease does, so that the holder stays known.
    fn pause<D: RoundData>(&self, tally: &Tally<D>) -> (Duration, Duration) {
        let env = self.inner.env();
        let jitter = env.random_below(JITTER);
        let look = match &self.waiting {
            Some(waiting) if waiting.releases_are_reported() => {
                LOOK_EVERY * (1 << self.looks.min(LOOKS_DOUBLED))
            }
            _ => LOOK_EVERY,
        };
        match tally.retry_after() {
            // No majority names a holder. Either concurrent attempts split the votes, or a holder exists and
            // too few nodes that store its lease have answered. The second case may last long, so the pause
            // grows with each attempt.
            _ if self.splits > 0 => {
                let most = self.attempt * (1 << self.splits.min(SPLITS_DOUBLED));
                let pause = env.random_below(most.min(LOOK_EVERY));
                (pause, pause)
            }
            Some(left) => {
                let quiet = self.quiet_since.map_or(Duration::ZERO, |since| since.until(env.now()));
                let look = poll_pause(quiet, look, LOOK_AT_LEAST_EVERY);
                let pause = (left + jitter / 4).min(look - jitter);
                (pause, pause.max(left - left / 10))
            }
            None => (look - jitter, look - jitter),
        }
    }
}

/// Returns the end of a pause that would last until `until`, but never beyond `deadline`.
fn end_of(until: BootTime, deadline: Option<BootTime>) -> BootTime {
    deadline.map_or(until, |deadline| until.min(deadline))
}
