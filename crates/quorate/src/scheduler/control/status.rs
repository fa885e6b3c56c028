//! What the ledger says of jobs, as whoever asks is told: pure.

use crate::{
    env::WallTime,
    ledger::Answered,
    node::{FencingToken, Record},
    scheduler::{
        HistoryEntry, JobRow, OpenRun, RequestId, RunKey, RunRecord, plan::verdict::rank, store::FOR_EVER,
    },
};
use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::Arc,
};

/// What stands of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct JobStatus {
    /// Its name.
    pub name: Arc<str>,
    /// Its row.
    pub row: JobRow,
    /// What has been started and not ended, oldest first.
    pub running: Vec<RunStatus>,
    /// The newest entries of its history, newest first. Empty where it was not looked at: see
    /// [`Jobs::list`](super::Jobs::list).
    pub last: Vec<HistoryEntry>,
}

/// A tick that has been started and not recorded as ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunStatus {
    /// When it was due.
    pub tick: WallTime,
    /// The request that made it, where one did.
    pub request: Option<RequestId>,
    /// Who started it.
    pub worker: Arc<str>,
    /// Under which term it was started, or opened to workers.
    pub term: FencingToken,
    /// When it was started, where that is known.
    pub since: Option<WallTime>,
    /// Whether the term is over, so that nobody runs it any more: a next leader makes it up, or tells it lost.
    pub orphaned: bool,
}

/// The jobs that the ledger knows of, by name. Of several rows of one job the one of the highest term and revision counts.
pub(super) fn jobs(answers: &[Answered]) -> BTreeMap<Arc<str>, JobStatus> {
    let mut rows: BTreeMap<&str, ((FencingToken, u64), JobRow, bool)> = BTreeMap::new();
    for (key, record) in records(answers) {
        let Some(name) = key.strip_prefix(JobRow::PREFIX) else { continue };
        // What a later version wrote is left out here; the leader tells of it.
        let Ok(row) = JobRow::parse(&record.value) else { continue };
        let rank = (record.term, row.rev);
        // The row of a job that was removed is one that pruning will reach.
        let found = (rank, row, record.at == FOR_EVER.as_micros());
        match rows.entry(name) {
            Entry::Vacant(place) => drop(place.insert(found)),
            Entry::Occupied(mut place) if place.get().0 < rank => drop(place.insert(found)),
            Entry::Occupied(_) => {}
        }
    }
    let mut running = running(answers);
    rows.into_iter()
        .filter(|(_, (_, _, stays))| *stays)
        .map(|(name, (_, row, _))| {
            let name: Arc<str> = name.into();
            let running = running.remove(&name).unwrap_or_default();
            (Arc::clone(&name), JobStatus { name, row, running, last: Vec::new() })
        })
        .collect()
}

/// The record of each run that decides.
fn newest(answers: &[Answered]) -> BTreeMap<&str, &Record> {
    let mut newest: BTreeMap<&str, &Record> = BTreeMap::new();
    for (key, record) in records(answers) {
        let known = newest.entry(key).or_insert(record);
        if rank(record) > rank(known) {
            *known = record;
        }
    }
    newest
}

/// The runs that a leader has started itself and not closed, by job.
fn running(answers: &[Answered]) -> BTreeMap<Arc<str>, Vec<RunStatus>> {
    let sealed_by = answers.iter().map(|answer| answer.state.term).max().unwrap_or_default();
    let mut running: BTreeMap<Arc<str>, Vec<RunStatus>> = BTreeMap::new();
    for (key, record) in newest(answers) {
        let Some((request, RunKey { job, tick })) = run_of(key) else { continue };
        let Ok(RunRecord::Started { worker }) = RunRecord::parse(&record.value) else { continue };
        let orphaned = record.term < sealed_by;
        let run = RunStatus { tick, request, worker, term: record.term, since: None, orphaned };
        running.entry(job).or_default().push(run);
    }
    for runs in running.values_mut() {
        runs.sort_by_key(|run| (run.tick, run.request));
    }
    running
}

/// A run that is open to workers.
#[derive(Debug, PartialEq)]
pub(super) struct OpenTick {
    pub(super) run: Arc<str>,
    pub(super) job: Arc<str>,
    pub(super) tick: WallTime,
    pub(super) request: Option<RequestId>,
    pub(super) open: OpenRun,
}

/// The runs that are open to workers, taken or not.
pub(super) fn open(answers: &[Answered]) -> Vec<OpenTick> {
    let open = newest(answers).into_iter().filter_map(|(key, record)| {
        let (request, RunKey { job, tick }) = run_of(key)?;
        let Ok(RunRecord::Open(open)) = RunRecord::parse(&record.value) else { return None };
        Some(OpenTick { run: key.into(), job, tick, request, open })
    });
    open.collect()
}

fn records(answers: &[Answered]) -> impl Iterator<Item = (&str, &Record)> {
    answers.iter().flat_map(|answer| &answer.state.records).map(|(key, record)| (&**key, record))
}

