//! From when on a job's ticks are due: a record of its own in the ledger, which must not be lost.
//!
//! # What is not guaranteed
//!
//! Where a majority of the nodes forget it between two terms, the job begins anew, and ticks before that are
//! made up by nobody.
//!
//! Without it a leader could not tell a tick that nobody ran from one before the job existed. So it is written
//! until a majority has it, for as long as the term lasts, and every leader brings it back to nodes that forgot
//! it; else one node's restart after the other would wear it down, and with it the ticks of a hand-over.

use super::plan::Sealed;
use crate::{
    election::Term,
    env::WallTime,
    ledger::{Ledger, LedgerError},
    node::{FencingToken, Record},
};
use std::{sync::Arc, time::Duration};

/// Between attempts to write without a majority.
const WRITE_AGAIN: Duration = Duration::from_millis(50);
/// And after many: a node that is out of memory stays so for a while.
const WRITE_AGAIN_MAX: Duration = Duration::from_secs(2);
/// The time of records that pruning never reaches: the largest that a node's Lua can compare.
const FOR_EVER: u64 = FencingToken::MAX.get();

/// A job's registration, as the seal found it or as this leader makes it.
#[derive(Debug)]
pub(super) struct Registration {
    key: Arc<str>,
    since: WallTime,
    /// The record that stands where one stands.
    seen: Option<Record>,
    everywhere: bool,
}

impl Registration {
    /// What the seal found of `job`; where it found nothing, the job begins `now`, or as soon as a majority can
    /// answer for its ticks. Of several the earliest counts: leaders that did not know of it wrote the others.
    pub(super) fn find(sealed: &Sealed, job: &str, now: WallTime) -> Self {
        let key: Arc<str> = format!("job/{job}").into();
        let found: Vec<Option<&Record>> = sealed.records(&key).collect();
        let earliest = found.iter().flatten().filter_map(|record| Some((begins(record)?, *record)));
        let earliest = earliest.min_by_key(|(since, record)| (*since, record.term));
        let everywhere = earliest.is_some_and(|(since, _)| {
            found.iter().all(|record| record.is_some_and(|record| begins(record) == Some(since)))
        });
        let since = earliest.map_or_else(|| sealed.begins(now), |(since, _)| since);
        let seen = earliest.map(|(_, record)| record.clone());
        Self { key, since, seen, everywhere }
    }

    /// The time before which none of the job's ticks is due.
    pub(super) fn since(&self) -> WallTime {
        self.since
    }

    /// Whether the ledger knew nothing of the job.
    pub(super) fn is_new(&self) -> bool {
        self.seen.is_none()
    }

    /// Whether every node that answered has it.
    pub(super) fn is_everywhere(&self) -> bool {
        self.everywhere
    }

    /// Writes it once, wherever nothing stands but what has been seen.
    ///
    /// # Errors
    /// As for [`Ledger::write`]; a record that stands in the way will be overwritten by the next attempt.
    pub(super) async fn write(&mut self, ledger: &Ledger, term: FencingToken) -> Result<(), LedgerError> {
        let value = self.since.as_micros().to_string().into();
        let record = Record { at: FOR_EVER, term, last: false, value };
        let written = ledger.write(&self.key, self.seen.as_ref(), &record).await;
        match &written {
            Ok(()) => self.everywhere = true,
            Err(LedgerError::Standing(other)) => {
                self.since = begins(other).map_or(self.since, |since| since.min(self.since));
                self.seen = Some(other.clone());
            }
            Err(_) => {}
        }
        written
    }

    /// Writes it until a majority has it, for as long as the term lasts.
    pub(super) async fn keep(mut self, ledger: Ledger, term: Term) {
        let mut pause = WRITE_AGAIN;
        loop {
            match self.write(&ledger, term.number()).await {
                Ok(()) => return,
                Err(LedgerError::NoMajority(_) | LedgerError::Standing(_)) if term.is_valid() => {}
                Err(error) => {
                    tracing::warn!(group = &**term.group(), key = &*self.key, "not registered: {error}");
                    return;
                }
            }
            term.env().sleep(pause).await;
            pause = (pause * 2).min(WRITE_AGAIN_MAX);
        }
    }
}

fn begins(record: &Record) -> Option<WallTime> {
    record.value.parse().ok().map(WallTime::from_micros)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        ledger::{Answered, Memory},
        node::LedgerState,
    };

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u64) -> WallTime {
        WallTime::from_micros(1_700_000_000_000_000 + seconds * 1_000_000)
    }

    /// A node whose memory began at 0, and which has the job registered from `since` on.
    fn node(term: u64, since: Option<u64>) -> Answered {
        let record = |since| {
            let value = at(since).as_micros().to_string().into();
            let record = Record { at: FOR_EVER, term: FencingToken::new(term), last: false, value };
            (Arc::from("job/j"), record)
        };
        let records = since.map(record).into_iter().collect();
        let state = LedgerState { records, ..LedgerState::default() };
        Answered { memory: Memory { since: at(0), max_clock_offset: SECOND }, state }
    }

    fn find(answers: Vec<Answered>) -> Registration {
        let sealed = Sealed { answers, quorum: 2, max_clock_offset: SECOND };
        Registration::find(&sealed, "j", at(9))
    }

    #[test]
    fn what_nobody_knows_begins_now() {
        let new = find(vec![node(1, None), node(1, None)]);
        assert!(new.is_new() && !new.is_everywhere());
        assert_eq!(new.since(), at(9));
    }

    #[test]
    fn one_node_s_word_is_enough_and_is_brought_back_to_the_others() {
        let found = find(vec![node(1, None), node(1, Some(3)), node(1, None)]);
        assert!(!found.is_new() && !found.is_everywhere());
        assert_eq!(found.since(), at(3));
        assert!(find(vec![node(1, Some(3)), node(4, Some(3))]).is_everywhere(), "whoever wrote it");
    }

    #[test]
    fn of_several_the_earliest_counts() {
        let found = find(vec![node(5, Some(7)), node(2, Some(3)), node(6, Some(8))]);
        assert_eq!(found.since(), at(3));
        assert!(!found.is_everywhere());
    }
}
