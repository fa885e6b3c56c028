use super::{
    error::HttpError,
    parameter::{Kind, Parameter},
};
use crate::{config::nearest, time};
use axum::{body::Body, http::StatusCode};
use quorate::{env::WallTime, plain::plain};
use serde_json::{Map, Value};
use std::{ops::RangeInclusive, time::Duration};
use url::form_urlencoded;

/// The largest body of a request, in bytes.
const BODY_MAX: usize = 16 * 1024;
/// The largest body of a request with lists, in bytes.
const LISTS_BODY_MAX: usize = 1024 * 1024;
/// The longest value that an error repeats, in bytes.
const SHOWN_MAX: usize = 200;
/// The longest wait for the answer of a leader.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// The wait for the answer of a leader, if the request gives none.
const WAIT: Duration = Duration::from_secs(10);

/// The parameters of a request, all of which are known.
#[derive(Debug, Default)]
pub(super) struct Params(Vec<(String, String)>);

impl Params {
    /// Reads the query of a URL. `repeatable` is the only parameter that may be given twice.
    pub(super) fn of_query(
        query: Option<&str>,
        known: &[&str],
        repeatable: Option<&str>,
    ) -> Result<Self, HttpError> {
        let pairs = form_urlencoded::parse(query.unwrap_or_default().as_bytes());
        let pairs: Vec<_> = pairs.map(|(name, value)| (name.into_owned(), value.into_owned())).collect();
        let params = Self::checked(pairs, known)?;
        for (at, (name, _)) in params.0.iter().enumerate() {
            let is_twice = params.0[..at].iter().any(|(other, _)| other == name);
            if is_twice && Some(name.as_str()) != repeatable {
                return Err(HttpError::bad_request(format!("{name} is given twice; give it once")));
            }
        }
        Ok(params)
    }

    /// Reads the body of a request: a JSON object with strings and numbers, or nothing.
    pub(super) async fn of_body(body: Body, known: &[&str]) -> Result<Self, HttpError> {
        Self::checked(read(body, BODY_MAX, &[]).await?, known)
    }

    /// Reads the body of a request with these parameters, which may be lists and flags.
    pub(super) async fn of_request(body: Body, parameters: &[Parameter]) -> Result<Self, HttpError> {
        let known: Vec<&str> = parameters.iter().map(|parameter| parameter.name).collect();
        Self::checked(read(body, LISTS_BODY_MAX, parameters).await?, &known)
    }

    fn checked(pairs: Vec<(String, String)>, known: &[&str]) -> Result<Self, HttpError> {
        let strange = pairs.iter().find(|(name, _)| !known.contains(&name.as_str()));
        let Some((name, _)) = strange else { return Ok(Self(pairs)) };
        let fix = match (nearest(name, known.iter().copied()), known) {
            (Some(near), _) => format!("did you mean {near}?"),
            (None, []) => "there are no parameters here".to_owned(),
            (None, _) => format!("known here are {}", known.join(", ")),
        };
        Err(HttpError::bad_request(format!("unknown parameter {:?}; {fix}", plain(name, SHOWN_MAX))))
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    pub(super) fn all(&self, name: &str) -> Vec<String> {
        self.0.iter().filter(|(other, _)| other == name).map(|(_, value)| value.clone()).collect()
    }

    pub(super) fn number(
        &self,
        name: &str,
        default: u32,
        range: RangeInclusive<u32>,
    ) -> Result<u32, HttpError> {
        let Some(text) = self.get(name) else { return Ok(default) };
        text.parse().ok().filter(|number| range.contains(number)).ok_or_else(|| {
            let (low, high) = range.into_inner();
            wrong(name, text, &format!("is not a number from {low} to {high}"))
        })
    }

    /// Returns whether a flag is set.
    pub(super) fn flag(&self, name: &str) -> bool {
        self.get(name) == Some("true")
    }

    /// Returns a length of time.
    pub(super) fn duration(
        &self,
        name: &str,
        default: Duration,
        range: RangeInclusive<Duration>,
    ) -> Result<Duration, HttpError> {
        let Some(text) = self.get(name) else { return Ok(default) };
        let given = humantime::parse_duration(text);
        let Some(time) = given.ok().filter(|time| range.contains(time)) else {
            let (low, high) = range.into_inner();
            let bounds = match high {
                Duration::MAX => String::new(),
                high => format!(
                    " from {} to {}",
                    humantime::format_duration(low),
                    humantime::format_duration(high)
                ),
            };
            return Err(wrong(name, text, &format!("is not a time{bounds}; write it like 500ms or 10s")));
        };
        Ok(time)
    }

    pub(super) fn time(&self, name: &str) -> Result<Option<WallTime>, HttpError> {
        let parse = |text: &str| time::parse(text).map_err(|error| wrong(name, text, &error));
        self.get(name).map(parse).transpose()
    }

    /// Returns how long to wait for the answer of a leader.
    pub(super) fn wait(&self) -> Result<Duration, HttpError> {
        let Some(text) = self.get("wait") else { return Ok(WAIT) };
        match humantime::parse_duration(text) {
            Ok(wait) if !wait.is_zero() && wait <= WAIT_MAX => Ok(wait),
            _ => Err(wrong("wait", text, "is not a time up to 30s; write it like 500ms or 10s")),
        }
    }
}

pub(super) fn wrong(name: &str, value: &str, reason: &str) -> HttpError {
    let value = plain(value, SHOWN_MAX);
    HttpError::bad_request(format!("{name} {value:?} {}", plain(reason, SHOWN_MAX * 2)))
}

/// Reads the names and values of a JSON object. Only parameters of these kinds may be lists or flags.
async fn read(body: Body, most: usize, parameters: &[Parameter]) -> Result<Vec<(String, String)>, HttpError> {
    let too_long = |_| {
        let text =
            format!("the body is longer than {most} bytes, or did not arrive; send a short JSON object");
        HttpError::new(StatusCode::PAYLOAD_TOO_LARGE, text)
    };
    let body = axum::body::to_bytes(body, most).await.map_err(too_long)?;
    if body.is_empty() {
        return Ok(Vec::new());
    }
    let object: Map<String, Value> = serde_json::from_slice(&body).map_err(|error| {
        let text =
            format!("the body is not a JSON object: {error}; send {{\"name\": \"value\"}}, or no body");
        HttpError::bad_request(plain(&text, SHOWN_MAX * 2))
    })?;
    let mut pairs = Vec::new();
    for (name, value) in object {
        let kind = parameters.iter().find(|parameter| parameter.name == name).map(|parameter| parameter.kind);
        let expected = match kind {
            Some(Kind::List) => "a list of strings, like [\"a\", \"b\"]",
            Some(Kind::Flag) => "true or false",
            _ => "a string or a number",
        };
        let mut add = |value: Value| {
            let text = match (value, kind) {
                (Value::String(text), None | Some(Kind::Text | Kind::Number | Kind::List)) => text,
                (Value::Number(number), None | Some(Kind::Text | Kind::Number)) => number.to_string(),
                (Value::Bool(flag), Some(Kind::Flag)) => flag.to_string(),
                _ => {
                    let name = plain(&name, SHOWN_MAX);
                    return Err(HttpError::bad_request(format!("{name:?} is not {expected}")));
                }
            };
            pairs.push((name.clone(), text));
            Ok(())
        };
        match (value, kind) {
            (Value::Null, _) => {}
            (Value::Array(items), Some(Kind::List)) => items.into_iter().try_for_each(add)?,
            (_, Some(Kind::List)) => add(Value::Null)?,
            (value, _) => add(value)?,
        }
    }
    Ok(pairs)
}
