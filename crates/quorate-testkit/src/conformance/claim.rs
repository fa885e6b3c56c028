use super::{TestClient, client::*};
use quorate::node::{DoneRecord, INVALID_REQUEST, Node, Refusal, Reply, Request, engine::RESULT_MAX};
use std::time::Duration;

pub(super) async fn complete_frees_the_claim_and_keeps_its_result<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let resource = claim("1");
    let by = client.must_acquire(&resource, &owner(1), LONG).await;
    assert_eq!(client.inspect(&resource).await.done, None);
    assert_eq!(client.ask(complete(&resource, &owner(1), by, "paid")).await, Reply::Completed);
    let seen = client.inspect(&resource).await;
    assert_eq!(
        seen,
        ResourceState { holder: None, counter: None, done: Some(done(by, "paid")), begun: None }
    );
    let again = client.ask(client.acquire(&resource, &owner(2), LONG)).await;
    assert_eq!(again, Reply::Done(done(by, "paid")));
    assert!(client.inspect(&resource).await.is_free());
    client.must_acquire(&claim("2"), &owner(2), LONG).await;
}

pub(super) async fn complete_is_refused_while_another_holds<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let resource = claim("1");
    let by = client.must_acquire(&resource, &owner(1), LONG).await;
    let stranger = client.ask(complete(&resource, &owner(2), by + 1, "mine")).await;
    assert!(matches!(stranger, Reply::Held { owner: holder, .. } if holder == owner(1)));
    let seen = client.inspect(&resource).await;
    assert!(seen.held_by(&owner(1)) && seen.done.is_none(), "{seen:?}");
    assert_eq!(seen.counter, Some(by));
}

pub(super) async fn complete_after_the_end_needs_the_newest_count<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let (alone, passed) = (claim("alone"), claim("passed"));
    let by = client.must_acquire(&alone, &owner(1), Duration::from_millis(10)).await;
    let old = client.must_acquire(&passed, &owner(1), Duration::from_millis(10)).await;
    client.wait_until(&alone, ResourceState::is_free).await;
    client.wait_until(&passed, ResourceState::is_free).await;
    assert_eq!(client.ask(complete(&alone, &owner(1), by, "late")).await, Reply::Completed);
    assert_eq!(client.inspect(&alone).await.done, Some(done(by, "late")));
    client.must_acquire(&passed, &owner(2), LONG).await;
    assert_eq!(client.ask(release(&passed, &owner(2))).await, Reply::Released(true));
    let superseded = client.ask(complete(&passed, &owner(1), old, "late")).await;
    assert_eq!(superseded, Reply::Refused(Refusal::Superseded));
    assert_eq!(client.inspect(&passed).await.done, None);
    // The node has no counter of this claim, so it accepts any token.
    let unknown = claim("unknown");
    assert_eq!(client.ask(complete(&unknown, &owner(1), 12, "x")).await, Reply::Completed);
    assert_eq!(
        client.inspect(&unknown).await,
        ResourceState { holder: None, counter: None, done: Some(done(12, "x")), begun: None }
    );
}

pub(super) async fn the_done_record_with_the_higher_token_is_kept<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let resource = claim("1");
    assert_eq!(client.ask(complete(&resource, &owner(1), 90, "ninety")).await, Reply::Completed);
    // The node must compare tokens as numbers. If it compared them as text, the token 100 below would be less
    // than 90.
    let lower = client.ask(complete(&resource, &owner(2), 9, "nine")).await;
    assert_eq!(lower, Reply::Done(done(90, "ninety")));
    assert_eq!(client.ask(complete(&resource, &owner(1), 90, "again")).await, Reply::Completed);
    assert_eq!(client.ask(complete(&resource, &owner(3), 100, "hundred")).await, Reply::Completed);
    let seen = client.inspect(&resource).await;
    assert_eq!((seen.counter, seen.done), (None, Some(done(100, "hundred"))));
}

pub(super) async fn a_done_claim_is_not_extended<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let resource = claim("1");
    let by = client.must_acquire(&resource, &owner(1), LONG).await;
    assert_eq!(client.ask(complete(&resource, &owner(1), by, "")).await, Reply::Completed);
    let extended = client.ask(extend(&resource, &owner(1), LONG, by)).await;
    assert_eq!(extended, Reply::Done(done(by, "")));
    assert!(client.inspect(&resource).await.is_free());
}

