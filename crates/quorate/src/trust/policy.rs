//! Decides whether a node may vote. The decision uses only the handshake, and needs no I/O.

use crate::{
    config::{QuorumConfig, SharedSettings},
    env::BootTime,
    node::{Hello, Incarnation, NodeTime},
    plain::plain,
    sabotage::Sabotage,
    trust::{Marker, QuarantineReason, VoteRejection},
};
use std::{sync::Arc, time::Duration};

/// The largest number of bytes of a text from a node that an error repeats.
const SHOWN_MAX: usize = 2_048;

/// The decision on a handshake, or on a marker that has changed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum TrustDecision {
    /// The node's votes count once the boot clock shows `from`.
    Votes { marker: Marker, from: BootTime, reason: QuarantineReason },
    /// This marker must be written first. It replaces the marker that was read.
    Write { marker: Marker, from: BootTime, reason: QuarantineReason },
    /// The node must not vote.
    Refused(VoteRejection),
    /// The node kept its data, but the data may be old. Compare the stamps, and decide again.
    Compare,
}

/// The result of comparing a node's own stamp with those that other nodes and this worker have seen of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum StampCheck {
    /// The stamps have not been compared, or need not be.
    #[default]
    Unchecked,
    /// No node that was asked, and not this worker, has seen a larger stamp of the node.
    Current,
    /// The node has lost data: another node or this worker has seen a larger stamp of it.
    Behind,
}

/// The decision on whether a node with a marker still has the memory that the marker describes.
enum MemoryCheck {
    Same,
    /// The data is the same if no node and no worker has seen a larger stamp of the node.
    Kept,
    Lost(QuarantineReason),
}

/// The node list and the settings by which one worker decides whether nodes may vote.
#[derive(Clone, Debug)]
pub(crate) struct TrustPolicy {
    pub(crate) nodes: Arc<str>,
    pub(crate) config: QuorumConfig,
    /// A random number of this worker, from which the ids of memories are drawn.
    pub(crate) seed: u64,
}

impl TrustPolicy {
    /// Decides from a node's handshake, and from what is known of its stamps, whether the node may vote. The boot clock
    /// showed `now` when the handshake arrived.
    pub(crate) fn decide(&self, hello: &Hello, now: BootTime, stamps: StampCheck) -> TrustDecision {
        if hello.replica {
            return TrustDecision::Refused(VoteRejection::Replica);
        }
        match hello.eviction.as_deref() {
            Some("noeviction") => {}
            Some(policy) => {
                return TrustDecision::Refused(VoteRejection::Evicts(plain(policy, SHOWN_MAX).into()));
            }
            None => return TrustDecision::Refused(VoteRejection::EvictionUnknown),
        }
        let marker = match self.marker(hello) {
            Ok(Some(marker)) => marker,
            Ok(None) => {
                let wait = if self.config.trust_new_nodes { Duration::ZERO } else { self.quarantine() };
                return self.write(hello, now, wait, QuarantineReason::Unmarked);
            }
            Err(why) => return TrustDecision::Refused(why),
        };
        let reason = QuarantineReason::Marked;
        let from = self.from(&marker, hello.node_time, now);
        match memory_of(hello, &marker, self.config.durable) {
            _ if stamps == StampCheck::Behind => {
                self.write(hello, now, self.quarantine(), QuarantineReason::RolledBack)
            }
            MemoryCheck::Lost(reason) => self.write(hello, now, self.quarantine(), reason),
            MemoryCheck::Same if self.is_from_the_future(&marker, hello.node_time) => {
                let wait = self.config.quarantine();
                let marker = Marker { votes_from: hello.node_time + wait, ..marker };
                TrustDecision::Write { marker, from: now + wait, reason }
            }
            MemoryCheck::Same => TrustDecision::Votes { marker, from, reason },
            // Only workers of a durable quorum store stamps.
            MemoryCheck::Kept if self.config.durable && stamps == StampCheck::Unchecked => {
                TrustDecision::Compare
            }
            MemoryCheck::Kept if self.config.read_only => TrustDecision::Votes { marker, from, reason },
            MemoryCheck::Kept => {
                let (run_id, data) = (Arc::clone(&hello.run_id), data_id(hello));
                TrustDecision::Write { marker: Marker { run_id, data, ..marker }, from, reason }
            }
        }
    }

