//! Runs the checks on nodes with chosen facts: the checks find each problem, with its severity, and find no
//! problem in a healthy set.

use super::{
    checks::findings,
    node_report::{Examined, ExaminedNode, NodeKind, NodeReport, SecretFile},
};
use quorate::redis::{Examination, Look};
use quorate::{
    env::{BootTime, WallTime},
    ledger::{Copied, CopyAtNode, CopyState, LedgerCopies},
    node::Cause,
    quorum::{NodeState, QuorumConfig, VoteRejection},
};
use quorate_operator::state::Severity::{self, Critical, Note, Warning};
use std::{collections::BTreeMap, time::Duration};

const NOW: u64 = 1_700_000_000_000_000;

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// Returns the answers of a healthy server whose clock is `ahead_ms` ahead of this machine's and whose
/// answers take `trip_ms`.
fn examination(ahead_ms: i64, trip_ms: u64) -> Examination {
    let sent = BootTime::from_nanos(1_000_000_000);
    let received = sent + Duration::from_millis(trip_ms);
    let node_time = WallTime::from_micros((NOW + trip_ms * 500).saturating_add_signed(ahead_ms * 1_000));
    Examination {
        info: map(&[
            ("role", "master"),
            ("redis_version", "7.2.5"),
            ("maxmemory_policy", "noeviction"),
            ("maxmemory", "0"),
            ("used_memory", "1000000"),
            ("aof_enabled", "0"),
            ("aof_last_write_status", "ok"),
            ("rdb_last_bgsave_status", "ok"),
            ("connected_slaves", "0"),
            ("cluster_enabled", "0"),
        ]),
        settings: map(&[
            ("appendfsync", "everysec"),
            ("no-appendfsync-on-rewrite", "no"),
            ("stop-writes-on-bgsave-error", "yes"),
        ]),
        looks: vec![Look { sent, received, node_time }],
        user: Some("quorate".to_owned()),
        denied: Vec::new(),
        denied_pushes: Vec::new(),
    }
}

fn node(name: &str, examination: Examination) -> ExaminedNode {
    let examined = Examined::new(examination, WallTime::from_micros(NOW), 1_000_000_000);
    ExaminedNode {
        name: name.to_owned(),
        state: NodeState::Trusted,
        kind: NodeKind::Redis(Ok(Box::new(examined))),
    }
}

fn node_report(first: ExaminedNode) -> NodeReport {
    let rest = ["redis://b:6379", "redis://c:6379"].map(|name| node(name, examination(0, 1)));
    NodeReport {
        settings: QuorumConfig::default(),
        ttl: Duration::from_secs(10),
        prefix: "quorate:".into(),
        nodes: [first].into_iter().chain(rest).collect(),
        copies: None,
        waiting: Vec::new(),
        secrets: BTreeMap::new(),
    }
}

/// Returns the findings, as severity and text, for three nodes. Only the node `first` has a problem.
fn of(first: ExaminedNode) -> Vec<(Severity, String)> {
    let found = findings(&node_report(first));
    assert!(found.is_sorted_by(|a, b| a.severity >= b.severity), "the most severe first");
    found.into_iter().map(|finding| (finding.severity, finding.problem)).collect()
}

#[track_caller]
fn finds(first: ExaminedNode, severity: Severity, text: &str) {
    let found = of(first);
    assert!(found.iter().any(|(w, problem)| *w == severity && problem.contains(text)), "{text}: {found:?}");
}

fn with_info(pairs: &[(&str, &str)]) -> ExaminedNode {
    let mut examination = examination(0, 1);
    examination.info.extend(map(pairs));
    node("redis://a:6379", examination)
}

#[test]
fn a_healthy_set_has_no_findings() {
    assert_eq!(of(with_info(&[])), []);
}

#[test]
fn problems_that_the_server_reports_are_found() {
    finds(with_info(&[("role", "slave")]), Critical, "replica");
    finds(with_info(&[("connected_slaves", "2")]), Warning, "2 replicas");
    finds(with_info(&[("cluster_enabled", "1")]), Critical, "Redis Cluster");
    finds(with_info(&[("loading", "1")]), Warning, "loading");
    finds(with_info(&[("maxmemory_policy", "allkeys-lru")]), Critical, "allkeys-lru");
    finds(with_info(&[("maxmemory", "1050000")]), Critical, "95 %");
    finds(with_info(&[("maxmemory", "1300000")]), Warning, "76 %");
    finds(with_info(&[("redis_version", "5.0.7")]), Critical, "5.0.7");
    assert_eq!(of(with_info(&[("redis_version", "6.2.1")])), []);
    finds(with_info(&[("aof_last_write_status", "err")]), Critical, "append-only");
    finds(with_info(&[("rdb_last_bgsave_status", "err")]), Critical, "MISCONF");
}

