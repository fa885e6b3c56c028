//! `quorate doctor` on real servers.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use quorate_redis::RedisNode;
use quorate_testkit::redis::{RedisConfig, RedisServer};
use quorate_tests::support::{Ended, Nodes, Program};
use serde_json::Value;

fn program() -> Program {
    Program::new(env!("CARGO_BIN_EXE_quorate-under-test"))
}

fn server(config: RedisConfig) -> RedisServer {
    config.start().unwrap_or_else(|error| panic!("{error}"))
}

/// The findings in `--json`, as weight, node and text.
fn findings(ended: &Ended) -> Vec<(String, String, String)> {
    let page: Value = serde_json::from_str(&ended.stdout).expect("one JSON object");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let all = page["findings"].as_array().expect("findings");
    let of = |finding: &Value| (text(&finding["weight"]), text(&finding["node"]), text(&finding["what"]));
    assert!(all.iter().all(|finding| !text(&finding["mend"]).is_empty()), "each has its mend");
    all.iter().map(of).collect()
}

#[test]
fn healthy_servers_of_one_host_have_one_warning_and_no_grave_finding() {
    let program = program();
    let nodes = Nodes::admitted(3, &program, &[]);
    let ended = program.run(["doctor", "--json", "--nodes", &nodes.list()]);
    let found = findings(&ended);
    assert_eq!(ended.code, Some(1), "{found:?}");
    assert!(found[0].2.contains("3 of 3 nodes are on 127.0.0.1"), "{found:?}");
    assert!(found[1..].iter().all(|(weight, ..)| weight == "note"), "{found:?}");
    let ended = program.run(["doctor", "--nodes", &nodes.list()]);
    assert!(ended.stdout.contains("findings, the gravest first") && ended.stdout.contains("mend: "));
}

#[test]
fn a_new_cluster_is_told_what_the_first_worker_will_wait_for_and_is_not_marked() {
    let program = program();
    let nodes = Nodes::new(3);
    for _ in 0..2 {
        let found = findings(&program.run(["doctor", "--json", "--nodes", &nodes.list()]));
        assert!(found.iter().any(|(_, _, what)| what.contains("3 of 3 nodes are new")), "{found:?}");
        assert!(found.iter().all(|(weight, ..)| weight != "grave"), "{found:?}");
    }
}

#[test]
fn sick_servers_are_found_out() {
    let program = program();
    let evicts = server(RedisConfig::new().maxmemory_policy("allkeys-lru"));
    let full = server(RedisConfig::new().line("maxmemory 1mb"));
    let mut gone = server(RedisConfig::new());
    let list = [evicts.url(), full.url(), gone.url()].join(",");
    gone.kill();
    let ended = program.run(["doctor", "--json", "--nodes", &list]);
    let found = findings(&ended);
    assert_eq!(ended.code, Some(2), "{found:?}");
    let has = |server: &RedisServer, text: &str| {
        let port = format!(":{}/", server.port());
        found
            .iter()
            .any(|(weight, node, what)| weight != "note" && node.contains(&port) && what.contains(text))
    };
    assert!(has(&evicts, "allkeys-lru"), "{found:?}");
    assert!(has(&full, "of its maxmemory"), "{found:?}");
    assert!(has(&gone, "cannot be asked"), "{found:?}");
    assert_eq!(found[0].0, "grave", "the gravest first");
}

#[test]
fn the_least_acl_that_it_names_is_enough_and_less_is_found_out() {
    let program = program();
    let least = RedisNode::least_acl("quorate:");
    let config = RedisConfig::new()
        .user("app", &format!("on >sesame {least}"))
        .user("poor", &format!("on >sesame {least} -hset"))
        .user("deaf", &format!("on >sesame {least} resetchannels -pubsub|numsub"));
    let node = server(config);
    let url = |user: &str| format!("redis://{user}:sesame@127.0.0.1:{}", node.port());
    let found = findings(&program.run(["doctor", "--json", "--nodes", &url("poor")]));
    let rights = found.iter().find(|(_, _, what)| what.contains("may not do")).expect("a finding");
    assert!(rights.2.contains("poor") && rights.2.contains("hset"), "{rights:?}");
    let found = findings(&program.run(["doctor", "--json", "--nodes", &url("deaf")]));
    let pushes = found.iter().find(|(_, _, what)| what.contains("wakes nobody")).expect("a finding");
    assert_eq!(pushes.0, "warning");
    assert!(
        ["publish ", "pubsub numsub ", "subscribe "].iter().all(|word| pushes.2.contains(word)),
        "{pushes:?}"
    );
    assert!(!pushes.2.contains("unsubscribe"), "{pushes:?}");
    let ended = program.run(["doctor", "--json", "--nodes", &url("app")]);
    assert!(!ended.stdout.contains("sesame") && !ended.stderr.contains("sesame"));
    let found = findings(&ended);
    assert!(!found.iter().any(|(_, _, what)| what.contains("may not do")), "{found:?}");
    // The words of the rule are true: everything works under it.
    let nodes = url("app");
    program.run(["nodes", "admit", "--nodes", &nodes]).expect(0);
    let exec = ["exec", "--nodes", &nodes, "--lock", "x", "--", "sh", "-c", "echo $QUORATE_FENCING_TOKEN"];
    let ended = program.run(exec).expect(0);
    assert!(ended.stdout.trim().parse::<u64>().is_ok(), "{}", ended.stdout);
}
