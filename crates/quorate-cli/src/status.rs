//! The command `quorate status`.

use crate::{
    args::StatusArgs,
    config::Config,
    connect::{self, PATIENCE},
    exit::{CONFIG, Failure, NO_QUORUM},
    show,
};
use quorate::{
    env::BootTime,
    internals::majority,
    lease::Inspection,
    node::{FencingToken, Resource},
    quorum::{NodeStatus, Quorum},
};
use serde::Serialize;
use std::time::Duration;

/// The longest name of a worker that is shown, in bytes.
const NAME_MAX: usize = 200;
/// The longest line that is shown, in bytes.
const TEXT_MAX: usize = 4_096;

/// The output of `status`.
#[derive(Debug, Serialize)]
struct Page {
    prefix: String,
    nodes_from: String,
    quorum: bool,
    nodes: Vec<NodeLine>,
    resources: Vec<ResourceLine>,
}

#[derive(Debug, Serialize)]
struct NodeLine {
    name: String,
    reachable: bool,
    trusted: bool,
    reason: Option<String>,
    votes_in_ms: Option<u64>,
    version: Option<String>,
    round_trip_ms: Option<f64>,
}

#[derive(Debug, Serialize)]
struct ResourceLine {
    resource: String,
    held: Option<bool>,
    holder: Option<String>,
    owner: Option<String>,
    /// The successor for which a transfer has reserved the lease.
    reserved_for: Option<String>,
    remaining_ms: Option<u64>,
    fencing_token: Option<u64>,
    done: Option<String>,
    error: Option<String>,
}

/// Shows the nodes and the requested resources. The exit status reports whether a majority votes.
pub(crate) async fn status(args: &StatusArgs, config: &Config) -> Result<u8, Failure> {
    let resources = resources(&args.resources, config)?;
    let quorum = connect::only_looking(config)?;
    quorum.met(PATIENCE).await;
    let page = Page::read(&quorum, config, &resources).await;
    quorum.close().await;
    show::print_page(args.json, &page, || page.for_people())?;
    Ok(if page.quorum { 0 } else { NO_QUORUM })
}

/// Returns the JSON document that the command prints with `--json`. Without names of resources, it shows the group
/// of the configuration.
pub(crate) async fn json(quorum: &Quorum, config: &Config, names: &[String]) -> Result<String, Failure> {
    let resources = resources(names, config)?;
    show::json(&Page::read(quorum, config, &resources).await)
}

/// Returns the resource of a name on the command line: a lock, `election/GROUP` or `claim/SET/ID`.
pub(crate) fn resource(name: &str) -> Result<Resource, Failure> {
    let parsed = match (name.strip_prefix("election/"), name.strip_prefix("claim/")) {
        (Some(group), _) => Resource::election(group),
        (None, Some(claim)) => {
            let (set, id) = claim.split_once('/').unwrap_or((claim, ""));
            Resource::claim(set, id)
        }
        (None, None) => Resource::lock(name),
    };
    parsed.map_err(|error| Failure::new(CONFIG, error))
}

fn resources(names: &[String], config: &Config) -> Result<Vec<Resource>, Failure> {
    match (&config.group, names.is_empty()) {
        (Some(group), true) => {
            Ok(vec![Resource::election(group).map_err(|error| Failure::new(CONFIG, error))?])
        }
        _ => names.iter().map(|name| resource(name)).collect(),
    }
}

fn line(node: &NodeStatus, now: BootTime) -> NodeLine {
    NodeLine {
        name: node.name.to_string(),
        reachable: !node.is_away(),
        trusted: node.votes(),
        reason: node.reason(),
        votes_in_ms: node.quarantined_until().map(|until| millis(now.until(until))),
        version: node.version.as_ref().map(ToString::to_string),
        round_trip_ms: node.round_trip.map(|time| (time.as_secs_f64() * 1e6).round() / 1e3),
    }
}

