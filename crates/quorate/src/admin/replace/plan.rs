//! The decisions about each node in a change of the node set. The functions here perform no I/O.

use crate::{
    admin::replace::{
        error::ReplaceError,
        part::{Found, NodePart, Part},
        reach::NodeVisit,
    },
    config::{QuorumConfig, SettingError, SharedSettings, majority},
    node::{Hello, Incarnation},
    plain::plain,
    sabotage::Sabotage,
    trust::{Marker, VoteRejection, data_id, loss},
};
use std::{sync::Arc, time::Duration};

/// The maximum number of bytes of a text from a node that an error shows.
const SHOWN_MAX: usize = 2_048;

/// The state of a node in the change, as its marker shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Move {
    /// The node must be closed, or closed again. There are three cases:
    ///
    /// * Its marker names the old set, or is missing.
    /// * It was closed, but since then it has lost its memory, or its clock was set back.
    /// * It was closed by an earlier change that removed it from the set.
    Close,
    /// The node's marker closes it, and needs no change until the node is opened.
    Closed,
    /// The marker names the new set, so the node is open.
    Opened,
}

/// The reason why a node cannot take part in the change.
#[derive(Clone, Debug)]
pub(super) enum Obstacle {
    Unfit(VoteRejection),
    Unfinished { from: Arc<str>, to: Arc<str> },
}

impl Obstacle {
    /// Returns whether the node itself is at fault. Returns false if only its marker is unsuitable, because
    /// it names another node set or other settings. This function is called only for leaving nodes, whose
    /// eviction policy is not checked.
    pub(super) fn is_of_the_node(&self) -> bool {
        matches!(self, Self::Unfit(VoteRejection::Replica | VoteRejection::MarkerUnreadable(_)))
    }

    pub(super) fn at(self, node: Arc<str>) -> ReplaceError {
        match self {
            Self::Unfit(why) => ReplaceError::Unfit { node, why },
            Self::Unfinished { from, to } => ReplaceError::Unfinished { node, from, to },
        }
    }
}

/// A change of the node set.
#[derive(Debug)]
pub(super) struct Change {
    config: QuorumConfig,
    from: Arc<str>,
    to: Arc<str>,
    closed: Arc<str>,
    majorities: (usize, usize),
    /// True if the memory of the nodes that stay remains valid. If false, their memory begins again, as after
    /// a restart.
    remembers: bool,
    /// A random number, from which the ids of memories are drawn.
    seed: u64,
}

impl Change {
    pub(super) fn new(
        seed: u64,
        config: QuorumConfig,
        old: &[Arc<str>],
        new: &[Arc<str>],
    ) -> Result<Self, SettingError> {
        let (from, to) = (Marker::node_set(old), Marker::node_set(new));
        if from == to {
            return Err(SettingError::new(
                "new",
                format!("[{to}]"),
                "the same set as the old one",
                "name the set that is to take its place",
            ));
        }
        let majorities = (majority(old.len()), majority(new.len()));
        let stay = new.iter().filter(|name| old.contains(name)).count();
        // If the staying nodes alone can be a majority of the new set, their memory remains valid only if every
        // such majority shares a node with every majority of the old set. A majority that includes a new node
        // is safe in any case: a new node starts its counters from a clock that has passed all old tokens.
        let remembers = stay < majorities.1
            || majorities.0 + majorities.1 > old.len()
            || config.sabotaged(Sabotage::StayingMemoryKept);
        let closed = Marker::closed_set(&from, &to);
        Ok(Self { config, from, to, closed, majorities, remembers, seed })
    }

    pub(super) fn old_majority(&self) -> usize {
        self.majorities.0
    }

    pub(super) fn new_majority(&self) -> usize {
        self.majorities.1
    }

