//! The slot of one generation of a scheduler's run. A generation is one execution of an open run. The slot is
//! a claim on which at most one attempt is ever counted.
//!
//! A worker takes the slot to start the run. The leader takes the slot to end the run before it starts. The
//! comments below refer to the rules R4 to R11. `docs/design/scheduler.md` explains them, with a
//! counterexample for each.
//!
//! # What is not guaranteed
//!
//! A count is never withdrawn, even if it did not reach a majority (R6). So a worker that fails while the
//! nodes count its attempt may leave a slot that no worker can take any more. The leader then closes the
//! generation as lost.

use super::{
    ClaimError, Done,
    complete::{Ending, complete},
    votes::ClaimData,
};
use crate::{
    claim::memory::Memory,
    config::{SettingError, majority},
    env::WallTime,
    lease::{
        AttemptResult, Contact, InspectTarget, Inspection, Lease, LeaseParams, attempt_each_with,
        inspect_each, is_contended,
    },
    node::{DoneRecord, NodeTime, Owner, Refusal, Reply, Request, Resource},
    quorum::Quorum,
    sabotage::Sabotage,
    vote::{Answer, ReplyTo, VoteReceiver, vote_channel},
};
use std::{sync::Arc, time::Duration};

/// The pause before a node that did not answer is asked again to count the attempt.
const COUNT_AGAIN: Duration = Duration::from_millis(30);

/// Takes and inspects the slots of one group's runs.
#[derive(Clone, Debug)]
pub(crate) struct Slots {
    quorum: Quorum,
    group: Arc<str>,
    ttl: Duration,
    grace: Duration,
}

/// One generation of a run, as its open record describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SlotId {
    /// The key of the run's record.
    pub(crate) run: Arc<str>,
    pub(crate) generation: u32,
    /// A node's answer counts only if the node's memory began before this time.
    pub(crate) at: WallTime,
    /// The time after which nodes refuse to let a worker take the slot.
    pub(crate) horizon: WallTime,
}

/// The outcome of an attempt to claim a slot.
#[derive(Debug)]
pub(crate) enum Claimed {
    /// This worker has the claim, and no granting node has counted an attempt before.
    Free(SlotClaim),
    /// This worker has the claim, but a granting node has counted an attempt before. So another worker may have
    /// started the run.
    Counted(SlotClaim),
    /// A node stores the done record of the slot, so the slot has ended.
    Ended(DoneRecord),
    /// Another worker holds the claim, or this worker had the claim but could not have taken the slot with it.
    /// The value is the time after which the claim may be free, if it is known.
    Held(Option<Duration>),
    /// Too few nodes answered, or the horizon has passed.
    Unavailable,
}

/// The claim of a slot. Dropping it releases the claim. A count of the slot stays on the nodes.
#[derive(Debug)]
pub(crate) struct SlotClaim {
    lease: Arc<Lease>,
    slot: SlotId,
    quorum: Quorum,
    /// The time for which the nodes keep the count and the done record of the slot.
    keep: Duration,
}

/// The state of a slot, as the nodes report it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Shown {
    /// The done record of the slot, if the slot has ended. One node that stores the record is enough to prove
    /// the end (R11). `None` while a majority may name a holder: if the majority has forgotten the end, and
    /// the leader has opened the same generation again, the run is active again.
    pub(crate) ended: Option<DoneRecord>,
    /// True if at least one node has counted an attempt.
    pub(crate) counted: bool,
    /// True if a majority of the nodes names no holder. Then no worker can hold the claim on a majority.
    pub(crate) free: bool,
    /// The holder of the claim, if a majority names the same one.
    pub(crate) holder: Option<Owner>,
}

impl Shown {
    /// Returns the state of a slot. `look` has the answers of a majority of the slot's `nodes` nodes.
    fn new(look: Inspection, nodes: usize) -> Self {
        let may_be_held = look.whose(nodes) != InspectTarget::Nobody;
        Self {
            free: look.answered - look.named.iter().map(|(_, times)| times).sum::<usize>() >= majority(nodes),
            // A node that stores the end shows no count any more.
            counted: look.done.is_some() || look.begun.is_some_and(|begun| begun.attempts > 0),
            ended: look.done.filter(|_| !may_be_held),
            holder: look.holder,
        }
    }
}

