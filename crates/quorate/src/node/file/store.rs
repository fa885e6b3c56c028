//! The rows of a directory, in one transaction of its database.

use super::{
    database::{Database, Durability, FileId},
    error::FileError,
};
use crate::node::{
    LedgerState, NamesQuery, Record, Resource, StoredNames,
    engine::{ClaimRow, Clocks, CounterRow, LeaseRow, QueueRow, RetentionRow, Store},
};
use rusqlite::{Connection, OptionalExtension, Params, Row, Transaction};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    sync::Arc,
};

/// The kind of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A row of the node itself, which does not end.
    Node,
    Lease,
    Queue,
    Counter,
    Claim,
    Ledger,
}

impl Kind {
    /// Returns the kind's name in the database.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Lease => "lease",
            Self::Queue => "queue",
            Self::Counter => "counter",
            Self::Claim => "claim",
            Self::Ledger => "ledger",
        }
    }
}

/// The identity of a directory, which is created when the directory is first used.
#[derive(Serialize, Deserialize)]
pub(super) struct Identity {
    pub(super) run_id: Arc<str>,
    pub(super) since_micros: u64,
    /// The database file that the directory had then. A copy of the directory has another one.
    pub(super) file: FileId,
    /// True if the directory is a copy, so that its data may be older than what workers have seen.
    pub(super) is_copied: bool,
}

/// A ledger without its records.
#[derive(Default, Serialize, Deserialize)]
struct LedgerRow {
    low_water: u64,
    life: Option<RetentionRow>,
}

/// The rows that one batch reads and changes.
#[derive(Debug)]
pub(super) struct Rows<'a> {
    database: &'a Database,
    transaction: Transaction<'a>,
    durability: Durability,
    /// The first failure of the database. The transaction may then lack a part of a request, so it is not committed.
    failure: RefCell<Option<FileError>>,
    has_changed: Cell<bool>,
}

impl<'a> Rows<'a> {
    pub(super) fn new(database: &'a Database, transaction: Transaction<'a>, durability: Durability) -> Self {
        Self { database, transaction, durability, failure: RefCell::default(), has_changed: Cell::new(false) }
    }

    /// Stores the changes.
    pub(super) fn commit(self) -> Result<(), FileError> {
        if let Some(error) = self.failure.into_inner() {
            return Err(error);
        }
        self.transaction.commit().map_err(|e| FileError::of_database(self.database.path(), &e))
    }

    /// Removes rows that have ended, at most `most` of each kind, if the transaction has changed anything. A row that
    /// has ended does not count, so a failure is left to the commit.
    pub(super) fn sweep(&self, clocks: Clocks, most: usize) -> Result<(), FileError> {
        if !self.has_changed.get() {
            return Ok(());
        }
        let (boot, wall) = (integer(clocks.lease_nanos), integer(clocks.wall.as_micros()));
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        for (kind, now) in
            [(Kind::Lease, boot), (Kind::Queue, boot), (Kind::Counter, wall), (Kind::Claim, wall)]
        {
            self.execute(
                "DELETE FROM rows WHERE (kind, name) IN
                 (SELECT kind, name FROM rows WHERE kind = ?1 AND until <= ?2 LIMIT ?3)",
                (kind.name(), now, most),
            )?;
        }
        let ended = "SELECT name FROM rows WHERE kind = ?1 AND until <= ?2 LIMIT 1";
        let ended: Option<String> = self.first(ended, (Kind::Ledger.name(), wall))?;
        ended.map_or(Ok(()), |group| self.delete_ledger(&group))
    }

    /// Removes the leases and queues, which are void after a reboot.
    pub(super) fn remove_leases(&self) -> Result<(), FileError> {
        let kinds = (Kind::Lease.name(), Kind::Queue.name());
        self.execute("DELETE FROM rows WHERE kind IN (?1, ?2)", kinds)
    }

    pub(super) fn read<T: DeserializeOwned>(&self, kind: Kind, name: &str) -> Result<Option<T>, FileError> {
        let row = "SELECT row FROM rows WHERE kind = ?1 AND name = ?2";
        let text: Option<String> = self.first(row, (kind.name(), name))?;
        text.map(|text| self.parse(&text, (kind.name(), name))).transpose()
    }

