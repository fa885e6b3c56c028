//! The record of a set of shards: its workers, and which of them owns which shard. The leader of the set writes it, and each
//! worker reads it. The record is only a plan: a worker owns a shard once it holds the lease of the shard.

use super::{SHARDS_MAX, balance::balance};
use crate::{ledger::Answered, node::Record, session::Seen};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    sync::Arc,
};

/// The key of the record.
pub(super) const KEY: &str = "assignment";

/// The plan for a set.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Assignment {
    /// The number of shards.
    pub(super) count: usize,
    /// The workers, by their sessions.
    pub(super) workers: BTreeMap<Arc<str>, Assigned>,
}

/// A worker of a set, and its shards.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Assigned {
    #[serde(flatten)]
    pub(super) who: Announcement,
    #[serde(with = "ranges", default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) shards: BTreeSet<usize>,
}

/// The announcement of a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Announcement {
    /// The name of the worker.
    pub(super) worker: Arc<str>,
    pub(super) weight: u32,
    /// The number of shards that the worker was given.
    pub(super) count: usize,
}

impl Assignment {
    /// Returns the text that the nodes store.
    pub(super) fn to_value(&self) -> Arc<str> {
        serde_json::to_string(self).unwrap_or_default().into()
    }

    /// Reads the text. Returns `None` if [`to_value`](Self::to_value) could not have written it.
    pub(super) fn parse(value: &str) -> Option<Self> {
        serde_json::from_str(value).ok().filter(|read: &Self| read.count <= SHARDS_MAX)
    }

    /// Returns the latest record that the nodes have, with its plan.
    pub(super) fn latest(answers: &[Answered]) -> Option<(Record, Self)> {
        let records = answers.iter().filter_map(|answer| answer.record(KEY));
        let latest = records.max_by_key(|record| (record.term, record.at))?;
        Some((latest.clone(), Self::parse(&latest.value)?))
    }

    /// Returns the shards of `session`. There are none if its worker was given another number of shards.
    pub(super) fn of(&self, session: &str) -> Option<&BTreeSet<usize>> {
        self.workers.get(session).map(|assigned| &assigned.shards)
    }

    /// Returns the next plan: with the workers that were `announced` and whose sessions are held, without those whose sessions
    /// are over, and balanced.
    ///
    /// The workers that have the set's number of shards share the shards. If there is none of them any more, the set gets the
    /// number that most of the others have.
    pub(super) fn next(
        &self,
        announced: Vec<(Arc<str>, Announcement)>,
        seen: &BTreeMap<Arc<str>, Seen>,
    ) -> Self {
        let mut next = self.clone();
        for (session, who) in announced {
            if seen.get(&session) == Some(&Seen::Held) {
                let new = || Assigned { who, shards: BTreeSet::new() };
                next.workers.entry(session).or_insert_with(new);
            }
        }
        next.workers.retain(|session, _| seen.get(session) != Some(&Seen::Free));
        next.count = next.next_count();
        next.share_out();
        next
    }

    fn next_count(&self) -> usize {
        let mut workers: BTreeMap<usize, usize> = BTreeMap::new();
        self.workers.values().for_each(|assigned| *workers.entry(assigned.who.count).or_default() += 1);
        let most = workers.iter().max_by_key(|(count, workers)| (**workers, **count));
        match most {
            Some((count, _)) if !workers.contains_key(&self.count) => *count,
            _ => self.count,
        }
    }

    fn share_out(&mut self) {
        let count = self.count;
        let (sharing, waiting): (Vec<_>, Vec<_>) =
            self.workers.values_mut().partition(|assigned| assigned.who.count == count);
        waiting.into_iter().for_each(|assigned| assigned.shards.clear());
        let mut owners = vec![None; count];
        for (worker, assigned) in sharing.iter().enumerate() {
            for shard in assigned.shards.range(..count) {
                owners[*shard].get_or_insert(worker);
            }
        }
        let weights: Vec<u32> = sharing.iter().map(|assigned| assigned.who.weight.max(1)).collect();
        let owners = balance(&weights, &owners);
        for (worker, assigned) in sharing.into_iter().enumerate() {
            let shards = owners.iter().enumerate().filter(|(_, owner)| **owner == Some(worker));
            assigned.shards = shards.map(|(shard, _)| shard).collect();
        }
    }
}

/// Numbers as text: `0-3,7`.
mod ranges {
    use super::{BTreeSet, SHARDS_MAX};
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(numbers: &BTreeSet<usize>, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&super::to_ranges(numbers))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeSet<usize>, D::Error> {
        let text = String::deserialize(from)?;
        let mut numbers = BTreeSet::new();
        for range in text.split(',').filter(|range| !range.is_empty()) {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let number = |text: &str| text.parse::<usize>().ok().filter(|number| *number < SHARDS_MAX);
            let (Some(first), Some(last)) = (number(first), number(last)) else {
                return Err(D::Error::custom("not the numbers of shards"));
            };
            numbers.extend(first..=last);
        }
        Ok(numbers)
    }
}

