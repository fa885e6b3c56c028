//! What an error or a log may repeat of a text that somebody else wrote. Shared by the project's crates; no part of
//! the interface.

/// The beginning of `text`, at most `most` bytes of it, ending between two characters, with a space for every
/// character that could steer a terminal or end a line.
pub fn plain(text: &str, most: usize) -> String {
    let steers = |c: char| {
        c.is_control()
            || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    crate::node::engine::cut(text, most).chars().map(|c| if steers(c) { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_steers_becomes_a_space_and_what_is_long_is_cut() {
        assert_eq!(plain("a\u{1b}[2J\r\nb\u{202e}c", 100), "a [2J  b c");
        assert_eq!(plain("üüü", 3), "ü");
    }
}
