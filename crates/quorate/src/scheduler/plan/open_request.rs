//! A request for runs, from its acceptance until all its runs have ended.
//!
//! The runs of a request start one after another. The request's row in the ledger stores the first tick whose
//! run has not ended. A new leader continues with this tick, and needs no records of the ended runs. The row
//! also stores the time at which the previous run of the request ended. The next run cannot have been started
//! before that time, so the leader considers only records from that time on.

use crate::{
    env::WallTime,
    scheduler::{
        job::{Job, RunCause},
        run::pending_run::PendingRun,
        store::{
            JobAction, JobRequest, JobResponse, RequestRow, requested_key,
            snapshot::{Decided, LedgerSnapshot},
            verdict::{Decision, SkipReason},
        },
    },
};
use std::{collections::VecDeque, sync::Arc};

/// The largest number of runs of one request.
pub(in crate::scheduler) const BACKFILL_MAX: usize = 1_000;
/// If a back-fill has too many ticks, the refusal states their number. Ticks are counted only up to this
/// number.
const COUNTED_MAX: usize = 100_000;

/// A request whose runs have not all ended.
#[derive(Debug)]
pub(in crate::scheduler) struct OpenRequest {
    row: RequestRow,
    /// The job as it was when the request was accepted. The history entries of the request's runs need it, even
    /// after the job was removed.
    job: Arc<Job>,
    ticks: VecDeque<WallTime>,
    /// If an earlier leader accepted the request, the time in the row that this leader found. Nodes may have lost later
    /// rows, so earlier leaders may have written a record of any remaining run since this time.
    found: Option<WallTime>,
}

/// The next step of an open request.
#[derive(Debug, PartialEq)]
pub(in crate::scheduler) enum NextRun {
    /// Starts this run.
    Run(PendingRun),
    /// Leaves this run out for this reason, and continues with the next run of the request.
    Skip(PendingRun, SkipReason),
    /// Closes the request: all its runs have ended.
    Finished,
}

impl OpenRequest {
    /// Creates an open request from a request for runs that the leader accepts at `now`.
    ///
    /// # Errors
    /// The reason for the refusal, as a text for the sender.
    pub(in crate::scheduler) fn accept(
        request: &JobRequest,
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
        let row = RequestRow { request: request.clone(), answer, schedule, next, moved: now, closed: None };
        Ok(Self { row, job: Arc::clone(job), ticks, found: None })
    }

    /// Gives the run of a trigger this tick, which is the time of the request unless another run has it.
    pub(in crate::scheduler) fn at_tick(mut self, tick: WallTime) -> Self {
        if matches!(self.row.request.what, JobAction::Trigger { .. }) {
            self.ticks = [tick].into();
            self.row.next = Some(tick);
        }
        self
    }

    /// Creates a request that the leader refuses with `answer`. It has no runs, so the leader closes its row as
    /// soon as the row is stored.
    pub(in crate::scheduler) fn refused(
        request: JobRequest,
        answer: JobResponse,
        job: &Arc<Job>,
        now: WallTime,
    ) -> Self {
        let schedule = job.schedule.to_string().into();
        let row = RequestRow { request, answer, schedule, next: None, moved: now, closed: None };
        Self { row, job: Arc::clone(job), ticks: VecDeque::new(), found: None }
    }

    /// Continues a request that an earlier leader accepted. If the job's schedule has changed since then, a
    /// back-fill has no runs left, because its ticks were those of the old schedule. The run of a trigger does
    /// not depend on the schedule.
    pub(in crate::scheduler) fn resume(row: RequestRow, job: &Arc<Job>) -> Self {
        let ticks = match row.request.what {
            JobAction::Trigger { .. } => row.next.into_iter().collect(),
            _ => {
                let is_valid = *row.schedule == *job.schedule.to_string();
                let ticks = ticks(&row.request.what, row.request.at, job).ok().filter(|_| is_valid);
                let is_left = |tick: &WallTime| row.next.is_some_and(|next| next <= *tick);
                ticks.unwrap_or_default().into_iter().filter(is_left).collect()
            }
        };
        let found = Some(row.moved);
        Self { row, job: Arc::clone(job), ticks, found }
    }

