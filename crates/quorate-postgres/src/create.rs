use crate::Error;
use tokio_postgres::GenericClient;

/// The key of the advisory lock under which tables are created: the letters "quorate" and a zero byte, as a number.
/// Advisory locks are shared by all programs on one database. Programs mostly choose small numbers or hashes for their
/// keys, so this one is unlikely to be another's; if it is, one waits for the other, and no more.
const LOCK: i64 = i64::from_be_bytes(*b"quorate\0");

/// Runs `ddl`, a `CREATE TABLE IF NOT EXISTS`, while no other caller does.
///
/// `IF NOT EXISTS` alone is not enough: PostgreSQL looks for the table and creates it in two steps, so of two sessions
/// that do both at once one fails with a duplicate key in a system catalog.
///
/// Both statements travel in one message, which the server runs as one transaction where none is open; the lock ends
/// with it. In a transaction of the caller's it ends with that.
pub(crate) async fn create(client: &impl GenericClient, ddl: &str) -> Result<(), Error> {
    Ok(client.batch_execute(&format!("SELECT pg_advisory_xact_lock({LOCK}); {ddl}")).await?)
}
