use super::{arguments, config};
use crate::unfriendly::text;

pub(super) const PIECES: &[&str] = &[
    "1",
    "0",
    "5",
    "s",
    "ms",
    "m",
    "h",
    "d",
    "y",
    "us",
    "ns",
    " ",
    "-",
    ".",
    "99999999999999999999",
    "18446744073709551615",
    "584542046090",
    "years",
    "\u{1b}",
    "ü",
    "month",
    "+",
];

/// Reads a duration as text, in every place where the program accepts one.
pub fn duration(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    for (flag, command) in [("--ttl", "exec"), ("--wait", "exec")] {
        let args = ["quorate", command, "--local", "--lock", "x", flag, text, "--", "true"];
        arguments::read(args.iter().map(Into::into).collect());
    }
    config::read(&format!(
        "nodes = [\"file:///a\"]\nmax_ttl = {0}\nnode_timeout = {0}\n[lease]\nttl = {0}\n[[job]]\nname = \"n\"\ncommand = [\"x\"]\n\
         every = {0}\nmisfire = {{ rule = \"run-all\", within = {0} }}\ntimeout = {0}\n",
        toml_text(text)
    ));
}

fn toml_text(text: &str) -> String {
    let escaped: String = text
        .chars()
        .map(|c| match c {
            '"' => "\\\"".to_owned(),
            '\\' => "\\\\".to_owned(),
            c if c.is_control() => format!("\\u{:04x}", u32::from(c)),
            c => c.to_string(),
        })
        .collect();
    format!("\"{escaped}\"")
}
