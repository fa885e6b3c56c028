//! Captures the log events of the library on this thread, so that a test can read them.

#![allow(clippy::expect_used, reason = "a test fails by panicking")]

use std::{
    io,
    sync::{Arc, Mutex, Once},
};
use tracing_subscriber::{filter::LevelFilter, util::SubscriberInitExt};

/// The captured lines.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Captures warnings and errors of this thread until the guard is dropped.
    pub(crate) fn warnings(&self) -> impl Sized + use<> {
        // When a log statement is first reached, `tracing` stores whether any subscriber needs it. Suppose that
        // another thread reaches a statement first, and there is no default subscriber. That statement would
        // then never be logged again. The default subscriber prevents this, and discards what it receives.
        static DEFAULT: Once = Once::new();
        DEFAULT.call_once(|| {
            let nowhere = tracing_subscriber::fmt().with_max_level(LevelFilter::WARN).with_writer(io::sink);
            tracing::subscriber::set_global_default(nowhere.finish()).expect("the only default");
        });
        let log = self.clone();
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_max_level(LevelFilter::WARN);
        subscriber.with_writer(move || log.clone()).set_default()
    }

    pub(crate) fn lines(&self, text: &str) -> Vec<String> {
        let log = self.0.lock().expect("no panic");
        let lines = str::from_utf8(&log).expect("text").lines();
        lines.filter(|line| line.contains(text)).map(str::to_owned).collect()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no panic").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
