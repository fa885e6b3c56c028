//! The texts of an [`Explanation`]. There is one function for each case.

use super::{Explanation, JobFacts, LedgerFacts, Reason, reason_of};
use crate::{
    env::WallTime,
    ledger::Waiting,
    plain::plain,
    scheduler::{
        control::status::{RegisteredJob, RunStatus},
        job::RunOutcome,
        policy::Concurrency,
        schedule::Zone,
        store::{HistoryEntry, Paused},
    },
};
use std::{sync::Arc, time::Duration};

/// The meaning of the time from which the ticks of a job count.
const SINCE: &str =
    "it was first registered, got its schedule or placement, was resumed, or a freeze ended then";
/// The largest number of bytes of a name or a reason that a text repeats.
const TEXT_MAX: usize = 300;

impl JobFacts {
    /// Explains that the ledger cannot be read.
    pub(super) fn unread(&self) -> Explanation {
        let (voting, total, needed) = (self.nodes.voting, self.nodes.total, self.nodes.needed);
        let text = format!(
            "there is no quorum of nodes: {voting} of {total} answered, {needed} required; without it no job runs, and \
             what ran before cannot be read"
        );
        let mut evidence = self.nodes.reasons.clone();
        evidence.push(format!("asked at {}", self.time(self.local)));
        let action = "start the nodes that do not answer, or fix the network to them; `quorate doctor` examines each node";
        self.answer(Reason::NoQuorum, self.asked, text, evidence, action)
    }

    pub(super) fn not_registered(&self, ledger: &LedgerFacts) -> Explanation {
        let text = format!("no job of this name is registered in group {:?}", plain(&self.group, TEXT_MAX));
        let mut evidence = vec![match ledger.others {
            0 => "the ledger of the group has no jobs".to_owned(),
            others => format!("the ledger of the group has {others} jobs"),
        }];
        evidence.extend(
            ledger.nearest.as_ref().map(|name| format!("a similar name is {:?}", plain(name, TEXT_MAX))),
        );
        evidence.push(leader(ledger));
        let last = ledger.history.last();
        evidence.extend(
            last.map(|last| format!("its last outcome, before it was removed: {}", self.outcome(last))),
        );
        let action = "check the name and the group with `quorate jobs list`; a job is registered when a worker that has it \
                      in its file leads";
        self.answer(Reason::NotRegistered, self.asked, text, evidence, action)
    }

    /// Explains that the tick is older than the time from which the job's ticks count.
    pub(super) fn registered_later(&self, at: WallTime, job: &RegisteredJob) -> Explanation {
        let text =
            format!("the job's ticks count from {}, which is later: {SINCE}", self.time(job.row.since));
        let action = format!("to run it for that time: {}", self.backfill(at));
        self.answer(Reason::NotRegistered, Some(at), text, vec![self.schedule_line(job)], &action)
    }

    /// Explains that the tick is older than the history and than the time from which the job's ticks count. It may have run.
    pub(super) fn older_than_the_history(
        &self,
        at: WallTime,
        job: &RegisteredJob,
        ledger: &LedgerFacts,
    ) -> Explanation {
        let text = "the nodes keep no outcome of it, if it was due then: the history begins later".to_owned();
        let oldest = ledger.history.first().map(|entry| self.time(entry.tick)).unwrap_or_default();
        let evidence = vec![
            format!("the history begins at {oldest}"),
            format!("the job's ticks count from {}: {SINCE}", self.time(job.row.since)),
            self.schedule_line(job),
        ];
        let action = format!(
            "read the logs of the workers of that time; a longer `history` keeps more entries; if it did not run: {}",
            self.backfill(at)
        );
        self.answer(Reason::NoRecord, Some(at), text, evidence, &action)
    }

    pub(super) fn paused(&self, paused: &Paused, tick: Option<WallTime>) -> Explanation {
        let until = paused.until.map(|until| format!(" until {}", self.time(until))).unwrap_or_default();
        let why = paused.reason.as_ref().map(|why| format!(": {}", plain(why, TEXT_MAX))).unwrap_or_default();
        let (by, at) = (plain(&paused.by, TEXT_MAX), self.time(paused.at));
        let text = format!("the job is paused by {by} since {at}{until}{why}");
        let action = format!("run its ticks again: quorate jobs resume {}", self.name());
        self.answer(Reason::Paused, tick, text, Vec::new(), &action)
    }