/// Returns numbers as text: `0-3,7`.
pub(super) fn to_ranges(numbers: &BTreeSet<usize>) -> String {
    let mut text = String::new();
    let mut numbers = numbers.iter().copied().peekable();
    while let Some(first) = numbers.next() {
        let mut last = first;
        while let Some(next) = numbers.next_if_eq(&(last + 1)) {
            last = next;
        }
        let comma = if text.is_empty() { "" } else { "," };
        // Writing into a text cannot fail.
        let _ = match first == last {
            true => write!(text, "{comma}{first}"),
            false => write!(text, "{comma}{first}-{last}"),
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(worker: &str, weight: u32, count: usize) -> Announcement {
        Announcement { worker: worker.into(), weight, count }
    }

    fn announced(workers: &[(&str, u32, usize)]) -> Vec<(Arc<str>, Announcement)> {
        workers.iter().map(|(name, weight, count)| ((*name).into(), who(name, *weight, *count))).collect()
    }

    fn seen(workers: &[(&str, Seen)]) -> BTreeMap<Arc<str>, Seen> {
        workers.iter().map(|(name, seen)| ((*name).into(), *seen)).collect()
    }

    fn shards(plan: &Assignment) -> Vec<(String, String)> {
        plan.workers.iter().map(|(name, a)| (name.to_string(), to_ranges(&a.shards))).collect()
    }

    const HELD: Seen = Seen::Held;

    #[test]
    fn the_record_is_compact_and_survives_a_round_trip() {
        let plan = Assignment::default()
            .next(announced(&[("a", 1, 6), ("b", 2, 6)]), &seen(&[("a", HELD), ("b", HELD)]));
        let text = r#"{"count":6,"workers":{"a":{"worker":"a","weight":1,"count":6,"shards":"2,4"},"b":{"worker":"b","weight":2,"count":6,"shards":"0-1,3,5"}}}"#;
        assert_eq!(&*plan.to_value(), text);
        assert_eq!(Assignment::parse(text), Some(plan));
        for hostile in ["0-99999999999", "7-x", "-", "4096"] {
            assert_eq!(Assignment::parse(&text.replace("2,4", hostile)), None, "{hostile}");
        }
        assert_eq!(
            Assignment::parse(&text.replace("\"count\":6,\"workers\"", "\"count\":99999999,\"workers\"")),
            None
        );
    }

    #[test]
    fn a_worker_joins_once_its_session_is_seen_and_leaves_when_it_is_over() {
        let ab = announced(&[("a", 1, 4), ("b", 1, 4)]);
        let only_a = Assignment::default().next(ab.clone(), &seen(&[("a", HELD)]));
        assert_eq!(shards(&only_a), [("a".into(), "0-3".into())]);
        let both = only_a.next(ab, &seen(&[("a", HELD), ("b", HELD)]));
        assert_eq!(shards(&both), [("a".into(), "0-1".into()), ("b".into(), "2-3".into())]);
        assert_eq!(both.next(vec![], &seen(&[])), both, "a session that was not seen goes on");
        let left = both.next(vec![], &seen(&[("a", Seen::Free), ("b", HELD)]));
        assert_eq!(shards(&left), [("b".into(), "0-3".into())]);
    }

    #[test]
    fn workers_with_another_number_wait_until_those_with_the_set_s_are_gone() {
        let all = seen(&[("a", HELD), ("b", HELD), ("c", HELD), ("d", HELD)]);
        let plan = Assignment::default().next(announced(&[("a", 1, 4)]), &all);
        let mixed = plan.next(announced(&[("b", 1, 8), ("c", 1, 2), ("d", 1, 2)]), &all);
        assert_eq!((mixed.count, mixed.of("a").unwrap().len()), (4, 4));
        assert!(["b", "c", "d"].iter().all(|waits| mixed.of(waits).unwrap().is_empty()));
        let gone = seen(&[("a", Seen::Free), ("b", HELD), ("c", HELD), ("d", HELD)]);
        let changed = mixed.next(vec![], &gone);
        assert_eq!(changed.count, 2, "most workers have it");
        assert_eq!(shards(&changed)[1..], [("c".into(), "0".into()), ("d".into(), "1".into())]);
        let empty = mixed.next(vec![], &seen(&["a", "b", "c", "d"].map(|name| (name, Seen::Free))));
        assert_eq!((empty.count, empty.workers.len()), (4, 0));
    }
}
