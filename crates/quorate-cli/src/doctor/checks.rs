//! The doctor's checks. They are pure functions of the collected facts, and ask no node.

use super::{
    finding::finding,
    node_report::{Examined, ExaminedNode, NodeKind, NodeReport},
};
use crate::connect;
use quorate::redis::RedisNode;
use quorate::{
    internals::majority,
    ledger::{CopyState, LedgerCopies},
    node::Cause,
    plain::plain,
    quorum::{NodeState, QuorumConfig, VoteRejection},
};
use quorate_operator::state::{
    Finding,
    Severity::{self, Critical, Note, Warning},
};
use std::{cmp::Reverse, collections::BTreeMap, time::Duration};

/// Returns every finding, the most severe first.
pub(super) fn findings(node_report: &NodeReport) -> Vec<Finding> {
    let mut all = Vec::new();
    check_set(node_report, &mut all);
    for node in &node_report.nodes {
        let timeout = node_report.settings.node_timeout;
        check_trust(node, timeout, &mut all);
        let NodeKind::Redis(examined) = &node.kind else { continue };
        match examined {
            Ok(examined) => {
                let mut node = Node { node_report, node, examined, found: &mut all };
                node.role();
                node.version();
                node.memory();
                node.persistence();
                node.clock();
                node.speed();
                node.rights();
            }
            Err(cause) => all.push(finding(
                Critical,
                Some(&node.name),
                format!("cannot be asked: {}", connect::without_name(&node.name, &cause.to_string())),
                match cause {
                    Cause::TimedOut => "start the server, or correct its address or the network",
                    _ => "apply the fix that the message names; until then, a majority of the other nodes must answer",
                },
            )),
        }
    }
    // The sort is stable: findings of one severity stay in the order of the checks.
    all.sort_by_key(|finding| Reverse(finding.severity));
    all
}

/// The number of jobs without a worker that are named.
const WAITING_NAMED: usize = 5;

/// Checks the set of nodes as a whole, and the settings.
fn check_set(node_report: &NodeReport, found: &mut Vec<Finding>) {
    check_majority(node_report, found);
    if let Some(copies) = &node_report.copies {
        check_copies(copies, found);
    }
    check_waiting_jobs(node_report, found);
    check_independence(node_report, found);
    for (path, secret) in node_report.secrets.iter().filter(|(_, secret)| secret.mode & 0o027 != 0) {
        let path = plain(&path.to_string_lossy(), 1_000);
        let what = format!(
            "the {} {path} can be read or written by other users (mode {:04o})",
            secret.key, secret.mode
        );
        found.push(finding(Warning, None, what, format!("chmod g-w,o= {path}")));
    }
    check_clock_spread(node_report, found);
    if let Err(error) = node_report.settings.validate_lease(
        node_report.ttl,
        QuorumConfig::default_grace(node_report.ttl),
        true,
    ) {
        let what = format!("{} is {}, {}", error.field(), error.value(), error.reason());
        found.push(finding(Critical, None, what, error.fix()));
    }
}

/// Checks whether a majority votes, and how many faults the number of nodes tolerates.
fn check_majority(node_report: &NodeReport, found: &mut Vec<Finding>) {
    let count = node_report.nodes.len();
    let mut say = |severity, what: String, fix: &str| found.push(finding(severity, None, what, fix));
    let votes = node_report.nodes.iter().filter(|node| node.state == NodeState::Trusted).count();
    let new = node_report.nodes.iter().filter(|node| is_new(node)).count();
    if new >= majority(count) {
        let what = format!(
            "{new} of {count} nodes are new: the first worker waits {:?} until they vote",
            node_report.settings.max_ttl
        );
        say(Note, what, "run `quorate nodes trust`, if no worker has used them before");
    } else if votes < majority(count) {
        let what = format!(
            "{votes} of {count} nodes vote, {} required: no worker can acquire a lease",
            majority(count)
        );
        say(Critical, what, "fix the nodes below");
    } else if votes == majority(count) && count > 1 {
        let what = format!(
            "{votes} of {count} nodes vote, which is just a majority: one more fault stops every worker"
        );
        say(Warning, what, "fix the nodes below");
    }
    match count {
        1 => say(
            Warning,
            "one node: while it is away, no worker leads; after it loses its data, every worker waits for it"
                .to_owned(),
            "use three or five independent servers",
        ),
        _ if count.is_multiple_of(2) => say(
            Note,
            format!("{count} nodes tolerate no more faults than {}", count - 1),
            "use an odd number of nodes: it tolerates as many faults with fewer servers",
        ),
        _ => {}
    }
}

