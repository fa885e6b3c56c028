use super::{file::FileText, nodes::redact};
use quorate::plain::plain;
use std::{
    fmt,
    ops::Range,
    path::{Path, PathBuf},
};

/// The keys whose values can have the wrong type.
const KEYS: [&str; 80] = [
    "after",
    "ask",
    "at",
    "attempts",
    "background",
    "backoff",
    "body",
    "ca_file",
    "cert_file",
    "clock_step_allowance",
    "command",
    "concurrency",
    "content_type",
    "cwd",
    "delay",
    "delivery",
    "drift_rate",
    "dst",
    "durable",
    "election",
    "env",
    "every",
    "except",
    "fence_retention",
    "from",
    "group",
    "header_files",
    "history",
    "http",
    "jitter",
    "job",
    "keep_output",
    "key",
    "key_file",
    "labels",
    "lease",
    "leases_per_client",
    "ledger_retention",
    "limit",
    "listen",
    "max_backoff",
    "max_clock_offset",
    "max_running",
    "max_ttl",
    "method",
    "misfire",
    "name",
    "never_lead",
    "node_timeout",
    "nodes",
    "ok_exit_codes",
    "on",
    "operate_token_file",
    "otlp",
    "overlap",
    "password_file",
    "pause_after_failures",
    "prefix",
    "priority",
    "read_token_file",
    "retries",
    "rule",
    "runs_on",
    "schedule",
    "serve",
    "shell",
    "socket_group",
    "step_down_grace",
    "take_over_after",
    "timeout",
    "tls",
    "token_file",
    "trust_new_nodes",
    "ttl",
    "until",
    "url",
    "url_file",
    "within",
    "worker",
    "zone",
];

/// The longest line of an error, in bytes. The limit is necessary because an error repeats values of any
/// length.
const LINE_MAX: usize = 1_000;

/// An error in flags, environment or file: its place, the value and the fix. Shows no password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    file: Option<PathBuf>,
    line: Option<usize>,
    text: String,
}

impl ConfigError {
    /// The exit status for this error: `EX_CONFIG` of `sysexits.h`.
    pub const EXIT: u8 = 78;

    pub(super) fn new(file: Option<&Path>, line: Option<usize>, text: &str) -> Self {
        let lines: Vec<_> = text.lines().map(|line| plain(line, LINE_MAX)).collect();
        Self { file: file.map(Path::to_owned), line, text: lines.join("\n") }
    }

    /// Returns an error that is not in a file.
    pub(crate) fn bare(text: &str) -> Self {
        Self::new(None, None, text)
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{}:", plain(&file.to_string_lossy(), LINE_MAX))?;
            if let Some(line) = self.line {
                write!(f, "{line}:")?;
            }
            f.write_str(" ")?;
        }
        f.write_str(&self.text)
    }
}

impl std::error::Error for ConfigError {}

/// The text of a file, and its path.
#[derive(Clone, Copy)]
pub(super) struct SourceText<'a> {
    pub(super) file: &'a Path,
    pub(super) text: &'a str,
}

impl SourceText<'_> {
    /// Returns the keys and values as they are written.
    pub(super) fn read(&self) -> Result<FileText, ConfigError> {
        toml::from_str(self.text).map_err(|error| self.unreadable(&error))
    }

    /// Returns an error about the value at `span`.
    pub(super) fn error(&self, span: Option<Range<usize>>, text: &str) -> ConfigError {
        let before = |span: Range<usize>| self.text.get(..span.start.min(self.text.len()));
        let line = span.and_then(before).map(|before| before.matches('\n').count() + 1);
        ConfigError::new(Some(self.file), line, text)
    }

    /// Returns an error of the parser, with a text of this module. (The parser's own text shows the whole
    /// line, which may contain a password.)
    fn unreadable(&self, error: &toml::de::Error) -> ConfigError {
        let span = error.span();
        let key = span.as_ref().and_then(|span| key_at(self.text, span.start));
        let text = match (error.message(), span.clone().and_then(|span| self.text.get(span))) {
            ("duplicate key", Some(key)) => format!("duplicate key `{key}`; keep one of them"),
            (message, _) => explain(&without_address(message, key), key),
        };
        self.error(span, &redact(&text))
    }
}

/// Removes the value that an error message of the parser repeats, if that value may be the URL of a node.
/// [`redact`] cannot find the end of the URL within the text of the message.
fn without_address(message: &str, key: Option<&str>) -> String {
    let quoted = message.split_once("string \"").and_then(|(before, rest)| {
        let (value, after) = rest.rsplit_once("\", expected")?;
        Some((before, value, after))
    });
    match quoted {
        Some((before, value, after))
            if matches!(key, Some("nodes" | "url")) || value.contains('@') || value.contains("://") =>
        {
            format!("{before}string, expected{after}")
        }
        _ => message.to_owned(),
    }
}

