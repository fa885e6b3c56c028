//! One job as its leader has it: from when on it is due, and where it stands in the leader's lists.

use crate::scheduler::{
    plan::{
        job_plan::{JobPlan, ToClose, from, unfinished, window},
        requests::{PREFIX, RequestRow},
    },
    run::on_leader::{SavedState, StateRow},
    store::{row_writer::highest, snapshot::LedgerSnapshot},
};
use crate::{
    env::WallTime,
    node::Record,
    scheduler::{Job, JobRow, Placement, store::FOR_EVER},
};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// The order in which runs start: those for workers first, for which this worker needs no room; then priority, time, and the
/// order of the jobs.
pub(in crate::scheduler) type ReadyOrder = (bool, Reverse<i32>, WallTime, usize);

#[derive(Debug)]
pub(in crate::scheduler) struct JobEntry {
    pub(in crate::scheduler) plan: JobPlan,
    pub(in crate::scheduler) row: JobRow,
    pub(in crate::scheduler) state: SavedState,
    /// Not yet: its registration is on its way.
    pub(in crate::scheduler) registering: bool,
    /// No more: it was removed, and goes once what runs of it has ended.
    pub(in crate::scheduler) leaving: bool,
    pub(in crate::scheduler) on_agenda: Option<WallTime>,
    pub(in crate::scheduler) in_line: Option<ReadyOrder>,
}

/// A job about to be led.
pub(in crate::scheduler) struct Found {
    pub(in crate::scheduler) entry: JobEntry,
    /// Records to close without another execution.
    pub(in crate::scheduler) closes: Vec<ToClose>,
    /// Whether the ledger knew nothing of it.
    pub(in crate::scheduler) is_new: bool,
    /// Whether its row is to be written.
    pub(in crate::scheduler) write: bool,
}

/// A job that was removed in this term: what the seal found of it is no longer so.
#[derive(Debug)]
pub(in crate::scheduler) struct Retired {
    row: JobRow,
    /// What was looked at is not looked at again when the job comes back, whatever the clock has done meanwhile.
    looked: WallTime,
    /// Shared with a run that may still go on.
    state: SavedState,
    /// When its row was left to pruning.
    closed: WallTime,
}

impl JobEntry {
    /// Its last row, and what is to be known of it if it comes back.
    pub(in crate::scheduler) fn retire(&self, now: WallTime) -> Retired {
        let row = JobRow { rev: self.row.rev + 1, ..self.row.clone() };
        Retired { row, looked: self.plan.looked(), state: self.state.clone(), closed: now }
    }
}

impl Retired {
    /// A job that the ledger knows, that this leader does not have, and that no worker has vouched for: as of `now`.
    pub(in crate::scheduler) fn of_unknown(sealed: &LedgerSnapshot, job: &str, now: WallTime) -> Self {
        let row = known(sealed, job).map(|(row, _)| row).unwrap_or_default();
        let state = SavedState::new(job, state(sealed, job));
        Self { row: JobRow { rev: row.rev + 1, ..row }, looked: now, state, closed: now }
    }

    pub(in crate::scheduler) fn row(&self) -> &JobRow {
        &self.row
    }

    pub(in crate::scheduler) fn state(&self) -> &SavedState {
        &self.state
    }

    /// Whether the nodes have forgotten it by now, since they forget what is before `mark`.
    pub(in crate::scheduler) fn is_forgotten(&self, mark: WallTime) -> bool {
        self.closed.max(self.looked) < mark
    }
}

/// The jobs of which the ledger has a row, a state or an open request that stays.
pub(in crate::scheduler) fn jobs_of(sealed: &LedgerSnapshot) -> BTreeSet<Arc<str>> {
    let stays = |records: &&[Option<Record>]| records.iter().flatten().any(stays);
    let of = |prefix: &'static str| {
        let rows = sealed.rows(prefix).filter(move |(_, records)| stays(records));
        rows.filter_map(move |(key, _)| key.strip_prefix(prefix).map(Arc::from))
    };
    let asks = sealed.rows(PREFIX).filter_map(|(_, records)| RequestRow::find(records));
    let asks = asks.filter(|(_, over)| !over).map(|(row, _)| Arc::clone(row.request.what.job()));
    of(JobRow::PREFIX).chain(of(SavedState::PREFIX)).chain(asks).collect()
}

