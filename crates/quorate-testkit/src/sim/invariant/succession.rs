use super::{Event, Invariant, step_down::SOON};
use crate::sim::{Excuse, Working};
use std::time::Duration;

/// Requires that all work under earlier terms or claims of a resource has ended when another term or claim of
/// that resource begins. Such work is a run of a job, the leader's own work, or the handler of a message. By
/// then, the library must have dropped any work that did not stop.
///
/// The guarantee holds only for a process that runs. A process that is paused, or has only just been resumed,
/// has had no chance to end its work. A worker whose boot clock stood still is exempt until a majority has
/// extended its grant by a request that was sent while the clock ran.
#[derive(Debug)]
pub(super) struct Succession;

impl Invariant for Succession {
    fn name(&self) -> &'static str {
        "succession"
    }

    fn see(&mut self, _now: Duration, event: &Event<'_>) -> Result<(), String> {
        let Event::Succeeded { belief, working } = event else { return Ok(()) };
        // If a grant ended before its worker saw it, the worker does not begin a term or claim with it. If
        // the worker's clock stood still, the worker cannot know whether its grant has ended. Neither of
        // these grants is judged.
        let is_judged = |work: &&Working| {
            let awake = work.awake_for.is_some_and(|awake| awake > SOON);
            !(Excuse::SuccessionEnded.excuses(!belief.valid)
                || Excuse::SuccessionClock.excuses(belief.clock_stood)
                || Excuse::SuccessionPaused.excuses(!awake)
                || Excuse::SuccessionWorkClock.excuses(work.clock_stood))
        };
        match working.iter().find(is_judged) {
            Some(work) => Err(format!(
                "{} has {} under {}, and {} still does {} under {}",
                belief.worker, belief.resource, belief.token, work.worker, work.what, work.token
            )),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::belief, *};

    #[test]
    fn work_ends_before_the_next_holder_begins() {
        let see_by = |valid, awake_for, clock_stood| {
            let belief = belief(2, "b", 2, valid);
            let working =
                Working { worker: "a".into(), what: "a job".into(), token: 1, awake_for, clock_stood };
            Succession.see(Duration::ZERO, &Event::Succeeded { belief: &belief, working: &[working] })
        };
        let see = |valid, awake_for| see_by(valid, awake_for, false);
        assert!(see_by(true, Some(SOON * 2), true).is_ok(), "a worker whose clock stood still does not know");
        assert!(see(true, None).is_ok(), "a paused worker ends nothing");
        assert!(see(true, Some(SOON)).is_ok(), "a worker that has just resumed has had no turn");
        assert!(see(false, Some(SOON * 2)).is_ok(), "a grant that had ended before it was seen");
        assert!(see(true, Some(SOON * 2)).is_err());
        let nothing = Event::Succeeded { belief: &belief(2, "b", 2, true), working: &[] };
        assert!(Succession.see(Duration::ZERO, &nothing).is_ok());
    }
}
