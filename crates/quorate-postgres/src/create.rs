use crate::Error;
use tokio_postgres::GenericClient;

/// The key of the advisory lock under which tables are created: the letters "quorate" and a zero byte, as a number.
/// Advisory locks are shared by all programs on one database. Most programs choose small numbers or hashes for their
/// keys, so a collision is unlikely. If there is a collision, one program waits for the other, and nothing worse
/// happens.
const LOCK: i64 = i64::from_be_bytes(*b"quorate\0");

/// Executes `ddl`, a `CREATE TABLE IF NOT EXISTS`, in one session at a time.
///
/// `IF NOT EXISTS` alone is not enough: PostgreSQL looks for the table and creates it in two steps. If two
/// sessions do both at once, one fails with a duplicate key in a system catalog.
///
/// Both statements are sent in one message. The server executes them in the caller's transaction or, if none
/// is open, as one transaction. The lock ends with that transaction.
pub(crate) async fn create(client: &impl GenericClient, ddl: &str) -> Result<(), Error> {
    Ok(client.batch_execute(&format!("SELECT pg_advisory_xact_lock({LOCK}); {ddl}")).await?)
}
