use super::*;
use quorate::node::{FencingToken, NodeTime};

fn release(name: &str) -> Request {
    Request::Release { resource: Resource::lock(name).unwrap(), owner: Owner::sign("w", 1, 2) }
}

fn inspect(name: &str) -> Request {
    Request::Inspect { resource: Resource::lock(name).unwrap() }
}

fn encoded(requests: Vec<Request>) -> Encoded {
    let names = Script::ALL.iter().map(|script| format!("{script:?}")).collect();
    let batch = Batch { requests, not_after: NodeTime::from_micros(7), stamp: "stamp".into() };
    encode(&batch, &Keys::new("p:"), &Loaded::new(names).unwrap())
}

#[test]
fn a_time_to_live_is_rounded_up_and_never_zero() {
    for (micros, ms) in [(0, 1), (1, 1), (1000, 1), (1001, 2), (80_300, 81)] {
        assert_eq!(millis(Duration::from_micros(micros)), ms);
    }
    assert_eq!(u128::from(millis(Duration::MAX)), MS_MAX);
}

#[test]
fn similar_requests_in_a_row_share_a_call_in_order() {
    let all = encoded(vec![release("a"), release("b"), inspect("a"), release("a")]);
    assert_eq!(all.runs, [2, 1, 1]);
    let text = String::from_utf8(all.bytes).unwrap();
    let positions: Vec<_> = ["Release", "p:b", "Inspect", "{p:a}:fence"].map(|word| text.find(word)).into();
    assert!(positions.is_sorted() && positions[0].is_some(), "{text}");
}

#[test]
fn alternating_requests_share_a_call_and_each_item_has_a_letter() {
    let raise = |resource: Resource| Request::Raise {
        resource,
        owner: Owner::sign("w", 1, 2),
        to: FencingToken::new(7),
        keep: Duration::from_secs(1),
    };
    let (lock, claim) = (|| Resource::lock("b").unwrap(), || Resource::claim("s", "b").unwrap());
    let freed = Request::Release { resource: claim(), owner: Owner::sign("w", 1, 2) };
    let all = encoded(vec![
        release("a"),
        raise(lock()),
        release("c"),
        raise(claim()),
        freed,
        inspect("a"),
        raise(lock()),
    ]);
    assert_eq!(all.runs, [3, 2, 1, 1], "claims have other keys and scripts");
    let text = String::from_utf8(all.bytes).unwrap();
    assert!(text.contains("$5\r\nBatch\r\n$1\r\n5\r\n") && text.contains("stamp\r\n$3\r\nbdb\r\n"), "{text}");
    assert!(text.contains("BatchClaims\r\n$1\r\n3\r\n") && text.contains("stamp\r\n$2\r\ndb\r\n"), "{text}");
    for (batch, scripts) in [
        (Script::Batch, Script::BATCHED.as_slice()),
        (Script::BatchClaims, Script::BATCHED_CLAIMS.as_slice()),
    ] {
        let source = batch.source();
        assert_eq!(source.matches("\ndefine(").count(), scripts.len(), "each script is registered");
        assert!(!source.contains("return serve("), "no script calls serve itself");
    }
}

#[test]
fn a_long_run_is_split_and_an_empty_batch_asks_for_the_time() {
    let long = (0..200).map(|number| release(&number.to_string())).collect();
    assert_eq!(encoded(long).runs, [ITEMS_A_CALL, ITEMS_A_CALL, ITEMS_A_CALL, 200 - 3 * ITEMS_A_CALL]);
    let none = encoded(vec![]);
    assert_eq!(none.runs, [0]);
    assert_eq!(none.bytes, b"*1\r\n$4\r\nTIME\r\n");
}

