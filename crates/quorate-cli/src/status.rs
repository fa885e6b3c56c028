//! The command `quorate status`.

use crate::{
    args::StatusArgs,
    config::{Config, NodeSpec},
    connect,
    exit::{CONFIG, Failure, NO_QUORUM},
    jobs,
    node_memory::{self, NodeMemory},
    show,
    table::{Cell, table},
    terminal::Tone,
};
use quorate::{
    env::BootTime,
    internals::{GroupOverview, majority},
    ledger::{CopyAtNode, CopyState, LedgerCopies},
    node::{Resource, ResourceKind},
    quorum::{NodeStatus, Quorum},
};
use quorate_operator::view::{LockView, NodeView};
use schemars::JsonSchema;
use serde::Serialize;

/// The longest line that is shown, in bytes.
const TEXT_MAX: usize = 4_096;

/// The output of `status`.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Status")]
pub(crate) struct Page {
    prefix: String,
    nodes_from: String,
    quorum: bool,
    nodes: Vec<NodeLine>,
    resources: Vec<ResourceLine>,
}

/// A node, with a text for each incomplete copy that it has of the ledger of a group that is shown.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "NodeStatus")]
pub(crate) struct NodeLine {
    #[serde(flatten)]
    pub(crate) node: NodeView,
    #[serde(skip)]
    pub(crate) copies: Vec<String>,
}

/// A resource and its holder.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Resource")]
struct ResourceLine {
    resource: String,
    #[serde(flatten)]
    lock: LockView,
    /// The freeze of the group's jobs, if the resource is the leadership of a frozen group.
    frozen: Option<String>,
    /// The copies that the nodes have of the records of the group's jobs, if the resource is the leadership of a group that has
    /// such records.
    copies: Option<Vec<CopyLine>>,
    #[serde(skip)]
    ledger: Option<LedgerCopies>,
    error: Option<String>,
    /// The memory that the nodes have of the leadership, one text for each node that remembers a term. Only without a quorum.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(skip)]
    remembered: Vec<String>,
    /// The resource that was probably meant.
    #[serde(skip)]
    hint: Option<String>,
}

/// A node's copy of the records of a group's jobs.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Copy")]
pub(crate) struct CopyLine {
    node: String,
    state: &'static str,
    /// The number of records that an incomplete copy has, of those of the complete copies. `null` if they were not counted.
    records: Option<usize>,
    of: Option<usize>,
}

/// Shows the nodes and the requested resources. The exit status reports whether a majority votes.
pub(crate) async fn status(args: &StatusArgs, config: &Config) -> Result<u8, Failure> {
    let resources = resources(&args.resources, config)?;
    let quorum = connect::only_looking(config)?;
    connect::meet(&quorum).await;
    let mut page = Page::read(&quorum, config, &resources).await;
    let advice = page.advise(&quorum, config, &resources).await;
    quorum.close().await;
    advice?;
    show::print_page(args.json, &page, || page.for_people())?;
    Ok(if page.quorum { 0 } else { NO_QUORUM })
}

/// Returns the JSON document that the command prints with `--json`. If `names` is empty, the document contains
/// the group of the configuration.
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

/// Asks the nodes for the holder of the resource.
async fn look(quorum: &Quorum, resource: &Resource) -> ResourceLine {
    let (lock, error) = match quorum.inspect(resource).await {
        Ok(seen) => (LockView::new(&seen, connect::is_quorum(&quorum.nodes())), None),
        Err(error) => (LockView::unread(), Some(error.to_string())),
    };
    let mut line = ResourceLine {
        resource: resource.name().into_owned(),
        lock,
        frozen: None,
        copies: None,
        ledger: None,
        error,
        remembered: Vec::new(),
        hint: None,
    };
    if let Some(group) = resource.key().strip_prefix("election/") {
        let GroupOverview { frozen, copies, .. } = jobs::overview(quorum, group).await;
        line.frozen = frozen.as_ref().map(jobs::freeze_for_people);
        line.copies = copies.as_ref().map(|copies| copies.nodes().iter().map(CopyLine::new).collect());
        line.ledger = copies;
    }
    line
}

/// Returns what each node remembers of the leadership of `group`.
async fn remembered(config: &Config, group: &str) -> Result<Vec<String>, Failure> {
    let memories = node_memory::of_each(config, Some(group)).await?;
    let named = |(node, memory): (&NodeSpec, Result<NodeMemory, String>)| {
        let leadership = memory.ok()?.leadership()?;
        Some(format!("{}: {leadership}", node.name()))
    };
    Ok(config.nodes.iter().zip(memories).filter_map(named).collect())
}

/// Returns a hint if the group of the configuration, or a group with a leader, has the name of an unused lock.
async fn group_hint(quorum: &Quorum, config: &Config, name: &str) -> Option<String> {
    let leadership = Resource::election(name).ok()?;
    let is_led =
        quorum.inspect(&leadership).await.is_ok_and(|seen| seen.holder.is_some() || seen.token.is_some());
    match (is_led, config.group.as_deref() == Some(name)) {
        (false, false) => None,
        _ => Some(format!(
            "this is the lock {name}; for the leadership of the group: quorate status election/{name}"
        )),
    }
}

