//! One attempt on one or many resources: acquire, raise, hand over to the keeper.

use super::{
    handle::Lease,
    hub::Hub,
    keeper::{Adoption, Order},
    mode::Mode,
    tenure::Tenure,
};
use crate::{
    node::{Begun, Cause, FencingToken, Owner, Reply, Request, Resource},
    round::{Answer, BallotBox, Ballots, NodeOutcome, ReplyTo, Sabotage, Tally, Verdict, Vote, ballots},
};
use std::{borrow::Cow, sync::Arc, time::Duration};

/// How a lease is to be held.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Terms {
    pub(crate) ttl: Duration,
    /// How long before the end of validity the work is told to stop.
    pub(crate) grace: Duration,
    /// Less validity than this at the verdict is a loss.
    pub(crate) min_validity: Duration,
    /// How long the fencing counter lives after its last use.
    pub(crate) keep: Duration,
    /// Whether the keeper extends it.
    pub(crate) extended: bool,
    /// Who else may hold it.
    pub(crate) mode: Mode,
}

/// What came of an attempt.
#[derive(Debug)]
pub(crate) enum Attempted {
    /// With what the nodes had counted before, on a claim.
    Held(Lease, Vec<Begun>),
    Lost(Tally),
    /// The quorum has been closed.
    Closed,
}

impl Attempted {
    /// Lost, and to nobody: the votes were split, or are still being released.
    fn is_split(&self) -> bool {
        matches!(self, Self::Lost(tally) if tally.done().is_none() && is_contended(tally) && tally.holder().is_none())
    }
}

/// How often an attempt is made again because the votes were split.
const SPLITS_MAX: u32 = 8;
/// How long to wait before that, at most, the first time; longer each time.
const SPLIT_PAUSE: Duration = Duration::from_millis(10);

/// Attempts `resource` once, from the place in its queue that `ticket` signs.
pub(crate) async fn attempt(
    hub: &Arc<Hub>,
    resource: &Resource,
    terms: Terms,
    ticket: Option<Owner>,
) -> Attempted {
    let opening = Opening::Acquire(ticket);
    let mut all = Round::start(hub, std::slice::from_ref(resource), terms, &opening).run().await;
    all.pop().unwrap_or(Attempted::Closed)
}

/// Attempts to turn a writer's lease, which has ended, into a reader's on the same terms.
pub(crate) async fn downgrade(hub: &Arc<Hub>, lease: &Lease) -> Attempted {
    let terms = Terms { mode: Mode::Shared, ..lease.terms() };
    let opening = Opening::Downgrade(lease.owner().clone(), lease.token());
    let mut all = Round::start(hub, std::slice::from_ref(lease.resource()), terms, &opening).run().await;
    all.pop().unwrap_or(Attempted::Closed)
}

/// Attempts every one of `resources`, in one batch a node; the outcomes are in their order.
///
/// Attempts made at one moment may split the votes between them, so that all are lost and nobody holds. Such
/// an attempt is made again after a moment, until it is won, or a majority names who won.
///
/// # Cancel safety
/// Dropping it releases what was won and what may yet be granted.
pub(crate) async fn attempt_each(hub: &Arc<Hub>, resources: &[Resource], terms: Terms) -> Vec<Attempted> {
    let anyone = Opening::Acquire(None);
    let mut all = Round::start(hub, resources, terms, &anyone).run().await;
    let casts = if hub.setup().sabotaged(Sabotage::SplitsStand) { 0 } else { SPLITS_MAX };
    for times in 1..=casts {
        let split: Vec<usize> = (0..all.len()).filter(|&at| all[at].is_split()).collect();
        if split.is_empty() {
            break;
        }
        hub.env().sleep(hub.env().random_below(SPLIT_PAUSE * times)).await;
        let again: Vec<Resource> = split.iter().map(|&at| resources[at].clone()).collect();
        for (at, outcome) in split.into_iter().zip(Round::start(hub, &again, terms, &anyone).run().await) {
            all[at] = outcome;
        }
    }
    all
}

/// What an attempt asks the nodes for.
enum Opening {
    /// What is free, perhaps from a place in its queue.
    Acquire(Option<Owner>),
    /// A reader's lease in place of this writer's.
    Downgrade(Owner, FencingToken),
}

