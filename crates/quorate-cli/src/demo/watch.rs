use super::{
    inbox::InboxSender,
    journal::{Entry, Event, Lines, WorkerId},
    output::Output,
    processes::Processes,
};
use crate::exit::{FAILURE, Failure};
use quorate::env::{BootTime, Env};
use std::{path::Path, time::Duration};

/// The time between two looks at the journals.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// The number of messages in a burst.
pub(crate) const BURST: usize = 4;
/// The time between two bursts.
pub(crate) const BURST_EVERY: Duration = Duration::from_millis(250);

/// Reads the journals while the workers write them, and meanwhile sends messages.
#[derive(Debug)]
pub(crate) struct Watch {
    env: Env,
    readers: Vec<(WorkerId, Lines)>,
    entries: Vec<Entry>,
    outlet: InboxSender,
    send_at: Option<BootTime>,
}

impl Watch {
    pub(crate) fn new(env: &Env, dir: &Path) -> Result<Self, Failure> {
        let outlet = InboxSender::create(dir).map_err(|error| Failure::new(FAILURE, error))?;
        Ok(Self { env: env.clone(), readers: Vec::new(), entries: Vec::new(), outlet, send_at: None })
    }

    /// Starts to read the journal of this worker, too.
    pub(crate) fn follow(&mut self, who: &WorkerId, dir: &Path) {
        self.readers.push((who.clone(), Lines::of(who.journal(dir))));
    }

    /// Returns the entries that have been read. The entries of one worker are in order.
    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Starts or stops sending messages.
    pub(crate) fn send(&mut self, yes: bool) {
        self.send_at = yes.then(|| self.env.now());
    }

    /// Returns the number of messages that have been sent.
    pub(crate) fn sent(&self) -> usize {
        self.outlet.sent()
    }

    /// Returns the worker that leads, according to the journals.
    pub(crate) fn leader(&self) -> Option<&WorkerId> {
        let last = self
            .entries
            .iter()
            .filter(|entry| matches!(entry.event, Event::Elected { .. }))
            .max_by_key(|entry| entry.at)?;
        let Event::Elected { term } = last.event else { return None };
        let over = self.entries.iter().any(|entry| match entry.event {
            Event::StepDown { term: ended } | Event::Lost { term: ended } => ended == term,
            _ => false,
        });
        (!over).then_some(&last.who)
    }

    /// Reads new entries.
    pub(crate) fn read(&mut self) -> Result<&[Entry], Failure> {
        let before = self.entries.len();
        for (who, lines) in &mut self.readers {
            let fail = |error: std::io::Error| {
                Failure::new(FAILURE, format!("the journal of {} cannot be read: {error}", who.worker))
            };
            for line in lines.read().map_err(fail)? {
                self.entries.push(serde_json::from_str(&line).map_err(|error| fail(error.into()))?);
            }
        }
        Ok(&self.entries[before..])
    }

    /// Reads the journals and sends messages for `time`.
    pub(crate) async fn rest(
        &mut self,
        time: Duration,
        processes: &mut Processes,
        output: &mut Output,
    ) -> Result<(), Failure> {
        let at = self.env.now() + time;
        let env = self.env.clone();
        while env.now() < at {
            self.step(processes, output)?;
            env.sleep_until(at.min(env.now() + LOOK_EVERY)).await;
        }
        Ok(())
    }

    /// Reads the journals and sends messages until `found` returns a value, for at most `wait`.
    pub(crate) async fn until<T>(
        &mut self,
        wait: Duration,
        processes: &mut Processes,
        output: &mut Output,
        found: impl Fn(&Self) -> Option<T>,
    ) -> Result<Option<T>, Failure> {
        let deadline = self.env.now() + wait;
        loop {
            self.step(processes, output)?;
            if let Some(found) = found(self) {
                return Ok(Some(found));
            }
            if self.env.now() >= deadline {
                return Ok(None);
            }
            self.env.sleep(LOOK_EVERY).await;
        }
    }

    fn step(&mut self, processes: &mut Processes, output: &mut Output) -> Result<(), Failure> {
        processes.reap_ended()?;
        while let Some(at) = self.send_at.filter(|at| *at <= self.env.now()) {
            self.outlet.send(BURST).map_err(|error| Failure::new(FAILURE, error))?;
            self.send_at = Some(at + BURST_EVERY);
        }
        for entry in self.read()? {
            output.entry(entry);
        }
        Ok(())
    }
}