#[test]
fn persistence_is_compared_with_the_durable_setting() {
    let durable = |pairs: &[(&str, &str)], fsync: Option<&str>| {
        let mut examination = examination(0, 1);
        examination.info.extend(map(pairs));
        match fsync {
            Some(fsync) => drop(examination.settings.insert("appendfsync".to_owned(), fsync.to_owned())),
            None => examination.settings.clear(),
        }
        let mut node_report = node_report(node("redis://a:6379", examination));
        node_report.settings.durable = true;
        let found = findings(&node_report);
        found.into_iter().filter(|finding| finding.node.as_deref() == Some("redis://a:6379")).count()
    };
    assert_eq!(durable(&[("aof_enabled", "1")], Some("always")), 0);
    assert_eq!(durable(&[("aof_enabled", "1")], Some("everysec")), 1);
    assert_eq!(durable(&[("aof_enabled", "0")], Some("always")), 1);
    assert_eq!(durable(&[("aof_enabled", "1")], None), 1, "an unknown setting is not accepted");
    let always = |rewrite: &str| {
        let mut examination = examination(0, 1);
        examination.info.insert("aof_enabled".to_owned(), "1".to_owned());
        examination.settings.insert("appendfsync".to_owned(), "always".to_owned());
        examination.settings.insert("no-appendfsync-on-rewrite".to_owned(), rewrite.to_owned());
        node("redis://a:6379", examination)
    };
    finds(always("no"), Note, "makes no use of that");
    let mut node_report = node_report(always("yes"));
    node_report.settings.durable = true;
    let found = findings(&node_report).remove(0);
    assert_eq!((found.severity, found.node.as_deref()), (Critical, Some("redis://a:6379")));
    assert!(found.problem.contains("no-appendfsync-on-rewrite is yes"), "{found:?}");
    assert!(found.fix.contains("CONFIG SET no-appendfsync-on-rewrite no"), "{found:?}");
}

#[test]
fn a_secret_that_others_can_read_or_write_is_found_once() {
    for (mode, is_found) in [(0o600, false), (0o400, false), (0o640, false), (0o644, true), (0o660, true)] {
        let mut node_report = node_report(with_info(&[]));
        node_report.secrets.insert("/etc/q/worker.key".into(), SecretFile { key: "key_file", mode });
        let found = findings(&node_report);
        assert_eq!(found.len(), usize::from(is_found), "{mode:o}: {found:?}");
        if let Some(found) = found.first() {
            assert_eq!((found.severity, &*found.fix), (Warning, "chmod g-w,o= /etc/q/worker.key"));
            assert!(
                found.problem.contains(&format!(
                    "key_file /etc/q/worker.key can be read or written by other users (mode {mode:04o})"
                )),
                "{found:?}"
            );
        }
    }
}

#[test]
fn clocks_and_round_trips() {
    let server = |ahead, trip| node("redis://a:6379", examination(ahead, trip));
    finds(server(3_000, 1), Critical, "ahead of");
    finds(server(-3_000, 1), Critical, "behind");
    finds(server(700, 1), Warning, "more than half");
    finds(server(1_500, 1), Warning, "differ by 1.5s");
    finds(server(0, 60), Warning, "a round trip took 60.00 ms");
    finds(server(0, 120), Critical, "never arrives in time");
    assert_eq!(of(server(300, 1)), []);
}

#[test]
fn missing_rights_are_found_with_the_smallest_sufficient_acl() {
    let denied = Examination { denied: vec!["hset".to_owned()], ..examination(0, 1) };
    let found = findings(&node_report(node("redis://a:6379", denied)));
    assert_eq!(found[0].severity, Critical);
    assert!(
        found[0].fix.starts_with(
            "run ACL SETUSER quorate resetkeys ~quorate:* ~{quorate:* resetchannels &quorate:* -@all "
        ),
        "{found:?}"
    );
    let denied = vec!["config get appendfsync".to_owned()];
    let cautious = Examination { settings: BTreeMap::new(), denied, ..examination(0, 1) };
    finds(node("redis://a:6379", cautious.clone()), Note, "config get");
    assert!(of(node("redis://a:6379", cautious)).iter().all(|(severity, _)| *severity == Note));
    let denied_pushes = vec!["publish quorate:{doctor}:freed".to_owned()];
    let denied = of(node("redis://a:6379", Examination { denied_pushes, ..examination(0, 1) }));
    assert_eq!(denied.len(), 1);
    assert!(denied[0].0 == Warning && denied[0].1.contains("wakes no waiter"), "{denied:?}");
    let root = Examination { user: Some("default".to_owned()), ..examination(0, 1) };
    finds(node("redis://a:6379", root), Note, "`default`");
}