/// Counts the answers when a worker or the leader asks the nodes to count its attempt on a slot. This type
/// performs no I/O.
#[derive(Clone, Copy, Debug)]
pub struct SlotTally {
    nodes: usize,
    at: u64,
    counted: usize,
}

impl SlotTally {
    /// Returns an empty tally for a slot on `nodes` nodes. A node counts only if its memory covers `at`, the
    /// field `SlotId::at` of the slot, in microseconds since the epoch.
    pub fn new(nodes: usize, at: u64) -> Self {
        Self { nodes, at, counted: 0 }
    }

    /// Counts one node's answer. `memory` is the memory of the node when it answered. Call this at most once
    /// for each node.
    pub fn count(&mut self, memory: Memory, answer: &Answer) {
        if matches!(answer, Answer::Reply(Reply::Counted)) && memory.covers(self.at) {
            self.counted += 1;
        }
    }

    /// Returns whether the sender of the count now owns the slot.
    pub fn is_taken(self) -> bool {
        self.counted >= majority(self.nodes)
    }
}

/// Counts the answers when a leader closes the slot of a lost worker. This type performs no I/O.
#[derive(Clone, Copy, Debug)]
pub struct CloseTally {
    nodes: usize,
    counted: usize,
}

impl CloseTally {
    /// Returns an empty tally for `nodes` nodes.
    pub fn new(nodes: usize) -> Self {
        Self { nodes, counted: 0 }
    }

    /// Counts one node's answer. Call this at most once for each node.
    pub fn count(&mut self, answer: &Answer) {
        // A node checks the owner before it checks the count. So the reply *superseded* shows two things: the
        // sender holds the claim on that node, and the node already has a count.
        let there = matches!(answer, Answer::Reply(Reply::Counted | Reply::Refused(Refusal::Superseded)));
        self.counted += usize::from(there);
    }

    /// Returns whether the slot is closed, so that no worker can own it any more.
    pub fn is_closed(self) -> bool {
        self.counted >= majority(self.nodes)
    }
}

impl Slots {
    /// Creates the access to the slots of `group`. A claim on a slot lasts for `ttl` without an extension.
    pub(crate) fn new(quorum: &Quorum, group: &Arc<str>, ttl: Duration, grace: Duration) -> Self {
        Self { quorum: quorum.clone(), group: Arc::clone(group), ttl, grace }
    }

    /// Claims a slot. The caller must then [take](SlotClaim::take) the slot, [fill](SlotClaim::fill) it, or
    /// drop the claim.
    ///
    /// # Cancel safety
    /// Dropping the future releases what was granted.
    pub(crate) async fn claim(&self, slot: &SlotId) -> Claimed {
        let keep = self.keep(slot);
        let Ok(params) = self.params(slot, keep) else { return Claimed::Unavailable };
        let resource = slot.resource(&self.group);
        let data = ClaimData::new(self.quorum.config());
        let mut attempted =
            attempt_each_with(self.quorum.inner(), &[resource], params, &data, Contact::All).await;
        match attempted.pop() {
            Some(AttemptResult::Held(lease, tally)) => {
                let (slot, quorum) = (slot.clone(), self.quorum.clone());
                let claim = SlotClaim { lease: Arc::new(lease), slot, quorum, keep };
                match tally.begun().any(|begun| begun.attempts > 0) {
                    true => Claimed::Counted(claim),
                    // If the count cannot reach a majority, it must not be sent at all. Otherwise no worker
                    // could take the slot afterwards.
                    false if claim.can_take() => Claimed::Free(claim),
                    false => Claimed::Held(None),
                }
            }
            Some(AttemptResult::Lost(tally)) => match tally.done() {
                Some(done) => Claimed::Ended(done.clone()),
                None if is_contended(&tally) => Claimed::Held(tally.retry_after()),
                None => Claimed::Unavailable,
            },
            Some(AttemptResult::Closed) | None => Claimed::Unavailable,
        }
    }