/// Attempts that travel together.
struct Round<'a> {
    hub: &'a Arc<Hub>,
    terms: Terms,
    attempts: Vec<Attempt>,
    votes: Ballots,
    raises: BallotBox,
    raised: Ballots,
    open: usize,
}

/// One resource's part. Dropped before the keeper has it, it posts the releases behind its own requests.
struct Attempt {
    hub: Arc<Hub>,
    resource: Resource,
    owner: Owner,
    terms: Terms,
    tally: Tally,
    step: Step,
}

enum Step {
    /// Votes on the acquire are coming in.
    Acquiring,
    /// A majority granted; votes on raising it to `token` are coming in, `waiting` of them yet.
    Raising { token: FencingToken, waiting: usize },
    /// Won, with this token.
    Won(FencingToken),
    /// Lost, and released.
    Lost,
    /// The keeper's.
    Adopted,
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if !self.hub.setup().sabotaged(Sabotage::DropsSilently) {
            self.release();
        }
    }
}

impl Attempt {
    fn release(&mut self) {
        if !matches!(self.step, Step::Lost | Step::Adopted) {
            self.step = Step::Lost;
            let release = self.terms.release(self.resource.clone(), self.owner.clone());
            self.hub.fleet().free(&release, |node| self.tally.may_hold(node), None);
        }
    }
}

impl<'a> Round<'a> {
    /// Posts every request before the first await point.
    fn start(hub: &'a Arc<Hub>, resources: &[Resource], terms: Terms, opening: &Opening) -> Self {
        let fleet = hub.fleet();
        let (raises, raised) = ballots();
        let (ballots, votes) = ballots();
        let attempts = resources.iter().map(|resource| Attempt {
            hub: Arc::clone(hub),
            resource: resource.clone(),
            owner: fleet.sign(),
            terms,
            tally: Tally::new(fleet.len()),
            step: Step::Acquiring,
        });
        let attempts: Vec<Attempt> = attempts.collect();
        let propose = FencingToken::new(fleet.env().wall().as_micros());
        for node in 0..fleet.len() {
            for (ticket, attempt) in attempts.iter().enumerate() {
                let (resource, owner) = (attempt.resource.clone(), attempt.owner.clone());
                let request = match opening {
                    Opening::Acquire(ticket) => {
                        let tolerance = fleet.setup().max_clock_offset;
                        terms.acquire(resource, owner, propose, tolerance, ticket.clone())
                    }
                    Opening::Downgrade(from, token) => Request::Downgrade {
                        resource,
                        owner: from.clone(),
                        token: *token,
                        reader: owner,
                        ttl: terms.ttl,
                    },
                };
                fleet.ask(node, request, ReplyTo { ballots: ballots.clone(), ticket: ticket as u64 });
            }
        }
        let open = attempts.len();
        Self { hub, terms, attempts, votes, raises, raised, open }
    }

    async fn run(mut self) -> Vec<Attempted> {
        while self.open > 0 {
            tokio::select! { biased;
                Some(vote) = self.raised.recv() => self.on_raised(&vote),
                // Every post is answered, so every attempt is settled before this channel runs dry.
                Some(vote) = self.votes.recv() => self.on_vote(&vote),
            }
        }
        self.hand_over()
    }

    fn on_vote(&mut self, vote: &Vote) {
        let fleet = self.hub.fleet();
        let Some(attempt) = self.attempts.get_mut(vote.ticket as usize) else { return };
        if !matches!(attempt.step, Step::Acquiring) {
            return; // A late grant: the first extension finds it. Or a late loss, released behind its request.
        }
        attempt.tally.count(&heard(self.hub, vote));
        if attempt.tally.verdict() == Verdict::Won {
            // A node that forgot since its grant must not be part of the majority.
            attempt.tally.forget_unless(|node, epoch| fleet.epoch(node) == epoch);
        }
        match attempt.tally.verdict() {
            Verdict::Open => {}
            Verdict::Lost => {
                attempt.release();
                self.open -= 1;
            }
            Verdict::Won => self.settle_token(vote.ticket),
        }
    }