#[test]
fn copies_of_the_records_of_the_jobs() {
    let with = |states: [CopyState; 3]| {
        let mut report = node_report(with_info(&[]));
        let node = |at: usize| report.nodes[at].name.as_str().into();
        let copies = states.into_iter().enumerate().map(|(at, state)| CopyAtNode { node: node(at), state });
        report.copies = Some(LedgerCopies::new(copies));
        findings(&report)
    };
    let (whole, part) = (CopyState::Complete, CopyState::Incomplete(Some(Copied { records: 3, of: 8 })));
    assert!(with([whole, whole, CopyState::Unknown]).is_empty());
    let found = with([whole, part, whole]);
    assert_eq!((found.len(), found[0].severity), (1, Warning));
    assert_eq!(found[0].node.as_deref(), Some("redis://b:6379"));
    assert!(found[0].problem.contains("is incomplete, 3 of 8 records"), "{found:?}");
    let found = with([CopyState::Unknown, part, whole]);
    assert_eq!((found.len(), found[0].severity, &found[0].node), (1, Critical, &None));
    assert!(found[0].problem.contains("wait for redis://a:6379"), "{found:?}");
    assert!(found[0].fix.contains("quorate nodes replace"), "{found:?}");
}

#[test]
fn the_set_as_a_whole() {
    let away = |name: &str| ExaminedNode {
        name: name.to_owned(),
        state: NodeState::Unreachable(Cause::TimedOut),
        kind: NodeKind::Redis(Err(Cause::TimedOut)),
    };
    finds(away("redis://a:6379"), Warning, "just a majority");
    finds(away("redis://a:6379"), Critical, "cannot be asked");
    let mut report = node_report(away("redis://a:6379"));
    report.nodes[1] = away("redis://b:6379");
    assert!(findings(&report)[0].problem.contains("no worker can acquire a lease"));
    // Every node without a vote has a finding of its own, to which the finding about the set refers.
    let lost = NodeState::Unreachable(Cause::TimedOut);
    finds(ExaminedNode { state: lost.clone(), ..with_info(&[]) }, Critical, "a worker could not use it");
    let slow = findings(&node_report(ExaminedNode { state: lost, ..with_info(&[]) }));
    assert!(
        slow.iter().any(|found| found.fix.contains("set node_timeout, which is 100ms, longer")),
        "{slow:?}"
    );
    finds(ExaminedNode { state: NodeState::Connecting, ..with_info(&[]) }, Warning, "did not end in time");
    finds(node("redis://b:6380", examination(0, 1)), Warning, "2 of 3 nodes are on b");
    let mut even = node_report(with_info(&[]));
    even.nodes.push(node("redis://d:6379", examination(0, 1)));
    assert!(findings(&even)[0].problem.contains("no more faults than 3"));
    let mut alone = node_report(with_info(&[]));
    alone.nodes.truncate(1);
    assert!(findings(&alone)[0].problem.contains("one node"));
    let mut new = node_report(with_info(&[]));
    new.nodes.iter_mut().for_each(|node| node.state = NodeState::Refused(VoteRejection::Unmarked));
    assert!(findings(&new).iter().any(|found| found.severity == Note && found.problem.contains("are new")));
    assert!(findings(&new).iter().all(|found| found.severity < Critical));
    let twin = NodeState::Refused(VoteRejection::Twin("redis://b:6379".into()));
    finds(ExaminedNode { state: twin, ..with_info(&[]) }, Critical, "one server");
    let mut short = node_report(with_info(&[]));
    short.ttl = Duration::from_millis(200);
    let found = findings(&short).remove(0);
    assert!(found.problem.starts_with("ttl is 200ms, of which") && !found.problem.contains(';'), "{found:?}");
    assert!(found.fix.contains("lengthen ttl"), "{found:?}");
}
