//! `quorate doctor`: looks at a set of nodes the way an experienced operator would.
//!
//! # What is not guaranteed
//!
//! It sees one moment, from one machine. It writes nothing to the nodes, so that it cannot tell what only a
//! write would show (a full disk that no write has met yet). That servers have different run ids says that
//! they are different processes, not that they have power, disks and networks of their own.

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
    show,
};
use finding::{Finding, Weight};
use futures_util::future::join_all;
use node_report::{Body, Examined, NodeReport, Patient, SecretFile};
use quorate::{
    env::Env,
    node::Cause,
    quorum::{NodeStatus, QuorumConfig},
};
use serde::Serialize;
use std::{collections::BTreeMap, os::unix::fs::MetadataExt, path::PathBuf, time::Duration};

/// How long a node may take to answer all that it is asked.
const PATIENCE: Duration = Duration::from_secs(3);

/// The most bytes of a finding that are shown.
const LINE_MAX: usize = 8 * 1024;

#[derive(Debug, Serialize)]
struct Page<'a> {
    prefix: &'a str,
    nodes_from: String,
    nodes: Vec<&'a str>,
    findings: &'a [Finding],
}

/// Examines the nodes and tells what it finds; the exit status is the worst finding's.
pub(crate) async fn doctor(args: &DoctorArgs, config: &Config) -> Result<u8, Failure> {
    let quorum = connect::quorum(config, QuorumConfig { only_looks: true, ..config.setup.clone() })?;
    let env = quorum.env().clone();
    let (stands, bodies) = futures_util::join!(
        quorum.met(PATIENCE),
        join_all(config.nodes.iter().map(|spec| body(&env, config, spec)))
    );
    quorum.close().await;
    let patient = |(status, body): (NodeStatus, Result<Body, Failure>)| {
        Ok(Patient { name: status.name.to_string(), state: status.state, body: body? })
    };
    let patients: Result<Vec<Patient>, Failure> = stands.into_iter().zip(bodies).map(patient).collect();
    let node_report = NodeReport {
        setup: config.setup.clone(),
        ttl: config.lease.ttl,
        prefix: config.prefix.clone(),
        patients: patients?,
        secrets: secrets(config),
    };
    let findings = checks::findings(&node_report);
    let text = if args.json {
        json(config, &node_report, &findings)?
    } else {
        for_people(config, &node_report, &findings)
    };
    show::print(&text);
    Ok(match findings.first().map(|finding| finding.weight) {
        Some(Weight::Critical) => 2,
        Some(Weight::Warning) => 1,
        _ => 0,
    })
}

async fn body(env: &Env, config: &Config, spec: &NodeSpec) -> Result<Body, Failure> {
    let NodeSpec::Redis { url, password_file, tls } = spec else { return Ok(Body::Directory) };
    let redis = connect::redis(config, url, password_file.as_deref(), tls)?;
    let told = env.before(env.now() + PATIENCE, redis.examine()).await.unwrap_or(Err(Cause::TimedOut));
    Ok(Body::Redis(told.map(|told| Box::new(Examined::new(told, env.wall(), env.now().as_nanos())))))
}

/// The files with passwords and keys that the nodes need, as far as they exist.
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
        prefix: &node_report.prefix,
        nodes_from: config.nodes_from.to_string(),
        nodes: node_report.patients.iter().map(|patient| &*patient.name).collect(),
        findings,
    };
    show::json(&page)
}

fn for_people(config: &Config, node_report: &NodeReport, findings: &[Finding]) -> String {
    let mut text = format!(
        "{} nodes from {}, prefix {:?}: {}\n",
        node_report.patients.len(),
        config.nodes_from,
        node_report.prefix,
        match findings.len() {
            0 => "nothing found".to_owned(),
            count => format!("{count} findings, the gravest first"),
        }
    );
    for Finding { weight, node, what, mend } in findings {
        let node = node.as_deref().map_or(String::new(), |node| format!("{node}: "));
        let (what, mend) = (show::line(what, LINE_MAX), show::line(mend, LINE_MAX));
        text += &format!("{weight:7}  {node}{what}\n         mend: {mend}\n");
    }
    text
}
