//! Compares the histories of the jobs with the journals.

use super::account::Story;
use crate::{
    harness::{Assignment, Event, block_on},
    work::lead::{GROUP, GUARANTEES, HISTORY, TICK_EVERY},
};
use quorate::scheduler::{Delivery, HistoryEntry, Jobs, RunOutcome};
use quorate_tests::support::PATIENCE;
use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error,
};

/// Reads the histories of all jobs, as any worker can.
///
/// # Errors
/// If too few servers answer.
pub(super) fn read(reader: &Assignment) -> Result<BTreeMap<String, Vec<HistoryEntry>>, Box<dyn Error>> {
    block_on(async {
        let quorum = reader.quorum()?;
        quorum.met(PATIENCE).await;
        let jobs = Jobs::new(&quorum, GROUP)?;
        let mut histories = BTreeMap::new();
        for kind in GUARANTEES {
            let entries = jobs.history(kind.name, HISTORY * 2).await?;
            histories.insert(kind.name.to_owned(), entries);
        }
        quorum.close().await;
        Ok(histories)
    })
}

/// Compares the newest ticks of each job with the job's history. Returns a violation for each tick that is
/// missing in the history, or whose entry differs from the journals. If a fault kept a leader from writing an
/// entry, the next leader must have written that entry.
pub(super) fn differences(story: &Story, histories: &BTreeMap<String, Vec<HistoryEntry>>) -> Vec<String> {
    let period = TICK_EVERY.as_micros() as u64;
    let newest = story.until.as_micros() / period * period;
    let mut found = Vec::new();
    for kind in GUARANTEES {
        let entries = histories.get(kind.name).map(Vec::as_slice).unwrap_or_default();
        let journal = JobJournal::of(story, kind.name);
        let first = journal.first.unwrap_or(newest);
        for tick in (0..HISTORY as u64).map(|back| newest - back * period).take_while(|tick| *tick >= first) {
            let of = |entry: &&HistoryEntry| {
                let until = entry.until.unwrap_or(entry.tick).as_micros();
                (entry.tick.as_micros()..=until).contains(&tick)
            };
            let ends: Vec<&HistoryEntry> = entries.iter().filter(of).collect();
            if let Some(why) = journal.difference(kind.delivery, tick, &ends) {
                let entry =
                    |entry: &&HistoryEntry| format!("{} under {} ({})", entry.end, entry.term, entry.reason);
                let entries: Vec<String> = ends.iter().map(entry).collect();
                found.push(format!("history: {}: {tick}: {why}: it has {entries:?}", kind.name));
            }
        }
    }
    found
}

/// The events of one job, from all journals.
#[derive(Default)]
struct JobJournal {
    first: Option<u64>,
    /// For each tick, the terms under which it was started.
    started: BTreeMap<u64, BTreeSet<u64>>,
    /// For each tick, the terms under which a run of it was completed.
    done: BTreeMap<u64, BTreeSet<u64>>,
    /// The terms that ended with a change of the leader.
    ended: BTreeSet<u64>,
}

impl JobJournal {
    fn of(story: &Story, name: &str) -> Self {
        let ended = story.changes.iter().map(|change| change.term).collect();
        let mut journal = Self { ended, ..Self::default() };
        for (_, entry) in &story.lines {
            match &entry.event {
                Event::RunStarted { job, tick, term } if &**job == name => {
                    journal.first = Some(journal.first.map_or(*tick, |first| first.min(*tick)));
                    journal.started.entry(*tick).or_default().insert(*term);
                }
                Event::RunDone { job, tick, term } if &**job == name => {
                    journal.done.entry(*tick).or_default().insert(*term);
                }
                _ => {}
            }
        }
        journal
    }