    pub(super) fn write<T: Serialize>(
        &self,
        kind: Kind,
        name: &str,
        until: u64,
        row: &T,
    ) -> Result<(), FileError> {
        debug_assert!(
            self.durability == Durability::Synced || matches!(kind, Kind::Lease | Kind::Queue),
            "a row of {kind:?} must survive a power loss"
        );
        let text = self.text(row, (kind.name(), name))?;
        self.execute(
            "INSERT OR REPLACE INTO rows (kind, name, until, row) VALUES (?1, ?2, ?3, ?4)",
            (kind.name(), name, integer(until), text),
        )
    }

    fn remove(&self, kind: Kind, name: &str) -> Result<(), FileError> {
        self.execute("DELETE FROM rows WHERE kind = ?1 AND name = ?2", (kind.name(), name))
    }

    fn set<T: Serialize>(&self, kind: Kind, name: &str, row: Option<(u64, &T)>) -> Result<(), FileError> {
        match row {
            Some((until, row)) => self.write(kind, name, until, row),
            None => self.remove(kind, name),
        }
    }

    fn ledger_row(&self, group: &str) -> Result<LedgerRow, FileError> {
        Ok(self.read(Kind::Ledger, group)?.unwrap_or_default())
    }

    fn write_ledger_row(&self, group: &str, row: &LedgerRow) -> Result<(), FileError> {
        let until = row.life.map_or(u64::MAX, |life| life.until_micros);
        self.write(Kind::Ledger, group, until, row)
    }

    fn delete_ledger(&self, group: &str) -> Result<(), FileError> {
        self.execute("DELETE FROM records WHERE ledger = ?1", [group])?;
        self.remove(Kind::Ledger, group)
    }

    fn records(
        &self,
        group: &str,
        (after, most): (Option<&str>, usize),
    ) -> Result<Vec<(Arc<str>, Record)>, FileError> {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let read = || {
            let mut statement = self.transaction.prepare_cached(
                "SELECT key, row FROM records WHERE ledger = ?1 AND (?2 IS NULL OR key > ?2) ORDER BY key LIMIT ?3",
            )?;
            let row = |row: &Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?));
            statement.query_map((group, after, most), row)?.collect::<rusqlite::Result<Vec<_>>>()
        };
        let rows = self.checked(read())?;
        rows.iter().map(|(key, row)| Ok((key.as_str().into(), self.parse(row, (group, key))?))).collect()
    }

    fn state(&self, group: &str, records: Vec<(Arc<str>, Record)>) -> Result<LedgerState, FileError> {
        Ok(LedgerState { low_water: self.ledger_row(group)?.low_water, records })
    }

    fn first(&self, sql: &str, params: impl Params) -> Result<Option<String>, FileError> {
        let read = |row: &Row<'_>| row.get(0);
        let find = || self.transaction.prepare_cached(sql)?.query_row(params, read).optional();
        self.checked(find())
    }

    fn execute(&self, sql: &str, params: impl Params) -> Result<(), FileError> {
        self.has_changed.set(true);
        let change = || self.transaction.prepare_cached(sql)?.execute(params);
        self.checked(change()).map(drop)
    }

    /// Notes the failure of a call of the database.
    fn checked<T>(&self, result: rusqlite::Result<T>) -> Result<T, FileError> {
        result.map_err(|e| {
            let error = FileError::of_database(self.database.path(), &e);
            self.failure.borrow_mut().get_or_insert(error).clone()
        })
    }

    fn parse<T: DeserializeOwned>(&self, text: &str, row: (&str, &str)) -> Result<T, FileError> {
        serde_json::from_str(text).map_err(|e| self.unreadable(row, &e))
    }

    fn text<T: Serialize>(&self, content: &T, row: (&str, &str)) -> Result<String, FileError> {
        serde_json::to_string(content).map_err(|e| self.unreadable(row, &e))
    }

    fn unreadable(&self, (of, name): (&str, &str), why: &serde_json::Error) -> FileError {
        FileError::unreadable(self.database.path(), &format!("the row {name:?} of {of:?}: {why}"))
    }
}

