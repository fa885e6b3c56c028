//! `quorate doctor`: examines a set of nodes as an experienced operator would.
//!
//! # What is not guaranteed
//!
//! The doctor examines the nodes at one moment, from one machine. It writes nothing to the nodes. So it
//! cannot find problems that only a write would show, such as a full disk to which no data has been written
//! yet. Different run ids show that servers are different processes, not that they have separate power, disks
//! and networks.

mod checks;
mod finding;
mod node_report;
#[cfg(test)]
mod tests;

use crate::{
    args::DoctorArgs,
    config::{Config, NodeSpec},
    connect,
    exit::Failure,
    jobs, show,
    table::{Cell, grid},
};
use futures_util::future::join_all;
use node_report::{Examined, ExaminedNode, NodeKind, NodeReport, SecretFile};
use quorate::{env::Env, internals::GroupOverview, node::Cause, quorum::NodeStatus, scheduler::Zone};
use quorate_operator::state::{Finding, Severity};
use serde::Serialize;
use std::{collections::BTreeMap, os::unix::fs::MetadataExt, path::PathBuf, time::Duration};

/// The longest time in which a node must answer all requests.
const PATIENCE: Duration = Duration::from_secs(3);

#[derive(Debug, Serialize)]
struct Page<'a> {
    version: &'static str,
    time_zone_tables: &'static str,
    prefix: &'a str,
    nodes_from: String,
    nodes: Vec<&'a str>,
    findings: &'a [Finding],
}

/// Examines the nodes and prints the findings. The exit status is that of the worst finding.
pub(crate) async fn doctor(args: &DoctorArgs, config: &Config) -> Result<u8, Failure> {
    let quorum = connect::only_looking(config)?;
    let env = quorum.env().clone();
    let (statuses, kinds) = futures_util::join!(
        connect::meet(&quorum),
        join_all(config.nodes.iter().map(|spec| examine(&env, config, spec)))
    );
    let overview = match config.group.as_deref() {
        Some(group) => jobs::overview_of_jobs(&quorum, group).await,
        None => GroupOverview::default(),
    };
    quorum.close().await;
    let node = |(status, kind): (NodeStatus, Result<NodeKind, Failure>)| {
        Ok(ExaminedNode { name: status.name.to_string(), state: status.state, kind: kind? })
    };
    let nodes: Result<Vec<ExaminedNode>, Failure> = statuses.into_iter().zip(kinds).map(node).collect();
    let node_report = NodeReport {
        settings: config.settings.clone(),
        ttl: config.lease.ttl,
        prefix: config.prefix.clone(),
        nodes: nodes?,
        copies: overview.copies,
        waiting: overview.waiting,
        secrets: secrets(config),
    };
    let findings = checks::findings(&node_report);
    let text = if args.json {
        json(config, &node_report, &findings)?
    } else {
        for_people(config, &node_report, &findings)
    };
    show::print(&text)?;
    Ok(match findings.first().map(|finding| finding.severity) {
        Some(Severity::Critical) => 2,
        Some(Severity::Warning) => 1,
        _ => 0,
    })
}

/// Examines the nodes for a program that runs on. Returns the findings, and the memory that each server uses. The files
/// with secrets and the copies of the ledger are not looked at.
pub(crate) async fn examination(
    env: &Env,
    config: &Config,
    statuses: &[NodeStatus],
) -> Result<(Vec<Finding>, Vec<Option<u64>>), Failure> {
    let kinds = join_all(config.nodes.iter().map(|spec| examine(env, config, spec))).await;
    let (mut nodes, mut memory) = (Vec::new(), Vec::new());
    for (status, kind) in statuses.iter().zip(kinds) {
        let kind = kind?;
        memory.push(match &kind {
            NodeKind::Redis(Ok(examined)) => examined.number("used_memory"),
            _ => None,
        });
        nodes.push(ExaminedNode { name: status.name.to_string(), state: status.state.clone(), kind });
    }
    let node_report = NodeReport {
        settings: config.settings.clone(),
        ttl: config.lease.ttl,
        prefix: config.prefix.clone(),
        nodes,
        copies: None,
        waiting: Vec::new(),
        secrets: BTreeMap::new(),
    };
    Ok((checks::findings(&node_report), memory))
}

async fn examine(env: &Env, config: &Config, spec: &NodeSpec) -> Result<NodeKind, Failure> {
    let NodeSpec::Redis { url, password_file, tls } = spec else { return Ok(NodeKind::Directory) };
    let redis = connect::redis(config, url, password_file.as_deref(), tls)?;
    let examination = env.before(env.now() + PATIENCE, redis.examine()).await.unwrap_or(Err(Cause::TimedOut));
    Ok(NodeKind::Redis(
        examination.map(|examination| Box::new(Examined::new(examination, env.wall(), env.now().as_nanos()))),
    ))
}

/// Returns the files with passwords and keys that the nodes need, as far as they exist.
fn secrets(config: &Config) -> BTreeMap<PathBuf, SecretFile> {
    let mut files = BTreeMap::new();
    let mut add = |key: &'static str, path: PathBuf| {
        if let Ok(meta) = std::fs::metadata(&path) {
            files.insert(path, SecretFile { key, mode: meta.mode() & 0o7777 });
        }
    };
    for node in &config.nodes {
        let NodeSpec::Redis { url, password_file, tls } = node else { continue };
        if let Some(file) = password_file {
            add("password_file", file.clone());
        }
        if let Some((_, key)) = tls.or(&config.tls).client.filter(|_| url.is_tls()) {
            add("key_file", key);
        }
    }
    files
}

fn json(config: &Config, node_report: &NodeReport, findings: &[Finding]) -> Result<String, Failure> {
    let page = Page {
        version: env!("CARGO_PKG_VERSION"),
        time_zone_tables: Zone::tables_version(),
        prefix: &node_report.prefix,
        nodes_from: config.nodes_from.to_string(),
        nodes: node_report.nodes.iter().map(|node| &*node.name).collect(),
        findings,
    };
    show::json(&page)
}

fn for_people(config: &Config, node_report: &NodeReport, findings: &[Finding]) -> String {
    let text = format!(
        "quorate {}, time zone tables {}\n{} nodes from {}, prefix {:?}: {}\n",
        env!("CARGO_PKG_VERSION"),
        Zone::tables_version(),
        node_report.nodes.len(),
        config.nodes_from,
        node_report.prefix,
        match findings.len() {
            0 => "nothing found".to_owned(),
            1 => "1 finding".to_owned(),
            count => format!("{count} findings, the most severe first"),
        }
    );
    let rows: Vec<[Cell; 2]> = findings.iter().flat_map(finding::rows).collect();
    text + &grid(0, &rows)
}