impl Page {
    async fn read(quorum: &Quorum, config: &Config, resources: &[Resource]) -> Self {
        let (nodes, now) = (quorum.nodes(), quorum.env().now());
        let mut page = Self {
            prefix: config.prefix.to_string(),
            nodes_from: config.nodes_from.to_string(),
            quorum: connect::is_quorum(&nodes),
            nodes: nodes.iter().map(|node| NodeLine::new(node, now)).collect(),
            resources: Vec::new(),
        };
        for resource in resources {
            let line = look(quorum, resource).await;
            if let Some(copies) = &line.ledger {
                page.nodes.iter_mut().zip(copies.nodes()).for_each(|(node, copy)| {
                    node.note_copy(&line.resource, copy);
                });
            }
            page.resources.push(line);
        }
        page
    }

    /// Adds what each node remembers, if no majority votes, and a hint to each lock that has the name of a group.
    async fn advise(
        &mut self,
        quorum: &Quorum,
        config: &Config,
        resources: &[Resource],
    ) -> Result<(), Failure> {
        for (line, resource) in self.resources.iter_mut().zip(resources) {
            match resource.key().strip_prefix("election/") {
                Some(group) if !self.quorum => line.remembered = remembered(config, group).await?,
                None if line.is_unused() && resource.kind() == ResourceKind::Lock => {
                    line.hint = group_hint(quorum, config, resource.key()).await;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn for_people(&self) -> String {
        let mut text = String::new();
        let trusted = self.nodes.iter().filter(|line| line.node.votes).count();
        text += &format!(
            "{} of {} nodes vote, {} required: {} (nodes from {}, prefix {:?})\n",
            trusted,
            self.nodes.len(),
            majority(self.nodes.len()),
            if self.quorum { "a quorum".to_owned() } else { Tone::Trouble.paint("NO QUORUM") },
            self.nodes_from,
            self.prefix
        );
        let rows: Vec<[Cell; 4]> = self.nodes.iter().map(NodeLine::row).collect();
        text += &table(["NODE", "VERSION", "ROUND TRIP", "STATE"], &rows);
        for resource in &self.resources {
            let line = format!("{}: {}", resource.resource, resource.for_people());
            text += &(show::line(&line, TEXT_MAX) + "\n");
            for more in resource.remembered.iter().chain(&resource.hint) {
                text += &(show::line(&format!("  {more}"), TEXT_MAX) + "\n");
            }
            if let Some(frozen) = &resource.frozen {
                text += &(show::line(&format!("  its jobs are frozen {frozen}"), TEXT_MAX) + "\n");
            }
            if let Some(copies) = &resource.ledger {
                let (complete, all) = (copies.complete(), copies.nodes().len());
                text += &format!("  the records of its jobs: {complete} of {all} copies are complete\n");
                for line in copies.waiting().iter().flat_map(|waiting| [&*waiting.why, waiting.fix]) {
                    text += &(Tone::Trouble.paint(&show::line(&format!("  {line}"), TEXT_MAX)) + "\n");
                }
            }
        }
        text
    }
}

impl NodeLine {
    fn new(node: &NodeStatus, now: BootTime) -> Self {
        Self { node: NodeView::new(node, now), copies: Vec::new() }
    }

    fn row(&self) -> [Cell; 4] {
        let (node, (state, tone)) = (&self.node, self.state());
        [
            (&node.name).into(),
            node.version_text().into(),
            NodeView::time_text(node.round_trip).into(),
            Cell::new(state, tone),
        ]
    }

    /// Notes the copy that the node has of the ledger of the group with this leadership, if it is incomplete.
    pub(crate) fn note_copy(&mut self, leadership: &str, copy: &CopyAtNode) {
        if let CopyState::Incomplete(_) = copy.state {
            let group = leadership.strip_prefix("election/").unwrap_or(leadership);
            self.copies.push(format!("copy of {group}: {}", copy.state));
        }
    }

    /// Returns whether the node votes, and if not, the reason. For a node that votes, names its incomplete copies.
    pub(crate) fn state(&self) -> (String, Tone) {
        let state = self.node.state_text();
        match self.node.votes {
            true if self.copies.is_empty() => (state, Tone::Plain),
            true => (show::line(&format!("{state}; {}", self.copies.join("; ")), TEXT_MAX), Tone::Caution),
            false if self.node.reachable => (state, Tone::Caution),
            false => (state, Tone::Trouble),
        }
    }
}

impl CopyLine {
    fn new(copy: &CopyAtNode) -> Self {
        let (state, copied) = match copy.state {
            CopyState::Unknown => ("unknown", None),
            CopyState::Incomplete(copied) => ("incomplete", copied),
            CopyState::Complete => ("complete", None),
        };
        let (records, of) = copied.map(|copied| (copied.records, copied.of)).unzip();
        Self { node: copy.node.to_string(), state, records, of }
    }
}

impl ResourceLine {
    /// Returns whether the nodes know nothing of the resource.
    fn is_unused(&self) -> bool {
        self.error.is_none() && self.lock.is_unused()
    }

    fn for_people(&self) -> String {
        match &self.error {
            Some(error) => format!("unknown: {error}"),
            None => self.lock.for_people(),
        }
    }
}
