//! The newest ends of the runs of each job, which a long list of jobs does not have. Each round reads the histories of
//! a part of the jobs, first of those that have probably changed. Pure.

use super::{JobsView, STRIP};
use crate::view::{JobView, RunEnd};
use quorate::env::WallTime;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// The most histories that are read in one round, and the most if a viewer waits for a part that is read after them.
const HISTORIES: (usize, usize) = (48, 16);
/// The part of them that is for jobs whose history has changed, if others wait: so many of so many.
const CHANGED: (usize, usize) = (2, 3);
/// The most histories that are read in one round although nothing says that they have changed.
const AGAIN: usize = 16;
/// The number of times that a changed history is read. The leader writes an end a little after the run.
const READS: u8 = 2;

/// The newest ends of all jobs.
#[derive(Debug, Default)]
pub(super) struct Strips {
    jobs: BTreeMap<Arc<str>, Strip>,
    /// The number of the present round.
    round: u64,
}

/// The newest ends of a job, and the facts that say whether they are out of date.
#[derive(Debug, Default)]
struct Strip {
    ends: Vec<RunEnd>,
    running: usize,
    next: Option<WallTime>,
    /// The round in which the history was last read; `None` if it was not read since a viewer looked.
    read: Option<u64>,
    /// The number of times that the history is still to be read, because it has probably changed.
    due: u8,
}

impl Strips {
    /// Notes that nothing is read for a while. The ends that are known stay, but count as not read.
    pub(super) fn rest(&mut self) {
        for strip in self.jobs.values_mut() {
            strip.read = None;
        }
    }

    /// Begins a round with this list. Returns the jobs whose history is to be read in it, fewer if `waits` is set: then a
    /// viewer waits for a part that is read after them.
    ///
    /// A short list has the newest end of each job. A long list has none: a run has ended if it was active before, and
    /// has probably begun if another tick is the next one. A requested run may begin and end between two rounds, so
    /// every history of a long list is read again from time to time.
    pub(super) fn begin(&mut self, list: &[JobView], waits: bool) -> Vec<Arc<str>> {
        self.round += 1;
        let most = if waits { HISTORIES.1 } else { HISTORIES.0 };
        let names: BTreeSet<&str> = list.iter().map(|job| &*job.name).collect();
        self.jobs.retain(|name, _| names.contains(&**name));
        let is_long = JobsView::is_long(list.len());
        let (mut changed, mut unread, mut again) = (Vec::new(), Vec::new(), Vec::new());
        for job in list {
            let strip = self.jobs.entry(Arc::clone(&job.name)).or_default();
            strip.notice(job, is_long);
            match strip.read {
                read if strip.due > 0 => changed.push((read, &job.name)),
                None if is_long => unread.push((!job.may_be_in_trouble(), &job.name)),
                Some(read) if is_long => again.push((read, &job.name)),
                _ => {}
            }
        }
        // The history that was read the longest time ago comes first, so that none waits without limit.
        changed.sort();
        unread.sort();
        again.sort();
        let name_of = |(_, name): (_, &Arc<str>)| Arc::clone(name);
        let rest = changed.split_off(changed.len().min(most / CHANGED.1 * CHANGED.0));
        let mut reads: Vec<Arc<str>> = changed.into_iter().map(name_of).collect();
        reads.extend(unread.into_iter().map(|(_, name)| Arc::clone(name)));
        reads.extend(rest.into_iter().map(name_of));
        reads.truncate(most);
        let room = (most - reads.len()).min(AGAIN);
        reads.extend(again.into_iter().take(room).map(|(_, name)| Arc::clone(name)));
        reads
    }

    /// Takes the history of a job, the newest end first.
    pub(super) fn learn(&mut self, name: Arc<str>, ends: Vec<RunEnd>) {
        let strip = self.jobs.entry(name).or_default();
        (strip.ends, strip.read, strip.due) = (ends, Some(self.round), strip.due.saturating_sub(1));
    }

    /// Adds the ends that are known to the jobs of a list. Returns the number of jobs whose history is still to be read.
    pub(super) fn apply(&self, list: &mut [JobView]) -> usize {
        let is_long = JobsView::is_long(list.len());
        let mut unread = 0;
        for job in list {
            let Some(strip) = self.jobs.get(&job.name) else { continue };
            unread += usize::from(is_long && strip.read.is_none());
            // The list may have a newer end than the history that was read before.
            match job.ends.first() {
                Some(newest) if strip.ends.first().is_none_or(|end| !same(end, newest)) => {
                    job.ends.extend(strip.ends.iter().take(STRIP - 1).cloned());
                }
                _ => job.ends.clone_from(&strip.ends),
            }
        }
        unread
    }
}