    /// Returns the next step of the request. It depends on the ledger's records of the request's next run.
    pub(in crate::scheduler) fn next(&self, job: &Job, sealed: &LedgerSnapshot) -> NextRun {
        let Some(&tick) = self.ticks.front() else { return NextRun::Finished };
        let (id, at) = (self.row.request.id, self.row.moved);
        let cause = self.cause();
        let key = requested_key(id, &job.name, tick);
        let earliest = self.found.map_or(at, |found| found.min(at));
        let Decided { decision, seen, unknown } = sealed.decide(job.rules.delivery, &key, earliest, earliest);
        let payload = match &self.row.request.what {
            JobAction::Trigger { payload, .. } => payload.clone(),
            _ => None,
        };
        let run =
            PendingRun { tick, cause, key, at, not_before: at, seen, unknown, interruptions: 0, payload };
        match decision {
            Decision::Run => NextRun::Run(run),
            Decision::Skip(why) => NextRun::Skip(run, why),
        }
    }

    pub(in crate::scheduler) fn cause(&self) -> RunCause {
        self.row.cause()
    }

    /// Notes that the next run of the request has ended at `now`.
    pub(in crate::scheduler) fn on_run_end(&mut self, now: WallTime) {
        self.ticks.pop_front();
        self.row.next = self.ticks.front().copied();
        self.row.moved = now;
    }

    /// Returns the ticks of the request's runs that have not ended.
    pub(in crate::scheduler) fn remaining(&self) -> &VecDeque<WallTime> {
        &self.ticks
    }

    /// Drops all runs except the first one, which is active.
    pub(in crate::scheduler) fn keep_active(&mut self) {
        self.ticks.truncate(1);
    }

    /// Drops all runs of the request.
    pub(in crate::scheduler) fn drop_all(&mut self) {
        self.ticks.clear();
        self.row.next = None;
    }

    pub(in crate::scheduler) fn row(&self) -> &RequestRow {
        &self.row
    }

    pub(in crate::scheduler) fn job(&self) -> &Arc<Job> {
        &self.job
    }
}

