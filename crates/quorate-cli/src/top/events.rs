//! The events of the live view: the differences between what the nodes reported before and now.

use crate::{jobs::tone, status::NodeLine, terminal::Tone};
use quorate::env::WallTime;
use quorate_operator::{
    state::Leadership,
    view::{JobView, RunEnd},
};
use std::collections::BTreeMap;

/// An event.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Event {
    /// The time at which this process noticed it.
    pub(super) at: WallTime,
    pub(super) text: String,
    pub(super) tone: Tone,
}

/// Describes the changes of the nodes.
pub(super) fn of_nodes(before: &[NodeLine], after: &[NodeLine]) -> Vec<(String, Tone)> {
    let mut events = Vec::new();
    for node in after {
        let Some(old) = before.iter().find(|old| old.node.name == node.node.name) else { continue };
        // The text of a state may contain a time that changes all the while, so only its kind is compared.
        let (state, tone) = node.state();
        if (old.node.votes, old.state().1) != (node.node.votes, tone) {
            events.push((format!("{}: {state}", node.node.name), tone));
        }
    }
    events
}

/// Describes the change of the leader.
pub(super) fn of_leader(before: &Leadership, after: &Leadership) -> Option<(String, Tone)> {
    fn key(leadership: &Leadership) -> Option<(&str, Option<u64>)> {
        match leadership {
            Leadership::Leader { leader, .. } => Some((&leader.worker, leader.term)),
            Leadership::Vacant { .. } | Leadership::Unknown => None,
        }
    }
    if key(before) == key(after) {
        return None;
    }
    Some(match key(after) {
        Some((worker, Some(term))) => (format!("{worker} leads (term {term})"), Tone::Plain),
        Some((worker, None)) => (format!("{worker} leads"), Tone::Plain),
        None => ("no worker leads".to_owned(), Tone::Trouble),
    })
}

/// Describes the changes of the jobs. Runs that ended before `since` are none: their histories may only have been read now.
pub(super) fn of_jobs(before: &[JobView], after: &[JobView], since: WallTime) -> Vec<(String, Tone)> {
    let mut events = Vec::new();
    let mut gone: BTreeMap<&str, &JobView> = before.iter().map(|job| (&*job.name, job)).collect();
    for job in after {
        match gone.remove(&*job.name) {
            None => events.push((format!("{}: registered", job.shown()), Tone::Plain)),
            Some(old) => of_job(old, job, since, &mut events),
        }
    }
    let gone = before.iter().filter(|job| gone.contains_key(&*job.name));
    events.extend(gone.map(|job| (format!("{}: removed", job.shown()), Tone::Caution)));
    events
}

fn of_job(old: &JobView, job: &JobView, since: WallTime, events: &mut Vec<(String, Tone)>) {
    let name = job.shown();
    for run in &job.running {
        if !old.running.iter().any(|known| (known.tick, known.term) == (run.tick, run.term)) {
            events.push((
                format!("{name}: run of {} began on {}", job.zone.rfc3339(run.tick), run.worker),
                Tone::Plain,
            ));
        }
    }
    // The newest outcome is the first.
    for end in job.ends.iter().rev().filter(|end| end.ended() >= since) {
        let key = |end: &RunEnd| (end.tick, end.outcome, end.request.clone());
        if !old.ends.iter().any(|known| key(known) == key(end)) {
            events.push((format!("{name}: {}", end.line(&job.zone)), tone(end)));
        }
    }
    match (&old.paused, &job.paused) {
        (None, Some(paused)) => {
            let reason = paused.reason.as_ref().map_or_else(String::new, |reason| format!(": {reason}"));
            events.push((format!("{name}: paused by {}{reason}", paused.by), Tone::Caution));
        }
        (Some(_), None) => events.push((format!("{name}: resumed"), Tone::Plain)),
        _ => {}
    }
}