/// Names the jobs that no live worker can run.
fn check_waiting_jobs(node_report: &NodeReport, found: &mut Vec<Finding>) {
    let waiting = &node_report.waiting;
    found.extend(waiting.iter().take(WAITING_NAMED).map(|(job, why)| {
        let (job, why) = (plain(job, 128), plain(why, 300));
        let fix = "`quorate jobs why` says what to do";
        finding(Warning, None, format!("the job {job:?} does not run: {why}"), fix)
    }));
    if let Some(more) = waiting.len().checked_sub(WAITING_NAMED).filter(|more| *more > 0) {
        let what = format!("{more} more jobs do not run, because no live worker can");
        found.push(finding(Warning, None, what, "`quorate jobs list` shows them"));
    }
}

/// Checks whether each node has all records of the jobs.
fn check_copies(copies: &LedgerCopies, found: &mut Vec<Finding>) {
    if let Some(waiting) = copies.waiting() {
        found.push(finding(Critical, None, waiting.why, waiting.fix));
        return;
    }
    let incomplete = copies.nodes().iter().filter(|copy| matches!(copy.state, CopyState::Incomplete(_)));
    found.extend(incomplete.map(|copy| {
        let what =
            format!("its copy of the records of the jobs is {}: the leader copies the rest", copy.state);
        let fix =
            "wait until it is complete before you stop another node; without a leader, start `quorate run`";
        finding(Warning, Some(&copy.node), what, fix)
    }));
}

/// Checks whether the nodes fail independently of each other.
fn check_independence(node_report: &NodeReport, found: &mut Vec<Finding>) {
    let count = node_report.nodes.len();
    let mut say = |what: String, fix: &str| found.push(finding(Warning, None, what, fix));
    let directories =
        node_report.nodes.iter().filter(|node| matches!(node.kind, NodeKind::Directory)).count();
    if directories > 1 || (directories == 1 && count > 1) {
        let what = format!("{directories} nodes are directories of this host: they fail together with it");
        say(
            what,
            "use directories only for locks among the processes of one host; one directory is enough for that",
        );
    }
    let mut hosts: BTreeMap<&str, usize> = BTreeMap::new();
    for node in &node_report.nodes {
        if let Some(host) = host(&node.name) {
            *hosts.entry(host).or_default() += 1;
        }
    }
    for (host, there) in hosts.iter().filter(|(_, there)| **there >= majority(count) && count > 1) {
        say(
            format!("{there} of {count} nodes are on {host}: if that host fails, there is no majority"),
            "put each node on its own host, with its own power and network",
        );
    }
}

/// Checks the differences between the nodes' clocks.
fn check_clock_spread(node_report: &NodeReport, found: &mut Vec<Finding>) {
    let offset = |node: &ExaminedNode| match &node.kind {
        NodeKind::Redis(Ok(examined)) => examined.offset.map(|(offset, _)| (offset, node.name.clone())),
        _ => None,
    };
    let offsets: Vec<(i128, String)> = node_report.nodes.iter().filter_map(offset).collect();
    let (Some(least), Some(most)) = (offsets.iter().min(), offsets.iter().max()) else { return };
    let apart = micros(most.0 - least.0);
    if apart > node_report.settings.max_clock_offset {
        found.push(finding(
            Warning,
            None,
            format!(
                "the clocks of {} and {} differ by {}, more than max_clock_offset {:?}: after both nodes lose a fencing \
                 counter, a token could be issued twice",
                least.1,
                most.1,
                round(apart),
                node_report.settings.max_clock_offset
            ),
            "synchronise the nodes' clocks by NTP",
        ));
    }
}

/// Returns whether no worker has used the node, or it was flushed.
fn is_new(node: &ExaminedNode) -> bool {
    node.state == NodeState::Refused(VoteRejection::Unmarked)
}