/// What the leader found of the job, or what it begins with.
pub(in crate::scheduler) fn find(
    job: Arc<Job>,
    sealed: &LedgerSnapshot,
    looked: Option<WallTime>,
    retired: Option<Retired>,
    now: WallTime,
) -> Found {
    let again = retired.is_some();
    let (mut row, mut write, now, state) = match retired {
        Some(Retired { row, looked, state, .. }) => {
            let now = now.max(looked);
            // The revision tells it from the row that was left to pruning.
            (Some(JobRow { since: now, ended: None, rev: row.rev + 1, ..row }), true, now, state)
        }
        None => {
            let state = SavedState::new(&job.name, state(sealed, &job.name));
            let (row, everywhere) = known(sealed, &job.name).unzip();
            (row, !everywhere.unwrap_or_default(), now, state)
        }
    };
    let is_new = row.is_none();
    let (schedule, rules): (Arc<str>, Arc<str>) = (job.schedule.to_string().into(), job.rules().into());
    let any_worker = job.placement == Placement::AnyWorker;
    let mut moved = false;
    let fresh = || JobRow { since: sealed.begins(now), ..JobRow::default() };
    let mut row = row.take().unwrap_or_else(fresh);
    let spec = job.schedule.spec();
    let window = Some(window(&job));
    let stands = (&row.schedule, &row.rules, row.any_worker, &row.spec, row.window);
    if stands != (&schedule, &rules, any_worker, &spec, window) {
        // Rows of older versions say nothing of the schedule: it is taken for the same.
        let other_times = !row.schedule.is_empty() && row.schedule != schedule;
        // The ticks of another placement stand in another ledger: this one cannot say which of them have run.
        let other_place = !is_new && row.any_worker != any_worker;
        moved = other_times || other_place;
        if moved {
            // Not before what has been opened ahead.
            let known = sealed.last_before(&job.name, WallTime::from_micros(u64::MAX));
            row.since = now.max(known.unwrap_or_default());
            row.ended = None;
        }
        row = JobRow { rev: row.rev + 1, schedule, rules, any_worker, spec, window, ..row };
        write = true;
    }
    let (runs, closes) = if again { (Vec::new(), Vec::new()) } else { unfinished(&job, sealed) };
    let after = if moved {
        row.since
    } else if again {
        now
    } else {
        from(&job, sealed, row.since, looked, now)
    };
    let mut plan = JobPlan::new(job, after, runs, row.paused.is_some());
    plan.since = row.since;
    plan.begin_chain(row.since, row.ended);
    let entry =
        JobEntry { plan, row, state, registering: false, leaving: false, on_agenda: None, in_line: None };
    Found { entry, closes, is_new, write }
}

/// What the ledger is to remember for jobs that the seal knows, whether this leader does or not: a later version's
/// leader may come after it.
#[derive(Debug, Default)]
pub(in crate::scheduler) struct Known {
    /// The longest window of all.
    pub(in crate::scheduler) window: Duration,
    /// The earliest record of each job that has not ended, or request whose runs have not.
    pub(in crate::scheduler) open: BTreeMap<Arc<str>, WallTime>,
}

impl Known {
    pub(in crate::scheduler) fn new(sealed: &LedgerSnapshot) -> Self {
        let mut all = Self::default();
        for job in sealed.rows(JobRow::PREFIX).filter_map(|(key, _)| key.strip_prefix(JobRow::PREFIX)) {
            let Some((row, _)) = known(sealed, job) else { continue };
            all.window = all.window.max(row.window.unwrap_or_default());
            sealed.unfinished(job).for_each(|(_, record)| all.hold(job, WallTime::from_micros(record.at)));
        }
        for (row, over) in sealed.rows(PREFIX).filter_map(|(_, records)| RequestRow::find(records)) {
            if !over {
                all.hold(row.request.what.job(), row.oldest());
            }
        }
        all
    }

    fn hold(&mut self, job: &str, at: WallTime) {
        let open = self.open.entry(job.into()).or_insert(at);
        *open = at.min(*open);
    }
}

