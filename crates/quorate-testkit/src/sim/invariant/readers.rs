use super::{Event, Invariant};
use crate::sim::{Belief, Excuse};
use quorate::node::Resource;
use std::{collections::BTreeMap, time::Duration};

/// Requires four things of a lock with readers and writers:
///
/// - No worker considers a reader's lease valid while a worker considers a writer's lease on the lock valid
///   ([`Quorum::read_lock`](quorate::quorum::Quorum::read_lock): many readers may hold the lock, or one writer).
/// - No writer acquires the lock while a reader's lease lasts, not even for a moment
///   ([`ReadLease::ensure_held`](quorate::lease::ReadLease::ensure_held)).
/// - No other writer acquires the lock between a writer's lease and the reader's lease into which its holder
///   turned it ([`Lease::downgrade`](quorate::lease::Lease::downgrade)).
/// - The token of a writer is larger than the token of each writer before the readers that the writer follows.
///
/// A lease whose worker's boot clock stood still is not judged, because validity is measured by that clock
/// ([`Belief::clock_stood`]). A reader's lease that is judged again counts as acquired at that moment.
///
/// The other invariants judge a reader's lease as any lease, except *exclusion* and those about tokens.
#[derive(Debug, Default)]
pub(super) struct Readers {
    /// For each lock, the token of the newest writer.
    newest: BTreeMap<Resource, u64>,
    /// For each lock that readers have held, the token of the newest writer before the newest reader.
    read_after: BTreeMap<Resource, u64>,
    /// For each reader's lease, the token of the newest writer when the lease was acquired.
    since: BTreeMap<u64, u64>,
    writers_judged: u64,
    downgrades_judged: u64,
}

impl Invariant for Readers {
    fn name(&self) -> &'static str {
        "readers"
    }

    fn judged(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("writer judged after readers", self.writers_judged),
            ("downgrade judged", self.downgrades_judged),
        ]
    }

    fn see(&mut self, _now: Duration, event: &Event<'_>) -> Result<(), String> {
        match event {
            Event::Granted(belief) => self.write(belief),
            Event::Read { belief, downgraded } => self.read(belief, *downgraded),
            Event::Looked(beliefs) => {
                let mut readers = beliefs.iter().filter(|belief| belief.reads);
                readers.try_for_each(|reader| self.look(reader, beliefs))
            }
            _ => Ok(()),
        }
    }
}

impl Readers {
    fn write(&mut self, belief: &Belief) -> Result<(), String> {
        let Belief { worker, resource, token, .. } = belief;
        // No reader excludes a grant that had ended before its worker saw it.
        if counts(belief) {
            let newest = self.newest.entry(resource.clone()).or_default();
            *newest = (*newest).max(*token);
        }
        let Some(before) = self.read_after.get(resource) else { return Ok(()) };
        self.writers_judged += u64::from(counts(belief));
        if token <= before && !Excuse::ReadersClock.excuses(belief.clock_stood) {
            return Err(format!(
                "{worker} writes {resource} under {token}, after readers that came after {before}"
            ));
        }
        Ok(())
    }

    fn read(&mut self, belief: &Belief, downgraded: Option<u64>) -> Result<(), String> {
        let Belief { worker, resource, lease, .. } = belief;
        let newest = self.newest(resource);
        if counts(belief) {
            self.since.insert(*lease, newest);
            let before = self.read_after.entry(resource.clone()).or_default();
            *before = newest.max(*before);
        }
        let Some(token) = downgraded else { return Ok(()) };
        self.downgrades_judged += u64::from(counts(belief));
        if newest > token && !Excuse::ReadersClock.excuses(belief.clock_stood) {
            return Err(format!(
                "a writer held {resource} under {newest} before {worker} had turned its lease under {token} \
                 into a reader's"
            ));
        }
        Ok(())
    }

