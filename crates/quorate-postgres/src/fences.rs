use crate::{
    Error,
    create::create,
    error::{check_name, from_bigint, to_bigint},
};
use quorate::node::FencingToken;
use std::time::Duration;
use tokio_postgres::{GenericClient, Transaction};

/// The largest fencing token that each resource has been written under, in the table `quorate_fences`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fences;

impl Fences {
    /// The definition of the table, for migrations of your own. Where several sessions may run it at once, they need a
    /// lock of their own around it.
    pub const DDL: &str = "CREATE TABLE IF NOT EXISTS quorate_fences (
        resource text PRIMARY KEY,
        token bigint NOT NULL,
        at timestamptz NOT NULL DEFAULT now()
    );
    ALTER TABLE quorate_fences ADD COLUMN IF NOT EXISTS at timestamptz NOT NULL DEFAULT now()";

    /// Creates the table where there is none. Safe to call by many replicas that start together: they do it one after
    /// the other, under an advisory lock. In a transaction of the caller's, that lock lasts until the transaction ends.
    ///
    /// # Errors
    /// [`Error::Postgres`], for one where the role may not create tables: then run [`Fences::DDL`] as one that may.
    ///
    /// # Cancel safety
    /// Dropping it leaves the table made or not.
    pub async fn create(self, client: &impl GenericClient) -> Result<(), Error> {
        create(client, Self::DDL).await
    }

    /// Forgets the resources that nobody has written to for `age`, and says how many. Much longer than any holder may be
    /// paused, a week say: a holder from before, that is still running, would be let in again.
    ///
    /// # Errors
    /// [`Error::Postgres`].
    ///
    /// # Cancel safety
    /// Dropping it leaves them forgotten or not.
    pub async fn forget_before(self, client: &impl GenericClient, age: Duration) -> Result<u64, Error> {
        let delete = "DELETE FROM quorate_fences WHERE at < now() - make_interval(secs => $1)";
        Ok(client.execute(delete, &[&age.as_secs_f64()]).await?)
    }

    /// Lets `transaction` go on only if nobody with a later token has written to `resource`, and keeps whoever
    /// has an earlier one out from its commit on. Transactions of one resource go one after the other.
    ///
    /// Call it first in every transaction that writes under a lease or a term, those that read what they will
    /// write included: with `lease.fencing_token()?` or `term.fencing_token()?`.
    ///
    /// # Errors
    /// [`Error::Stale`] where a later token has been seen: the lease is somebody else's. [`Error::Name`]; [`Error::Postgres`].
    ///
    /// # Cancel safety
    /// Dropping it leaves the transaction fenced or not: roll it back.
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
        let standing: i64 = transaction.query_one(select, &[&resource]).await?.get(0);
        Err(Error::Stale { resource: resource.to_owned(), token, standing: from_bigint(standing) })
    }
}
