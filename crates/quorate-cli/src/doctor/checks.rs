//! What an experienced operator would look at. Pure: judges what was found out, and asks nobody.

use super::{
    finding::{
        Finding,
        Weight::{self, Critical, Note, Warning},
    },
    node_report::{Body, Examined, NodeReport, Patient},
};
use quorate::plain::plain;
use quorate::{
    internals::majority,
    quorum::{NodeState, QuorumConfig, VoteRejection},
};
use quorate_redis::{COMMANDS, PUSHES, RedisNode};
use std::{cmp::Reverse, collections::BTreeMap, time::Duration};

/// The oldest Redis that the tests of Quorate run against.
const TRIED: (u64, u64) = (7, 0);
/// The oldest that has what the scripts use.
const LEAST: (u64, u64) = (6, 2);

/// Every finding, the gravest first.
pub(super) fn findings(node_report: &NodeReport) -> Vec<Finding> {
    let mut all = Vec::new();
    of_the_set(node_report, &mut all);
    for patient in &node_report.patients {
        of_standing(patient, &mut all);
        let Body::Redis(examined) = &patient.body else { continue };
        match examined {
            Ok(examined) => {
                let mut node = Node { node_report, patient, examined, found: &mut all };
                node.role();
                node.version();
                node.memory();
                node.persistence();
                node.clock();
                node.speed();
                node.rights();
            }
            Err(cause) => all.push(Finding::new(
                Critical,
                Some(&patient.name),
                format!("cannot be asked: {cause}"),
                "until it answers, a majority of the others must be there",
            )),
        }
    }
    // A stable sort: what was found first stays first.
    all.sort_by_key(|finding| Reverse(finding.weight));
    all
}

fn of_the_set(node_report: &NodeReport, found: &mut Vec<Finding>) {
    let count = node_report.patients.len();
    let mut say = |weight, what: String, mend: &str| found.push(Finding::new(weight, None, what, mend));
    let votes = node_report.patients.iter().filter(|patient| patient.state == NodeState::Trusted).count();
    let new = node_report.patients.iter().filter(|patient| is_new(patient)).count();
    if new >= majority(count) {
        let what = format!(
            "{new} of {count} nodes are new: the first worker waits {:?} for them",
            node_report.setup.max_ttl
        );
        say(Note, what, "`quorate nodes admit`, if no worker has used them before");
    } else if votes < majority(count) {
        let what =
            format!("{votes} of {count} nodes vote, {} are needed: nobody can take a lease", majority(count));
        say(Critical, what, "mend the nodes below");
    } else if votes == majority(count) && count > 1 {
        let what = format!("{votes} of {count} nodes vote, just a majority: one more fault stops everything");
        say(Warning, what, "mend the nodes below");
    }
    match count {
        1 => say(
            Warning,
            "one node: when it is away, nobody leads; when it forgets, everybody waits for it".to_owned(),
            "name three or five independent servers",
        ),
        _ if count.is_multiple_of(2) => say(
            Note,
            format!("{count} nodes bear no more faults than {}", count - 1),
            "an odd number gives as much for less",
        ),
        _ => {}
    }
    let directories =
        node_report.patients.iter().filter(|patient| matches!(patient.body, Body::Directory)).count();
    if directories > 1 || (directories == 1 && count > 1) {
        let what = format!("{directories} nodes are directories of this host: they fail with it, together");
        say(
            Warning,
            what,
            "directories are for locks among the processes of one host; one is enough for that",
        );
    }
    let mut hosts: BTreeMap<&str, usize> = BTreeMap::new();
    for patient in &node_report.patients {
        if let Some(host) = host(&patient.name) {
            *hosts.entry(host).or_default() += 1;
        }
    }
    for (host, there) in hosts.iter().filter(|(_, there)| **there >= majority(count) && count > 1) {
        say(
            Warning,
            format!("{there} of {count} nodes are on {host}: when that host fails, there is no majority"),
            "a node a host, each with power and network of its own",
        );
    }
    for (path, secret) in node_report.secrets.iter().filter(|(_, secret)| secret.mode & 0o027 != 0) {
        let path = plain(&path.to_string_lossy(), 1_000);
        let what = format!(
            "the {} {path} can be read or written by other users (mode {:04o})",
            secret.key, secret.mode
        );
        found.push(Finding::new(Warning, None, what, format!("chmod g-w,o= {path}")));
    }
    spread(node_report, found);
    if let Err(error) =
        node_report.setup.validate_lease(node_report.ttl, QuorumConfig::default_grace(node_report.ttl), true)
    {
        found.push(Finding::new(Critical, None, error.to_string(), "see above"));
    }
}

