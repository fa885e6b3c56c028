use sha2::{Digest, Sha256};
use std::{fmt, sync::Arc};

/// The maximum length of a fingerprint that a node reports and a message shows, in characters.
const SHOWN_MAX: usize = 64;
/// The number of bytes of a hash that are kept. Two different payloads have the same 128 bits by chance once
/// in 2^128 pairs.
const HASH_BYTES: usize = 16;

/// A short digest that distinguishes payloads. The nodes store it with a claim and with its done record, so
/// that the same id with another payload is an error. A fingerprint does not hide the payload: a guess at the
/// payload can be checked against the fingerprint.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(Arc<str>);

impl Fingerprint {
    /// Returns the fingerprint of `payload`: the first 16 bytes of its SHA-256. Every copy of a message
    /// must give the same bytes for the same payload. A payload that contains the time of sending, or a map
    /// in arbitrary order, is therefore not suitable.
    pub fn of(payload: &[u8]) -> Self {
        let hash = Sha256::digest(payload);
        Self(hex(hash.as_slice().get(..HASH_BYTES).unwrap_or_default()))
    }

    /// Creates the fingerprint that a node reports.
    pub(super) fn from_node(text: &Arc<str>) -> Self {
        Self(Arc::clone(text))
    }

    /// Returns the fingerprint's hexadecimal digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(super) fn text(&self) -> Arc<str> {
        Arc::clone(&self.0)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&crate::plain::plain(&self.0, SHOWN_MAX))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn hex(bytes: &[u8]) -> Arc<str> {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_is_the_beginning_of_a_sha_256() {
        // FIPS 180-2, the first example.
        assert_eq!(Fingerprint::of(b"abc").as_str(), "ba7816bf8f01cfea414140de5dae2223");
        assert_ne!(Fingerprint::of(b"abc"), Fingerprint::of(b"abd"));
    }
}
