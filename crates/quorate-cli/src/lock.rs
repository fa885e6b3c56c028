//! The commands `quorate lock show` and `quorate lock release`.

use crate::{
    args::{LockReleaseArgs, LockShowArgs},
    config::Config,
    connect::{self, PATIENCE},
    exit::{Failure, NO_QUORUM, NOT_FOUND},
    log,
    operate::observer,
    operator, show,
    status::resource,
};
use quorate::{
    admin::ForcedRelease,
    internals::majority,
    lease::Inspection,
    node::{FencingToken, Resource},
    quorum::{NoMajority, NodeOutcome, Quorum},
};
use quorate_operator::{
    Entry, Operator,
    view::{LockView, OwnerView},
};
use serde::Serialize;

/// The longest owner token that is shown, in bytes.
const OWNER_MAX: usize = 200;

const WARNING: &str = "\
WARNING: the holder is not notified. It relies on its lease until its next extension (after a third of the TTL at most, if
it reaches the nodes; else until its TTL is over), and until then two workers may act at once. Fencing tokens protect only targets that check them. Ask a live leader with: quorate leader resign.";

/// The output of `lock show`.
#[derive(Debug, Serialize)]
struct ShowPage {
    resource: String,
    #[serde(flatten)]
    lock: LockView,
}

/// The output of `lock release`.
#[derive(Debug, Serialize)]
struct ReleasePage {
    #[serde(flatten)]
    seen: ShowPage,
    forced: bool,
    /// True if a majority of the nodes has released each owner, and a later read has found none of these
    /// owners.
    released: bool,
    /// The results of the releases, one for each owner. Empty without `--force`.
    results: Vec<OwnerRelease>,
}

/// The result of releasing one owner's lock.
#[derive(Debug, Serialize)]
struct OwnerRelease {
    owner: String,
    /// The number of nodes that no longer store the token.
    released_on: usize,
    /// True if the holder cannot take the lock back ([`ForcedRelease::is_final`]).
    r#final: bool,
    /// True if another Redlock client wrote the owner token.
    foreign: bool,
    /// The other nodes, each with the reason.
    not_released_on: Vec<String>,
}

/// Shows the owners that the nodes store.
pub(crate) async fn show(args: &LockShowArgs, config: &Config) -> Result<u8, Failure> {
    let resource = resource(&args.name)?;
    let quorum = connect::looking(config).await?;
    let seen = quorum.inspect(&resource).await;
    let votes = connect::is_quorum(&quorum.nodes());
    quorum.close().await;
    let page = ShowPage::new(&resource, &seen.map_err(|error| unseen(&resource, &error))?, votes);
    show::print_page(args.json, &page, || page.for_people())?;
    Ok(if page.lock.owners.is_empty() { NOT_FOUND } else { 0 })
}

/// Shows the owners that the nodes store, and with `--force` releases the lock of exactly these owners.
pub(crate) async fn release(args: &LockReleaseArgs, config: &Config) -> Result<u8, Failure> {
    let resource = resource(&args.lock.name)?;
    // Reads and releases do not depend on votes. So the command needs no markers, and writes none.
    let quorum = connect::looking(config).await?;
    let done = look_and_release(args.force, &quorum, &resource).await;
    quorum.close().await;
    let page = done.map_err(|error| unseen(&resource, &error))?;
    if !page.results.is_empty() {
        note(&page, &operator::of(&args.operator, config), config).await;
    }
    let code = match (page.released, page.forced && !page.seen.lock.owners.is_empty()) {
        (true, _) => 0,
        (false, true) => NO_QUORUM,
        (false, false) => NOT_FOUND,
    };
    show::print_page(args.lock.json, &page, || page.for_people())?;
    Ok(code)
}

fn unseen(resource: &Resource, error: &NoMajority) -> Failure {
    connect::no_quorum(&format!("cannot read the owner of {}", resource.name()), error)
}

async fn look_and_release(
    force: bool,
    quorum: &Quorum,
    resource: &Resource,
) -> Result<ReleasePage, NoMajority> {
    let seen = quorum.inspect(resource).await?;
    let force_now = force && !seen.named.is_empty();
    let mut released = force_now;
    let mut results = Vec::new();
    if force_now {
        log::say(&format!("quorate: {WARNING}"));
        for (owner, _) in &seen.named {
            let forced = quorum.force_release(resource, owner).await;
            released &= forced.is_clear();
            results.push(OwnerRelease {
                owner: owner.as_str().to_owned(),
                released_on: forced.freed,
                r#final: forced.is_final(),
                foreign: forced.foreign,
                not_released_on: not_released_on(&forced),
            });
        }
    }
    if force_now {
        // The nodes are read again to be certain. An owner token that is not UTF-8 was read as a different
        // text, and a node deletes nothing for that text. If the nodes cannot be read now, the owner may still
        // be stored.
        let after = quorum.inspect(resource).await.ok();
        let needed = majority(quorum.nodes().len());
        for result in &mut results {
            let is_gone = after.as_ref().is_some_and(|after| without(after, &result.owner) >= needed);
            released &= is_gone;
            result.r#final &= is_gone;
        }
    }
    let seen = ShowPage::new(resource, &seen, connect::is_quorum(&quorum.nodes()));
    Ok(ReleasePage { seen, forced: force, released, results })
}

