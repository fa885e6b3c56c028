//! Tests that invalid input is refused before any request is sent. The error names the field, the value and
//! the fix.

mod common;

use common::{SECOND, nodes, quorum};
use quorate::{
    SettingError,
    claim::{Claims, MessageId},
    election::Election,
    node::{MemoryNode, Resource},
    quorum::{Quorum, QuorumConfig},
};
use std::time::Duration;

#[track_caller]
fn says(error: impl ToString, parts: &[&str]) {
    let error = error.to_string();
    for part in parts {
        assert!(error.contains(part), "{error:?} without {part:?}");
    }
}

#[tokio::test]
async fn an_impossible_ttl_is_refused_everywhere() {
    let nodes = nodes();
    let quorum = quorum("a", &nodes);
    let table = [
        (Duration::ZERO, ["ttl is 0ns", "lengthen ttl"]),
        (SECOND * 31, ["ttl is 31s, above max_ttl 30s", "shorten ttl"]),
        // The validity is the TTL less a tenth for clock steps, less a hundredth for drift, and less 2 ms. The
        // validity must be longer than the time of an extension plus the grace period. An extension takes a
        // third of the TTL plus a node timeout.
        (SECOND / 5, ["ttl is 200ms, of which 176ms count as valid", "node_timeout 100ms"]),
        (Duration::from_millis(100), ["ttl is 100ms", "lengthen ttl"]),
    ];
    for (ttl, parts) in table {
        says(quorum.lock("x").ttl(ttl).try_acquire().await.expect_err("no such lease"), &parts);
        says(quorum.lock("x").ttl(ttl).acquire().await.expect_err("no such lease"), &parts);
        says(quorum.locks(["x", "y"]).ttl(ttl).acquire_all().await.expect_err("no such lease"), &parts);
        says(quorum.locks(["x", "y"]).ttl(ttl).try_acquire_each().await.expect_err("no such lease"), &parts);
        says(quorum.slots("x", 2).ttl(ttl).acquire_any().await.expect_err("no such lease"), &parts);
        says(Claims::new(&quorum, "s").ttl(ttl).claim("1").await.expect_err("no such claim"), &parts);
        let led = Election::new(&quorum, "g").ttl(ttl).run(|_| async { Ok::<(), SettingError>(()) });
        says(led.until(std::future::pending::<()>()).await.expect_err("no such term"), &parts);
    }
    let grace = quorum.lock("x").step_down_grace(9 * SECOND).acquire().await.expect_err("no time to extend");
    says(grace, &["ttl is 10s", "step_down_grace 9s", "shorten step_down_grace"]);
    quorum.close().await;
}

#[tokio::test]
async fn impossible_claims_are_refused_before_any_request() {
    let nodes = nodes();
    let quorum = quorum("a", &nodes);
    let claims = || Claims::new(&quorum, "s").ttl(2 * SECOND);
    let table = [
        (claims().max_attempts(0), ["max_attempts is 0", "give 1 or more"]),
        (
            claims().retention(SECOND),
            ["retention is 1s, shorter than the claims' ttl 2s", "lengthen retention"],
        ),
        (
            claims().dead_letter_retention(SECOND),
            ["dead_letter_retention is 1s, shorter than", "lengthen dead_letter_retention"],
        ),
    ];
    for (claims, parts) in table {
        says(claims.validate().expect_err("no such claims"), &parts);
        says(claims.claim("1").await.expect_err("no such claim"), &parts);
        says(claims.claim_many(["1", "2"]).await.expect_err("no such claims"), &parts);
        let once = claims.process_or_wait("1", SECOND, |_| async { Ok::<(), SettingError>(()) }).await;
        says(once.expect_err("no such claim"), &parts);
    }
    claims().validate().expect("these can");
    let long = "i".repeat(513);
    for (id, why) in
        [("", "is empty"), (&*long, "is longer than 512 bytes"), ("a\nb", "holds a control character")]
    {
        let parts = ["the message id", why, "choose another name"];
        says(claims().claim_many(["fine", id]).await.expect_err("no such id"), &parts);
        says(claims().inspect(id).await.expect_err("no such id"), &parts);
        says(claims().reset(id).await.expect_err("no such id"), &parts);
        let once = claims().process_or_wait(id, SECOND, |_| async { Ok::<(), SettingError>(()) }).await;
        says(once.expect_err("no such id"), &parts);
    }
    let no_text = MessageId::from_utf8(b"order-\xff\xfe").expect_err("no text");
    says(no_text, &["the message id is \"order-", "is not UTF-8", "choose another name"]);
    assert_eq!(MessageId::from_utf8("größe".as_bytes()).expect("text").id(), "größe");
    quorum.close().await;
}

#[tokio::test]
async fn an_invalid_name_is_refused_everywhere() {
    let nodes = nodes();
    let quorum = quorum("a", &nodes);
    let long = "n".repeat(513);
    let table = [
        ("", "is empty"),
        (&*long, "is longer than 512 bytes"),
        ("a{b", "holds a brace"),
        ("a}b", "holds a brace"),
        ("a\nb", "holds a control character"),
        ("\u{7f}", "holds a control character"),
    ];
    for (name, why) in table {
        let parts = [why, "choose another name"];
        says(quorum.lock(name).try_acquire().await.expect_err("no such name"), &parts);
        says(quorum.locks(["fine", name]).acquire_all().await.expect_err("no such name"), &parts);
        says(quorum.slots(name, 2).acquire_any().await.expect_err("no such name"), &parts);
        if !name.contains(['{', '}']) {
            says(Claims::new(&quorum, "s").claim(name).await.expect_err("no such name"), &parts);
        }
        says(Claims::new(&quorum, name).claim("1").await.expect_err("no such name"), &parts);
        says(Election::new(&quorum, name).observe().expect_err("no such name"), &parts);
        let led = Election::new(&quorum, name).run(|_| async { Ok::<(), SettingError>(()) });
        says(led.until(std::future::pending::<()>()).await.expect_err("no such name"), &parts);
        assert!(Resource::lock(name).is_err() && Resource::election(name).is_err());
    }
    for word in ["election", "claim/s/1", "ledger/g", "node", "resign/x"] {
        says(Resource::lock(word).expect_err("ours"), &["keeps for itself", "choose another name"]);
    }
    assert!(Resource::lock(&long[1..]).is_ok() && Resource::lock("nodes and ünïcödé").is_ok());
    let slots = quorum.slots(&long[1..], 2).acquire_any().await.expect_err("too long with its number");
    says(slots, &["is longer than 512 bytes"]);
    quorum.close().await;
}

#[tokio::test]
async fn a_node_list_has_at_least_one_node_and_no_duplicates() {
    let node = |name: &str| MemoryNode::new(name);
    let built = |names: &[&str]| Quorum::builder().nodes(names.iter().map(|name| node(name))).build();
    says(built(&[]).expect_err("no node"), &["nodes is empty", "name at least one"]);
    says(
        built(&["a", "b", "a"]).expect_err("twice"),
        &["nodes is [a, b, a], which names a twice", "name it once"],
    );
    let even = built(&["a", "b"]).expect("allowed");
    says(
        QuorumConfig::advice(even.nodes().len()).expect("it buys nothing"),
        &["names 2 servers", "no more faults than 1"],
    );
    even.close().await;
    assert!(QuorumConfig::advice(4).is_some());
    assert_eq!([1, 3, 5].map(QuorumConfig::advice), [None, None, None]);
}
