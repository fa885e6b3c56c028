//! A request that makes runs, as the ledger has it until all of them have ended.
//!
//! Its row says how far it has come, so that the next leader goes on there: the runs are made one after another, and
//! of those before the mark nothing need be remembered. The time of the mark stands for the time of every run
//! that comes: none of them can have been started before.

use crate::scheduler::{
    plan::job_plan::{PendingRun, ToClose},
    store::{
        row_writer::highest,
        snapshot::{Decided, LedgerSnapshot},
    },
};
use crate::{
    env::WallTime,
    node::Record,
    scheduler::{
        Decision, Job, JobAction, JobRequest, JobResponse, RunCause, RunRecord, SkipReason, inherited,
        store::FOR_EVER,
    },
};
use std::{collections::VecDeque, sync::Arc};

/// The most ticks that one request makes up.
pub(in crate::scheduler) const BACKFILL_MAX: usize = 1_000;
/// A request for more is counted up to here, to say by how much it is too long.
const COUNTED_MAX: usize = 100_000;
/// What the keys of rows begin with.
pub(in crate::scheduler) const PREFIX: &str = "ask/";

/// `ask/ID`
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(in crate::scheduler) struct RequestRow {
    pub(in crate::scheduler) request: JobRequest,
    pub(in crate::scheduler) answer: JobResponse,
    /// The schedule by which the ticks of a back-fill are found.
    schedule: Arc<str>,
    /// The runs of ticks before this have ended.
    next: Option<WallTime>,
    /// When that was.
    moved: WallTime,
}

/// A request whose runs have not all ended.
#[derive(Debug)]
pub(in crate::scheduler) struct OpenRequest {
    pub(in crate::scheduler) row: RequestRow,
    /// As it was when the request was opened: to tell of the request where the job is no more.
    pub(in crate::scheduler) job: Arc<Job>,
    ticks: VecDeque<WallTime>,
}

/// What comes next of an open request.
#[derive(Debug, PartialEq)]
pub(in crate::scheduler) enum Next {
    Run(PendingRun),
    /// It has ended, by a record that is not known to have had a majority.
    Close(Box<ToClose>),
    /// Not this tick, and never: it may have been started, and the job is at-most-once.
    Lost(PendingRun, SkipReason),
    Over,
}

impl RequestRow {
    pub(in crate::scheduler) fn key(request: &JobRequest) -> Arc<str> {
        format!("{PREFIX}{}", request.id).into()
    }

    pub(in crate::scheduler) fn to_value(&self) -> Arc<str> {
        serde_json::to_string(self).unwrap_or_default().into()
    }

    /// Before which time the ledger may forget.
    pub(in crate::scheduler) fn oldest(&self) -> WallTime {
        self.moved
    }

    /// What the nodes know of a request, and whether all its runs have ended.
    pub(in crate::scheduler) fn find(records: &[Option<Record>]) -> Option<(Self, bool)> {
        let read = |record: &Record| {
            let row: Self = serde_json::from_str(&record.value).ok()?;
            Some((row, record.last || record.at != FOR_EVER.as_micros()))
        };
        highest(records, read, |(row, over)| (*over, row.moved, row.next)).map(|(found, _)| found)
    }
}

impl OpenRequest {
    /// A request that makes runs, found sound at `now`.
    pub(in crate::scheduler) fn accept(
        request: JobRequest,
        job: &Arc<Job>,
        now: WallTime,
    ) -> Result<Self, Arc<str>> {
        let ticks = ticks(&request.what, request.at, job)?;
        let count = ticks.len();
        let text = match count {
            1 => "1 run will be made".to_owned(),
            _ => format!("{count} runs will be made, one after another"),
        };
        let answer = JobResponse::Accepted { text: text.into(), count: count as u64 };
        let schedule = job.schedule.to_string().into();
        let next = ticks.front().copied();
        let row = RequestRow { request, answer, schedule, next, moved: now };
        Ok(Self { row, job: Arc::clone(job), ticks })
    }

    /// A request that an earlier leader accepted: where it stands. What is left of a back-fill is given up where the
    /// schedule has changed since; and everything is where the job is no more.
    pub(in crate::scheduler) fn resume(row: RequestRow, job: &Arc<Job>) -> Self {
        let same = *row.schedule == *job.schedule.to_string();
        let ticks = ticks(&row.request.what, row.request.at, job).ok().filter(|_| same).unwrap_or_default();
        let ticks = ticks.into_iter().filter(|tick| row.next.is_some_and(|next| next <= *tick)).collect();
        Self { row, job: Arc::clone(job), ticks }
    }