    /// Returns the node's marker if it names this worker's node list and shared settings, or `None` if the node
    /// has none.
    ///
    /// # Errors
    /// [`VoteRejection`] if the marker names another node list or other shared settings, or cannot be read.
    pub(crate) fn marker(&self, hello: &Hello) -> Result<Option<Marker>, VoteRejection> {
        let Some(text) = &hello.marker else { return Ok(None) };
        let marker = Marker::parse(text).map_err(VoteRejection::MarkerUnreadable)?;
        if let Some((from, to)) = marker.replacement() {
            let (from, to) = (plain(from, SHOWN_MAX).into(), plain(to, SHOWN_MAX).into());
            return Err(VoteRejection::Replaced { from, to, ours: Arc::clone(&self.nodes) });
        }
        if marker.nodes != self.nodes {
            let (theirs, ours) = (plain(&marker.nodes, SHOWN_MAX).into(), Arc::clone(&self.nodes));
            return Err(VoteRejection::OtherNodeSet { theirs, ours });
        }
        match marker.settings.mismatch(&SharedSettings::of(&self.config)) {
            Some(mismatch) => Err(VoteRejection::OtherSetting(mismatch)),
            None => Ok(Some(marker)),
        }
    }

    /// Returns the decision to write a new marker. The node's memory begins now, or later if the node
    /// restarted. Its votes count once `wait` has passed.
    fn write(&self, hello: &Hello, now: BootTime, wait: Duration, reason: QuarantineReason) -> TrustDecision {
        if self.config.read_only {
            return TrustDecision::Refused(match reason {
                QuarantineReason::Unmarked => VoteRejection::Unmarked,
                reason => VoteRejection::Unmet(reason),
            });
        }
        // A restarted node may come back with old fencing counters. A counter starts at the wall-clock time
        // of a worker, and is recognised as old if it is smaller than the time at which the node's memory
        // began. So the memory must begin after all old counters. The worker that started a counter may have
        // had a clock that was ahead of another node's clock by `max_clock_offset`, and that node's clock may
        // have been ahead of this node's by as much again.
        let margin = match reason {
            QuarantineReason::Unmarked => Duration::ZERO,
            _ => self.config.max_clock_offset * 2,
        };
        let since = hello.node_time + margin;
        let marker = Marker {
            run_id: Arc::clone(&hello.run_id),
            data: data_id(hello),
            incarnation: Incarnation::draw(self.seed, &hello.run_id, since),
            nodes: Arc::clone(&self.nodes),
            settings: SharedSettings::of(&self.config),
            since,
            votes_from: hello.node_time + wait,
        };
        TrustDecision::Write { marker, from: now + wait, reason }
    }

    fn quarantine(&self) -> Duration {
        if self.config.sabotaged(Sabotage::NoQuarantine) { Duration::ZERO } else { self.config.quarantine() }
    }

    /// Returns whether the marker's wait would take longer than any wait that a worker writes. If so, the
    /// node's clock was ahead when the marker was written, and has been set back since. Without a new marker,
    /// every new connection would begin another quarantine until the clock has caught up.
    fn is_from_the_future(&self, marker: &Marker, node_time: NodeTime) -> bool {
        let quarantine = self.config.quarantine();
        let drift = quarantine.mul_f64(self.config.drift_rate);
        !self.config.read_only
            && node_time.until(marker.votes_from) > quarantine + drift + self.config.clock_step_allowance
    }

    /// Returns the time on the boot clock at which the marker's wait is over. The wait began in the past. So
    /// this time is at most one quarantine from now, even if the node's clock was set back since.
    fn from(&self, marker: &Marker, node_time: NodeTime, now: BootTime) -> BootTime {
        let wait = node_time.until(marker.votes_from);
        now + (wait + wait.mul_f64(self.config.drift_rate)).min(self.config.quarantine())
    }
}

/// Returns whether the node certainly lost the memory that `marker` describes. `durable` is true if the quorum trusts
/// nodes that write every change to their disks.
pub(crate) fn loss(hello: &Hello, marker: &Marker, durable: bool) -> Option<QuarantineReason> {
    match memory_of(hello, marker, durable) {
        MemoryCheck::Lost(reason) => Some(reason),
        MemoryCheck::Same | MemoryCheck::Kept => None,
    }
}

fn memory_of(hello: &Hello, marker: &Marker, durable: bool) -> MemoryCheck {
    let is_copied = hello.data.as_ref().is_some_and(|data| data.is_copied);
    let is_same_data = hello.data.as_ref().is_none_or(|data| *data.id == *marker.data);
    match marker.run_id == hello.run_id {
        true if is_same_data => MemoryCheck::Same,
        // A server draws a new id also when it gets its first replica, and when it has had none for an hour. Its data
        // stays the same then. A marker without an id is from a time when the server reported none.
        true if !is_copied || marker.data.is_empty() => MemoryCheck::Kept,
        true => MemoryCheck::Lost(QuarantineReason::Copied),
        false if !durable || hello.durable != Some(true) => MemoryCheck::Lost(QuarantineReason::Restarted),
        // The data of a promoted replica may be older than what its master had acknowledged.
        false if is_copied => MemoryCheck::Lost(QuarantineReason::Copied),
        false => MemoryCheck::Kept,
    }
}

