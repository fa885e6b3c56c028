//! One job as its leader has it: from when on it is due, and where it stands in the leader's lists.

use super::{
    plan::{JobPlan, Start, from, owed},
    rows::{FOR_EVER, highest},
    run::{JobState, StateRow},
    sealed::Sealed,
};
use crate::{
    env::WallTime,
    node::Record,
    schedule::{Job, JobRow, Placement},
};
use std::{cmp::Reverse, sync::Arc};

/// Where what may start stands in line: priority, then time, then the order of the jobs.
pub(super) type Turn = (Reverse<i32>, WallTime, usize);

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) plan: JobPlan,
    pub(super) row: JobRow,
    pub(super) state: JobState,
    /// Not yet: its registration is on its way.
    pub(super) registering: bool,
    /// No more: it was removed, and goes once what runs of it has ended.
    pub(super) leaving: bool,
    pub(super) on_agenda: Option<WallTime>,
    pub(super) in_line: Option<Turn>,
}

/// A job about to be led.
pub(super) struct Found {
    pub(super) entry: Entry,
    /// What stands as started and will never end.
    pub(super) lost: Vec<Start>,
    /// Whether the ledger knew nothing of it.
    pub(super) is_new: bool,
    /// Whether its row is to be written.
    pub(super) write: bool,
}

/// What the leader found of the job, or what it begins with.
pub(super) fn find(
    job: Arc<Job>,
    sealed: &Sealed,
    looked: Option<WallTime>,
    retired: Option<JobRow>,
    now: WallTime,
) -> Found {
    let again = retired.is_some();
    let (mut row, mut write) = match retired {
        Some(row) => (Some(JobRow { since: now, ..row }), true),
        None => known(sealed, &job.name).map_or((None, true), |(row, everywhere)| (Some(row), !everywhere)),
    };
    let is_new = row.is_none();
    let (schedule, rules): (Arc<str>, Arc<str>) = (job.schedule.to_string().into(), job.rules().into());
    let spread = job.placement == Placement::Spread;
    let mut moved = false;
    let fresh = || JobRow { since: sealed.begins(now), ..JobRow::default() };
    let mut row = row.take().unwrap_or_else(fresh);
    let spec = job.schedule.spec();
    if (&row.schedule, &row.rules, row.spread, &row.spec) != (&schedule, &rules, spread, &spec) {
        // Rows of older versions say nothing of the schedule: it is taken for the same.
        moved = !row.schedule.is_empty() && row.schedule != schedule;
        if moved {
            row.since = now;
            row.ended = None;
        }
        row = JobRow { rev: row.rev + 1, schedule, rules, spread, spec, ..row };
        write = true;
    }
    let (owed, lost) = if again || spread { (Vec::new(), Vec::new()) } else { owed(&job, sealed) };
    let after = if again || moved { now } else { from(&job, sealed, row.since, looked, now) };
    let state = JobState::new(&job.name, state(sealed, &job.name));
    let mut plan = JobPlan::new(job, after, owed, row.paused.is_some());
    plan.begin_chain(row.since, row.ended);
    let entry =
        Entry { plan, row, state, registering: false, leaving: false, on_agenda: None, in_line: None };
    Found { entry, lost, is_new, write }
}

/// A job's row as the nodes have it, and whether all have it. Of several, that of the highest term counts; but the
/// earliest beginning of those with its schedule, for leaders that did not know of it wrote the others.
fn known(sealed: &Sealed, job: &str) -> Option<(JobRow, bool)> {
    let records = sealed.row(&JobRow::key(job));
    // Nearly always all have the same, which is read once. (A row that pruning will reach is that of a job that was
    // removed.)
    let mut rows: Vec<(&Record, JobRow)> = Vec::new();
    for record in records.iter().flatten().filter(|record| record.at == FOR_EVER.as_micros()) {
        let alike = rows.iter().find(|(other, _)| other.value == record.value).map(|(_, row)| row.clone());
        rows.extend(alike.or_else(|| JobRow::parse(&record.value).ok()).map(|row| (record, row)));
    }
    let rank = |(record, row): &&(&Record, JobRow)| (record.term, row.rev, Reverse(row.since));
    let (standing, mut row) = rows.iter().max_by_key(rank).cloned()?;
    let has = |record: &Option<Record>| record.as_ref().is_some_and(|record| record.value == standing.value);
    let everywhere = records.iter().all(has);
    let alike = rows.iter().map(|(_, other)| other).filter(|other| other.schedule == row.schedule);
    row.since = alike.map(|other| other.since).min().unwrap_or(row.since);
    Some((row, everywhere))
}

fn state(sealed: &Sealed, job: &str) -> StateRow {
    let read = |record: &Record| serde_json::from_str::<StateRow>(&record.value).ok();
    highest(sealed.row(&JobState::key(job)), read, |row| row.rev)
        .map_or_else(StateRow::default, |(row, _)| row)
}

#[cfg(test)]
mod tests {
    use super::{
        super::sealed::tests::{SECOND, at, node, tick_record},
        *,
    };
    use crate::{
        ledger::Answered,
        node::FencingToken,
        schedule::{Delivery, Paused, RunAll, every},
    };

