//! Compares the output of a command with the output that a page shows. The page shows a real output, with values that
//! differ from run to run: times, durations, process ids, fencing tokens. Such a value counts as equal to any other of
//! its kind.

/// A kind of value that differs from run to run, or with the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Time,
    Duration,
    /// A number with a fraction or a sign.
    Measure,
    /// A fencing token, or a term.
    Token,
    /// The id of a request.
    Id,
    /// The version of a server, of the program or of the time zone tables.
    Version,
}

/// Compares the output on a page with that of a command. Spaces between words may differ in number, since the columns of
/// a table are as wide as its values. A page that shows no output accepts any.
pub(crate) fn matches(shown: &str, output: &str) -> bool {
    let lines = |text: &str| text.trim_end().lines().map(normal).collect::<Vec<_>>();
    shown.is_empty() || lines(shown) == lines(output)
}

/// Returns an error if the line leaves out a part of what the reader would see.
pub(crate) fn check(line: &str) -> Result<(), String> {
    match line.contains('…') {
        true => Err(format!("show the real text in place of `…`: {line:?}")),
        false => Ok(()),
    }
}

/// Returns the line with the kind of each value that varies in place of the value, and with single spaces.
fn normal(line: &str) -> String {
    let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '.' | ':' | '-' | '+');
    let mut normal = String::new();
    let mut rest = &*line;
    let mut before = "";
    while let Some(first) = rest.chars().next() {
        let end = rest.find(|c| is_part(c) != is_part(first)).unwrap_or(rest.len());
        let (piece, after) = rest.split_at(end);
        rest = after;
        let word = piece.trim_start_matches([':', '.']).trim_end_matches(['.', ':', '-']);
        let next = rest.trim_start().split([' ', ',', ')']).next().unwrap_or_default();
        match kind(word).or_else(|| beside(before, word, next)) {
            Some(kind) => normal += &piece.replacen(word, &format!("<{kind:?}>"), 1),
            None => normal += &without_process(piece),
        }
        if is_part(first) {
            before = piece;
        }
    }
    without_answers(&normal.replace("<Duration> <Duration>", "<Duration>"))
}

/// Leaves out the reason of each node in an error that says how many agreed: a command does not wait for the nodes whose
/// answers cannot change the outcome.
fn without_answers(line: &str) -> String {
    let Some((count, nodes)) = line.split_once(" nodes agreed, ") else { return line.to_owned() };
    let names = nodes.split("; ").map(|node| node.split_once(": ").map_or(node, |(name, _)| name));
    format!("{count} nodes agreed, {}", names.collect::<Vec<_>>().join("; "))
}

/// Returns the kind of a value by its form.
fn kind(word: &str) -> Option<Kind> {
    // Each digit becomes 0, so that forms can be compared.
    let shape: String = word.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    let is_hexadecimal = word.bytes().all(|byte| byte.is_ascii_hexdigit());
    match &*shape {
        shape if is_time(shape) => Some(Kind::Time),
        shape if is_duration(shape) => Some(Kind::Duration),
        shape if is_measure(shape) => Some(Kind::Measure),
        shape if is_version(shape) => Some(Kind::Version),
        shape if shape.len() == 32 && is_hexadecimal => Some(Kind::Id),
        shape if shape.len() >= 10 && is_count(shape) => Some(Kind::Token),
        _ => None,
    }
}

/// Returns whether the form is that of a date, a time of day, both, or an offset from UTC.
fn is_time(shape: &str) -> bool {
    let of_day = |text: &str| {
        let text = text.trim_end_matches('Z');
        text == "00:00:00" || text.strip_prefix("00:00:00.").is_some_and(is_count)
    };
    match shape.split_once('T') {
        Some((date, time)) => {
            let offset = ["+00:00", "-00:00"].into_iter().find_map(|offset| time.strip_suffix(offset));
            date == "0000-00-00" && of_day(offset.unwrap_or(time))
        }
        None => shape == "0000-00-00" || of_day(shape) || ["+00:00", "-00:00"].contains(&shape),
    }
}

/// Returns whether the form is that of a measured duration: `1.2s`, `16.2ms`, `835ms`. Whole seconds are settings.
fn is_duration(shape: &str) -> bool {
    let small = ["ms", "µs", "ns"].iter().find_map(|unit| shape.strip_suffix(unit));
    small.is_some_and(|count| is_count(count) || is_fraction(count))
        || shape.strip_suffix('s').is_some_and(is_fraction)
}

/// Returns whether the form is that of a number with a fraction or a sign.
fn is_measure(shape: &str) -> bool {
    let number = shape.trim_start_matches(['+', '-']);
    is_fraction(number) || (number != shape && is_count(number))
}

/// Returns whether the form is that of a version: `7.0.15`, or `2026e` for time zone tables.
fn is_version(shape: &str) -> bool {
    let letter = shape.strip_prefix("0000").unwrap_or_default();
    letter.len() == 1 && letter.ends_with(char::is_lowercase)
        || shape.split('.').count() == 3 && shape.split('.').all(is_count)
}

