use super::{ClaimError, Done};
use crate::{
    config::majority,
    driver::{NodePool, RequestList},
    env::{BootTime, WallTime},
    lease::{InspectTarget, Inspection, Lease, LeaseLost, QuorumInner, inspect},
    node::{DoneRecord, FencingToken, Owner, Refusal, Reply, Request, engine::RESULT_MAX},
    vote::{Answer, NodeOutcome, ReplyTo, vote_channel},
};
use futures_util::future::join_all;
use std::{sync::Arc, time::Duration};

/// The pause before nodes that failed are asked again.
const RETRY_AFTER: Duration = Duration::from_millis(50);

/// A claim to complete, with the done record to write.
pub(super) struct Ending<'a> {
    pub(super) lease: &'a Lease,
    pub(super) record: DoneRecord,
    pub(super) retention: Duration,
    /// True if the caller knows that the claim has ended, because it was refused the fencing token.
    pub(super) refused: bool,
}

/// Ends the leases, and records that their messages are done. All leases must belong to one quorum. On each
/// node, the done record replaces the lease's key in one step, without a release before, so that no worker
/// can claim the message in between. Returns a result for each lease, in the same order: the record, and the
/// number of nodes that have stored it.
pub(super) async fn complete(endings: Vec<Ending<'_>>) -> Vec<Result<(Done, usize), ClaimError>> {
    let Some(first) = endings.first() else { return Vec::new() };
    let pool = Arc::clone(first.lease.inner().pool());
    let inner = Arc::clone(first.lease.inner());
    let now = pool.env().wall();
    let mut all: Vec<Completing<'_>> =
        endings.into_iter().map(|ending| Completing::new(ending, now, &pool)).collect();
    warn_of_late(&all);
    let deadline = pool.env().now() + all.iter().map(|one| one.lease.ttl()).max().unwrap_or_default();
    loop {
        look_first(&inner, &mut all).await;
        ask(&pool, &mut all).await;
        let over = pool.env().now() >= deadline || pool.env().stopped().is_cancelled();
        if over || all.iter().all(Completing::is_settled) {
            break;
        }
        pool.env().sleep(RETRY_AFTER).await;
    }
    all.into_iter().map(|one| one.end(&pool)).collect()
}

/// Logs a warning if claims had ended before their completion began. Another worker may have handled their messages
/// meanwhile, or may begin to.
fn warn_of_late(all: &[Completing<'_>]) {
    // The end of a job's run is of the scheduler, which has a log of its own.
    let is_late = |one: &&Completing<'_>| {
        !one.is_settled() && one.ours_until.is_none() && one.lease.resource().message_id().is_some()
    };
    let mut late = all.iter().filter(is_late);
    let Some(first) = late.next() else { return };
    tracing::warn!(
        message = %first.lease.resource(),
        others = late.count(),
        "a message is completed after its claim has ended: it may have been handled twice; check the fencing token \
         before the effect, and give the claims a longer ttl"
    );
}

