use super::Truth;
use quorate::node::{Owner, Reply, Request};
use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

/// The events of a run, one line each, with their true times. Two runs of one seed must produce the same lines.
#[derive(Clone, Debug)]
pub struct Trace {
    truth: Truth,
    /// The lines. `None` if the trace is not recorded.
    lines: Option<Arc<Mutex<Vec<String>>>>,
}

impl Trace {
    /// Creates an empty trace.
    pub fn new(truth: Truth) -> Self {
        Self { truth, lines: Some(Arc::default()) }
    }

    /// Creates a trace that records nothing.
    pub fn none(truth: Truth) -> Self {
        Self { truth, lines: None }
    }

    /// Writes a line.
    pub fn note(&self, what: fmt::Arguments<'_>) {
        let Some(lines) = &self.lines else { return };
        let line = format!("{:>6} {what}", self.truth.now().as_millis());
        lines.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }

    /// Returns `true` if the trace records lines.
    pub fn is_written(&self) -> bool {
        self.lines.is_some()
    }

    /// Removes and returns the lines so far.
    pub fn take(&self) -> Vec<String> {
        let lines = self.lines.as_ref().map(|lines| lines.lock().unwrap_or_else(PoisonError::into_inner));
        lines.map(|mut lines| std::mem::take(&mut *lines)).unwrap_or_default()
    }
}

/// Describes a request and its reply. The form is short, because a trace has thousands of them.
pub(super) fn exchange(request: &Request, reply: &Reply) -> String {
    let asked = match request {
        Request::Acquire { resource, owner, ttl, .. } => {
            format!("acquire {resource} {} {}ms", short(owner), ttl.as_millis())
        }
        Request::Raise { resource, owner, to, .. } => format!("raise {resource} {} {to}", short(owner)),
        Request::Extend { resource, owner, token, .. } => {
            format!("extend {resource} {} {token}", short(owner))
        }
        Request::Reserve { resource, owner, successor, .. } => {
            format!("reserve {resource} {} for {}", short(owner), successor.as_str())
        }
        Request::Release { resource, owner } => format!("release {resource} {}", short(owner)),
        Request::Share { resource, owner, .. } => format!("share {resource} {}", short(owner)),
        Request::ExtendShare { resource, owner, .. } => format!("extend share {resource} {}", short(owner)),
        Request::ReleaseShare { resource, owner } => format!("release share {resource} {}", short(owner)),
        Request::Downgrade { resource, owner, reader, .. } => {
            format!("downgrade {resource} {} to {}", short(owner), short(reader))
        }
        Request::Queue { resource, ticket, at, .. } => format!("queue {resource} {at} {}", short(ticket)),
        Request::LeaveQueue { resource, ticket } => format!("leave queue {resource} {}", short(ticket)),
        Request::Complete { resource, owner, record, .. } => {
            format!("complete {resource} {} {}", short(owner), record.token)
        }
        Request::Count { resource, owner, attempts, withdraw, .. } => {
            format!("count {resource} {} {attempts}{}", short(owner), if *withdraw { " back" } else { "" })
        }
        Request::Write { key, record, .. } => {
            format!("write {key} {}{}", record.term, if record.last { " last" } else { "" })
        }
        Request::Mark { marker, .. } => format!("mark {}", marker.replace('\n', " ")),
        Request::Stamp { known, step, .. } => {
            let counts: Vec<u64> = known.iter().map(|(_, count)| *count).collect();
            format!("stamp {step:?} {counts:?}").to_lowercase()
        }
        other => format!("{other:?}"),
    };
    let said = match reply {
        Reply::Granted { counter, .. } => format!("granted {counter}"),
        Reply::Held { owner, remaining } => {
            format!("held by {} for {:?}ms", short(owner), remaining.map(|left| left.as_millis()))
        }
        Reply::Ledger(page) => {
            let more = if page.next.is_some() { " and more" } else { "" };
            format!("ledger {}{more}", page.state.records.len())
        }
        Reply::Conflict(record) => format!("conflict {} {}", record.term, record.value),
        other => format!("{other:?}").replace("\\n", " "),
    };
    format!("[{asked} = {said}]")
}

/// Returns the beginning of an owner token: the name of the worker, and the first digits of the random part.
pub(super) fn short(owner: &Owner) -> &str {
    let text = owner.as_str();
    text.get(..owner.worker().len() + 7).unwrap_or(text)
}
