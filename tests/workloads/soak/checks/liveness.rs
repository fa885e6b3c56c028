use super::Check;
use crate::{
    journal::{Entry, Event},
    settings::TERM,
    truth::Truth,
};
use quorate::env::BootTime;
use quorate_tests::support::Who;
use std::time::Duration;

/// Once nothing has been in the way for as long as stated (a majority of nodes votes, a worker runs, nobody was
/// disturbed), each kind of work goes on.
#[derive(Debug, Default)]
pub(crate) struct Liveness {
    last: [BootTime; 4],
    /// The calm in which each was found wanting: told once.
    told: [Option<BootTime>; 4],
    /// The last calm that was long enough to judge by, and how many there were.
    judged: (Option<BootTime>, usize),
}

impl Liveness {
    /// How many times of calm were long enough for every bound.
    pub(crate) fn calms(&self) -> usize {
        self.judged.1
    }
}

/// What must go on, and how long it may take. A crashed holder blocks others for its TTL of 2 s; the rest is for
/// a busy machine.
const KINDS: [(&str, Duration); 4] = [
    ("leader", Duration::from_secs(5)),
    ("lock granted", Duration::from_secs(5)),
    ("tick done", Duration::from_secs(7)),
    ("message done", Duration::from_secs(7)),
];

impl Check for Liveness {
    fn take(&mut self, _: Who, entry: &Entry, _: &Truth) -> Vec<String> {
        let kind = match &entry.event {
            Event::Held { res, .. } | Event::Look { res, .. } if &**res == TERM => 0,
            Event::Held { res, .. } if res.starts_with("lock-") => 1,
            Event::TickDone { .. } => 2,
            Event::Done { .. } => 3,
            _ => return Vec::new(),
        };
        self.last[kind] = self.last[kind].max(entry.at());
        Vec::new()
    }

    fn settle(&mut self, now: BootTime, truth: &Truth) -> Vec<String> {
        let Some(calm) = truth.calm_since() else { return Vec::new() };
        if KINDS.iter().all(|(_, bound)| calm.until(now) > *bound) && self.judged.0 != Some(calm) {
            self.judged = (Some(calm), self.judged.1 + 1);
        }
        let mut found = Vec::new();
        for (kind, (what, bound)) in KINDS.iter().enumerate() {
            let waited = self.last[kind].max(calm).until(now);
            if waited > *bound && self.told[kind] != Some(calm) {
                self.told[kind] = Some(calm);
                found.push(format!("liveness: no {what} for {waited:?}, though nothing is in the way"));
            }
        }
        found
    }

    fn watching(&self) -> usize {
        KINDS.len()
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::testing::{at, line, who},
        *,
    };

    #[test]
    fn standing_still_is_found_once_where_nothing_is_in_the_way() {
        let mut check = Liveness::default();
        let mut truth = Truth::default();
        truth.count(at(1000), 2, 4);
        assert!(check.settle(at(60_000), &truth).is_empty(), "no majority");
        truth.count(at(60_000), 3, 4);
        assert!(check.settle(at(64_000), &truth).is_empty(), "not yet");
        let leads = Event::Look { res: TERM.into(), token: 1, until: 0 };
        check.take(who(0), &line(64_500, leads), &truth);
        let found = check.settle(at(69_000), &truth);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(check.settle(at(69_100), &truth).is_empty(), "told before");
        assert_eq!(check.settle(at(70_000), &truth).len(), 1, "now the leader, too");
        truth.disturb(at(70_500));
        assert!(check.settle(at(71_000), &truth).is_empty());
        assert_eq!(check.settle(at(80_000), &truth).len(), 4);
        assert_eq!(check.calms(), 2);
    }
}
