//! A change of the node set, while workers run.
//!
//! # What is not guaranteed
//!
//! For the time of the change (`max_ttl`, and four times `max_clock_offset` at least) nobody leads and nothing is
//! held. A node that leaves takes its memory along, as if it were lost: a done record or a ledger record that stood on
//! a bare majority, of which it was one, may be unknown afterwards. A worker with the new list that runs *before* the
//! change begins, and finds nothing but new nodes, cannot tell that there is an old set: replace first, then restart
//! the workers.
//!
//! # How it goes
//!
//! | step | what is written | what holds after it |
//! | --- | --- | --- |
//! | close the new nodes, then the old | markers that name both sets: no worker votes by them, whatever its list | once a majority of the old set is closed, no lease of the old set is granted or extended |
//! | wait | nothing | every lease of the old set has ended, and clocks have passed every token that it gave |
//! | open the new set | markers of the new set | workers with the new list elect |
//!
//! Nodes that leave stay closed: a worker with the old list hears for ever that its list was replaced, and by which.
//! A change that was interrupted is resumed by running it again: the closed markers say for how long yet to wait.
//!
//! What a node that stays has counted and recorded stands, unless a majority of the new set could consist of such nodes
//! and yet none of a majority of the old one (three left of five, say): then their memory begins anew, as after a restart,
//! so that no fencing token is given again.

mod error;
mod plan;
mod reach;

pub use error::ReplaceError;
pub use plan::{Found, Part};
pub use reach::{NodeSet, Sight};

use crate::{
    config::{QuorumConfig, majority},
    env::{BootTime, Env},
    node::Cause,
    trust::Marker,
};
use futures_util::future::join_all;
use plan::{Change, Move};
use std::{collections::BTreeSet, sync::Arc, time::Duration};

/// How long a node may take to be met, and to write its marker.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often what failed is tried again, before it is an error.
const TRIES: usize = 3;
/// Between two tries.
const TRY_AGAIN: Duration = Duration::from_millis(250);

/// A change from one node set to another: looked at by [`Replacement::survey`], carried out by [`Replacement::run`].
#[derive(Debug)]
pub struct Replacement {
    env: Env,
    change: Change,
    nodes: NodeSet,
    parts: Vec<Part>,
}

/// What was found of a node, or done with it.
#[derive(Clone, Debug)]
pub struct NodePart {
    /// Its name.
    pub name: Arc<str>,
    /// Whether it stays, leaves or joins.
    pub part: Part,
    /// How it was found; why it could not be asked.
    pub found: Result<Found, Cause>,
}

/// What a replacement tells while it runs.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Progress {
    /// No worker votes by this node any more.
    Closed(Arc<str>),
    /// Until every lease of the old set has ended.
    Waiting(Duration),
    /// Workers with the new list may vote by this node.
    Opened(Arc<str>),
    /// This node could not be reached, and is as it was: run the same again once it is back.
    Left(Arc<str>, Cause),
}

impl Replacement {
    /// From the set `old` to the set `new`; a node of one name in both stays. `config` is what the workers have.
    ///
    /// # Errors
    /// [`ReplaceError::QuorumConfig`] for lists or timings that cannot be used, and where both are one list.
    pub fn new(env: Env, config: QuorumConfig, old: NodeSet, new: NodeSet) -> Result<Self, ReplaceError> {
        let (old_names, new_names) = (old.names(), new.names());
        config.validate(&old_names)?;
        config.validate(&new_names)?;
        let change = Change::new(config, &old_names, &new_names)?;
        let old_only: BTreeSet<Arc<str>> = old_names.iter().cloned().collect();
        let parts = new_names
            .iter()
            .map(|name| if old_only.contains(name) { Part::Stays } else { Part::Joins })
            .chain(old_names.iter().filter(|name| !new_names.contains(name)).map(|_| Part::Leaves))
            .collect();
        let leaving = old.without(&new_names);
        Ok(Self { env, change, nodes: new.and(leaving), parts })
    }

    /// How each node stands to the change, and nothing else: nothing is written.
    ///
    /// # Errors
    /// [`ReplaceError`] where the change would be refused as things stand.
    ///
    /// # Cancel safety
    /// Safe: it only looks.
    pub async fn survey(&self) -> Result<Vec<NodePart>, ReplaceError> {
        let found = self.visit(&|_, _| None, |_| true).await;
        self.allowed(&found)?;
        Ok(self.told(&found))
    }

    /// Carries the change out, or goes on with one that was interrupted. `tell` hears of every step.
    ///
    /// # Errors
    /// [`ReplaceError`]. Where a node that joins cannot be used, or a majority of the old set cannot be closed, nothing
    /// has been opened; what has been closed stays so, until the same is run again.
    ///
    /// # Cancel safety
    /// Dropping it leaves the change where it is, with nobody leading; run the same again to finish it.
    pub async fn run(&self, mut tell: impl FnMut(Progress)) -> Result<Vec<NodePart>, ReplaceError> {
        let found = self.visit(&|_, _| None, |_| true).await;
        self.allowed(&found)?;
        let over = self.close(found, &mut tell).await?;
        self.wait(over, &mut tell).await;
        self.open(&mut tell).await
    }

