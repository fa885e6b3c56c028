//! Computes the summary from the journals of the workers and the records on the nodes, as a pure function.

use super::{
    journal::{Entry, Event, WorkerId},
    nodes::Nodes,
    settings::TICK_EVERY,
};
use quorate::env::{BootTime, WallTime};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// The input of the figures.
#[derive(Debug, Default)]
pub(crate) struct Evidence {
    /// All journals.
    pub(crate) entries: Vec<Entry>,
    /// The signals that ended leaders.
    pub(crate) signals: Vec<SentSignal>,
    /// The end of the time in which ticks are counted.
    pub(crate) until: WallTime,
    /// The ticks whose runs have no known end, by the job's history on the nodes, each with the term of the run.
    pub(crate) lost: BTreeMap<WallTime, u64>,
    /// The number of messages that were sent; their ids are `m-1`, `m-2` and so on.
    pub(crate) sent: usize,
    /// For each message that is done: the token of the done record on the nodes.
    pub(crate) done: BTreeMap<String, u64>,
}

/// A signal that ended a leader.
#[derive(Clone, Debug)]
pub(crate) struct SentSignal {
    /// The name, `KILL` or `TERM`.
    pub(crate) signal: &'static str,
    /// The worker that received the signal.
    pub(crate) to: WorkerId,
    pub(crate) at: BootTime,
}

/// The last lines of a demo, computed from the journals of its workers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Figures {
    pub(crate) failovers: Vec<Failover>,
    pub(crate) ticks: Ticks,
    pub(crate) messages: Messages,
}

/// The time from a signal to the next leader.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Failover {
    pub(crate) signal: &'static str,
    /// The time from the signal to the next worker's `elected`, in milliseconds. `None` if there was none.
    pub(crate) ms: Option<f64>,
}

/// The ticks of the job, from the first that started to the last that was due before the end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Ticks {
    pub(crate) due: usize,
    /// The number of due ticks whose handlers began.
    pub(crate) started: usize,
    /// The number of ticks whose handlers began more than once.
    pub(crate) started_twice: usize,
    /// The number of ticks that the SIGKILL interrupted: ticks that were recorded as started, or whose handler
    /// began, and that were never completed.
    pub(crate) interrupted: usize,
    /// The number of ticks that neither began nor were recorded as started by the worker that was killed.
    pub(crate) missed: usize,
}

/// The messages, each of which every worker was sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Messages {
    pub(crate) sent: usize,
    /// The number of messages that are done.
    pub(crate) processed: usize,
    /// The number of messages that were handled under more than one claim. A claim that the SIGKILL interrupted
    /// does not count.
    pub(crate) processed_twice: usize,
    /// The number of messages that the SIGKILL interrupted between the start and the done record. Another
    /// worker claims such a message later.
    pub(crate) interrupted: usize,
}

impl Figures {
    pub(crate) fn of(evidence: &Evidence) -> Self {
        let killed: BTreeSet<&WorkerId> =
            evidence.signals.iter().filter(|sent| sent.signal == "KILL").map(|sent| &sent.to).collect();
        Self {
            failovers: evidence.signals.iter().map(|sent| failover(sent, &evidence.entries)).collect(),
            ticks: ticks(evidence, &killed),
            messages: messages(evidence, &killed),
        }
    }

    /// Returns `true` if a leader followed each signal, at least one tick was due, and nothing was started
    /// twice, missed, processed twice or lost.
    pub(crate) fn is_clean(&self) -> bool {
        let Ticks { due, started_twice, missed, .. } = self.ticks;
        let Messages { sent, processed, processed_twice, .. } = self.messages;
        let led = self.failovers.iter().all(|failover| failover.ms.is_some());
        led && due > 0 && started_twice == 0 && missed == 0 && processed == sent && processed_twice == 0
    }

    pub(crate) fn to_json(&self, nodes: &Nodes) -> serde_json::Result<String> {
        #[derive(Serialize)]
        struct Page<'a> {
            nodes: &'a str,
            #[serde(flatten)]
            figures: &'a Figures,
        }
        serde_json::to_string(&Page { nodes: nodes.kind(), figures: self })
    }
}

fn failover(sent: &SentSignal, entries: &[Entry]) -> Failover {
    let elected = |entry: &&Entry| {
        matches!(entry.event, Event::Elected { .. }) && entry.at() > sent.at && entry.who != sent.to
    };
    let next = entries.iter().filter(elected).map(Entry::at).min();
    let ms = next.map(|at| (sent.at.until(at).as_secs_f64() * 1e4).round() / 10.0);
    Failover { signal: sent.signal, ms }
}