    pub(super) fn frozen(&self, frozen: &Paused, job: &RegisteredJob, tick: Option<WallTime>) -> Explanation {
        let until = frozen.until.map(|until| format!(" until {}", self.time(until))).unwrap_or_default();
        let why = frozen.reason.as_ref().map(|why| format!(": {}", plain(why, TEXT_MAX))).unwrap_or_default();
        let (by, at) = (plain(&frozen.by, TEXT_MAX), self.time(frozen.at));
        let group = plain(&self.group, TEXT_MAX);
        let text = format!("the group {group:?} is frozen by {by} since {at}{until}{why}");
        let own =
            job.row.paused.as_ref().map(|_| "the job is also paused, and stays paused afterwards".to_owned());
        let action = "it runs again by itself at the end of the freeze; to run all jobs of the group before: quorate unfreeze";
        self.answer(Reason::Frozen, tick, text, own.into_iter().collect(), action)
    }

    /// Explains that there is no leader. The cause may be that too few nodes may vote.
    pub(super) fn leaderless(&self, tick: Option<WallTime>, run: Option<&RunStatus>) -> Explanation {
        let nodes = &self.nodes;
        let mut evidence =
            vec![format!("{} of {} nodes vote, {} required", nodes.voting, nodes.total, nodes.needed)];
        evidence.extend(nodes.reasons.iter().cloned());
        let leader = self.ledger.as_ref().and_then(|ledger| ledger.leader.as_ref());
        evidence.extend(run.map(|run| {
            let (tick, worker) = (self.time(run.tick), plain(&run.worker, TEXT_MAX));
            let then = match leader {
                None => "the next leader repeats it or records it as lost",
                Some(_) => "its end cannot be recorded before a majority votes",
            };
            format!("the run of {tick} was started by {worker}; {then}")
        }));
        if nodes.has_majority() {
            let text = format!("no worker leads group {:?}, so no run starts", plain(&self.group, TEXT_MAX));
            let action = "start a worker that has the job (`quorate run`), and read the logs of the workers that should lead";
            return self.answer(Reason::NoLeader, tick, text, evidence, action);
        }
        if nodes.voting + nodes.by_clock >= nodes.needed {
            let text =
                "too few nodes vote, because clocks differ or have stepped; without a majority no run starts";
            let action = "set the clocks of the nodes and of the workers by NTP; `quorate nodes list` shows each clock";
            return self.answer(Reason::Clock, tick, text.to_owned(), evidence, action);
        }
        let text = match leader {
            None => "too few nodes vote, so there is no leader and no run starts".to_owned(),
            Some(leader) => format!("too few nodes vote, so {} starts no run", plain(leader, TEXT_MAX)),
        };
        let action = "see `quorate doctor`; a node in quarantine votes again by itself";
        self.answer(Reason::NoQuorum, tick, text, evidence, action)
    }

    /// Explains that too few nodes have a complete copy of the ledger.
    pub(super) fn incomplete(&self, tick: Option<WallTime>, waiting: &Waiting) -> Explanation {
        let mut evidence = self.nodes.reasons.clone();
        let leader = self.ledger.as_ref().and_then(|ledger| ledger.leader.as_ref());
        evidence.extend(leader.map(|leader| format!("{} leads, and waits too", plain(leader, TEXT_MAX))));
        self.answer(Reason::Incomplete, tick, waiting.why.clone(), evidence, waiting.fix)
    }

    pub(super) fn running(&self, run: &RunStatus) -> Explanation {
        let worker = plain(&run.worker, TEXT_MAX);
        let text = match run.orphaned {
            false => format!("it is running on {worker}"),
            true => format!(
                "it was started on {worker}, which no longer holds it; the leader repeats it or records it as lost"
            ),
        };
        let mut evidence =
            vec![format!("the run of {} has started under term {}", self.time(run.tick), run.term.get())];
        if let Some(id) = run.request {
            evidence.push(format!("it was requested, and is not the run of a tick: request {id}"));
        }
        let action = format!("to stop it: quorate jobs cancel {}", self.name());
        self.answer(Reason::Running, Some(run.tick), text, evidence, &action)
    }

