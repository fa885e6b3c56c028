use super::{StreamError, StreamSource, acks::Acks, entry::Entry};
use quorate::claim::{
    Fingerprint,
    stream::{BadId, Message},
};
use std::{
    collections::BTreeSet,
    fmt::{self, Write as _},
    sync::{Arc, Mutex, PoisonError},
};

/// The fields of an entry: names and values, in their order.
pub type Fields = [(Vec<u8>, Vec<u8>)];

/// An entry of a stream that this consumer was given. As long as it lives no other of this process has it.
pub struct StreamMessage {
    entry: Entry,
    id: Result<String, BadId>,
    shared: Arc<Shared>,
}

/// What the messages of one source share.
pub(super) struct Shared {
    acks: Acks,
    stream: Arc<str>,
    id_field: Option<Arc<str>>,
    check_payload: bool,
    /// Entries that have been given out here and live: a take-over of our own does not give them out twice.
    out: Mutex<BTreeSet<String>>,
}

impl StreamMessage {
    /// The entry's id in its stream, `MILLISECONDS-NUMBER`.
    pub fn entry_id(&self) -> &str {
        &self.entry.id
    }

    /// Its fields; none where the entry was deleted, or the stream trimmed, while it was pending.
    pub fn fields(&self) -> &Fields {
        self.entry.fields.as_deref().unwrap_or_default()
    }

    /// The value of the first field of that name.
    pub fn field(&self, name: &str) -> Option<&[u8]> {
        let of = |(field, _): &&(Vec<u8>, Vec<u8>)| field == name.as_bytes();
        self.fields().iter().find(of).map(|(_, value)| &**value)
    }

    /// The same, where it is text.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.field(name).and_then(|value| str::from_utf8(value).ok())
    }

    /// Whether the entry was deleted, or the stream trimmed, while it was pending: there is nothing left to handle, so a
    /// consumer acks it at once.
    pub fn is_deleted(&self) -> bool {
        self.entry.fields.is_none()
    }

    fn id_of(entry: &Entry, shared: &Shared) -> Result<String, BadId> {
        let Some(fields) = &entry.fields else {
            return Err(BadId::new("the entry was deleted, or the stream trimmed, before it was handled"));
        };
        let Some(name) = &shared.id_field else {
            return Ok(format!("{}:{}", plainly(&shared.stream), entry.id));
        };
        match fields.iter().find(|(field, _)| field == name.as_bytes()) {
            None => Err(BadId::new(&format!("the entry has no field {name:?}, which is to hold its id"))),
            Some((_, value)) => match str::from_utf8(value) {
                Ok(id) => Ok(id.to_owned()),
                Err(_) => Err(BadId::not_utf8(value)),
            },
        }
    }
}

impl Message for StreamMessage {
    type Error = StreamError;

    fn id(&self) -> Result<&str, BadId> {
        self.id.as_deref().map_err(Clone::clone)
    }

    fn fingerprint(&self) -> Option<Fingerprint> {
        let fields = self.entry.fields.as_ref().filter(|_| self.shared.check_payload)?;
        let mut bytes = Vec::new();
        for part in fields.iter().flat_map(|(name, value)| [name, value]) {
            // With its length, so that no two lists of fields give the same bytes.
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
        self.shared.out.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.entry.id);
    }
}

impl fmt::Debug for StreamMessage {
    // What it says may be secret.
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
        Self { acks, stream, id_field, check_payload: source.check_payload, out: Mutex::default() }
    }

    /// The entry as a message, unless it has been given out and still lives.
    pub(super) fn give_out(self: &Arc<Self>, entry: Entry) -> Option<StreamMessage> {
        let fresh = self.out.lock().unwrap_or_else(PoisonError::into_inner).insert(entry.id.clone());
        fresh.then(|| StreamMessage {
            id: StreamMessage::id_of(&entry, self),
            entry,
            shared: Arc::clone(self),
        })
    }
}

/// A stream's name as it may stand in an id, which has neither braces nor control characters. Two names stay two.
fn plainly(name: &str) -> String {
    let mut plainly = String::with_capacity(name.len());
    for c in name.chars() {
        if matches!(c, '{' | '}' | '%') || c.is_control() {
            let _ = write!(plainly, "%{:02X}", u32::from(c));
        } else {
            plainly.push(c);
        }
    }
    plainly
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_name_of_a_stream_may_stand_in_an_id() {
        assert_eq!(plainly("orders:eu"), "orders:eu");
        assert_eq!(plainly("{orders}\n100%"), "%7Borders%7D%0A100%25");
    }
}
