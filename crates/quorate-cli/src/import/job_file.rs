//! The text of a job file.

use std::fmt::Write as _;

/// A job of the file. Its texts are written as TOML strings.
#[derive(Clone, Debug, Default)]
pub(super) struct JobText {
    /// The comments before the job.
    pub(super) comments: Vec<String>,
    pub(super) name: String,
    pub(super) schedule: String,
    /// The IANA name; `UTC` is the default of the file.
    pub(super) zone: String,
    /// The shell; `/bin/sh` is the default of the key `shell`.
    pub(super) shell: String,
    pub(super) line: String,
    pub(super) cwd: Option<String>,
    pub(super) env: Vec<(String, String)>,
    pub(super) jitter_seconds: u64,
    /// A tick that is due during a run is skipped.
    pub(super) skips_overlap: bool,
}

impl JobText {
    pub(super) fn table(&self) -> String {
        let mut text = String::new();
        for comment in &self.comments {
            let _ = writeln!(text, "# {}", quorate::plain::plain(comment, usize::MAX));
        }
        let _ = writeln!(text, "[[job]]\nname = {}", quoted(&self.name));
        let _ = writeln!(text, "schedule = {}", quoted(&self.schedule));
        if self.zone != "UTC" {
            let _ = writeln!(text, "zone = {}", quoted(&self.zone));
        }
        let _ = match &*self.shell {
            "/bin/sh" => writeln!(text, "shell = {}", quoted(&self.line)),
            shell => writeln!(text, "command = [{}, \"-c\", {}]", quoted(shell), quoted(&self.line)),
        };
        if let Some(cwd) = &self.cwd {
            let _ = writeln!(text, "cwd = {}", quoted(cwd));
        }
        if !self.env.is_empty() {
            let pairs: Vec<String> =
                self.env.iter().map(|(name, value)| format!("{name} = {}", quoted(value))).collect();
            let _ = writeln!(text, "env = {{ {} }}", pairs.join(", "));
        }
        if self.jitter_seconds > 0 {
            let _ = match self.jitter_seconds % 60 {
                0 => writeln!(text, "jitter = \"{}m\"", self.jitter_seconds / 60),
                _ => writeln!(text, "jitter = \"{}s\"", self.jitter_seconds),
            };
        }
        if self.skips_overlap {
            let _ = writeln!(text, "overlap = \"skip\"");
        }
        text
    }
}

pub(super) fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            c if quorate::plain::steers(c) => {
                let _ = write!(quoted, "\\U{:08X}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted + "\""
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_toml_string_has_the_same_value() {
        for text in ["", "a\"b\\c\n\t", "\u{1b}[2J\u{7f}\u{202e}ü", "'''"] {
            let table: toml::Table = toml::from_str(&format!("a = {}", quoted(text))).expect("TOML");
            assert_eq!(table["a"].as_str(), Some(text));
            assert!(!quoted(text).contains(quorate::plain::steers), "{text:?}");
        }
    }
}
