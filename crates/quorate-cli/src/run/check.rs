//! The command `quorate run --check`, which checks the configuration file and prints what it means.

use crate::{
    config::{Background, Config, JobConfig},
    exit::Failure,
    files, show,
};
use quorate::{env::Env, quorum::QuorumConfig};

/// The longest line, in bytes.
const LINE_MAX: usize = 8 * 1024;

/// Checks the files of the nodes, prints the nodes and the jobs, and returns the exit status.
pub(super) fn check(config: &Config, group: &str, jobs: &[JobConfig]) -> Result<u8, Failure> {
    config.check_node_files(&files::read)?;
    let line = |text: &str| show::print(&(show::line(text, LINE_MAX) + "\n"));
    let (ttl, nodes, from) = (config.lease.ttl, config.nodes.len(), &config.nodes_from);
    line(&format!("group {group}, lease of {ttl:?}, {nodes} nodes from {from}"))?;
    for node in &config.nodes {
        line(&format!("  {node}"))?;
    }
    if let Some(advice) = QuorumConfig::advice(config.nodes.len()) {
        line(&format!("  WARNING: {advice}"))?;
    }
    for warning in config.warnings() {
        line(&format!("  WARNING: {warning}"))?;
    }
    if let Some(otlp) = &config.otlp {
        line(&format!("traces and metrics to {otlp}, every {:?}", otlp.every))?;
    }
    for notify in &config.notify {
        let on: Vec<_> = notify.on.iter().map(|event| event.as_str()).collect();
        line(&format!("{}: {} to {}", notify.name, on.join(", "), notify.to))?;
    }
    let now = Env::system().wall();
    for job in jobs {
        let next = job.schedule.next_after(now).map_or("never".to_owned(), |at| job.schedule.format(at));
        let schedule = &job.schedule;
        let command = job.http.as_ref().map_or_else(|| job.command.join(" "), ToString::to_string);
        line(&format!("job {}: {schedule}, {}, next {next}: {command}", job.name, job.rules.delivery))?;
        if job.background == Background::Leave {
            line("  processes that it leaves in the background run on, and no lease covers them")?;
        }
    }
    Ok(0)
}
