//! The line that replaces dropped lines in an output, and the format of all lines.

use crate::args::LogFormat;
use std::sync::OnceLock;
use tracing_subscriber::fmt::{
    format::Writer,
    time::{FormatTime, SystemTime},
};

/// The format of the lines, once the log has begun.
static FORMAT: OnceLock<LogFormat> = OnceLock::new();

pub(super) fn set_format(format: LogFormat) {
    // A second call, as in tests, has no effect.
    let _ = FORMAT.set(format);
}

pub(crate) fn format() -> LogFormat {
    FORMAT.get().copied().unwrap_or(LogFormat::Text)
}

fn now() -> String {
    let mut time = String::new();
    // Formatting into a string never fails.
    let _ = SystemTime.format_time(&mut Writer::new(&mut time));
    time
}

/// Returns the line that replaces dropped lines in an output.
pub(super) fn notice(count: u64, of: &str, output: &str) -> String {
    notice_as(format(), count, of, output)
}

fn notice_as(format: LogFormat, count: u64, of: &str, output: &str) -> String {
    let (line, was) = if count == 1 { ("line", "was") } else { ("lines", "were") };
    let text = format!("{count} {line} {of} {was} dropped because the reader of {output} was too slow");
    match format {
        LogFormat::Text => format!("{}  WARN {text}\n", now()),
        LogFormat::Json => {
            let line = serde_json::json!({
                "timestamp": now(), "level": "WARN", "message": text, "dropped": count
            });
            format!("{line}\n")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_of_dropped_lines_is_a_line_of_the_same_format() {
        let text = notice_as(LogFormat::Text, 7, "of the log", "stderr");
        assert!(
            text.ends_with(
                "WARN 7 lines of the log were dropped because the reader of stderr was too slow\n"
            )
        );
        let json = notice_as(LogFormat::Json, 1, "of the log", "stderr");
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(
            json["message"],
            "1 line of the log was dropped because the reader of stderr was too slow"
        );
        assert_eq!((&json["level"], &json["dropped"]), (&"WARN".into(), &1.into()));
        assert!(json["timestamp"].as_str().is_some_and(|at| text.starts_with(&at[..10])), "{text}");
    }
}
