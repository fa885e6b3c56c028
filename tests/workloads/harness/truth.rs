//! The director's record of the faults: which processes it stopped, and which servers lost their data or could
//! not answer. The checks use it to excuse effects of the faults.

use quorate::{env::BootTime, quorum::QuorumConfig};
use quorate_tests::support::Who;
use std::{collections::BTreeSet, time::Duration};

/// The longest TTL of the deployments whose servers lose their data.
pub(crate) const MAX_TTL: Duration = Duration::from_secs(3);

/// The time for which the record keeps events. No check looks back further.
const KEPT: Duration = Duration::from_secs(300);
/// The longest time from the loss of a node's data until a worker connects to the node, which begins its
/// quarantine.
const CONNECTED: Duration = Duration::from_millis(600);
/// The accuracy of the times at which a server could or could not vote.
const ACCURACY: Duration = Duration::from_secs(1);

/// A time in which a process did not run. `until` is `None` while the process still does not run.
#[derive(Clone, Copy, Debug)]
struct Pause {
    who: Who,
    from: BootTime,
    until: Option<BootTime>,
    /// True if the director stopped the process. False if the process itself reported that the system did not
    /// schedule it.
    ordered: bool,
}

impl Pause {
    fn touches(&self, from: BootTime, until: BootTime) -> bool {
        self.from <= until && self.until.is_none_or(|end| end >= from)
    }
}

/// The record of the pauses, losses and outages, with times of the machine's boot clock.
#[derive(Clone, Debug)]
pub(crate) struct Truth {
    pauses: Vec<Pause>,
    /// The losses of data, each with its time and its node.
    losses: Vec<(BootTime, usize)>,
    /// For each node, the times at which it became able or unable to vote.
    votes: Vec<Vec<(BootTime, bool)>>,
    /// The time at which the director last caused or ended a fault.
    disturbed: BootTime,
    /// The time since which a majority of the nodes could vote without interruption.
    quorate: Option<BootTime>,
    /// The time since which at least one worker has run without interruption.
    staffed: Option<BootTime>,
}

impl Truth {
    pub(crate) fn new(nodes: usize) -> Self {
        let votes = vec![Vec::new(); nodes];
        let (pauses, losses, disturbed) = (Vec::new(), Vec::new(), BootTime::default());
        Self { pauses, losses, votes, disturbed, quorate: None, staffed: None }
    }

    /// Returns the smallest number of nodes that is a majority.
    pub(crate) fn majority(&self) -> usize {
        self.votes.len() / 2 + 1
    }

    pub(crate) fn stopped(&mut self, who: Who, at: BootTime) {
        self.pauses.push(Pause { who, from: at, until: None, ordered: true });
    }

    /// Notes that a process was resumed, or has ended.
    pub(crate) fn resumed(&mut self, who: Who, at: BootTime) {
        for pause in self.pauses.iter_mut().filter(|pause| pause.who == who && pause.until.is_none()) {
            pause.until = Some(at);
        }
    }

    /// Notes a time in which a process was not scheduled, as the process has reported it.
    pub(crate) fn stalled(&mut self, who: Who, from: BootTime, until: BootTime) {
        self.pauses.push(Pause { who, from, until: Some(until), ordered: false });
    }

    pub(crate) fn lost_data(&mut self, node: usize, at: BootTime) {
        self.losses.push((at, node));
    }

    pub(crate) fn disturb(&mut self, at: BootTime) {
        self.disturbed = self.disturbed.max(at);
    }

    /// Notes which nodes can vote, and how many workers run.
    pub(crate) fn observe(&mut self, now: BootTime, voting: &[bool], workers: usize) {
        for (log, votes) in self.votes.iter_mut().zip(voting) {
            if log.last().is_none_or(|(_, before)| before != votes) {
                log.push((now, *votes));
            }
        }
        let quorate = voting.iter().filter(|votes| **votes).count() >= self.majority();
        self.quorate = if quorate { self.quorate.or(Some(now)) } else { None };
        self.staffed = if workers > 0 { self.staffed.or(Some(now)) } else { None };
    }

    /// Returns the time since which a majority of the nodes could vote without interruption. Returns `None` if
    /// no majority can vote now.
    pub(crate) fn quorate_since(&self) -> Option<BootTime> {
        self.quorate
    }

    /// Returns the time since which nothing has prevented progress. Returns `None` if something prevents it
    /// now.
    pub(crate) fn calm_since(&self) -> Option<BootTime> {
        Some(self.quorate?.max(self.staffed?).max(self.disturbed))
    }

    /// Looks for a stop of `who` by the director that began at `at` or up to `after` later. Returns the end of
    /// that stop, or `now` if the process is still stopped. Returns `None` if there was no such stop.
    pub(crate) fn stop_after(
        &self,
        who: Who,
        at: BootTime,
        after: Duration,
        now: BootTime,
    ) -> Option<BootTime> {
        let near = |pause: &&Pause| {
            pause.ordered && pause.who == who && pause.from >= at && at.until(pause.from) <= after
        };
        self.pauses.iter().find(near).map(|pause| pause.until.unwrap_or(now))
    }

    pub(crate) fn is_stopped(&self, who: Who) -> bool {
        self.pauses.iter().any(|pause| pause.who == who && pause.until.is_none())
    }