/// Returns the key of the value that begins at `start`, or the name of the table that begins there.
fn key_at(text: &str, start: usize) -> Option<&str> {
    let (before, after) = text.split_at_checked(start)?;
    if let Some(keys) = before.trim_end().strip_suffix('=') {
        let keys = keys.trim_end();
        let bare = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let (line, key) = keys.split_at(keys.trim_end_matches(bare).len());
        // If a string lacks its closing quote, the `=` may be part of a password. Then the word before the `=`
        // must not be shown as a key. So that word counts as a key only if it is a known key, or if it begins
        // its line.
        let known =
            KEYS.contains(&key) || (!key.is_empty() && line.trim_end_matches([' ', '\t']).ends_with('\n'));
        return known.then_some(key);
    }
    let (table, _) = after.strip_prefix('[')?.trim_start_matches('[').split_once(']')?;
    before.ends_with(['\n', ' ']).then(|| table.trim())
}

/// Returns the message of serde or of the parser, with the key and the fix.
fn explain(message: &str, key: Option<&str>) -> String {
    let quoted: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    let (first, rest) = match quoted.split_first() {
        Some((first, rest)) => (*first, rest),
        None => ("", &[][..]),
    };
    if message.starts_with("unknown field") {
        return format!("unknown key `{first}`; {}", choice(first, rest, "the keys here are"));
    }
    if message.starts_with("unknown variant") {
        let key = key.unwrap_or("value");
        return format!("{key} `{first}` is unknown; {}", choice(first, rest, "use"));
    }
    if message.starts_with("missing field") {
        return format!("the key `{first}` is missing{}", example(first));
    }
    let said = message.lines().collect::<Vec<_>>().join(", ");
    match key {
        Some(key) => format!("{key}: {said}{}", fix(message, key)),
        None => format!("{said}{}", fix(message, "")),
    }
}

fn choice(word: &str, among: &[&str], all: &str) -> String {
    match nearest(word, among.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("{all} {}", among.join(", ")),
    }
}

/// Returns advice on how to write a value of the expected type. `message` names the type.
fn fix(message: &str, key: &str) -> &'static str {
    if message.contains("expected a duration") {
        return "; write it like \"500ms\", \"10s\" or \"1h 30m\"";
    }
    match key {
        "command" => "; write program and arguments, like [\"./report.sh\", \"--all\"]",
        "nodes" => "; write a list, like [\"redis://10.0.0.1\", \"redis://10.0.0.2\", \"redis://10.0.0.3\"]",
        "misfire" => "; write it like { rule = \"run-once\", within = \"1h\" }",
        "http" => "; write it like { listen = \"127.0.0.1:9640\" }",
        "listen" => "; write an IP address and a port, like \"127.0.0.1:9640\"",
        "serve" => "; write it like { listen = [\"unix:/run/quorate/quorate.sock\"] }",
        "otlp" => "; write the URL of a collector in quotes, with http or https and the port 4318",
        "lease" => "; write it like { ttl = \"10s\", step_down_grace = \"2s\" }",
        "tls" => {
            "; write it like { ca_file = \"ca.pem\", cert_file = \"worker.pem\", key_file = \"worker.key\" }"
        }
        "job" => "; write each as a table under [[job]]",
        "at" => "; write a time in quotes, like \"2026-12-24T18:00:00Z\"",
        "shell" => "; write a line for the shell, like \"./report.sh | mail ops\"",
        "ok_exit_codes" => "; write the exit codes of success, like [0, 3]",
        "retries" => "; write it like { attempts = 3, backoff = \"1s\", max_backoff = \"1m\" }",
        "background" => "; write \"end\" or \"leave\"",
        "keep_output" => "; write a number of bytes, like \"4KiB\"",
        "env" => "; write it like { NAME = \"value\" }",
        _ => "",
    }
}

fn example(key: &str) -> &'static str {
    match key {
        "name" => "; give the job a name, such as name = \"nightly-report\"",
        "attempts" => "; give the number of attempts in all, like attempts = 3",
        "rule" => "; write rule = \"run-once\", \"run-all\" or \"skip\"",
        "url" => "; give the node's address, like url = \"redis://10.0.0.1\"",
        _ => "",
    }
}

/// Returns the word of `words` that the user probably meant.
pub(crate) fn nearest<'a>(word: &str, words: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // Computing a distance takes time and memory in proportion to the product of both lengths.
    if word.len() > 64 {
        return None;
    }
    let lower = word.to_lowercase().replace('-', "_");
    let apart = |other: &str| strsim::damerau_levenshtein(&other.to_lowercase().replace('-', "_"), &lower);
    let (near, apart) = words.map(|other| (other, apart(other))).min_by_key(|(_, apart)| *apart)?;
    (apart <= 3 && apart * 2 < lower.len().max(2)).then_some(near)
}
