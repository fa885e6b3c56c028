use crate::plain::plain;

/// The error for a key or a value of the ledger that this version cannot read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the ledger's {what} `{text}` cannot be read: {why}; was it written by another version of Quorate?")]
pub struct RecordError {
    what: &'static str,
    text: String,
    why: String,
}

impl RecordError {
    pub(in crate::scheduler) fn new(what: &'static str, text: &str, why: &str) -> Self {
        Self { what, text: plain(text, 120), why: plain(why, 240) }
    }
}
