use crate::{
    Error,
    create::create,
    error::{check_name, from_bigint, to_bigint},
};
use quorate::node::FencingToken;
use std::{collections::BTreeSet, sync::Arc, time::Duration};
use tokio_postgres::{GenericClient, Transaction};

/// Which messages of one set have had their effect, in the table `quorate_effects`.
#[derive(Clone, Debug)]
pub struct Effects {
    set: Arc<str>,
}

/// Whether a message's effect is to be had in this transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Once {
    /// Have it, and commit.
    First,
    /// It has been had, by whoever held this token: have it not again.
    Before(FencingToken),
}

impl Effects {
    /// The definition of the table, for migrations of your own. Where several sessions may run it at once, they need a
    /// lock of their own around it.
    pub const DDL: &str = "CREATE TABLE IF NOT EXISTS quorate_effects (
        set_name text NOT NULL,
        id text NOT NULL,
        token bigint NOT NULL,
        at timestamptz NOT NULL DEFAULT now(),
        PRIMARY KEY (set_name, id)
    )";

    /// The messages of `set`: best called as in `Claims::new`.
    pub fn new(set: &str) -> Self {
        Self { set: set.into() }
    }

    /// Creates the table where there is none. Safe to call by many replicas that start together: they do it one after
    /// the other, under an advisory lock. In a transaction of the caller's, that lock lasts until the transaction ends.
    ///
    /// # Errors
    /// [`Error::Postgres`], for one where the role may not create tables: then run [`Effects::DDL`] as one that may.
    ///
    /// # Cancel safety
    /// Dropping it leaves the table made or not.
    pub async fn create(&self, client: &impl GenericClient) -> Result<(), Error> {
        create(client, Self::DDL).await
    }

    /// Whether the effect of `id` is to be had in `transaction`, which then holds its place: another
    /// transaction with the same id waits until this one ends, and comes first only if this one is rolled back.
    ///
    /// # Errors
    /// [`Error::Name`] for an id that cannot be used; [`Error::Postgres`], at isolation levels above *read committed* also
    /// where another transaction was first (SQLSTATE 40001), and where two transactions ask for several ids one by one in
    /// another order (40P01: ask for them together, by [`Effects::once_each`]). Roll back, and handle the message again.
    ///
    /// # Cancel safety
    /// Dropping it leaves the transaction with the id recorded in it or not: roll it back.
    pub async fn once(
        &self,
        transaction: &Transaction<'_>,
        id: &str,
        token: FencingToken,
    ) -> Result<Once, Error> {
        let all = self.once_each(transaction, &[(id, token)]).await?;
        Ok(all.first().copied().unwrap_or(Once::Before(token)))
    }

    /// As [`Effects::once`] for many messages in one statement: a verdict for each, in their order. An id that
    /// comes twice is first once.
    ///
    /// # Errors
    /// As for [`Effects::once`].
    ///
    /// # Cancel safety
    /// As for [`Effects::once`].
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
        // In the order of the ids, or two transactions that share some could wait for each other.
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

    /// Forgets effects that are older than `age`, and says how many. Longer than any redelivery, and than the
    /// claims' retention: a message that comes after this has its effect again.
    ///
    /// # Errors
    /// [`Error::Postgres`].
    ///
    /// # Cancel safety
    /// Dropping it leaves them forgotten or not.
    pub async fn forget_before(&self, client: &impl GenericClient, age: Duration) -> Result<u64, Error> {
        let delete = "DELETE FROM quorate_effects
            WHERE set_name = $1 AND at < now() - make_interval(secs => $2)";
        Ok(client.execute(delete, &[&&*self.set, &age.as_secs_f64()]).await?)
    }
}
