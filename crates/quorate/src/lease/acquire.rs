//! One attempt to acquire one or many resources. The attempt acquires the resources, raises the fencing
//! counters, and hands the leases over to the renewer.
//!
//! A round for one lock asks a majority of the nodes first. The round asks the others, the *spared* nodes, as
//! soon as one of the first nodes does not grant, or once the first nodes are late. The protocol permits a
//! round to ask only a majority, because the requests to the other nodes could also have been lost. A round that
//! is known to compete with others asks one node before the others. See [`AskOrder`].

use crate::{
    driver::RequestList,
    env::BootTime,
    lease::{
        attempt::{Attempt, FirstRequest, Step},
        command::{Adoption, RenewerCommand},
        contact::{AskOrder, Next},
        deadline::LeaseDeadline,
        handle::Lease,
        inner::QuorumInner,
        mode::Mode,
        params::LeaseParams,
    },
    node::{FencingToken, Owner, Reply, Request, Resource},
    sabotage::Sabotage,
    vote::{
        Answer, NodeOutcome, ReplyTo, RoundData, Tally, Verdict, Vote, VoteReceiver, VoteSender, vote_channel,
    },
};
use futures_util::future::OptionFuture;
use std::{collections::BTreeSet, sync::Arc, time::Duration};

/// The result of an attempt, with the votes of its round on which the result is based.
#[derive(Debug)]
pub(crate) enum AttemptResult<D = ()> {
    Held(Lease, Tally<D>),
    Lost(Tally<D>),
    /// The quorum has been closed.
    Closed,
}

impl<D: RoundData> AttemptResult<D> {
    /// Returns whether the attempt was lost although no majority names a holder. The reason is that concurrent
    /// attempts have split the votes, or that grants of lost attempts are still being released. Or the resource is reserved
    /// for this worker, and the nodes only named the reservation.
    fn is_split(&self, inner: &QuorumInner) -> bool {
        let is_held = |holder| !inner.config().is_successor_of(holder);
        matches!(self, Self::Lost(tally)
            if !tally.data().ends_round() && is_contended(tally) && !tally.holder().is_some_and(is_held))
    }
}

/// The maximum number of times that an attempt is repeated because the votes were split.
const SPLITS_MAX: u32 = 8;
/// The upper bound of the random pause before the first repetition. Before the n-th repetition, the upper bound
/// is n times as long.
const SPLIT_PAUSE: Duration = Duration::from_millis(10);

/// Attempts to acquire `resource` once. `ticket` is the caller's ticket in the queue of the resource, if the
/// caller has joined the queue.
pub(crate) async fn attempt(
    inner: &Arc<QuorumInner>,
    resource: &Resource,
    params: LeaseParams,
    ticket: Option<Owner>,
    contact: AskOrder,
) -> AttemptResult {
    let opening = FirstRequest::Acquire(ticket);
    let resources = std::slice::from_ref(resource);
    let mut all = Round::start(inner, resources, params, &opening, &(), contact).run().await;
    all.pop().unwrap_or(AttemptResult::Closed)
}

/// Attempts to turn the writer's lease `lease`, which its holder has just ended, into a reader's lease with
/// the same parameters.
pub(crate) async fn downgrade(inner: &Arc<QuorumInner>, lease: &Lease) -> AttemptResult {
    let params = LeaseParams { mode: Mode::Shared, ..lease.params() };
    let opening = FirstRequest::Downgrade(lease.owner().clone(), lease.unchecked_token());
    let resources = std::slice::from_ref(lease.resource());
    let mut all = Round::start(inner, resources, params, &opening, &(), AskOrder::All).run().await;
    all.pop().unwrap_or(AttemptResult::Closed)
}

/// Attempts to acquire each of `resources`, in one batch per node. The results are in the order of `resources`.
///
/// Concurrent attempts may split the votes, so that all of them are lost and no client holds the lease. An
/// attempt that was lost in this way is repeated after a random pause, at most `SPLITS_MAX` times. The
/// repetitions end earlier if the attempt is won, or if a majority names a holder.
///
/// # Cancel safety
/// Dropping the future releases every lease that was won or may yet be granted.
pub(crate) async fn attempt_each(
    inner: &Arc<QuorumInner>,
    resources: &[Resource],
    params: LeaseParams,
    contact: AskOrder,
) -> Vec<AttemptResult> {
    attempt_each_with(inner, resources, params, &(), contact).await
}

