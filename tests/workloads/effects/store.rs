//! The database: where the effects are, and how many.

use super::Mode;
use quorate_postgres::{
    Effects, Error,
    tokio_postgres::{self, Client, NoTls},
};

/// A client, whose connection ends with it.
pub(crate) async fn connect(url: &str) -> Result<Client, tokio_postgres::Error> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    #[expect(clippy::disallowed_methods, reason = "the driver's own way; it ends with its client")]
    tokio::spawn(async { drop(connection.await) });
    Ok(client)
}

/// The table that a mode's effects go to. Nothing in it is unique: what is had twice stands there twice.
pub(crate) fn table(mode: Mode) -> String {
    format!("effects_{mode}")
}

/// Makes the tables.
pub(crate) async fn prepare(client: &Client, mode: Mode) -> Result<(), Error> {
    Effects::new(&mode.to_string()).create(client).await?;
    Ok(client.batch_execute(&format!("CREATE TABLE {} (id text NOT NULL)", table(mode))).await?)
}

/// How many effects there are, and of how many messages.
pub(crate) async fn count(client: &Client, mode: Mode) -> Result<(u64, u64), Error> {
    let row =
        client.query_one(&format!("SELECT count(*), count(DISTINCT id) FROM {}", table(mode)), &[]).await?;
    let number = |at: usize| u64::try_from(row.get::<_, i64>(at)).unwrap_or_default();
    Ok((number(0), number(1)))
}
