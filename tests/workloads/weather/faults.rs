//! The faults of the plan `weather`.

use crate::{
    harness::{NodeFault, Split},
    soak::{
        FARTHEST,
        choice::{Action, Actions, Choice, Kind, Target},
        deck::Kinds,
    },
};
use std::time::Duration;

/// A step within the allowance of 200 ms, in milliseconds.
const NEAR: i64 = 150;
/// The shortest time for which a clock stays stepped.
const STEPPED: Duration = Duration::from_millis(4100);
/// The time from the beginning of an episode to a step beyond the allowance, in which nothing else happens.
const BEFORE_FAR_STEP: Duration = Duration::from_secs(5);

pub(crate) const WEATHER: Kinds = Kinds { kinds: &KINDS, twice: &[0, 3, 14, 15, 16], alone: &[26, 27] };

const KINDS: [Kind; 29] = [
    ("leader killed", |c| c.then(Action::Kill(Target::Leader), Action::StartWorkers)),
    ("leader terminated", |c| c.then(Action::Terminate(Target::Leader), Action::StartWorkers)),
    ("leader stopped", |c| c.then(Action::Stop(Target::Leader), Action::ResumeWorkers)),
    ("leader killed in a run", |c| vec![(c.at, Action::KillLeaderInRun)]),
    ("leader stopped in a run", |c| vec![(c.at, Action::StopLeaderInRun(c.until - c.at))]),
    ("worker killed", |c| {
        let worker = c.worker;
        c.then(Action::Kill(worker), Action::StartWorkers)
    }),
    ("worker stopped", |c| {
        let worker = c.worker;
        c.then(Action::Stop(worker), Action::ResumeWorkers)
    }),
    ("all workers stopped", |c| c.all_workers_stopped()),
    ("server restarted with its data", |c| c.one(NodeFault::Kill, NodeFault::Restart)),
    ("server restarted without its data", |c| c.one(NodeFault::Kill, NodeFault::RestartEmpty)),
    ("all servers restarted with their data", |c| c.all(NodeFault::Kill, Some(NodeFault::Restart))),
    ("majority of servers restarted without their data", |c| {
        c.majority(NodeFault::Kill, NodeFault::RestartEmpty)
    }),
    ("server stopped", |c| c.one(NodeFault::Stop, NodeFault::Resume)),
    ("majority of servers stopped", |c| c.majority(NodeFault::Stop, NodeFault::Resume)),
    ("network in halves", |c| halves(c, 100)),
    ("requests of workers cut off", |c| one_way(c, [true, false])),
    ("replies to workers cut off", |c| one_way(c, [false, true])),
    ("worker cut off from all servers", |c| {
        let workers = 1 << c.rng.index(c.workers);
        split(c, workers, u32::MAX, [true; 2], 100)
    }),
    ("server cut off from all workers", |c| {
        let nodes = 1 << c.node;
        split(c, u32::MAX, nodes, [true; 2], 100)
    }),
    ("packets lost", |mut c| {
        let loss = u8::try_from(c.rng.number(5..=40)).unwrap_or(5);
        let (workers, nodes) = masks(&mut c);
        split(c, workers, nodes, [true; 2], loss)
    }),
    ("slow network", |c| c.slow()),
    ("connections severed", |c| c.each(1, NodeFault::Sever, None)),
    ("server out of memory", |c| c.one(NodeFault::Fill, NodeFault::Empty)),
    ("majority of servers out of memory", |c| c.majority(NodeFault::Fill, NodeFault::Empty)),
    ("clocks stepped within the allowance", stepped_near),
    ("server replaced", |c| vec![(c.at, Action::Replace(c.node))]),
    ("clock stepped ahead beyond the allowance", |c| stepped_far(c, 1)),
    ("clock stepped back beyond the allowance", |c| stepped_far(c, -1)),
    ("server flushed", |c| c.each(1, NodeFault::Flush, None)),
];

/// Returns masks of some workers and some servers.
fn masks(c: &mut Choice<'_>) -> (u32, u32) {
    let mut mask = |count: usize| {
        let all = (1_u64 << count) - 1;
        u32::try_from(c.rng.number(1..=all)).unwrap_or(1)
    };
    (mask(c.workers), mask(c.nodes))
}

fn split(c: Choice<'_>, workers: u32, nodes: u32, directions: [bool; 2], loss: u8) -> Actions {
    let split = Split { workers, nodes, halves: false, directions, loss };
    c.then(Action::Split(split), Action::Join(split))
}

/// Splits the network so that each half has a worker and a server at least.
fn halves(c: Choice<'_>, loss: u8) -> Actions {
    let mut some = |count: usize| u32::try_from(c.rng.number(1..=(1 << count) - 2)).unwrap_or(1);
    let (workers, nodes) = (some(c.workers), some(c.nodes));
    let split = Split { workers, nodes, halves: true, directions: [true; 2], loss };
    c.then(Action::Split(split), Action::Join(split))
}

fn one_way(mut c: Choice<'_>, directions: [bool; 2]) -> Actions {
    let (workers, nodes) = masks(&mut c);
    split(c, workers, nodes, directions, 100)
}

/// Steps the clocks of some servers at one moment, each ahead or back.
fn stepped_near(mut c: Choice<'_>) -> Actions {
    let (_, nodes) = masks(&mut c);
    let until = c.until.max(c.at + STEPPED);
    let stepping = (0..c.nodes).filter(|node| nodes >> node & 1 == 1);
    let step = |node| {
        let ms = if c.rng.chance(500) { NEAR } else { -NEAR };
        let set = |ms| Action::Node(node, NodeFault::SetClock(ms));
        [(c.at, set(ms)), (until, set(0))]
    };
    stepping.flat_map(step).collect()
}

/// Steps the clocks of one or two servers at one moment, beyond the allowance.
fn stepped_far(c: Choice<'_>, sign: i64) -> Actions {
    let (at, until) = (BEFORE_FAR_STEP + c.at, BEFORE_FAR_STEP + c.until.max(c.at + STEPPED) + STEPPED);
    let farthest = u64::try_from(FARTHEST.as_millis()).unwrap_or(500);
    let ms = sign * i64::try_from(c.rng.number(500..=farthest)).unwrap_or(500);
    let count = c.rng.index(2) + 1;
    let step = |n: usize| {
        let set = |ms| Action::Node((c.node + n) % c.nodes, NodeFault::SetClock(ms));
        [(at, set(ms)), (until, set(0))]
    };
    (0..count).flat_map(step).collect()
}