    /// The next of its runs.
    pub(in crate::scheduler) fn next(&self, job: &Job, sealed: &LedgerSnapshot) -> Next {
        let Some(&tick) = self.ticks.front() else { return Next::Over };
        let (id, at) = (self.row.request.id, self.row.moved);
        let cause = self.cause();
        let key: Arc<str> = format!("run/{id}/{}/{:020}", job.name, tick.as_micros()).into();
        let Decided { decision, seen, unknown, remembering, unsettled } =
            sealed.decide(job.delivery, &key, at);
        let not_before = at;
        let start = PendingRun { tick, cause, key, at, remembering, not_before, seen, unknown, times: 0 };
        if let Some(record) = unsettled
            && let Ok(RunRecord::Closed { end, outcome, .. }) = RunRecord::parse(&record.value)
        {
            let (end, start) = (inherited(end, remembering), PendingRun { seen: Some(record), ..start });
            return Next::Close(Box::new(ToClose { start, end, why: Some(outcome) }));
        }
        match decision {
            Decision::Run | Decision::AskAgain => Next::Run(start),
            Decision::Skip(why) => Next::Lost(start, why),
        }
    }

    /// Why its runs run.
    pub(in crate::scheduler) fn cause(&self) -> RunCause {
        let id = self.row.request.id;
        match self.row.request.what {
            JobAction::Trigger { .. } => RunCause::Triggered { id },
            _ => RunCause::Backfilled { id },
        }
    }

    /// That its next run has ended, at `now`.
    pub(in crate::scheduler) fn ended(&mut self, now: WallTime) {
        self.ticks.pop_front();
        self.row.next = self.ticks.front().copied();
        self.row.moved = now;
    }

    /// The ticks that are left.
    pub(in crate::scheduler) fn left(&self) -> &VecDeque<WallTime> {
        &self.ticks
    }

    /// Gives up all but the run that goes on.
    pub(in crate::scheduler) fn keep_first(&mut self) {
        self.ticks.truncate(1);
    }

    /// Gives up what is left.
    pub(in crate::scheduler) fn give_up(&mut self) {
        self.ticks.clear();
        self.row.next = None;
    }

    /// Before which time the ledger may forget.
    pub(in crate::scheduler) fn oldest(&self) -> WallTime {
        self.row.moved
    }
}