pub(super) async fn a_done_record_expires_with_its_counter<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let resource = claim("1");
    let by = client.must_acquire(&resource, &owner(1), LONG).await;
    let mut brief = complete(&resource, &owner(1), by, "brief");
    if let Request::Complete { retention, .. } = &mut brief {
        *retention = Duration::from_millis(80);
    }
    let sent = client.now();
    assert_eq!(client.ask(brief).await, Reply::Completed);
    client.wait_until(&resource, |seen| seen.done.is_none() && seen.counter.is_none()).await;
    assert!(sent.until(client.now()) >= Duration::from_millis(80));
    client.must_acquire(&resource, &owner(2), LONG).await;
}

pub(super) async fn results_may_hold_anything<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let long = "r".repeat(RESULT_MAX);
    for result in ["", ":", "7:x", "a\nb\r\n", "{\"ü\": null}", "\0", &long] {
        let resource = claim(&format!("{}{}", result.len(), result.starts_with(':')));
        assert_eq!(client.ask(complete(&resource, &owner(1), 3, result)).await, Reply::Completed);
        assert_eq!(client.inspect(&resource).await.done, Some(done(3, result)), "{result:?}");
    }
}

pub(super) async fn the_holder_counts_an_attempt_and_the_next_grant_reports_it<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let resource = claim("1");
    let nobody = client.ask(count(&resource, &owner(1), 1, None)).await;
    assert_eq!(nobody, Reply::Refused(Refusal::NotOwner));
    let first = client.ask(client.acquire(&resource, &owner(1), LONG)).await;
    assert!(matches!(first, Reply::Granted { begun: None, .. }), "{first:?}");
    assert_eq!(client.ask(count(&resource, &owner(1), 1, Some("0f"))).await, Reply::Counted);
    let stranger = client.ask(count(&resource, &owner(2), 9, None)).await;
    assert_eq!(stranger, Reply::Refused(Refusal::NotOwner));
    assert_eq!(client.inspect(&resource).await.begun, Some(begun(1, Some("0f"))));
    assert_eq!(client.ask(release(&resource, &owner(1))).await, Reply::Released(true));
    match client.ask(client.acquire(&resource, &owner(2), LONG)).await {
        Reply::Granted { begun: standing, .. } => assert_eq!(standing, Some(begun(1, Some("0f")))),
        other => unexpected(&other),
    }
    // A count without a fingerprint leaves the stored fingerprint unchanged.
    assert_eq!(client.ask(count(&resource, &owner(2), 2, None)).await, Reply::Counted);
    assert_eq!(client.inspect(&resource).await.begun, Some(begun(2, Some("0f"))));
}

pub(super) async fn no_count_decreases_or_counts_two_attempts<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let resource = claim("1");
    client.must_acquire(&resource, &owner(1), LONG).await;
    assert_eq!(client.ask(count(&resource, &owner(1), 10, None)).await, Reply::Counted);
    // The node must compare counts as numbers. If it compared them as text, 9 would be greater than the stored
    // 10.
    for fewer in [0, 1, 9, 10] {
        let refused = client.ask(count(&resource, &owner(1), fewer, None)).await;
        assert_eq!(refused, Reply::Refused(Refusal::Superseded), "{fewer}");
    }
    assert_eq!(client.inspect(&resource).await.begun, Some(begun(10, None)));
}

pub(super) async fn an_attempt_is_taken_back_where_it_was_counted<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let resource = claim("1");
    client.must_acquire(&resource, &owner(1), LONG).await;
    let uncounted = client.ask(count_back(&resource, &owner(1), 1)).await;
    assert_eq!(uncounted, Reply::Refused(Refusal::Superseded));
    assert_eq!(client.ask(count(&resource, &owner(1), 3, Some("aa"))).await, Reply::Counted);
    for other in [2, 4] {
        let refused = client.ask(count_back(&resource, &owner(1), other)).await;
        assert_eq!(refused, Reply::Refused(Refusal::Superseded), "{other}");
    }
    let stranger = client.ask(count_back(&resource, &owner(2), 3)).await;
    assert_eq!(stranger, Reply::Refused(Refusal::NotOwner));
    assert_eq!(client.ask(count_back(&resource, &owner(1), 3)).await, Reply::Counted);
    assert_eq!(client.inspect(&resource).await.begun, Some(begun(2, Some("aa"))));
    // When the count becomes zero, the node drops the stored payload fingerprint.
    for more in [2, 1] {
        assert_eq!(client.ask(count_back(&resource, &owner(1), more)).await, Reply::Counted);
    }
    assert_eq!(client.inspect(&resource).await.begun, Some(begun(0, None)));
}

