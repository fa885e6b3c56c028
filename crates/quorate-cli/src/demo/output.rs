use super::{
    figures::{Failover, Figures},
    journal::{Entry, Event, WorkerId},
    nodes::Nodes,
    settings::{LEASE_TTL, NODES, TICK_EVERY},
};
use crate::{exit::Failure, show};
use quorate::env::{BootTime, Env};
use std::{cell::RefCell, path::Path, time::Duration};

/// Prints the events on standard output, in words for a reader who sees the demo for the first time.
#[derive(Debug)]
pub(crate) struct Output {
    env: Env,
    began: BootTime,
    signal: Option<(&'static str, BootTime)>,
    ticked: bool,
    /// The first failed write.
    failed: RefCell<Option<Failure>>,
}

impl Output {
    pub(crate) fn new(env: &Env) -> Self {
        Self { env: env.clone(), began: env.now(), signal: None, ticked: false, failed: RefCell::default() }
    }

    /// Prints a line, and stores the first failed write.
    pub(crate) fn line(&self, text: &str) {
        let mut failed = self.failed.borrow_mut();
        if failed.is_none() {
            *failed = show::print(&format!("{text}\n")).err();
        }
    }

    /// Returns the first failed write.
    pub(crate) fn finish(&self) -> Result<(), Failure> {
        self.failed.take().map_or(Ok(()), Err)
    }

    /// Prints a line with the time.
    fn say(&self, text: &str) {
        self.at(self.env.now(), text);
    }

    fn at(&self, at: BootTime, text: &str) {
        self.line(&format!("{:5.1} s  {text}", at.since(self.began).as_secs_f64()));
    }

    pub(crate) fn title(&self, redis: bool) {
        let kind = if redis { "five Redis servers" } else { "five directories" };
        self.line(&format!(
            "Three workers, {kind} as nodes, one leader at a time. This takes about 15 seconds.\n"
        ));
    }

    pub(crate) fn nodes(&self, nodes: &Nodes, dir: &Path) {
        match nodes {
            Nodes::Files => self.say(&format!("{NODES} nodes   directories in {}", dir.display())),
            Nodes::Redis(ports) => {
                let ports: Vec<String> = ports.iter().map(ToString::to_string).collect();
                self.say(&format!("{NODES} nodes   redis-server on the loopback ports {}", ports.join(", ")));
            }
        }
    }

    pub(crate) fn workers(&self, workers: &[(WorkerId, u32)]) {
        for (who, pid) in workers {
            self.say(&format!("{}  starts as process {pid}", who.worker));
        }
    }

    pub(crate) fn messages(&self, many: usize, every: Duration) {
        self.say(&format!(
            "messages  {many} are sent to every worker each {every:?}; the worker that claims one handles it"
        ));
    }

    /// Prints an entry of a worker's journal, if it matters to people.
    pub(crate) fn entry(&mut self, entry: &Entry) {
        let worker = &entry.who.worker;
        match entry.event {
            Event::Elected { term } => {
                let after = self.signal.take().filter(|(_, at)| *at < entry.at());
                let after = after.map_or(String::new(), |(signal, at)| {
                    format!(", {:.0} ms after the SIG{signal}", at.until(entry.at()).as_secs_f64() * 1e3)
                });
                self.at(entry.at(), &format!("{worker}  LEADS{after}; fencing token {term}"));
            }
            Event::TickStart { .. } if !self.ticked => {
                self.ticked = true;
                self.at(
                    entry.at(),
                    &format!("{worker}  runs the first tick of a job that is due every {TICK_EVERY:?}"),
                );
            }
            Event::Lost { .. } => {
                self.at(entry.at(), &format!("{worker}  lost its lease: it was not extended in time"));
            }
            _ => {}
        }
    }

    pub(crate) fn signal(&mut self, signal: &'static str, to: &WorkerId, at: BootTime) {
        self.signal = Some((signal, at));
        let what = match signal {
            "KILL" => format!("it cannot release its lease, which expires after {LEASE_TTL:?}"),
            _ => "it ends its work, and resigns".to_owned(),
        };
        self.at(at, &format!("{}  gets SIG{signal}: {what}", to.worker));
    }

    pub(crate) fn caught_up(&self, who: &WorkerId, ticks: usize) {
        let text = match ticks {
            0 => return,
            1 => "runs the tick that was due meanwhile".to_owned(),
            many => format!("runs the {many} ticks that were due meanwhile"),
        };
        self.say(&format!("{}  {text}", who.worker));
    }

    pub(crate) fn again(&self, (who, pid): &(WorkerId, u32)) {
        self.say(&format!("{}  starts again, as process {pid}", who.worker));
    }

    pub(crate) fn end(&self) {
        self.say("the end   all workers get SIGTERM");
    }

    pub(crate) fn summary(&self, figures: &Figures) {
        self.line("\nFrom the journals of the workers:\n");
        for (n, Failover { signal, ms }) in figures.failovers.iter().enumerate() {
            let name = if n == 0 { "failover" } else { "" };
            let ms = ms.map_or("never".to_owned(), |ms| format!("{ms:.0} ms"));
            let why = match *signal {
                "KILL" => format!("(the lease was {} ms)", LEASE_TTL.as_millis()),
                _ => "(the leader resigned)".to_owned(),
            };
            self.line(&format!("  {name:9} {ms:>9} after SIG{signal} {why}"));
        }
        let ticks = &figures.ticks;
        self.line(&format!(
            "  {:9} {:>5} due: {} started, {} twice, {} missed, {} interrupted by the SIGKILL",
            "ticks", ticks.due, ticks.started, ticks.started_twice, ticks.missed, ticks.interrupted
        ));
        let messages = &figures.messages;
        let again = if messages.interrupted > 0 { " and handled again" } else { "" };
        self.line(&format!(
            "  {:9} {:>5} sent to every worker: {} processed, {} twice, {} interrupted by the SIGKILL{again}",
            "messages", messages.sent, messages.processed, messages.processed_twice, messages.interrupted
        ));
        self.line(match (figures.is_clean(), ticks.interrupted) {
            (false, _) => "\nNOT as guaranteed: a tick or a message was handled twice, or not at all.",
            (true, 0) => "\nEvery tick and message was handled, and none was handled twice.",
            (true, _) => {
                "\nNo tick or message was missed, and none was handled twice: the job runs at most once, so a run that the SIGKILL \
                 interrupted\nis not repeated."
            }
        });
    }
}
