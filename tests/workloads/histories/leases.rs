use super::{belief::Belief, moment, process};
use crate::{
    harness::{Entry, Event, Truth},
    work::shards::SHARD,
};
use quorate::env::BootTime;
use quorate_testkit::history::{Findings, History, Limits, Lock, LockCall, Moment, Operation};
use quorate_tests::support::Who;
use std::{collections::BTreeMap, sync::Arc};

/// The leases and terms of workers, whose names do not begin with `claim/`: no two workers believe in one at the same
/// time, and their fencing tokens are unique and grow in the order of the grants.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    history: History<Lock>,
    held: BTreeMap<(Arc<str>, u64), Belief>,
    /// The ends of leases whose latest moment is not known yet.
    ending: Vec<Ending>,
}

#[derive(Clone, Debug)]
struct Ending {
    who: Who,
    resource: Arc<str>,
    call: LockCall,
    from: BootTime,
}

impl Leases {
    pub(crate) fn on_event(&mut self, who: Who, entry: &Entry, truth: &Truth) {
        let at = entry.at();
        match &entry.event {
            Event::Ready => self.ended_before(who, at, truth),
            Event::Acquired { resource, token, requested, until } if !resource.starts_with("claim/") => {
                let requested = if *requested == 0 { at } else { BootTime::from_nanos(*requested).min(at) };
                self.released_before(who, resource, requested);
                let call = LockCall::Acquired { token: *token };
                let operation = Operation::during(&process(who), call, moment(requested), moment(at));
                self.history.push(resource, operation);
                let belief = Belief::acquired(who, requested, at, BootTime::from_nanos(*until));
                self.held.insert((Arc::clone(resource), *token), belief);
            }
            Event::Valid { resource, token, until } => {
                if let Some(belief) = self.held.get_mut(&(Arc::clone(resource), *token)) {
                    belief.is_valid(at, BootTime::from_nanos(*until));
                }
            }
            // The worker ends the lease some time after this line.
            Event::Releasing { resource, token }
                if self.held.remove(&(Arc::clone(resource), *token)).is_some() =>
            {
                let call = LockCall::Released { token: *token };
                self.ending.push(Ending { who, resource: Arc::clone(resource), call, from: at });
            }
            Event::Ended { resource, token } => {
                if let Some(belief) = self.held.remove(&(Arc::clone(resource), *token)) {
                    let (call, last) = (LockCall::Expired { token: *token }, belief.lasted(truth, at));
                    let ended = Operation::during(&process(who), call, moment(last), moment(at));
                    self.history.push(resource, ended);
                }
            }
            _ => {}
        }
    }

    /// Checks the history, after all lines have arrived.
    pub(crate) fn finish(mut self, now: BootTime, truth: &Truth) -> Findings {
        self.close(|_| true, now, None, truth);
        self.history.check(&Limits::default())
    }

    /// Notes that the earlier processes of this worker ended before `at`.
    fn ended_before(&mut self, who: Who, at: BootTime, truth: &Truth) {
        self.close(|of| of.member == who.member && of.run < who.run, at, Some(moment(at)), truth);
    }

    /// Notes that a worker, which holds one lease of a kind at a time, had released the one before.
    fn released_before(&mut self, who: Who, resource: &str, at: BootTime) {
        let kind = kind(resource);
        let mut over = Vec::new();
        self.ending.retain(|ending| {
            let ends = ending.who == who && self::kind(&ending.resource) == kind;
            if ends {
                over.push(ending.clone());
            }
            !ends
        });
        over.into_iter().for_each(|ending| self.push(&ending, Some(moment(at.max(ending.from)))));
    }

    /// Ends the leases of processes that had ended by `now`, at `end` or earlier.
    fn close(&mut self, over: impl Fn(Who) -> bool, now: BootTime, end: Option<Moment>, truth: &Truth) {
        let all = std::mem::take(&mut self.held).into_iter();
        let (held, rest): (BTreeMap<_, _>, _) = all.partition(|(_, belief)| over(belief.who));
        self.held = rest;
        for ((resource, token), belief) in held {
            let (call, from) = (LockCall::Expired { token }, belief.lasted(truth, now));
            self.ending.push(Ending { who: belief.who, resource, call, from });
        }
        let ending: Vec<_> = self.ending.extract_if(.., |ending| over(ending.who)).collect();
        ending.into_iter().for_each(|ending| self.push(&ending, end));
    }