impl Strip {
    /// Compares the job with the round before.
    fn notice(&mut self, job: &JobView, is_long: bool) {
        let newest = job.ends.first();
        if newest.is_some_and(|newest| self.ends.first().is_none_or(|end| !same(end, newest))) {
            self.due = self.due.max(1);
        }
        let has_changed = self.running > job.running.len() || self.next != job.next;
        if is_long && newest.is_none() && self.read.is_some() && has_changed {
            self.due = READS;
        }
        (self.running, self.next) = (job.running.len(), job.next);
    }
}

fn same(one: &RunEnd, other: &RunEnd) -> bool {
    (one.tick, one.started, one.outcome) == (other.tick, other.started, other.outcome)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use quorate::scheduler::RunOutcome;
    use std::time::Duration;

    /// Returns a long list as the nodes return it: without ends.
    fn long() -> Vec<JobView> {
        let mut list = testing::jobs(1_000).list;
        list.iter_mut().for_each(|job| job.ends.clear());
        list
    }

    /// Reads the histories of a round. Returns their number, and that of the jobs that are not read.
    fn round(strips: &mut Strips, list: &[JobView]) -> (Vec<Arc<str>>, usize) {
        let reads = strips.begin(list, false);
        for name in &reads {
            strips.learn(Arc::clone(name), vec![testing::end(RunOutcome::Failed, 60)]);
        }
        let unread = strips.apply(&mut list.to_vec());
        (reads, unread)
    }

    #[test]
    fn a_long_list_is_read_in_parts_and_trouble_first() {
        let (mut strips, mut list) = (Strips::default(), long());
        list[700].failing = Some(testing::NOW);
        let (first, unread) = round(&mut strips, &list);
        assert_eq!((first.len(), &*first[0], unread), (HISTORIES.0, "job-700", 1_000 - HISTORIES.0));
        let mut rounds = 1;
        while round(&mut strips, &list).1 > 0 {
            rounds += 1;
        }
        assert_eq!(rounds + 1, 1_000_usize.div_ceil(HISTORIES.0));
        strips.apply(&mut list);
        assert!(list.iter().all(|job| job.ends.len() == 1));
        // A requested run leaves no other trace in a long list, so all histories are read again in turn.
        let list = long();
        let mut again = BTreeSet::new();
        for _ in 0..1_000_usize.div_ceil(AGAIN) {
            let (reads, _) = round(&mut strips, &list);
            assert_eq!(reads.len(), AGAIN);
            again.extend(reads);
        }
        assert_eq!(again.len(), 1_000);
        strips.rest();
        assert_eq!(strips.begin(&list, true).len(), HISTORIES.1, "a viewer waits");
        assert_eq!(round(&mut strips, &list).1, 1_000 - HISTORIES.0, "it may be out of date");
    }

    #[test]
    fn a_run_that_ended_or_a_tick_that_passed_is_read_twice() {
        let (mut strips, mut list) = (Strips::default(), long());
        list[5].running = vec![testing::active(testing::NOW)];
        while round(&mut strips, &list).1 > 0 {}
        list[5].running.clear();
        list[900].next = list[900].next.map(|next| next + Duration::from_secs(60));
        for is_read in [true, true, false] {
            let (reads, _) = round(&mut strips, &list);
            for name in ["job-5", "job-900"] {
                assert_eq!(reads[..2].iter().any(|read| **read == *name), is_read, "{name}: {reads:?}");
            }
        }
    }

    #[test]
    fn jobs_that_always_change_do_not_keep_the_others_from_being_read() {
        let (mut strips, mut list) = (Strips::default(), long());
        let mut rounds = 0;
        loop {
            for job in &mut list[..500] {
                job.next = job.next.map(|next| next + Duration::from_secs(1));
            }
            let (_, unread) = round(&mut strips, &list);
            rounds += 1;
            if unread == 0 {
                break;
            }
            assert!(rounds < 200, "{unread} are not read");
        }
    }

    #[test]
    fn a_short_list_says_itself_which_histories_have_changed() {
        let (mut strips, mut list) = (Strips::default(), testing::jobs(3).list);
        list[2].ends.clear();
        let newest = |strips: &mut Strips, list: &[JobView]| {
            let reads = strips.begin(list, false);
            for name in &reads {
                let job = list.iter().find(|job| job.name == *name).expect("a job of the list");
                strips.learn(Arc::clone(name), job.ends.clone());
            }
            reads.len()
        };
        assert_eq!(newest(&mut strips, &list), 2, "the third has not run yet");
        assert_eq!(newest(&mut strips, &list), 0);
        list[2].ends = vec![testing::end(RunOutcome::Failed, 1)];
        assert_eq!(newest(&mut strips, &list), 1);
        assert_eq!(strips.apply(&mut list), 0);
        list.remove(0);
        newest(&mut strips, &list);
        assert_eq!(strips.jobs.len(), 2);
    }
}
