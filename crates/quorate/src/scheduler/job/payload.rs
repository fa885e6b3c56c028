use crate::config::SettingError;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::DeserializeOwned, ser::SerializeMap};
use std::{borrow::Cow, fmt, str, sync::Arc};

/// The largest number of bytes of a payload.
pub(in crate::scheduler) const PAYLOAD_MAX: usize = 8 * 1024;
/// The largest number of bytes of a reason in an error.
const PAYLOAD_REASON_MAX: usize = 200;

/// The input of a run: up to 8 KiB, of a job that is stored on the nodes, or of a request for a run.
///
/// Every worker and every client of the nodes can read it, so it must not contain secrets.
///
/// ```
/// use quorate::scheduler::Payload;
///
/// let payload = Payload::json(&[1, 2, 3])?;
/// assert_eq!(payload.bytes(), b"[1,2,3]");
/// assert!(Payload::new(vec![0; 8193]).is_err());
/// # Ok::<(), quorate::SettingError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Payload(Arc<[u8]>);

impl Payload {
    /// Returns the payload with these bytes.
    ///
    /// # Errors
    /// If there are more than 8,192 of them.
    pub fn new(bytes: impl AsRef<[u8]>) -> Result<Self, SettingError> {
        let bytes = bytes.as_ref();
        match bytes.len() {
            0..=PAYLOAD_MAX => Ok(Self(bytes.into())),
            bytes => Err(too_long(bytes)),
        }
    }

    /// Returns the payload with `value` as JSON, which [`RunContext::payload_as`](crate::scheduler::RunContext::payload_as) reads.
    ///
    /// # Errors
    /// If JSON has no form of the value, or if the JSON is too long.
    pub fn json(value: &impl Serialize) -> Result<Self, SettingError> {
        let bytes = serde_json::to_vec(value).map_err(|error| {
            let reason = format!("which cannot be written as JSON: {}", short(&error.to_string()));
            SettingError::new("payload", "a value", reason, "give it a value with a form in JSON, or bytes")
        })?;
        Self::new(bytes)
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the payload as text, or `None` if it is not UTF-8.
    pub fn text(&self) -> Option<&str> {
        str::from_utf8(&self.0).ok()
    }

    pub(super) fn read<T: DeserializeOwned>(bytes: &[u8], job: &Arc<str>) -> Result<T, SettingError> {
        serde_json::from_slice(bytes).map_err(|error| {
            let reason = format!("not the JSON that its handler expects: {}", short(&error.to_string()));
            let value = format!("{} bytes", bytes.len());
            SettingError::new(
                format!("payload of the job {job:?}"),
                value,
                reason,
                "correct the payload, or update the worker",
            )
        })
    }
}

fn too_long(bytes: usize) -> SettingError {
    let reason = format!("more than {PAYLOAD_MAX}");
    SettingError::new(
        "payload",
        format!("{bytes} bytes"),
        reason,
        "store the data elsewhere, and give its name",
    )
}

fn short(reason: &str) -> String {
    crate::plain::plain(reason, PAYLOAD_REASON_MAX)
}

/// The bytes may be personal data, so a log has only their number.
impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload({} bytes)", self.0.len())
    }
}

/// Text is a string, and other bytes are an object with hexadecimal digits.
impl Serialize for Payload {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let Some(text) = self.text() {
            return serializer.serialize_str(text);
        }
        let digits: String = self.0.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut map = serializer.serialize_map(Some(1))?;
        map.serialize_entry("hex", &digits)?;
        map.end()
    }
}

impl<'de> Deserialize<'de> for Payload {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Stored<'a> {
            Text(#[serde(borrow)] Cow<'a, str>),
            Bytes { hex: String },
        }
        let bytes = match Stored::deserialize(deserializer)? {
            Stored::Text(text) => Some(text.into_owned().into_bytes()),
            Stored::Bytes { hex } => from_hex(&hex),
        };
        let bytes = bytes.ok_or_else(|| serde::de::Error::custom("`hex` has no pairs of digits"))?;
        Self::new(bytes).map_err(serde::de::Error::custom)
    }
}

fn from_hex(digits: &str) -> Option<Vec<u8>> {
    let digits = digits.as_bytes();
    let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok();
    digits.len().is_multiple_of(2).then(|| digits.chunks(2).map(byte).collect())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_other_bytes_are_read_as_they_were_written() {
        for (bytes, json) in [
            (b"".as_slice(), r#""""#),
            (b"{\"to\":\"me\"}\n", r#""{\"to\":\"me\"}\n""#),
            (&[0xff, 0x00, 0x0a], r#"{"hex":"ff000a"}"#),
        ] {
            let payload = Payload::new(bytes).unwrap();
            assert_eq!(serde_json::to_string(&payload).unwrap(), json);
            assert_eq!(serde_json::from_str::<Payload>(json).unwrap(), payload);
        }
        for broken in [r#"{"hex":"f"}"#, r#"{"hex":"zz"}"#, "7", r#"{"hex":"é"}"#] {
            assert!(serde_json::from_str::<Payload>(broken).is_err(), "{broken}");
        }
        let long = serde_json::to_string(&"x".repeat(PAYLOAD_MAX + 1)).unwrap();
        assert!(serde_json::from_str::<Payload>(&long).unwrap_err().to_string().contains("8193 bytes"));
    }

    #[test]
    fn a_payload_that_a_handler_cannot_read_is_named_without_its_content() {
        let job = "welcome".into();
        assert_eq!(Payload::read::<Vec<u8>>(b"[1,2]", &job), Ok(vec![1, 2]));
        let error = Payload::read::<Vec<u8>>(b"{\"secret\":1}", &job).unwrap_err().to_string();
        assert!(
            error.starts_with(
                "payload of the job \"welcome\" is 12 bytes, not the JSON that its handler expects"
            ),
            "{error}"
        );
        assert!(!error.contains("secret"), "{error}");
        assert_eq!(format!("{:?}", Payload::new("secret").unwrap()), "Payload(6 bytes)");
    }
}