/// A job's row as the nodes have it, and whether all have it. Of several, that of the highest term counts; but the
/// earliest beginning of those with its schedule, for leaders that did not know of it wrote the others. Nothing, where
/// the highest is one that was left to pruning: the job was removed, and a node that was away then knows nothing newer.
fn known(sealed: &LedgerSnapshot, job: &str) -> Option<(JobRow, bool)> {
    let records = sealed.row(&JobRow::key(job));
    let read = |record: &Record| Some((JobRow::parse(&record.value).ok()?, stays(record), record.term));
    let rank = |(row, stays, _): &(JobRow, bool, _)| (row.rev, *stays, Reverse(row.since));
    let ((mut row, stays, _), everywhere) = highest(records, read, rank)?;
    if !stays {
        return None;
    }
    let all = || records.iter().flatten().filter_map(read);
    // What was written before the job was removed says nothing of when it came back.
    let removed = all().filter(|(_, stays, _)| !stays).map(|(row, _, term)| (term, row.rev)).max();
    let differential = all().filter(|(other, stays, term)| {
        *stays && other.schedule == row.schedule && removed.is_none_or(|removed| (*term, other.rev) > removed)
    });
    row.since = differential.map(|(other, ..)| other.since).min().unwrap_or(row.since);
    Some((row, everywhere))
}

/// Whether a record stays until it is written over; pruning reaches what belongs to a job that was removed.
fn stays(record: &Record) -> bool {
    record.at == FOR_EVER.as_micros()
}