/// How far the nodes' clocks are apart from each other.
fn spread(node_report: &NodeReport, found: &mut Vec<Finding>) {
    let offset = |patient: &Patient| match &patient.body {
        Body::Redis(Ok(examined)) => examined.offset.map(|(offset, _)| (offset, patient.name.clone())),
        _ => None,
    };
    let offsets: Vec<(i128, String)> = node_report.patients.iter().filter_map(offset).collect();
    let (Some(least), Some(most)) = (offsets.iter().min(), offsets.iter().max()) else { return };
    let apart = micros(most.0 - least.0);
    if apart > node_report.setup.max_clock_offset {
        found.push(Finding::new(
            Warning,
            None,
            format!(
                "the clocks of {} and {} are {} apart, more than max_clock_offset {:?}: where both forget a fencing \
                 counter, a token could come twice",
                least.1,
                most.1,
                round(apart),
                node_report.setup.max_clock_offset
            ),
            "set the nodes' clocks by NTP",
        ));
    }
}

/// Whether nobody has used it yet, or it was flushed.
fn is_new(patient: &Patient) -> bool {
    patient.state == NodeState::Refused(VoteRejection::Unmarked)
}

/// What keeps the node from voting, by a worker's own judgement.
fn of_standing(patient: &Patient, found: &mut Vec<Finding>) {
    let name = Some(&*patient.name);
    match &patient.state {
        NodeState::Trusted => {}
        NodeState::Quarantined { why, .. } => {
            found.push(Finding::new(Warning, name, format!("does not vote yet: {why}"), "it will by itself"));
        }
        // The doctor's own looks at the server tell these, with more of what is to be done.
        NodeState::Refused(
            VoteRejection::Replica | VoteRejection::Evicts(_) | VoteRejection::EvictionUnknown,
        ) => {}
        NodeState::Refused(why) if why.is_permanent() => {
            found.push(Finding::new(Critical, name, format!("has no vote: {why}"), "see there"));
        }
        NodeState::Refused(why) => {
            found.push(Finding::new(Warning, name, format!("has no vote: {why}"), "see there"));
        }
        // Those that cannot be reached are told with the cause of the doctor's own question.
        NodeState::Unreachable(_) | NodeState::Connecting => {
            if matches!(patient.body, Body::Directory) {
                let NodeState::Unreachable(cause) = &patient.state else { return };
                found.push(Finding::new(
                    Critical,
                    name,
                    cause.to_string(),
                    "do what it says; the directory belongs to one user of one machine",
                ));
            }
        }
    }
}

/// The checks of one server.
struct Node<'a> {
    node_report: &'a NodeReport,
    patient: &'a Patient,
    examined: &'a Examined,
    found: &'a mut Vec<Finding>,
}

