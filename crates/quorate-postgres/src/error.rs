use quorate::{node::FencingToken, plain::plain};

/// The reason why a transaction must not continue. Roll it back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The resource has been written under a later token, so this holder has lost its lease.
    #[error(
        "the write to {resource:?} under token {token} is refused: token {standing} has been used, so the lease was lost; roll back"
    )]
    Stale {
        /// The resource.
        resource: String,
        /// The token of this transaction.
        token: FencingToken,
        /// The largest token that has been used.
        standing: FencingToken,
    },
    /// The id or the name cannot be stored, or is certainly a mistake.
    #[error("the {field} {value:?} cannot be used: {why}")]
    Name {
        /// The kind of name.
        field: &'static str,
        /// The beginning of the name.
        value: String,
        /// The reason and the fix.
        why: &'static str,
    },
    /// PostgreSQL reported an error, or could not be reached.
    #[error("PostgreSQL: {}", explained(.0))]
    Postgres(#[from] tokio_postgres::Error),
}

/// The maximum number of bytes of a text from the server that an error repeats.
const SHOWN_MAX: usize = 1024;

/// Returns the error with the server's report: SQLSTATE, message, detail and hint. The driver's own text is
/// only "db error". The failed statement, its parameters and passwords are not included.
fn explained(error: &tokio_postgres::Error) -> String {
    let shown = |text: &str| plain(text, SHOWN_MAX);
    let Some(report) = error.as_db_error() else {
        // If the connection broke, the reason is in the error's source.
        let source = std::error::Error::source(error).map(ToString::to_string);
        return match source.filter(|source| !error.to_string().contains(source)) {
            Some(source) => shown(&format!("{error}: {source}")),
            None => shown(&error.to_string()),
        };
    };
    let mut text =
        format!("{} {}: {}", shown(report.severity()), shown(report.code().code()), shown(report.message()));
    if let Some(detail) = report.detail() {
        text += &format!(" ({})", shown(detail));
    }
    if let Some(hint) = report.hint() {
        text += &format!("; {}", shown(hint));
    }
    text
}

/// The longest name, in bytes. It is twice the limit for the name of a lock or the id of a message.
const NAME_MAX: usize = 1024;

/// Refuses names that PostgreSQL's `text` cannot hold, and names that are certainly mistakes.
pub(crate) fn check_name(field: &'static str, value: &str) -> Result<(), Error> {
    let why = if value.is_empty() {
        "it is empty: give each message or resource a name"
    } else if value.len() > NAME_MAX {
        "it is longer than 1024 bytes: use a digest of it"
    } else if value.contains('\0') {
        "PostgreSQL's text holds no NUL: encode it"
    } else {
        return Ok(());
    };
    Err(Error::Name { field, value: value.chars().take(40).collect(), why })
}

/// Returns a token as PostgreSQL's `bigint`. Every token fits, since tokens are below 2^53.
pub(crate) fn to_bigint(token: FencingToken) -> i64 {
    i64::try_from(token.get()).unwrap_or(i64::MAX)
}

/// Returns a token that [`to_bigint`] has written.
pub(crate) fn from_bigint(token: i64) -> FencingToken {
    FencingToken::new(u64::try_from(token).unwrap_or_default())
}
