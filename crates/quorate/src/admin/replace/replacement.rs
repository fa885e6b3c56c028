use crate::{
    admin::replace::{
        error::ReplaceError,
        part::{NodePart, Part},
        plan::{Change, Move},
        reach::{NodeSet, NodeVisit},
    },
    config::QuorumConfig,
    env::{BootTime, Env},
    node::Cause,
    trust::Marker,
};
use futures_util::future::join_all;
use std::{collections::BTreeSet, sync::Arc, time::Duration};

/// The time limit for a handshake with a node, and for the write of its marker.
const NODE_TIMEOUT: Duration = Duration::from_secs(2);
/// The number of times that a step is tried on a node before the step fails.
const ATTEMPTS: usize = 3;
/// The pause between two attempts.
const RETRY_AFTER: Duration = Duration::from_millis(250);

/// A change from one node set to another. [`Replacement::survey`] shows its state, and [`Replacement::run`]
/// carries it out.
#[derive(Debug)]
pub struct Replacement {
    env: Env,
    change: Change,
    nodes: NodeSet,
    parts: Vec<Part>,
}

/// A report on the progress of a replacement.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Progress {
    /// No worker may use this node any more.
    Closed(Arc<str>),
    /// The time that must still pass until every lease of the old set has ended.
    Waiting(Duration),
    /// Workers with the new list may use this node from now on.
    Opened(Arc<str>),
    /// This node could not be reached, or its marker could not be written. Run the same replacement again
    /// once the cause is removed.
    Left(Arc<str>, Cause),
}

impl Replacement {
    /// Creates the change from the set `old` to the set `new`. A node whose name is in both sets stays.
    /// `config` contains the settings of the workers.
    ///
    /// # Errors
    /// [`ReplaceError::QuorumConfig`] if the lists or timings cannot be used, or if both lists are the same.
    pub fn new(env: Env, config: QuorumConfig, old: NodeSet, new: NodeSet) -> Result<Self, ReplaceError> {
        let (old_names, new_names) = (old.names(), new.names());
        config.validate(&old_names)?;
        config.validate(&new_names)?;
        let change = Change::new(env.random(), config, &old_names, &new_names)?;
        let old_only: BTreeSet<Arc<str>> = old_names.iter().cloned().collect();
        let parts = new_names
            .iter()
            .map(|name| if old_only.contains(name) { Part::Stays } else { Part::Joins })
            .chain(old_names.iter().filter(|name| !new_names.contains(name)).map(|_| Part::Leaves))
            .collect();
        let leaving = old.without(&new_names);
        Ok(Self { env, change, nodes: new.and(leaving), parts })
    }

    /// Returns the state of each node, without writing anything.
    ///
    /// # Errors
    /// [`ReplaceError`] if the change would be refused now.
    ///
    /// # Cancel safety
    /// Safe: the call only reads.
    pub async fn survey(&self) -> Result<Vec<NodePart>, ReplaceError> {
        let found = self.visit(&|_, _| None, |_| true).await;
        self.check(&found)?;
        Ok(self.node_parts(&found))
    }

    /// Carries out the change, or continues one that was interrupted. Reports every step to `report`.
    ///
    /// # Errors
    /// [`ReplaceError`]. No node is opened if a joining node cannot be used, or if a majority of the old set
    /// cannot be closed. Nodes that have been closed stay closed until the same replacement is run again.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the change unfinished, without a leader. Run the same replacement again to finish
    /// it.
    pub async fn run(&self, mut report: impl FnMut(Progress)) -> Result<Vec<NodePart>, ReplaceError> {
        let found = self.visit(&|_, _| None, |_| true).await;
        self.check(&found)?;
        let over = self.close(found, &mut report).await?;
        self.wait(over, &mut report).await;
        self.open(&mut report).await
    }

    /// Closes the nodes that are not closed yet. The joining nodes are closed first. Otherwise a worker with
    /// the new list that was started too early could use the joining nodes while the old set is still in use.
    /// Returns the time at which the nodes may be opened: the wait in the marker of each closed node is over
    /// then.
    async fn close(
        &self,
        found: Sights,
        report: &mut impl FnMut(Progress),
    ) -> Result<BootTime, ReplaceError> {
        let mut over = self.env.now();
        // True if an earlier run of this change has closed a majority of the old set. If so, nodes with the
        // marker of the new set were opened by that run, and are left unchanged.
        let shut = self.shut(&found) >= self.change.old_majority();
        let mut found = found;
        for part in [Part::Joins, Part::Stays, Part::Leaves] {
            for attempt in 0..ATTEMPTS {
                let decide = |part, sight: &NodeVisit| self.change.closing(sight, part, shut);
                let again = self.visit(&decide, |other| other == part).await;
                for (at, sight) in again.into_iter().enumerate().filter(|(at, _)| self.parts[*at] == part) {
                    found[at] = sight;
                }
                let done = |at: usize| self.parts[at] != part || found[at].is_ok();
                if (0..found.len()).all(done) {
                    break;
                }
                if attempt + 1 < ATTEMPTS {
                    self.env.sleep(RETRY_AFTER).await;
                }
            }
            for (at, sight) in found.iter().enumerate().filter(|(at, _)| self.parts[*at] == part) {
                match sight {
                    Ok(sight) => {
                        over = over.max(self.env.now() + self.change.remaining(sight));
                        if matches!(self.change.judge(sight, part), Ok(Move::Closed)) {
                            report(Progress::Closed(self.nodes.name(at)));
                        }
                    }
                    Err(cause) => report(Progress::Left(self.nodes.name(at), cause.clone())),
                }
            }
            self.check_joining(&found)?;
        }
        self.change.enough_shut(self.shut(&found), self.node_parts(&found))?;
        Ok(over)
    }