/// Reports why a worker with this configuration would get no vote from the node.
fn check_trust(node: &ExaminedNode, timeout: Duration, found: &mut Vec<Finding>) {
    let name = Some(&*node.name);
    match &node.state {
        NodeState::Trusted => {}
        NodeState::Quarantined { why, .. } => {
            found.push(finding(
                Warning,
                name,
                format!("does not vote yet: {why}"),
                "wait: it will vote by itself",
            ));
        }
        // The doctor's own requests to the server report these states, with more detailed fixes.
        NodeState::Refused(
            VoteRejection::Replica | VoteRejection::Evicts(_) | VoteRejection::EvictionUnknown,
        ) => {}
        NodeState::Refused(why) if why.is_permanent() || matches!(why, VoteRejection::Unable(_)) => {
            found.push(finding(
                Critical,
                name,
                format!("does not vote: {why}"),
                "apply the fix that the message names",
            ));
        }
        NodeState::Refused(why) => {
            found.push(finding(
                Warning,
                name,
                format!("does not vote: {why}"),
                "apply the fix that the message names",
            ));
        }
        // If the doctor's own requests to a Redis server fail too, they report the cause.
        NodeState::Unreachable(_) | NodeState::Connecting if matches!(node.kind, NodeKind::Redis(Err(_))) => {
        }
        NodeState::Unreachable(cause) if matches!(node.kind, NodeKind::Directory) => {
            found.push(finding(
                Critical,
                name,
                cause.to_string(),
                "apply the fix that the message names; the directory must belong to one user of one machine",
            ));
        }
        NodeState::Unreachable(cause) => {
            found.push(finding(
                Critical,
                name,
                format!("answers single requests, but a worker could not use it: {cause}"),
                match cause {
                    Cause::TimedOut => format!(
                        "set node_timeout, which is {timeout:?}, longer than a round trip (and ttl with it), or use a nearer node"
                    ),
                    _ => "apply the fix that the message names, and run the doctor again".to_owned(),
                },
            ));
        }
        NodeState::Connecting => {
            found.push(finding(
                Warning,
                name,
                "the handshake of a worker did not end in time",
                "look at the load and the slow log of the server, and run the doctor again",
            ));
        }
    }
}

/// The checks of one server.
struct Node<'a> {
    node_report: &'a NodeReport,
    node: &'a ExaminedNode,
    examined: &'a Examined,
    found: &'a mut Vec<Finding>,
}

