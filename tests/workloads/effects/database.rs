use super::Mode;
use quorate_postgres::{
    Effects, Error,
    tokio_postgres::{self, Client, NoTls},
};

/// Connects to the database. The connection ends when the client is dropped.
pub(super) async fn connect(url: &str) -> Result<Client, tokio_postgres::Error> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    #[expect(clippy::disallowed_methods, reason = "as the driver requires; it ends with its client")]
    tokio::spawn(async { drop(connection.await) });
    Ok(client)
}

/// Returns the name of the table for the effects of a mode. None of its columns is unique, so a second effect
/// of a message is a second row.
pub(super) fn table(mode: Mode) -> String {
    format!("effects_{mode}")
}

/// Creates the tables of a mode.
pub(super) async fn prepare(url: &str, mode: Mode) -> Result<(), Error> {
    let client = connect(url).await?;
    Effects::new(&mode.to_string()).create(&client).await?;
    Ok(client.batch_execute(&format!("CREATE TABLE {} (id text NOT NULL)", table(mode))).await?)
}

/// Returns the number of effects, and the number of messages with an effect.
pub(super) async fn count(url: &str, mode: Mode) -> Result<(u64, u64), Error> {
    let query = format!("SELECT count(*), count(DISTINCT id) FROM {}", table(mode));
    let row = connect(url).await?.query_one(&query, &[]).await?;
    let number = |at: usize| u64::try_from(row.get::<_, i64>(at)).unwrap_or_default();
    Ok((number(0), number(1)))
}
