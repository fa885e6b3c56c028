use sha2::{Digest, Sha256};
use std::{fmt, sync::Arc};

/// The most bytes of a fingerprint.
const BYTES_MAX: usize = 32;
/// How many bytes of a hash are kept: two payloads of one id meet by chance once in 2^64 ids.
const HASH_BYTES: usize = 16;

/// What tells one payload from another, kept with a claim and with its done record: the same id with another
/// payload is an error. A few bytes, no secret: a payload that can be guessed can be recognized by it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(Arc<str>);

impl Fingerprint {
    /// That of `payload`: the first 16 bytes of its SHA-256. All copies must give the same bytes for the same payload, so
    /// what holds the time of sending, or a map in any order, is none.
    pub fn of(payload: &[u8]) -> Self {
        let hash = Sha256::digest(payload);
        Self(hex(hash.as_slice().get(..HASH_BYTES).unwrap_or_default()))
    }

    /// A fingerprint of one's own: 1 to 32 bytes.
    ///
    /// # Errors
    /// [`FingerprintError`] where there are none, or more.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, FingerprintError> {
        if bytes.is_empty() || bytes.len() > BYTES_MAX {
            return Err(FingerprintError { length: bytes.len() });
        }
        Ok(Self(hex(bytes)))
    }

    /// What a node says.
    pub(super) fn from_node(text: &Arc<str>) -> Self {
        Self(Arc::clone(text))
    }

    /// Its hexadecimal digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(super) fn text(&self) -> Arc<str> {
        Arc::clone(&self.0)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&crate::plain::plain(&self.0, 2 * BYTES_MAX))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Bytes that are no fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the fingerprint has {length} bytes, and 1 to {BYTES_MAX} are kept with a claim; give a hash of the payload, or \
     have it made by Fingerprint::of"
)]
pub struct FingerprintError {
    length: usize,
}

fn hex(bytes: &[u8]) -> Arc<str> {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_is_the_beginning_of_a_sha_256_or_ones_own_bytes() {
        // FIPS 180-2, the first example.
        assert_eq!(Fingerprint::of(b"abc").as_str(), "ba7816bf8f01cfea414140de5dae2223");
        assert_ne!(Fingerprint::of(b"abc"), Fingerprint::of(b"abd"));
        assert_eq!(Fingerprint::from_bytes(&[0, 0xab]).unwrap().to_string(), "00ab");
    }

    #[test]
    fn none_and_over_long_ones_are_refused_with_their_length() {
        for length in [0, 33, 1000] {
            let refused = Fingerprint::from_bytes(&vec![7; length]).unwrap_err().to_string();
            assert!(refused.contains(&format!("{length} bytes")) && refused.contains("1 to 32"), "{refused}");
        }
        assert_eq!(Fingerprint::from_bytes(&[7; 32]).unwrap().as_str().len(), 64);
    }
}