    /// Inspects many slots, in one batch per node. A result is `None` if too few nodes answered.
    pub(crate) async fn inspect(&self, slots: &[SlotId]) -> Vec<Option<Shown>> {
        Self::look(&self.quorum, &self.group, slots).await
    }

    /// Inspects slots like [`Slots::inspect`], for a caller that takes no slots and so has no `Slots`.
    pub(crate) async fn look(quorum: &Quorum, group: &str, slots: &[SlotId]) -> Vec<Option<Shown>> {
        let resources: Vec<Resource> = slots.iter().map(|slot| slot.resource(group)).collect();
        let nodes = quorum.pool().len();
        let looks = inspect_each(quorum.inner(), &resources).await;
        looks.into_iter().map(|look| look.map(|look| Shown::new(look, nodes))).collect()
    }

    /// Returns whether the slot's horizon has certainly passed on every node. This is certain once the
    /// quorum's clock has passed the horizon by twice `max_clock_offset` plus twice `node_timeout`.
    pub(crate) fn is_past_horizon(&self, slot: &SlotId) -> bool {
        let config = self.quorum.config();
        slot.horizon + config.max_clock_offset * 2 + config.node_timeout * 2 <= self.quorum.wall()
    }

    /// Returns the time from which a majority of the nodes remembers slots. If the memories of further nodes began up to
    /// `max_clock_offset` after that time, the result is the latest of their beginnings: if only a bare majority counted for a
    /// slot, a worker could take it only while all of these nodes answer.
    pub(crate) fn remembered_from(quorum: &Quorum) -> WallTime {
        let (pool, offset) = (quorum.pool(), quorum.config().max_clock_offset);
        let mut from: Vec<WallTime> = (0..pool.len()).map(|node| pool.since(node) + offset).collect();
        from.sort_unstable();
        let majority = from.get(pool.majority() - 1).copied().unwrap_or_default();
        from.into_iter().filter(|from| *from <= majority + offset).max().unwrap_or(majority)
    }

    /// Returns whether the memories of a majority of the nodes may cover the time `at`. If not, no worker can
    /// take a slot of this time any more: its count must reach a majority of nodes whose memories cover `at`
    /// (R5).
    pub(crate) fn is_remembered(&self, at: WallTime) -> bool {
        let pool = self.quorum.pool();
        (0..pool.len()).filter(|node| remembers(&self.quorum, *node, at)).count() >= pool.majority()
    }

    /// Returns how long the nodes must keep the slot's count and done record: until the horizon has passed on
    /// each node's own clock. A longer time does no harm.
    fn keep(&self, slot: &SlotId) -> Duration {
        let config = self.quorum.config();
        let left = self.quorum.wall().until(slot.horizon) + config.max_clock_offset * 2 + self.ttl * 2;
        left.max(config.reseed_after())
    }

    fn params(&self, slot: &SlotId, keep: Duration) -> Result<LeaseParams, SettingError> {
        let not_after = Some(NodeTime::from_micros(slot.horizon.as_micros()));
        let params = LeaseParams::checked(self.quorum.config(), self.ttl, Some(self.grace), None, true)?;
        Ok(LeaseParams { keep, not_after, ..params })
    }
}

impl SlotId {
    fn resource(&self, group: &str) -> Resource {
        Resource::slot(group, &format!("{}/{}", self.run, self.generation))
    }
}

impl SlotClaim {
    /// The lease under which the run executes.
    pub(crate) fn lease(&self) -> &Arc<Lease> {
        &self.lease
    }

    /// Returns whether a count under this claim can reach a majority. A node counts only if it may have
    /// granted the claim, and if its memory covers the slot's `at`.
    fn can_take(&self) -> bool {
        let old = |(node, _): &(usize, bool)| remembers(&self.quorum, *node, self.slot.at);
        self.lease.granted_on().filter(old).count() >= self.quorum.pool().majority()
    }

    fn granted_by(&self, node: usize) -> bool {
        self.lease.granted_on().any(|granted| granted == (node, true))
    }

