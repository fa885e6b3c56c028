use super::Fingerprint;
use crate::config::SettingError;
use std::{borrow::Cow, sync::Arc};

/// The id of a message. An id may carry a fingerprint of the message's payload. The fingerprint detects
/// another payload under the same id.
///
/// A string converts to an id: `claims.claim("order-1")`. An id has 1 to 512 bytes of UTF-8, without control
/// characters. A claim on any other id is refused with the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageId<'a> {
    id: Cow<'a, str>,
    payload: Option<Fingerprint>,
}

impl<'a> MessageId<'a> {
    /// Creates the id from a string.
    pub fn new(id: impl Into<Cow<'a, str>>) -> Self {
        Self { id: id.into(), payload: None }
    }

    /// Creates the id from bytes of UTF-8.
    ///
    /// # Errors
    /// [`SettingError`] if the bytes are not UTF-8. A binary id can be written in hexadecimal digits, for instance.
    pub fn from_utf8(id: &'a [u8]) -> Result<Self, SettingError> {
        match std::str::from_utf8(id) {
            Ok(id) => Ok(Self::new(id)),
            Err(_) => Err(crate::node::not_utf8("message id", id)),
        }
    }

    /// Adds the fingerprint of this payload. Once an attempt on the message has begun, the same id with
    /// another payload is an error.
    pub fn payload(self, payload: &[u8]) -> Self {
        self.fingerprint(Fingerprint::of(payload))
    }

    /// Adds this fingerprint of the message's payload.
    pub fn fingerprint(self, payload: Fingerprint) -> Self {
        Self { payload: Some(payload), ..self }
    }

    /// Returns the id under which the nodes remember the message.
    pub fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn parts(self) -> (Arc<str>, Option<Fingerprint>) {
        (self.id.into(), self.payload)
    }
}

impl<'a> From<&'a str> for MessageId<'a> {
    fn from(id: &'a str) -> Self {
        Self::new(id)
    }
}

impl<'a> From<&'a String> for MessageId<'a> {
    fn from(id: &'a String) -> Self {
        Self::new(id.as_str())
    }
}

impl From<String> for MessageId<'_> {
    fn from(id: String) -> Self {
        Self::new(id)
    }
}

impl<'a> From<&'a Arc<str>> for MessageId<'a> {
    fn from(id: &'a Arc<str>) -> Self {
        Self::new(&**id)
    }
}

/// Implements the conversion of an integer type to ids. The id is the number in decimal digits.
macro_rules! from_integer {
    ($($integer:ty),*) => {
        $(impl From<$integer> for MessageId<'_> {
            fn from(id: $integer) -> Self {
                Self::new(id.to_string())
            }
        })*
    };
}
from_integer!(u32, u64, u128, usize, i32, i64, i128);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_integer_is_an_id_in_decimal() {
        assert_eq!(MessageId::from(42_u64).id(), "42");
        assert_eq!(MessageId::from(-7).id(), "-7");
    }
}
