use quorate::{
    ledger::{LedgerError, Operation, OperationLog},
    plain::plain,
    quorum::Quorum,
};

/// The longest name of an operator, in bytes.
const NAME_MAX: usize = 128;

/// The operator and the reason of an action.
#[derive(Clone, Debug)]
pub struct Operator {
    pub(crate) by: String,
    reason: Option<String>,
}

/// An operation that was carried out, or attempted.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// The kind of the operation.
    pub action: &'a str,
    /// The resource, message or nodes that were changed.
    pub target: &'a str,
    /// The group, if the operation concerns only one.
    pub group: Option<&'a str>,
    /// The result, or the error.
    pub result: Result<&'a str, &'a str>,
}

impl Operator {
    /// Creates an operator. Of a long name the beginning is kept, and a space in place of each character that is not safe in a line.
    pub fn named(by: &str, reason: Option<&str>) -> Self {
        Self { by: plain(by, NAME_MAX), reason: reason.map(str::to_owned) }
    }

    /// Returns the reason with the name of the operator, for people.
    pub fn reason(&self) -> String {
        let reason = self.reason.as_ref().map_or_else(String::new, |reason| format!(": {reason}"));
        format!("by {}{reason}", self.by)
    }

    /// Adds an entry to the audit list. The error is a text for people: the operation itself is done.
    ///
    /// # Cancel safety
    /// If the future is dropped, the entry may be missing.
    ///
    /// # Errors
    /// Too few nodes store the entry.
    pub async fn note(&self, quorum: &Quorum, entry: &Entry<'_>) -> Result<(), String> {
        let (done, result) = match entry.result {
            Ok(result) => (true, result),
            Err(error) => (false, error),
        };
        let operation = Operation {
            at: quorum.wall(),
            by: self.by.as_str().into(),
            action: entry.action.into(),
            target: entry.target.into(),
            group: entry.group.map(Into::into),
            reason: self.reason.as_deref().map(Into::into),
            done,
            result: result.into(),
        };
        let lacks = |error: LedgerError| {
            format!("the audit list lacks this operation: {}", plain(&error.to_string(), 1_000))
        };
        OperationLog::new(quorum).add(&operation).await.map_err(lacks)
    }
}