    pub(super) fn enough_shut(&self, shut: usize, parts: Vec<NodePart>) -> Result<(), ReplaceError> {
        let needed = self.old_majority();
        let enough = shut >= needed || self.config.sabotaged(Sabotage::ReplacesOpenSet);
        if enough { Ok(()) } else { Err(ReplaceError::NotClosed { shut, needed, parts }) }
    }

    /// Returns the state of the node in the change, or the reason why the node cannot be used.
    pub(super) fn judge(&self, sight: &NodeVisit, part: Part) -> Result<Move, Obstacle> {
        let hello = &sight.hello;
        if hello.replica {
            return Err(Obstacle::Unfit(VoteRejection::Replica));
        }
        if part != Part::Leaves {
            // A leaving node grants no more leases, so its eviction policy does not matter.
            match hello.eviction.as_deref() {
                Some("noeviction") => {}
                Some(policy) => {
                    return Err(Obstacle::Unfit(VoteRejection::Evicts(plain(policy, SHOWN_MAX).into())));
                }
                None => return Err(Obstacle::Unfit(VoteRejection::EvictionUnknown)),
            }
        }
        let Some(marker) = marker(hello).map_err(Obstacle::Unfit)? else { return Ok(Move::Close) };
        if let Some(mismatch) = marker.settings.mismatch(&SharedSettings::of(&self.config)) {
            return Err(Obstacle::Unfit(VoteRejection::OtherSetting(mismatch)));
        }
        match &*marker.nodes {
            nodes if *nodes == *self.to && part != Part::Leaves => Ok(Move::Opened),
            nodes if *nodes == *self.from && part != Part::Joins => Ok(Move::Close),
            nodes
                if *nodes == *self.closed
                    && self.is_same_memory(hello, &marker)
                    && !self.is_far(hello, &marker) =>
            {
                Ok(Move::Closed)
            }
            nodes if *nodes == *self.closed => Ok(Move::Close),
            // An earlier change removed this node from the set, and now the node joins again. The new set of
            // that change is the present old set, so that change was finished. Otherwise too few nodes could be
            // closed for this change.
            _ if part == Part::Joins && marker.replacement().is_some_and(|(_, to)| *to == *self.from) => {
                Ok(Move::Close)
            }
            nodes => Err(match marker.replacement() {
                Some((from, to)) => Obstacle::Unfinished {
                    from: plain(from, SHOWN_MAX).into(),
                    to: plain(to, SHOWN_MAX).into(),
                },
                None => Obstacle::Unfit(VoteRejection::OtherNodeSet {
                    theirs: plain(nodes, SHOWN_MAX).into(),
                    ours: Arc::clone(if part == Part::Joins { &self.to } else { &self.from }),
                }),
            }),
        }
    }

    /// Returns whether the node's marker keeps every worker with the old list from using the node. Returns
    /// `false` for a node without a marker. (A worker with the old list cannot use such a node either, because
    /// the closed nodes keep the worker from writing a marker to it.)
    pub(super) fn is_shut(&self, sight: &NodeVisit) -> bool {
        matches!(marker(&sight.hello), Ok(Some(marker)) if marker.nodes == self.closed || marker.nodes == self.to)
    }

    /// Returns the marker that closes the node, or `None` if the node is left unchanged. `shut` is true if a
    /// majority of the old set was closed before. Otherwise, an open joining node is closed too: a worker with
    /// the new list was started too early and has opened it.
    pub(super) fn closing(&self, sight: &NodeVisit, part: Part, shut: bool) -> Option<Marker> {
        let hello = &sight.hello;
        match self.judge(sight, part) {
            Ok(Move::Close) => {}
            Ok(Move::Opened) if !shut && part == Part::Joins => {}
            _ => return None,
        }
        let standing = marker(hello).ok().flatten();
        let begins = |since| (since, Incarnation::draw(self.seed, &hello.run_id, since));
        let (since, incarnation) = match &standing {
            None => begins(hello.node_time),
            Some(marker) if part != Part::Joins && self.is_same_memory(hello, marker) && self.remembers => {
                (marker.since, marker.incarnation)
            }
            // The new marker says that the node's memory begins two clock offsets from now, as after a restart.
            // By then, the clocks have passed every counter that was started from a clock that was ahead. This
            // also applies to a joining node that has a marker, because it knows none of the old set's grants.
            Some(_) => begins(hello.node_time + self.config.max_clock_offset * 2),
        };
        Some(Marker {
            run_id: Arc::clone(&hello.run_id),
            data: data_id(hello),
            incarnation,
            nodes: Arc::clone(&self.closed),
            settings: SharedSettings::of(&self.config),
            since,
            votes_from: hello.node_time + self.closed_for(),
        })
    }

