use super::Truth;
use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

/// What happened, line by line, in true time. Two runs of one seed must write the same lines.
#[derive(Clone, Debug)]
pub struct Trace {
    truth: Truth,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Trace {
    /// An empty trace.
    pub fn new(truth: Truth) -> Self {
        Self { truth, lines: Arc::default() }
    }

    /// Writes a line.
    pub fn note(&self, what: fmt::Arguments<'_>) {
        let line = format!("{:>6} {what}", self.truth.now().as_millis());
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }

    /// The lines so far.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.lines.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