pub(super) async fn a_count_expires_and_ends_with_the_done_record<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let (brief, finished) = (claim("brief"), claim("finished"));
    client.must_acquire(&brief, &owner(1), LONG).await;
    let mut counted = count(&brief, &owner(1), 1, None);
    if let Request::Count { keep, .. } = &mut counted {
        *keep = Duration::from_millis(80);
    }
    let sent = client.now();
    assert_eq!(client.ask(counted).await, Reply::Counted);
    let by = client.must_acquire(&finished, &owner(1), LONG).await;
    assert_eq!(client.ask(count(&finished, &owner(1), 1, None)).await, Reply::Counted);
    assert_eq!(client.ask(complete(&finished, &owner(1), by, "ok")).await, Reply::Completed);
    let seen = client.inspect(&finished).await;
    assert_eq!((seen.begun, seen.done), (None, Some(done(by, "ok"))));
    // The done record has ended the lease on the claim. The node must therefore refuse a count that the
    // claim's former owner sends later.
    let late = client.ask(count(&finished, &owner(1), 2, None)).await;
    assert_eq!(late, Reply::Refused(Refusal::NotOwner));
    client.wait_until(&brief, |seen| seen.begun.is_none()).await;
    assert!(sent.until(client.now()) >= Duration::from_millis(80));
}

pub(super) async fn a_record_keeps_the_payload_and_the_count<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let resource = claim("1");
    for record in [
        DoneRecord { payload: Some("00ff".into()), ..done(3, "1:2:x") },
        DoneRecord { dead_lettered: Some(7), ..done(4, "") },
        DoneRecord { payload: Some("ab".repeat(32).into()), dead_lettered: Some(u32::MAX), ..done(5, ":") },
        DoneRecord { at: 0, ..done(6, "a\nb") },
    ] {
        let request = Request::Complete {
            resource: resource.clone(),
            owner: owner(1),
            record: record.clone(),
            retention: LONG,
        };
        assert_eq!(client.ask(request).await, Reply::Completed);
        assert_eq!(client.inspect(&resource).await.done, Some(record.clone()));
        assert_eq!(client.ask(client.acquire(&resource, &owner(2), LONG)).await, Reply::Done(record));
    }
}

pub(super) async fn only_a_dead_or_counted_claim_is_reset<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let resource = claim("1");
    assert_eq!(client.ask(reset_attempts(&resource)).await, Reply::AttemptsReset, "no claim is stored");
    client.must_acquire(&resource, &owner(1), LONG).await;
    assert_eq!(client.ask(count(&resource, &owner(1), 1, Some("aa"))).await, Reply::Counted);
    let held = client.ask(reset_attempts(&resource)).await;
    assert!(matches!(held, Reply::Held { owner: holder, .. } if holder == owner(1)));
    assert_eq!(client.ask(release(&resource, &owner(1))).await, Reply::Released(true));
    assert_eq!(client.ask(reset_attempts(&resource)).await, Reply::AttemptsReset);
    assert_eq!(client.inspect(&resource).await.begun, None);
    let by = client.must_acquire(&resource, &owner(2), LONG).await;
    let given_up = DoneRecord { dead_lettered: Some(5), payload: Some("aa".into()), ..done(by, "note") };
    let request =
        Request::Complete { resource: resource.clone(), owner: owner(2), record: given_up, retention: LONG };
    assert_eq!(client.ask(request).await, Reply::Completed);
    assert_eq!(client.ask(reset_attempts(&resource)).await, Reply::AttemptsReset);
    let (before, by) = (by, client.must_acquire(&resource, &owner(3), LONG).await);
    assert_eq!(by, before + 1, "the counter goes on");
    assert_eq!(client.ask(complete(&resource, &owner(3), by, "7")).await, Reply::Completed);
    // This result begins with a digit. The node must not mistake it for a number of attempts.
    assert_eq!(client.ask(reset_attempts(&resource)).await, Reply::Done(done(by, "7")));
    assert_eq!(client.inspect(&resource).await.done, Some(done(by, "7")));
}

