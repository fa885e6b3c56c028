use std::io::{self, Write};

/// Writes one JSON value to standard output, as one line in one `write`. Once this returns, a SIGKILL cannot unwrite it:
/// the kernel has it. A parent that has gone is found out by other means.
pub fn say(value: &impl serde::Serialize) {
    let mut line = serde_json::to_vec(value).unwrap_or_default();
    line.push(b'\n');
    let mut out = io::stdout().lock();
    let _ = out.write_all(&line).and_then(|()| out.flush());
}
