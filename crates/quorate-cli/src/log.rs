use crate::args::{LogFormat, LogLevel};
use std::io::{IsTerminal, stderr};
use tracing::level_filters::LevelFilter;

/// Sends logs to standard error. Called once, before anything is logged.
pub(crate) fn start(format: LogFormat, level: LogLevel) {
    let level = match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let lines = tracing_subscriber::fmt().with_max_level(level).with_writer(stderr).with_target(false);
    // A second subscriber (a test's) is no reason to end.
    let _ = match format {
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
        LogFormat::Text => lines.with_ansi(stderr().is_terminal()).try_init(),
    };
}
