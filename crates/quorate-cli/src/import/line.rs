//! The lines of a crontab, as `crontab(5)` defines them.

use super::name::is_variable;

/// One line of a crontab.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Line<'a> {
    Empty,
    /// The text of a comment.
    Comment(&'a str),
    Variable {
        name: &'a str,
        value: &'a str,
    },
    Entry(Entry<'a>),
    /// The reason why the line is none of the above.
    Invalid(String),
}

/// A line with a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry<'a> {
    /// Five fields or a word with `@`, separated by single spaces.
    pub(super) schedule: String,
    /// The user column of a system's crontab.
    pub(super) user: Option<&'a str>,
    /// OpenBSD's flags before the command: letters of `nqs`.
    pub(super) flags: String,
    /// The rest of the line, with its `%` signs.
    pub(super) command: &'a str,
    /// True if the line began with `-`, with which some daemons do not log the command.
    pub(super) silent: bool,
}

/// A command, and the lines of the standard input that its `%` signs separate from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CommandLine {
    pub(super) command: String,
    pub(super) input: Option<Vec<String>>,
}

/// Reads a line. With `system`, a column with the user precedes the command.
pub(super) fn read(line: &str, system: bool) -> Line<'_> {
    let line = line.trim();
    if line.is_empty() {
        return Line::Empty;
    }
    if let Some(comment) = line.strip_prefix('#') {
        return Line::Comment(comment.trim());
    }
    if let Some((name, value)) = variable(line) {
        return Line::Variable { name, value };
    }
    let (silent, rest) = match line.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, line),
    };
    let fields = if rest.starts_with('@') { 1 } else { 5 };
    let (mut schedule, mut rest) = (Vec::new(), rest);
    for _ in 0..fields {
        let (field, after) = word(rest);
        schedule.push(field);
        rest = after;
    }
    let user = system.then(|| {
        let (user, after) = word(rest);
        rest = after;
        user
    });
    let (next, _) = word(rest);
    if !schedule[0].starts_with('@') && [user.unwrap_or_default(), next].into_iter().any(is_field) {
        let why = "the line has more than five fields before the command; a crontab has no seconds, so write the job \
                   yourself, with all fields as its schedule";
        return Line::Invalid(why.to_owned());
    }
    let (flags, rest) = flags(rest);
    if rest.is_empty() {
        let columns = if system { "a schedule, a user and a command" } else { "a schedule and a command" };
        return Line::Invalid(format!("the line does not have {columns}"));
    }
    Line::Entry(Entry { schedule: schedule.join(" "), user, flags, command: rest, silent })
}

/// Returns whether a word is a field of a schedule, and no command or user.
fn is_field(word: &str) -> bool {
    const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
    let is_item = |item: &str| {
        let is_day = DAYS.contains(&&*item.to_ascii_lowercase());
        is_day
            || matches!(item, "*" | "?")
            || (!item.is_empty() && item.bytes().all(|byte| byte.is_ascii_digit()))
    };
    word.split([',', '-', '/']).all(is_item)
}

/// Separates OpenBSD's flags from the command, such as `-ns`. In other crontabs no command begins with a dash.
fn flags(mut text: &str) -> (String, &str) {
    let mut flags = String::new();
    loop {
        let (first, rest) = word(text);
        match first
            .strip_prefix('-')
            .filter(|found| !found.is_empty() && found.bytes().all(|c| b"nqs".contains(&c)))
        {
            Some(found) => (flags, text) = (flags + found, rest),
            None => return (flags, text),
        }
    }
}

/// Separates the first word from the rest.
fn word(text: &str) -> (&str, &str) {
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    (word, rest.trim_start())
}

/// Reads `NAME = value`. Name and value may be quoted.
fn variable(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.split_once('=')?;
    let name = unquoted(name.trim());
    is_variable(name).then(|| (name, unquoted(value.trim())))
}

fn unquoted(text: &str) -> &str {
    for quote in ['"', '\''] {
        if let Some(inner) = text.strip_prefix(quote).and_then(|text| text.strip_suffix(quote)) {
            return inner;
        }
    }
    text
}