    async fn wait(&self, over: BootTime, report: &mut impl FnMut(Progress)) {
        let left = self.env.now().until(over);
        if !left.is_zero() {
            report(Progress::Waiting(left));
            self.env.sleep_until(over).await;
        }
    }

    /// Opens every closed node of the new set whose wait is over.
    async fn open(&self, report: &mut impl FnMut(Progress)) -> Result<Vec<NodePart>, ReplaceError> {
        let mut found = Vec::new();
        let mut opened = BTreeSet::new();
        for attempt in 0..ATTEMPTS {
            found = self.visit(&|part, sight| self.change.opening(sight, part), |_| true).await;
            for (at, sight) in found.iter().enumerate() {
                let is_open = sight.as_ref().is_ok_and(|sight| self.is_open(at, sight));
                if is_open && opened.insert(at) {
                    report(Progress::Opened(self.nodes.name(at)));
                }
            }
            if opened.len() == self.parts.iter().filter(|part| **part != Part::Leaves).count() {
                break;
            }
            if attempt + 1 < ATTEMPTS {
                self.env.sleep(RETRY_AFTER).await;
            }
        }
        let parts = self.node_parts(&found);
        if opened.len() >= self.change.new_majority() {
            Ok(parts)
        } else {
            Err(ReplaceError::NotOpened { parts })
        }
    }

    /// Checks that the change may begin, or continue, with the nodes in their present state.
    fn check(&self, found: &Sights) -> Result<(), ReplaceError> {
        for (at, sight) in found.iter().enumerate() {
            let Ok(sight) = sight else { continue };
            match self.change.judge(sight, self.parts[at]) {
                // A leaving node that is itself at fault is ignored. The change works without it, if enough
                // other nodes can be closed.
                Err(bar) if self.parts[at] == Part::Leaves && bar.is_of_the_node() => {}
                judged => drop(judged.map_err(|bar| bar.at(self.nodes.name(at)))?),
            }
        }
        let runs = found.iter().map(|sight| sight.as_ref().ok().map(|sight| Arc::clone(&sight.hello.run_id)));
        let runs: Vec<_> = runs.collect();
        for (at, run) in runs.iter().enumerate() {
            if let Some(twin) = runs[..at].iter().position(|other| run.is_some() && other == run) {
                return Err(ReplaceError::Twins { one: self.nodes.name(twin), other: self.nodes.name(at) });
            }
        }
        self.check_joining(found)?;
        let may_be_closed = |at: usize, sight: &NodeVisit| self.change.judge(sight, self.parts[at]).is_ok();
        let old = |at: &usize| {
            self.parts[*at] != Part::Joins && found[*at].as_ref().is_ok_and(|sight| may_be_closed(*at, sight))
        };
        self.change.enough_shut((0..found.len()).filter(old).count(), self.node_parts(found))
    }

    /// Checks that every joining node is reachable. If a majority of the old set is already closed, joining
    /// nodes may be unreachable.
    fn check_joining(&self, found: &Sights) -> Result<(), ReplaceError> {
        if self.shut(found) >= self.change.old_majority() {
            return Ok(());
        }
        let away = found.iter().enumerate().find_map(|(at, sight)| match sight {
            Err(cause) if self.parts[at] == Part::Joins => Some((self.nodes.name(at), cause.clone())),
            _ => None,
        });
        away.map_or(Ok(()), |(node, cause)| Err(ReplaceError::NewNodeAway { node, cause }))
    }

    /// Returns the number of nodes of the old set that a worker with the old list can no longer use.
    fn shut(&self, found: &Sights) -> usize {
        let shut = |(at, sight): &(usize, &Result<NodeVisit, Cause>)| {
            self.parts[*at] != Part::Joins && sight.as_ref().is_ok_and(|sight| self.change.is_shut(sight))
        };
        found.iter().enumerate().filter(shut).count()
    }

    fn is_open(&self, at: usize, sight: &NodeVisit) -> bool {
        matches!(self.change.judge(sight, self.parts[at]), Ok(Move::Opened))
    }

    fn node_parts(&self, found: &Sights) -> Vec<NodePart> {
        let node_part = |(at, sight): (usize, &Result<NodeVisit, Cause>)| {
            let found = sight.as_ref().map(|sight| self.change.found(sight)).map_err(Clone::clone);
            NodePart { name: self.nodes.name(at), part: self.parts[at], found }
        };
        found.iter().enumerate().map(node_part).collect()
    }

    /// Visits the nodes for which `which` returns true: connects, writes the marker that `decide` returns, if
    /// any, and returns the handshakes. The entry of a node that was not visited is an error.
    async fn visit(
        &self,
        decide: &(impl Fn(Part, &NodeVisit) -> Option<Marker> + Sync),
        which: impl Fn(Part) -> bool,
    ) -> Sights {
        let visits = self.parts.iter().enumerate().map(|(at, &part)| {
            let selected = which(part);
            async move {
                if !selected {
                    return Err(Cause::Stopped);
                }
                self.nodes.visit(at, &self.env, NODE_TIMEOUT, &|sight| decide(part, sight)).await
            }
        });
        join_all(visits).await
    }
}

/// The handshake with each node, in the order of the nodes, or the reason why there is none.
type Sights = Vec<Result<NodeVisit, Cause>>;
