use quorate::{node::FencingToken, plain::plain};

/// Why a transaction must not go on as planned. Roll it back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Somebody with a later token has written already: the lease was lost before this.
    #[error("{resource:?} is fenced: its token is {token} here, and {standing} has been seen")]
    Stale {
        /// What is fenced.
        resource: String,
        /// The token that came too late.
        token: FencingToken,
        /// The largest that has been seen.
        standing: FencingToken,
    },
    /// An id or a name that no claim can have had.
    #[error("the {field} {value:?} cannot be used: {why}")]
    Name {
        /// Which.
        field: &'static str,
        /// The beginning of it.
        value: String,
        /// The mend.
        why: &'static str,
    },
    /// PostgreSQL refused, or could not be reached.
    #[error("PostgreSQL: {}", explained(.0))]
    Postgres(#[from] tokio_postgres::Error),
}

/// The most bytes of a text of the server's that an error repeats.
const SHOWN_MAX: usize = 1024;

/// The error with what the server said: SQLSTATE, message, detail and hint. The driver's own text is "db error" alone. The
/// failed statement is not among them, nor are parameters and passwords.
fn explained(error: &tokio_postgres::Error) -> String {
    let shown = |text: &str| plain(text, SHOWN_MAX);
    let Some(said) = error.as_db_error() else {
        // A connection that broke: the reason is the source.
        let source = std::error::Error::source(error).map(ToString::to_string);
        return match source.filter(|source| !error.to_string().contains(source)) {
            Some(source) => shown(&format!("{error}: {source}")),
            None => shown(&error.to_string()),
        };
    };
    let mut text =
        format!("{} {}: {}", shown(said.severity()), shown(said.code().code()), shown(said.message()));
    if let Some(detail) = said.detail() {
        text += &format!(" ({})", shown(detail));
    }
    if let Some(hint) = said.hint() {
        text += &format!("; {}", shown(hint));
    }
    text
}

/// The longest name, in bytes: a claim's resource may be no longer either.
const NAME_MAX: usize = 1024;

/// Refuses what PostgreSQL's `text` cannot hold, and what is surely a mistake.
pub(crate) fn check_name(field: &'static str, value: &str) -> Result<(), Error> {
    let why = if value.is_empty() {
        "it is empty: give each its own"
    } else if value.len() > NAME_MAX {
        "it is longer than 1024 bytes: use a digest of it"
    } else if value.contains('\0') {
        "PostgreSQL's text holds no NUL: encode it"
    } else {
        return Ok(());
    };
    Err(Error::Name { field, value: value.chars().take(40).collect(), why })
}

/// A token as PostgreSQL's `bigint` holds it: both end above 2^53, where tokens do.
pub(crate) fn to_bigint(token: FencingToken) -> i64 {
    i64::try_from(token.get()).unwrap_or(i64::MAX)
}

/// A token that [`to_bigint`] has written.
pub(crate) fn from_bigint(token: i64) -> FencingToken {
    FencingToken::new(u64::try_from(token).unwrap_or_default())
}