impl Store for Rows<'_> {
    type Error = FileError;

    fn lease(&self, resource: &Resource) -> Result<Option<LeaseRow>, FileError> {
        self.read(Kind::Lease, resource.key())
    }

    fn set_lease(&mut self, resource: &Resource, row: Option<LeaseRow>) -> Result<(), FileError> {
        self.set(Kind::Lease, resource.key(), row.as_ref().map(|row| (row.until_nanos, row)))
    }

    fn queue(&self, resource: &Resource) -> Result<Option<QueueRow>, FileError> {
        self.read(Kind::Queue, resource.key())
    }

    fn set_queue(&mut self, resource: &Resource, row: Option<QueueRow>) -> Result<(), FileError> {
        self.set(Kind::Queue, resource.key(), row.as_ref().map(|row| (row.until_nanos, row)))
    }

    fn counter(&self, resource: &Resource) -> Result<Option<CounterRow>, FileError> {
        self.read(Kind::Counter, resource.key())
    }

    fn set_counter(&mut self, resource: &Resource, row: CounterRow) -> Result<(), FileError> {
        self.write(Kind::Counter, resource.key(), row.until_micros, &row)
    }

    fn claim(&self, resource: &Resource) -> Result<Option<ClaimRow>, FileError> {
        self.read(Kind::Claim, resource.key())
    }

    fn set_claim(&mut self, resource: &Resource, row: Option<ClaimRow>) -> Result<(), FileError> {
        self.set(Kind::Claim, resource.key(), row.as_ref().map(|row| (row.until_micros, row)))
    }

    fn ledger(&self, group: &str) -> Result<LedgerState, FileError> {
        self.ledger_after(group, None, usize::MAX)
    }

    fn set_ledger(&mut self, group: &str, state: LedgerState) -> Result<(), FileError> {
        self.execute("DELETE FROM records WHERE ledger = ?1", [group])?;
        let records = state.records.into_iter().map(|(key, record)| (key, Some(record))).collect();
        self.amend_ledger(group, state.low_water, records)
    }

    fn ledger_after(&self, group: &str, after: Option<&str>, most: usize) -> Result<LedgerState, FileError> {
        self.state(group, self.records(group, (after, most))?)
    }

    fn ledger_at(&self, group: &str, key: &str) -> Result<LedgerState, FileError> {
        let row = self.first("SELECT row FROM records WHERE ledger = ?1 AND key = ?2", (group, key))?;
        let record = row.map(|row| Ok((key.into(), self.parse(&row, (group, key))?))).transpose()?;
        self.state(group, record.into_iter().collect())
    }

    fn amend_ledger(
        &mut self,
        group: &str,
        low_water: u64,
        records: Vec<(Arc<str>, Option<Record>)>,
    ) -> Result<(), FileError> {
        let life = self.ledger_row(group)?.life;
        self.write_ledger_row(group, &LedgerRow { low_water, life })?;
        for (key, record) in records {
            match record {
                Some(record) => self.execute(
                    "INSERT OR REPLACE INTO records (ledger, key, row) VALUES (?1, ?2, ?3)",
                    (group, &*key, self.text(&record, (group, &key))?),
                )?,
                None => {
                    self.execute("DELETE FROM records WHERE ledger = ?1 AND key = ?2", (group, &*key))?;
                }
            }
        }
        Ok(())
    }

    fn ledger_life(&self, group: &str) -> Result<Option<RetentionRow>, FileError> {
        Ok(self.ledger_row(group)?.life)
    }

    fn set_ledger_life(&mut self, group: &str, life: RetentionRow) -> Result<(), FileError> {
        let row = LedgerRow { life: Some(life), ..self.ledger_row(group)? };
        self.write_ledger_row(group, &row)
    }

    fn remove_ledger(&mut self, group: &str) -> Result<(), FileError> {
        self.delete_ledger(group)
    }

    fn marker(&self) -> Result<Option<Arc<str>>, FileError> {
        self.read(Kind::Node, "marker")
    }

    fn set_marker(&mut self, marker: Arc<str>) -> Result<(), FileError> {
        self.write(Kind::Node, "marker", u64::MAX, &marker)
    }

    fn stamps(&self) -> Result<BTreeMap<Arc<str>, u64>, FileError> {
        Ok(self.read(Kind::Node, "stamps")?.unwrap_or_default())
    }

    fn set_stamps(&mut self, stamps: BTreeMap<Arc<str>, u64>) -> Result<(), FileError> {
        self.write(Kind::Node, "stamps", u64::MAX, &stamps)
    }
}

/// Returns the names that `query` lists: the names of leases and of claims.
pub(super) fn stored_names(connection: &Connection, query: &NamesQuery) -> rusqlite::Result<StoredNames> {
    let mut names = StoredNames::default();
    let mut statement = connection.prepare("SELECT name FROM rows WHERE kind IN (?1, ?2)")?;
    let mut rows = statement.query((Kind::Lease.name(), Kind::Claim.name()))?;
    while let Some(row) = rows.next()? {
        if !query.add(&mut names, &row.get::<_, String>(0)?) {
            break;
        }
    }
    Ok(names)
}

/// Returns a number of the database, which has 63 bits. Larger times are the last one.
fn integer(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