/// Returns the ticks that a request asks for.
///
/// # Errors
/// The reason for the refusal, as a text for the sender.
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
    use super::*;
    use crate::{
        ledger::FOUNDED,
        node::FencingToken,
        scheduler::{
            job::{RequestId, RunOutcome},
            policy::Delivery,
            schedule::Schedule,
            store::{
                RunRecord,
                snapshot::tests::{SECOND, at, snapshot},
            },
        },
    };

    fn job() -> Arc<Job> {
        Job::new("j", Schedule::every(SECOND).unwrap(), |_| async { Ok::<(), String>(()) }).into()
    }

    fn request(from: u64, until: u64) -> JobRequest {
        let what = JobAction::Backfill { job: "j".into(), from: at(from), until: at(until) };
        let id = RequestId::from_u128(1);
        JobRequest { id, by: "me".into(), at: at(5_000), valid_for: 60 * SECOND, what }
    }

    fn founded_at(seconds: u64) -> LedgerSnapshot {
        snapshot([(FOUNDED.into(), at(seconds).as_micros().to_string().into())])
    }

    #[test]
    fn a_backfill_includes_the_beginning_of_its_span_and_not_the_end() {
        let open = OpenRequest::accept(&request(10, 13), &job(), at(5_000)).unwrap();
        assert_eq!(open.ticks, [at(10), at(11), at(12)]);
        let JobResponse::Accepted { count, .. } = open.row.answer else { panic!("accepted") };
        assert_eq!(count, 3);
        let trigger = JobRequest { what: JobAction::trigger("j"), ..request(0, 0) };
        assert_eq!(
            OpenRequest::accept(&trigger, &job(), at(5_001)).unwrap().ticks,
            [at(5_000)],
            "the time of the request"
        );
    }

    #[test]
    fn a_span_that_is_too_long_or_empty_is_refused_with_the_number_of_its_ticks() {
        let why = |from, until| OpenRequest::accept(&request(from, until), &job(), at(0)).unwrap_err();
        assert!(why(10, 10).contains("is empty"));
        assert!(OpenRequest::accept(&request(0, 1_000), &job(), at(0)).is_ok());
        assert!(why(0, 1_001).contains("holds 1001 ticks; ask for at most 1000"), "{}", why(0, 1_001));
        assert!(why(0, 2_000_000).contains("holds at least 100000 ticks"));
        let daily = crate::scheduler::schedule::Cron::parse("0 3 1 1 *").unwrap();
        let rare = Job::new("j", daily, |_| async { Ok::<(), String>(()) });
        assert!(OpenRequest::accept(&request(0, 100), &rare.into(), at(0)).unwrap_err().contains("no tick"));
    }

    #[test]
    fn the_next_leader_goes_on_from_the_row() {
        let mut open = OpenRequest::accept(&request(10, 14), &job(), at(5_000)).unwrap();
        open.on_run_end(at(5_001));
        let found = |row: &RequestRow| {
            let sealed = snapshot([(row.id().key(), row.to_value())]);
            sealed.requests().next().expect("it can be read")
        };
        let resumed = OpenRequest::resume(found(&open.row), &job());
        assert_eq!((resumed.remaining(), resumed.row.moved), (open.remaining(), at(5_001)));
        let slower =
            Arc::new(Job::new("j", Schedule::every(2 * SECOND).unwrap(), |_| async { Ok::<(), String>(()) }));
        assert!(
            OpenRequest::resume(open.row.clone(), &slower).remaining().is_empty(),
            "its ticks are not those of the request"
        );
        let trigger = JobRequest { what: JobAction::trigger("j"), ..request(0, 0) };
        let trigger = OpenRequest::accept(&trigger, &job(), at(5_001)).unwrap();
        assert_eq!(
            OpenRequest::resume(trigger.row, &slower).ticks,
            [at(5_000)],
            "a trigger has no tick of a schedule"
        );
        assert!(!found(&open.row).is_closed() && found(&open.row.closed_at(at(5_003))).is_closed());
    }

    #[test]
    fn only_the_row_of_a_request_that_ended_before_the_mark_is_outdated() {
        let row = OpenRequest::accept(&request(10, 12), &job(), at(5_000)).unwrap().row;
        let outdated =
            |row: &RequestRow, key: &str, mark| RequestRow::is_outdated(key, &row.to_value(), at(mark));
        let key = row.id().key();
        assert!(!outdated(&row, &key, 9_000), "it has not ended");
        let closed = row.closed_at(at(6_000));
        assert_eq!([6_000, 6_001].map(|mark| outdated(&closed, &key, mark)), [false, true]);
        assert!(!outdated(&closed, "job/j", 9_000));
    }

    #[test]
    fn a_later_run_of_a_stale_row_does_not_run_again_under_at_most_once() {
        // An earlier leader ended both runs. A majority lost the ledger, which was founded at 6,000 s, and the last row.
        let row = OpenRequest::accept(&request(10, 12), &job(), at(5_000)).unwrap().row;
        let once = (*job()).clone().delivery(Delivery::AtMostOnce);
        let mut open = OpenRequest::resume(row, &job());
        open.on_run_end(at(7_000));
        assert_eq!(open.remaining(), &[at(11)]);
        assert!(matches!(open.next(&once, &founded_at(6_000)), NextRun::Skip(_, SkipReason::Unknown)));
        let NextRun::Run(run) = open.next(&once, &founded_at(4_000)) else {
            panic!("the ledger has all runs")
        };
        assert_eq!((run.tick, run.at), (at(11), at(7_000)));
        let mut own = OpenRequest::accept(&request(10, 12), &job(), at(6_500)).unwrap();
        own.on_run_end(at(7_000));
        assert!(
            matches!(own.next(&once, &founded_at(6_000)), NextRun::Run(_)),
            "no other leader accepted it"
        );
    }

    #[test]
    fn a_run_that_may_have_started_does_not_run_again_under_at_most_once() {
        let open = OpenRequest::accept(&request(10, 14), &job(), at(5_000)).unwrap();
        let NextRun::Run(start) = open.next(&job(), &snapshot([])) else { panic!("no record exists") };
        assert_eq!((start.tick, start.at), (at(10), at(5_000)));
        let recorded = |ended| {
            let under = (FencingToken::new(1), at(5_000));
            let record = match ended {
                true => RunRecord::closed("w", (RunOutcome::Done, ""), Some(SECOND), under),
                false => RunRecord::started("w", under),
            };
            snapshot([(start.key.clone(), record.to_value())])
        };
        let once = (*job()).clone().delivery(Delivery::AtMostOnce);
        let NextRun::Skip(lost, SkipReason::Started) = open.next(&once, &recorded(false)) else {
            panic!("started")
        };
        assert!(lost.seen.is_some());
        assert!(matches!(open.next(&once, &recorded(true)), NextRun::Skip(_, SkipReason::Final)));
        let NextRun::Run(again) = open.next(&job(), &recorded(false)) else {
            panic!("at least once runs it again")
        };
        assert!(again.seen.is_some());
        assert!(matches!(open.next(&once, &founded_at(5_000)), NextRun::Skip(_, SkipReason::Unknown)));
    }
}