    /// Returns the time for which a node is closed.
    fn closed_for(&self) -> Duration {
        if self.config.sabotaged(Sabotage::ReplacesAtOnce) {
            Duration::ZERO
        } else {
            self.config.quarantine()
        }
    }

    /// Returns the marker that opens the node. Returns `None` if the node is not closed, or its wait is not
    /// over.
    pub(super) fn opening(&self, sight: &NodeVisit, part: Part) -> Option<Marker> {
        let closed = matches!(self.judge(sight, part), Ok(Move::Closed)) && part != Part::Leaves;
        let marker = marker(&sight.hello).ok().flatten()?;
        // Workers do not use the node before `votes_from` in any case. This check keeps a node that was
        // closed a moment ago from being opened too early.
        let waited = sight.hello.node_time + self.slack() >= marker.votes_from;
        (closed && waited).then(|| Marker { nodes: Arc::clone(&self.to), ..marker })
    }

    /// Returns how much longer a closed node must wait after the handshake, on this worker's clock. The result
    /// is zero for a node that is not closed. The result is at most one quarantine, even if the node's clock
    /// was set back.
    pub(super) fn remaining(&self, sight: &NodeVisit) -> Duration {
        match marker(&sight.hello) {
            Ok(Some(marker)) if marker.nodes == self.closed => {
                let left = sight.hello.node_time.until(marker.votes_from);
                // The node's clock may be slower than this worker's, so an allowance for drift is added. The
                // upper limit, `quarantine()`, already includes that allowance.
                (left + left.mul_f64(self.config.drift_rate)).min(self.config.quarantine())
            }
            _ => Duration::ZERO,
        }
    }

    pub(super) fn found(&self, sight: &NodeVisit) -> Found {
        match marker(&sight.hello) {
            Ok(Some(marker)) if marker.nodes == self.closed => Found::Closed(self.remaining(sight)),
            Ok(Some(marker)) if marker.nodes == self.to => Found::New,
            Ok(Some(_)) | Err(_) => Found::Old,
            Ok(None) => Found::Unmarked,
        }
    }

    /// Returns whether the node's clock was set back since the marker was written. Then the wait in the marker
    /// would be longer than any wait that a worker writes.
    fn is_far(&self, hello: &Hello, marker: &Marker) -> bool {
        hello.node_time + self.config.quarantine() + self.slack() < marker.votes_from
    }

    fn slack(&self) -> Duration {
        self.config.clock_step_allowance + self.config.quarantine().mul_f64(self.config.drift_rate)
    }

    /// Returns whether the node has kept its memory since the marker was written.
    fn is_same_memory(&self, hello: &Hello, marker: &Marker) -> bool {
        loss(hello, marker, self.config.durable).is_none()
    }
}

