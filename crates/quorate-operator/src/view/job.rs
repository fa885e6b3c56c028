use super::{ActiveRun, MaybeMicros, MaybeRfc3339, Name, Pause, Rfc3339, RunEnd, Text, name, text};
use quorate::{
    env::WallTime,
    scheduler::{JobAlert, JobStatus, Placement, RunOutcome, StoredDefinition, Zone},
};
use schemars::JsonSchema;
use serde::Serialize;
use std::{cmp::Ordering, sync::Arc, time::Duration};

/// A job.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Job")]
pub struct JobView {
    /// The group.
    #[serde(with = "Name")]
    pub group: Arc<str>,
    /// The name, as the nodes store it.
    #[serde(with = "Name")]
    pub name: Arc<str>,
    /// The schedule.
    pub schedule: String,
    /// The zone of the schedule. Texts show the times of the job in it.
    #[serde(with = "Text")]
    pub zone: Zone,
    /// The rules for misfires, overlaps and retries.
    pub rules: String,
    /// `leader`, `any-worker` or `every-worker`.
    #[serde(with = "Text")]
    pub placement: Placement,
    /// The time of its registration.
    #[serde(with = "Rfc3339")]
    pub registered: WallTime,
    /// The pause; of a frozen job that is not paused itself, the freeze.
    pub paused: Option<Pause>,
    /// True if the group is frozen.
    pub frozen: bool,
    /// The freeze of the group.
    #[serde(skip)]
    pub freeze: Option<Pause>,
    /// The handler and the last change of a job that is stored on the nodes; `null` for a job of a configuration or program.
    pub stored: Option<Stored>,
    /// The reason why no live worker can run the job; `null` if there is none.
    pub waits_for: Option<String>,
    /// The next tick; `null` if the job is paused without an end or never due again, or if the tick is not known.
    #[serde(with = "MaybeRfc3339")]
    pub next: Option<WallTime>,
    /// The time within which the job is expected to succeed again, in microseconds.
    #[serde(rename = "expect_within_us", with = "MaybeMicros")]
    pub expect_within: Option<Duration>,
    /// The time since which the job is overdue; `null` if it is not.
    #[serde(rename = "overdue_since", with = "MaybeRfc3339")]
    pub overdue: Option<WallTime>,
    /// The tick of the first run that failed since the last success, if the leader keeps it.
    #[serde(rename = "failing_since", with = "MaybeRfc3339")]
    pub failing: Option<WallTime>,
    /// The notifications that the leader has not sent yet, the oldest first.
    pub unsent: Vec<Unsent>,
    /// The active runs.
    pub running: Vec<ActiveRun>,
    /// The newest runs that have ended, the newest first.
    #[serde(rename = "last")]
    pub ends: Vec<RunEnd>,
}

/// A job that is stored on the nodes.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Stored {
    /// The name of the handler; `null` if this version does not understand the definition.
    pub handler: Option<String>,
    /// The number of bytes of the payload.
    pub payload_bytes: usize,
    /// The requester of the last change.
    pub by: String,
    /// The time of the last change.
    #[serde(with = "Rfc3339")]
    pub at: WallTime,
    /// The request of the last change, for a change of exactly this version.
    pub version: String,
}

/// A notification that was not sent yet.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Unsent {
    /// The event.
    pub event: String,
    /// The time of the event.
    #[serde(with = "Rfc3339")]
    pub at: WallTime,
    /// The reason.
    pub reason: String,
}

/// The word that describes a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum JobState {
    /// The newest run failed.
    Failed,
    /// The end of the newest run is unknown.
    Lost,
    /// The job is paused.
    Paused,
    /// The group is frozen.
    Frozen,
    /// A run is active.
    Running,
    /// None of these.
    Idle,
}

impl JobView {
    /// Returns the view of a job. `freeze` is that of the group, if it was read.
    pub fn new(group: &Arc<str>, job: &JobStatus, freeze: Option<&Pause>) -> Self {
        let paused = Pause::of_job(job);
        Self {
            group: Arc::clone(group),
            name: Arc::clone(&job.name),
            schedule: text(&job.schedule),
            zone: job.zone.clone(),
            rules: text(&job.rules),
            placement: job.placement,
            registered: job.registered,
            // The freeze may have begun between the read of the job and that of the group.
            freeze: if job.frozen { freeze.or(paused.as_ref()).cloned() } else { None },
            paused,
            frozen: job.frozen,
            stored: job.stored.as_ref().map(Stored::new),
            waits_for: job.waits_for.as_deref().map(text),
            next: job.next,
            expect_within: job.expect_within,
            overdue: job.overdue_since,
            failing: job.failing_since,
            unsent: job.alerts.iter().map(Unsent::new).collect(),
            running: job.running.iter().map(ActiveRun::new).collect(),
            ends: job.last.iter().map(RunEnd::new).collect(),
        }
    }

    /// Returns the name for people.
    pub fn shown(&self) -> String {
        name(&self.name)
    }

    /// Returns the job's own pause, besides a freeze of the group.
    pub fn own_pause(&self) -> Option<&Pause> {
        let of_freeze = |paused: &&Pause| {
            self.freeze.as_ref().is_some_and(|freeze| (freeze.at, &freeze.by) == (paused.at, &paused.by))
        };
        self.paused.as_ref().filter(|paused| !of_freeze(paused))
    }