    /// Explains that the tick is due by the clock of this machine, but not by the clock of the quorum.
    pub(super) fn clocks_differ(&self, at: WallTime) -> Explanation {
        let apart = self.now.until(self.local);
        let text = format!(
            "it is not due by the clock of the quorum, which is {apart:.1?} behind this machine's; the quorum's clock decides"
        );
        let evidence = vec![
            format!("the quorum's clock: {}", self.time(self.now)),
            format!("this machine's clock: {}", self.time(self.local)),
        ];
        let action =
            "set the clocks of this machine and of the nodes by NTP; `quorate nodes list` shows each clock";
        self.answer(Reason::Clock, Some(at), text, evidence, action)
    }

    /// Explains that the quorum's clock was set back, so that no tick is due before it shows `decided` again.
    pub(super) fn clock_set_back(
        &self,
        decided: WallTime,
        job: &RegisteredJob,
        ledger: &LedgerFacts,
    ) -> Explanation {
        let behind = self.now.until(decided);
        let text = format!(
            "the clocks of a majority of the nodes were set back: they are {behind:.0?} behind the time up to which the leader \
             has decided on all ticks, and no tick runs twice; so the job stands still until they show that time again"
        );
        let mut evidence = vec![
            format!("the quorum's clock: {}", self.time(self.now)),
            format!("decided on up to: {}", self.time(decided)),
            format!("this machine's clock: {}", self.time(self.local)),
            leader(ledger),
        ];
        evidence
            .extend(ledger.history.last().map(|last| format!("its last outcome: {}", self.outcome(last))));
        let action = format!(
            "set the clocks of the nodes by NTP; `quorate nodes list` shows each clock; to run it at once: quorate jobs trigger {}",
            self.name()
        );
        let next = self.neighbours(job, decided).1;
        Explanation { next, ..self.answer(Reason::Clock, None, text, evidence, &action) }
    }

    /// Explains that the job is not due at `at`, or that `at` is in the future.
    pub(super) fn not_due(
        &self,
        at: Option<WallTime>,
        job: &RegisteredJob,
        ledger: &LedgerFacts,
    ) -> Explanation {
        let (before, after) = self.neighbours(job, at.unwrap_or(self.now));
        let is_tick = at.filter(|at| *at > self.now && self.is_due(job, *at) == super::Due::Yes);
        let text = match (is_tick, at) {
            (Some(at), _) => format!("it is due at {}, which has not come yet", self.time(at)),
            (None, Some(at)) => format!("it is not due at {}", self.time(at)),
            (None, None) => "it has not been due yet".to_owned(),
        };
        let mut evidence = vec![self.schedule_line(job)];
        evidence.extend(before.map(|before| format!("the time before: {}", self.time(before))));
        evidence.push(match after {
            Some(after) => format!("the time after: {}", self.time(after)),
            None => "no later time is known".to_owned(),
        });
        evidence
            .extend(ledger.history.last().map(|last| format!("its last outcome: {}", self.outcome(last))));
        let action = format!("see the next times: quorate jobs next {}", self.name());
        Explanation { next: is_tick.or(after), ..self.answer(Reason::Schedule, at, text, evidence, &action) }
    }

    /// Explains that the schedule leaves out the day of `at`.
    pub(super) fn left_out(
        &self,
        at: WallTime,
        why: &str,
        job: &RegisteredJob,
        ledger: &LedgerFacts,
    ) -> Explanation {
        let text = format!("it is not due at {}: {why}", self.time(at));
        Explanation { text, ..self.not_due(Some(at), job, ledger) }
    }

