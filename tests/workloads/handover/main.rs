//! Hands one lease round between contenders on real servers of its own, and prints how long each hand-over took.
//!
//! `handover MODE CONTENDERS ROUNDS`, where MODE is `tasks` (of one quorum), `quorums` (of one process),
//! `processes`, or `leaders` (elections, one process each).
//!
//! A hand-over is timed from just before the holder's release to the return of the next acquire, by somebody who had
//! waited for at least [`WAITED`]. Everyone reads one machine's boot clock.

#![expect(clippy::expect_used, clippy::panic, reason = "a program for measuring")]

mod contender;
mod report;

use quorate_testkit::redis::RedisCluster;
use report::{Report, Turn};
use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    time::Duration,
};

/// How many servers there are.
const NODES: usize = 5;
/// How long one holds.
const HOLD: Duration = Duration::from_millis(8);
/// How long one that held stays away, so that another's turn comes.
const AWAY: Duration = Duration::from_millis(2);
/// Who has waited for less had not begun to listen when the release came.
const WAITED: Duration = Duration::from_millis(3);

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words[..] {
        ["contender", nodes, mode, rounds] => contender::run_alone(nodes, mode, number(rounds)),
        [mode @ ("tasks" | "quorums" | "processes" | "leaders"), contenders, rounds] => {
            let cluster = RedisCluster::start(NODES).unwrap_or_else(|error| panic!("{error}"));
            let nodes = cluster.urls().join(",");
            let before = commands(&cluster);
            let (contenders, rounds) = (number(contenders), number(rounds));
            let turns = match mode {
                "tasks" => contender::run_together(&nodes, contenders, rounds, true),
                "quorums" => contender::run_together(&nodes, contenders, rounds, false),
                _ => processes(&nodes, mode, contenders, rounds),
            };
            let asked = commands(&cluster) - before;
            println!("{mode} {contenders}: {}", Report::of(turns, asked));
        }
        _ => panic!("handover tasks|quorums|processes|leaders CONTENDERS ROUNDS"),
    }
}

fn number(text: &str) -> usize {
    text.parse().expect("a number")
}

fn processes(nodes: &str, mode: &str, contenders: usize, rounds: usize) -> Vec<Turn> {
    let me = std::env::current_exe().expect("this program");
    let start = |_| {
        let mut command = Command::new(&me);
        command.args(["contender", nodes, mode, &rounds.to_string()]);
        command.stdout(Stdio::piped()).spawn().expect("a process")
    };
    let children: Vec<Child> = (0..contenders).map(start).collect();
    let mut turns = Vec::new();
    for mut child in children {
        let said = BufReader::new(child.stdout.take().expect("piped"));
        turns.extend(said.lines().map(|line| line.expect("text").parse::<Turn>().expect("a turn")));
        assert!(child.wait().expect("a status").success(), "a contender failed");
    }
    turns
}

/// How many scripts the servers have run.
fn commands(cluster: &RedisCluster) -> u64 {
    let calls = |info: String| {
        let line = info.lines().find(|line| line.starts_with("cmdstat_evalsha:")).map(str::to_owned);
        let calls = line.and_then(|line| line.split(['=', ',']).nth(1).map(str::to_owned));
        calls.and_then(|calls| calls.parse::<u64>().ok()).unwrap_or_default()
    };
    cluster.iter().map(|server| calls(server.command(&["INFO", "commandstats"]))).sum::<u64>()
}