/// Makes attempts like [`attempt_each`]. The tally of each attempt also collects `data` from the replies.
///
/// # Cancel safety
///
/// Dropping the future releases every lease that was won or may yet be granted.
pub(crate) async fn attempt_each_with<D: RoundData>(
    inner: &Arc<QuorumInner>,
    resources: &[Resource],
    params: LeaseParams,
    data: &D,
    contact: AskOrder,
) -> Vec<AttemptResult<D>> {
    let anyone = FirstRequest::Acquire(None);
    let mut all = Round::start(inner, resources, params, &anyone, data, contact).run().await;
    let casts = if inner.config().sabotaged(Sabotage::SplitVotesNotRetried) { 0 } else { SPLITS_MAX };
    for times in 1..=casts {
        let split: Vec<usize> = (0..all.len()).filter(|&at| all[at].is_split(inner)).collect();
        if split.is_empty() {
            break;
        }
        inner.env().sleep(inner.env().random_below(SPLIT_PAUSE * times)).await;
        let again: Vec<Resource> = split.iter().map(|&at| resources[at].clone()).collect();
        let contact = contact.of_repetition(times);
        let outcomes = Round::start(inner, &again, params, &anyone, data, contact).run().await;
        for (at, outcome) in split.into_iter().zip(outcomes) {
            all[at] = outcome;
        }
    }
    all
}

/// The attempts of one call. Their requests are sent together, in one batch per node.
struct Round<'a, D: RoundData> {
    inner: &'a Arc<QuorumInner>,
    params: LeaseParams,
    attempts: Vec<Attempt<D>>,
    votes: VoteReceiver,
    raises: VoteSender,
    raised: VoteReceiver,
    open: usize,
    /// The first request of all attempts.
    opening: FirstRequest,
    propose: FencingToken,
    sender: VoteSender,
    /// The times of the nodes that the round did not ask at first. `None` if it asked all nodes.
    later: Option<Later>,
}

/// The times of a round that did not ask all nodes at first.
struct Later {
    /// The time after which nodes that have not answered count as late.
    patience: Duration,
    /// The earliest [`AskPlan::next_at`] of the attempts that have not asked all nodes, or an earlier time.
    due: BootTime,
}

const NEVER: BootTime = BootTime::from_nanos(u64::MAX);
/// The position of [`Attempt::raises`] in the ticket of a raise. The bits below it are the attempt's number.
const RAISES_AT: u32 = 32;

impl<'a, D: RoundData> Round<'a, D> {
    /// Queues the first requests of all attempts. The function has no await point, so either all of them are
    /// queued or none.
    fn start(
        inner: &'a Arc<QuorumInner>,
        resources: &[Resource],
        params: LeaseParams,
        opening: &FirstRequest,
        data: &D,
        contact: AskOrder,
    ) -> Self {
        let pool = inner.pool();
        let (raises, raised) = vote_channel();
        let (sender, votes) = vote_channel();
        let now = pool.env().now();
        let patience = pool.patience();
        let attempts = resources.iter().map(|resource| {
            let (mut plan, spared) = contact.plan(inner, resource, params.mode);
            plan.next_at = now + patience;
            let mut tally = Tally::with_data(pool.len(), data.clone());
            tally.spare(&spared);
            let (inner, resource, owner) = (Arc::clone(inner), resource.clone(), pool.sign());
            let (step, open) = (Step::Acquiring, pool.begin_attempt());
            let asked_again = Vec::new();
            Attempt { inner, resource, owner, params, tally, plan, step, raises: 0, asked_again, _open: open }
        });
        let attempts: Vec<Attempt<D>> = attempts.collect();
        let propose = FencingToken::new(pool.env().wall().as_micros());
        let requests: Vec<RequestList> =
            attempts.iter().map(|attempt| attempt.first_request(opening, propose)).collect();
        let mut asked = 0;
        for node in 0..pool.len() {
            for (ticket, (attempt, request)) in (0..).zip(attempts.iter().zip(&requests)) {
                if !attempt.tally.is_spared(node) {
                    asked += 1;
                    attempt.post(node, request.clone(), ReplyTo { sender: sender.clone(), ticket });
                }
            }
        }
        let open = attempts.len();
        // A round that asks one node for each attempt goes on with each attempt as soon as its node has answered.
        let one_each = asked == open && pool.len() > 1;
        votes.wake_after(if one_each { 1 } else { open * pool.majority() });
        let later = (asked < open * pool.len()).then(|| Later { patience, due: now + patience });
        let opening = opening.clone();
        Self { inner, params, attempts, votes, raises, raised, open, opening, propose, sender, later }
    }

