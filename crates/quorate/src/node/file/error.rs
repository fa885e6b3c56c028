use super::access::AccessError;
use crate::{node::Cause, plain::plain};
use rusqlite::ErrorCode;
use std::{fmt, io, path::Path, sync::Arc};

/// The longest reason that is shown, in bytes.
const WHY_MAX: usize = 400;

/// The error for a file of the directory that could not be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub(super) struct FileError {
    text: Arc<str>,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Another user can access the file. Only an operator can change that.
    Unsafe,
    /// The file has a content that this version does not read.
    Unreadable,
    Failed,
}

impl FileError {
    pub(super) fn new(path: &Path, verb: &str, why: &io::Error) -> Self {
        if let Some(fault) = why.get_ref().and_then(|why| why.downcast_ref::<AccessError>()) {
            return Self { text: fault.to_string().into(), kind: Kind::Unsafe };
        }
        Self::failed(path, verb, why)
    }

    /// Returns the error for a call of SQLite that failed.
    pub(super) fn of_database(path: &Path, why: &rusqlite::Error) -> Self {
        match why.sqlite_error_code() {
            Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt | ErrorCode::Unknown) | None => {
                Self::unreadable(path, why)
            }
            _ => Self::failed(path, "be used", why),
        }
    }

    pub(super) fn unreadable(path: &Path, why: &dyn fmt::Display) -> Self {
        // The error may repeat what the file holds.
        let (path, why) = (path.display(), plain(&why.to_string(), WHY_MAX));
        let text = format!(
            "{path} does not hold what it should: {why}; move the whole directory away to start again with an empty node"
        );
        Self { text: text.into(), kind: Kind::Unreadable }
    }

    fn failed(path: &Path, verb: &str, why: &dyn fmt::Display) -> Self {
        let (path, why) = (path.display(), plain(&why.to_string(), WHY_MAX));
        let text = format!("{path} cannot {verb}: {why}; see that it can be and that this user may");
        Self { text: text.into(), kind: Kind::Failed }
    }

    /// Returns the cause for a session that cannot be opened or has to end.
    pub(super) fn cause(self) -> Cause {
        match self.kind {
            Kind::Unsafe => Cause::Denied(self.text),
            Kind::Unreadable => Cause::Protocol(self.text),
            Kind::Failed => Cause::Unreachable(self.text),
        }
    }
}

impl From<FileError> for io::Error {
    fn from(error: FileError) -> Self {
        Self::other(error)
    }
}