/// Returns the id of the node's data, for its marker.
pub(crate) fn data_id(hello: &Hello) -> Arc<str> {
    hello.data.as_ref().map_or_else(|| "".into(), |data| Arc::clone(&data.id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::DataId;
    use std::collections::BTreeMap;

    const NOW: BootTime = BootTime::from_nanos(1_000_000_000);
    const NODE_NOW: NodeTime = NodeTime::from_micros(1_700_000_000_000_000);

    fn policy() -> TrustPolicy {
        TrustPolicy { nodes: "a,b,c".into(), config: QuorumConfig::default(), seed: 1 }
    }

    fn hello(marker: Option<&Marker>) -> Hello {
        Hello {
            node_time: NODE_NOW,
            run_id: "run-1".into(),
            marker: marker.map(Marker::to_text),
            data: None,
            stamps: BTreeMap::new(),
            uptime: Duration::from_secs(3600),
            version: "7".into(),
            replica: false,
            eviction: Some("noeviction".into()),
            durable: None,
            volatile: None,
            unable: None,
        }
    }

    fn marker() -> Marker {
        Marker {
            run_id: "run-1".into(),
            data: "".into(),
            incarnation: Incarnation::default(),
            nodes: "a,b,c".into(),
            settings: SharedSettings::of(&QuorumConfig::default()),
            since: NODE_NOW - Duration::from_secs(1000),
            votes_from: NODE_NOW - Duration::from_secs(900),
        }
    }

    #[test]
    fn a_node_with_our_marker_of_its_present_run_votes() {
        let judged = policy().decide(&hello(Some(&marker())), NOW, StampCheck::Unchecked);
        assert_eq!(
            judged,
            TrustDecision::Votes { marker: marker(), from: NOW, reason: QuarantineReason::Marked }
        );
    }

    #[test]
    fn the_wait_in_a_marker_counts_on_the_boot_clock_and_is_at_most_a_quarantine() {
        let waits = Marker { votes_from: NODE_NOW + Duration::from_secs(10), ..marker() };
        let TrustDecision::Votes { from, .. } =
            policy().decide(&hello(Some(&waits)), NOW, StampCheck::Unchecked)
        else {
            panic!()
        };
        assert_eq!(NOW.until(from), Duration::from_millis(10_100));
        let far = Marker { votes_from: NODE_NOW + Duration::from_secs(10_000), ..marker() };
        let mut observer = policy();
        observer.config.read_only = true;
        let TrustDecision::Votes { from, .. } =
            observer.decide(&hello(Some(&far)), NOW, StampCheck::Unchecked)
        else {
            panic!()
        };
        assert_eq!(NOW.until(from), policy().config.quarantine());
    }

    #[test]
    fn the_wait_that_a_clock_wrote_while_it_was_ahead_is_shortened_once() {
        let far = Marker { votes_from: NODE_NOW + Duration::from_secs(3600), ..marker() };
        let TrustDecision::Write { marker, from, .. } =
            policy().decide(&hello(Some(&far)), NOW, StampCheck::Unchecked)
        else {
            panic!()
        };
        assert_eq!(NOW.until(from), policy().config.quarantine());
        assert_eq!((marker.since, marker.votes_from), (far.since, NODE_NOW + policy().config.quarantine()));
        // A marker with another run id means that the node has restarted and its memory is lost, whatever the clock
        // showed.
        let other = Marker { run_id: "run-0".into(), ..far };
        let TrustDecision::Write { marker, reason, .. } =
            policy().decide(&hello(Some(&other)), NOW, StampCheck::Unchecked)
        else {
            panic!()
        };
        assert!(marker.since > NODE_NOW && reason == QuarantineReason::Restarted);
    }

    #[test]
    fn a_read_only_worker_writes_no_marker() {
        let mut policy = policy();
        policy.config.read_only = true;
        assert_eq!(
            policy.decide(&hello(None), NOW, StampCheck::Unchecked),
            TrustDecision::Refused(VoteRejection::Unmarked)
        );
        let old = Marker { run_id: "run-0".into(), ..marker() };
        assert_eq!(
            policy.decide(&hello(Some(&old)), NOW, StampCheck::Unchecked),
            TrustDecision::Refused(VoteRejection::Unmet(QuarantineReason::Restarted))
        );
        assert!(matches!(
            policy.decide(&hello(Some(&marker())), NOW, StampCheck::Unchecked),
            TrustDecision::Votes { .. }
        ));
    }

    #[test]
    fn a_node_without_a_marker_waits_a_whole_quarantine_whatever_its_uptime() {
        let TrustDecision::Write { marker, from, reason } =
            policy().decide(&hello(None), NOW, StampCheck::Unchecked)
        else {
            panic!()
        };
        assert_eq!(NOW.until(from), policy().config.quarantine());
        assert_eq!(marker.since, NODE_NOW);
        assert_eq!(marker.votes_from, NODE_NOW + policy().config.quarantine());
        assert_eq!(reason, QuarantineReason::Unmarked);
        let mut durable = policy();
        durable.config.durable = true;
        let hello = Hello { durable: Some(true), ..hello(None) };
        let TrustDecision::Write { from, .. } = durable.decide(&hello, NOW, StampCheck::Unchecked) else {
            panic!()
        };
        assert_eq!(NOW.until(from), durable.config.quarantine(), "also under durable = true");
    }

    #[test]
    fn another_run_is_quarantined_unless_it_is_verified_durable() {
        let old = Marker { run_id: "run-0".into(), ..marker() };
        let TrustDecision::Write { marker: new, from, reason } =
            policy().decide(&hello(Some(&old)), NOW, StampCheck::Unchecked)
        else {
            panic!()
        };
        assert_eq!((NOW.until(from), reason), (policy().config.quarantine(), QuarantineReason::Restarted));
        assert_eq!(&*new.run_id, "run-1");
        assert_eq!(new.votes_from, NODE_NOW + policy().config.quarantine());
        let ahead = policy().config.max_clock_offset * 2;
        assert_eq!(new.since, NODE_NOW + ahead, "later than any counter that may have come back");

        let mut durable = policy();
        durable.config.durable = true;
        let old = Marker { settings: SharedSettings::of(&durable.config), ..old };
        let claims = Hello { durable: Some(true), ..hello(Some(&old)) };
        assert_eq!(durable.decide(&claims, NOW, StampCheck::Unchecked), TrustDecision::Compare);
        let TrustDecision::Write { marker: kept, from, .. } =
            durable.decide(&claims, NOW, StampCheck::Current)
        else {
            panic!()
        };
        assert_eq!(
            (kept.since, kept.incarnation, from),
            (old.since, old.incarnation, NOW),
            "its memory is the same"
        );
        assert_eq!(&*kept.run_id, "run-1");
        let TrustDecision::Write { marker: lost, from, reason } =
            durable.decide(&claims, NOW, StampCheck::Behind)
        else {
            panic!()
        };
        assert_eq!((NOW.until(from), reason), (durable.config.quarantine(), QuarantineReason::RolledBack));
        assert!(lost.since > NODE_NOW && lost.incarnation != old.incarnation);
        let mut reads = durable.clone();
        reads.config.read_only = true;
        let votes = reads.decide(&claims, NOW, StampCheck::Current);
        assert!(
            matches!(votes, TrustDecision::Votes { marker, .. } if marker == old),
            "a reader writes nothing"
        );
        let refused = reads.decide(&claims, NOW, StampCheck::Behind);
        assert_eq!(refused, TrustDecision::Refused(VoteRejection::Unmet(QuarantineReason::RolledBack)));
        let unverified = Hello { durable: None, ..hello(Some(&old)) };
        let TrustDecision::Write { from, .. } = durable.decide(&unverified, NOW, StampCheck::Unchecked)
        else {
            panic!()
        };
        assert_eq!(NOW.until(from), durable.config.quarantine());
    }

    /// Returns the decision on a node whose marker has the id `marked` of its data, and which now reports `data`.
    fn with_data(durable: bool, run: &str, marked: &str, data: Option<(&str, bool)>) -> TrustDecision {
        let mut policy = policy();
        policy.config.durable = durable;
        let settings = SharedSettings::of(&policy.config);
        let marker = Marker { run_id: run.into(), data: marked.into(), settings, ..marker() };
        let data = data.map(|(id, is_copied)| DataId { id: id.into(), is_copied });
        let hello = Hello { data, durable: Some(durable), ..hello(Some(&marker)) };
        policy.decide(&hello, NOW, StampCheck::Unchecked)
    }

    #[test]
    fn data_that_came_from_another_server_is_lost_also_without_a_restart() {
        for (durable, run) in [(false, "run-1"), (true, "run-1"), (true, "run-0")] {
            let decision = with_data(durable, run, "one", Some(("two", true)));
            let TrustDecision::Write { marker, from, reason } = decision else { panic!("{decision:?}") };
            assert_eq!((NOW.until(from), reason), (policy().config.quarantine(), QuarantineReason::Copied));
            assert!(&*marker.data == "two" && marker.since > NODE_NOW);
        }
        let restarted = with_data(false, "run-0", "one", Some(("two", true)));
        assert!(matches!(restarted, TrustDecision::Write { reason: QuarantineReason::Restarted, .. }));
    }

    /// A server draws a new id of its data also when it gets its first replica (a backup by `redis-cli --rdb` is one).
    #[test]
    fn an_id_that_the_server_itself_has_changed_is_written_into_the_marker() {
        let decision = with_data(false, "run-1", "one", Some(("two", false)));
        let TrustDecision::Write { marker: kept, from, .. } = decision else { panic!("{decision:?}") };
        assert_eq!((&*kept.data, kept.since, from), ("two", marker().since, NOW));
        assert_eq!(with_data(true, "run-1", "one", Some(("two", false))), TrustDecision::Compare);
        for (marked, data) in [("one", Some(("one", true))), ("one", None), ("", None)] {
            assert!(
                matches!(with_data(false, "run-1", marked, data), TrustDecision::Votes { .. }),
                "{data:?}"
            );
        }
        // A marker without an id is from a time when the server reported none.
        let first = with_data(false, "run-1", "", Some(("two", true)));
        assert!(
            matches!(first, TrustDecision::Write { marker, .. } if marker.since == super::tests::marker().since)
        );
    }

    #[test]
    fn a_node_that_an_operator_must_fix_is_refused() {
        let refused = |hello: &Hello| match policy().decide(hello, NOW, StampCheck::Unchecked) {
            TrustDecision::Refused(why) => why,
            other => panic!("{other:?}"),
        };
        assert_eq!(refused(&Hello { replica: true, ..hello(None) }), VoteRejection::Replica);
        let evicts = Hello { eviction: Some("allkeys-lru".into()), ..hello(None) };
        assert!(refused(&evicts).to_string().contains("allkeys-lru"));
        assert_eq!(refused(&Hello { eviction: None, ..hello(None) }), VoteRejection::EvictionUnknown);
        let set = refused(&hello(Some(&Marker { nodes: "a,b".into(), ..marker() })));
        assert!(set.to_string().contains("[a,b]") && set.to_string().contains("[a,b,c]"));
        let (second, base) = (Duration::from_secs(1), QuorumConfig::default());
        for (field, theirs, ours, config) in [
            ("max_ttl", "9s", "30s", QuorumConfig { max_ttl: 9 * second, ..base.clone() }),
            ("max_clock_offset", "5s", "1s", QuorumConfig { max_clock_offset: 5 * second, ..base.clone() }),
            (
                "clock_step_allowance",
                "0ns",
                "200ms",
                QuorumConfig { clock_step_allowance: Duration::ZERO, ..base.clone() },
            ),
            ("drift_rate", "0.002", "0.01", QuorumConfig { drift_rate: 0.002, ..base.clone() }),
            ("durable", "true", "false", QuorumConfig { durable: true, ..base.clone() }),
            ("trust_new_nodes", "true", "false", QuorumConfig { trust_new_nodes: true, ..base.clone() }),
        ] {
            let settings = SharedSettings::of(&config);
            let why = refused(&hello(Some(&Marker { settings, ..marker() })));
            let text = why.to_string();
            assert!(text.contains(&format!("{field} {theirs}, this worker's is {ours}")), "{text}");
            assert!(text.contains("give every worker the same") && why.is_permanent(), "{text}");
        }
        let closed = Marker { nodes: Marker::closed_set("a,b,c", "b,c,d"), ..marker() };
        let replaced = refused(&hello(Some(&closed)));
        let text = replaced.to_string();
        assert!(text.contains("[a,b,c]") && text.contains("[b,c,d]") && replaced.is_permanent(), "{text}");
        let ahead = TrustPolicy { nodes: "b,c,d".into(), ..policy() };
        let TrustDecision::Refused(waits) = ahead.decide(&hello(Some(&closed)), NOW, StampCheck::Unchecked)
        else {
            panic!()
        };
        assert!(!waits.is_permanent() && waits.to_string().contains("wait until that is done"));
        let odd = Hello { marker: Some("hello".into()), ..hello(None) };
        assert!(matches!(refused(&odd), VoteRejection::MarkerUnreadable(_)));
    }
}