async fn look(quorum: &Quorum, resource: &Resource) -> ResourceLine {
    let mut line = ResourceLine {
        resource: resource.key().to_owned(),
        held: None,
        holder: None,
        owner: None,
        reserved_for: None,
        remaining_ms: None,
        fencing_token: None,
        done: None,
        error: None,
    };
    match quorum.inspect(resource).await {
        Ok(Inspection { holder, remaining, contended, token, done, .. }) => {
            // If `contended` is true, only a minority of the nodes stores an owner. Then it is not known
            // whether the lock is held.
            line.held = (!contended).then_some(holder.is_some());
            line.fencing_token = token.map(FencingToken::get);
            line.done = done.map(|done| done.result.to_string());
            if let Some(holder) = holder {
                line.holder = Some(holder.worker().to_owned());
                line.reserved_for = holder.reserved_for().map(ToOwned::to_owned);
                line.owner = Some(holder.as_str().to_owned());
                line.remaining_ms = remaining.map(millis);
            }
        }
        Err(error) => line.error = Some(error.to_string()),
    }
    line
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Page {
    async fn read(quorum: &Quorum, config: &Config, resources: &[Resource]) -> Self {
        let (nodes, now) = (quorum.nodes(), quorum.env().now());
        let mut page = Self {
            prefix: config.prefix.to_string(),
            nodes_from: config.nodes_from.to_string(),
            quorum: connect::is_quorum(&nodes),
            nodes: nodes.iter().map(|node| line(node, now)).collect(),
            resources: Vec::new(),
        };
        for resource in resources {
            page.resources.push(look(quorum, resource).await);
        }
        page
    }

    fn for_people(&self) -> String {
        let mut text = String::new();
        let trusted = self.nodes.iter().filter(|node| node.trusted).count();
        text += &format!(
            "{} of {} nodes vote, {} required: {} (nodes from {}, prefix {:?})\n",
            trusted,
            self.nodes.len(),
            majority(self.nodes.len()),
            if self.quorum { "a quorum" } else { "NO QUORUM" },
            self.nodes_from,
            self.prefix
        );
        let widest = self.nodes.iter().map(|node| node.name.len()).max().unwrap_or_default();
        for node in &self.nodes {
            let version = node.version.as_deref().unwrap_or("-");
            let trip = node.round_trip_ms.map_or("-".to_owned(), |ms| format!("{ms:.2} ms"));
            let state = match &node.reason {
                None => "votes".to_owned(),
                Some(reason) if node.reachable => format!("does not vote: {reason}"),
                Some(reason) => reason.clone(),
            };
            let (version, state) = (show::line(version, NAME_MAX), show::line(&state, TEXT_MAX));
            text += &format!("  {:widest$}  {version:8}  {trip:>9}  {state}\n", node.name);
        }
        for resource in &self.resources {
            let resource = format!("{}: {}", resource.resource, resource.for_people());
            text += &(show::line(&resource, TEXT_MAX) + "\n");
        }
        text
    }
}

impl ResourceLine {
    fn for_people(&self) -> String {
        if let Some(error) = &self.error {
            return error.clone();
        }
        let token = self.fencing_token.map_or("none yet".to_owned(), |token| token.to_string());
        if let Some(result) = &self.done {
            return format!("done, result {:?}, fencing token {token}", show::line(result, TEXT_MAX / 2));
        }
        match (&self.holder, self.remaining_ms) {
            (Some(_), Some(ms)) if self.reserved_for.is_some() => {
                let successor = show::line(self.reserved_for.as_deref().unwrap_or_default(), NAME_MAX);
                let left = ms as f64 / 1e3;
                format!("reserved for {successor} for another {left:.1} s, last fencing token {token}")
            }
            (Some(holder), Some(ms)) => {
                let holder = show::line(holder, NAME_MAX);
                format!("held by {holder} for another {:.1} s, fencing token {token}", ms as f64 / 1e3)
            }
            (Some(holder), None) => {
                format!("held by {} without expiry (not by Quorate)", show::line(holder, NAME_MAX))
            }
            (None, _) if self.held.is_none() => format!(
                "only a minority of the nodes stores a holder: it is being acquired, or too few nodes answered; last \
                 fencing token {token}"
            ),
            (None, _) if self.fencing_token.is_none() => "free, never held".to_owned(),
            (None, _) => format!("free, last fencing token {token}"),
        }
    }
}
