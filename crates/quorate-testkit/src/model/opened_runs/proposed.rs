//! The decisions of leaders and workers, on packed records ([`Mark`]). The library makes the same decisions
//! on records in JSON, which are too slow for a search of millions of states. The tests below compare the two
//! for every pair of records.
//!
//! The model calls three parts of the library directly, so they are not copied here:
//! [`quorate::claim::SlotTally`], [`quorate::claim::CloseTally`] and [`verdict`](quorate::internals::verdict).
//!
//! The *horizon* of a slot is the time after which no node lets a worker take the slot. The model assumes:
//!
//! * After the horizon, nodes do not run *acquire* and *count*. They may still run *extend* and *complete*.
//! * Nodes keep the data of a slot until its horizon (the fields `keep` and `retention` of the requests).
//! * No *count* request has `withdraw` set, and the attempts of a slot are never reset.

use super::record::{End, Mark, Stage};
use quorate::internals::majority;

/// Returns the record from which a leader continues, out of the records that its seal found. This is the
/// record of the highest term. If a term has several records, it is the one that the leader of that term
/// wrote last.
pub(super) fn latest(found: impl IntoIterator<Item = Mark>) -> Mark {
    found.into_iter().max().unwrap_or(Mark::NONE)
}

/// Returns `true` if a leader may overwrite `met` with `target`. `met` is a record of an earlier term that
/// the leader found on a node. `remembering` is true if a majority of the sealed nodes have memories that
/// began before the tick. In this case the seal found every record that ever had a majority, so `met` never
/// had one. If `remembering` is false, a record later than `seen` may have had a majority. Only a closed
/// record may then overwrite it.
pub(super) fn overwrites(target: Mark, seen: Mark, met: Mark, remembering: bool) -> bool {
    remembering || met <= seen || target.end().is_some()
}

/// Returns `true` if a leader that has written `before` may write `next`. Within a term, a leader's records only go
/// forward: *open* 1, *open* 2, *closed*.
pub(super) fn goes_forward(before: Mark, next: Mark) -> bool {
    next > before
}

/// Returns the generation that a worker may take, and the `at` of this generation. `shown` has the record of
/// each node that answered, and whether the node's memory began before the record's `at`. A worker may take
/// the generation if a majority of nodes with such a memory show exactly the same record, including its term.
pub(super) fn is_open(shown: &[(Mark, bool)], nodes: usize) -> Option<(u8, u8)> {
    let counts = |mark: Mark| shown.iter().filter(|(other, older)| *other == mark && *older).count();
    let mut open = shown.iter().filter(|(mark, _)| counts(*mark) >= majority(nodes));
    match open.next()?.0.stage() {
        Some(Stage::Open { generation, at }) => Some((generation, at)),
        _ => None,
    }
}

/// Returns the end that a leader gives to the run if the record from which it continues has the end `end`. A
/// *skipped* record may never have had a majority. If `remembering` is false, nodes may have forgotten a
/// later record that did have a majority. The run may then have been started, so *skipped* becomes *lost*.
pub(super) fn inherited(end: End, remembering: bool) -> End {
    if end == End::Skipped && !remembering { End::Lost } else { end }
}

/// Returns the end of a generation that a leader ended through its slot. A generation after the first does not
/// end as *skipped*, because an earlier generation may have been started.
pub(super) fn voided(generation: u8) -> End {
    if generation == 1 { End::Skipped } else { End::Lost }
}

/// Returns the generation that a leader opens if it finds no record of the run. `remembering` is true if a
/// majority of the sealed nodes have memories that began before the tick. If it is false, an earlier
/// generation may have been started. The leader then opens the second generation, which is never skipped.
pub(super) fn first_opened(remembering: bool) -> u8 {
    if remembering { 1 } else { 2 }
}

