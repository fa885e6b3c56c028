//! The sequence of events of the demo. The [figures](super::figures) are computed from the results of these
//! events.

use super::{
    figures::{Evidence, Figures, SentSignal},
    journal::{Entry, Event, WorkerId},
    nodes::Nodes,
    output::Output,
    processes::Processes,
    settings::{GROUP, JOB, MESSAGES, TICK_EVERY},
    watch::{BURST, BURST_EVERY, Watch},
};
use crate::exit::{FAILURE, Failure};
use quorate::{
    env::{Env, WallTime},
    node::Resource,
    quorum::Quorum,
    scheduler::{Jobs, JobsError, RunOutcome},
};
use rustix::process::Signal;
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// The number of workers.
const WORKERS: usize = 3;
/// The longest wait for the first leader, and for other events that should happen at once.
const SOON: Duration = Duration::from_secs(5);
/// The longest wait for the next leader.
const TAKE_OVER: Duration = Duration::from_secs(6);
/// The shortest time for which a leader leads undisturbed. A random part of two job periods is added.
const LEADS_FOR: Duration = Duration::from_millis(2500);
/// The time between a failover and the restart of the worker that was ended.
const START_AGAIN: Duration = Duration::from_millis(600);
/// The longest wait for the last messages. The claim of a worker that was killed has to expire.
const SETTLE: Duration = Duration::from_secs(5);
/// The time between two requests to the nodes about messages that are not done.
const ASK_EVERY: Duration = Duration::from_millis(200);

/// More runs than a job's history has.
const RUNS_MAX: usize = 1_000;

/// Runs all steps, and returns the figures.
pub(crate) async fn run(
    env: &Env,
    quorum: &Quorum,
    nodes: &Nodes,
    processes: &mut Processes,
    output: &mut Output,
) -> Result<Figures, Failure> {
    let watch = Watch::new(env, processes.dir())?;
    let mut scenario = Scenario { env, quorum, nodes, processes, output, watch, signals: Vec::new() };
    scenario.open().await?;
    scenario.kill("KILL", Signal::KILL).await?;
    scenario.kill("TERM", Signal::TERM).await?;
    scenario.rest(LEADS_FOR).await?;
    let evidence = scenario.close().await?;
    Ok(Figures::of(&evidence))
}

struct Scenario<'a> {
    env: &'a Env,
    quorum: &'a Quorum,
    nodes: &'a Nodes,
    processes: &'a mut Processes,
    output: &'a mut Output,
    watch: Watch,
    signals: Vec<SentSignal>,
}