    async fn run(mut self) -> Vec<AttemptResult<D>> {
        let env = self.inner.env();
        let mut alarm = None;
        let mut set_to = NEVER;
        while self.open > 0 {
            let due = self.later.as_ref().map_or(NEVER, |later| later.due);
            if due < set_to {
                (alarm, set_to) = (Some(Box::pin(env.sleep_until(due))), due);
            }
            tokio::select! { biased;
                Some(vote) = self.raised.recv() => self.on_raised(&vote),
                // The drivers answer every request. So every attempt is decided.
                Some(vote) = self.votes.recv() => self.on_vote(&vote),
                Some(()) = OptionFuture::from(alarm.as_mut()), if set_to < NEVER => {
                    (alarm, set_to) = (None, NEVER);
                    self.on_time();
                }
            }
        }
        self.hand_over()
    }

    /// Sends the first request of an attempt to nodes that it has not asked, or asks again.
    fn ask(&mut self, ticket: u64, nodes: &[usize]) {
        let Some(attempt) = self.attempts.get_mut(ticket as usize) else { return };
        attempt.tally.ask(nodes);
        let request = attempt.first_request(&self.opening, self.propose);
        for &node in nodes {
            attempt.post(node, request.clone(), ReplyTo { sender: self.sender.clone(), ticket });
        }
    }

    /// Carries out the decision of an attempt's plan.
    fn go_on(&mut self, ticket: u64, next: Next) {
        let (Some(later), Some(attempt)) = (&mut self.later, self.attempts.get_mut(ticket as usize)) else {
            return;
        };
        let now = self.inner.env().now();
        match next {
            Next::Wait => {}
            Next::Ask(nodes) => {
                attempt.plan.next_at = now + later.patience;
                later.due = later.due.min(attempt.plan.next_at);
                if self.attempts.len() == 1 {
                    self.votes.wake_after(nodes.len());
                }
                self.ask(ticket, &nodes);
            }
            Next::AskRest => {
                let nodes: Vec<usize> = attempt.tally.spared().collect();
                self.ask(ticket, &nodes);
            }
            Next::Pause => {
                attempt.plan.next_at = now + later.patience / 2;
                later.due = later.due.min(attempt.plan.next_at);
            }
            Next::End => {
                attempt.release();
                self.open -= 1;
            }
        }
    }

    /// Goes on with the attempts whose nodes are late, and with those whose pause is over.
    fn on_time(&mut self) {
        let pool = self.inner.pool();
        let Some(later) = &self.later else { return };
        let now = pool.env().now();
        let may_ask = |attempt: &Attempt<D>| attempt.is_open() && attempt.tally.spared().next().is_some();
        if now < later.due {
            return;
        }
        let mut late = BTreeSet::new();
        let mut due = Vec::new();
        for (ticket, attempt) in (0..).zip(&mut self.attempts) {
            if !may_ask(attempt) || now < attempt.plan.next_at {
                continue;
            }
            if !attempt.plan.asked_one() {
                match attempt.step {
                    Step::Raising { token, .. } => late.extend(attempt.tally.below(token)),
                    _ => late.extend(attempt.tally.awaited()),
                }
            }
            if matches!(attempt.step, Step::Raising { .. }) {
                // The spared nodes may grant with a larger counter. So the token is determined again with their
                // votes.
                attempt.settle_again();
            }
            due.push((ticket, attempt.plan.on_time()));
        }
        // If fewer than a majority of the nodes are late, they are marked as late. If more are late, this worker
        // itself may have been stopped, and the nodes are not marked.
        if late.len() < pool.majority() {
            late.into_iter().for_each(|node| pool.mark_late(node));
        }
        for (ticket, next) in due {
            self.go_on(ticket, next);
        }
        let next =
            self.attempts.iter().filter(|attempt| may_ask(attempt)).map(|attempt| attempt.plan.next_at);
        let next = next.min().unwrap_or(NEVER);
        if let Some(later) = &mut self.later {
            later.due = next;
        }
    }

