//! Log lines, on standard error, and the output of commands.
//!
//! No caller waits for the reader of standard error: a [queue](queue::Queue) takes each line, and a separate
//! thread writes it. If a daemon waited here, it would keep its leadership without doing any work.
//!
//! # What is not guaranteed
//!
//! Not every line is written: lines that find the queue full are dropped and counted, and [`finish`] waits for
//! the reader for at most a second.

mod command_output;
mod notice;
mod queue;

use crate::args::{LogFormat, LogLevel};
use crate::{show, terminal::wants_colour};
pub(crate) use command_output::CommandOutput;
pub(crate) use notice::format;
use queue::Queue;
#[cfg(test)]
pub(crate) use queue::Shared;
use std::{
    backtrace::{Backtrace, BacktraceStatus},
    fmt::{self, Debug},
    io::{self, IsTerminal, Stderr, Write as _, stderr},
    panic,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tracing::{Subscriber, field::Field, level_filters::LevelFilter};
use tracing_subscriber::{
    Layer, Registry,
    field::MakeExt,
    filter::filter_fn,
    fmt::{
        self as lines,
        format::{Writer, debug_fn},
    },
    layer::SubscriberExt,
    util::SubscriberInitExt,
};

/// The longest field of a line, in bytes.
const FIELD_MAX: usize = 16 * 1024;
/// The longest wait of [`finish`] for the reader of standard error.
const FINISH_WITHIN: Duration = Duration::from_secs(1);
/// The longest wait of [`erase`] for the reader of standard error.
const ERASE_WITHIN: Duration = Duration::from_millis(250);

/// The queue of this process, once [`start`] has been called.
static QUEUE: OnceLock<Arc<Queue>> = OnceLock::new();
/// True while a line of progress is on the screen.
static HAS_PROGRESS: AtomicBool = AtomicBool::new(false);
/// Moves to the beginning of the line and erases it.
const ERASE: &str = "\r\u{1b}[2K";

/// A layer of the subscriber.
pub(crate) type SubscriberLayer = Box<dyn Layer<Registry> + Send + Sync>;

/// Sends log lines and the messages of panics to standard error, and spans to `traces`. Call this once,
/// before anything is logged.
///
/// The lines do not show the spans in which an event occurred, so they do not depend on `traces`.
pub(crate) fn start(format: LogFormat, level: LogLevel, traces: Option<SubscriberLayer>) {
    let level = match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    notice::set_format(format);
    let queue =
        Arc::clone(QUEUE.get_or_init(|| Queue::start("quorate-log", AboveProgress(stderr()), log_notice)));
    let colours = stderr().is_terminal() && wants_colour(|name| std::env::var(name).ok());
    // A test may already have installed a subscriber. In that case, that subscriber is kept.
    let _ = subscriber(format, level, colours, traces, queue).try_init();
    panic::set_hook(Box::new(|panic_info| {
        let trace = Backtrace::capture();
        match trace.status() {
            BacktraceStatus::Captured => tracing::error!("{panic_info}\n{trace}"),
            _ => tracing::error!("{panic_info}"),
        }
    }));
}

/// Returns the subscriber that writes lines to `queue` and passes spans to `traces`.
fn subscriber(
    format: LogFormat,
    level: LevelFilter,
    colours: bool,
    traces: Option<SubscriberLayer>,
    queue: Arc<Queue>,
) -> impl Subscriber + Send + Sync {
    let lines = lines::layer().with_target(false);
    let lines = match format {
        LogFormat::Json => lines.json().flatten_event(true).with_writer(Arc::new(JsonLines(queue))).boxed(),
        LogFormat::Text => {
            lines.with_ansi(colours).fmt_fields(debug_fn(field).delimited(" ")).with_writer(queue).boxed()
        }
    };
    let shown = filter_fn(move |metadata| metadata.is_event() && *metadata.level() <= level);
    let lines: SubscriberLayer = Box::new(lines.with_filter(shown.with_max_level_hint(level)));
    // In a list, unlike an `Option`, a layer that does not exist enables no spans.
    let layers: Vec<SubscriberLayer> = traces.into_iter().chain([lines]).collect();
    tracing_subscriber::registry().with(layers)
}

/// Writes a message to standard error. If [`start`] has been called, the message is queued, and the caller does
/// not wait.
pub(crate) fn say(text: &str) {
    let text = show::page(text);
    match QUEUE.get() {
        Some(queue) => {
            queue.add(format!("{text}\n").as_bytes());
        }
        None => eprintln!("{}{text}", before_text()),
    }
}

/// Writes the line of progress to standard error, unless earlier text has not been written yet. A reader that is too
/// slow so delays neither the caller nor the log.
pub(crate) fn draw(line: &str) {
    HAS_PROGRESS.store(true, Ordering::Relaxed);
    let text = format!("{ERASE}{line}");
    match QUEUE.get() {
        Some(queue) if queue.flush(Duration::ZERO) => {
            queue.add(text.as_bytes());
        }
        Some(_) => {}
        None => write(&text),
    }
}

/// Erases the line of progress. What is written after this call appears after the erasure.
pub(crate) fn erase() {
    HAS_PROGRESS.store(false, Ordering::Relaxed);
    match QUEUE.get() {
        Some(queue) => {
            queue.add(ERASE.as_bytes());
            queue.flush(ERASE_WITHIN);
        }
        None => write(ERASE),
    }
}

/// Returns the sequence that precedes another text on standard error. It removes the line of progress, which appears
/// again below that text.
fn before_text() -> &'static str {
    if HAS_PROGRESS.load(Ordering::Relaxed) { ERASE } else { "" }
}

