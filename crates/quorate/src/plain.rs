//! Text from outside, made fit for an error, a log and a terminal. Shared by the project's crates; no part of the
//! interface.

use std::fmt::Write;

/// The beginning of `text`, at most `most` bytes of it, ending between two characters, with a space for every
/// character that [steers](steers) a terminal or ends a line.
pub fn plain(text: &str, most: usize) -> String {
    crate::node::engine::cut(text, most).chars().map(|c| if steers(c) { ' ' } else { c }).collect()
}

/// As [`plain`], with each such character escaped, and quotes and backslashes too: for `Debug`.
pub fn escaped(text: &str, most: usize) -> String {
    let cut = crate::node::engine::cut(text, most);
    let mut shown = String::with_capacity(cut.len());
    for c in cut.chars() {
        // Writing to a string cannot fail.
        let _ = match c {
            c if steers(c) || matches!(c, '"' | '\\') => write!(shown, "{}", c.escape_default()),
            c => write!(shown, "{c}"),
        };
    }
    if cut.len() < text.len() {
        shown.push('…');
    }
    shown
}

/// Whether `c` steers a terminal or hides in a line: control characters (C0, DEL and C1), ends of lines, what changes
/// the direction of text, and what has no width.
pub fn steers(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}'
            | '\u{61c}'
            | '\u{180e}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_steers_becomes_a_space_and_what_is_long_is_cut() {
        assert_eq!(plain("a\u{1b}[2J\r\nb\u{202e}c", 100), "a [2J  b c");
        assert_eq!(plain("üüü", 3), "ü");
    }

    #[test]
    fn debug_shows_what_steers_and_that_text_was_cut() {
        assert_eq!(escaped("a\u{1b}[2J\n\"ü\u{202e}", 100), "a\\u{1b}[2J\\n\\\"ü\\u{202e}");
        assert_eq!(escaped("abc", 2), "ab…");
    }

    #[test]
    fn all_that_steers_is_known() {
        let steering = "\0\u{7}\u{8}\t\n\r\u{1b}\u{7f}\u{80}\u{85}\u{9b}\u{9f}\u{200b}\u{200d}\u{200e}\u{200f}\u{2028}\
                        \u{2029}\u{202a}\u{202e}\u{2066}\u{2069}\u{feff}\u{e0041}";
        assert!(steering.chars().all(steers));
        assert!(!" aüїあ🦀~\u{a0}\u{301}".chars().any(steers), "letters, marks and spaces are text");
    }
}