fn state(sealed: &LedgerSnapshot, job: &str) -> StateRow {
    let read = |record: &Record| Some((serde_json::from_str::<StateRow>(&record.value).ok()?, stays(record)));
    match highest(sealed.row(&SavedState::key(job)), read, |(row, stays)| (row.rev, *stays)) {
        Some(((row, true), _)) => row,
        // Its revision counts on: what is written next is to be the highest.
        Some(((row, false), _)) => StateRow { text: None, ..row },
        None => StateRow::default(),
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        ledger::Answered,
        node::FencingToken,
        scheduler::{Delivery, Misfire, Paused, every},
    };
    use {
        super::*,
        crate::scheduler::store::snapshot::tests::{SECOND, at, node, tick_record},
    };

    fn job(seconds: u32) -> Arc<Job> {
        let job = Job::new("j", every(seconds * SECOND).unwrap(), |_| async { Ok::<(), String>(()) });
        Arc::new(job.misfire(Misfire::run_all(100 * SECOND)))
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

    fn sealed(answers: Vec<Answered>) -> LedgerSnapshot {
        LedgerSnapshot::new(answers, 2, SECOND)
    }

    fn nodes(rows: &[Option<(u64, JobRow)>]) -> LedgerSnapshot {
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
        assert_eq!(moved.closes.iter().map(|close| close.start.tick).collect::<Vec<_>>(), [at(11)]);
        assert!(moved.entry.plan.start(at(13)).0.is_none());
    }

    #[test]
    fn what_a_job_needs_of_the_ledger_stands_in_its_row_for_leaders_that_do_not_know_it() {
        let mine = written(&job(1), 3);
        assert_eq!(mine.window, Some(100 * SECOND));
        let all = sealed(vec![node(at(0), vec![row(1, &mine), tick_record(11, 1, false)]); 2]);
        let known = Known::new(&all);
        assert_eq!((known.window, known.open.get("j")), (100 * SECOND, Some(&at(11))));
        // A row that an older version wrote gets its window.
        let old = JobRow { window: None, ..mine };
        let found = find(job(1), &nodes(&[Some((1, old.clone())), Some((1, old))]), None, None, at(9));
        assert!(found.write && found.entry.row.since == at(3) && found.entry.row.window.is_some());
        // And one of a job that was removed counts for nothing.
        let (key, record) = row(1, &found.entry.row);
        let gone = Record { at: at(5).as_micros(), ..record };
        let all = sealed(vec![node(at(0), vec![(key, gone), tick_record(11, 1, false)]); 2]);
        let known = Known::new(&all);
        assert!(known.window.is_zero() && known.open.is_empty(), "{known:?}");
    }

    #[test]
    fn a_job_that_was_removed_begins_anew() {
        let old = written(&job(1), 3);
        let (key, record) = row(1, &old);
        let gone = sealed(vec![node(at(0), vec![(key, Record { at: at(5).as_micros(), ..record })]); 2]);
        let found = find(job(1), &gone, None, None, at(9));
        assert!(found.is_new);
        assert_eq!(found.entry.row.since, at(9));
        let again = find(
            job(1),
            &nodes(&[Some((1, old.clone())), Some((1, old.clone()))]),
            None,
            retired(old, at(5)),
            at(9),
        );
        assert!(!again.is_new && again.write);
        assert_eq!(again.entry.row.since, at(9), "in the same term");
    }

    #[test]
    fn a_node_that_was_away_does_not_bring_a_removed_job_back() {
        let old = JobRow { paused: Some(Paused { by: "me".into(), at: at(4) }), ..written(&job(1), 3) };
        let gone = |term, rev| {
            let (key, record) = row(term, &JobRow { rev, ..old.clone() });
            vec![(key, Record { at: at(5).as_micros(), ..record })]
        };
        let away = || node(at(0), vec![row(1, &old)]);
        let found = find(job(1), &sealed(vec![node(at(0), gone(2, 2)), away()]), None, None, at(9));
        assert!(found.is_new && found.entry.row.paused.is_none() && found.entry.row.since == at(9));
        // It has come back since, and the old row says nothing of when.
        let back = JobRow { since: at(8), rev: 3, paused: None, ..old.clone() };
        let nodes = vec![node(at(0), vec![row(2, &back)]), node(at(0), gone(2, 2)), away()];
        let found = find(job(1), &sealed(nodes), None, None, at(9));
        assert!(!found.is_new && found.entry.row.since == at(8) && found.entry.row.paused.is_none());
    }

    #[test]
    fn the_state_of_a_removed_job_is_nobody_s() {
        let record = |term, at: WallTime, rev, text: &str| {
            let value = serde_json::to_string(&StateRow { rev, text: Some(text.into()) }).unwrap().into();
            let record = Record { at: at.as_micros(), term: FencingToken::new(term), last: false, value };
            (SavedState::key("j"), record)
        };
        let old = || node(at(0), vec![record(1, FOR_EVER, 4, "old")]);
        let gone = node(at(0), vec![record(2, at(5), 5, "old")]);
        assert_eq!(state(&sealed(vec![old(), old()]), "j").text.as_deref(), Some("old"));
        assert_eq!(state(&sealed(vec![gone, old()]), "j"), StateRow { rev: 5, text: None });
    }

    fn retired(row: JobRow, looked: WallTime) -> Option<Retired> {
        let state = SavedState::new("j", StateRow::default());
        Some(Retired { row, looked, state, closed: looked })
    }

    #[test]
    fn what_comes_back_in_one_term_begins_after_all_that_was_looked_at() {
        let old = JobRow { ended: Some(at(4)), ..written(&job(1), 3) };
        let (rev, none) = (old.rev, nodes(&[None, None]));
        let again = find(job(1), &none, None, retired(old.clone(), at(12)), at(9));
        assert_eq!(again.entry.plan.next, Some(at(13)), "though the clock has stepped back");
        assert!(again.entry.row.rev > rev && again.entry.row.since == at(12));
        let chain =
            Job::new("j", crate::scheduler::delay(SECOND).unwrap(), |_| async { Ok::<(), String>(()) });
        let again = find(Arc::new(chain), &none, None, retired(old, at(12)), at(9));
        assert!(again.entry.plan.next >= Some(at(12)), "{:?}", again.entry.plan.next);
    }

    #[test]
    fn another_placement_counts_from_now_on_and_what_a_leader_began_is_still_owed() {
        let any_worker = |job: Arc<Job>| Arc::new((*job).clone().placement(Placement::AnyWorker));
        let old = written(&any_worker(job(1)), 3);
        assert!(old.any_worker && old.since == at(3));
        let all = nodes(&[Some((1, old.clone())), Some((1, old.clone()))]);
        let moved = find(job(1), &all, Some(at(12)), None, at(13));
        assert_eq!(moved.entry.row.since, at(13));
        assert_eq!(moved.entry.plan.next, Some(at(14)), "what ran under the other placement is not made up");
        let same = find(any_worker(job(1)), &all, Some(at(12)), None, at(13));
        assert_eq!(same.entry.row.since, at(3));
        // And the other way; also where an earlier leader has noted it before.
        for row_before in [written(&job(1), 3), old] {
            let records = vec![row(1, &row_before), tick_record(11, 1, false)];
            let all = sealed(vec![node(at(0), records); 2]);
            let mut moved = find(any_worker(job(1)), &all, None, None, at(13));
            assert_eq!(
                moved.entry.plan.start(at(13)).0.map(|start| start.tick),
                Some(at(11)),
                "at least once"
            );
            let once = Arc::new((*any_worker(job(1))).clone().delivery(Delivery::AtMostOnce));
            assert_eq!(find(once, &all, None, None, at(13)).closes.len(), 1);
        }
    }
}