    fn look(&mut self, reader: &Belief, beliefs: &[Belief]) -> Result<(), String> {
        let Belief { worker, resource, lease, .. } = reader;
        let newest = self.newest(resource);
        if reader.clock_stood {
            let since = self.since.remove(lease);
            Excuse::ReadersClock.excuses(reader.valid && since.is_some_and(|since| newest > since));
        }
        if !reader.valid {
            return Ok(());
        }
        if !reader.clock_stood && newest > *self.since.entry(*lease).or_insert(newest) {
            return Err(format!(
                "a writer held {resource} under {newest} while {worker} held it for reading"
            ));
        }
        let writes = |other: &&Belief| other.valid && !other.reads && other.resource == *resource;
        let is_judged =
            |writer: &&Belief| !Excuse::ReadersClock.excuses(reader.clock_stood || writer.clock_stood);
        match beliefs.iter().filter(writes).find(is_judged) {
            Some(writer) => Err(format!(
                "{worker} holds {resource} for reading, and {} under {} for writing",
                writer.worker, writer.token
            )),
            None => Ok(()),
        }
    }

    fn newest(&self, resource: &Resource) -> u64 {
        self.newest.get(resource).copied().unwrap_or_default()
    }
}

fn counts(belief: &Belief) -> bool {
    belief.valid && !belief.clock_stood
}

#[cfg(test)]
mod tests {
    use super::{super::belief, *};

    fn reader(lease: u64) -> Belief {
        Belief { reads: true, token: 0, ..belief(lease, "r", 0, true) }
    }

    fn granted(readers: &mut Readers, belief: &Belief) -> Result<(), String> {
        readers.see(Duration::ZERO, &Event::Granted(belief))
    }

    fn read(readers: &mut Readers, belief: &Belief, downgraded: Option<u64>) -> Result<(), String> {
        readers.see(Duration::ZERO, &Event::Read { belief, downgraded })
    }

    fn looked(readers: &mut Readers, beliefs: &[Belief]) -> Result<(), String> {
        readers.see(Duration::ZERO, &Event::Looked(beliefs))
    }

    #[test]
    fn readers_hold_together_and_a_writer_alone() {
        let mut readers = Readers::default();
        let writer = belief(3, "w", 7, true);
        assert!(looked(&mut readers, &[reader(1), reader(2)]).is_ok());
        assert!(looked(&mut readers, &[reader(1), Belief { valid: false, ..writer.clone() }]).is_ok());
        let stood = Belief { clock_stood: true, ..reader(1) };
        assert!(looked(&mut readers, &[stood, writer.clone()]).is_ok());
        let elsewhere = Resource::lock("y").unwrap();
        assert!(looked(&mut readers, &[reader(1), Belief { resource: elsewhere, ..writer.clone() }]).is_ok());
        assert!(looked(&mut readers, &[reader(1), writer]).is_err());
    }

    #[test]
    fn no_writer_comes_and_goes_under_a_reader() {
        let mut readers = Readers::default();
        read(&mut readers, &reader(1), None).unwrap();
        assert!(looked(&mut readers, &[reader(1)]).is_ok());
        granted(&mut readers, &Belief { valid: false, ..belief(2, "w", 5, true) }).unwrap();
        assert!(looked(&mut readers, &[reader(1)]).is_ok(), "a grant that had ended before it was seen");
        granted(&mut readers, &belief(3, "w", 7, true)).unwrap();
        assert!(looked(&mut readers, &[reader(1)]).is_err());
        let stood = Belief { clock_stood: true, ..reader(1) };
        assert!(looked(&mut readers, &[stood]).is_ok());
        assert!(looked(&mut readers, &[reader(1)]).is_ok(), "judged again");
    }

    #[test]
    fn no_writer_comes_between_a_lease_and_its_downgrade() {
        let mut readers = Readers::default();
        granted(&mut readers, &belief(1, "w", 5, true)).unwrap();
        assert!(read(&mut readers, &reader(2), Some(5)).is_ok());
        granted(&mut readers, &belief(3, "w", 6, true)).unwrap();
        assert!(read(&mut readers, &reader(4), Some(5)).is_err());
    }

    #[test]
    fn tokens_of_writers_grow_across_readers() {
        let mut readers = Readers::default();
        granted(&mut readers, &belief(1, "w", 5, true)).unwrap();
        read(&mut readers, &reader(2), None).unwrap();
        assert!(granted(&mut readers, &belief(3, "w", 6, true)).is_ok());
        assert!(granted(&mut readers, &belief(4, "w", 5, true)).is_err());
        let judged = readers.judged();
        assert_eq!(judged, [("writer judged after readers", 2), ("downgrade judged", 0)]);
    }
}