    fn job(seconds: u32) -> Arc<Job> {
        let job = Job::new("j", every(seconds * SECOND).unwrap(), |_| async { Ok::<(), String>(()) });
        Arc::new(job.misfire(RunAll::within(100 * SECOND)))
    }

    fn row(term: u64, row: &JobRow) -> (Arc<str>, Record) {
        let value = row.to_value();
        (
            JobRow::key("j"),
            Record { at: FOR_EVER.as_micros(), term: FencingToken::new(term), last: false, value },
        )
    }

    /// A row as a leader would write it that found the job at `since`.
    fn written(job: &Arc<Job>, since: u64) -> JobRow {
        let new = find(Arc::clone(job), &sealed(vec![node(at(0), vec![]); 2]), None, None, at(since));
        assert!(new.is_new && new.write);
        new.entry.row
    }

    fn sealed(answers: Vec<Answered>) -> Sealed {
        Sealed::new(answers, 2, SECOND)
    }

    fn nodes(rows: &[Option<(u64, JobRow)>]) -> Sealed {
        let records = |found: &Option<(u64, JobRow)>| found.iter().map(|(term, is)| row(*term, is)).collect();
        sealed(rows.iter().map(|found| node(at(0), records(found))).collect())
    }

    #[test]
    fn what_nobody_knows_begins_now_and_what_all_know_is_not_written_again() {
        let new = written(&job(1), 9);
        assert_eq!((new.since, new.rev), (at(9), 1));
        let all = nodes(&[Some((1, new.clone())), Some((4, new.clone())), Some((1, new.clone()))]);
        let found = find(job(1), &all, None, None, at(50));
        assert!(!found.is_new && !found.write, "whoever wrote it");
        assert_eq!(found.entry.row, new);
    }

    #[test]
    fn one_node_s_word_is_enough_and_is_brought_back_to_the_others() {
        let found = find(job(1), &nodes(&[None, Some((1, written(&job(1), 3))), None]), None, None, at(9));
        assert!(!found.is_new && found.write);
        assert_eq!(found.entry.row.since, at(3));
    }

    #[test]
    fn of_several_the_highest_term_counts_and_the_earliest_beginning() {
        let paused =
            JobRow { paused: Some(Paused { by: "me".into(), at: at(20) }), rev: 2, ..written(&job(1), 7) };
        let rows = [Some((5, written(&job(1), 7))), Some((2, written(&job(1), 3))), Some((6, paused))];
        let found = find(job(1), &nodes(&rows), None, None, at(30));
        assert_eq!(found.entry.row.since, at(3));
        assert!(found.entry.plan.paused && found.write && found.entry.plan.next.is_none());
    }

    #[test]
    fn rows_of_older_versions_are_taken_for_the_same_schedule() {
        let value: Arc<str> = at(3).as_micros().to_string().into();
        let old = Record { at: FOR_EVER.as_micros(), term: FencingToken::new(1), last: false, value };
        let all = sealed(vec![node(at(0), vec![(JobRow::key("j"), old)]); 3]);
        let found = find(job(1), &all, None, None, at(9));
        assert!(!found.is_new && found.write, "it is written as rows are now");
        assert_eq!((found.entry.row.since, &*found.entry.row.schedule), (at(3), "every 1s"));
    }

    #[test]
    fn another_schedule_counts_from_now_on_and_what_is_owed_is_still_owed() {
        let old = written(&job(1), 3);
        let mut records = vec![row(1, &old), tick_record(11, 1, false), tick_record(10, 1, true)];
        records.sort_by(|a, b| a.0.cmp(&b.0));
        let all = sealed(vec![node(at(0), records); 2]);
        let mut moved = find(job(7), &all, None, None, at(13));
        assert_eq!((moved.entry.row.since, moved.entry.row.rev), (at(13), 2));
        let (start, _) = moved.entry.plan.start(at(13));
        assert_eq!(start.map(|start| start.tick), Some(at(11)), "at least once");
        let next = moved.entry.plan.next.unwrap();
        assert!(next > at(13) && next <= at(20), "nothing is made up from before");
        let once = Arc::new((*job(7)).clone().delivery(Delivery::AtMostOnce));
        let mut moved = find(once, &all, None, None, at(13));
        assert_eq!(moved.lost.iter().map(|start| start.tick).collect::<Vec<_>>(), [at(11)]);
        assert!(moved.entry.plan.start(at(13)).0.is_none());
    }

    #[test]
    fn a_job_that_was_removed_begins_anew() {
        let old = written(&job(1), 3);
        let (key, record) = row(1, &old);
        let gone = sealed(vec![node(at(0), vec![(key, Record { at: at(5).as_micros(), ..record })]); 2]);
        let found = find(job(1), &gone, None, None, at(9));
        assert!(found.is_new);
        assert_eq!(found.entry.row.since, at(9));
        let again =
            find(job(1), &nodes(&[Some((1, old.clone())), Some((1, old.clone()))]), None, Some(old), at(9));
        assert!(!again.is_new && again.write);
        assert_eq!(again.entry.row.since, at(9), "in the same term");
    }
}