    /// Returns the freeze of the group or the pause of the job, with the word for it. A freeze comes first, because
    /// the end of a pause changes nothing before the end of the freeze.
    pub fn stopped(&self) -> Option<(&'static str, &Pause)> {
        let frozen = self.freeze.as_ref().map(|freeze| ("frozen", freeze));
        frozen.or(self.paused.as_ref().map(|paused| ("paused", paused)))
    }

    /// Returns whether the row of the job, which has no ends of runs, says that an operator may be needed.
    pub const fn may_be_in_trouble(&self) -> bool {
        self.failing.is_some() || self.overdue.is_some()
    }

    /// Returns the newest end that is not a skipped tick.
    pub fn last_run(&self) -> Option<&RunEnd> {
        self.ends.iter().find(|end| !end.is_skipped())
    }

    /// Returns whether a run is active whose term has not ended.
    pub fn is_running(&self) -> bool {
        self.running.iter().any(|run| !run.orphaned)
    }

    /// Returns the one word for the job. A run that is active hides the end of the one before it.
    pub fn state(&self) -> JobState {
        if self.is_running() {
            return JobState::Running;
        }
        match self.last_run().map(|end| end.outcome) {
            Some(RunOutcome::Failed | RunOutcome::TimedOut) => JobState::Failed,
            None if self.failing.is_some() => JobState::Failed,
            _ if self.own_pause().is_some() => JobState::Paused,
            _ if self.freeze.is_some() => JobState::Frozen,
            Some(RunOutcome::Lost) => JobState::Lost,
            _ => JobState::Idle,
        }
    }

    /// Orders jobs: first those that failed, then those that are overdue, then by state, and by name.
    pub fn by_trouble(&self, other: &Self) -> Ordering {
        let rank = |job: &Self| {
            let state = job.state();
            (state != JobState::Failed, job.overdue.is_none(), state)
        };
        rank(self).cmp(&rank(other)).then_with(|| self.name.cmp(&other.name))
    }

    /// Returns in a few words whether the job is overdue, whether it runs, and whether it is paused. `end` formats the
    /// end of a pause.
    pub fn doing(&self, end: impl Fn(WallTime) -> String) -> String {
        let overdue = if self.overdue.is_some() { "overdue, " } else { "" };
        let waits = if self.waits_for.is_some() { "no worker, " } else { "" };
        let word = if self.frozen { "frozen" } else { "paused" };
        let running = self.running.iter().filter(|run| !run.orphaned).count();
        let activity = match (&self.paused, running) {
            (None, 0) => "idle".to_owned(),
            (None, 1) => "running".to_owned(),
            (None, some) => format!("{some} running"),
            (Some(paused), 0) => paused.short(word, end),
            (Some(paused), some) => format!("{}, {some} running", paused.short(word, end)),
        };
        format!("{overdue}{waits}{activity}")
    }

    /// Returns the properties of the job as names and values, with times in `zone`.
    pub fn fields(&self, zone: &Zone) -> Vec<(&'static str, String)> {
        let since = |at: &WallTime| format!("since {}", zone.rfc3339(*at));
        let mut fields = vec![
            ("schedule", self.schedule.clone()),
            ("rules", self.rules.clone()),
            ("registered", zone.rfc3339(self.registered)),
        ];
        if let Some(stored) = &self.stored {
            let payload = match stored.payload_bytes {
                0 => String::new(),
                bytes => format!(", payload of {bytes} bytes"),
            };
            let handler = stored.handler.as_deref().unwrap_or("?");
            fields.push(("handler", format!("{handler}{payload}")));
            fields.push(("stored by", format!("{} at {}", stored.by, zone.rfc3339(stored.at))));
        }
        fields.extend(self.waits_for.iter().map(|why| ("waits", why.clone())));
        let paused = if self.frozen { "frozen" } else { "paused" };
        fields.extend(self.paused.iter().map(|pause| (paused, pause.line(zone))));
        fields.extend(self.overdue.iter().map(|at| ("overdue", since(at))));
        fields.extend(self.failing.iter().map(|at| ("failing", since(at))));
        let unsent = self.unsent.iter();
        fields.extend(
            unsent.map(|one| {
                ("not sent", format!("{} at {}: {}", one.event, zone.rfc3339(one.at), one.reason))
            }),
        );
        fields.push(("next", self.next.map_or_else(|| "-".to_owned(), |next| zone.rfc3339(next))));
        for run in &self.running {
            fields.push((if run.orphaned { "orphaned" } else { "running" }, run.line(zone)));
        }
        fields.extend(self.ends.iter().map(|end| ("ended", end.line(zone))));
        fields
    }
}

impl Stored {
    fn new(stored: &StoredDefinition) -> Self {
        let job = stored.job.as_ref().ok();
        let definition = job.and_then(|job| job.definition().ok());
        let payload = definition.and_then(|definition| definition.payload);
        Self {
            handler: job.and_then(|job| job.handler_name()).map(|handler| name(handler)),
            payload_bytes: payload.map_or(0, |payload| payload.bytes().len()),
            by: name(&stored.by),
            at: stored.at,
            version: stored.version.to_string(),
        }
    }
}

impl Unsent {
    fn new(alert: &JobAlert) -> Self {
        Self { event: alert.kind.to_string(), at: alert.at, reason: text(&alert.reason) }
    }
}

impl JobState {
    /// Returns the word that the commands, the page and their JSON have for the state.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Lost => "lost",
            Self::Paused => "paused",
            Self::Frozen => "frozen",
            Self::Running => "running",
            Self::Idle => "idle",
        }
    }
}
