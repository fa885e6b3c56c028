use crate::{Field, Kind, time};
use quorate::{FencingToken, env::WallTime, plain::plain};
use std::time::Duration;

/// The longest value that an error repeats, in bytes.
const SHOWN_MAX: usize = 200;

/// The values of the fields of an action: those of a form, of a request, or of a question.
pub trait Given {
    /// Returns the value of a field as it was given. A name that the nodes store may begin and end with spaces.
    fn raw(&self, field: &str) -> Option<&str>;

    /// Returns the text of a field, without the spaces around it.
    fn text(&self, field: &str) -> Option<&str> {
        self.raw(field).map(str::trim).filter(|text| !text.is_empty())
    }

    /// Returns the present time of the quorum's clock.
    fn now(&self) -> WallTime;

    /// Reads a time.
    ///
    /// # Errors
    /// A text that shows the required format.
    fn read_time(&self, text: &str) -> Result<WallTime, String> {
        time::parse(text)
    }
}

/// A field whose value cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct WrongField {
    /// The name of the field.
    pub field: &'static str,
    /// The reason, with the fix.
    pub text: String,
}

impl WrongField {
    pub(crate) fn new(field: &'static str, text: impl Into<String>) -> Self {
        Self { field, text: text.into() }
    }

    fn missing(field: &Field) -> Self {
        Self::new(field.name, format!("{} is missing: {}", field.name, field.about))
    }

    fn value(field: &Field, value: &str, reason: &str) -> Self {
        let (value, reason) = (plain(value, SHOWN_MAX), plain(reason, SHOWN_MAX * 2));
        Self::new(field.name, format!("{} {value:?} {reason}", field.name))
    }
}

/// Returns a name that the nodes store.
pub(crate) fn name<'a>(given: &'a impl Given, field: &'static str) -> Result<&'a str, WrongField> {
    let found = given.raw(field).filter(|value| !value.is_empty());
    found.ok_or_else(|| WrongField::new(field, format!("{field} is missing")))
}

/// Returns the time of a field; for the end of a state, it may be given as a length from now on.
pub(crate) fn time(given: &impl Given, field: &Field) -> Result<Option<WallTime>, WrongField> {
    let Some(text) = given.text(field.name) else { return Ok(None) };
    if field.kind == Kind::End
        && let Ok(length) = humantime::parse_duration(text)
    {
        return Ok(Some(given.now() + length));
    }
    let wrong = |reason: String| {
        let neither = if field.kind == Kind::End { "is neither a length nor a time: " } else { "" };
        WrongField::value(field, text, &format!("{neither}{reason}"))
    };
    given.read_time(text).map(Some).map_err(wrong)
}

/// Returns a length of time that is not zero.
pub(crate) fn length(given: &impl Given, field: &Field) -> Result<Option<Duration>, WrongField> {
    let read = |text: &str| match humantime::parse_duration(text) {
        Ok(length) if !length.is_zero() => Ok(length),
        _ => Err(WrongField::value(field, text, "is not a length of time; write it like 30m or 2h")),
    };
    given.text(field.name).map(read).transpose()
}

pub(crate) fn term(given: &impl Given, field: &Field) -> Result<Option<FencingToken>, WrongField> {
    let read = |text: &str| match text.parse() {
        Ok(term) => Ok(FencingToken::new(term)),
        Err(_) => Err(WrongField::value(
            field,
            text,
            "is not the number of a term; GET /leader shows the present one",
        )),
    };
    given.text(field.name).map(read).transpose()
}

pub(crate) fn required<T>(field: &Field, value: Option<T>) -> Result<T, WrongField> {
    value.ok_or_else(|| WrongField::missing(field))
}