/// Returns one request of each kind, for locks and for claims.
fn all_requests() -> Vec<Request> {
    let (ttl, token) = (Duration::from_secs(1), FencingToken::new(7));
    let owner = || Owner::sign("w", 1, 2);
    let of = |resource: Resource| {
        vec![
            Request::Acquire {
                resource: resource.clone(),
                owner: owner(),
                ttl,
                propose: token,
                tolerance: ttl,
                keep: ttl,
                ticket: None,
            },
            Request::Raise { resource: resource.clone(), owner: owner(), to: token, keep: ttl },
            Request::Extend { resource: resource.clone(), owner: owner(), ttl, token, keep: ttl },
            Request::Reserve { resource: resource.clone(), owner: owner(), successor: owner(), ttl },
            Request::Release { resource: resource.clone(), owner: owner() },
            Request::Share { resource: resource.clone(), owner: owner(), ttl, ticket: None },
            Request::ExtendShare { resource: resource.clone(), owner: owner(), ttl },
            Request::ReleaseShare { resource: resource.clone(), owner: owner() },
            Request::Downgrade { resource: resource.clone(), owner: owner(), token, reader: owner(), ttl },
            Request::Queue {
                resource: resource.clone(),
                ticket: owner(),
                at: 1,
                now: 1,
                tolerance: ttl,
                ttl,
                exclusive: true,
            },
            Request::LeaveQueue { resource: resource.clone(), ticket: owner() },
            Request::Inspect { resource: resource.clone() },
            Request::Complete {
                resource: resource.clone(),
                owner: owner(),
                record: DoneRecord::default(),
                retention: ttl,
            },
            Request::Count {
                resource: resource.clone(),
                owner: owner(),
                attempts: 1,
                payload: None,
                withdraw: false,
                keep: ttl,
            },
            Request::ResetAttempts { resource, keep: ttl },
        ]
    };
    let record = Record { at: 1, term: token, last: false, value: "v".into() };
    let mut all = of(Resource::lock("l").unwrap());
    all.extend(of(Resource::claim("s", "c").unwrap()));
    all.extend([
        Request::Seal { ledger: "g".into(), term: token, after: None },
        Request::Write { ledger: "g".into(), term: token, key: "k".into(), seen: None, record },
        Request::Prune { ledger: "g".into(), term: token, below: 1, after: None },
        Request::Read { ledger: "g".into(), after: None, key: None },
        Request::Keep { ledger: "g".into(), life: ttl },
        Request::Mark { expect: None, marker: "m".into() },
    ]);
    all
}

/// Checks that the encoder sends to each script as many keys and arguments as the script declares by
/// `serve(sets, votes, KEYS, ARGS, …, COMMON)`.
#[test]
fn every_script_declares_the_keys_and_arguments_that_it_receives() {
    let mut seen = Vec::new();
    for request in all_requests() {
        let script = script_of(&request);
        seen.push(script);
        let call = script.source().rsplit("return serve(").next().unwrap();
        let mut taken = call.split(", ").skip(2);
        let common = call.rsplit_once("end").unwrap().1.trim_start_matches(", ");
        let common: usize = common.trim_end().trim_end_matches(')').parse().unwrap_or_default();
        let resp = |of: &dyn Fn(&mut RespCommand)| {
            let (mut resp, mut bytes) = (RespCommand::with_capacity(64), Vec::new());
            of(&mut resp);
            resp.finish(&mut bytes);
            let count: Vec<u8> = bytes[1..].iter().copied().take_while(u8::is_ascii_digit).collect();
            String::from_utf8(count).unwrap().parse::<usize>().unwrap()
        };
        let keys = resp(&|command| keys_of(command, &request, &Keys::new("")));
        assert_eq!((keys, Ok(keys)), (script.keys_per_item(), taken.next().unwrap().parse()), "{script:?}");
        assert_eq!(taken.next().unwrap().parse(), Ok(resp(&|to| args_of(to, &request))), "{script:?}");
        assert_eq!(common, resp(&|to| common_of(to, &request)), "{script:?}");
    }
    let served = |script: &Script| !matches!(script, Script::Batch | Script::BatchClaims);
    let missing = Script::ALL.into_iter().filter(served).find(|script| !seen.contains(script));
    assert_eq!(missing, None, "every script has a request");
}
