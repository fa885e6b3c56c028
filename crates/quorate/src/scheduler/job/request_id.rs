use crate::env::Env;
use serde::{Deserialize, Serialize};
use std::{fmt, sync::Arc};

/// The id of a request: 128 random bits, written as 32 hexadecimal digits.
///
/// The keys of the runs that the request makes contain the id. So no run starts twice, even if the request is
/// sent twice or two leaders accept it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RequestId(u128);

impl RequestId {
    /// The prefix of the keys of requests, in the inbox and in the ledger.
    pub(in crate::scheduler) const PREFIX: &str = "ask/";

    /// Returns the key of the request with this id, in the inbox and in the ledger.
    pub(in crate::scheduler) fn key(self) -> Arc<str> {
        format!("{}{self}", Self::PREFIX).into()
    }

    /// Returns a new id, from the environment's randomness.
    pub(crate) fn random(env: &Env) -> Self {
        Self(u128::from(env.random()) << 64 | u128::from(env.random()))
    }

    /// Returns the id with this number as its bits.
    #[doc(hidden)]
    pub const fn from_u128(number: u128) -> Self {
        Self(number)
    }

    /// Parses an id from its 32 hexadecimal digits. They must be in lower case.
    pub(in crate::scheduler) fn parse(text: &str) -> Option<Self> {
        let is_digit = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        let is_valid = text.len() == 32 && text.bytes().all(is_digit);
        is_valid.then(|| u128::from_str_radix(text, 16).ok()).flatten().map(Self)
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<RequestId> for String {
    fn from(id: RequestId) -> Self {
        id.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_written_and_read_as_thirty_two_digits() {
        let id = RequestId::from_u128(0xab);
        assert_eq!(id.to_string(), "000000000000000000000000000000ab");
        assert_eq!(RequestId::parse(&id.to_string()), Some(id));
        for text in ["", "ab", "+00000000000000000000000000000ab", "000000000000000000000000000000AB"] {
            let error = text.parse::<RequestId>().unwrap_err().to_string();
            assert!(error.contains("32 hexadecimal"), "{error}");
        }
        assert!(serde_json::from_str::<RequestId>("\"x\"").is_err());
        let env = Env::system();
        assert_ne!(RequestId::random(&env), RequestId::random(&env));
    }
}
