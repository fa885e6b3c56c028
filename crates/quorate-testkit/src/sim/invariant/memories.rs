use super::Event;
use quorate::{
    env::WallTime,
    node::{Reply, Request},
};
use std::collections::BTreeMap;

/// For each server, the beginning of its memory and the last loss of its data.
#[derive(Debug, Default)]
pub(super) struct Memories {
    /// The time at which the memory of each server began, according to its marker.
    began: BTreeMap<String, WallTime>,
    /// The last true time at which each server lost data, or received the marker of a new memory.
    forgot: BTreeMap<String, WallTime>,
}

impl Memories {
    /// Handles an event at the true time `now`.
    ///
    /// A worker may write the marker of a new memory long after the server lost its data. The time of the
    /// loss and the time of the marker both count. A probe writes a marker too. If the server already has
    /// this marker, nothing changes.
    pub(super) fn see(&mut self, now: WallTime, event: &Event<'_>) {
        match event {
            Event::Forgot { node } => {
                self.forgot.insert((*node).to_owned(), now);
            }
            Event::Ran { node, request: Request::Mark { marker, .. }, reply: Reply::Marked } => {
                let Some(since) = memory_since(marker) else { return };
                if self.began.insert((*node).to_owned(), since) != Some(since) {
                    self.forgot.insert((*node).to_owned(), now);
                }
            }
            _ => {}
        }
    }

    /// Returns, for each server, the last time at which it lost data or received the marker of a new memory.
    pub(super) fn forgot(&self) -> impl Iterator<Item = WallTime> {
        self.forgot.values().copied()
    }
}

/// The times at which a leader founded the ledger of a group, because a majority of the servers had forgotten it.
#[derive(Debug, Default)]
pub(super) struct Foundings(BTreeMap<u64, WallTime>);

impl Foundings {
    /// Handles an event at the true time `now`. `group` is the name of the group.
    pub(super) fn see(&mut self, now: WallTime, group: &str, event: &Event<'_>) {
        if let Event::Founded { group: of, term } = event
            && *of == group
        {
            self.0.insert(*term, now);
        }
    }

    /// Returns the time of the last founding.
    pub(super) fn last(&self) -> WallTime {
        self.0.values().copied().max().unwrap_or_default()
    }

    /// Returns `true` if the ledger may have been founded after the time `at`, so that an earlier record may be lost.
    pub(super) fn any_since(&self, at: WallTime) -> bool {
        self.0.values().any(|founded| at <= *founded)
    }
}

/// Returns the time at which a server's memory began, from the text of its marker.
fn memory_since(marker: &str) -> Option<WallTime> {
    let since = marker.lines().find_map(|line| line.strip_prefix("since_us="))?;
    since.parse().ok().map(WallTime::from_micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> WallTime {
        WallTime::from_micros(secs * 1_000_000)
    }

    fn mark(memories: &mut Memories, now: u64, since: u64) {
        let request = Request::Mark { expect: None, marker: format!("since_us={since}000000\n").into() };
        memories.see(at(now), &Event::Ran { node: "a", request: &request, reply: &Reply::Marked });
    }

    fn forgot(memories: &Memories) -> Vec<WallTime> {
        memories.forgot().collect()
    }

    #[test]
    fn a_probe_with_the_same_marker_is_not_a_new_memory() {
        let mut memories = Memories::default();
        mark(&mut memories, 1, 1);
        mark(&mut memories, 7, 1);
        assert_eq!(forgot(&memories), [at(1)]);
        mark(&mut memories, 9, 8);
        assert_eq!(forgot(&memories), [at(9)]);
    }

    #[test]
    fn forgetting_counts_before_a_worker_writes_a_marker() {
        let mut memories = Memories::default();
        mark(&mut memories, 1, 1);
        memories.see(at(5), &Event::Forgot { node: "a" });
        assert_eq!(forgot(&memories), [at(5)]);
    }
}
