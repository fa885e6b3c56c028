//! The invariants that must hold in every run, one in each file. An invariant sees the true time and every event, and
//! does not influence the run.

mod attempt_log;
mod attempts;
mod backing;
mod claims;
mod closed_records;
mod dead_letters;
mod exclusion;
mod fair;
mod fencing;
mod finality;
mod freeze_rows;
mod freezes;
mod histories;
mod leftovers;
mod linear;
mod liveness;
mod memories;
mod node_sets;
mod order;
mod outcomes;
mod parsed;
mod payloads;
mod pool_log;
mod ranks;
mod readers;
mod release;
mod requests;
mod reservations;
mod rules;
mod runs;
mod shards;
mod slots;
mod step_down;
mod stored;
mod succession;
mod ticks;
mod transfers;

use super::Event;
use std::{fmt::Debug, time::Duration};

/// The number of servers that is a majority.
pub(super) const MAJORITY: usize = super::NODES / 2 + 1;

/// A statement that must be true at every moment.
pub trait Invariant: Debug + Send {
    /// Returns the invariant's name in a report.
    fn name(&self) -> &'static str;

    /// Returns `true` if the invariant does not depend on clocks. Such an invariant must hold however wrong the
    /// clocks are, as long as no server loses data.
    fn is_timeless(&self) -> bool {
        false
    }

    /// Returns the names of cases that the invariant has judged, each with the number of times. These counts
    /// are added to the coverage of a run. They show that the invariant judged cases of this kind, and did
    /// not excuse all of them.
    fn judged(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// Judges an event at the true time `now`.
    ///
    /// # Errors
    /// A description of the violation.
    fn see(&mut self, now: Duration, event: &Event<'_>) -> Result<(), String>;
}

/// Returns every invariant.
pub fn all() -> Vec<Box<dyn Invariant>> {
    vec![
        Box::new(exclusion::Exclusion),
        Box::new(backing::Backing),
        Box::<fencing::Fencing>::default(),
        Box::<order::Order>::default(),
        Box::<finality::Finality>::default(),
        Box::<step_down::StepDown>::default(),
        Box::new(succession::Succession),
        Box::<ranks::Ranks>::default(),
        Box::<ticks::Ticks>::default(),
        Box::<claims::Claims>::default(),
        Box::<attempts::Attempts>::default(),
        Box::<payloads::Payloads>::default(),
        Box::<dead_letters::DeadLetters>::default(),
        Box::<node_sets::NodeSets>::default(),
        Box::<runs::Runs>::default(),
        Box::<rules::Rules>::default(),
        Box::<requests::Requests>::default(),
        Box::<freezes::Freezes>::default(),
        Box::<histories::Histories>::default(),
        Box::<stored::StoredJobs>::default(),
        Box::<outcomes::Outcomes>::default(),
        Box::<release::Release>::default(),
        Box::<readers::Readers>::default(),
        Box::<fair::Fair>::default(),
        Box::<slots::Slots>::default(),
        Box::<shards::Shards>::default(),
        Box::<transfers::Transfers>::default(),
        Box::<reservations::Reservations>::default(),
        Box::new(liveness::Liveness),
        Box::new(leftovers::Leftovers::default()),
        Box::<linear::LockHistory>::default(),
        Box::<linear::RegisterHistory>::default(),
        Box::<linear::TickHistory>::default(),
        Box::<linear::RunHistory>::default(),
        Box::<linear::MessageHistory>::default(),
    ]
}

#[cfg(test)]
pub(super) fn belief(lease: u64, worker: &str, token: u64, valid: bool) -> super::Belief {
    super::Belief {
        lease,
        worker: worker.into(),
        resource: quorate::node::Resource::lock("x").unwrap(),
        token,
        valid,
        ending: !valid,
        asked_to_stop: !valid,
        backed_by: crate::sim::NODES,
        without_lease: Vec::new(),
        clock_stood: false,
        owner: Some(quorate::node::Owner::from_node(&format!("{worker}:{lease}"))),
        sent: Duration::ZERO,
        forced: super::Forced::default(),
        reads: false,
        awake_for: Some(Duration::from_secs(9)),
        nodes: super::NodeList::default(),
    }
}