/// Writes to standard error. A failure is ignored, because the line of progress is not a result.
fn write(text: &str) {
    let mut stderr = stderr().lock();
    let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
}

/// Standard error, on which each text removes the line of progress.
struct AboveProgress(Stderr);

impl io::Write for AboveProgress {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.0.write_all(before_text().as_bytes())?;
        self.0.write(text)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

fn log_notice(count: u64) -> String {
    notice::notice(count, "of the log", "stderr")
}

/// Waits until all lines are written, but at most a second for each output.
pub(crate) fn finish() {
    command_output::finish(FINISH_WITHIN);
    if let Some(queue) = QUEUE.get() {
        queue.flush(FINISH_WITHIN);
    }
}

/// Writes one field of a log line. The line stays a single line without characters that control a terminal,
/// whatever the value is.
fn field(to: &mut Writer<'_>, field: &Field, value: &dyn Debug) -> fmt::Result {
    let text = show::line(&format!("{value:?}"), FIELD_MAX);
    match field.name() {
        "message" => to.write_str(&text),
        name => write!(to, "{}={text}", name.strip_prefix("r#").unwrap_or(name)),
    }
}

/// A writer of JSON lines. It also escapes the characters that control a terminal, which JSON does not require.
struct JsonLines(Arc<Queue>);

impl io::Write for &JsonLines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        let end = text.len() - usize::from(text.ends_with('\n'));
        self.0.add((show::json_text(&text[..end]) + &text[end..]).as_bytes());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks a hostile text in the message and in every kind of field, in both formats.
    #[test]
    fn a_line_stays_one_line_without_control_characters() {
        let hostile = "a\u{1b}[2Jb\r\n2026-01-01T00:00:00Z  INFO forged\u{7}\u{9b}31m\u{202e}\u{7f}\u{200b}";
        let log = |lines: &dyn Fn(Arc<Queue>)| {
            let written = queue::Shared::default();
            let queue = Queue::start("test", written.clone(), log_notice);
            lines(Arc::clone(&queue));
            assert!(queue.flush(Duration::from_secs(20)));
            written.text()
        };
        let event = || tracing::error!(shown = %hostile, debug = ?Raw(hostile), text = hostile, "{hostile}");
        let all = |format| {
            log(&|queue| {
                let lines = subscriber(format, LevelFilter::TRACE, false, None, queue);
                tracing::subscriber::with_default(lines, event);
            })
        };
        let (text, json) = (all(LogFormat::Text), all(LogFormat::Json));
        for line in [&text, &json] {
            assert_eq!(line.lines().count(), 1, "{line:?}");
            assert!(!line.trim_end_matches('\n').contains(quorate::plain::steers), "{line:?}");
        }
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(value["message"], hostile, "JSON loses nothing");
    }

    /// A layer that enables everything, as an exporter of spans may do.
    struct Everything;

    impl Layer<Registry> for Everything {}

    #[test]
    fn a_layer_for_spans_changes_no_line_and_without_it_no_span_is_enabled() {
        let written = |traces: Option<SubscriberLayer>, format, level| {
            let written = queue::Shared::default();
            let queue = Queue::start("test", written.clone(), log_notice);
            let lines = subscriber(format, level, false, traces, Arc::clone(&queue));
            let hint = lines.max_level_hint();
            let span_is_enabled = tracing::subscriber::with_default(lines, || {
                let span = tracing::debug_span!("run", job = "j");
                span.in_scope(|| {
                    tracing::info!(a = 1, "shown");
                    tracing::debug!("detail");
                });
                !span.is_disabled()
            });
            assert!(queue.flush(Duration::from_secs(20)));
            // The first Z of a line ends its time.
            let text = written.text();
            let lines: Vec<String> =
                text.lines().filter_map(|line| Some(line.split_once('Z')?.1.to_owned())).collect();
            (lines, span_is_enabled, hint)
        };
        for format in [LogFormat::Text, LogFormat::Json] {
            for (level, count) in [(LevelFilter::INFO, 1), (LevelFilter::DEBUG, 2)] {
                let (plain, is_enabled, hint) = written(None, format, level);
                assert_eq!((plain.len(), is_enabled, hint), (count, false, Some(level)), "{plain:?}");
                let (traced, is_enabled, _) = written(Some(Box::new(Everything)), format, level);
                assert!(is_enabled);
                assert_eq!(traced, plain);
                assert!(!plain.concat().contains("run") && plain.concat().contains("shown"), "{plain:?}");
            }
        }
    }

    /// A value whose `Debug` escapes nothing.
    struct Raw(&'static str);

    impl Debug for Raw {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    #[test]
    fn a_line_that_is_not_utf_8_is_written_too() {
        let written = queue::Shared::default();
        let queue = Queue::start("test", written.clone(), log_notice);
        (&JsonLines(Arc::clone(&queue))).write_all(b"a\xffb\n").unwrap();
        assert!(queue.flush(Duration::from_secs(20)));
        assert_eq!(written.text(), "a\u{fffd}b\n");
    }
}
