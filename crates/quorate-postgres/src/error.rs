use quorate::node::FencingToken;

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
    #[error("PostgreSQL: {0}")]
    Postgres(#[from] tokio_postgres::Error),
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
