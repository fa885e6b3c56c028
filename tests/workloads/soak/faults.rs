//! The faults of the soak test.

use super::{
    choice::{Action, Kind, Target},
    deck::Kinds,
};
use crate::harness::NodeFault;
use quorate_testkit::proxy::Directions;

const KINDS: [Kind; 23] = [
    ("leader killed", |c| c.then(Action::Kill(Target::Leader), Action::StartWorkers)),
    ("leader terminated", |c| c.then(Action::Terminate(Target::Leader), Action::StartWorkers)),
    ("leader stopped", |c| c.then(Action::Stop(Target::Leader), Action::ResumeWorkers)),
    ("leader killed in a run", |c| vec![(c.at, Action::KillLeaderInRun)]),
    ("leader stopped in a run", |c| vec![(c.at, Action::StopLeaderInRun(c.until - c.at))]),
    ("holders stopped, then all servers flushed", |c| c.holders_stopped_all_flushed()),
    ("worker killed", |c| {
        let worker = c.worker;
        c.then(Action::Kill(worker), Action::StartWorkers)
    }),
    ("worker terminated", |c| {
        let worker = c.worker;
        c.then(Action::Terminate(worker), Action::StartWorkers)
    }),
    ("worker stopped", |c| {
        let worker = c.worker;
        c.then(Action::Stop(worker), Action::ResumeWorkers)
    }),
    ("all workers stopped", |c| c.all_workers_stopped()),
    ("server killed and restarted", |c| c.one(NodeFault::Kill, NodeFault::Restart)),
    ("server stopped", |c| c.one(NodeFault::Stop, NodeFault::Resume)),
    ("server flushed", |c| c.each(1, NodeFault::Flush, None)),
    ("all servers flushed", |c| c.all(NodeFault::Flush, None)),
    ("majority of servers stopped", |c| c.majority(NodeFault::Stop, NodeFault::Resume)),
    ("majority of servers killed", |c| c.majority(NodeFault::Kill, NodeFault::Restart)),
    ("requests cut off", |c| c.one(NodeFault::Cut(Directions::There), NodeFault::Heal)),
    ("replies cut off", |c| c.one(NodeFault::Cut(Directions::Back), NodeFault::Heal)),
    ("server cut off", |c| c.one(NodeFault::Cut(Directions::Both), NodeFault::Heal)),
    ("majority of servers cut off", |c| c.majority(NodeFault::Cut(Directions::Both), NodeFault::Heal)),
    ("slow network", |c| c.slow()),
    ("connections severed", |c| c.each(1, NodeFault::Sever, None)),
    ("connection severed within a reply", |c| c.reply_cut()),
];

/// The faults of the soak test. Those that kill the leader are twice in the deck, because most checks are about the end of a
/// leader.
pub(crate) const SOAK: Kinds = Kinds { kinds: &KINDS, twice: &[0, 3], alone: &[] };
