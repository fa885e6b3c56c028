//! What the histories tell, held against the journals.

use super::{
    account::Story,
    journal::Event,
    settings::{GROUP, HISTORY, JOBS, TICK_EVERY, plain_quorum},
};
use quorate::schedule::{Delivery, Jobs, TickEnd, TickHistory};
use quorate_tests::support::PATIENCE;
use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error,
    time::Duration,
};

/// The histories of all jobs, as any worker can read them.
///
/// # Errors
/// Where too few servers answer.
pub(crate) fn read(
    urls: &[String],
    ttl: Duration,
) -> Result<BTreeMap<String, Vec<TickHistory>>, Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let quorum = plain_quorum(urls, "reader", ttl)?;
        quorum.met(PATIENCE).await;
        let jobs = Jobs::new(&quorum, GROUP)?;
        let mut histories = BTreeMap::new();
        for kind in JOBS {
            let entries = jobs.history(kind.name, HISTORY * 2).await?;
            histories.insert(kind.name.to_owned(), entries);
        }
        quorum.close().await;
        Ok(histories)
    })
}

/// Where a history tells other things of the newest ticks of its job than the journals do, or lacks one of them: what a
/// fault kept its leader from writing the next one enters.
pub(crate) fn differences(story: &Story, histories: &BTreeMap<String, Vec<TickHistory>>) -> Vec<String> {
    let period = TICK_EVERY.as_micros() as u64;
    let newest = story.until.as_micros() / period * period;
    let mut found = Vec::new();
    for kind in JOBS {
        let entries = histories.get(kind.name).map(Vec::as_slice).unwrap_or_default();
        let told = Told::of(story, kind.name);
        let first = told.first.unwrap_or(newest);
        for tick in (0..HISTORY as u64).map(|back| newest - back * period).take_while(|tick| *tick >= first) {
            let of = |entry: &&TickHistory| {
                let until = entry.until.unwrap_or(entry.tick).as_micros();
                (entry.tick.as_micros()..=until).contains(&tick)
            };
            let ends: Vec<&TickHistory> = entries.iter().filter(of).collect();
            if let Some(why) = told.differs(kind.delivery, tick, &ends) {
                let told: Vec<String> = ends
                    .iter()
                    .map(|entry| format!("{} under {} ({})", entry.end, entry.term, entry.reason))
                    .collect();
                found.push(format!("history: {}: {tick}: {why}: it tells {told:?}", kind.name));
            }
        }
    }
    found
}

/// What the journals say of one job.
#[derive(Default)]
struct Told {
    first: Option<u64>,
    /// The terms under which a tick was started, and under which it came to its end.
    started: BTreeMap<u64, BTreeSet<u64>>,
    done: BTreeMap<u64, BTreeSet<u64>>,
    /// The terms that a change of the leader ended.
    brought_down: BTreeSet<u64>,
}

impl Told {
    fn of(story: &Story, name: &str) -> Self {
        let brought_down = story.changes.iter().map(|change| change.term).collect();
        let mut told = Self { brought_down, ..Self::default() };
        for (_, entry) in &story.lines {
            match &entry.event {
                Event::Start { job, tick, term, .. } if &**job == name => {
                    told.first = Some(told.first.map_or(*tick, |first| first.min(*tick)));
                    told.started.entry(*tick).or_default().insert(*term);
                }
                Event::Done { job, tick, term } if &**job == name => {
                    told.done.entry(*tick).or_default().insert(*term);
                }
                _ => {}
            }
        }
        told
    }