/// The ticks of a request, or why it is refused.
fn ticks(what: &JobAction, asked: WallTime, job: &Job) -> Result<VecDeque<WallTime>, Arc<str>> {
    let (from, until) = match what {
        JobAction::Backfill { from, until, .. } => (*from, *until),
        _ => return Ok([asked].into()),
    };
    let schedule = &job.schedule;
    if schedule.is_after_end() {
        return Err(format!(
            "{} is due some time after each end, so that no span holds ticks of it",
            job.name
        )
        .into());
    }
    let show = |at| schedule.format(at);
    if until <= from {
        let why = format!("the span from {} until {} is empty: its end is excluded", show(from), show(until));
        return Err(why.into());
    }
    let upto = |at: &WallTime| schedule.next_after(*at).filter(|tick| *tick < until);
    let before = from - std::time::Duration::from_micros(1);
    let mut walk = std::iter::successors(upto(&before), upto);
    let ticks: VecDeque<WallTime> = walk.by_ref().take(BACKFILL_MAX).collect();
    let more = walk.take(COUNTED_MAX - BACKFILL_MAX).count();
    match (ticks.len(), more) {
        (0, _) => Err(format!("{} has no tick from {} until {}", job.name, show(from), show(until)).into()),
        (_, 0) => Ok(ticks),
        (few, more) => {
            let least = if few + more >= COUNTED_MAX { "at least " } else { "" };
            let why = format!(
                "the span holds {least}{} ticks; ask for at most {BACKFILL_MAX} at a time",
                few + more
            );
            Err(why.into())
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        node::FencingToken,
        scheduler::{Delivery, RequestId, RunRecord, every},
    };
    use {
        super::*,
        crate::scheduler::store::snapshot::tests::{SECOND, at, node},
    };

    fn job() -> Arc<Job> {
        Job::new("j", every(SECOND).unwrap(), |_| async { Ok::<(), String>(()) }).into()
    }

    fn request(from: u64, until: u64) -> JobRequest {
        let what = JobAction::Backfill { job: "j".into(), from: at(from), until: at(until) };
        let id = RequestId::from_u128(1);
        JobRequest { id, by: "me".into(), at: at(5_000), valid_for: 60 * SECOND, what }
    }

    fn ledger(records: Vec<(Arc<str>, Record)>) -> LedgerSnapshot {
        LedgerSnapshot::new(vec![node(at(0), records), node(at(0), vec![]), node(at(0), vec![])], 2, SECOND)
    }

    #[test]
    fn a_span_holds_its_beginning_and_not_its_end() {
        let ask = OpenRequest::accept(request(10, 13), &job(), at(5_000)).unwrap();
        assert_eq!(ask.ticks, [at(10), at(11), at(12)]);
        let JobResponse::Accepted { count, .. } = ask.row.answer else { panic!("accepted") };
        assert_eq!(count, 3);
        let trigger = JobRequest { what: JobAction::Trigger { job: "j".into() }, ..request(0, 0) };
        assert_eq!(
            OpenRequest::accept(trigger, &job(), at(5_001)).unwrap().ticks,
            [at(5_000)],
            "when it was asked"
        );
    }

    #[test]
    fn what_is_too_long_or_empty_is_refused_with_the_number() {
        let why = |from, until| OpenRequest::accept(request(from, until), &job(), at(0)).unwrap_err();
        assert!(why(10, 10).contains("is empty"));
        assert!(OpenRequest::accept(request(0, 1_000), &job(), at(0)).is_ok());
        assert!(why(0, 1_001).contains("holds 1001 ticks; ask for at most 1000"), "{}", why(0, 1_001));
        assert!(why(0, 2_000_000).contains("holds at least 100000 ticks"));
        let daily = crate::scheduler::Cron::parse("0 3 1 1 *").unwrap();
        let rare = Job::new("j", daily, |_| async { Ok::<(), String>(()) });
        assert!(OpenRequest::accept(request(0, 100), &rare.into(), at(0)).unwrap_err().contains("no tick"));
    }

    #[test]
    fn the_next_leader_goes_on_where_the_row_stands() {
        let mut ask = OpenRequest::accept(request(10, 14), &job(), at(5_000)).unwrap();
        ask.ended(at(5_001));
        let record = |row: &RequestRow, term| {
            let term = FencingToken::new(term);
            Record { at: FOR_EVER.as_micros(), term, last: false, value: row.to_value() }
        };
        let (found, over) = RequestRow::find(&[None, Some(record(&ask.row, 3))]).unwrap();
        assert!(!over);
        let on = OpenRequest::resume(found, &job());
        assert_eq!((on.left(), on.oldest()), (ask.left(), at(5_001)));
        let slower = Job::new("j", every(2 * SECOND).unwrap(), |_| async { Ok::<(), String>(()) });
        assert!(
            OpenRequest::resume(ask.row.clone(), &slower.into()).left().is_empty(),
            "other ticks than were asked for"
        );
        let closed = Record { at: 7, last: true, ..record(&ask.row, 3) };
        assert!(RequestRow::find(&[Some(closed), None]).unwrap().1);
    }

    #[test]
    fn what_may_have_run_is_not_run_again_under_at_most_once() {
        let ask = OpenRequest::accept(request(10, 14), &job(), at(5_000)).unwrap();
        let Next::Run(start) = ask.next(&job(), &ledger(vec![])) else { panic!("nothing stands") };
        assert_eq!((start.tick, start.at), (at(10), at(5_000)));
        let stands = |last| {
            let (at, term) = (at(5_000), FencingToken::new(1));
            let done = || RunRecord::done("w", SECOND, "").remembered(at, term);
            let record = if last { done() } else { RunRecord::started("w") }.into_record(at, term);
            let found = || {
                node(
                    crate::scheduler::store::snapshot::tests::at(0),
                    vec![(start.key.clone(), record.clone())],
                )
            };
            LedgerSnapshot::new(vec![found(), found()], 2, SECOND)
        };
        let once = (*job()).clone().delivery(Delivery::AtMostOnce);
        let Next::Lost(lost, SkipReason::Started) = ask.next(&once, &stands(false)) else {
            panic!("started")
        };
        assert!(lost.seen.is_some());
        assert!(matches!(ask.next(&once, &stands(true)), Next::Lost(_, SkipReason::Final)));
        let Next::Run(again) = ask.next(&job(), &stands(false)) else { panic!("at least once") };
        assert!(again.seen.is_some());
        let forgetful = LedgerSnapshot::new(vec![node(at(5_000), vec![]); 3], 2, SECOND);
        assert!(matches!(ask.next(&once, &forgetful), Next::Lost(_, SkipReason::Unknown)));
    }
}
