use serde::{Deserialize, Serialize};
use std::{borrow::Cow, fmt, sync::Arc};

/// The longest key of a run, in bytes. What is longer is cut off.
const RUN_KEY_MAX: usize = 256;

/// The limit of the runs that use one thing at the same time, such as a database. It holds for all jobs of the group with
/// the key, on all workers. See [`Job::concurrency`](crate::scheduler::Job::concurrency).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Concurrency {
    /// The key, which names the thing. `{name}` stands for a field of the payload.
    pub key: Arc<str>,
    /// The largest number of active runs of all jobs with the key.
    pub limit: usize,
}

impl Concurrency {
    /// Returns the key of a run with this payload. A field is its text, or the JSON of another value. A field that the payload
    /// does not have is empty.
    pub(in crate::scheduler) fn key_of(&self, payload: Option<&[u8]>) -> Arc<str> {
        if !self.key.contains('{') {
            return Arc::clone(&self.key);
        }
        let payload = payload.and_then(|bytes| serde_json::from_slice::<serde_json::Value>(bytes).ok());
        let mut key = String::new();
        for part in parts(&self.key) {
            let text = match part {
                Part::Text(text) => Cow::from(text),
                Part::Field(name) => match payload.as_ref().and_then(|payload| payload.get(name)) {
                    Some(serde_json::Value::String(text)) => Cow::from(text),
                    Some(value) => Cow::from(value.to_string()),
                    None => Cow::default(),
                },
            };
            key.extend(text.chars().scan(key.len(), |length, c| {
                *length += c.len_utf8();
                (*length <= RUN_KEY_MAX).then_some(c)
            }));
        }
        key.into()
    }

    /// Returns whether each brace of the key encloses the name of a field.
    pub(in crate::scheduler) fn has_sound_fields(&self) -> bool {
        let is_sound = |part| match part {
            Part::Text(text) => !text.contains(['{', '}']),
            Part::Field(name) => !name.is_empty() && !name.contains('{'),
        };
        parts(&self.key).all(is_sound)
    }
}

/// A part of a key.
enum Part<'a> {
    Text(&'a str),
    Field(&'a str),
}

/// Returns the parts of a key. A brace without its other one is text.
fn parts(key: &str) -> impl Iterator<Item = Part<'_>> {
    let mut rest = key;
    std::iter::from_fn(move || {
        if let Some((name, after)) = rest.strip_prefix('{').and_then(|rest| rest.split_once('}')) {
            rest = after;
            return Some(Part::Field(name));
        }
        let next = rest.char_indices().skip(1).find(|(_, c)| *c == '{').map_or(rest.len(), |(at, _)| at);
        let text;
        (text, rest) = rest.split_at(next);
        (!text.is_empty()).then_some(Part::Text(text))
    })
}

impl fmt::Display for Concurrency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at most {} at once of {:?}", self.limit, self.key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_may_name_fields_of_the_payload() {
        let key = |key: &str, payload: &str| {
            let of = Concurrency { key: key.into(), limit: 1 };
            of.key_of(Some(payload.as_bytes())).to_string()
        };
        let payload = r#"{"customer": "ann", "shard": 7, "list": [1]}"#;
        for (given, expected) in [
            ("database", "database"),
            ("{customer}", "ann"),
            ("c-{customer}-{shard}!", "c-ann-7!"),
            ("{list}{none}x", "[1]x"),
            ("{customer", "{customer"),
        ] {
            assert_eq!(key(given, payload), expected, "{given}");
        }
        assert_eq!(key("c-{customer}", "no JSON"), "c-");
        assert_eq!(
            key("é{customer}", &format!(r#"{{"customer": "{}"}}"#, "é".repeat(500))).len(),
            RUN_KEY_MAX
        );
        let sound = |key: &str| Concurrency { key: key.into(), limit: 1 }.has_sound_fields();
        assert!(sound("a{b}c{d}") && sound("database"));
        for key in ["{", "a}", "{}", "{a{b}", "a{b"] {
            assert!(!sound(key), "{key}");
        }
    }
}