    fn on_vote(&mut self, vote: &Vote) {
        let pool = self.inner.pool();
        let Some(attempt) = self.attempts.get_mut(vote.ticket as usize) else { return };
        if attempt.is_asked_again(vote) {
            let node = vec![vote.node];
            return match self.later {
                Some(_) => self.go_on(vote.ticket, Next::Ask(node)),
                None => self.ask(vote.ticket, &node),
            };
        }
        match attempt.step {
            Step::Acquiring => attempt.tally.count(vote),
            // The first nodes of a partial round may fail to raise their counters. So the vote of a node that
            // was spared at first is counted too: it may be needed in place of theirs.
            Step::Raising { .. } if self.later.is_some() => return attempt.tally.count(vote),
            // The attempt is already decided, so this vote is not counted. If the attempt was won, its first
            // extension also finds this node's grant. If it was lost, a release has already been sent.
            _ => return,
        }
        if attempt.tally.verdict() == Verdict::Won {
            // A node may have lost its memory since its grant. Such a grant must not count for the majority.
            attempt.tally.forget_unless(|node, epoch| pool.epoch(node) == epoch);
        }
        match attempt.tally.verdict() {
            Verdict::Open => {
                let next = attempt.plan.after_vote(&attempt.tally);
                self.go_on(vote.ticket, next);
            }
            Verdict::Lost => {
                attempt.release();
                self.open -= 1;
            }
            Verdict::Won => self.settle_token(vote.ticket),
        }
    }

    /// Determines the fencing token after a majority has granted. The token is the largest counter of the
    /// grants. The attempt is won once a majority stores this value, so nodes with a smaller counter are asked
    /// to raise theirs.
    fn settle_token(&mut self, ticket: u64) {
        let pool = self.inner.pool();
        let Some(attempt) = self.attempts.get_mut(ticket as usize) else { return };
        if self.params.mode == Mode::Shared {
            // Readers have no fencing counter.
            attempt.step = Step::Won(FencingToken::default());
            self.open -= 1;
            return;
        }
        let token = candidate(self.inner, &attempt.tally);
        if attempt.tally.agrees_on(token) || pool.config().sabotaged(Sabotage::NoRaise) {
            attempt.step = Step::Won(token);
            self.open -= 1;
            return;
        }
        let behind = attempt.tally.below(token);
        attempt.step = Step::Raising { token, waiting: behind.len() };
        if let Some(later) = &mut self.later {
            attempt.plan.next_at = pool.env().now() + later.patience;
            later.due = later.due.min(attempt.plan.next_at);
        }
        let ticket = ticket | u64::from(attempt.raises) << RAISES_AT;
        for node in behind {
            let request = Request::Raise {
                resource: attempt.resource.clone(),
                owner: attempt.owner.clone(),
                to: token,
                keep: self.params.keep,
            };
            pool.ask(node, request, ReplyTo { sender: self.raises.clone(), ticket });
        }
    }

    fn on_raised(&mut self, vote: &Vote) {
        let (ticket, raises) = (vote.ticket & ((1 << RAISES_AT) - 1), vote.ticket >> RAISES_AT);
        let Some(attempt) = self.attempts.get_mut(ticket as usize) else { return };
        let Step::Raising { token, waiting } = &mut attempt.step else { return };
        if raises != u64::from(attempt.raises) {
            return;
        }
        let token = *token;
        *waiting -= 1;
        let all_in = *waiting == 0;
        let raised = matches!(vote.answer, Answer::Reply(Reply::Raised));
        if raised {
            attempt.tally.raised(vote.node, token);
        }
        if attempt.tally.agrees_on(token) {
            attempt.step = Step::Won(token);
            self.open -= 1;
        } else if !raised && self.later.is_some() {
            attempt.tally.not_raised(vote.node, NodeOutcome::of(&vote.answer));
            self.settle_without(ticket);
        } else if all_in {
            attempt.release();
            self.open -= 1;
        }
    }

