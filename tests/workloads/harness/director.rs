use super::{Assignment, Entry, Event, Options, Truth};
use quorate::env::{BootTime, SystemWorld, World};
use quorate_tests::support::{Crew, Failed, PATIENCE, Told, Who};
use std::{
    collections::BTreeSet, fs::File, io::Write, os::unix::process::CommandExt, path::PathBuf,
    process::Command, time::Duration,
};

/// The largest number of violations that are reported.
const REPORTED: usize = 40;
/// The age up to which SIGTERM may kill a worker. It may have no handler for the signal yet.
const STARTS_WITHIN: Duration = Duration::from_secs(5);

/// The part of a plan that starts the worker processes, causes their faults, reads their journals, and collects
/// violations.
#[derive(Debug)]
pub(crate) struct Director {
    crew: Crew,
    truth: Truth,
    /// The name of the resource whose holder is the leader. Empty in a plan without leaders.
    election: &'static str,
    leader: Option<(Who, u64)>,
    /// The processes whose output has not ended, so that more events may arrive.
    open: BTreeSet<Who>,
    began: BootTime,
    lines: usize,
    journal: Option<File>,
    /// The value by which the boot clock of each worker is ahead of this process's.
    clocks: Vec<Duration>,
    /// The start of the last run of each worker.
    started: Vec<BootTime>,
    /// True while a worker may end with an error, because its list of servers is out of date.
    may_fail: bool,
    failed: usize,
    violations: Vec<String>,
    violation_count: usize,
}

impl Director {
    /// Starts `workers` processes. `assign` returns the assignment of each. `election` is empty in a plan
    /// without leaders.
    pub(crate) fn start(
        options: &Options,
        workers: usize,
        election: &'static str,
        assign: impl Fn(usize) -> Assignment + Send + 'static,
    ) -> Self {
        let command = move |Who { member, run }: Who| Assignment { member, run, ..assign(member) }.command();
        Self::start_by(options, election, vec![Duration::ZERO; workers], command)
    }