    fn difference(&self, delivery: Delivery, tick: u64, ends: &[&HistoryEntry]) -> Option<String> {
        let none = BTreeSet::new();
        let (started, done) =
            (self.started.get(&tick).unwrap_or(&none), self.done.get(&tick).unwrap_or(&none));
        if ends.is_empty() {
            return Some("no entry".to_owned());
        }
        for entry in ends {
            let term = entry.term.get();
            match entry.end {
                RunOutcome::Done if !done.contains(&term) => {
                    return Some(format!("no run was done under {term}"));
                }
                RunOutcome::Done if !started.contains(&term) => {
                    return Some(format!("nothing started under {term}"));
                }
                RunOutcome::Failed
                | RunOutcome::TimedOut
                | RunOutcome::SkippedPaused
                | RunOutcome::SkippedFrozen
                | RunOutcome::SkippedOverlap => {
                    return Some(format!("there is no such end here: {}", entry.end));
                }
                RunOutcome::SkippedMisfire => {
                    return Some("no tick is misfired within the window".to_owned());
                }
                _ => {}
            }
        }
        if ends.iter().any(|entry| entry.end == RunOutcome::Done) {
            return None;
        }
        if delivery == Delivery::AtLeastOnce {
            return Some("it must run until it is done, and is not".to_owned());
        }
        // A fault may end the leader's term during a run, or between the end of the run and the record of this
        // end. In both cases the history shows the run as lost or cancelled, under the term in which it began.
        let is_lost = |entry: &&&HistoryEntry| matches!(entry.end, RunOutcome::Lost | RunOutcome::Cancelled);
        match ends.iter().find(is_lost) {
            None => Some("neither done nor lost".to_owned()),
            Some(lost) if !self.ended.contains(&lost.term.get()) => {
                Some(format!("no change of the leader ended the term {}", lost.term))
            }
            Some(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        checks::testing::{at, done, entered, started, who},
        guarantees::account::{Change, Kind},
    };
    use quorate::env::WallTime;

    const TICK: u64 = 7_000_000;

    /// Returns a story in which term 4 has started and completed one tick of each job.
    fn story() -> Story {
        let mut story = Story { until: WallTime::from_micros(TICK), ..Story::default() };
        for kind in GUARANTEES {
            story.lines.push((who(0), started(1, kind.name, TICK, 4)));
            story.lines.push((who(0), done(2, kind.name, TICK, 4)));
        }
        story
    }

    fn entry(name: &str, end: RunOutcome, term: u64) -> HistoryEntry {
        entered(name, end, term, WallTime::from_micros(TICK))
    }

    fn found_of(story: &Story, name: &str, entries: &[HistoryEntry]) -> Vec<String> {
        let all =
            GUARANTEES.iter().map(|kind| (kind.name.to_owned(), vec![entry(kind.name, RunOutcome::Done, 4)]));
        let mut histories: BTreeMap<_, _> = all.collect();
        histories.insert(name.to_owned(), entries.to_vec());
        differences(story, &histories)
    }

    fn first_of(delivery: Delivery) -> &'static str {
        GUARANTEES.iter().find(|kind| kind.delivery == delivery).unwrap().name
    }

    #[test]
    fn a_history_that_differs_from_the_journals_is_found() {
        let name = GUARANTEES[0].name;
        let found = |entries: &[HistoryEntry]| found_of(&story(), name, entries);
        assert_eq!(found(&[entry(name, RunOutcome::Done, 4)]), Vec::<String>::new());
        for (entries, says) in [
            (vec![], "no entry"),
            (vec![entry(name, RunOutcome::Done, 5)], "under 5"),
            (vec![entry(name, RunOutcome::Failed, 4)], "no such end"),
            (vec![entry(name, RunOutcome::SkippedMisfire, 4)], "misfired"),
        ] {
            let found = found(&entries);
            assert!(found.len() == 1 && found[0].contains(says), "{found:?}");
        }
    }

    #[test]
    fn only_an_at_most_once_tick_is_lost_and_only_with_its_term() {
        let ended = |term| {
            let change = Change { kind: Kind::Killed, who: who(0), term, at: at(3) };
            Story { changes: vec![change], ..story() }
        };
        let (most, least) = (first_of(Delivery::AtMostOnce), first_of(Delivery::AtLeastOnce));
        for end in [RunOutcome::Lost, RunOutcome::Cancelled] {
            let found = |story: &Story, name: &str| found_of(story, name, &[entry(name, end, 4)]);
            assert_eq!(found(&ended(4), most), Vec::<String>::new(), "the end was not recorded");
            for (story, name, says) in [
                (story(), most, "no change of the leader ended the term 4"),
                (ended(5), most, "no change of the leader ended the term 4"),
                (ended(4), least, "until it is done"),
            ] {
                let found = found(&story, name);
                assert!(found.len() == 1 && found[0].contains(says), "{found:?}");
            }
        }
    }
}