/// Which run a key of the ledger means: `tick/JOB/MICROS`, or `run/ID/JOB/MICROS` of one that was asked for.
fn run_of(key: &str) -> Option<(Option<RequestId>, RunKey)> {
    if let Some(rest) = key.strip_prefix("run/") {
        let (id, rest) = rest.split_once('/')?;
        let key = RunKey::parse(&format!("tick/{rest}")).ok()??;
        return Some((Some(id.parse().ok()?), key));
    }
    Some((None, RunKey::parse(key).ok()??))
}

/// The name among `names` that was probably meant.
pub(super) fn nearest<'a>(word: &str, names: impl Iterator<Item = &'a Arc<str>>) -> Option<Arc<str>> {
    // Distances take time and memory by the product of the lengths.
    if word.len() > 64 {
        return None;
    }
    let fold = |name: &str| name.to_lowercase().replace('_', "-");
    let word = fold(word);
    let apart = |name: &Arc<str>| strsim::damerau_levenshtein(&fold(name), &word);
    let (near, apart) = names.map(|name| (name, apart(name))).min_by_key(|(_, apart)| *apart)?;
    (apart <= 3 && apart * 2 < word.len().max(2)).then(|| Arc::clone(near))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ledger::Memory, node::LedgerState};
    use std::time::Duration;

    fn term(number: u64) -> FencingToken {
        FencingToken::new(number)
    }

    fn row(rev: u64, schedule: &str, at: u64) -> (Arc<str>, Record) {
        let value = format!(r#"{{"since":7,"rev":{rev},"schedule":"{schedule}","rules":""}}"#).into();
        (JobRow::key("j"), Record { at: FOR_EVER.as_micros(), term: term(at), last: false, value })
    }

    fn tick(at: u64, record: RunRecord, by: u64) -> (Arc<str>, Record) {
        let tick = WallTime::from_micros(at);
        (RunKey::new("j", tick).key(), record.into_record(tick, term(by)))
    }

    fn node(sealed_by: u64, records: &[(Arc<str>, Record)]) -> Answered {
        let mut records = records.to_vec();
        records.sort_by(|a, b| a.0.cmp(&b.0));
        let memory = Memory { since: WallTime::default(), max_clock_offset: Duration::ZERO };
        Answered { memory, state: LedgerState { term: term(sealed_by), records, ..LedgerState::default() } }
    }

    #[test]
    fn of_several_rows_the_highest_term_and_then_revision_counts() {
        let schedule = |answers: &[Answered]| jobs(answers)["j"].row.schedule.to_string();
        assert_eq!(schedule(&[node(1, &[row(9, "old", 1)]), node(1, &[row(2, "new", 2)])]), "new");
        assert_eq!(schedule(&[node(1, &[row(2, "old", 2)]), node(1, &[row(3, "new", 2)])]), "new");
        assert_eq!(schedule(&[node(1, &[row(3, "new", 2)]), node(1, &[row(2, "old", 2)])]), "new");
        let mut removed = row(5, "gone", 2);
        removed.1.at = 7;
        assert_eq!(
            jobs(&[node(1, &[row(4, "old", 2)]), node(1, &[removed])]).len(),
            0,
            "a job that was removed"
        );
        let garbage = (JobRow::key("k"), Record { value: "?".into(), ..row(1, "", 1).1 });
        assert_eq!(jobs(&[node(1, &[garbage])]).len(), 0);
    }

    #[test]
    fn what_runs_is_what_the_record_of_the_highest_term_says() {
        let (begun, done) = (RunRecord::started("a"), RunRecord::done("a", Duration::ZERO, ""));
        let run = jobs(&[
            node(
                5,
                &[
                    row(1, "s", 5),
                    tick(1, begun.clone(), 5),
                    tick(2, begun.clone(), 5),
                    tick(3, begun.clone(), 4),
                    tick(4, begun.clone(), 5),
                ],
            ),
            node(5, &[tick(1, done.clone(), 5), tick(3, begun, 3), tick(4, done, 4)]),
        ]);
        let runs: Vec<_> = run["j"].running.iter().map(|run| (run.tick.as_micros(), run.orphaned)).collect();
        assert_eq!(
            runs,
            [(2, false), (3, true), (4, false)],
            "the third is of an older term than the seal's"
        );
        assert_eq!(&*run["j"].running[0].worker, "a");
    }

    #[test]
    fn a_run_that_was_asked_for_is_told_with_its_request() {
        let id = RequestId::from_u128(5);
        let (_, record) = tick(9, RunRecord::started("a"), 5);
        let found = jobs(&[node(5, &[row(1, "s", 5), (format!("run/{id}/j/{:020}", 9).into(), record)])]);
        assert_eq!(found["j"].running[0].request, Some(id));
        assert_eq!(found["j"].running[0].tick, WallTime::from_micros(9));
    }

    #[test]
    fn a_name_is_guessed_where_it_is_near() {
        let names: Vec<Arc<str>> = vec!["nightly-report".into(), "beat".into()];
        let near = |word: &str| nearest(word, names.iter()).map(|name| name.to_string());
        assert_eq!(near("nightly_reprot").as_deref(), Some("nightly-report"));
        assert_eq!(near("baet").as_deref(), Some("beat"));
        assert_eq!(near("weekly"), None);
        assert_eq!(near(&"b".repeat(100)), None);
    }
}
