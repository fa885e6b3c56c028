//! The terminal that the program writes to: its width, and whether colours are used on it.

use rustix::termios::tcgetwinsize;
use std::{
    io::{IsTerminal, stdout},
    os::fd::AsFd,
};

/// The sequences that set and reset a colour. No other control sequence is written to standard output.
const COLOURS: [&str; 4] = ["\u{1b}[38;5;1m", "\u{1b}[38;5;3m", "\u{1b}[39m", "\u{1b}[0m"];

/// The importance of a text. Colours are only used for what an operator should look at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Tone {
    #[default]
    Plain,
    /// Something is not as usual, such as a paused job.
    Caution,
    /// Something has failed.
    Trouble,
}

/// The properties of an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Output {
    /// The width of the terminal. `None` if the output is not a terminal, so that lines are not wrapped.
    pub(crate) width: Option<u16>,
    pub(crate) colour: bool,
}

impl Output {
    pub(crate) fn stdout() -> Self {
        let stdout = stdout();
        if !stdout.is_terminal() {
            return Self { width: None, colour: false };
        }
        let width = tcgetwinsize(stdout.as_fd()).ok().map(|size| size.ws_col).filter(|width| *width > 0);
        Self { width, colour: wants_colour(|name| std::env::var(name).ok()) }
    }
}

impl Tone {
    /// Returns `text` in the colour of the tone, if standard output has colours.
    pub(crate) fn paint(self, text: &str) -> String {
        if !Output::stdout().colour {
            return text.to_owned();
        }
        match self {
            Self::Plain => text.to_owned(),
            Self::Caution => format!("{}{text}{}", COLOURS[1], COLOURS[2]),
            Self::Trouble => format!("{}{text}{}", COLOURS[0], COLOURS[2]),
        }
    }
}

/// Returns whether the environment permits colours on a terminal. `NO_COLOR` is from <https://no-color.org>.
pub(crate) fn wants_colour(variable: impl Fn(&str) -> Option<String>) -> bool {
    let is_set = |name| variable(name).is_some_and(|value| !value.is_empty());
    !is_set("NO_COLOR") && variable("TERM").is_none_or(|term| term != "dumb")
}

/// Applies `clean` to the parts of `text` between the sequences that set and reset colours.
pub(crate) fn keep_colours(text: &str, clean: impl Fn(&str) -> String) -> String {
    let (mut kept, mut rest) = (String::with_capacity(text.len()), text);
    while !rest.is_empty() {
        if let Some(colour) = COLOURS.iter().find(|colour| rest.starts_with(**colour)) {
            kept += colour;
            rest = &rest[colour.len()..];
            continue;
        }
        let next = COLOURS.iter().filter_map(|colour| rest.find(colour)).min().unwrap_or(rest.len());
        kept += &clean(&rest[..next]);
        rest = &rest[next..];
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_may_refuse_colours() {
        let with = |set: &'static [(&str, &str)]| {
            wants_colour(|name| {
                set.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
            })
        };
        assert!(with(&[]) && with(&[("TERM", "xterm-256color")]));
        assert!(with(&[("NO_COLOR", "")]), "an empty NO_COLOR counts as not set");
        assert!(!with(&[("NO_COLOR", "1")]));
        assert!(!with(&[("TERM", "dumb")]));
    }

    #[test]
    fn only_colours_are_kept() {
        let clean = |text: &str| text.replace('\u{1b}', " ");
        let text = "a\u{1b}[2J\u{1b}[38;5;1mb\u{1b}[39m\u{1b}[8mc\u{1b}[0m";
        assert_eq!(keep_colours(text, clean), "a [2J\u{1b}[38;5;1mb\u{1b}[39m [8mc\u{1b}[0m");
    }
}
