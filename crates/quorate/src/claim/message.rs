use super::Fingerprint;
use crate::node::NameError;
use std::{borrow::Cow, sync::Arc};

/// Which message, and, if it is to be told from others of the same id, what is in it.
///
/// Made from a text by itself: `claims.claim("order-1")`. An id has 1 to 512 bytes of UTF-8, without braces and
/// control characters; what else is refused when it is claimed, with the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageId<'a> {
    id: Cow<'a, str>,
    payload: Option<Fingerprint>,
}

impl<'a> MessageId<'a> {
    /// The message `id`.
    pub fn new(id: impl Into<Cow<'a, str>>) -> Self {
        Self { id: id.into(), payload: None }
    }

    /// The message whose id is these bytes of UTF-8.
    ///
    /// # Errors
    /// [`NameError`] where they are not UTF-8: an id of bytes may be given in hexadecimal digits, say.
    pub fn from_utf8(id: &'a [u8]) -> Result<Self, NameError> {
        match std::str::from_utf8(id) {
            Ok(id) => Ok(Self::new(id)),
            Err(_) => Err(NameError::not_utf8("message id", id)),
        }
    }

    /// The same, with the fingerprint of this payload: the same id with another is an error from now on.
    pub fn payload(self, payload: &[u8]) -> Self {
        self.fingerprint(Fingerprint::of(payload))
    }

    /// The same, with this fingerprint of its payload.
    pub fn fingerprint(self, payload: Fingerprint) -> Self {
        Self { payload: Some(payload), ..self }
    }

    /// The id.
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

/// Integer ids, written in decimal.
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