    fn push(&mut self, ending: &Ending, at: Option<Moment>) {
        let end = at.map(|at| at.max(moment(ending.from)));
        let (process, call, begin) = (process(ending.who), ending.call, moment(ending.from));
        self.history.push(&ending.resource, Operation { process, call, begin, end });
    }
}

/// Returns the kind of a lease: a worker holds one lock at a time, one term, and each shard once.
fn kind(resource: &str) -> &str {
    match resource {
        shard if shard.starts_with(SHARD) => shard,
        term if term.starts_with("election/") => "term",
        _ => "lock",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{acquired, at, line, truth, valid, who};

    fn releasing(ms: u64, token: u64) -> Entry {
        line(ms, Event::Releasing { resource: "x".into(), token })
    }

    fn found(lines: &[(Who, Entry)]) -> Findings {
        found_with(&truth(), lines)
    }

    fn found_with(truth: &Truth, lines: &[(Who, Entry)]) -> Findings {
        let mut leases = Leases::default();
        lines.iter().for_each(|(who, entry)| leases.on_event(*who, entry, truth));
        let found = leases.finish(at(20_000), truth);
        assert!(found.undecided.is_empty(), "{found:?}");
        found
    }

    #[test]
    fn a_lease_that_is_seen_valid_after_the_next_grant_is_found() {
        let run = |last| {
            let first = [(who(0), acquired(1000, "x", 1, 3000)), (who(0), valid(last, "x", 1, 4000))];
            let second = [(who(1), acquired(2000, "x", 2, 4000)), (who(1), valid(2010, "x", 2, 4000))];
            found(&[first, second].concat()).violations.len()
        };
        assert_eq!((run(1990), run(2020)), (0, 1));
        let release = [(who(0), acquired(1000, "x", 1, 3000)), (who(0), releasing(2020, 1))];
        let next = [(who(1), acquired(2000, "x", 2, 4000))];
        assert_eq!(found(&[release.to_vec(), next.to_vec()].concat()).violations.len(), 1);
    }

    #[test]
    fn tokens_that_fall_are_found() {
        let run = |token| {
            let first = [(who(0), acquired(1000, "x", 5, 3000)), (who(0), releasing(1500, 5))];
            found(&[first.to_vec(), vec![(who(1), acquired(2000, "x", token, 4000))]].concat())
        };
        assert_eq!([6, 5, 4].map(|token| run(token).violations.len()), [0, 1, 1]);
        assert_eq!((run(6).operations, run(6).objects), (4, 1));
        let overtaken = [(who(1), acquired(1800, "x", 7, 4000)), (who(0), acquired(2000, "x", 5, 4000))];
        assert_eq!(found(&overtaken).violations.len(), 1, "the smaller token was acquired later");
        let [second, first] =
            [(who(1), acquired(1800, "x", 7, 4000)), (who(0), acquired(1000, "x", 5, 4000))];
        assert!(found(&[second, first]).violations.is_empty(), "in any order of the lines");
    }

    #[test]
    fn a_stopped_process_believes_until_its_validity_ends() {
        let mut truth = truth();
        truth.stopped(who(0), at(1050));
        truth.resumed(who(0), at(9000));
        let ended = line(9001, Event::Ended { resource: "x".into(), token: 1 });
        for end in [vec![], vec![(who(0), ended)]] {
            let next = |from| {
                let first = vec![(who(0), acquired(1000, "x", 1, 3000))];
                let second = vec![(who(1), acquired(from, "x", 2, 9000))];
                found_with(&truth, &[first, second, end.clone()].concat()).violations.len()
            };
            assert_eq!((next(2900), next(3001)), (1, 0));
        }
        let released = [
            (who(0), acquired(1000, "x", 1, 3000)),
            (who(0), releasing(1040, 1)),
            (who(1), acquired(2900, "x", 2, 9000)),
        ];
        assert!(found_with(&truth, &released).violations.is_empty(), "it was about to release the lease");
    }

    #[test]
    fn a_killed_process_holds_nothing_once_it_is_started_again() {
        let again = Who { run: 2, ..who(0) };
        let lines = |ready, token| {
            [
                (who(0), acquired(1000, "x", 1, 3000)),
                (who(0), valid(1200, "x", 1, 3000)),
                (again, line(ready, Event::Ready)),
                (again, acquired(4000, "x", token, 5000)),
            ]
        };
        assert!(found(&lines(3000, 2)).violations.is_empty());
        let all = [lines(3000, 2).to_vec(), vec![(who(1), acquired(4500, "x", 3, 9000))]].concat();
        assert!(found(&all).violations.is_empty(), "nothing is known of the second after 4000");
    }
}