    /// Closes what is not, the nodes that join first: a worker that was too early must not have them while the old
    /// set still stands. Gives when the wait is over.
    async fn close(&self, found: Sights, tell: &mut impl FnMut(Progress)) -> Result<BootTime, ReplaceError> {
        let mut over = self.env.now();
        // Nodes that the new workers have already are left alone once the old set is shut: they were opened.
        let shut = self.shut(&found) >= self.change.old_majority();
        let mut found = found;
        for part in [Part::Joins, Part::Stays, Part::Leaves] {
            for attempt in 0..TRIES {
                let decide = |part, sight: &Sight| self.change.closing(sight, part, shut);
                let again = self.visit(&decide, |other| other == part).await;
                for (at, sight) in again.into_iter().enumerate().filter(|(at, _)| self.parts[*at] == part) {
                    found[at] = sight;
                }
                let done = |at: usize| self.parts[at] != part || found[at].is_ok();
                if (0..found.len()).all(done) {
                    break;
                }
                if attempt + 1 < TRIES {
                    self.env.sleep(TRY_AGAIN).await;
                }
            }
            for (at, sight) in found.iter().enumerate().filter(|(at, _)| self.parts[*at] == part) {
                match sight {
                    Ok(sight) => {
                        over = over.max(self.env.now() + self.change.remaining(sight));
                        if matches!(self.change.judge(sight, part), Ok(Move::Closed)) {
                            tell(Progress::Closed(self.nodes.name(at)));
                        }
                    }
                    Err(cause) => tell(Progress::Left(self.nodes.name(at), cause.clone())),
                }
            }
            self.joined(&found)?;
        }
        self.change.enough_shut(self.shut(&found), self.told(&found))?;
        Ok(over)
    }

    async fn wait(&self, over: BootTime, tell: &mut impl FnMut(Progress)) {
        let left = self.env.now().until(over);
        if !left.is_zero() {
            tell(Progress::Waiting(left));
            self.env.sleep_until(over).await;
        }
    }

    /// Opens every node of the new set that has waited.
    async fn open(&self, tell: &mut impl FnMut(Progress)) -> Result<Vec<NodePart>, ReplaceError> {
        let mut found = Vec::new();
        let mut told = BTreeSet::new();
        for attempt in 0..TRIES {
            found = self.visit(&|part, sight| self.change.opening(sight, part), |_| true).await;
            for (at, sight) in found.iter().enumerate() {
                let opened = sight.as_ref().is_ok_and(|sight| self.is_open(at, sight));
                if opened && told.insert(at) {
                    tell(Progress::Opened(self.nodes.name(at)));
                }
            }
            if told.len() == self.parts.iter().filter(|part| **part != Part::Leaves).count() {
                break;
            }
            if attempt + 1 < TRIES {
                self.env.sleep(TRY_AGAIN).await;
            }
        }
        let parts = self.told(&found);
        if told.len() >= self.change.new_majority() {
            Ok(parts)
        } else {
            Err(ReplaceError::NotOpened { parts })
        }
    }

    /// Whether the change may be begun, or gone on with, as the nodes were found.
    fn allowed(&self, found: &Sights) -> Result<(), ReplaceError> {
        for (at, sight) in found.iter().enumerate() {
            let Ok(sight) = sight else { continue };
            match self.change.judge(sight, self.parts[at]) {
                // It leaves: if enough others can be closed, it may be what it is.
                Err(bar) if self.parts[at] == Part::Leaves && bar.is_the_node_s_own() => {}
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
        self.joined(found)?;
        let may_be_closed = |at: usize, sight: &Sight| self.change.judge(sight, self.parts[at]).is_ok();
        let old = |at: &usize| {
            self.parts[*at] != Part::Joins && found[*at].as_ref().is_ok_and(|sight| may_be_closed(*at, sight))
        };
        self.change.enough_shut((0..found.len()).filter(old).count(), self.told(found))
    }

    /// Every node that joins has been reached; or was closed before the old set was, in an earlier run.
    fn joined(&self, found: &Sights) -> Result<(), ReplaceError> {
        if self.shut(found) >= self.change.old_majority() {
            return Ok(());
        }
        let away = found.iter().enumerate().find_map(|(at, sight)| match sight {
            Err(cause) if self.parts[at] == Part::Joins => Some((self.nodes.name(at), cause.clone())),
            _ => None,
        });
        away.map_or(Ok(()), |(node, cause)| Err(ReplaceError::NewNodeAway { node, cause }))
    }

    /// How many nodes of the old set no worker with the old list can vote by.
    fn shut(&self, found: &Sights) -> usize {
        let shut = |(at, sight): &(usize, &Result<Sight, Cause>)| {
            self.parts[*at] != Part::Joins && sight.as_ref().is_ok_and(|sight| self.change.is_shut(sight))
        };
        found.iter().enumerate().filter(shut).count()
    }

    fn is_open(&self, at: usize, sight: &Sight) -> bool {
        matches!(self.change.judge(sight, self.parts[at]), Ok(Move::Opened))
    }

    fn told(&self, found: &Sights) -> Vec<NodePart> {
        let told = |(at, sight): (usize, &Result<Sight, Cause>)| {
            let found = sight.as_ref().map(|sight| self.change.found(sight)).map_err(Clone::clone);
            NodePart { name: self.nodes.name(at), part: self.parts[at], found }
        };
        found.iter().enumerate().map(told).collect()
    }

    /// Meets the nodes that `which` picks, writes the marker that `decide` gives for each, and gives how it then stands.
    async fn visit(
        &self,
        decide: &(impl Fn(Part, &Sight) -> Option<Marker> + Sync),
        which: impl Fn(Part) -> bool,
    ) -> Sights {
        let visits = self.parts.iter().enumerate().map(|(at, &part)| {
            let picked = which(part);
            async move {
                if !picked {
                    return Err(Cause::Stopped);
                }
                self.nodes.visit(at, &self.env, PATIENCE, &|sight| decide(part, sight)).await
            }
        });
        join_all(visits).await
    }
}

/// How each node was found, in their order.
type Sights = Vec<Result<Sight, Cause>>;

/// How many of `nodes` are a majority.
fn majority_of(nodes: &[Arc<str>]) -> usize {
    majority(nodes.len())
}
