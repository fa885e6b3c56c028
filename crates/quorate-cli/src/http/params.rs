use super::error::HttpError;
use crate::{config::nearest, time};
use axum::{body::Body, http::StatusCode};
use quorate::{env::WallTime, plain::plain};
use serde_json::{Map, Value};
use std::{ops::RangeInclusive, time::Duration};
use url::form_urlencoded;

/// The largest body of a request, in bytes.
const BODY_MAX: usize = 16 * 1024;
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
        let too_long = |_| {
            let text = format!(
                "the body is longer than {BODY_MAX} bytes, or did not arrive; send a short JSON object"
            );
            HttpError::new(StatusCode::PAYLOAD_TOO_LARGE, text)
        };
        let body = axum::body::to_bytes(body, BODY_MAX).await.map_err(too_long)?;
        if body.is_empty() {
            return Ok(Self::default());
        }
        let object: Map<String, Value> = serde_json::from_slice(&body).map_err(|error| {
            let text =
                format!("the body is not a JSON object: {error}; send {{\"name\": \"value\"}}, or no body");
            HttpError::bad_request(plain(&text, SHOWN_MAX * 2))
        })?;
        let mut pairs = Vec::new();
        for (name, value) in object {
            let value = match value {
                Value::String(text) => text,
                Value::Number(number) => number.to_string(),
                Value::Null => continue,
                _ => {
                    let name = plain(&name, SHOWN_MAX);
                    return Err(HttpError::bad_request(format!("{name:?} is not a string or a number")));
                }
            };
            pairs.push((name, value));
        }
        Self::checked(pairs, known)
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

fn wrong(name: &str, value: &str, reason: &str) -> HttpError {
    let value = plain(value, SHOWN_MAX);
    HttpError::bad_request(format!("{name} {value:?} {}", plain(reason, SHOWN_MAX * 2)))
}