impl Scenario<'_> {
    /// Waits for three workers, the first leader and the first tick.
    async fn open(&mut self) -> Result<(), Failure> {
        let mut pids = Vec::new();
        for number in 1..=WORKERS {
            pids.push(self.start_worker(&format!("worker-{number}").into())?);
        }
        self.output.workers(&pids);
        self.watch.send(true);
        self.output.messages(BURST, BURST_EVERY);
        let ticked = self.until(SOON, |watch| watch.entries().iter().find_map(tick_start)).await?;
        ticked.map(drop).ok_or_else(|| {
            Failure::new(FAILURE, "no worker ran a tick in time; the machine may be overloaded")
        })
    }

    /// Lets the leader lead for a while, ends it, waits for the next leader, and restarts the worker that was ended.
    async fn kill(&mut self, name: &'static str, signal: Signal) -> Result<(), Failure> {
        self.rest(LEADS_FOR + self.env.random_below(TICK_EVERY * 2)).await?;
        let leader = self.until(TAKE_OVER, |watch| watch.leader().cloned()).await?;
        let leader =
            leader.ok_or_else(|| Failure::new(FAILURE, "no worker leads; the machine may be overloaded"))?;
        let (from, at) = (self.env.wall(), self.processes.signal(&leader, signal)?);
        self.signals.push(SentSignal { signal: name, to: leader.clone(), at });
        self.output.signal(name, &leader, at);
        let next = |watch: &Watch| watch.leader().filter(|next| **next != leader).cloned();
        if let Some(next) = self.until(TAKE_OVER, next).await? {
            self.report_catch_up(&next, from).await?;
        }
        self.rest(START_AGAIN).await?;
        let pid = self.start_worker(&leader.worker)?;
        self.output.again(&pid);
        Ok(())
    }

    /// Prints how many of the ticks that were due since `from` have been run by the new leader.
    async fn report_catch_up(&mut self, leader: &WorkerId, from: WallTime) -> Result<(), Failure> {
        let now = self.env.wall();
        let of = |entry: &Entry| tick_start(entry).filter(|_| entry.who == *leader);
        self.until(SOON, |watch| watch.entries().iter().filter_map(of).find(|tick| *tick > now)).await?;
        let caught_up =
            self.watch.entries().iter().filter_map(of).filter(|tick| from < *tick && *tick <= now);
        self.output.caught_up(leader, caught_up.count());
        Ok(())
    }

    /// Waits until everything that is due has happened, ends the workers, and collects the evidence for the
    /// figures.
    async fn close(&mut self) -> Result<Evidence, Failure> {
        self.watch.send(false);
        let until = self.env.wall();
        let sent = self.watch.sent();
        let done = self.settle(last_due(until), sent).await?;
        self.output.end();
        if !self.processes.end().await {
            return Err(Failure::new(FAILURE, "a worker did not end after SIGTERM, and was killed"));
        }
        self.watch.read()?;
        let (entries, signals) = (self.watch.entries().to_vec(), std::mem::take(&mut self.signals));
        Ok(Evidence { entries, signals, until, lost: self.lost_runs().await?, sent, done })
    }

    /// Waits until the tick `last` has started and all messages are done. Stops waiting after a time limit. Returns the
    /// tokens of the done records.
    async fn settle(&mut self, last: WallTime, sent: usize) -> Result<BTreeMap<String, u64>, Failure> {
        let deadline = self.env.now() + SETTLE;
        let ticked = |watch: &Watch| {
            watch.entries().iter().filter_map(tick_start).any(|tick| tick >= last).then_some(())
        };
        self.until(SETTLE, ticked).await?;
        let mut done = BTreeMap::new();
        loop {
            self.read_done(sent, &mut done).await?;
            if done.len() == sent || self.env.now() >= deadline {
                return Ok(done);
            }
            self.rest(ASK_EVERY).await?;
        }
    }

    /// Asks the nodes for the done records that are not in `done`, and adds their tokens. Only the nodes have them: a
    /// worker may be killed after such a record is stored.
    async fn read_done(&self, sent: usize, done: &mut BTreeMap<String, u64>) -> Result<(), Failure> {
        let fail = |error: &dyn std::fmt::Display| Failure::new(FAILURE, error);
        for id in (1..=sent).map(|n| format!("m-{n}")) {
            if done.contains_key(&id) {
                continue;
            }
            let resource = Resource::claim(MESSAGES, &id).map_err(|error| fail(&error))?;
            let seen = self.quorum.inspect(&resource).await.map_err(|error| fail(&error))?;
            done.extend(seen.done.map(|record| (id, record.token.get())));
        }
        Ok(())
    }

    /// Returns the ticks whose runs began or may have begun, and have no known end, each with its term.
    async fn lost_runs(&self) -> Result<BTreeMap<WallTime, u64>, Failure> {
        let fail = |error: JobsError| Failure::new(FAILURE, error);
        let runs = Jobs::new(self.quorum, GROUP).map_err(fail)?.history(JOB, RUNS_MAX).await.map_err(fail)?;
        let lost = runs.into_iter().filter(|run| run.end == RunOutcome::Lost);
        Ok(lost.map(|run| (run.tick, run.term.get())).collect())
    }

    fn start_worker(&mut self, worker: &Arc<str>) -> Result<(WorkerId, u32), Failure> {
        let (who, pid) = self.processes.start_worker(worker, self.nodes)?;
        self.watch.follow(&who, self.processes.dir());
        Ok((who, pid))
    }

    async fn rest(&mut self, time: Duration) -> Result<(), Failure> {
        self.watch.rest(time, self.processes, self.output).await
    }

    async fn until<T>(
        &mut self,
        wait: Duration,
        found: impl Fn(&Watch) -> Option<T>,
    ) -> Result<Option<T>, Failure> {
        self.watch.until(wait, self.processes, self.output, found).await
    }
}

fn tick_start(entry: &Entry) -> Option<WallTime> {
    match entry.event {
        Event::TickStart { tick } => Some(WallTime::from_micros(tick)),
        _ => None,
    }
}

/// Returns the last tick that is due at `now`: ticks are multiples of their period.
fn last_due(now: WallTime) -> WallTime {
    let period = u64::try_from(TICK_EVERY.as_micros()).unwrap_or(u64::MAX);
    WallTime::from_micros(now.as_micros() / period * period)
}
