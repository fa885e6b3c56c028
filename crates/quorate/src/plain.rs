//! Functions that make text from outside the process safe for errors, logs and terminals. All crates of the
//! project use them. They are not part of the public interface.

use std::fmt::Write;

/// Returns the beginning of `text`, at most `most` bytes of it, cut between two characters.
pub(crate) fn cut(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}

/// Returns the beginning of `text`, at most `most` bytes of it. Replaces each character that is not safe in a
/// line by a space: see [`steers`].
pub fn plain(text: &str, most: usize) -> String {
    cut(text, most).chars().map(|c| if steers(c) { ' ' } else { c }).collect()
}

/// Returns the beginning of `text` for `Debug`, at most `most` bytes of it. Unsafe characters, quotes and
/// backslashes are escaped, and `…` marks text that was cut.
pub fn escaped(text: &str, most: usize) -> String {
    let beginning = cut(text, most);
    let mut shown = String::with_capacity(beginning.len());
    for c in beginning.chars() {
        // `write!` to a string never fails.
        let _ = match c {
            c if steers(c) || matches!(c, '"' | '\\') => write!(shown, "{}", c.escape_default()),
            c => write!(shown, "{c}"),
        };
    }
    if beginning.len() < text.len() {
        shown.push('…');
    }
    shown
}

/// Returns whether `c` may control a terminal or hide text in a line. Such characters are control characters
/// (C0, DEL and C1), line ends, characters that change the direction of text, and characters without a width.
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
    fn unsafe_characters_become_spaces_and_long_text_is_cut() {
        assert_eq!(plain("a\u{1b}[2J\r\nb\u{202e}c", 100), "a [2J  b c");
        assert_eq!(plain("üüü", 3), "ü");
    }

    #[test]
    fn debug_text_shows_unsafe_characters_and_that_it_was_cut() {
        assert_eq!(escaped("a\u{1b}[2J\n\"ü\u{202e}", 100), "a\\u{1b}[2J\\n\\\"ü\\u{202e}");
        assert_eq!(escaped("abc", 2), "ab…");
    }

    #[test]
    fn all_kinds_of_unsafe_characters_are_recognised() {
        let steering = "\0\u{7}\u{8}\t\n\r\u{1b}\u{7f}\u{80}\u{85}\u{9b}\u{9f}\u{200b}\u{200d}\u{200e}\u{200f}\u{2028}\
                        \u{2029}\u{202a}\u{202e}\u{2066}\u{2069}\u{feff}\u{e0041}";
        assert!(steering.chars().all(steers));
        assert!(!" aüїあ🦀~\u{a0}\u{301}".chars().any(steers), "letters, marks and spaces are text");
    }
}