fn is_fraction(shape: &str) -> bool {
    shape.split_once('.').is_some_and(|(whole, part)| is_count(whole) && is_count(part))
}

fn is_count(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns the kind of a value by the words before and after it: `38 ms`, `9s 835ms`, `up 11s`, `"remaining_ms":8123`.
fn beside(before: &str, word: &str, next: &str) -> Option<Kind> {
    let seconds = word.strip_suffix('s').is_some_and(is_count);
    let varies = is_count(word) && (["ms", "s"].contains(&next) || before == "ms")
        || seconds
            && (["up", "-"].contains(&before) || [kind(before), kind(next)].contains(&Some(Kind::Duration)))
        || seconds && kind(before) == Some(Kind::Time);
    varies.then_some(Kind::Duration)
}

/// Replaces the process id in the name of a worker, and the id of an attempt behind it: `alpha-123`,
/// `alpha-123:3c9c7102ca3e16f6cd731cc82894436e`.
fn without_process(word: &str) -> String {
    match word.split_once('-') {
        Some((host, id)) if host.bytes().all(|byte| byte.is_ascii_lowercase()) && !host.is_empty() => {
            let rest = id.trim_start_matches(|c: char| c.is_ascii_digit());
            if rest.len() < id.len() && !rest.starts_with(char::is_alphanumeric) {
                let is_attempt = rest.strip_prefix(':').and_then(kind) == Some(Kind::Id);
                return format!("{host}-<process>{}", if is_attempt { ":<Id>" } else { rest });
            }
            word.to_owned()
        }
        _ => word.to_owned(),
    }
}

#[test]
fn output_is_compared() {
    assert!(matches("", "anything"));
    assert!(matches("a   b\n", "a b  \n"));
    let different = [("a\n", "b\n"), ("a\n", "a\nb\n"), ("3 of 3", "2 of 3"), ("10s", "20s")];
    for (shown, output) in different {
        assert!(!matches(shown, output), "{shown} {output}");
    }
}

#[test]
fn a_value_that_varies_matches_any_of_its_kind() {
    for (shown, output) in [
        ("at 2026-11-29T13:30:38Z", "at 2027-01-01T00:00:00.123456Z"),
        ("2026-11-29 13:30:39.317432 +00:00 (UTC)", "2027-06-01 01:02:03 +03:00 (UTC)"),
        ("next 2026-11-30T03:00:00+02:00", "next 2027-06-01T03:00:00.5-03:00"),
        ("failed in 16.2ms: exit status 3", "failed in 1.2s: exit status 3"),
        ("for another 2.6 s, token 1795959032703257", "for another 0.3 s, token 1795959032703999"),
        ("held by alpha-34 for", "held by alpha-1234 for"),
        ("(alpha-3:3c9c7102ca3e16f6cd731cc82894436e) on", "(alpha-45:ae6c29e563dd84375ea8574890fbd965) on"),
        (
            "\"worker\":\"alpha-34\",\"term\":1795959032703257}",
            "\"worker\":\"alpha-5\",\"term\":1795959032703258}",
        ),
        ("(request ae6c29e563dd84375ea8574890fbd965)", "(request f29339b071114334f424452e20c2d277)"),
        ("7.0.15   3.40 ms", "6.2.5  12.1 ms"),
        ("up 11s, clock +0 ms", "up 7s, clock -3 ms"),
        ("-  9s 835ms  leads now", "-  12s  leads now"),
        ("2026-11-29T13:41:56.426591Z  20s  unknown", "2026-11-29T13:41:56Z  1s 20ms  unknown"),
        ("tables 2026e", "tables 2027a"),
        ("1655 ms after", "3 ms after"),
        ("\"remaining_ms\":8123}", "\"remaining_ms\":4}"),
        (
            "0 of 2 nodes agreed, 2 needed; a: held by b-1; c: d",
            "0 of 2 nodes agreed, 2 needed; a: slow; c: e: f",
        ),
    ] {
        assert!(
            matches(shown, output),
            "{shown:?} is {:?}, {output:?} is {:?}",
            normal(shown),
            normal(output)
        );
    }
    for (shown, output) in [
        ("failed in 16.2ms: exit status 3", "failed in 16.2ms: exit status 4"),
        ("redis://127.0.0.1:7001/0", "redis://127.0.0.1:7002/0"),
        ("held by alpha-34 for", "held by beta-34 for"),
        ("lease of 10s, 3 nodes", "lease of 5s, 3 nodes"),
        ("0 3 * * *", "0 4 * * *"),
        ("at 03:00 every day", "at 04:00 every day"),
        ("report-1 done", "report done"),
        ("0 of 2 nodes agreed, 2 needed; a: slow; c: d", "1 of 2 nodes agreed, 2 needed; a: slow; c: d"),
        ("0 of 2 nodes agreed, 2 needed; a: slow; c: d", "0 of 2 nodes agreed, 2 needed; b: slow; c: d"),
    ] {
        assert!(!matches(shown, output), "{shown:?} {output:?}");
    }
    assert!(check("a … b").is_err() && check("…").is_err() && check("a b").is_ok());
}