fn ticks(evidence: &Evidence, killed: &BTreeSet<&WorkerId>) -> Ticks {
    let mut started: BTreeMap<WallTime, Vec<&WorkerId>> = BTreeMap::new();
    let mut killed_terms = BTreeSet::new();
    for Entry { who, event, .. } in &evidence.entries {
        match event {
            Event::TickStart { tick } => {
                started.entry(WallTime::from_micros(*tick)).or_default().push(who);
            }
            Event::Elected { term } if killed.contains(who) => drop(killed_terms.insert(*term)),
            _ => {}
        }
    }
    let Some((&first, _)) = started.first_key_value() else { return Ticks::default() };
    let mut ticks = Ticks::default();
    let mut tick = first;
    while tick <= evidence.until {
        let starts = started.get(&tick).map_or(&[][..], Vec::as_slice);
        // Before a run, a worker writes a record on the nodes and then a line in its journal. A SIGKILL may fall
        // between the two, so a run may be lost without its line.
        let by_killed = evidence.lost.get(&tick).is_some_and(|term| killed_terms.contains(term));
        ticks.due += 1;
        ticks.started += usize::from(!starts.is_empty());
        ticks.started_twice += usize::from(starts.len() > 1);
        ticks.interrupted += usize::from(by_killed);
        ticks.missed += usize::from(starts.is_empty() && !by_killed);
        tick = tick + TICK_EVERY;
    }
    ticks
}

