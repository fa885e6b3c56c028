//! `quorate run --check`: says what the file means.

use crate::config::{Config, JobConfig};
use quorate::{env::Env, round::Setup};

/// Prints it; the exit status.
pub(super) fn check(config: &Config, group: &str, jobs: &[JobConfig]) -> u8 {
    println!(
        "group {group}, lease of {:?}, {} nodes from {}",
        config.lease.ttl,
        config.nodes.len(),
        config.nodes_from
    );
    for node in &config.nodes {
        println!("  {node}");
    }
    if let Some(advice) = Setup::advice(config.nodes.len()) {
        println!("  WARNING: {advice}");
    }
    let now = Env::system().wall();
    for job in jobs {
        let next = job.schedule.next_after(now).map_or("never".to_owned(), |at| job.schedule.show(at));
        println!(
            "job {}: {}, {}, next {next}: {}",
            job.name,
            job.schedule,
            job.delivery,
            job.command.join(" ")
        );
    }
    0
}