/// Asks the nodes for the owner of each message whose claim may have expired. Another worker may hold such a
/// message now. Then this worker must not write its record, not even to the nodes that did not grant the other
/// worker's claim.
async fn look_first(inner: &QuorumInner, all: &mut [Completing<'_>]) {
    let now = inner.pool().env().now();
    let mut late: Vec<_> = all.iter_mut().filter(|one| !one.is_settled() && one.is_late(now)).collect();
    let looks = late.iter().map(|one| inspect(inner, one.lease.resource()));
    for (look, one) in join_all(looks).await.into_iter().zip(&mut late) {
        let found = match look {
            Ok(look) => found(&look, one.lease.owner(), one.record.token, inner.pool().len()),
            Err(_) => Found::Unknown,
        };
        one.seen = matches!(found, Found::Free);
        if let Found::Over(error) = found {
            one.verdict = Some(Err(error));
        }
    }
}

/// The state of a message for a worker whose claim on it may have expired.
#[derive(Debug)]
enum Found {
    /// No other worker holds the message, so this worker may record it as done.
    Free,
    Over(ClaimError),
    /// Too few nodes have answered to exclude another owner.
    Unknown,
}

fn found(look: &Inspection, owner: &Owner, token: FencingToken, nodes: usize) -> Found {
    if let Some(done) = look.done.as_ref().filter(|done| done.token > token) {
        return Found::Over(ClaimError::ended(done));
    }
    match look.whose(nodes) {
        InspectTarget::Of(holder) if holder != owner => {
            Found::Over(ClaimError::TakenOver { holder: holder.clone() })
        }
        // Only another owner with a majority would forbid the record. If no other worker can have a majority,
        // this worker may write the record, even if its own claim has no majority either.
        _ if perhaps(look, owner, nodes) => Found::Unknown,
        _ if look.token.is_some_and(|counted| counted > token) => Found::Over(ClaimError::Superseded),
        _ => Found::Free,
    }
}

/// Returns whether another worker may hold the message on a majority. Each node that has not answered is
/// assumed to store that worker's claim.
fn perhaps(look: &Inspection, owner: &Owner, nodes: usize) -> bool {
    let away = nodes - look.answered;
    look.named.iter().any(|(other, times)| other != owner && times + away >= majority(nodes))
}

/// Sends the done record of each unsettled message to every node that has not stored it. Waits for all
/// answers, so that the record gets to as many nodes as possible.
async fn ask(pool: &NodePool, all: &mut [Completing<'_>]) {
    let now = pool.env().now();
    // A claim may expire while other messages are checked. Its record is not sent now: the next round checks
    // its message first.
    let known = |one: &Completing<'_>| one.seen || !one.is_late(now);
    let open = |one: &&mut Completing<'_>| !one.is_settled() && known(one);
    let mut asked: Vec<&mut Completing<'_>> = all.iter_mut().filter(open).collect();
    for one in &mut asked {
        one.votes.superseded = 0;
        one.votes.forget(|node| pool.epoch(node));
    }
    let (sender, mut votes) = vote_channel();
    let requests: Vec<RequestList> = asked.iter().map(|one| one.request().into()).collect();
    for node in 0..pool.len() {
        let unrecorded =
            |(_, (one, _)): &(u64, (&&mut Completing<'_>, &RequestList))| !one.votes.stands_at(node);
        for (ticket, (_, request)) in (0..).zip(asked.iter().zip(&requests)).filter(unrecorded) {
            pool.ask(node, request.clone(), ReplyTo { sender: sender.clone(), ticket });
        }
    }
    drop(sender);
    while let Some(vote) = votes.recv().await {
        asked[vote.ticket as usize].votes.count(vote.node, vote.memory.epoch, vote.answer);
    }
    asked.into_iter().for_each(|one| one.verdict = one.votes.verdict(|node| pool.epoch(node)));
}

/// The completion of one claim while it is in progress.
struct Completing<'a> {
    lease: &'a Lease,
    record: DoneRecord,
    retention: Duration,
    /// The end of the claim's validity. Before that time, no other worker can hold the message. `None` if the
    /// validity had ended before the completion began.
    ours_until: Option<BootTime>,
    /// True if the last check showed that no other worker holds the message, so that the record may be written
    /// although the claim has expired.
    seen: bool,
    votes: Votes,
    verdict: Option<Result<(), ClaimError>>,
}

impl<'a> Completing<'a> {
    fn new(ending: Ending<'a>, now: WallTime, pool: &NodePool) -> Self {
        let Ending { lease, mut record, retention, refused } = ending;
        (record.token, record.at) = (lease.unchecked_token(), now.as_micros());
        let length = record.result.len();
        let too_long = || (length > RESULT_MAX).then_some(ClaimError::TooLong { length, most: RESULT_MAX });
        let verdict = refused.then_some(LeaseLost.into()).or_else(too_long).map(Err);
        let ours_until = lease.valid_until();
        if verdict.is_none() {
            lease.forget();
        }
        Self { lease, record, retention, ours_until, seen: false, votes: Votes::new(pool.len()), verdict }
    }

    fn is_late(&self, now: BootTime) -> bool {
        self.ours_until.is_none_or(|until| until <= now)
    }

    fn is_settled(&self) -> bool {
        self.verdict.is_some()
    }

    fn request(&self) -> Request {
        Request::Complete {
            resource: self.lease.resource().clone(),
            owner: self.lease.owner().clone(),
            record: self.record.clone(),
            retention: self.retention,
        }
    }

    fn end(self, pool: &NodePool) -> Result<(Done, usize), ClaimError> {
        let Self { lease, record, votes, verdict, .. } = self;
        match verdict {
            // The record is too long, so no request was sent. The claim is still valid, and dropping it
            // releases it.
            Some(Err(too_long @ ClaimError::TooLong { .. })) => Err(too_long),
            Some(verdict) => {
                // The message is released on nodes that did not store the record, for instance because their
                // marker changed. Otherwise the claim would block other workers there until its TTL ends. If a
                // *complete* request is still on its way to a node, the release arrives after it and has no
                // effect.
                pool.release(lease.resource(), lease.owner(), |node| !votes.stands_at(node), None);
                verdict.map(|()| (Done::of(&record), votes.completed()))
            }
            None => Err(pool.report(votes.outcomes).of("the done record did not reach a majority").into()),
        }
    }
}

struct Votes {
    outcomes: Vec<NodeOutcome>,
    /// For each node, the node's memory epoch when it stored the done record. `None` if it has not stored the
    /// record.
    recorded: Vec<Option<u64>>,
    /// The number of nodes that have counted a later claim on the message. That claim has ended.
    superseded: usize,
    done: Option<DoneRecord>,
}

impl Votes {
    fn new(nodes: usize) -> Self {
        let outcomes = vec![NodeOutcome::Pending; nodes];
        Self { outcomes, recorded: vec![None; nodes], superseded: 0, done: None }
    }

    fn count(&mut self, node: usize, epoch: u64, answer: Answer) {
        self.outcomes[node] = NodeOutcome::of(&answer);
        match answer {
            Answer::Reply(Reply::Completed) => self.recorded[node] = Some(epoch),
            Answer::Reply(Reply::Done(done)) => self.done = Some(done),
            Answer::Reply(Reply::Refused(Refusal::Superseded)) => self.superseded += 1,
            _ => {}
        }
    }

    /// Removes the confirmations of nodes that may have lost their data since they confirmed. These nodes are
    /// asked again.
    fn forget(&mut self, epoch: impl Fn(usize) -> u64) {
        for (node, recorded) in self.recorded.iter_mut().enumerate() {
            if recorded.is_some_and(|then| then != epoch(node)) {
                *recorded = None;
                self.outcomes[node] = NodeOutcome::Pending;
            }
        }
    }

    fn completed(&self) -> usize {
        self.recorded.iter().flatten().count()
    }

    /// Returns the result, if the answers decide it. Returns `None` if another round may still reach a
    /// majority.
    fn verdict(&mut self, epoch: impl Fn(usize) -> u64) -> Option<Result<(), ClaimError>> {
        self.forget(epoch);
        let majority = majority(self.outcomes.len());
        if self.completed() >= majority {
            return Some(Ok(()));
        }
        if let Some(done) = &self.done {
            return Some(Err(ClaimError::ended(done)));
        }
        if self.outcomes.len() - self.superseded < majority {
            return Some(Err(ClaimError::Superseded));
        }
        if let Some(holder) = self.holders().find(|owner| {
            let held = self.holders().filter(|other| other == owner).count();
            self.outcomes.len() - held < majority
        }) {
            return Some(Err(ClaimError::TakenOver { holder: holder.clone() }));
        }
        None
    }

    fn stands_at(&self, node: usize) -> bool {
        matches!(self.outcomes[node], NodeOutcome::Granted)
    }

    fn holders(&self) -> impl Iterator<Item = &Owner> {
        self.outcomes.iter().filter_map(|outcome| match outcome {
            NodeOutcome::Contended { holder, .. } => Some(holder),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::Cause;

    fn done(token: u64) -> DoneRecord {
        let token = FencingToken::new(token);
        DoneRecord { token, at: 5, result: "r".into(), payload: None, dead_lettered: None }
    }

    fn votes(answers: impl IntoIterator<Item = Answer>) -> Votes {
        let mut votes = Votes::new(5);
        answers.into_iter().enumerate().for_each(|(node, answer)| votes.count(node, 1, answer));
        votes
    }

    fn recorded(nodes: usize) -> impl Iterator<Item = Answer> {
        std::iter::repeat_n(Answer::Reply(Reply::Completed), nodes)
    }

    /// Regression: a node that had lost its data still counted. So a message was reported as done although no
    /// majority had its done record any more, and the message was handled again.
    #[test]
    fn what_a_node_recorded_counts_while_it_remembers_and_it_is_asked_again_after() {
        let forgetful = |node| if node == 2 { 2 } else { 1 };
        let mut three = votes(recorded(3));
        assert!(matches!(three.verdict(|_| 1), Some(Ok(()))));
        assert!(three.verdict(forgetful).is_none(), "two are no majority");
        assert_eq!((three.completed(), three.stands_at(1), three.stands_at(2)), (2, true, false));
        three.count(2, 2, Answer::Reply(Reply::Completed));
        assert!(matches!(three.verdict(forgetful), Some(Ok(()))), "its present memory has it");
        assert!(matches!(votes(recorded(4)).verdict(forgetful), Some(Ok(()))), "and three remember");
    }

    /// Regression: a worker resumed after its claim had expired, and recorded its result on a node that had
    /// not granted the new holder's claim. So the message counted as done, although a majority named the new
    /// holder.
    #[test]
    fn who_is_late_records_nothing_of_what_is_somebody_elses() {
        let (late, other) = (Owner::from_node("late"), Owner::from_node("other"));
        let look = |named: &[(&Owner, usize)], answered, counted, ended: Option<u64>| Inspection {
            holder: None,
            remaining: None,
            contended: false,
            token: Some(FencingToken::new(counted)),
            done: ended.map(done),
            begun: None,
            named: named.iter().map(|(who, times)| ((*who).clone(), *times)).collect(),
            answered,
        };
        let found = |look: &Inspection| match found(look, &late, FencingToken::new(5), 5) {
            Found::Free => "free",
            Found::Unknown => "unknown",
            Found::Over(ClaimError::TakenOver { holder }) if holder == other => "taken over",
            Found::Over(ClaimError::AlreadyDone(record)) if record == Done::of(&done(6)) => "done",
            Found::Over(ClaimError::Superseded) => "superseded",
            Found::Over(error) => panic!("{error}"),
        };
        assert_eq!(found(&look(&[(&other, 3)], 5, 6, None)), "taken over");
        assert_eq!(found(&look(&[(&other, 3)], 4, 5, Some(5))), "taken over", "our own record is none");
        assert_eq!(found(&look(&[], 5, 6, Some(6))), "done");
        assert_eq!(found(&look(&[], 5, 6, None)), "superseded");
        assert_eq!(found(&look(&[(&other, 2)], 3, 5, None)), "unknown");
        assert_eq!(found(&look(&[(&other, 2)], 5, 5, None)), "free", "an attempt on a minority");
        assert_eq!(found(&look(&[(&late, 3)], 5, 5, None)), "free");
        assert_eq!(
            found(&look(&[(&late, 2), (&other, 1)], 4, 5, None)),
            "free",
            "no other worker can have three"
        );
        assert_eq!(found(&look(&[(&late, 2), (&other, 2)], 4, 5, None)), "unknown");
        assert_eq!(found(&look(&[], 3, 5, None)), "free");
    }

    #[test]
    fn a_done_record_a_later_count_and_another_holder_each_say_why_not() {
        let late = || Answer::Failed(Cause::TimedOut);
        assert!(votes(recorded(2).chain([late(), late(), late()])).verdict(|_| 1).is_none());
        let mut other = votes(recorded(2).chain([Answer::Reply(Reply::Done(done(9)))]));
        let said = other.verdict(|_| 1);
        assert!(matches!(said, Some(Err(ClaimError::AlreadyDone(record))) if record == Done::of(&done(9))));
        let superseded = || Answer::Reply(Reply::Refused(Refusal::Superseded));
        let two = recorded(2).chain([superseded(), superseded()]);
        assert!(votes(two).verdict(|_| 1).is_none(), "the third may record it");
        let three = recorded(2).chain([superseded(), superseded(), superseded()]);
        assert!(matches!(votes(three).verdict(|_| 1), Some(Err(ClaimError::Superseded))));
        let held = || Answer::Reply(Reply::Held { owner: Owner::from_node("x"), remaining: None });
        let taken = recorded(2).chain([held(), held(), held()]);
        let said = votes(taken).verdict(|_| 1);
        assert!(matches!(said, Some(Err(ClaimError::TakenOver { holder })) if holder.as_str() == "x"));
    }
}