    /// Continues a round in which a node failed to raise its counter. The token is determined again from the
    /// other grants, or the spared nodes are asked.
    fn settle_without(&mut self, ticket: u64) {
        let Some(attempt) = self.attempts.get_mut(ticket as usize) else { return };
        attempt.settle_again();
        match attempt.tally.verdict() {
            Verdict::Open => self.go_on(ticket, Next::AskRest),
            Verdict::Won => self.settle_token(ticket),
            Verdict::Lost => {
                attempt.release();
                self.open -= 1;
            }
        }
    }

    /// Hands the won leases over to the renewer. The function has no await point, so no lease is forgotten.
    /// If the future of the round is dropped before this call, the attempts release their leases. After this
    /// call, the caller owns handles that release their leases when they are dropped.
    fn hand_over(self) -> Vec<AttemptResult<D>> {
        let (inner, params, only) = (self.inner, self.params, self.attempts.len() == 1);
        let mut late = only.then_some(self.votes);
        let shared = inner.share(params);
        let adopt = |mut attempt: Attempt<D>| {
            let token = match attempt.step {
                Step::Won(token) => token,
                Step::Lost => return AttemptResult::Lost(attempt.tally.take()),
                _ => return AttemptResult::Closed,
            };
            let pool = inner.pool();
            let now = pool.env().now();
            attempt.tally.forget_unless(|node, epoch| pool.epoch(node) == epoch);
            let valid_until =
                attempt.tally.sent_by_quorum().map(|sent| sent + pool.config().validity(params.ttl));
            let Some(valid_until) = valid_until.filter(|&until| now.until(until) > params.min_validity)
            else {
                attempt.release();
                return AttemptResult::Lost(attempt.tally.take());
            };
            let deadline = Arc::new(LeaseDeadline::new(valid_until));
            let id = inner.next_lease();
            let adoption = Adoption {
                id,
                resource: attempt.resource.clone(),
                owner: attempt.owner.clone(),
                token,
                params: Arc::clone(&shared),
                grants: attempt.tally.granted().collect(),
                spared: attempt.tally.spared().collect(),
                late: late.take().filter(|_| attempt.tally.awaited().next().is_some()),
                deadline: Arc::clone(&deadline),
            };
            if !inner.command(RenewerCommand::Adopt(Box::new(adoption))) {
                return AttemptResult::Closed;
            }
            attempt.step = Step::Adopted;
            let (resource, owner) = (attempt.resource.clone(), attempt.owner.clone());
            let lease =
                Lease::new(Arc::clone(inner), id, resource, owner, token, Arc::clone(&shared), deadline);
            AttemptResult::Held(lease, attempt.tally.take())
        };
        self.attempts.into_iter().map(adopt).collect()
    }
}

/// Returns the candidate for the fencing token: the largest counter among the grants. Counters that were
/// restored from a snapshot count differently: see [`Tally::candidate`].
fn candidate<D: RoundData>(inner: &QuorumInner, tally: &Tally<D>) -> FencingToken {
    if inner.config().sabotaged(Sabotage::OldCountersTrusted) {
        return tally.granted().map(|(_, grant)| grant.counter).max().unwrap_or_default();
    }
    tally.candidate(inner.config().quarantine())
}

/// Returns whether an attempt was lost because of another holder, and not because nodes did not answer. An
/// attempt that a majority granted, but that was lost later, also counts, because another attempt can help.
pub(crate) fn is_contended<D: RoundData>(tally: &Tally<D>) -> bool {
    tally.is_contended()
        || tally.outcomes().filter(|outcome| matches!(outcome, NodeOutcome::Granted)).count()
            >= tally.majority()
}