pub(super) async fn claims_that_travel_together_are_served_in_their_order<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let ids: Vec<_> = (0..200).map(|number| claim(&number.to_string())).collect();
    let now = client.wall().as_micros();
    let all = |client: &TestClient<N>, number: u64| {
        ids.iter().map(|id| client.acquire_from(id, &owner(number), LONG, now)).collect::<Vec<_>>()
    };
    let granted = |by| Reply::Granted { counter: token(by), begun: None };
    let first = client.ask_all(all(&client, 1)).await.replies;
    assert!(first.iter().all(|reply| *reply == granted(now + 1)), "{first:?}");
    let held = client.ask_all(all(&client, 2)).await.replies;
    let by_the_first =
        |reply: &Reply| matches!(reply, Reply::Held { owner: holder, .. } if *holder == owner(1));
    assert!(held.iter().all(by_the_first), "{held:?}");
    // A request of a batch sees the effects of the earlier requests of the same batch.
    let (mine, theirs) = (owner(1), owner(2));
    let acquire = |id| client.acquire_from(id, &theirs, LONG, now);
    let turns = vec![
        (complete(&ids[0], &mine, now + 1, "ok"), Reply::Completed),
        (acquire(&ids[0]), Reply::Done(done(now + 1, "ok"))),
        (extend(&ids[0], &mine, LONG, now + 1), Reply::Done(done(now + 1, "ok"))),
        (release(&ids[1], &mine), Reply::Released(true)),
        (acquire(&ids[1]), granted(now + 2)),
        (count(&ids[1], &theirs, 1, Some("aa")), Reply::Counted),
        (count(&ids[1], &theirs, 1, Some("aa")), Reply::Refused(Refusal::Superseded)),
        (extend(&ids[1], &theirs, LONG, now + 2), Reply::Extended),
        (raise(&ids[1], &theirs, now + 9), Reply::Raised),
        (release(&ids[1], &theirs), Reply::Released(true)),
        (acquire(&ids[1]), Reply::Granted { counter: token(now + 10), begun: Some(begun(1, Some("aa"))) }),
        (complete(&ids[1], &theirs, now + 10, "2"), Reply::Completed),
        (complete(&ids[2], &mine, now + 1, "3"), Reply::Completed),
    ];
    let (asked, wanted): (Vec<_>, Vec<_>) = turns.into_iter().unzip();
    assert_eq!(client.ask_all(asked).await.replies, wanted);
    let rest = ids[3..].iter().map(|id| complete(id, &mine, now + 1, "ok")).collect();
    let rest = client.ask_all(rest).await.replies;
    assert!(rest.iter().all(|reply| *reply == Reply::Completed), "{rest:?}");
    assert_eq!(client.inspect(&ids[199]).await.done, Some(done(now + 1, "ok")));
}

pub(super) async fn requests_for_another_kind_of_resource_are_refused<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let (resource, plain) = (claim("1"), lock("l"));
    let by = client.must_acquire(&resource, &owner(1), LONG).await;
    let theirs = client.must_acquire(&plain, &owner(1), LONG).await;
    let asked = vec![
        complete(&plain, &owner(1), theirs, "ok"),
        count(&plain, &owner(1), 1, None),
        reset_attempts(&plain),
        share(&resource, &owner(2), LONG),
        extend_share(&resource, &owner(2), LONG),
        downgrade(&resource, &owner(1), by, &owner(2), LONG),
        client.queue(&resource, &owner(2), Duration::ZERO, LONG, true),
        reserve(&resource, &owner(1), &owner(2), LONG),
    ];
    for (request, reply) in asked.clone().into_iter().zip(client.ask_all(asked).await.replies) {
        assert!(request.is_invalid());
        assert_eq!(reply, Reply::Refused(Refusal::Failed(INVALID_REQUEST.into())), "{request:?}");
    }
    let (seen, other) = (client.inspect(&resource).await, client.inspect(&plain).await);
    assert!(seen.held_by(&owner(1)) && other.held_by(&owner(1)), "{seen:?}, {other:?}");
    assert_eq!((seen.counter, other.counter), (Some(by), Some(theirs)), "and nothing has changed");
}
