//! Snapshots for the tests of the pages.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::{
    state::{JobsView, Leadership, SeenNode, Snapshot},
    view::{ActiveRun, JobView, LeaderView, NodeView, Pause, RunEnd, Vote},
};
use quorate::{
    env::WallTime,
    ledger::{CopyAtNode, CopyState, LedgerCopies},
    scheduler::{Placement, RunOutcome},
};
use std::{sync::Arc, time::Duration};

/// 2026-11-22 02:12:40 UTC.
pub const NOW: WallTime = WallTime::from_micros(1_795_313_560_000_000);

pub fn before(seconds: u64) -> WallTime {
    WallTime::from_micros(NOW.as_micros() - seconds * 1_000_000)
}

/// Returns a group that is well: so many nodes, a leader, and three jobs.
pub fn state(nodes: usize) -> Snapshot {
    Snapshot {
        shards: Arc::default(),
        at: NOW,
        group: "billing".into(),
        worker: "ops1-2291".into(),
        nodes: (0..nodes).map(node).collect(),
        leadership: Leadership::Leader {
            leader: LeaderView {
                worker: "ops3-1874".to_owned(),
                term: Some(7),
                remaining: Some(Duration::from_millis(7_900)),
            },
            since: before(249),
        },
        unread_leader: None,
        ttl: Some(Duration::from_secs(10)),
        jobs: Some(jobs(3).into()),
        examination: None,
        leases: None,
    }
}

fn node(index: usize) -> SeenNode {
    let node = NodeView {
        name: format!("redis://redis-{index}:6379/0"),
        reachable: true,
        votes: true,
        reason: None,
        votes_in: None,
        version: Some("7.0.15".to_owned()),
        round_trip: Some(Duration::from_micros(800)),
        round_trip_p99: Some(Duration::from_micros(1_900)),
        vote: Vote::Votes,
    };
    SeenNode {
        node,
        votes_at: None,
        since: before(3_600),
        trips: vec![Duration::from_micros(700), Duration::from_micros(800)],
    }
}

pub fn jobs(count: usize) -> JobsView {
    JobsView {
        list: (0..count).map(|at| job(&format!("job-{at}"))).collect(),
        read_at: Some(NOW),
        ..JobsView::default()
    }
}

pub fn job(name: &str) -> JobView {
    JobView {
        group: "billing".into(),
        name: name.into(),
        zone: quorate::scheduler::Zone::UTC,
        schedule: "0 3 * * * (Europe/Kyiv)".to_owned(),
        rules: "misfire run-once within 1h".to_owned(),
        placement: Placement::Leader,
        registered: before(86_400),
        paused: None,
        frozen: false,
        freeze: None,
        expect_within: None,
        overdue: None,
        failing: None,
        unsent: Vec::new(),
        stored: None,
        waits_for: None,
        next: Some(WallTime::from_micros(NOW.as_micros() + 600_000_000)),
        running: Vec::new(),
        ends: vec![end(RunOutcome::Done, 86_400)],
    }
}

pub fn end(outcome: RunOutcome, seconds_ago: u64) -> RunEnd {
    RunEnd {
        tick: before(seconds_ago),
        outcome,
        until: None,
        cause: "scheduled".to_owned(),
        request: None,
        reason: if outcome == RunOutcome::Done { String::new() } else { "exit status 3".to_owned() },
        worker: "ops2-4411".to_owned(),
        term: 7,
        late: None,
        started: Some(before(seconds_ago)),
        took: Some(Duration::from_secs(29)),
        attempts: 1,
        last_error: None,
        output: None,
    }
}

pub fn active(tick: WallTime) -> ActiveRun {
    ActiveRun { tick, request: None, worker: "ops3-1874".to_owned(), term: 7, orphaned: false }
}

/// Returns the jobs of a snapshot, to change them.
pub fn copies(state: &mut Snapshot, states: &[CopyState]) {
    let names: Vec<_> = state.nodes.iter().map(|node| node.name.as_str().into()).collect();
    let copies = names.into_iter().zip(states).map(|(node, state)| CopyAtNode { node, state: *state });
    jobs_of(state).copies = Some(LedgerCopies::new(copies));
}

pub fn jobs_of(state: &mut Snapshot) -> &mut JobsView {
    Arc::make_mut(state.jobs.as_mut().unwrap())
}

fn with(state: &mut Snapshot, job: usize) -> &mut JobView {
    &mut jobs_of(state).list[job]
}

/// Freezes the group.
pub fn freeze(state: &mut Snapshot) {
    let until = WallTime::from_micros(NOW.as_micros() + 3_600_000_000);
    let reason = Some("a migration".to_owned());
    let freeze = Pause { at: before(120), by: "ada@ops2".to_owned(), reason, until: Some(until) };
    let jobs = jobs_of(state);
    jobs.list.iter_mut().for_each(|job| (job.frozen, job.freeze) = (true, Some(freeze.clone())));
    jobs.freeze = Some(freeze);
}

pub fn fail(state: &mut Snapshot, job: usize) {
    with(state, job).ends.insert(0, end(RunOutcome::Failed, 60));
}

pub fn start(state: &mut Snapshot, job: usize) {
    with(state, job).running = vec![active(before(2))];
}

pub fn pause(state: &mut Snapshot, job: usize) {
    with(state, job).paused = Some(Pause {
        at: before(600),
        by: "oncall@ops1".to_owned(),
        reason: Some("disk full".to_owned()),
        until: None,
    });
}