    fn differs(&self, delivery: Delivery, tick: u64, ends: &[&TickHistory]) -> Option<String> {
        let none = BTreeSet::new();
        let (started, done) =
            (self.started.get(&tick).unwrap_or(&none), self.done.get(&tick).unwrap_or(&none));
        if ends.is_empty() {
            return Some("in the dark: no entry".to_owned());
        }
        for entry in ends {
            let term = entry.term.get();
            match entry.end {
                TickEnd::Done if !done.contains(&term) => {
                    return Some(format!("no handler came to its end under {term}"));
                }
                // Its start may have been recorded, and the leader hit before the first word.
                TickEnd::Done if !started.contains(&term) => {
                    return Some(format!("nothing started under {term}"));
                }
                TickEnd::Failed | TickEnd::TimedOut | TickEnd::SkippedPaused | TickEnd::SkippedOverlap => {
                    return Some(format!("there is no such end here: {}", entry.end));
                }
                TickEnd::SkippedMisfire => return Some("nothing is misfired within the window".to_owned()),
                _ => {}
            }
        }
        if ends.iter().any(|entry| entry.end == TickEnd::Done) {
            return None;
        }
        if delivery == Delivery::AtLeastOnce {
            return Some("it is to run until it is done, and is not".to_owned());
        }
        // An end that came just before a fault was not recorded: it is lost then, with the term that it began under.
        let is_lost = |entry: &&&TickHistory| matches!(entry.end, TickEnd::Lost | TickEnd::Cancelled);
        match ends.iter().find(is_lost) {
            None => Some("neither done nor lost".to_owned()),
            Some(lost) if !self.brought_down.contains(&lost.term.get()) => {
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
        account::{Change, Kind},
        journal::Entry,
    };
    use quorate::{
        env::{BootTime, WallTime},
        node::FencingToken,
        schedule::TickCause,
    };
    use quorate_tests::support::Who;

    const TICK: u64 = 7_000_000;

    /// Each job's tick was started and done under term 4.
    fn story() -> Story {
        let mut story = Story { until: WallTime::from_micros(TICK), ..Story::default() };
        for kind in JOBS {
            let who = Who { member: 0, run: 1 };
            let job: std::sync::Arc<str> = kind.name.into();
            let start = Event::Start { job: job.clone(), tick: TICK, term: 4, made_up: false };
            story.lines.push((who, Entry { at: 1, event: start }));
            story.lines.push((who, Entry { at: 2, event: Event::Done { job, tick: TICK, term: 4 } }));
        }
        story
    }

    fn entry(name: &str, end: TickEnd, term: u64) -> TickHistory {
        TickHistory {
            job: name.into(),
            tick: WallTime::from_micros(TICK),
            until: None,
            cause: TickCause::Scheduled,
            end,
            reason: "".into(),
            worker: "w".into(),
            term: FencingToken::new(term),
            started: None,
            took: None,
            attempts: 1,
            output: None,
        }
    }

    fn found_of(story: &Story, name: &str, entries: &[TickHistory]) -> Vec<String> {
        let all = JOBS.iter().map(|kind| (kind.name.to_owned(), vec![entry(kind.name, TickEnd::Done, 4)]));
        let mut histories: BTreeMap<_, _> = all.collect();
        histories.insert(name.to_owned(), entries.to_vec());
        differences(story, &histories)
    }

    fn first_of(delivery: Delivery) -> &'static str {
        JOBS.iter().find(|kind| kind.delivery == delivery).unwrap().name
    }

    #[test]
    fn a_history_that_tells_other_things_is_found() {
        let name = JOBS[0].name;
        let found = |entries: &[TickHistory]| found_of(&story(), name, entries);
        assert_eq!(found(&[entry(name, TickEnd::Done, 4)]), Vec::<String>::new());
        for (entries, says) in [
            (vec![], "in the dark"),
            (vec![entry(name, TickEnd::Done, 5)], "under 5"),
            (vec![entry(name, TickEnd::Failed, 4)], "no such end"),
            (vec![entry(name, TickEnd::SkippedMisfire, 4)], "misfired"),
        ] {
            let found = found(&entries);
            assert!(found.len() == 1 && found[0].contains(says), "{found:?}");
        }
    }

    #[test]
    fn a_tick_is_lost_with_its_term_and_at_most_once_alone() {
        let brought_down = |term| {
            let who = Who { member: 0, run: 1 };
            let change = Change { kind: Kind::Killed, who, term, at: BootTime::from_nanos(3) };
            Story { changes: vec![change], ..story() }
        };
        let (most, least) = (first_of(Delivery::AtMostOnce), first_of(Delivery::AtLeastOnce));
        for end in [TickEnd::Lost, TickEnd::Cancelled] {
            let found = |story: &Story, name: &str| found_of(story, name, &[entry(name, end, 4)]);
            assert_eq!(found(&brought_down(4), most), Vec::<String>::new(), "the end was not recorded");
            for (story, name, says) in [
                (story(), most, "no change of the leader ended the term 4"),
                (brought_down(5), most, "no change of the leader ended the term 4"),
                (brought_down(4), least, "until it is done"),
            ] {
                let found = found(&story, name);
                assert!(found.len() == 1 && found[0].contains(says), "{found:?}");
            }
        }
    }
}
