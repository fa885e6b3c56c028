//! `quorate locks list`.

use crate::{
    args::LocksListArgs,
    config::Config,
    connect,
    exit::Failure,
    progress::Progress,
    show,
    stored_names::{self, Listing},
    table::{Cell, table},
};
use futures_util::{FutureExt, StreamExt, stream};
use quorate::{
    admin::NamesQuery,
    lease::Inspection,
    node::Resource,
    plain::plain,
    quorum::{NoMajority, Quorum},
};
use quorate_operator::view::LockView;
use schemars::JsonSchema;
use serde::Serialize;

/// The longest name that is shown, in bytes.
const NAME_MAX: usize = 1_000;
/// The number of locks that are read at a time.
const CONCURRENT_READS: usize = 64;

/// The output of the command.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Locks")]
pub(crate) struct Page {
    prefix: String,
    locks: Vec<HeldLock>,
    /// False if more names are stored than `--limit` permits, so that locks may be missing.
    complete: bool,
    /// The nodes that could not be asked, each with the reason.
    missing: Vec<String>,
}

/// A lock for which at least one node stores a holder.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "HeldLock")]
pub(crate) struct HeldLock {
    name: String,
    #[serde(flatten)]
    lock: LockView,
}

/// Shows the locks that are held.
pub(crate) async fn list(args: &LocksListArgs, config: &Config) -> Result<u8, Failure> {
    let quorum = connect::looking(config).await?;
    let progress = Progress::new(quorum.env(), stored_names::WORK, None);
    let page = progress.during(Page::read(&quorum, config, args.limit, args.name.as_deref())).await;
    quorum.close().await;
    let page = page?;
    show::print_page(args.json, &page, || page.for_people(args.name.as_deref()))?;
    Ok(0)
}

/// Returns the JSON document that the command prints with `--json`.
pub(crate) async fn json(quorum: &Quorum, config: &Config, limit: u32) -> Result<String, Failure> {
    show::json(&Page::read(quorum, config, limit, None).await?)
}

async fn inspect(quorum: &Quorum, resources: &[Resource]) -> Result<Vec<Inspection>, NoMajority> {
    // The futures are boxed, because a handler of the server requires a future that is `Send` for every lifetime.
    let reads: Vec<_> = resources.iter().map(|resource| quorum.inspect(resource).boxed()).collect();
    let read: Vec<_> = stream::iter(reads).buffered(CONCURRENT_READS).collect().await;
    read.into_iter().collect()
}

impl HeldLock {
    /// Returns `None` if no node stores a holder.
    fn new(resource: &Resource, seen: &Inspection, votes: bool) -> Option<Self> {
        let lock = LockView::new(seen, votes);
        lock.is_stored.then(|| Self { name: plain(resource.key(), NAME_MAX), lock })
    }

    fn row(&self) -> [Cell; 5] {
        let Self { name, lock } = self;
        let token = lock.fencing_token.map_or_else(|| "-".to_owned(), |token| token.to_string());
        [
            name.into(),
            lock.state.as_str().into(),
            lock.holder_text().into(),
            lock.left_text().into(),
            token.into(),
        ]
    }
}

impl Page {
    /// Reads the locks that are held; with a name, only that lock and those below it.
    async fn read(quorum: &Quorum, config: &Config, limit: u32, name: Option<&str>) -> Result<Self, Failure> {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let query = name.map_or_else(|| NamesQuery::locks(limit), |name| NamesQuery::one_lock(name, limit));
        let Listing { resources, is_cut, missing } = stored_names::list(config, &query).await?;
        let found = inspect(quorum, &resources).await;
        let found = found.map_err(|error| connect::no_quorum("cannot read the locks", &error))?;
        let votes = connect::is_quorum(&quorum.nodes());
        let view = |(resource, seen)| HeldLock::new(resource, seen, votes);
        let locks = resources.iter().zip(&found).filter_map(view);
        let missing = missing.iter().map(|node| plain(node, NAME_MAX)).collect();
        let prefix = config.prefix.to_string();
        Ok(Self { prefix, locks: locks.collect(), complete: !is_cut, missing })
    }

    fn for_people(&self, name: Option<&str>) -> String {
        let mut text = if self.locks.is_empty() {
            let below =
                name.map(|name| format!(" with the name {:?}", plain(name, NAME_MAX))).unwrap_or_default();
            format!("no lock is held under the prefix {:?}{below}\n", self.prefix)
        } else {
            let rows: Vec<[Cell; 5]> = self.locks.iter().map(HeldLock::row).collect();
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
