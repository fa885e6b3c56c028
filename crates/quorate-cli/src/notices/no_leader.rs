//! Watches whether there is a leader that can do its work. One of the workers that see none notifies the receivers.

use super::{hook::Notices, message::Message};
use crate::connect;
use quorate::{
    election::Election,
    env::{BootTime, WallTime},
    node::{FencingToken, Resource},
    quorum::Quorum,
};
use std::time::Duration;

/// The time between two checks.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(500);
/// The longest wait for the nodes' answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// The times without a leader, as this worker sees them. Pure.
#[derive(Debug, Default)]
pub(super) struct Absence {
    /// The beginning of the present time without a leader.
    since: Option<(BootTime, WallTime)>,
    reported: bool,
}

impl Absence {
    /// Notes whether there is a leader now. Returns the beginning of the time without one, once it has lasted for
    /// `after`.
    pub(super) fn look(
        &mut self,
        has_leader: bool,
        now: (BootTime, WallTime),
        after: Duration,
    ) -> Option<WallTime> {
        if has_leader {
            *self = Self::default();
            return None;
        }
        let (since, wall) = *self.since.get_or_insert(now);
        let is_due = !self.reported && since.until(now.0) >= after;
        self.reported |= is_due;
        is_due.then_some(wall)
    }

    /// Returns for how long there has been no leader. Returns `None` if there is one.
    pub(super) fn lasts(&self, now: BootTime) -> Option<Duration> {
        self.since.map(|(since, _)| since.until(now))
    }
}

/// Returns whether this worker knows a leader that can do its work. A leader whose writes the nodes refuse starts no run.
pub(super) fn has_leader(election: &Election) -> bool {
    election.impediment().is_none() && (election.is_leader() || election.leader().is_some())
}

/// Notifies the receivers whose `no_leader_after` is `after`, until the task is dropped. Each such time has a task of its
/// own, because a receiver that hangs must not delay the others' messages.
pub(super) async fn watch(quorum: Quorum, election: Election, notices: Notices, after: Duration) {
    let env = quorum.env().clone();
    let mut absence = Absence::default();
    loop {
        if let Some(since) = absence.look(has_leader(&election), (env.now(), env.wall()), after) {
            report(&quorum, &election, &notices, (since, after)).await;
        }
        env.sleep(LOOK_EVERY).await;
    }
}

/// Sends the message. The receivers' claims decide which worker sends it, because it has the same id on all of them.
async fn report(
    quorum: &Quorum,
    election: &Election,
    notices: &Notices,
    (since, after): (WallTime, Duration),
) {
    let env = quorum.env();
    let last = env.before(env.now() + ANSWER_WITHIN, last_term(quorum, notices.group())).await.flatten();
    let state = connect::leadership(quorum, election);
    let (id, reason) = match last {
        Some(term) => (term.to_string(), state),
        // Without a majority the workers cannot agree, so each of them sends a message of its own.
        None => {
            let id = format!("{}/{}", notices.worker(), since.as_micros());
            (id, format!("{state}; each worker reports it"))
        }
    };
    tracing::warn!("no leader since {since}, for {after:?}: {reason}");
    let message = Message::no_leader(notices.group(), notices.worker(), since, &id, &reason);
    notices.send_no_leader(after, &message).await;
}

/// Returns the fencing token of the last term; 0 if there was none. A new leader has a higher token, so the token
/// identifies the time without a leader.
async fn last_term(quorum: &Quorum, group: &str) -> Option<u64> {
    let resource = Resource::election(group).ok()?;
    let found = quorum.inspect(&resource).await.ok()?;
    Some(found.token.map_or(0, FencingToken::get))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_without_a_leader_is_reported_once_and_after_the_given_time() {
        let after = Duration::from_secs(10);
        let at = |seconds: u64| {
            let time = Duration::from_secs(seconds);
            (BootTime::default() + time, WallTime::from_micros(1_000_000) + time)
        };
        let mut absence = Absence::default();
        for (second, has_leader, reports) in [
            (0, false, None),
            (9, false, None),
            (10, false, Some(0)),
            (11, false, None),
            (500, false, None),
            (501, true, None),
            (502, false, None),
            (511, false, None),
            (512, false, Some(502)),
        ] {
            let since = reports.map(|since| at(since).1);
            assert_eq!(absence.look(has_leader, at(second), after), since, "second {second}");
        }
    }
}
