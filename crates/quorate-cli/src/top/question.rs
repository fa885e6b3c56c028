//! The questions about actions, and the texts that are typed into them. Nothing here reads a clock, the nodes or the
//! terminal.

use crate::{jobs::Action, time};
use crossterm::event::KeyCode;
use quorate::env::WallTime;
use std::time::Duration;

/// The longest text that can be typed, in characters.
const TYPED_MAX: usize = 200;
/// The name of the field with the end of a pause or of a span.
const UNTIL: &str = "Until";

/// A question about an action.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Question {
    pub(super) job: String,
    pub(super) verb: Verb,
    /// The texts of the fields, as far as they have been typed. See [`Verb::fields`].
    pub(super) typed: Vec<String>,
    /// The field that takes the keys.
    pub(super) at: usize,
    /// The reason why the texts cannot be used.
    pub(super) problem: Option<String>,
}

/// An action on a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Trigger,
    Pause,
    Resume,
    Cancel,
    Backfill,
}

/// The effect of a key on a question.
#[derive(Debug, PartialEq)]
pub(super) enum Answer {
    /// The question stays.
    Ask(Question),
    Refuse,
    Confirm(Action),
}

impl Question {
    pub(super) fn new(job: &str, verb: Verb) -> Self {
        let typed = verb.fields().iter().map(|_| String::new()).collect();
        Self { job: job.to_owned(), verb, typed, at: 0, problem: None }
    }

    /// Takes a key. An action with fields is confirmed by Enter, because every letter can be part of a text.
    pub(super) fn press(mut self, key: KeyCode, now: WallTime) -> Answer {
        if self.typed.is_empty() {
            return match key {
                KeyCode::Char('y' | 'Y') => self.confirm(now),
                _ => Answer::Refuse,
            };
        }
        let count = self.typed.len();
        match key {
            KeyCode::Esc => return Answer::Refuse,
            KeyCode::Enter => return self.confirm(now),
            KeyCode::Tab | KeyCode::Down => self.at = (self.at + 1) % count,
            KeyCode::BackTab | KeyCode::Up => self.at = (self.at + count - 1) % count,
            _ => {
                if let Some(text) = self.typed.get_mut(self.at) {
                    edit(text, key);
                }
                self.problem = None;
            }
        }
        Answer::Ask(self)
    }

    fn confirm(mut self, now: WallTime) -> Answer {
        match self.action(now) {
            Ok(action) => Answer::Confirm(action),
            Err((field, problem)) => {
                (self.at, self.problem) = (field, Some(problem));
                Answer::Ask(self)
            }
        }
    }

    /// Returns the action. The error has the field that must be changed, and the reason.
    fn action(&self, now: WallTime) -> Result<Action, (usize, String)> {
        let text = |at: usize| self.typed.get(at).map(|text| text.trim()).filter(|text| !text.is_empty());
        Ok(match self.verb {
            Verb::Trigger => Action::Trigger,
            Verb::Resume => Action::Resume,
            Verb::Cancel => Action::Cancel(None),
            Verb::Pause => {
                let until = text(1).map(|text| end(text, now)).transpose().map_err(|error| (1, error))?;
                Action::Pause { reason: text(0).map(str::to_owned), until }
            }
            Verb::Backfill => {
                let required = |at: usize| {
                    let name = self.verb.fields().get(at).map_or("", |(name, _)| *name);
                    let text = text(at).ok_or_else(|| (at, format!("{name} is missing")))?;
                    time::parse(text).map_err(|error| (at, format!("{name}: {error}")))
                };
                let (from, until) = (required(0)?, required(1)?);
                if from >= until {
                    return Err((1, format!("{UNTIL} is not later than From")));
                }
                Action::Backfill(from, until)
            }
        })
    }
}

impl Verb {
    /// Returns the fields of the question, each with its name and a hint.
    pub(super) const fn fields(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Pause => &[
                ("Reason", "optional"),
                (UNTIL, "such as 2h or 2026-11-23T03:00:00Z; empty: until it is resumed"),
            ],
            Self::Backfill => {
                &[("From", "such as 2026-11-23T03:00:00Z, included"), (UNTIL, "the same, excluded")]
            }
            Self::Trigger | Self::Resume | Self::Cancel => &[],
        }
    }

    pub(super) const fn done(self) -> &'static str {
        match self {
            Self::Trigger => "triggered",
            Self::Pause => "paused",
            Self::Resume => "resumed",
            Self::Cancel => "cancelled",
            Self::Backfill => "back-filled",
        }
    }
}