/// Separates a command from its standard input. The first `%` ends the command, each later one ends a line of
/// the input, and `\%` is a percent sign. In a command, `\\` is a backslash that no longer changes the next character.
pub(super) fn command_line(text: &str) -> CommandLine {
    let mut parts = vec![String::new()];
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let last = parts.len() - 1;
        match c {
            '\\' if chars.next_if_eq(&'%').is_some() => parts[last].push('%'),
            '\\' if last == 0 && chars.next_if_eq(&'\\').is_some() => parts[last].push_str("\\\\"),
            '%' => parts.push(String::new()),
            c => parts[last].push(c),
        }
    }
    let command = parts.remove(0);
    let input = (!parts.is_empty()).then(|| {
        // The last line ends without a `%`, too. Nothing follows the last `%`, or a `%` alone.
        parts.pop_if(|last| last.is_empty());
        parts
    });
    CommandLine { command, input }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(line: &str, system: bool) -> Entry<'_> {
        match read(line, system) {
            Line::Entry(entry) => entry,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn lines_are_read_as_by_crontab() {
        assert_eq!(read("  ", false), Line::Empty);
        assert_eq!(read(" # every night ", false), Line::Comment("every night"));
        let variable = |name, value| Line::Variable { name, value };
        assert_eq!(read("MAILTO=ops@example.com", false), variable("MAILTO", "ops@example.com"));
        assert_eq!(read("A = \" b c \"", false), variable("A", " b c "));
        assert_eq!(read("'A'='b'", false), variable("A", "b"));
        assert_eq!(read("A=", false), variable("A", ""));
        let nightly = entry("0\t3 * *  mon-fri   ./a  --b=c", false);
        assert_eq!((&*nightly.schedule, nightly.command), ("0 3 * * mon-fri", "./a  --b=c"));
        let daily = entry("@daily root run-parts /etc/cron.daily", true);
        assert_eq!((&*daily.schedule, daily.user), ("@daily", Some("root")));
        assert_eq!(daily.command, "run-parts /etc/cron.daily");
        assert!(entry("-*/5 * * * * root a", true).silent);
        let flagged = |line| {
            let entry = entry(line, false);
            (entry.flags, entry.command)
        };
        assert_eq!(flagged("0 9 * * * -n -qs /bin/true -x"), ("nqs".into(), "/bin/true -x"));
        assert_eq!(flagged("@daily -x -n a"), (String::new(), "-x -n a"));
        assert!(matches!(read("0 9 * * * -n", false), Line::Invalid(_)));
        for (line, system) in [
            ("0 0 3 * * * /bin/a", false),
            ("0 0 3 * * MON-FRI /bin/a", false),
            ("0 0 3 ? * 1,2 2027 /bin/a", false),
            ("*/10 * * * * */2 /bin/a", false),
            ("0 0 3 * * * root /bin/a", true),
        ] {
            assert!(matches!(read(line, system), Line::Invalid(why) if why.contains("no seconds")), "{line}");
        }
        for line in ["0 3 * * * 7z a x", "0 3 * * * monitor", "0 3 * * * /bin/a *", "@daily 1"] {
            assert!(matches!(read(line, false), Line::Entry(_)), "{line}");
        }
        assert!(matches!(read("0 3 * *", false), Line::Invalid(_)));
        assert!(matches!(read("0 3 * * * root", true), Line::Invalid(_)));
        assert!(matches!(read("@daily", false), Line::Invalid(_)));
    }

    #[test]
    fn percent_signs_separate_the_input() {
        let read = |text| {
            let line = command_line(text);
            (line.command, line.input)
        };
        let lines = |lines: &[&str]| Some(lines.iter().map(|&line| line.to_owned()).collect::<Vec<_>>());
        assert_eq!(read("date"), ("date".into(), None));
        assert_eq!(read("date +\\%F"), ("date +%F".into(), None));
        assert_eq!(read("mail ops%Hello%%100\\%"), ("mail ops".into(), lines(&["Hello", "", "100%"])));
        assert_eq!(read("cat%"), ("cat".into(), lines(&[])));
        assert_eq!(read("cat%a%"), ("cat".into(), lines(&["a"])));
        assert_eq!(read("cat%%"), ("cat".into(), lines(&[""])));
        assert_eq!(read("echo q\\\\%a\\\\%b"), ("echo q\\\\".into(), lines(&["a\\%b"])));
        assert_eq!(read("a\\b"), ("a\\b".into(), None));
    }
}
