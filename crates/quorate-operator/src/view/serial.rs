//! The forms of values in JSON.

use super::text;
use crate::time::rfc3339;
use quorate::{election::TermEndCause, env::WallTime, plain::plain};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Serialize, Serializer};
use std::{borrow::Cow, fmt::Display, sync::Arc, time::Duration};

/// The longest name that is shown, in bytes.
const NAME_MAX: usize = 200;

/// A time, as RFC 3339.
#[derive(Debug)]
pub struct Rfc3339;
/// A time that may be missing.
#[derive(Debug)]
pub struct MaybeRfc3339;
/// A length of time, in microseconds.
#[derive(Debug)]
pub struct MaybeMicros;
/// A length of time, in whole milliseconds.
#[derive(Debug)]
pub struct Millis;
/// A length of time that may be missing, in whole milliseconds.
#[derive(Debug)]
pub struct MaybeMillis;
/// A short length of time, in milliseconds with a fraction.
#[derive(Debug)]
pub struct MaybeFineMillis;
/// A name that the nodes store. JSON has it without control characters.
#[derive(Debug)]
pub struct Name;
/// A line that the nodes store. JSON has it without control characters.
#[derive(Debug)]
pub struct Line;
/// A name that may be missing.
#[derive(Debug)]
pub struct MaybeName;
/// The cause of the end of a term, if it has ended.
#[derive(Debug)]
pub struct MaybeCause;
/// A value that is shown as its text.
#[derive(Debug)]
pub struct Text;

macro_rules! form {
    ($form:ident of $shown:ty, ($value:ident: $of:ty) => $json:expr) => {
        impl $form {
            /// Writes the value.
            ///
            /// # Errors
            /// Those of the format.
            pub fn serialize<S: Serializer>($value: &$of, to: S) -> Result<S::Ok, S::Error> {
                $json.serialize(to)
            }
        }

        impl JsonSchema for $form {
            fn schema_name() -> Cow<'static, str> {
                <$shown>::schema_name()
            }

            fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                <$shown>::json_schema(generator)
            }

            fn inline_schema() -> bool {
                true
            }
        }
    };
}

form!(Rfc3339 of String, (at: WallTime) => rfc3339(*at));
form!(MaybeRfc3339 of Option<String>, (at: Option<WallTime>) => at.map(rfc3339));
form!(MaybeMicros of Option<u64>, (time: Option<Duration>) => time.map(|time| whole(time.as_micros())));
form!(Millis of u64, (time: Duration) => whole(time.as_millis()));
form!(MaybeMillis of Option<u64>, (time: Option<Duration>) => time.map(|time| whole(time.as_millis())));
form!(MaybeFineMillis of Option<f64>, (time: Option<Duration>) => {
    time.map(|time| (time.as_secs_f64() * 1e6).round() / 1e3)
});
form!(Name of String, (name: str) => plain(name, NAME_MAX));
form!(Line of String, (line: str) => text(line));
form!(MaybeName of Option<String>, (name: Option<Arc<str>>) => name.as_ref().map(|name| plain(name, NAME_MAX)));
form!(MaybeCause of Option<String>, (cause: Option<TermEndCause>) => cause.map(|cause| cause.to_string()));
form!(Text of String, (value: dyn Display) => value.to_string());

fn whole(number: u128) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
