use crate::{
    Error,
    create::create,
    error::{check_name, from_bigint, to_bigint},
};
use quorate::node::FencingToken;
use std::{collections::BTreeSet, sync::Arc, time::Duration};
use tokio_postgres::{GenericClient, Transaction};

/// A record of the messages of one set whose effects have been committed, in the table `quorate_effects`.
///
/// ```no_run
/// # use quorate::claim::ClaimHandle;
/// # use quorate_postgres::{Effects, Once};
/// # async fn handle(client: &mut tokio_postgres::Client, id: &str, claim: ClaimHandle) -> Result<(), Box<dyn std::error::Error>> {
/// let effects = Effects::new("orders");
/// let transaction = client.transaction().await?;
/// if let Once::First = effects.once(&transaction, id, claim.fencing_token()?).await? {
///     transaction.execute("UPDATE stock SET left = left - 1", &[]).await?;
/// }
/// transaction.commit().await?; // then complete the claim in both cases
/// # Ok(())
/// # }
/// ```
///
/// If [`Effects::forget_before`] has removed a message's row and the message is delivered again, its effect
/// happens again.
#[derive(Clone, Debug)]
pub struct Effects {
    set: Arc<str>,
}

/// The decision whether a transaction must apply the effect of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Once {
    /// The effect is new: apply it, and commit.
    First,
    /// The effect was applied before, under this token: do not apply it again.
    Before(FencingToken),
}

impl Effects {
    /// The definition of the table, for your own migrations. If several sessions may run the definition at
    /// the same time, make them run it one after the other, for instance under an advisory lock.
    pub const DDL: &str = "CREATE TABLE IF NOT EXISTS quorate_effects (
        set_name text NOT NULL,
        id text NOT NULL,
        token bigint NOT NULL,
        at timestamptz NOT NULL DEFAULT now(),
        PRIMARY KEY (set_name, id)
    )";

    /// Returns the record of effects for the messages of `set`. Use the same name as in `Claims::new`.
    pub fn new(set: &str) -> Self {
        Self { set: set.into() }
    }

    /// Creates the table if it does not exist. Many workers that start together may call this function: the
    /// creation runs in one worker after the other, under an advisory lock. In a transaction of the caller,
    /// that lock lasts until the transaction ends.
    ///
    /// # Errors
    /// [`Error::Postgres`], for example if the role has no permission to create tables. In that case run
    /// [`Effects::DDL`] as a role that has the permission.
    ///
    /// # Cancel safety
    /// If the future is dropped, the table may or may not have been created.
    pub async fn create(&self, client: &impl GenericClient) -> Result<(), Error> {
        create(client, Self::DDL).await
    }

    /// Decides whether `transaction` must apply the effect of the message `id`, and records the id in the
    /// transaction. Another transaction with the same id waits until this transaction ends. The other
    /// transaction gets [`Once::First`] only if this transaction is rolled back.
    ///
    /// # Errors
    /// [`Error::Name`] for an id that cannot be used. [`Error::Postgres`] if a query fails. At isolation levels above
    /// *read committed*, a query also fails if another transaction recorded the id first (SQLSTATE 40001). A query
    /// fails with a deadlock (40P01) if two transactions record several ids one by one in different orders. To avoid
    /// that, record them together with [`Effects::once_each`]. After an error, roll back and handle the message again.
    ///
    /// # Cancel safety
    /// If the future is dropped, the transaction may or may not contain the id: roll it back.
    pub async fn once(
        &self,
        transaction: &Transaction<'_>,
        id: &str,
        token: FencingToken,
    ) -> Result<Once, Error> {
        let all = self.once_each(transaction, &[(id, token)]).await?;
        Ok(all.first().copied().unwrap_or(Once::Before(token)))
    }

    /// Does the same as [`Effects::once`] for many messages in one statement. Returns a verdict for each
    /// message, in the order of `messages`. If an id occurs twice, only one of its verdicts is
    /// [`Once::First`].
    ///
    /// # Errors
    /// The same as for [`Effects::once`].
    ///
    /// # Cancel safety
    /// The same as for [`Effects::once`].
    pub async fn once_each(
        &self,
        transaction: &Transaction<'_>,
        messages: &[(&str, FencingToken)],
    ) -> Result<Vec<Once>, Error> {
        check_name("set", &self.set)?;
        for (id, _) in messages {
            check_name("id", id)?;
        }
        let ids: Vec<&str> = messages.iter().map(|(id, _)| *id).collect();
        let tokens: Vec<i64> = messages.iter().map(|(_, token)| to_bigint(*token)).collect();
        // The rows are inserted in the order of the ids. Otherwise two transactions that share some ids could
        // each wait for the other.
        let insert = "INSERT INTO quorate_effects (set_name, id, token)
            SELECT $1, id, min(token) FROM unnest($2::text[], $3::bigint[]) AS new (id, token)
            GROUP BY id ORDER BY id COLLATE \"C\"
            ON CONFLICT DO NOTHING RETURNING id";
        let rows = transaction.query(insert, &[&&*self.set, &ids, &tokens]).await?;
        let mut first: BTreeSet<String> = rows.iter().map(|row| row.get(0)).collect();
        let known = if first.len() == messages.len() {
            Vec::new()
        } else {
            let select = "SELECT id, token FROM quorate_effects WHERE set_name = $1 AND id = ANY($2)";
            let rows = transaction.query(select, &[&&*self.set, &ids]).await?;
            rows.iter().map(|row| (row.get::<_, String>(0), row.get::<_, i64>(1))).collect()
        };
        let known: std::collections::BTreeMap<_, _> = known.into_iter().collect();
        let verdict = |(id, token): &(&str, FencingToken)| {
            if first.remove(*id) {
                return Once::First;
            }
            Once::Before(known.get(*id).map_or(*token, |token| from_bigint(*token)))
        };
        Ok(messages.iter().map(verdict).collect())
    }

    /// Removes records that are older than `age`, and returns their number. `age` must be longer than the
    /// claims' retention, and longer than the time for which a message may be redelivered. A message that
    /// arrives later has its effect again.
    ///
    /// # Errors
    /// [`Error::Postgres`].
    ///
    /// # Cancel safety
    /// If the future is dropped, the records may or may not have been removed.
    pub async fn forget_before(&self, client: &impl GenericClient, age: Duration) -> Result<u64, Error> {
        let delete = "DELETE FROM quorate_effects
            WHERE set_name = $1 AND at < now() - make_interval(secs => $2)";
        Ok(client.execute(delete, &[&&*self.set, &age.as_secs_f64()]).await?)
    }
}