    /// A majority granted: its largest counter is the token, once a majority has it.
    fn settle_token(&mut self, ticket: u64) {
        let fleet = self.hub.fleet();
        let Some(attempt) = self.attempts.get_mut(ticket as usize) else { return };
        if self.terms.mode == Mode::Shared {
            // Readers are not counted.
            attempt.step = Step::Won(FencingToken::default());
            self.open -= 1;
            return;
        }
        let token = candidate(self.hub, &attempt.tally);
        if attempt.tally.agrees_on(token) || fleet.setup().sabotaged(Sabotage::NoRaise) {
            attempt.step = Step::Won(token);
            self.open -= 1;
            return;
        }
        let behind = attempt.tally.below(token);
        attempt.step = Step::Raising { token, waiting: behind.len() };
        for node in behind {
            let request = Request::Raise {
                resource: attempt.resource.clone(),
                owner: attempt.owner.clone(),
                to: token,
                keep: self.terms.keep,
            };
            fleet.ask(node, request, ReplyTo { ballots: self.raises.clone(), ticket });
        }
    }

    fn on_raised(&mut self, vote: &Vote) {
        let Some(attempt) = self.attempts.get_mut(vote.ticket as usize) else { return };
        let Step::Raising { token, waiting } = &mut attempt.step else { return };
        let token = *token;
        *waiting -= 1;
        let all_in = *waiting == 0;
        if matches!(vote.answer, Answer::Reply(Reply::Raised)) {
            attempt.tally.raised(vote.node, token);
        }
        if attempt.tally.agrees_on(token) {
            attempt.step = Step::Won(token);
            self.open -= 1;
        } else if all_in {
            attempt.release();
            self.open -= 1;
        }
    }

    /// Gives what was won to the keeper. No await point: a caller that goes away before has released, after
    /// owns a lease whose drop releases.
    fn hand_over(self) -> Vec<Attempted> {
        let (hub, terms, only) = (self.hub, self.terms, self.attempts.len() == 1);
        let mut late = only.then_some(self.votes);
        let adopt = |mut attempt: Attempt| {
            let token = match attempt.step {
                Step::Won(token) => token,
                Step::Lost => return Attempted::Lost(attempt.tally.clone()),
                _ => return Attempted::Closed,
            };
            let fleet = hub.fleet();
            let now = fleet.env().now();
            attempt.tally.forget_unless(|node, epoch| fleet.epoch(node) == epoch);
            let valid_until =
                attempt.tally.sent_by_quorum().map(|sent| sent + fleet.setup().validity(terms.ttl));
            let Some(valid_until) = valid_until.filter(|&until| now.until(until) > terms.min_validity) else {
                attempt.release();
                return Attempted::Lost(attempt.tally.clone());
            };
            let tenure = Arc::new(Tenure::new(valid_until));
            let id = hub.next_lease();
            let adoption = Adoption {
                id,
                resource: attempt.resource.clone(),
                owner: attempt.owner.clone(),
                token,
                terms,
                grants: attempt.tally.granted().collect(),
                late: late.take(),
                tenure: Arc::clone(&tenure),
            };
            if !hub.order(Order::Adopt(Box::new(adoption))) {
                return Attempted::Closed;
            }
            attempt.step = Step::Adopted;
            let (resource, owner) = (attempt.resource.clone(), attempt.owner.clone());
            let begun = attempt.tally.begun().cloned().collect();
            let lease = Lease::new(Arc::clone(hub), id, resource, owner, token, terms, tenure);
            Attempted::Held(lease, begun)
        };
        self.attempts.into_iter().map(adopt).collect()
    }
}

/// The candidate for the fencing token.
fn candidate(hub: &Hub, tally: &Tally) -> FencingToken {
    if hub.setup().sabotaged(Sabotage::RelicsTrusted) {
        return tally.granted().map(|(_, grant)| grant.counter).max().unwrap_or_default();
    }
    tally.candidate(hub.setup().quarantine())
}

/// A vote as it counts.
fn heard<'a>(hub: &Hub, vote: &'a Vote) -> Cow<'a, Vote> {
    let done = matches!(vote.answer, Answer::Reply(Reply::Done(_)));
    if done && hub.setup().sabotaged(Sabotage::DoneOverruled) {
        return Cow::Owned(Vote { answer: Answer::Failed(Cause::Closed), ..vote.clone() });
    }
    Cow::Borrowed(vote)
}

/// Whether an attempt was lost to a holder rather than to absent nodes: `Lost` after enough grants counts as
/// contended too, since trying again is what helps.
pub(crate) fn is_contended(tally: &Tally) -> bool {
    tally.is_contended()
        || tally.outcomes().filter(|outcome| matches!(outcome, NodeOutcome::Granted)).count()
            >= tally.majority()
}
