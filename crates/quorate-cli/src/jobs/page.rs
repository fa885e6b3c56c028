//! What is shown of jobs, as JSON has it. The names of the fields are kept.

use crate::time::rfc3339;
use quorate::{
    env::WallTime,
    plain::plain,
    schedule::{JobStatus, RunningTick, Schedule, TickHistory},
};
use serde::Serialize;

/// The most bytes of a name that are shown.
const NAME_MAX: usize = 200;
/// And of a reason, a rule, a schedule.
const TEXT_MAX: usize = 1_000;

/// A job.
#[derive(Debug, Serialize)]
pub(super) struct JobPage {
    pub(super) group: String,
    pub(super) name: String,
    pub(super) schedule: String,
    pub(super) rules: String,
    pub(super) spread: bool,
    pub(super) registered: String,
    pub(super) paused: Option<PausedPage>,
    /// When it is next due; `null` where that cannot be told, or it is never due again.
    pub(super) next: Option<String>,
    pub(super) running: Vec<RunPage>,
    pub(super) last: Vec<EndPage>,
}

#[derive(Debug, Serialize)]
pub(super) struct PausedPage {
    pub(super) by: String,
    pub(super) at: String,
}

/// What has been started and not ended.
#[derive(Debug, Serialize)]
pub(super) struct RunPage {
    pub(super) tick: String,
    pub(super) request: Option<String>,
    pub(super) worker: String,
    pub(super) term: u64,
    pub(super) since: Option<String>,
    /// Its term is over: a next leader makes it up, or tells it lost.
    pub(super) orphaned: bool,
}

/// How a tick ended.
#[derive(Debug, Serialize)]
pub(super) struct EndPage {
    pub(super) tick: String,
    pub(super) until: Option<String>,
    pub(super) cause: String,
    pub(super) request: Option<String>,
    pub(super) end: String,
    pub(super) reason: String,
    pub(super) worker: String,
    pub(super) term: u64,
    pub(super) started: Option<String>,
    pub(super) took_ms: Option<u64>,
    pub(super) attempts: u32,
    pub(super) output: Option<String>,
}

impl JobPage {
    pub(super) fn new(group: &str, job: &JobStatus, now: WallTime) -> Self {
        let row = &job.row;
        let schedule = row.spec.as_ref().and_then(|spec| Schedule::from_spec(spec).ok());
        let next = schedule.and_then(|schedule| match schedule.is_after_end() {
            true => schedule.next_after_end(row.ended?),
            false => schedule.next_after(now),
        });
        Self {
            group: plain(group, NAME_MAX),
            name: plain(&job.name, NAME_MAX),
            schedule: plain(&row.schedule, TEXT_MAX),
            rules: plain(&row.rules, TEXT_MAX),
            spread: row.spread,
            registered: rfc3339(row.since),
            paused: row
                .paused
                .as_ref()
                .map(|paused| PausedPage { by: plain(&paused.by, NAME_MAX), at: rfc3339(paused.at) }),
            next: next.map(rfc3339),
            running: job.running.iter().map(RunPage::new).collect(),
            last: job.last.iter().map(EndPage::new).collect(),
        }
    }
}

impl RunPage {
    fn new(run: &RunningTick) -> Self {
        Self {
            tick: rfc3339(run.tick),
            request: run.request.map(|id| id.to_string()),
            worker: plain(&run.worker, NAME_MAX),
            term: run.term.get(),
            since: run.since.map(rfc3339),
            orphaned: run.orphaned,
        }
    }
}

impl EndPage {
    pub(super) fn new(end: &TickHistory) -> Self {
        Self {
            tick: rfc3339(end.tick),
            until: end.until.map(rfc3339),
            cause: end.cause.to_string(),
            request: end.cause.request().map(|id| id.to_string()),
            end: end.end.to_string(),
            reason: plain(&end.reason, TEXT_MAX),
            worker: plain(&end.worker, NAME_MAX),
            term: end.term.get(),
            started: end.started.map(rfc3339),
            took_ms: end.took.map(|took| u64::try_from(took.as_millis()).unwrap_or(u64::MAX)),
            attempts: end.attempts,
            output: end.output.as_ref().map(|output| lines(output)),
        }
    }
}

/// A text of several lines, each without what could steer a terminal.
fn lines(text: &str) -> String {
    let lines: Vec<String> = text.split('\n').map(|line| plain(line, usize::MAX)).collect();
    lines.join("\n")
}
