//! Text from outside, made fit for a terminal: what every command prints goes through here.

use crate::exit::{FAILURE, Failure};
use quorate::plain::{plain, steers};
use serde::Serialize;
use std::{fmt::Write as _, io::Write as _};

/// One line of at most `most` bytes, whatever `text` holds.
pub(crate) fn line(text: &str, most: usize) -> String {
    plain(text, most)
}

/// `text` without what steers a terminal. Its line ends are kept: they are ours, each value in it is a [`line`].
pub(crate) fn page(text: &str) -> String {
    text.chars().map(|c| if c != '\n' && steers(c) { ' ' } else { c }).collect()
}

/// Prints a [`page`] to standard output. A reader that has gone (`| head`) is no failure.
pub(crate) fn print(text: &str) {
    let _ = std::io::stdout().write_all(page(text).as_bytes());
}

/// `value` as one line of JSON, in ASCII where it would steer a terminal.
pub(crate) fn json(value: &impl Serialize) -> Result<String, Failure> {
    let json = serde_json::to_string(value).map_err(|error| Failure::new(FAILURE, error))?;
    Ok(json_text(&json) + "\n")
}

/// JSON in which what steers a terminal is escaped. `serde_json` escapes only what JSON requires.
pub(crate) fn json_text(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        if steers(c) {
            // Such a character stands in a string: JSON has it nowhere else.
            for unit in c.encode_utf16(&mut [0; 2]) {
                // Writing to a string cannot fail.
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
    fn json_says_the_same_in_ascii() {
        let hostile = "a\u{1b}\u{7f}\u{85}\u{9b}\u{202e}\u{2028}\u{200b}\u{feff}\u{e0041}ü\n\"\\";
        let text = json(&[hostile]).unwrap();
        assert!(!text.trim_end().contains(steers), "{text}");
        assert_eq!(serde_json::from_str::<Vec<String>>(&text).unwrap(), [hostile]);
    }

    #[test]
    fn a_page_has_lines_and_steers_nothing() {
        assert_eq!(page("a\u{1b}[2J\r\nb\u{202e}c\n"), "a [2J \nb c\n");
    }
}