/// Returns the time before which the memory of a node must have begun, so that the node counts for the
/// leader's writes and for the generations that the leader opens. This is the time of the tick, or the
/// beginning of the leader's term if the term began later. The time stays the same within a term.
pub(super) fn memory_needed(tick: u64, term_began: u64) -> u64 {
    tick.max(term_began)
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate::{
        env::WallTime,
        internals::{self, NodeAnswer, OpenRun, RunRecord, RunVerdict},
        ledger::Memory,
        node::{FencingToken, NodeTime, Record},
        scheduler::{Delivery, RunCause, RunOutcome},
    };
    use std::time::Duration;

    const OFFSET: Duration = Duration::from_micros(1);

    fn tick_end(end: End) -> RunOutcome {
        match end {
            End::Done => RunOutcome::Done,
            End::Lost => RunOutcome::Lost,
            End::Skipped => RunOutcome::SkippedMisfire,
        }
    }

    /// Returns the library's record with the content of a packed record.
    fn shipped(mark: Mark) -> Option<Record> {
        let written = match mark.stage()? {
            Stage::Started => RunRecord::started("l"),
            Stage::Open { generation, at } => RunRecord::Open(OpenRun {
                generation: generation.into(),
                at: WallTime::from_micros(100 + u64::from(at)),
                not_before: WallTime::default(),
                take_by: WallTime::default(),
                horizon: WallTime::default(),
                delivery: Delivery::AtLeastOnce,
                cause: RunCause::Scheduled,
                term: FencingToken::new(1),
                state: None,
                cancel: None,
            }),
            Stage::Closed(end) => RunRecord::closed("l", tick_end(end), ""),
        };
        Some(written.into_record(WallTime::from_micros(100), FencingToken::new(mark.term().into())))
    }

    /// Returns all possible records of three terms. A term has at most one end, and one `at` for each
    /// generation.
    fn marks() -> Vec<Mark> {
        let open = |generation| Stage::Open { generation, at: 1 };
        let stages = |end| [Stage::Started, open(1), open(2), Stage::Closed(end)];
        let ends = [End::Done, End::Lost, End::Skipped];
        ends.into_iter()
            .zip(1..)
            .flat_map(|(end, term)| stages(end).map(|stage| Mark::new(term, stage)))
            .collect()
    }

    #[test]
    fn the_library_decides_as_the_model_does() {
        for one in marks() {
            let record = shipped(one).unwrap();
            for other in marks() {
                let met = shipped(other).unwrap();
                let views = [&record, &met].map(|record| NodeAnswer {
                    since: NodeTime::default(),
                    low_water: 0,
                    record: Some(record),
                });
                let decides = match internals::verdict(&views, 2, WallTime::from_micros(100), OFFSET) {
                    RunVerdict::Started { record, .. }
                    | RunVerdict::Opened { record }
                    | RunVerdict::Final { record } => record,
                    verdict => panic!("{verdict:?}"),
                };
                assert_eq!(Some(decides), shipped(latest([one, other])), "{one:?} {other:?}");
                assert_eq!(
                    internals::goes_forward(&record, &met),
                    goes_forward(one, other),
                    "{one:?} {other:?}"
                );
                for remembering in [false, true] {
                    for seen in marks().into_iter().chain([Mark::NONE]) {
                        let by_model = overwrites(one, seen, other, remembering);
                        let seen = shipped(seen);
                        let by_library = internals::overwrites(&record, seen.as_ref(), &met, remembering);
                        assert_eq!(by_library, by_model, "{one:?} over {other:?}, having seen {seen:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn the_library_names_ends_and_generations_as_the_model_does() {
        for end in End::ALL {
            for remembering in [false, true] {
                let expect = tick_end(inherited(end, remembering));
                assert_eq!(internals::inherited(tick_end(end), remembering), expect);
            }
        }
        for remembering in [false, true] {
            assert_eq!(internals::first_opened(remembering), u32::from(first_opened(remembering)));
        }
        // The model gives the end *lost* to a second generation that a leader ended. The library gives it
        // *cancelled*, because the library's leader knows that it ended the generation itself.
        assert_eq!(internals::voided(1, RunOutcome::SkippedMisfire), tick_end(voided(1)));
        assert_eq!(
            (internals::voided(2, RunOutcome::SkippedMisfire), voided(2)),
            (RunOutcome::Cancelled, End::Lost)
        );
        let at = WallTime::from_micros;
        for (tick, began) in [(3, 5), (5, 3)] {
            assert_eq!(internals::memory_needed(at(tick), at(began)).as_micros(), memory_needed(tick, began));
        }
    }

    #[test]
    fn the_library_takes_what_the_model_takes() {
        for one in marks() {
            for other in marks().into_iter().chain([Mark::NONE]) {
                for (older, since) in [(true, 0), (false, 100)] {
                    let memory =
                        |since| Memory { since: NodeTime::from_micros(since), max_clock_offset: OFFSET };
                    let shown = [(memory(0), shipped(one)), (memory(since + 1), shipped(other))];
                    let taken = internals::is_open(&shown, 3).map(|(_, open)| open.generation);
                    let model = is_open(&[(one, true), (other, older)], 3);
                    assert_eq!(
                        taken,
                        model.map(|(generation, _)| generation.into()),
                        "{one:?} {other:?} {older}"
                    );
                }
            }
        }
    }
}
