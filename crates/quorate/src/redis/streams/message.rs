use super::{StreamError, StreamSource, acks::Acks, entry::Entry};
use crate::claim::{Fingerprint, MessageId, stream::Message};
use std::{
    collections::BTreeSet,
    error::Error,
    fmt::{self, Write as _},
    sync::{Arc, Mutex, PoisonError},
};

/// The fields of an entry: their names and values, in order.
pub type Fields = [(Vec<u8>, Vec<u8>)];

/// An entry of a stream that was delivered to this consumer. Until this value is dropped, the same entry is not
/// delivered again in this process.
pub struct StreamMessage {
    entry: Entry,
    id: Result<String, Arc<str>>,
    shared: Arc<Shared>,
}

/// The state that the messages of one source share.
pub(super) struct Shared {
    acks: Acks,
    stream: Arc<str>,
    id_field: Option<Arc<str>>,
    check_payload: bool,
    /// The ids of the entries whose messages exist. An entry that this source takes over from itself is not
    /// delivered again while its message exists.
    live: Mutex<BTreeSet<String>>,
}

impl StreamMessage {
    /// Returns the entry's id in its stream, `MILLISECONDS-NUMBER`.
    pub fn entry_id(&self) -> &str {
        &self.entry.id
    }

    /// Returns the fields. There are none if the entry was deleted or trimmed from the stream while it was pending.
    pub fn fields(&self) -> &Fields {
        self.entry.fields.as_deref().unwrap_or_default()
    }

    /// Returns the value of the first field with this name.
    pub fn field(&self, name: &str) -> Option<&[u8]> {
        let of = |(field, _): &&(Vec<u8>, Vec<u8>)| field == name.as_bytes();
        self.fields().iter().find(of).map(|(_, value)| &**value)
    }

    /// Returns the value of the first field with this name, if it is text.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.field(name).and_then(|value| str::from_utf8(value).ok())
    }

    /// Returns whether the entry was deleted or trimmed from the stream while it was pending. Then nothing is left to
    /// handle, so a consumer acknowledges the entry at once.
    pub fn is_deleted(&self) -> bool {
        self.entry.fields.is_none()
    }

    fn id_of(entry: &Entry, shared: &Shared) -> Result<String, Arc<str>> {
        let Some(fields) = &entry.fields else {
            return Err("the entry was deleted, or the stream trimmed, before it was handled".into());
        };
        let Some(name) = &shared.id_field else {
            return Ok(format!("{}:{}", escape_id(&shared.stream), entry.id));
        };
        match fields.iter().find(|(field, _)| field == name.as_bytes()) {
            None => Err(format!("the entry has no field {name:?}, which is to hold its id").into()),
            Some((_, value)) => match MessageId::from_utf8(value) {
                Ok(id) => Ok(id.id().to_owned()),
                Err(error) => Err(error.to_string().into()),
            },
        }
    }
}

impl Message for StreamMessage {
    type Error = StreamError;

    fn id(&self) -> Result<&str, Box<dyn Error + Send + Sync>> {
        self.id.as_deref().map_err(|why| why.to_string().into())
    }

    fn fingerprint(&self) -> Option<Fingerprint> {
        let fields = self.entry.fields.as_ref().filter(|_| self.shared.check_payload)?;
        let mut bytes = Vec::new();
        for part in fields.iter().flat_map(|(name, value)| [name, value]) {
            // Each part follows its length, so that two different lists of fields never give the same bytes.
            bytes.extend_from_slice(&(part.len() as u64).to_be_bytes());
            bytes.extend_from_slice(part);
        }
        Some(Fingerprint::of(&bytes))
    }

    fn is_gone(&self) -> bool {
        self.is_deleted()
    }

    async fn ack(&self) -> Result<(), StreamError> {
        self.shared.acks.ack(&self.entry.id).await
    }
}

impl Drop for StreamMessage {
    fn drop(&mut self) {
        self.shared.live.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.entry.id);
    }
}

impl fmt::Debug for StreamMessage {
    // The fields may be secret, so they are not printed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamMessage")
            .field("stream", &self.shared.stream)
            .field("entry_id", &self.entry.id)
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl Shared {
    pub(super) fn new(acks: Acks, source: &StreamSource) -> Self {
        let (stream, id_field) = (Arc::clone(&source.stream), source.id_field.clone());
        Self { acks, stream, id_field, check_payload: source.check_payload, live: Mutex::default() }
    }

    /// Returns the entry as a message. Returns `None` if an earlier message of the same entry has not been
    /// dropped yet.
    pub(super) fn deliver(self: &Arc<Self>, entry: Entry) -> Option<StreamMessage> {
        let fresh = self.live.lock().unwrap_or_else(PoisonError::into_inner).insert(entry.id.clone());
        fresh.then(|| StreamMessage {
            id: StreamMessage::id_of(&entry, self),
            entry,
            shared: Arc::clone(self),
        })
    }
}

/// Escapes a stream's name, so that it can be part of a message id, which has neither braces nor control
/// characters. Different names stay different.
fn escape_id(name: &str) -> String {
    let mut escaped = String::with_capacity(name.len());
    for c in name.chars() {
        if matches!(c, '{' | '}' | '%') || c.is_control() {
            let _ = write!(escaped, "%{:02X}", u32::from(c));
        } else {
            escaped.push(c);
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_stream_name_can_be_part_of_an_id() {
        assert_eq!(escape_id("orders:eu"), "orders:eu");
        assert_eq!(escape_id("{orders}\n100%"), "%7Borders%7D%0A100%25");
    }
}