    /// Explains the tick by its entry in the history. `since` is the first later run that succeeded.
    pub(super) fn recorded(
        &self,
        at: WallTime,
        entry: &HistoryEntry,
        since: Option<&HistoryEntry>,
    ) -> Explanation {
        let (reason, name) = (reason_of(entry), self.name());
        let why = plain(&entry.reason, TEXT_MAX);
        let text = match reason {
            Reason::Ran if entry.end == RunOutcome::Lost => {
                "it was or may have been started, and its end is not known".to_owned()
            }
            Reason::Ran => self.ended(entry),
            Reason::Frozen => format!("it was skipped, because {why}"),
            Reason::Paused => format!("it was skipped, because the job was paused: {why}"),
            Reason::Overlap => format!("it was skipped by the overlap rule: {why}"),
            Reason::Misfire => "it was skipped, because no leader ran it in time".to_owned(),
            _ => format!("it was cancelled before it started: {why}"),
        };
        let mut evidence = vec![format!(
            "the history has, of the worker {} in term {}: {}",
            plain(&entry.worker, TEXT_MAX),
            entry.term.get(),
            self.outcome(entry)
        )];
        evidence.extend(entry.until.map(|until| {
            format!("the entry is for all ticks from {} to {}", self.time(entry.tick), self.time(until))
        }));
        if let Some(late) = entry.late() {
            evidence.push(format!(
                "its first attempt began {late:.1?} after the tick: `quorate leader history` shows whether the group had a leader"
            ));
        }
        let since = since.filter(|_| !matches!(reason, Reason::Ran | Reason::Cancelled));
        evidence.extend(since.map(|since| format!("it has run since: {}", self.outcome(since))));
        let backfill = match since {
            Some(_) => format!("nothing, if the later run did its work; else: {}", self.backfill(at)),
            None => format!("to run it for that time: {}", self.backfill(at)),
        };
        let action = match (reason, entry.end) {
            (_, RunOutcome::Done) => "nothing".to_owned(),
            (Reason::Ran, _) => format!(
                "see the error and the output: quorate jobs history {name}; run it again: quorate jobs trigger {name}"
            ),
            (Reason::Misfire, _) => format!(
                "{backfill}; the workers' logs of that time say why none ran it; a longer `misfire.within` catches up"
            ),
            (Reason::Overlap, _) => format!(
                "{backfill}; an earlier run took too long: see quorate jobs history {name}; `overlap` and `timeout` change the rule"
            ),
            _ => backfill,
        };
        Explanation { entry: Some(entry.clone()), ..self.answer(reason, Some(at), text, evidence, &action) }
    }

    /// Explains that other runs have the concurrency key of the job.
    pub(super) fn waits_for_key(
        &self,
        at: WallTime,
        of: &Concurrency,
        holders: &[(Arc<str>, Arc<str>)],
    ) -> Explanation {
        let (key, limit) = (plain(&of.key, TEXT_MAX), of.limit);
        let text =
            format!("it waits for a run that uses {key:?} to end: {} of {limit} are active", holders.len());
        let run = |(job, worker): &(Arc<str>, Arc<str>)| {
            format!("active: {} on {}", plain(job, TEXT_MAX), plain(worker, TEXT_MAX))
        };
        let action = "it starts when one of them ends; a larger `concurrency.limit` of all jobs with the key lets more run at once";
        self.answer(Reason::Waiting, Some(at), text, holders.iter().take(10).map(run).collect(), action)
    }

    pub(super) fn waiting(&self, at: WallTime, open: bool, window: Duration) -> Explanation {
        let (text, action) = match open {
            true => (
                "it waits for a worker of the group, and no worker has started it yet".to_owned(),
                "start a worker that has the job; a worker gets a run if it is below `max_running`",
            ),
            false => (
                format!(
                    "it is due, and has no outcome yet; the leader may start it up to {window:?} after its time"
                ),
                "ask again in a few seconds; a delay may be the job's jitter, `max_running`, or an earlier run",
            ),
        };
        let evidence = vec![format!("the quorum's clock: {}", self.time(self.now))];
        self.answer(Reason::Waiting, Some(at), text, evidence, action)
    }

    pub(super) fn no_worker(&self, tick: Option<WallTime>, why: &str, job: &RegisteredJob) -> Explanation {
        let is_stored = job.stored.is_some();
        let evidence = vec![
            match &job.stored {
                Some(stored) => format!("stored on the nodes by {}", plain(&stored.by, TEXT_MAX)),
                None => "it is in the configuration or the program of another worker".to_owned(),
            },
            format!("the quorum's clock: {}", self.time(self.now)),
        ];
        let action = match is_stored {
            _ if !job.row.labels.is_empty() => {
                "start a worker that has these labels (`labels` in its file) and the job, or change `runs_on` of the job"
            }
            true => {
                "start a worker that has registered the handler (in a configuration: `[commands]`), update the workers, or \
                     change the job with `quorate jobs edit`"
            }
            false => {
                "give all workers the same jobs, let a worker that has the job lead (`quorate leader resign`), or store the \
                      job on the nodes"
            }
        };
        self.answer(Reason::NoWorker, tick, plain(why, TEXT_MAX), evidence, action)
    }

