//! `quorate unlock`.

use crate::{
    args::UnlockArgs,
    config::Config,
    connect,
    exit::{Failure, NO_QUORUM, NOTHING},
    log, show,
    status::{PATIENCE, resource},
};
use quorate::{
    admin::ForcedRelease,
    node::{Owner, Resource},
    plain::plain,
    quorum::{NodeOutcome, Quorum, QuorumConfig},
};
use serde::Serialize;

/// The most bytes of an owner token that are shown.
const OWNER_MAX: usize = 200;

const WARNING: &str = "\
WARNING: the holder is not told. It believes in its lease until its next extension, and until then two may act at
once. Fencing tokens protect only sinks that check them. A living leader is asked: quorate lead resign.";

/// What `unlock` tells.
#[derive(Debug, Serialize)]
struct Page {
    resource: String,
    /// Every owner that any node named.
    owners: Vec<OwnerLine>,
    fencing_token: Option<u64>,
    forced: bool,
    /// Whether a majority of nodes is rid of all of them.
    unlocked: bool,
}

#[derive(Debug, Serialize)]
struct OwnerLine {
    holder: String,
    owner: String,
    /// By how many nodes it was named.
    nodes: usize,
    /// Whether that is a majority: then it held the lock.
    majority: bool,
    remaining_ms: Option<u64>,
    freed: usize,
    not_freed: Vec<String>,
}

/// Shows who holds it, and with `--force` takes it away from them, and from nobody else.
pub(crate) async fn unlock(args: &UnlockArgs, config: &Config) -> Result<u8, Failure> {
    let resource = resource(&args.name)?;
    // Looks and releases need no vote: nothing is marked.
    let quorum = connect::quorum(config, QuorumConfig { only_looks: true, ..config.setup.clone() })?;
    quorum.met(PATIENCE).await;
    let done = look_and_unlock(args, &quorum, &resource).await;
    let nodes = quorum.nodes();
    quorum.close().await;
    let page = done.ok_or_else(|| Failure::new(NO_QUORUM, connect::explain(&nodes)))?;
    let code = match (page.unlocked, page.forced && !page.owners.is_empty()) {
        (true, _) => 0,
        (false, true) => NO_QUORUM,
        (false, false) => NOTHING,
    };
    let text = if args.json { show::json(&page)? } else { page.for_people() };
    show::print(&text);
    Ok(code)
}

/// `None` where too few nodes answered.
async fn look_and_unlock(args: &UnlockArgs, quorum: &Quorum, resource: &Resource) -> Option<Page> {
    let seen = quorum.inspect(resource).await.ok()?;
    let holder = seen.holder.as_ref();
    let mut owners: Vec<OwnerLine> = Vec::new();
    let mut unlocked = args.force && !seen.named.is_empty();
    if args.force && !seen.named.is_empty() {
        log::say(&format!("quorate: {WARNING}"));
    }
    for (owner, nodes) in &seen.named {
        let majority = holder.is_some_and(|holder| holder.owner == *owner);
        let mut line = OwnerLine {
            holder: name_of(owner),
            owner: owner.as_str().to_owned(),
            nodes: *nodes,
            majority,
            remaining_ms: holder.filter(|_| majority).and_then(|holder| {
                holder.remaining.map(|left| u64::try_from(left.as_millis()).unwrap_or(u64::MAX))
            }),
            freed: 0,
            not_freed: Vec::new(),
        };
        if args.force {
            let forced = quorum.force_release(resource, owner).await;
            unlocked &= forced.is_clear();
            line.freed = forced.freed;
            line.not_freed = not_freed(&forced);
        }
        owners.push(line);
    }
    if unlocked {
        // A token that is no text is not compared as what was shown. Whoever cannot be seen may stand.
        unlocked = quorum.inspect(resource).await.is_ok_and(|after| {
            let stands = |(owner, _): &(Owner, usize)| after.named.iter().any(|(now, _)| now == owner);
            !seen.named.iter().any(stands)
        });
    }
    Some(Page {
        resource: resource.key().to_owned(),
        owners,
        fencing_token: seen.token.map(quorate::node::FencingToken::get),
        forced: args.force,
        unlocked,
    })
}

fn not_freed(forced: &ForcedRelease) -> Vec<String> {
    let silent = forced.report.nodes.iter().filter(|(_, said)| !matches!(said, NodeOutcome::Granted));
    silent.map(|(name, said)| format!("{name}: {said}")).collect()
}

fn name_of(owner: &Owner) -> String {
    match owner.reserved_for() {
        Some(heir) => format!("nobody, kept for {}", plain(heir, OWNER_MAX)),
        None => plain(owner.worker(), OWNER_MAX),
    }
}

impl Page {
    fn for_people(&self) -> String {
        if self.owners.is_empty() {
            return format!("{}: nobody holds it\n", show::line(&self.resource, OWNER_MAX * 5));
        }
        let mut text = String::new();
        for line in &self.owners {
            let left = match (line.majority, line.remaining_ms) {
                (true, Some(ms)) => format!(", for {:.1} s yet", ms as f64 / 1e3),
                (true, None) => ", without an end (not by Quorate)".to_owned(),
                (false, _) => ", which is no majority".to_owned(),
            };
            let (owner, resource) =
                (show::line(&line.owner, OWNER_MAX), show::line(&self.resource, OWNER_MAX * 5));
            text += &format!("{resource}: held by {} ({owner}) on {} nodes{left}\n", line.holder, line.nodes);
            if self.forced {
                text += &format!("  freed on {} nodes\n", line.freed);
            }
            for node in &line.not_freed {
                text += &format!("  not freed on {}\n", show::line(node, OWNER_MAX * 5));
            }
        }
        text += &match (self.forced, self.unlocked) {
            (false, _) => format!("{WARNING}\nNothing was done: --force takes it away from the holder above.\n"),
            (true, true) => "unlocked: a majority of nodes is rid of it\n".to_owned(),
            (true, false) => {
                "NOT unlocked: it stands on, or too few nodes answered; run it again, or delete the key there\n"
                    .to_owned()
            }
        };
        text
    }
}