/// Reads the end of a pause: a time, or a length from now on.
fn end(text: &str, now: WallTime) -> Result<WallTime, String> {
    let until = match humantime::parse_duration(text) {
        Ok(length) => now + length,
        Err(_) => time::parse(text).map_err(|_| {
            format!("{UNTIL} is neither a length nor a time; write it like 2h or 2026-11-23T03:00:00Z")
        })?,
    };
    match until <= now + Duration::from_micros(1) {
        true => Err(format!("{UNTIL} has passed already")),
        false => Ok(until),
    }
}

/// Applies a key to a typed text.
pub(super) fn edit(text: &mut String, key: KeyCode) {
    match key {
        KeyCode::Backspace => {
            text.pop();
        }
        KeyCode::Char(c) if text.chars().count() < TYPED_MAX && !quorate::plain::steers(c) => text.push(c),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: WallTime = WallTime::from_micros(1_795_313_560_000_000);

    fn at(text: &str) -> WallTime {
        time::parse(text).expect("a time")
    }

    /// Types these keys; a line end is Enter, a tab is Tab.
    fn answer(verb: Verb, keys: &str) -> Answer {
        let mut question = Question::new("j", verb);
        for key in keys.chars() {
            let key = match key {
                '\n' => KeyCode::Enter,
                '\t' => KeyCode::Tab,
                key => KeyCode::Char(key),
            };
            match question.press(key, NOW) {
                Answer::Ask(next) => question = next,
                other => return other,
            }
        }
        Answer::Ask(question)
    }

    #[track_caller]
    fn problem(verb: Verb, keys: &str) -> (usize, String) {
        match answer(verb, keys) {
            Answer::Ask(question) => (question.at, question.problem.expect("a problem")),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_pause_ends_at_a_time_or_after_a_length() {
        let pause = |reason: Option<&str>, until| {
            Answer::Confirm(Action::Pause { reason: reason.map(str::to_owned), until })
        };
        assert_eq!(answer(Verb::Pause, "\n"), pause(None, None));
        assert_eq!(answer(Verb::Pause, "disk full\n"), pause(Some("disk full"), None));
        let in_two_hours = Some(NOW + Duration::from_secs(7_200));
        assert_eq!(answer(Verb::Pause, "disk\t 2h \n"), pause(Some("disk"), in_two_hours));
        let until = Some(at("2027-01-01T00:00:00Z"));
        assert_eq!(answer(Verb::Pause, "\t2027-01-01T01:00:00+01:00\n"), pause(None, until));
        for (typed, expected) in
            [("soon", "neither a length nor a time"), ("0s", "passed"), ("2020-01-01T00:00:00Z", "passed")]
        {
            let (field, problem) = problem(Verb::Pause, &format!("why\t{typed}\n"));
            assert!(field == 1 && problem.contains(expected), "{typed}: {problem}");
        }
        // The next key corrects the text, and the problem goes.
        assert!(matches!(answer(Verb::Pause, "\tsoon\nx"), Answer::Ask(Question { problem: None, .. })));
    }

    #[test]
    fn a_back_fill_needs_a_span() {
        let (from, until) = ("2026-11-20T00:00:00Z", "2026-11-21T00:00:00Z");
        let expected = Answer::Confirm(Action::Backfill(at(from), at(until)));
        assert_eq!(answer(Verb::Backfill, &format!("{from}\t{until}\n")), expected);
        // Enter leads to the first field that is missing.
        assert_eq!(answer(Verb::Backfill, &format!("{from}\n{until}\n")), expected);
        for (keys, field, expected) in [
            ("\n".to_owned(), 0, "From is missing"),
            (format!("{from}\n"), 1, "Until is missing"),
            (format!("{until}\t{from}\n"), 1, "not later than From"),
            (format!("yesterday\t{until}\n"), 0, "From: "),
        ] {
            let (at, problem) = problem(Verb::Backfill, &keys);
            assert!(at == field && problem.contains(expected), "{keys:?}: {at} {problem}");
        }
    }

    #[test]
    fn the_fields_are_a_circle_and_escape_leaves_from_each() {
        assert!(matches!(answer(Verb::Backfill, "\t\t"), Answer::Ask(Question { at: 0, .. })));
        for keys in ["", "\t"] {
            let Answer::Ask(question) = answer(Verb::Pause, keys) else { panic!("it asks") };
            assert_eq!(question.press(KeyCode::Esc, NOW), Answer::Refuse);
        }
        let Answer::Ask(question) = Question::new("j", Verb::Pause).press(KeyCode::Up, NOW) else {
            panic!("it asks")
        };
        assert_eq!(question.at, 1);
    }
}
