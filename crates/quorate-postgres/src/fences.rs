use crate::{
    Error,
    create::create,
    error::{check_name, from_bigint, to_bigint},
};
use quorate::node::FencingToken;
use std::time::Duration;
use tokio_postgres::{GenericClient, Transaction};

/// The largest fencing token under which each resource has been written, in the table `quorate_fences`.
///
/// ```no_run
/// # use quorate::lease::Lease;
/// # use quorate_postgres::Fences;
/// # async fn save(client: &mut tokio_postgres::Client, lease: &Lease) -> Result<(), Box<dyn std::error::Error>> {
/// let transaction = client.transaction().await?;
/// Fences.admit(&transaction, "balance", lease.fencing_token()?).await?;
/// transaction.execute("UPDATE balance SET amount = amount + 1", &[]).await?;
/// transaction.commit().await?; // never after a write under a later token
/// # Ok(())
/// # }
/// ```
///
/// A resource that [`Fences::forget_before`] has removed accepts every token again.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fences;

impl Fences {
    /// The definition of the table, for your own migrations. If several sessions may run the definition at
    /// the same time, make them run it one after the other, for instance under an advisory lock.
    pub const DDL: &str = "CREATE TABLE IF NOT EXISTS quorate_fences (
        resource text PRIMARY KEY,
        token bigint NOT NULL,
        at timestamptz NOT NULL DEFAULT now()
    );
    ALTER TABLE quorate_fences ADD COLUMN IF NOT EXISTS at timestamptz NOT NULL DEFAULT now()";

    /// Creates the table if it does not exist. Many replicas that start together may call this function: the
    /// creation runs in one replica after the other, under an advisory lock. In a transaction of the caller,
    /// that lock lasts until the transaction ends.
    ///
    /// # Errors
    /// [`Error::Postgres`], for example if the role has no permission to create tables. In that case run
    /// [`Fences::DDL`] as a role that has the permission.
    ///
    /// # Cancel safety
    /// If the future is dropped, the table may or may not have been created.
    pub async fn create(self, client: &impl GenericClient) -> Result<(), Error> {
        create(client, Self::DDL).await
    }

    /// Removes the resources that have not been written for `age`, and returns their number. `age` must be much longer
    /// than the longest pause of any holder, for example a week. Otherwise an earlier holder that is still running
    /// would be admitted again.
    ///
    /// # Errors
    /// [`Error::Postgres`].
    ///
    /// # Cancel safety
    /// If the future is dropped, the resources may or may not have been removed.
    pub async fn forget_before(self, client: &impl GenericClient, age: Duration) -> Result<u64, Error> {
        let delete = "DELETE FROM quorate_fences WHERE at < now() - make_interval(secs => $1)";
        Ok(client.execute(delete, &[&age.as_secs_f64()]).await?)
    }

    /// Admits `transaction` only if `resource` has not been written under a later token. Once the transaction has
    /// committed, earlier tokens are refused. Transactions on one resource run one after the other.
    ///
    /// Call this function first in every transaction that writes under a lease or a term, even before reads
    /// on which the writes depend. Pass `lease.fencing_token()?` or `term.fencing_token()?`.
    ///
    /// # Errors
    /// [`Error::Stale`] if a later token has been used: another worker holds the lease. [`Error::Name`] for a
    /// resource that cannot be used. [`Error::Postgres`] if a query fails.
    ///
    /// # Cancel safety
    /// If the future is dropped, the transaction may or may not be fenced: roll it back.
    pub async fn admit(
        self,
        transaction: &Transaction<'_>,
        resource: &str,
        token: FencingToken,
    ) -> Result<(), Error> {
        check_name("resource", resource)?;
        let raise = "INSERT INTO quorate_fences AS fence (resource, token) VALUES ($1, $2)
            ON CONFLICT (resource) DO UPDATE SET token = excluded.token, at = now() WHERE fence.token <= excluded.token";
        if transaction.execute(raise, &[&resource, &to_bigint(token)]).await? > 0 {
            return Ok(());
        }
        let select = "SELECT token FROM quorate_fences WHERE resource = $1";
        let largest: i64 = transaction.query_one(select, &[&resource]).await?.get(0);
        Err(Error::Stale { resource: resource.to_owned(), token, standing: from_bigint(largest) })
    }
}