/// Returns the number of nodes that answered and do not store `owner`.
fn without(seen: &Inspection, owner: &str) -> usize {
    let stored = seen.named.iter().find(|(stored, _)| stored.as_str() == owner);
    seen.answered - stored.map_or(0, |(_, nodes)| *nodes)
}

/// Enters a forced release in the audit list, and in the history of terms if the lock is a leadership.
async fn note(page: &ReleasePage, operator: &Operator, config: &Config) {
    let owners: Vec<&str> = page.seen.lock.owners.iter().map(|owner| owner.holder.as_str()).collect();
    let text = format!("the holder was {}", owners.join(", "));
    let result = if page.released { Ok(&*text) } else { Err("too few nodes released it") };
    let target = &page.seen.resource;
    let group = target.strip_prefix("election/");
    operator::note_anew(operator, config, &Entry { action: "forced-release", target, group: None, result })
        .await;
    let holder = page.seen.lock.owners.iter().find(|owner| owner.majority);
    if let (Some(group), Some(holder), true) = (group, holder, page.released) {
        let term = page.seen.lock.fencing_token.map(FencingToken::new);
        if let Err(failure) = note_term(group, &holder.holder, term, operator, config).await {
            log::say(&format!("quorate: the history of terms lacks this release: {failure}"));
        }
    }
}

async fn note_term(
    group: &str,
    holder: &str,
    term: Option<FencingToken>,
    operator: &Operator,
    config: &Config,
) -> Result<(), Failure> {
    let quorum = connect::quorum(config, config.settings.clone())?;
    let _ = quorum.ready(PATIENCE).await;
    let noted = match observer(&quorum, group) {
        Ok(observer) => observer
            .note_forced_release(holder, term, &operator.reason())
            .await
            .map_err(|error| Failure::new(NO_QUORUM, error)),
        Err(failure) => Err(failure),
    };
    quorum.close().await;
    noted
}

fn not_released_on(forced: &ForcedRelease) -> Vec<String> {
    let others =
        forced.report.outcomes().iter().filter(|(_, outcome)| !matches!(outcome, NodeOutcome::Granted));
    let text = |(name, outcome): &(std::sync::Arc<str>, NodeOutcome)| {
        format!("{name}: {}", connect::without_name(name, &outcome.to_string()))
    };
    others.map(text).collect()
}

impl ShowPage {
    fn new(resource: &Resource, seen: &Inspection, votes: bool) -> Self {
        Self { resource: resource.name().into_owned(), lock: LockView::new(seen, votes) }
    }

    fn for_people(&self) -> String {
        if self.lock.owners.is_empty() {
            let name = show::line(&self.resource, OWNER_MAX * 5);
            return format!(
                "{name}: no node stores a holder; its slots, if it has some: quorate locks list {name}\n"
            );
        }
        self.lock.owners.iter().map(|owner| self.line(owner)).collect()
    }

    fn line(&self, owner: &OwnerView) -> String {
        let left = match (owner.majority, self.lock.remaining) {
            (true, Some(left)) => format!(", for another {:.1} s", left.as_secs_f64()),
            (true, None) => ", without expiry (not by Quorate)".to_owned(),
            (false, _) => ", which is no majority".to_owned(),
        };
        let (token, resource) =
            (show::line(&owner.owner, OWNER_MAX), show::line(&self.resource, OWNER_MAX * 5));
        format!("{resource}: held by {} ({token}) on {} nodes{left}\n", owner.holder, owner.nodes)
    }
}

impl ReleasePage {
    fn for_people(&self) -> String {
        if self.seen.lock.owners.is_empty() {
            return self.seen.for_people();
        }
        if !self.forced {
            let lock = self.seen.for_people();
            return format!(
                "{lock}{WARNING}\nNothing was changed: --force releases the lock of the holder above.\n"
            );
        }
        let mut text = String::new();
        for (owner, result) in self.seen.lock.owners.iter().zip(&self.results) {
            text += &self.seen.line(owner);
            text += &format!("  released on {} nodes\n", result.released_on);
            for node in &result.not_released_on {
                text += &format!("  not released on {}\n", show::line(node, OWNER_MAX * 5));
            }
        }
        let is_final = self.results.iter().all(|result| result.r#final);
        text += match self.released {
            true if is_final && self.results.iter().any(|result| result.foreign) => {
                "released: a majority of the nodes no longer stores the holder, which cannot take the lock back unless its \
                 client, which is not Quorate, sets a missing key again when it extends (plain Redlock does not)\n"
            }
            true if is_final => {
                "released: a majority of the nodes no longer stores the holder, which cannot take the lock back\n"
            }
            true => {
                "released: a majority of the nodes no longer stores the holder; but a holder that still runs may take the lock \
                 back with its next extension, until another worker has held it\n"
            }
            false => {
                "NOT released: the holder is still stored, or too few nodes answered; run it again, or delete the key on \
                 the nodes\n"
            }
        };
        text
    }
}
