//! Tests of `quorate doctor` on real servers.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use quorate::redis::RedisNode;
use quorate_testkit::redis::{RedisConfig, RedisServer};
use quorate_tests::support::{Ended, Nodes, Program};
use serde_json::Value;

fn program() -> Program {
    Program::new(env!("CARGO_BIN_EXE_quorate-under-test"))
}

fn server(config: RedisConfig) -> RedisServer {
    config.start().unwrap_or_else(|error| panic!("{error}"))
}

/// Returns the findings in the output of `--json`. Each has a severity, a node and a text.
fn findings(ended: &Ended) -> Vec<(String, String, String)> {
    let page: Value = serde_json::from_str(&ended.stdout).expect("one JSON object");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let all = page["findings"].as_array().expect("findings");
    let of =
        |finding: &Value| (text(&finding["severity"]), text(&finding["node"]), text(&finding["problem"]));
    assert!(all.iter().all(|finding| !text(&finding["fix"]).is_empty()), "each has its fix");
    all.iter().map(of).collect()
}

#[test]
fn healthy_servers_of_one_host_have_one_warning_and_no_critical_finding() {
    let program = program();
    let nodes = Nodes::admitted(3, &program, &[]);
    let ended = program.run(["doctor", "--json", "--nodes", &nodes.list()]);
    let found = findings(&ended);
    assert_eq!(ended.code, Some(1), "{found:?}");
    assert!(found[0].2.contains("3 of 3 nodes are on 127.0.0.1"), "{found:?}");
    assert!(found[1..].iter().all(|(weight, ..)| weight == "note"), "{found:?}");
    let ended = program.run(["doctor", "--nodes", &nodes.list()]);
    assert!(ended.stdout.contains("findings, the most severe first") && ended.stdout.contains("fix: "));
}

#[test]
fn a_new_cluster_is_reported_and_not_marked() {
    let program = program();
    let nodes = Nodes::new(3);
    for _ in 0..2 {
        let found = findings(&program.run(["doctor", "--json", "--nodes", &nodes.list()]));
        assert!(found.iter().any(|(_, _, what)| what.contains("3 of 3 nodes are new")), "{found:?}");
        assert!(found.iter().all(|(weight, ..)| weight != "critical"), "{found:?}");
    }
}

#[test]
fn servers_with_problems_are_found() {
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
    assert_eq!(found[0].0, "critical", "the most severe first");
}

/// Checks that every tested server accepts the file, and that its user has all rights.
#[test]
fn the_redis_conf_in_config_is_accepted_and_its_user_suffices() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../config/redis.conf");
    let text = std::fs::read_to_string(file).expect("the example");
    let mut config = RedisConfig::new();
    let mut users = 0;
    for line in text.lines() {
        // The test-kit chooses the address, and checks with the default user whether the server answers.
        if line.starts_with("port ") || line.starts_with("bind ") || line.starts_with("#user default") {
            continue;
        }
        let user = line.strip_prefix("#user ");
        users += usize::from(user.is_some());
        let rules =
            user.map(|rules| format!("user {}", rules.replace(&format!("#{}", "0".repeat(64)), ">sesame")));
        config = config.line(&rules.unwrap_or_else(|| line.to_owned()));
    }
    assert_eq!(users, 1, "the file has a user");
    let node = server(config);
    let url = format!("redis://quorate:sesame@127.0.0.1:{}", node.port());
    let program = program();
    program.run(["nodes", "trust", "--nodes", &url]).expect(0);
    let found = findings(&program.run(["doctor", "--json", "--nodes", &url]));
    let others: Vec<_> =
        found.iter().filter(|(_, _, what)| !what.contains("one node") && !what.contains("durable")).collect();
    assert!(others.is_empty(), "{others:?}");
    program.run(["exec", "--nodes", &url, "--lock", "x", "--", "true"]).expect(0);
}

#[test]
fn the_acl_that_it_names_is_sufficient_and_a_smaller_one_is_found() {
    let program = program();
    let least = RedisNode::least_acl("quorate:");
    let config = RedisConfig::new()
        .user("app", &format!("on >sesame {least}"))
        .user("poor", &format!("on >sesame {least} -hset"))
        .user("deaf", &format!("on >sesame {least} resetchannels -pubsub"));
    let node = server(config);
    let url = |user: &str| format!("redis://{user}:sesame@127.0.0.1:{}", node.port());
    let found = findings(&program.run(["doctor", "--json", "--nodes", &url("poor")]));
    let rights = found.iter().find(|(_, _, what)| what.contains("may not run")).expect("a finding");
    assert!(rights.2.contains("poor") && rights.2.contains("hset"), "{rights:?}");
    let found = findings(&program.run(["doctor", "--json", "--nodes", &url("deaf")]));
    let pushes = found.iter().find(|(_, _, what)| what.contains("wakes no waiter")).expect("a finding");
    assert_eq!(pushes.0, "warning");
    assert!(
        ["publish ", "pubsub numsub ", "subscribe "].iter().all(|word| pushes.2.contains(word)),
        "{pushes:?}"
    );
    assert!(!pushes.2.contains("unsubscribe"), "{pushes:?}");
    let ended = program.run(["doctor", "--json", "--nodes", &url("app")]);
    assert!(!ended.stdout.contains("sesame") && !ended.stderr.contains("sesame"));
    let found = findings(&ended);
    assert!(!found.iter().any(|(_, _, what)| what.contains("may not run")), "{found:?}");
    // A user with only the permissions of the suggested rule can use everything.
    let nodes = url("app");
    program.run(["nodes", "trust", "--nodes", &nodes]).expect(0);
    let exec = ["exec", "--nodes", &nodes, "--lock", "x", "--", "sh", "-c", "echo $QUORATE_FENCING_TOKEN"];
    let ended = program.run(exec).expect(0);
    assert!(ended.stdout.trim().parse::<u64>().is_ok(), "{}", ended.stdout);
}