fn messages(evidence: &Evidence, killed: &BTreeSet<&WorkerId>) -> Messages {
    let mut begun: BTreeMap<&str, Vec<(&WorkerId, u64)>> = BTreeMap::new();
    for Entry { who, event, .. } in &evidence.entries {
        if let Event::MessageStart { id, token } = event {
            begun.entry(id).or_default().push((who, *token));
        }
    }
    let mut messages = Messages { sent: evidence.sent, ..Messages::default() };
    for id in (1..=evidence.sent).map(|n| format!("m-{n}")) {
        let handled = begun.get(&*id).map_or(&[][..], Vec::as_slice);
        let is_done = |token: u64| evidence.done.get(&id) == Some(&token);
        let cut = |(who, token): &&(&WorkerId, u64)| killed.contains(who) && !is_done(*token);
        let interrupted = handled.iter().filter(cut).count();
        messages.processed += usize::from(handled.iter().any(|(_, token)| is_done(*token)));
        messages.processed_twice += usize::from(handled.len() - interrupted > 1);
        messages.interrupted += usize::from(interrupted > 0);
    }
    messages
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(worker: &str) -> WorkerId {
        WorkerId { worker: worker.into(), run: 1 }
    }

    fn entry(ms: u64, worker: &str, event: Event) -> Entry {
        Entry { at: ms * 1_000_000, who: who(worker), event }
    }

    fn tick(n: u64) -> u64 {
        n * TICK_EVERY.as_micros() as u64
    }

    fn start(worker: &str, n: u64) -> Entry {
        entry(0, worker, Event::TickStart { tick: tick(n) })
    }

    fn ran(worker: &str, ticks: std::ops::RangeInclusive<u64>) -> Vec<Entry> {
        ticks.map(|n| start(worker, n)).collect()
    }

    fn begin(worker: &str, id: &str, token: u64) -> Entry {
        entry(0, worker, Event::MessageStart { id: id.into(), token })
    }

    /// Returns the evidence with one message, which these workers handled under tokens 1, 2 and so on. The done record
    /// has the token `done`.
    fn handled(workers: &[&str], done: Option<u64>) -> Evidence {
        let begun = workers.iter().zip(1..).map(|(worker, token)| begin(worker, "m-1", token)).collect();
        let entries = [ran("b", 4..=9), begun].concat();
        let done = done.map(|token| ("m-1".to_owned(), token)).into_iter().collect();
        Evidence { sent: 1, done, ..evidence(entries) }
    }

    fn killed(worker: &str, ms: u64) -> SentSignal {
        SentSignal { signal: "KILL", to: who(worker), at: BootTime::from_nanos(ms * 1_000_000) }
    }

    /// Returns journals in which ticks 4 to 9 are due, worker `a` leads term 1 and is killed, and worker `b`
    /// leads term 2.
    fn evidence(entries: Vec<Entry>) -> Evidence {
        let mut all =
            vec![entry(0, "a", Event::Elected { term: 1 }), entry(3100, "b", Event::Elected { term: 2 })];
        all.extend(entries);
        let until = WallTime::from_micros(tick(9) + 1);
        Evidence { entries: all, signals: vec![killed("a", 1000)], until, ..Evidence::default() }
    }

    #[test]
    fn a_failover_lasts_from_the_signal_to_the_next_worker_that_is_elected() {
        let figures = Figures::of(&evidence(Vec::new()));
        assert_eq!(figures.failovers, [Failover { signal: "KILL", ms: Some(2100.0) }]);
        let mut alone = evidence(Vec::new());
        alone.entries.pop();
        alone.entries.push(entry(1500, "a", Event::Elected { term: 3 }));
        assert_eq!(Figures::of(&alone).failovers[0].ms, None, "the killed worker does not count");
        // A process that is started again under the same name counts as another worker.
        alone.entries.push(Entry { who: WorkerId { run: 2, ..who("a") }, ..alone.entries[1].clone() });
        assert_eq!(Figures::of(&alone).failovers[0].ms, Some(500.0));
        assert!(!Figures::of(&evidence(Vec::new())).is_clean(), "nothing ran");
    }

    #[test]
    fn ticks_that_ran_once_are_clean() {
        let figures = Figures::of(&evidence([ran("a", 4..=6), ran("b", 7..=12)].concat()));
        assert_eq!(figures.ticks, Ticks { due: 6, started: 6, ..Ticks::default() });
        assert!(figures.is_clean());
    }

    #[test]
    fn a_tick_that_started_twice_or_never_is_counted() {
        let twice = Figures::of(&evidence([ran("a", 4..=7), ran("b", 7..=9)].concat()));
        assert_eq!(twice.ticks, Ticks { due: 6, started: 6, started_twice: 1, ..Ticks::default() });
        assert!(!twice.is_clean());
        let never = Figures::of(&evidence([ran("a", 4..=6), ran("b", 8..=9)].concat()));
        assert_eq!(never.ticks, Ticks { due: 6, started: 5, missed: 1, ..Ticks::default() });
        assert!(!never.is_clean());
        let stopped = Figures::of(&evidence(ran("a", 4..=6)));
        assert_eq!(stopped.ticks.missed, 3, "due, although no worker started a later one");
    }

    #[test]
    fn a_tick_that_the_kill_interrupted_is_not_missed() {
        let mut evidence = evidence([ran("a", 4..=6), ran("b", 8..=9)].concat());
        // Worker `a` was killed while it ran tick 6, and after it had recorded the start of tick 7.
        evidence.lost = [6, 7].map(|n| (WallTime::from_micros(tick(n)), 1)).into();
        let figures = Figures::of(&evidence);
        assert_eq!(figures.ticks, Ticks { due: 6, started: 5, interrupted: 2, ..Ticks::default() });
        assert!(figures.is_clean());
        // Now worker `b`, which was not killed, lost the run of tick 7. No kill explains this, so the tick counts as
        // missed.
        evidence.lost.insert(WallTime::from_micros(tick(7)), 2);
        assert_eq!(Figures::of(&evidence).ticks.missed, 1);
        evidence.lost.remove(&WallTime::from_micros(tick(7)));
        assert_eq!(Figures::of(&evidence).ticks.missed, 1);
    }

    #[test]
    fn a_message_is_processed_once_by_the_worker_that_claims_it() {
        let once = Figures::of(&handled(&["a"], Some(1)));
        assert_eq!(once.messages, Messages { sent: 1, processed: 1, ..Messages::default() });
        assert!(once.is_clean());
        let lost = Figures::of(&Evidence { sent: 2, ..handled(&["a"], Some(1)) });
        assert_eq!(lost.messages, Messages { sent: 2, processed: 1, ..Messages::default() });
        assert!(!lost.is_clean());
        let twice = Figures::of(&handled(&["a", "b"], Some(1)));
        assert_eq!(twice.messages.processed_twice, 1, "`a` was killed after it was done");
        assert!(!twice.is_clean());
    }

    #[test]
    fn only_a_message_that_the_kill_interrupted_may_be_handled_again() {
        let messages = |workers: &[&str], done| Figures::of(&handled(workers, done)).messages;
        let caught = Messages { sent: 1, processed: 1, processed_twice: 0, interrupted: 1 };
        assert_eq!(messages(&["a", "b"], Some(2)), caught);
        assert_eq!(messages(&["a"], None).interrupted, 1);
        assert_eq!(messages(&["c", "b"], Some(2)).processed_twice, 1, "`c` was not killed");
    }

    #[test]
    fn the_json_is_as_documented() {
        let figures = Figures::of(&Evidence { sent: 1, ..evidence(ran("a", 4..=9)) });
        assert_eq!(
            figures.to_json(&Nodes::Files).unwrap(),
            "{\"nodes\":\"file\",\"failovers\":[{\"signal\":\"KILL\",\"ms\":2100.0}],\"ticks\":{\"due\":6,\
             \"started\":6,\"started_twice\":0,\"interrupted\":0,\"missed\":0},\"messages\":{\"sent\":1,\
             \"processed\":0,\"processed_twice\":0,\"interrupted\":0}}"
        );
    }
}