impl Node<'_> {
    fn say(&mut self, weight: Weight, what: impl Into<String>, mend: impl Into<String>) {
        self.found.push(Finding::new(weight, Some(&self.patient.name), what, mend));
    }

    fn role(&mut self) {
        if self.examined.info("role").is_some_and(|role| role != "master") {
            self.say(
                Critical,
                "it is a replica: its memory is another server's",
                "REPLICAOF NO ONE, or name another",
            );
        }
        if let Some(replicas @ 1..) = self.examined.number("connected_slaves") {
            self.say(
                Warning,
                format!(
                    "{replicas} replicas follow it: one that takes its place would have forgotten leases"
                ),
                "let no failover put a replica in its place: a node that is down is what the majority is for",
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
            self.say(Warning, "it is loading its data", "wait");
        }
    }

    fn version(&mut self) {
        if self.examined.info("valkey_version").is_some() {
            return;
        }
        let Some(version) = self.examined.info("redis_version").map(str::to_owned) else { return };
        let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
        let parsed = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
        if parsed < LEAST {
            let mend = format!("Redis {}.{} or later", LEAST.0, LEAST.1);
            self.say(Warning, format!("Redis {version} is older than anything this was written for"), mend);
        } else if parsed < TRIED {
            let what =
                format!("Redis {version} is older than {}.{}, which the tests run against", TRIED.0, TRIED.1);
            self.say(Note, what, "a newer one, or tests of your own");
        }
    }

    fn memory(&mut self) {
        match self.examined.info("maxmemory_policy").map(str::to_owned) {
            Some(policy) if policy == "noeviction" => {}
            Some(policy) => self.say(
                Critical,
                format!("maxmemory-policy is {policy}: it may evict a held lease"),
                "CONFIG SET maxmemory-policy noeviction, and in redis.conf",
            ),
            None => self.say(Critical, "it does not tell its maxmemory-policy", "allow the user INFO"),
        }
        let (used, most) = (self.examined.number("used_memory"), self.examined.number("maxmemory"));
        if let (Some(used), Some(most @ 1..)) = (used, most) {
            let percent = used.saturating_mul(100) / most;
            let what = format!("it uses {percent} % of its maxmemory: at 100 it grants nothing new");
            let mend = "raise maxmemory, or find out what else is kept there";
            match percent {
                90.. => self.say(Critical, what, mend),
                70.. => self.say(Warning, what, mend),
                _ => {}
            }
        }
    }

    fn persistence(&mut self) {
        match (self.node_report.setup.durable, self.examined.told.check_durable()) {
            (true, Err(why)) => {
                let (why, fix) = why.split_once("; ").unwrap_or((&why, "see config/redis.conf"));
                self.say(
                    Critical,
                    format!("durable = true, but {why}: workers refuse it"),
                    format!("{fix}; or durable = false on every worker"),
                );
            }
            (false, Ok(())) => self.say(
                Note,
                "it writes every change to disk before it answers, and nothing is made of that",
                "durable = true on every worker, where all nodes do: then a restart costs no wait",
            ),
            (false, Err(_)) | (true, Ok(())) => {}
        }
        let failed = |field: &str| self.examined.info(field).is_some_and(|status| status != "ok");
        let stops = self.examined.setting("stop-writes-on-bgsave-error") == Some("yes");
        if failed("aof_last_write_status") {
            self.say(
                Critical,
                "its last write to the append-only file failed: it takes no writes",
                "look at its disk",
            );
        } else if failed("rdb_last_bgsave_status") && stops {
            self.say(
                Critical,
                "its last snapshot failed, so it takes no writes (MISCONF)",
                "look at its disk",
            );
        }
    }

    fn clock(&mut self) {
        let Some((offset, uncertain)) = self.examined.offset else { return };
        let allowed = self.node_report.setup.max_clock_offset;
        let certain = micros((offset.abs() - uncertain).max(0));
        let direction = if offset < 0 { "behind" } else { "ahead of" };
        let what = format!("its clock is {} {direction} this machine's", round(micros(offset.abs())));
        let mend = "set both by NTP (chronyd, systemd-timesyncd)";
        if certain > allowed {
            let what = format!(
                "{what}, more than max_clock_offset {allowed:?}: it grants nothing that it never held"
            );
            self.say(Critical, what, mend);
        } else if certain > allowed / 2 {
            self.say(Warning, format!("{what}, more than half of max_clock_offset {allowed:?}"), mend);
        }
    }

    fn speed(&mut self) {
        let (timeout, ttl) = (self.node_report.setup.node_timeout, self.node_report.ttl);
        let (Some(quickest), Some(slowest)) = (self.examined.round_trip(), self.examined.slowest()) else {
            return;
        };
        let what = |trip: Duration| format!("a round trip took {}, node_timeout is {timeout:?}", round(trip));
        let mend = "a node nearer by, less load on it, or a longer node_timeout (and a longer ttl with it)";
        if quickest >= timeout {
            self.say(Critical, format!("{}: its vote never comes in time", what(quickest)), mend);
        } else if slowest >= timeout / 2 {
            self.say(Warning, what(slowest), mend);
        }
        if quickest * 20 > ttl {
            let what = format!("a round trip of {} is much against a ttl of {ttl:?}", round(quickest));
            self.say(Warning, what, "a longer ttl");
        }
    }

    fn rights(&mut self) {
        let user = self.examined.told.user.clone().unwrap_or_else(|| "NAME".to_owned());
        let least = RedisNode::least_acl(&self.node_report.prefix);
        // The handshake bears that these are denied.
        let spared = |denied: &&String| denied.starts_with("config ") || denied.starts_with("client ");
        let (spared, needed): (Vec<&String>, Vec<&String>) =
            self.examined.told.denied.iter().partition(spared);
        let list =
            |denied: &[&String]| denied.iter().map(|text| text.as_str()).collect::<Vec<_>>().join(", ");
        let pushes: Vec<&String> = self.examined.told.denied_pushes.iter().collect();
        if !pushes.is_empty() {
            let what = format!(
                "the user {user} may not do: {}; so a release wakes nobody who waits, and they look every 100 ms",
                list(&pushes)
            );
            // What is there already stays: the user may be somebody's else as well.
            let rights: Vec<String> =
                COMMANDS[COMMANDS.len() - PUSHES..].iter().map(|command| format!("+{command}")).collect();
            let mend = format!("ACL SETUSER {user} {} &{}*", rights.join(" "), self.node_report.prefix);
            self.say(Warning, what, mend);
        }
        if !needed.is_empty() {
            let what = format!("the user {user} may not do: {}", list(&needed));
            self.say(Critical, what, format!("ACL SETUSER {user} {least}"));
        } else if !spared.is_empty() {
            let what =
                format!("the user {user} may not do: {}; so its settings are not known", list(&spared));
            self.say(Note, what, format!("ACL SETUSER {user} +config|get +client|setname"));
        } else if user == "default" && pushes.is_empty() {
            self.say(
                Note,
                "we are the user `default`, who mostly may do everything",
                format!("a user of our own: ACL SETUSER quorate on >PASSWORD {least}"),
            );
        }
    }
}

/// The host in a node's name.
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

/// As people read it.
fn round(time: Duration) -> String {
    if time >= Duration::from_secs(1) {
        format!("{time:.1?}")
    } else {
        format!("{:.2} ms", time.as_secs_f64() * 1e3)
    }
}
