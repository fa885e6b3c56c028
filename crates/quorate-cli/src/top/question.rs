//! The questions about actions, and the texts that are typed into them. Nothing here reads a clock, the nodes or the
//! terminal.

use crossterm::event::KeyCode;
use quorate::env::WallTime;
use quorate_operator::{Action, Field, Given, Kind, Need, Verb};

/// The longest text that can be typed, in characters.
const TYPED_MAX: usize = 200;

/// A question about an action.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Question {
    pub(super) job: String,
    pub(super) verb: Verb,
    /// The texts of the fields, as far as they have been typed. See [`Question::fields`].
    pub(super) typed: Vec<String>,
    /// The field that takes the keys.
    pub(super) at: usize,
    /// The reason why the texts cannot be used.
    pub(super) problem: Option<String>,
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
        let typed = asked(verb).map(|_| String::new()).collect();
        Self { job: job.to_owned(), verb, typed, at: 0, problem: None }
    }

    /// Returns the fields of the question, each with its hint and its text.
    pub(super) fn fields(&self) -> impl Iterator<Item = (&'static Field, String, &String)> {
        asked(self.verb).zip(&self.typed).map(|(field, typed)| {
            let hint = match (field.kind, field.need) {
                (Kind::Text, Need::Required) => "required".to_owned(),
                (Kind::Text, _) => "optional".to_owned(),
                (Kind::End, _) => format!("such as 2h or 2026-11-23T03:00:00Z: {}", field.about),
                _ => format!("such as 2026-11-23T03:00:00Z: {}", field.about),
            };
            (field, hint, typed)
        })
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
        match Action::read(self.verb, &Typed { question: &self, now }) {
            Ok(action) => Answer::Confirm(action),
            Err(wrong) => {
                self.at = asked(self.verb).position(|field| field.name == wrong.field).unwrap_or(0);
                self.problem = Some(wrong.text);
                Answer::Ask(self)
            }
        }
    }
}

/// Returns the fields that a person is asked for.
fn asked(verb: Verb) -> impl Iterator<Item = &'static Field> {
    verb.fields().iter().filter(|field| field.is_asked())
}

/// The texts of a question at a point in time.
struct Typed<'a> {
    question: &'a Question,
    now: WallTime,
}

impl Given for Typed<'_> {
    fn raw(&self, field: &str) -> Option<&str> {
        let Question { job, verb, typed, .. } = self.question;
        match field {
            "job" => Some(job),
            _ => asked(*verb).zip(typed).find(|(asked, _)| asked.name == field).map(|(_, typed)| &**typed),
        }
    }

    fn now(&self) -> WallTime {
        self.now
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
    use crate::time;
    use quorate::internals::JobAction;
    use std::time::Duration;

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
            let pause = JobAction::Pause { job: "j".into(), reason: reason.map(Into::into), until };
            Answer::Confirm(Action::Job(pause))
        };
        assert_eq!(answer(Verb::Pause, "\n"), pause(None, None));
        assert_eq!(answer(Verb::Pause, "disk full\n"), pause(Some("disk full"), None));
        let in_two_hours = Some(NOW + Duration::from_secs(7_200));
        assert_eq!(answer(Verb::Pause, "disk\t 2h \n"), pause(Some("disk"), in_two_hours));
        let until = Some(at("2027-01-01T00:00:00Z"));
        assert_eq!(answer(Verb::Pause, "\t2027-01-01T01:00:00+01:00\n"), pause(None, until));
        for (typed, expected) in [
            ("soon", "neither a length nor a time"),
            ("0s", "have ended already"),
            ("2020-01-01T00:00:00Z", "have ended already"),
        ] {
            let (field, problem) = problem(Verb::Pause, &format!("why\t{typed}\n"));
            assert!(field == 1 && problem.contains(expected), "{typed}: {problem}");
        }
        // The next key corrects the text, and the problem goes.
        assert!(matches!(answer(Verb::Pause, "\tsoon\nx"), Answer::Ask(Question { problem: None, .. })));
    }

    #[test]
    fn a_back_fill_needs_a_span() {
        let (from, until) = ("2026-11-20T00:00:00Z", "2026-11-21T00:00:00Z");
        let backfill = JobAction::Backfill { job: "j".into(), from: at(from), until: at(until) };
        let expected = Answer::Confirm(Action::Job(backfill));
        assert_eq!(answer(Verb::Backfill, &format!("{from}\t{until}\n")), expected);
        // Enter leads to the first field that is missing.
        assert_eq!(answer(Verb::Backfill, &format!("{from}\n{until}\n")), expected);
        for (keys, field, expected) in [
            ("\n".to_owned(), 0, "from is missing"),
            (format!("{from}\n"), 1, "until is missing"),
            (format!("{until}\t{from}\n"), 1, "not later than from"),
            (format!("yesterday\t{until}\n"), 0, "from \"yesterday\""),
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