    pub(super) fn no_record(&self, at: WallTime, ledger: &LedgerFacts) -> Explanation {
        let text = "it was due, and the nodes keep no outcome of it".to_owned();
        let oldest = ledger.history.first().map(|entry| entry.tick);
        let mut evidence = vec![match oldest {
            Some(oldest) if at < oldest => {
                format!("the history begins later, at {}: older entries were removed", self.time(oldest))
            }
            Some(oldest) => format!(
                "the history begins earlier, at {}, so the entry was lost, or the leader does not have the job",
                self.time(oldest)
            ),
            None => "the history has no entries".to_owned(),
        }];
        evidence.push(leader(ledger));
        let action = format!(
            "read the logs of the workers of that time; a longer `history` keeps more entries; to run it for that time: {}",
            self.backfill(at)
        );
        self.answer(Reason::NoRecord, Some(at), text, evidence, &action)
    }

    fn answer(
        &self,
        reason: Reason,
        tick: Option<WallTime>,
        text: String,
        evidence: Vec<String>,
        action: &str,
    ) -> Explanation {
        let job = self.ledger.as_ref().and_then(|ledger| ledger.job.as_ref());
        let next = job.and_then(|job| self.next(job));
        let zone = self.zone_shown();
        Explanation { reason, tick, text, evidence, action: action.to_owned(), entry: None, next, zone }
    }

    fn name(&self) -> String {
        plain(&self.job, TEXT_MAX)
    }

    fn schedule_line(&self, job: &RegisteredJob) -> String {
        format!("the schedule: {}", plain(&job.row.schedule, TEXT_MAX))
    }

    /// Returns the command that runs the job for one tick.
    fn backfill(&self, at: WallTime) -> String {
        let (from, until) = (self.time(at), self.time(at + Duration::from_secs(1)));
        format!("quorate jobs backfill {} --from {from} --until {until}", self.name())
    }

    fn time(&self, at: WallTime) -> String {
        self.zone_shown().rfc3339(at)
    }

    /// Returns the zone that the question names, or else that of the job.
    fn zone_shown(&self) -> Zone {
        let job = self.ledger.as_ref().and_then(|ledger| ledger.job.as_ref());
        self.zone.clone().or_else(|| job.map(RegisteredJob::zone)).unwrap_or_default()
    }

    /// Returns a sentence about the end of a run that began.
    fn ended(&self, entry: &HistoryEntry) -> String {
        let end = match entry.end {
            RunOutcome::Done => "succeeded",
            RunOutcome::Cancelled => "was cancelled",
            _ => "failed",
        };
        let after = entry.took.map(|took| format!(" after {took:.1?}")).unwrap_or_default();
        let why = match plain(&entry.reason, TEXT_MAX) {
            why if why.is_empty() => why,
            why if entry.end == RunOutcome::TimedOut => format!(": its last attempt {why}"),
            why => format!(": {why}"),
        };
        format!("the {} run of {} {end}{after}{why}", entry.cause, self.time(entry.tick))
    }

    fn outcome(&self, entry: &HistoryEntry) -> String {
        let took = entry.took.map(|took| format!(" in {took:.1?}")).unwrap_or_default();
        let why = if entry.reason.is_empty() {
            String::new()
        } else {
            format!(" ({})", plain(&entry.reason, TEXT_MAX))
        };
        let cause = entry.cause;
        format!("{} {}{took}{why}, {cause}", self.time(entry.tick), entry.end)
    }
}

fn leader(ledger: &LedgerFacts) -> String {
    match &ledger.leader {
        Some(leader) => format!("the leader is {}", plain(leader, TEXT_MAX)),
        None => "no worker leads the group".to_owned(),
    }
}
