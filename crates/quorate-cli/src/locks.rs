//! `quorate locks list`.

use crate::{
    args::LocksListArgs,
    config::Config,
    connect::{self, PATIENCE},
    exit::Failure,
    show,
    stored_names::{self, Listing},
    table::table,
};
use futures_util::{StreamExt, stream};
use quorate::{
    admin::NamesQuery,
    lease::Inspection,
    node::{FencingToken, Owner, Resource},
    plain::plain,
    quorum::{NoMajority, Quorum},
};
use serde::Serialize;
use std::time::Duration;

/// The longest name that is shown, in bytes.
const NAME_MAX: usize = 1_000;
/// The number of locks that are read at a time.
const CONCURRENT_READS: usize = 64;

/// The output of the command.
#[derive(Debug, Serialize)]
struct Page {
    prefix: String,
    locks: Vec<HeldLock>,
    /// False if more names are stored than `--limit` permits, so that locks may be missing.
    complete: bool,
    /// The nodes that could not be asked, each with the reason.
    missing: Vec<String>,
}

/// A lock that is held, or that some node stores a holder of.
#[derive(Debug, Serialize)]
struct HeldLock {
    name: String,
    /// `exclusive`, `readers`, `reserved`, or `minority` if no majority stores one holder.
    state: &'static str,
    /// The worker. For readers, `null`; for a reservation, the successor.
    holder: Option<String>,
    /// The time for which the lock stays held if it is not extended; `null` if it does not end by itself.
    remaining_ms: Option<u64>,
    fencing_token: Option<u64>,
}

/// Shows the locks that are held.
pub(crate) async fn list(args: &LocksListArgs, config: &Config) -> Result<u8, Failure> {
    let query = NamesQuery::locks(usize::try_from(args.limit).unwrap_or(usize::MAX));
    let Listing { resources, is_cut, missing } = stored_names::list(config, &query).await?;
    let quorum = connect::only_looking(config)?;
    quorum.met(PATIENCE).await;
    let found = inspect(&quorum, &resources).await;
    quorum.close().await;
    let found = found.map_err(|error| connect::no_quorum("cannot read the locks", &error))?;
    let locks =
        resources.iter().zip(&found).filter_map(|(resource, seen)| HeldLock::new(resource, seen)).collect();
    let missing = missing.iter().map(|node| plain(node, NAME_MAX)).collect();
    let page = Page { prefix: config.prefix.to_string(), locks, complete: !is_cut, missing };
    show::print_page(args.json, &page, || page.for_people())?;
    Ok(0)
}

async fn inspect(quorum: &Quorum, resources: &[Resource]) -> Result<Vec<Inspection>, NoMajority> {
    let reads = resources.iter().map(|resource| quorum.inspect(resource));
    let read: Vec<_> = stream::iter(reads).buffered(CONCURRENT_READS).collect().await;
    read.into_iter().collect()
}

impl HeldLock {
    /// Returns `None` if no node stores a holder.
    fn new(resource: &Resource, seen: &Inspection) -> Option<Self> {
        let (owner, _) = seen.named.first().filter(|(owner, _)| owner.as_str() != Owner::QUEUE)?;
        let (state, holder) = match (&seen.holder, owner.reserved_for()) {
            (None, _) => ("minority", Some(owner.worker())),
            (Some(_), Some(successor)) => ("reserved", Some(successor)),
            (Some(holder), None) if holder.as_str() == Owner::READERS => ("readers", None),
            (Some(holder), None) => ("exclusive", Some(holder.worker())),
        };
        let millis = |left: Duration| u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
        Some(Self {
            name: plain(resource.key(), NAME_MAX),
            state,
            holder: holder.map(|holder| plain(holder, NAME_MAX)),
            remaining_ms: seen.remaining.map(millis),
            fencing_token: seen.token.map(FencingToken::get),
        })
    }

    fn row(&self) -> [String; 5] {
        let left = match (self.state, self.remaining_ms) {
            ("minority", _) => "-".to_owned(),
            (_, Some(ms)) => format!("{:.1} s", ms as f64 / 1e3),
            (_, None) => "no expiry".to_owned(),
        };
        let token = self.fencing_token.map_or_else(|| "-".to_owned(), |token| token.to_string());
        let holder = self.holder.clone().unwrap_or_else(|| "-".to_owned());
        [self.name.clone(), self.state.to_owned(), holder, left, token]
    }
}

impl Page {
    fn for_people(&self) -> String {
        let mut text = if self.locks.is_empty() {
            format!("no lock is held under the prefix {:?}\n", self.prefix)
        } else {
            let rows: Vec<[String; 5]> = self.locks.iter().map(HeldLock::row).collect();
            table(["NAME", "STATE", "HOLDER", "ENDS IN", "TOKEN"], &rows)
        };
        if !self.complete {
            text += "there are more names: raise --limit\n";
        }
        for node in &self.missing {
            text += &format!("not asked: {node}\n");
        }
        text
    }
}
