use super::{
    Event, MAJORITY,
    memories::Memories,
    parsed,
    pool_log::{OFFSET, RunOf},
};
use crate::sim::worker::POOL;
use quorate::{
    env::WallTime,
    internals::{RunKey, RunRecord},
    node::{Reply, Request},
    scheduler::RequestId,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// The records of open runs that the servers store.
///
/// Suppose that servers lost the end of a generation, and that a leader opened the same generation again. If one
/// server still has the end, the leader may close the run at the moment at which a worker takes it.
#[derive(Debug, Default)]
pub(super) struct OpenRecords {
    runs: BTreeMap<RunOf, OpenRecord>,
    /// The end of each slot that a server has stored: the servers that still have it.
    ends: BTreeMap<(RunOf, u32), BTreeSet<String>>,
    /// The runs of which a generation was opened again after servers had lost its end.
    opened_again: BTreeSet<RunOf>,
}

/// The open record of one run.
#[derive(Debug, Default)]
struct OpenRecord {
    /// The last generation that was opened.
    generation: u32,
    /// A server counts for this generation only if its memory began before this time.
    at: WallTime,
    /// The servers that store the record.
    on: BTreeSet<String>,
    had_majority: bool,
    /// Set once a server stores the end of the run.
    closed: bool,
}

impl OpenRecords {
    pub(super) fn see(&mut self, event: &Event<'_>) {
        match event {
            Event::Forgot { node } => {
                let stored =
                    self.runs.values_mut().map(|record| &mut record.on).chain(self.ends.values_mut());
                stored.for_each(|on| {
                    on.remove(*node);
                });
            }
            Event::Ran { node, request: Request::Complete { resource, .. }, reply: Reply::Completed } => {
                if let Some(slot) = slot_of(resource.key()) {
                    self.ends.entry(slot).or_default().insert((*node).to_owned());
                }
            }
            _ => {}
        }
        if let Some(stored) = event.stored().filter(|stored| stored.ledger == POOL)
            && let (Some(run), Some(value)) = (run_of(stored.key), stored.value)
        {
            self.written(run, stored.node, value);
        }
    }

    /// Returns `true` if a generation of one of the two runs was opened again after servers had lost its end. The
    /// runs may then overlap, if a worker takes the run while its leader closes it with an end that one server has.
    pub(super) fn excuses_lost_end(&self, one: &RunOf, other: &RunOf) -> bool {
        [one, other].iter().any(|run| self.opened_again.contains(*run))
    }

    /// Returns `true` if a run of the job is open, but no worker can take it, because too few servers
    /// have a memory that began before its generation. Other runs of the job may then have to wait until a later leader ends this run.
    pub(super) fn is_untakable(&self, job: &str, memories: &Memories) -> bool {
        let of_job = self.runs.iter().filter(|(run, record)| &*run.job == job && record.had_majority);
        let mut open = of_job.map(|(_, record)| record).filter(|record| !record.closed);
        open.any(|record| memories.remembering(record.at, OFFSET) < MAJORITY)
    }

    fn written(&mut self, run: RunOf, node: &str, value: &Arc<str>) {
        let (generation, at) = match &*parsed::run_record(value) {
            Ok(RunRecord::Open(open)) => (open.generation, open.at),
            Ok(RunRecord::Closed { .. }) => {
                self.runs.entry(run).or_default().closed = true;
                return;
            }
            _ => return,
        };
        let is_later =
            self.runs.get(&run).is_some_and(|known| known.generation == generation && known.at < at);
        let end = self.ends.get(&(run.clone(), generation));
        if is_later && end.is_some_and(|on| on.len() < MAJORITY) {
            self.opened_again.insert(run.clone());
        }
        let known = self.runs.entry(run).or_default();
        if known.generation < generation {
            (known.generation, known.at) = (generation, at);
        }
        known.on.insert(node.to_owned());
        known.had_majority |= known.on.len() >= MAJORITY;
    }
}

/// Returns the run to which a key of the ledger belongs: `tick/JOB/TIME` or `run/REQUEST/JOB/TIME`.
fn run_of(key: &str) -> Option<RunOf> {
    if let Ok(Some(RunKey { job, tick })) = RunKey::parse(key) {
        return Some(RunOf { job, tick, request: None });
    }
    let (id, rest) = key.strip_prefix("run/")?.split_once('/')?;
    let (job, tick) = rest.rsplit_once('/')?;
    let (tick, request) = (WallTime::from_micros(tick.parse().ok()?), id.parse::<RequestId>().ok()?);
    Some(RunOf { job: job.into(), tick, request: Some(request) })
}

/// Returns the run and the generation to which a slot of the group belongs.
fn slot_of(key: &str) -> Option<(RunOf, u32)> {
    let (key, generation) = key.strip_prefix(&format!("claim/{POOL}{{runs}}/"))?.rsplit_once('/')?;
    Some((run_of(key)?, generation.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::invariant::pool_log::made;
    use quorate::{
        internals::OpenRun,
        node::FencingToken,
        scheduler::{Delivery, RunCause, RunOutcome},
    };

    /// Returns the value of an open record of this generation.
    fn open_at(generation: u32, opened: u64) -> Arc<str> {
        let at = made::at(0);
        let open = OpenRun {
            generation,
            at: made::at(opened),
            not_before: at,
            take_by: at,
            horizon: at,
            delivery: Delivery::AtLeastOnce,
            cause: RunCause::Scheduled,
            term: FencingToken::new(1),
            state: None,
            cancel: None,
        };
        RunRecord::Open(open).to_value()
    }

    #[test]
    fn no_worker_can_take_an_open_run_that_too_few_servers_remember() {
        let mut records = OpenRecords::default();
        let mut memories = Memories::default();
        let key = RunKey::new("j", made::at(0)).key();
        let write = |records: &mut OpenRecords, value: &Arc<str>| {
            ["n0", "n1", "n2"].iter().for_each(|node| records.written(run_of(&key).unwrap(), node, value));
        };
        write(&mut records, &open_at(1, 0));
        let mark = |memories: &mut Memories, node: &str| {
            let marker = format!("since_us={}", made::at(5_000).as_micros()).into();
            let request = Request::Mark { expect: None, marker };
            memories.see(made::at(5_000), &Event::Ran { node, request: &request, reply: &Reply::Marked });
        };
        ["n3", "n4"].iter().for_each(|node| mark(&mut memories, node));
        assert!(!records.is_untakable("j", &memories), "three servers remember it");
        mark(&mut memories, "n0");
        assert!(records.is_untakable("j", &memories) && !records.is_untakable("other", &memories));
        let under = (FencingToken::new(2), made::at(0));
        write(&mut records, &RunRecord::closed("w0", (RunOutcome::Lost, ""), None, under).to_value());
        assert!(!records.is_untakable("j", &memories));
    }

    #[test]
    fn a_generation_that_was_opened_again_after_servers_lost_its_end_excuses_an_overlap() {
        let key = RunKey::new("j", made::at(0)).key();
        let write = |records: &mut OpenRecords, opened: u64| {
            let value = open_at(2, opened);
            ["n0", "n1", "n2"].iter().for_each(|node| records.written(run_of(&key).unwrap(), node, &value));
        };
        let excused = |ended_on: &[&str], opened: u64| {
            let mut records = OpenRecords::default();
            write(&mut records, 0);
            for node in ended_on {
                let slot = slot_of(&format!("claim/{POOL}{{runs}}/{key}/2")).unwrap();
                records.ends.entry(slot).or_default().insert((*node).to_owned());
            }
            records.see(&Event::Forgot { node: "n0" });
            write(&mut records, opened);
            records.excuses_lost_end(&RunOf::tick("j", made::at(9)), &RunOf::tick("j", made::at(0)))
        };
        assert!(excused(&["n0", "n1", "n2"], 5), "two servers of five have the end");
        assert!(!excused(&["n0", "n1", "n2"], 0), "the generation was not opened again");
        assert!(!excused(&["n0", "n1", "n2", "n3"], 5), "three servers have the end");
        assert!(!excused(&[], 5), "there was no end");
        assert_eq!(slot_of("claim/pool/m1"), None);
    }

    #[test]
    fn the_keys_of_ticks_and_of_requested_runs_name_their_runs() {
        let tick = made::at(2_000);
        assert_eq!(run_of(&RunKey::new("j", tick).key()), Some(RunOf::tick("j", tick)));
        let key = format!("run/{}/j/{:020}", made::id(7), tick.as_micros());
        assert_eq!(run_of(&key), Some(RunOf { request: Some(made::id(7)), ..RunOf::tick("j", tick) }));
        for other in ["job/j", "ask/00000000000000000000000000000007", "open", "looked", "run/7"] {
            assert_eq!(run_of(other), None, "{other}");
        }
    }
}
