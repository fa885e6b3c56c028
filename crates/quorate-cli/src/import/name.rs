//! Names of jobs, made from their commands.

use std::collections::BTreeSet;

/// The longest name that is made, in bytes.
const NAME_MAX: usize = 40;

/// The programs that run another program, whose name says more about the job.
const WRAPPERS: [&str; 9] = ["nice", "ionice", "nohup", "exec", "env", "chronic", "time", "sh", "bash"];

/// Returns a name for the command that is not in `used`, and adds it there.
pub(super) fn name_of(command: &str, used: &mut BTreeSet<String>) -> String {
    let base = base(command);
    let mut name = base.clone();
    let mut number = 2;
    while !used.insert(name.clone()) {
        name = format!("{base}-{number}");
        number += 1;
    }
    name
}

/// Returns the name of the program that the command runs, without directory and ending.
fn base(command: &str) -> String {
    // `cd DIR && ./report` is the job `report`.
    let parts = command.split("&&").flat_map(|part| part.split(';')).map(str::trim);
    let part = parts.clone().find(|part| !skipped(part)).unwrap_or_default();
    let word = part.split_whitespace().find(|word| {
        let assigns = word.split_once('=').is_some_and(|(name, _)| is_variable(name));
        !(assigns
            || word.starts_with('-')
            || word.parse::<i64>().is_ok()
            || WRAPPERS.contains(&program(word)))
    });
    let word = program(word.unwrap_or_default());
    let stem = word.rsplit_once('.').map_or(word, |(stem, _)| if stem.is_empty() { word } else { stem });
    let kept: String =
        stem.chars().map(|c| if c.is_ascii_alphanumeric() || "_.-".contains(c) { c } else { '-' }).collect();
    let kept = kept.trim_matches(['-', '.']);
    let kept = &kept[..kept.len().min(NAME_MAX)];
    if kept.is_empty() { "job".to_owned() } else { kept.to_owned() }
}

/// Returns true for a part of a command line that only prepares the next part.
fn skipped(part: &str) -> bool {
    let first = part.split_whitespace().next().unwrap_or_default();
    matches!(
        first,
        "" | "cd" | "." | "source" | "export" | "set" | "umask" | "ulimit" | "test" | "[" | "sleep"
    )
}

fn program(word: &str) -> &str {
    let word = word.trim_matches(['"', '\'', '(', ')', '{', '}']);
    word.rsplit('/').next().unwrap_or(word)
}

/// Returns true for the name of an environment variable.
pub(super) fn is_variable(name: &str) -> bool {
    let first = name.chars().next();
    first.is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_named_after_its_program() {
        for (command, expected) in [
            ("/usr/local/bin/backup.sh --all", "backup"),
            ("cd /srv/app && ./bin/report | mail ops", "report"),
            ("cd /srv; LANG=C nice -n 10 rotate-logs", "rotate-logs"),
            ("[ -x /usr/sbin/anacron ] || /usr/sbin/anacron", "job"),
            ("test -x /usr/sbin/exim && /usr/sbin/exim", "exim"),
            ("/bin/sh -c 'x'", "x"),
            ("\u{1b}[2J", "2J"),
            ("§", "job"),
            ("", "job"),
        ] {
            assert_eq!(base(command), expected, "{command}");
        }
        assert_eq!(base(&"a".repeat(500)).len(), NAME_MAX);
    }

    #[test]
    fn names_are_different() {
        let mut used = BTreeSet::new();
        let names = ["a", "a", "a-2", "a"].map(|command| name_of(command, &mut used));
        assert_eq!(names, ["a", "a-2", "a-2-2", "a-3"]);
    }
}