fn marker(hello: &Hello) -> Result<Option<Marker>, VoteRejection> {
    hello.marker.as_deref().map(Marker::parse).transpose().map_err(VoteRejection::MarkerUnreadable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::NodeTime;

    const NOW: NodeTime = NodeTime::from_micros(1_700_000_000_000_000);

    fn names(text: &str) -> Vec<Arc<str>> {
        text.split(',').map(Arc::from).collect()
    }

    fn change(old: &str, new: &str) -> Change {
        Change::new(1, QuorumConfig::default(), &names(old), &names(new)).unwrap()
    }

    /// Returns the [`NodeVisit`] of a node with the run id `run 1`. If `nodes` is given, the node has a marker with
    /// the run id `run` and the node set `nodes`.
    fn sight(run: &str, nodes: Option<&str>) -> NodeVisit {
        let marker = nodes.map(|nodes| Marker {
            run_id: run.into(),
            data: "".into(),
            incarnation: Incarnation::default(),
            nodes: nodes.into(),
            settings: SharedSettings::of(&QuorumConfig::default()),
            since: NOW - Duration::from_secs(1000),
            votes_from: NOW - Duration::from_secs(900),
        });
        let hello = Hello {
            node_time: NOW,
            run_id: "run 1".into(),
            marker: marker.as_ref().map(Marker::to_text),
            data: None,
            stamps: Default::default(),
            uptime: Duration::from_secs(3600),
            version: "7".into(),
            replica: false,
            eviction: Some("noeviction".into()),
            durable: None,
            volatile: None,
            unable: None,
        };
        NodeVisit { hello, took: Duration::ZERO, ahead_micros: 0 }
    }

    /// Returns a copy of `sight` in which the node has the marker `marker`.
    fn under(sight: &NodeVisit, marker: &Marker) -> NodeVisit {
        NodeVisit { hello: Hello { marker: Some(marker.to_text()), ..sight.hello.clone() }, ..sight.clone() }
    }

    #[test]
    fn memory_goes_on_where_majorities_of_what_stays_have_met_the_old_ones() {
        for (old, new, remembers) in [
            ("a,b,c", "b,c,d", true),
            ("a,b,c", "a,b,c,d,e", true),
            ("a,b,c,d,e", "b,c,d,e,f", true),
            ("a,b,c,d,e", "a,b,c,d", true),
            ("a,b,c,d,e", "a,b,c", false),
            ("a,b,c", "a", false),
            // Every majority of the new set has a new node, so the memory remains valid.
            ("a,b,c", "c,d,e", true),
            ("a,b,c", "d,e,f", true),
        ] {
            assert_eq!(change(old, new).remembers, remembers, "{old} to {new}");
        }
    }

    #[test]
    fn a_node_is_closed_waits_and_is_opened_with_its_memory() {
        let change = change("a,b,c", "b,c,d");
        let old = sight("run 1", Some("a,b,c"));
        let closed = change.closing(&old, Part::Stays, false).unwrap();
        assert_eq!(closed.replacement(), Some(("a,b,c", "b,c,d")));
        assert_eq!(closed.since, NOW - Duration::from_secs(1000));
        let seen = under(&old, &closed);
        assert!(change.is_shut(&seen) && change.closing(&seen, Part::Stays, true).is_none());
        assert_eq!(change.remaining(&seen), QuorumConfig::default().quarantine());
        assert_eq!(change.opening(&seen, Part::Stays), None, "it has not waited");
        let mut waited = seen;
        waited.hello.node_time = NOW + QuorumConfig::default().quarantine();
        assert_eq!(change.remaining(&waited), Duration::ZERO);
        assert_eq!(change.opening(&waited, Part::Leaves), None);
        let open = change.opening(&waited, Part::Stays).unwrap();
        assert_eq!((&*open.nodes, open.since, open.votes_from), ("b,c,d", closed.since, closed.votes_from));
        let open = under(&waited, &open);
        assert!(matches!(change.judge(&open, Part::Stays), Ok(Move::Opened)));
        assert!(change.closing(&open, Part::Stays, true).is_none(), "what is open stays open");
    }

    /// Checks that a joining node's memory begins again when it is closed, because the node knows nothing of
    /// the old set's work. With its older memory, it could report a tick as not started although the old set
    /// had started it.
    #[test]
    fn a_node_that_joins_begins_anew_whoever_has_marked_it_before() {
        let change = change("a,b,c", "b,c,d");
        let early = sight("run 1", Some("b,c,d"));
        let closed = change.closing(&early, Part::Joins, false).unwrap();
        assert_eq!(closed.since, NOW + QuorumConfig::default().max_clock_offset * 2);
        assert!(change.closing(&early, Part::Joins, true).is_none(), "it was opened by an earlier run");
    }

    #[test]
    fn a_node_that_left_may_come_back_in_the_next_change() {
        let back = change("b,c,d", "a,b,c");
        let left = sight("run 1", Some(&Marker::closed_set("a,b,c", "b,c,d")));
        let closed = back.closing(&left, Part::Joins, false).unwrap();
        assert_eq!(closed.replacement(), Some(("b,c,d", "a,b,c")));
        assert_eq!(closed.since, NOW + QuorumConfig::default().max_clock_offset * 2);
        assert!(matches!(back.judge(&left, Part::Stays), Err(Obstacle::Unfinished { .. })));
    }

    #[test]
    fn a_clock_that_was_set_back_closes_the_node_anew() {
        let change = change("a,b,c", "b,c,d");
        let old = sight("run 1", Some("a,b,c"));
        let mut back = under(&old, &change.closing(&old, Part::Stays, false).unwrap());
        back.hello.node_time = NOW - Duration::from_secs(3600);
        let again = change.closing(&back, Part::Stays, true).unwrap();
        assert_eq!(again.votes_from, back.hello.node_time + QuorumConfig::default().quarantine());
    }

    #[test]
    fn what_may_have_forgotten_begins_anew() {
        let apart = QuorumConfig::default().max_clock_offset * 2;
        let shrinks = change("a,b,c,d,e", "a,b,c");
        let closed = shrinks.closing(&sight("run 1", Some("a,b,c,d,e")), Part::Stays, false).unwrap();
        assert_eq!(closed.since, NOW + apart);
        let change = change("a,b,c", "b,c,d");
        let restarted = change.closing(&sight("run 0", Some("a,b,c")), Part::Stays, false).unwrap();
        assert_eq!((&*restarted.run_id, restarted.since), ("run 1", NOW + apart));
        // The node was restarted while it was closed, so its wait begins again.
        let again = sight("run 0", Some("(a,b,c)->(b,c,d)"));
        let again = change.closing(&again, Part::Stays, true).unwrap();
        assert_eq!(again.votes_from, NOW + QuorumConfig::default().quarantine());
        let flushed = change.closing(&sight("run 1", None), Part::Stays, false).unwrap();
        assert_eq!(flushed.since, NOW);
    }

    #[test]
    fn a_worker_with_the_new_list_that_was_too_early_loses_what_it_marked() {
        let change = change("a,b,c", "d,e,f");
        let marked = sight("run 1", Some("d,e,f"));
        assert!(change.closing(&marked, Part::Joins, false).is_some());
        assert!(change.closing(&marked, Part::Joins, true).is_none(), "opened by this very change");
    }

    #[test]
    fn other_sets_and_other_changes_are_named() {
        let change = change("a,b,c", "b,c,d");
        let bar = |sight: &NodeVisit, part| change.judge(sight, part).unwrap_err().at("n".into()).to_string();
        assert!(bar(&sight("run 1", Some("x,y")), Part::Stays).contains("[x,y]"));
        let other = bar(&sight("run 1", Some("(a,b,c)->(b,c,e)")), Part::Leaves);
        assert!(other.contains("[a,b,c]") && other.contains("[b,c,e]") && other.contains("again"), "{other}");
        let mut replica = sight("run 1", Some("a,b,c"));
        replica.hello.replica = true;
        assert!(bar(&replica, Part::Stays).contains("replica"));
        assert!(Change::new(1, QuorumConfig::default(), &names("a,b"), &names("b,a")).is_err());
    }
}
