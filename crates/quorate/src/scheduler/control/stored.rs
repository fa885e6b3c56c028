//! The jobs that are stored on the nodes, as any client reads them.

use crate::{
    env::WallTime,
    ledger::LedgerView,
    plain::plain,
    scheduler::{
        job::{Job, RequestId},
        store::StoredJob,
    },
};
use std::{collections::BTreeMap, ops::Bound, sync::Arc};

/// A job that is stored on the nodes, from [`Jobs::stored`](crate::scheduler::Jobs::stored).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StoredDefinition {
    /// The name.
    pub name: Arc<str>,
    /// The requester of the last change.
    pub by: Arc<str>,
    /// The time of the last change.
    pub at: WallTime,
    /// The time since which its ticks count, unless the row of the job has another one.
    pub(in crate::scheduler) since: WallTime,
    /// The request of the last change. It names this version of the definition.
    pub version: RequestId,
    /// The job, or the reason why this version cannot run it. Then the nodes keep it.
    pub job: Result<Job, Arc<str>>,
}

/// Returns the stored jobs that the ledger has.
pub(in crate::scheduler) fn definitions(ledger: &LedgerView) -> BTreeMap<Arc<str>, StoredDefinition> {
    let from = (Bound::Included(StoredJob::PREFIX), Bound::Unbounded);
    let rows = ledger.records.range::<str, _>(from);
    let rows = rows.map_while(|(key, value)| Some((key.strip_prefix(StoredJob::PREFIX)?, value)));
    let read = rows.filter(|(_, value)| !value.is_empty()).map(|(name, value)| {
        let stored = match StoredJob::parse(value) {
            Ok(row) => {
                let job = row.definition(name).and_then(|definition| definition.job()).map_err(Into::into);
                let (since, version) = (row.since, row.version);
                StoredDefinition { name: name.into(), by: row.by, at: row.at, since, version, job }
            }
            Err(error) => StoredDefinition {
                name: name.into(),
                by: "".into(),
                at: WallTime::default(),
                since: WallTime::default(),
                version: RequestId::from_u128(0),
                job: Err(plain(&error.to_string(), 300).into()),
            },
        };
        (Arc::clone(&stored.name), stored)
    });
    read.collect()
}