    /// Asks the nodes to count the one attempt of the slot, and returns whether this claim owns the slot from
    /// now on (R4, R5). The count is never withdrawn. Nodes that fail to answer are asked again, for as long
    /// as the claim lasts without an extension.
    pub(crate) async fn take(&self) -> bool {
        if self.quorum.config().sabotaged(Sabotage::SlotUncounted) {
            return true;
        }
        let pool = self.quorum.pool();
        let mut taken: Vec<Option<(u64, Memory)>> = vec![None; pool.len()];
        let mut open: Vec<usize> = (0..pool.len()).collect();
        for tries in 0_u32.. {
            if tries > 0 {
                pool.env().sleep(COUNT_AGAIN).await;
            }
            let mut failed = Vec::new();
            let mut waits = open.len();
            let mut votes = self.send_count(&open);
            while waits > 0
                && let Some(vote) = votes.recv().await
            {
                waits -= 1;
                match vote.answer {
                    Answer::Reply(Reply::Counted) => {
                        let max_clock_offset = pool.config().max_clock_offset;
                        let memory = Memory { since: vote.memory.since, max_clock_offset };
                        taken[vote.node] = Some((vote.memory.epoch, memory));
                    }
                    // The node has counted an earlier request of this claim, but the answer to that request was
                    // lost. This is certain: the node granted the claim without a count, and no other attempt
                    // has held the claim there since then.
                    Answer::Reply(Reply::Refused(Refusal::Superseded))
                        if tries > 0 && self.granted_by(vote.node) && self.lease.is_of_first_grant() =>
                    {
                        let max_clock_offset = pool.config().max_clock_offset;
                        let memory = Memory { since: vote.memory.since, max_clock_offset };
                        taken[vote.node] = Some((vote.memory.epoch, memory));
                    }
                    // The node did not count the attempt, or its answer is missing. So it is asked again.
                    Answer::Failed(_) | Answer::Reply(Reply::Refused(Refusal::Stale)) => {
                        failed.push(vote.node);
                    }
                    _ => {}
                }
                if self.owns(&taken) {
                    return true;
                }
            }
            open = failed;
            if open.is_empty() || !self.lease.is_of_first_grant() || self.slot.horizon <= self.quorum.wall() {
                break;
            }
        }
        false
    }

    /// Makes a majority of the nodes store a count, so that no worker can own the slot any more (R8). A node
    /// that already stores the count of another attempt counts too. Returns whether a majority was reached.
    pub(crate) async fn fill(&self) -> bool {
        let pool = self.quorum.pool();
        let all: Vec<usize> = (0..pool.len()).collect();
        let mut votes = self.send_count(&all);
        let mut tally = CloseTally::new(pool.len());
        while !tally.is_closed()
            && let Some(vote) = votes.recv().await
        {
            tally.count(&vote.answer);
        }
        tally.is_closed()
    }

    /// Records the end of the slot on every node, and ends the claim. Must be called only by the slot's owner
    /// (R11).
    ///
    /// # Errors
    /// [`ClaimError`]. Fewer nodes than a majority may have stored the end.
    pub(crate) async fn complete(&self, result: &str) -> Result<(Done, usize), ClaimError> {
        let record = DoneRecord { result: result.into(), ..DoneRecord::default() };
        let ending = Ending { lease: &self.lease, record, retention: self.keep, refused: false };
        complete(vec![ending]).await.pop().unwrap_or(Err(ClaimError::Superseded))
    }

    /// Ends the claim without a release, so that other workers can claim the slot only after its TTL. The
    /// scheduler uses this if work may still run after the handler has returned.
    pub(crate) fn let_run_out(&self) {
        self.lease.forget();
    }

    fn send_count(&self, nodes: &[usize]) -> VoteReceiver {
        let (sender, votes) = vote_channel();
        let not_after = NodeTime::from_micros(self.slot.horizon.as_micros());
        for &node in nodes {
            let request = Request::Count {
                resource: self.lease.resource().clone(),
                owner: self.lease.owner().clone(),
                attempts: 1,
                payload: None,
                withdraw: false,
                keep: self.keep,
            };
            self.quorum.pool().ask_until(
                node,
                request,
                not_after,
                ReplyTo { sender: sender.clone(), ticket: 0 },
            );
        }
        votes
    }