    /// Returns whether `who` did not run at some moment between `from` and `until`.
    pub(crate) fn was_paused(&self, who: Who, from: BootTime, until: BootTime) -> bool {
        self.pauses.iter().any(|pause| pause.who == who && pause.touches(from, until))
    }

    /// Returns whether pauses of `who` explain why an action that was due at `due` happened only at `at`. The
    /// first of these pauses must begin no later than `grace` after `due`. After that, `who` must not have run
    /// for longer than `grace` between one pause and the next, or between the last pause and `at`.
    pub(crate) fn delayed(&self, who: Who, due: BootTime, at: BootTime, grace: Duration) -> bool {
        let mut since = at;
        let before = |since: BootTime| {
            let pauses =
                self.pauses.iter().filter(|pause| pause.who == who && pause.touches(since - grace, since));
            pauses.map(|pause| pause.from).filter(|from| *from < since).min()
        };
        while let Some(from) = before(since) {
            since = from;
        }
        since < at && since <= due + grace
    }

    /// Returns the earliest time since `from` at which this number of different nodes may have lost their data. Returns
    /// `None` if fewer nodes did.
    pub(crate) fn lost_by(&self, from: BootTime, nodes: usize) -> Option<BootTime> {
        let mut since: Vec<_> = self.losses.iter().filter(|(at, _)| *at + ACCURACY >= from).collect();
        since.sort_unstable();
        let mut lost = BTreeSet::new();
        let last = since.into_iter().find(|(_, node)| lost.insert(*node) && lost.len() == nodes);
        last.map(|(at, _)| from.max(*at - ACCURACY))
    }

    /// Returns the number of nodes that have kept their data since `kept_from`, and could answer during all of
    /// the times in `answered`.
    pub(crate) fn remembering(&self, kept_from: BootTime, answered: &[(BootTime, BootTime)]) -> usize {
        let last = answered.iter().map(|(_, until)| *until).max().unwrap_or(kept_from);
        let lost = self.losers(kept_from, last);
        let answers = |node: usize| answered.iter().all(|(from, until)| self.voted(node, *from, *until));
        (0..self.votes.len()).filter(|node| !lost.contains(node) && answers(*node)).count()
    }

    fn losers(&self, from: BootTime, until: BootTime) -> BTreeSet<usize> {
        let within = |at: BootTime| at + ACCURACY >= from && at <= until + ACCURACY;
        self.losses.iter().filter(|(at, _)| within(*at)).map(|(_, node)| *node).collect()
    }

    /// Returns whether a node could vote during all of this time. Before the first observation, a node counts
    /// as able to vote.
    fn voted(&self, node: usize, from: BootTime, until: BootTime) -> bool {
        let log = &self.votes[node];
        let ends = log.iter().skip(1).map(|(at, _)| Some(*at)).chain([None]);
        !log.iter().zip(ends).any(|((began, votes), ended)| {
            !votes && *began <= until + ACCURACY && ended.is_none_or(|ended| ended + ACCURACY >= from)
        })
    }

    /// Removes the entries that no check needs any more.
    pub(crate) fn prune(&mut self, now: BootTime) {
        let old = now - KEPT;
        self.pauses.retain(|pause| pause.until.is_none_or(|until| until >= old));
        self.losses.retain(|(at, _)| *at >= old);
        for log in &mut self.votes {
            // The last entry before `old` is kept, because it is the state at that time.
            let stale = log.iter().filter(|(at, _)| *at < old).count().saturating_sub(1);
            log.drain(..stale);
        }
    }
}

/// Returns the time after a loss of data at which the node can vote again.
pub(crate) fn vote_again_after() -> Duration {
    QuorumConfig { max_ttl: MAX_TTL, ..QuorumConfig::default() }.quarantine() + CONNECTED
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> BootTime {
        BootTime::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn a_node_remembers_that_kept_its_data_and_could_answer() {
        let mut truth = Truth::new(5);
        truth.observe(at(0), &[true; 5], 1);
        truth.observe(at(10_000), &[true, true, true, true, false], 1);
        truth.observe(at(20_000), &[true; 5], 1);
        truth.lost_data(0, at(40_000));
        let remembering = |kept, from, until| truth.remembering(at(kept), &[(at(from), at(until))]);
        assert_eq!(remembering(5000, 6000, 7000), 5);
        assert_eq!(remembering(5000, 12_000, 15_000), 4, "node 4 was away");
        assert_eq!(remembering(5000, 30_000, 45_000), 4, "node 0 has lost its data");
        assert_eq!(remembering(45_000, 45_000, 50_000), 5, "before that time");
        assert_eq!(truth.remembering(at(5000), &[(at(15_000), at(16_000)), (at(41_000), at(42_000))]), 3);
    }

    #[test]
    fn only_a_pause_that_began_in_time_explains_a_delay() {
        let who = Who { member: 0, run: 1 };
        let mut truth = Truth::new(5);
        truth.stalled(who, at(1000), at(3000));
        let grace = Duration::from_millis(300);
        assert!(truth.delayed(who, at(2000), at(3100), grace));
        assert!(!truth.delayed(who, at(2000), at(3400), grace), "it ran for 400 ms before");
        assert!(!truth.delayed(who, at(600), at(3100), grace), "it was late before it was paused");
        truth.stalled(who, at(3200), at(3350));
        assert!(truth.delayed(who, at(2000), at(3400), grace), "paused again after 200 ms");
    }
}
