//! Text of other parties without the characters that control a terminal. All functions are pure.

use quorate::plain::{plain, steers};
use std::fmt::Write;

/// Returns `text` as one line of at most `most` bytes.
pub(crate) fn line(text: &str, most: usize) -> String {
    plain(text, most)
}

/// Replaces the characters of `text` that control a terminal, except line ends. The line ends are those of the
/// program itself, because every value in `text` has passed through [`line`].
pub(crate) fn page(text: &str) -> String {
    text.chars().map(|c| if c != '\n' && steers(c) { ' ' } else { c }).collect()
}

/// Escapes the characters of a JSON document that control a terminal. `serde_json` escapes only what JSON requires.
pub(crate) fn json_text(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        if steers(c) {
            // Such a character can only be inside a JSON string, because JSON does not permit it elsewhere. So
            // it can be replaced by its escape sequence.
            for unit in c.encode_utf16(&mut [0; 2]) {
                // `write!` to a string never fails.
                let _ = write!(text, "\\u{unit:04x}");
            }
        } else {
            text.push(c);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_keeps_its_lines_and_loses_control_characters() {
        assert_eq!(page("a\u{1b}[2J\r\nb\u{202e}c\n"), "a [2J \nb c\n");
    }
}