impl Node<'_> {
    fn say(&mut self, severity: Severity, what: impl Into<String>, fix: impl Into<String>) {
        self.found.push(finding(severity, Some(&self.node.name), what, fix));
    }

    fn role(&mut self) {
        if self.examined.info("role").is_some_and(|role| role != "master") {
            self.say(
                Critical,
                "it is a replica: it may lack writes that its primary has acknowledged",
                "run REPLICAOF NO ONE on it, or use another server",
            );
        }
        if let Some(replicas @ 1..) = self.examined.number("connected_slaves") {
            self.say(
                Warning,
                format!(
                    "{replicas} replicas follow it: a replica that is promoted may lack leases that this server has granted"
                ),
                "disable automatic failover: the majority of the nodes tolerates a node that is down",
            );
        }
        if self.examined.number("cluster_enabled") == Some(1) {
            self.say(
                Critical,
                "it is part of a Redis Cluster, which moves keys between servers",
                "use independent servers, started with cluster-enabled no",
            );
        }
        if self.examined.number("loading") == Some(1) {
            self.say(Warning, "it is loading its data", "wait until it has loaded it");
        }
    }

    fn version(&mut self) {
        if let Err(why) = self.examined.examination.check_version() {
            let (what, fix) = why.split_once("; ").unwrap_or((&why, "use a later release"));
            self.say(Critical, what, fix);
        }
    }

    fn memory(&mut self) {
        match self.examined.info("maxmemory_policy").map(str::to_owned) {
            Some(policy) if policy == "noeviction" => {}
            Some(policy) => self.say(
                Critical,
                format!("maxmemory-policy is {policy}: it may evict a held lease"),
                "run CONFIG SET maxmemory-policy noeviction, and set it in redis.conf",
            ),
            None => self.say(Critical, "it does not report its maxmemory-policy", "permit INFO for the user"),
        }
        let (used, most) = (self.examined.number("used_memory"), self.examined.number("maxmemory"));
        if let (Some(used), Some(most @ 1..)) = (used, most) {
            let percent = used.saturating_mul(100) / most;
            let what = format!("it uses {percent} % of its maxmemory: at 100 % it grants no new lease");
            let fix = "raise maxmemory, or remove other data from the server";
            match percent {
                90.. => self.say(Critical, what, fix),
                70.. => self.say(Warning, what, fix),
                _ => {}
            }
        }
    }

    fn persistence(&mut self) {
        match (self.node_report.settings.durable, self.examined.examination.check_durable()) {
            (true, Err(why)) => {
                let (why, fix) = why.split_once("; ").unwrap_or((&why, "see config/redis.conf"));
                self.say(
                    Critical,
                    format!("durable = true, but {why}: workers refuse it"),
                    format!("{fix}; or set durable = false on every worker"),
                );
            }
            (false, Ok(())) => self.say(
                Note,
                "it writes every change to disk before it answers, but durable = false makes no use of that",
                "set durable = true on every worker, if all nodes do this: a restart then causes no quarantine",
            ),
            (false, Err(_)) | (true, Ok(())) => {}
        }
        let failed = |field: &str| self.examined.info(field).is_some_and(|status| status != "ok");
        let stops = self.examined.setting("stop-writes-on-bgsave-error") == Some("yes");
        if failed("aof_last_write_status") {
            self.say(
                Critical,
                "its last write to the append-only file failed: it accepts no writes",
                "check its disk",
            );
        } else if failed("rdb_last_bgsave_status") && stops {
            self.say(
                Critical,
                "its last snapshot failed, so that it accepts no writes (MISCONF)",
                "check its disk",
            );
        }
    }

    fn clock(&mut self) {
        let Some((offset, uncertain)) = self.examined.offset else { return };
        let allowed = self.node_report.settings.max_clock_offset;
        let certain = micros((offset.abs() - uncertain).max(0));
        let direction = if offset < 0 { "behind" } else { "ahead of" };
        let what = format!("its clock is {} {direction} this machine's", round(micros(offset.abs())));
        let fix = "synchronise both clocks by NTP (chronyd, systemd-timesyncd)";
        if certain > allowed {
            let what = format!(
                "{what}, more than max_clock_offset {allowed:?}: it grants no lease on a resource without a fencing counter"
            );
            self.say(Critical, what, fix);
        } else if certain > allowed / 2 {
            self.say(Warning, format!("{what}, more than half of max_clock_offset {allowed:?}"), fix);
        }
    }

    fn speed(&mut self) {
        let (timeout, ttl) = (self.node_report.settings.node_timeout, self.node_report.ttl);
        let (Some(quickest), Some(slowest)) = (self.examined.round_trip(), self.examined.slowest()) else {
            return;
        };
        let what = |trip: Duration| format!("a round trip took {}, node_timeout is {timeout:?}", round(trip));
        let fix = "use a nearer node, reduce its load, or use a longer node_timeout (and a longer ttl)";
        if quickest >= timeout {
            self.say(Critical, format!("{}: its vote never arrives in time", what(quickest)), fix);
        } else if slowest >= timeout / 2 {
            self.say(Warning, what(slowest), fix);
        }
        if quickest * 20 > ttl {
            let what = format!("a round trip of {} is long for a ttl of {ttl:?}", round(quickest));
            self.say(Warning, what, "use a longer ttl");
        }
    }

    fn rights(&mut self) {
        let user = self.examined.examination.user.clone().unwrap_or_else(|| "NAME".to_owned());
        let least = RedisNode::least_acl(&self.node_report.prefix);
        // The handshake succeeds even if the user lacks these permissions. So if the user lacks only these,
        // the finding is a note.
        let spared = |denied: &&String| denied.starts_with("config ") || denied.starts_with("client ");
        let (spared, needed): (Vec<&String>, Vec<&String>) =
            self.examined.examination.denied.iter().partition(spared);
        let list =
            |denied: &[&String]| denied.iter().map(|text| text.as_str()).collect::<Vec<_>>().join(", ");
        let pushes: Vec<&String> = self.examined.examination.denied_pushes.iter().collect();
        if !pushes.is_empty() {
            let what = format!(
                "the user {user} may not run: {}; so a release wakes no waiter, and waiters poll every 100 ms",
                list(&pushes)
            );
            // The suggested command keeps the user's existing rights, because another program may use the
            // same user.
            let rights = RedisNode::pushes_acl();
            let fix = format!("run ACL SETUSER {user} {rights} &{}*", self.node_report.prefix);
            self.say(Warning, what, fix);
        }
        if !needed.is_empty() {
            let what = format!("the user {user} may not run: {}", list(&needed));
            self.say(Critical, what, format!("run ACL SETUSER {user} {least}"));
        } else if !spared.is_empty() {
            let what =
                format!("the user {user} may not run: {}; so its settings are not known", list(&spared));
            self.say(Note, what, format!("run ACL SETUSER {user} +config|get +client|setname"));
        } else if user == "default" && pushes.is_empty() {
            self.say(
                Note,
                "quorate connects as the user `default`, which usually has all rights",
                format!("create a user for quorate: ACL SETUSER quorate on >PASSWORD {least}"),
            );
        }
    }
}

fn host(name: &str) -> Option<&str> {
    let (scheme, rest) = name.split_once("://")?;
    if !scheme.starts_with("redis") {
        return None;
    }
    let place = rest.split('/').next()?;
    Some(place.rsplit_once(':').map_or(place, |(host, _)| host))
}

fn micros(micros: i128) -> Duration {
    Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
}

/// Formats a time for people.
fn round(time: Duration) -> String {
    if time >= Duration::from_secs(1) {
        format!("{time:.1?}")
    } else {
        format!("{:.2} ms", time.as_secs_f64() * 1e3)
    }
}