    fn owns(&self, taken: &[Option<(u64, Memory)>]) -> bool {
        let pool = self.quorum.pool();
        let mut tally = SlotTally::new(pool.len(), self.slot.at.as_micros());
        for (node, counted) in taken.iter().enumerate() {
            // A node that may have lost its count since it confirmed the count is left out.
            if let Some((epoch, memory)) = counted
                && *epoch == pool.epoch(node)
            {
                tally.count(*memory, &Answer::Reply(Reply::Counted));
            }
        }
        tally.is_taken()
    }
}

/// Returns whether the node's memory covers the time `at`, as far as this worker knows when that memory
/// began.
fn remembers(quorum: &Quorum, node: usize, at: WallTime) -> bool {
    let max_clock_offset = quorum.config().max_clock_offset;
    Memory { since: quorum.pool().since(node), max_clock_offset }.covers(at.as_micros())
}

impl Drop for SlotClaim {
    fn drop(&mut self) {
        // `complete` and `let_run_out` end the lease and remove it from the renewer. Then this call has no
        // effect.
        self.lease.post_release(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: u64 = 100;

    fn memory(since: u64) -> Memory {
        Memory { since: NodeTime::from_micros(since), max_clock_offset: Duration::from_micros(10) }
    }

    fn superseded() -> Answer {
        Answer::Reply(Reply::Refused(Refusal::Superseded))
    }

    /// Returns the state of a slot on five nodes. Of these nodes, `answered` have answered, `holding` of them
    /// name a holder, and one stores the end of the slot.
    fn shown(holding: usize, answered: usize) -> Shown {
        let holder = Owner::sign("w", 1, 2);
        Shown::new(
            Inspection {
                holder: (holding >= 3).then(|| holder.clone()),
                remaining: None,
                contended: false,
                token: None,
                done: Some(DoneRecord::default()),
                begun: None,
                named: (holding > 0).then_some((holder, holding)).into_iter().collect(),
                answered,
            },
            5,
        )
    }

    /// Regression: nodes forgot the end of a generation, and the leader opened the same generation again
    /// (simulation, plan `default`, seed 1400).
    #[test]
    fn an_end_that_one_node_remembers_ends_no_slot_that_a_worker_may_hold() {
        for (holding, answered) in [(3, 5), (3, 4), (2, 3), (1, 3)] {
            let active = shown(holding, answered);
            assert!(
                active.ended.is_none() && active.counted,
                "{holding} of {answered} name a holder: {active:?}"
            );
        }
        for (holding, answered) in [(0, 5), (0, 3), (1, 4), (2, 5)] {
            let over = shown(holding, answered);
            assert!(over.ended.is_some() && over.counted, "{holding} of {answered} name a holder: {over:?}");
        }
    }

    #[test]
    fn a_majority_of_nodes_older_than_at_makes_the_owner() {
        let taken = |answers: &[(u64, Answer)]| {
            let mut tally = SlotTally::new(3, AT);
            answers.iter().for_each(|(since, answer)| tally.count(memory(*since), answer));
            tally.is_taken()
        };
        let counted = || Answer::Reply(Reply::Counted);
        assert!(taken(&[(0, counted()), (90, counted())]));
        assert!(!taken(&[(0, counted()), (91, counted())]), "R5: a young node");
        assert!(!taken(&[(0, counted())]), "R4: one node");
        assert!(!taken(&[(0, counted()), (0, superseded())]), "R4: another's count");
    }

    #[test]
    fn a_count_of_any_attempt_at_a_majority_closes_a_slot() {
        let closed = |answers: &[Answer]| {
            let mut tally = CloseTally::new(3);
            answers.iter().for_each(|answer| tally.count(answer));
            tally.is_closed()
        };
        assert!(closed(&[superseded(), Answer::Reply(Reply::Counted)]));
        assert!(!closed(&[superseded(), Answer::Reply(Reply::Refused(Refusal::NotOwner))]));
    }
}
