use super::{Event, Invariant};
use std::time::Duration;

/// Requires that while a worker works on a shard, no other worker works on a shard of a set with another number of shards:
/// the two might handle the same item. That each shard has one owner is judged by the invariants of all leases, and that
/// every shard has one once the faults are over, by the fault-free phase.
///
/// A work whose worker does not own its shard any more, or whose worker's boot clock stood still, is not judged.
#[derive(Debug, Default)]
pub(super) struct Shards {
    alone: u64,
    beside: u64,
}

impl Invariant for Shards {
    fn name(&self) -> &'static str {
        "shards"
    }

    fn judged(&self) -> Vec<(&'static str, u64)> {
        vec![("first shard judged", self.alone), ("further shard judged", self.beside)]
    }

    fn see(&mut self, _now: Duration, event: &Event<'_>) -> Result<(), String> {
        let Event::Sharded { worker, count, others } = event else { return Ok(()) };
        *(if others.is_empty() { &mut self.alone } else { &mut self.beside }) += 1;
        match others.iter().find(|other| *other != count) {
            Some(other) => {
                Err(format!("{worker} works on one of {count} shards, and another worker on one of {other}"))
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_shards_in_work_are_of_one_number() {
        let mut shards = Shards::default();
        let mut see =
            |others: &[usize]| shards.see(Duration::ZERO, &Event::Sharded { worker: "a", count: 5, others });
        assert!(see(&[]).is_ok() && see(&[5, 5]).is_ok());
        assert!(see(&[5, 3]).is_err());
        assert_eq!(shards.judged(), [("first shard judged", 1), ("further shard judged", 2)]);
    }
}