    /// Starts a process for each of `clocks`, which are the values by which the boot clocks of the workers are ahead of
    /// this process's. `command` returns the command of each.
    pub(crate) fn start_by(
        options: &Options,
        election: &'static str,
        clocks: Vec<Duration>,
        command: impl Fn(Who) -> Command + Send + 'static,
    ) -> Self {
        let crew = Crew::new(clocks.len(), move |who| {
            let mut command = command(who);
            // The workers are in a process group of their own. So a Ctrl-C on the terminal reaches only the
            // director, which then ends the workers.
            command.process_group(0);
            command
        });
        let create =
            |path: &PathBuf| File::create(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let mut director = Self {
            crew,
            truth: Truth::new(options.servers),
            election,
            leader: None,
            open: BTreeSet::new(),
            began: SystemWorld.now(),
            lines: 0,
            journal: options.journal.as_ref().map(create),
            started: vec![BootTime::default(); clocks.len()],
            clocks,
            may_fail: false,
            failed: 0,
            violations: Vec::new(),
            violation_count: 0,
        };
        director.start_all();
        director
    }

    /// Returns the time since the start.
    pub(crate) fn elapsed(&self) -> Duration {
        self.began.until(SystemWorld.now())
    }

    pub(crate) fn workers(&self) -> usize {
        self.crew.size()
    }

    /// Returns the run of the worker `member`: the active run of its process, or the last one.
    pub(crate) fn who(&self, member: usize) -> Who {
        self.crew.who(member)
    }

    pub(crate) fn pids(&self) -> Vec<u32> {
        self.crew.pids()
    }

    /// Returns whether there is a process whose output has not ended.
    pub(crate) fn has_output(&self) -> bool {
        !self.open.is_empty()
    }

    /// Returns the number of journal lines that have been read.
    pub(crate) fn lines(&self) -> usize {
        self.lines
    }

    /// Returns the leader and its term, according to the journals.
    pub(crate) fn leader(&self) -> Option<(Who, u64)> {
        self.leader
    }

    pub(crate) fn truth(&self) -> &Truth {
        &self.truth
    }

    pub(crate) fn truth_mut(&mut self) -> &mut Truth {
        &mut self.truth
    }

    /// Returns whether a worker runs and was neither stopped nor sent SIGTERM.
    pub(crate) fn is_active(&self, member: usize) -> bool {
        self.crew.is_going(member)
    }

    pub(crate) fn active(&self) -> usize {
        (0..self.workers()).filter(|member| self.is_active(*member)).count()
    }

    /// Starts a worker that does not run.
    pub(crate) fn start_worker(&mut self, member: usize) -> bool {
        let starts = self.crew.pid(member).is_none();
        if starts {
            self.started[member] = SystemWorld.now();
            let who = self.crew.start(member);
            self.open.insert(who);
        }
        starts
    }

    /// Starts all workers that do not run. Returns whether there were any.
    pub(crate) fn start_all(&mut self) -> bool {
        (0..self.workers()).map(|member| self.start_worker(member)).fold(false, |a, b| a | b)
    }

    /// Kills an active worker (SIGKILL). Returns the time before the signal.
    pub(crate) fn kill(&mut self, member: usize) -> Option<BootTime> {
        let at = self.is_active(member).then(|| self.crew.kill(member))?;
        self.truth.resumed(self.who(member), at);
        Some(at)
    }

    /// Sends SIGTERM to an active worker. Returns the time before the signal.
    pub(crate) fn terminate(&mut self, member: usize) -> Option<BootTime> {
        self.is_active(member).then(|| self.crew.tell_to_end(member))
    }

    /// Stops an active worker (SIGSTOP). Returns the time after the signal.
    pub(crate) fn stop(&mut self, member: usize) -> Option<BootTime> {
        let at = self.is_active(member).then(|| self.crew.stop(member))?;
        self.truth.stopped(self.who(member), at);
        Some(at)
    }

    /// Lets a stopped worker continue (SIGCONT). Returns false if the worker is not stopped.
    pub(crate) fn resume(&mut self, member: usize) -> bool {
        let who = self.who(member);
        let stopped = self.truth.is_stopped(who);
        if stopped {
            let at = self.crew.go_on(member);
            self.truth.resumed(who, at);
        }
        stopped
    }

    /// Lets all stopped workers continue. Returns whether there were any.
    pub(crate) fn resume_all(&mut self) -> bool {
        (0..self.workers()).map(|member| self.resume(member)).fold(false, |a, b| a | b)
    }

    /// Reads the next event, if one arrives within `wait`.
    pub(crate) fn next(&mut self, mut wait: Duration) -> Option<(Who, Entry)> {
        loop {
            let Told { who, line } = self.crew.next(wait)?;
            let Some(line) = line else {
                self.open.remove(&who);
                wait = Duration::ZERO;
                continue;
            };
            self.lines += 1;
            let ahead = self.clocks[who.member];
            let entry = serde_json::from_str(&line).map(|entry: Entry| entry.on_clock_behind(ahead));
            if let Some(journal) = &mut self.journal {
                // All lines of the journal have times of one clock.
                let line = entry
                    .as_ref()
                    .ok()
                    .and_then(|entry| serde_json::to_string(entry).ok())
                    .unwrap_or(line.clone());
                writeln!(journal, "{}.{} {line}", who.member, who.run).expect("the journal can be written");
            }
            match entry {
                Ok(entry) => {
                    self.observe(who, &entry);
                    return Some((who, entry));
                }
                Err(error) => self.violate([format!("journal: {who:?} wrote {line:?}: {error}")]),
            }
        }
    }

    fn observe(&mut self, who: Who, entry: &Entry) {
        match &entry.event {
            Event::Stalled { from } => self.truth.stalled(who, BootTime::from_nanos(*from), entry.at()),
            // The lines of one process arrive in order, but those of two processes may arrive in any order. So
            // only a larger term changes the leader.
            Event::Acquired { resource, token, .. }
                if &**resource == self.election && self.leader.is_none_or(|(_, term)| term < *token) =>
            {
                self.leader = Some((who, *token));
            }
            Event::Releasing { resource, token } | Event::Ended { resource, token }
                if &**resource == self.election && self.leader == Some((who, *token)) =>
            {
                self.leader = None;
            }
            _ => {}
        }
    }

    /// Returns the workers that have ended, with the time since their SIGTERM. It is a violation if a worker
    /// ends without SIGTERM, with a failure, or later than `within` after SIGTERM. A worker that has just been started may
    /// be killed by SIGTERM.
    pub(crate) fn ended(&mut self, within: Duration) -> Vec<(usize, Duration)> {
        let mut in_order = Vec::new();
        for (member, how) in self.crew.ended(within) {
            let who = self.who(member);
            self.truth.resumed(who, SystemWorld.now());
            match how {
                Ok(took) => in_order.push((member, took)),
                Err(Failed { code: None, why })
                    if why.ends_with("(SIGTERM) on SIGTERM")
                        && self.started[member].until(SystemWorld.now()) < STARTS_WITHIN =>
                {
                    in_order.push((member, Duration::ZERO));
                }
                Err(Failed { code: Some(1), .. }) if self.may_fail => self.failed += 1,
                Err(Failed { why, .. }) => self.violate([format!("processes: {who:?} {why}")]),
            }
        }
        in_order
    }

    /// Sets whether a worker may end with an error now, because its list of servers is out of date. A service manager would
    /// start it again.
    pub(crate) fn let_fail(&mut self, may_fail: bool) {
        self.may_fail = may_fail;
    }

    /// Returns the number of workers that ended with an error when they were allowed to.
    pub(crate) fn failed(&self) -> usize {
        self.failed
    }

    /// Panics if a worker has ended, in a plan in which no worker may end.
    pub(crate) fn expect_all_alive(&mut self) {
        self.ended(PATIENCE);
        assert!(self.violations.is_empty(), "{:?}", self.violations);
    }

    /// Sends SIGTERM to all workers, and reads until the output of every process has ended. It is a violation
    /// if a process still runs after `within`.
    pub(crate) fn end(&mut self, within: Duration, mut on_event: impl FnMut(&mut Self, Who, &Entry)) {
        self.resume_all();
        for member in 0..self.workers() {
            self.terminate(member);
        }
        let give_up = SystemWorld.now() + within * 2;
        while !(self.open.is_empty() && self.pids().is_empty()) && SystemWorld.now() < give_up {
            self.ended(within);
            if let Some((who, entry)) = self.next(Duration::from_millis(10)) {
                on_event(self, who, &entry);
            }
        }
        let pids = self.pids().into_iter().map(|pid| format!("leftovers: the process {pid}"));
        let open = self.open.iter().map(|who| format!("leftovers: the journal of {who:?} is open"));
        let left: Vec<String> = pids.chain(open).collect();
        self.violate(left);
    }

    /// Adds violations, and prints the first ones at once.
    pub(crate) fn violate(&mut self, found: impl IntoIterator<Item = String>) {
        for violation in found {
            self.violation_count += 1;
            if self.violations.len() < REPORTED {
                eprintln!("workload: VIOLATION after {:.1?}: {violation}", self.elapsed());
                self.violations.push(violation);
            }
        }
    }

    /// Returns the number of all violations, of which only the first are kept.
    pub(crate) fn violation_count(&self) -> usize {
        self.violation_count
    }

    /// Returns the violations that were kept. If there was any violation, the list is not empty.
    pub(crate) fn into_violations(self) -> Vec<String> {
        self.violations
    }
}
