use super::*;
use quorate::node::{FencingToken, NodeTime, StampStep};

fn release(name: &str) -> Request {
    Request::Release { resource: Resource::lock(name).unwrap(), owner: Owner::sign("w", 1, 2) }
}

fn inspect(name: &str) -> Request {
    Request::Inspect { resource: Resource::lock(name).unwrap() }
}

/// Returns the item counts of the script calls in `encoded`.
fn runs(encoded: &Encoded) -> Vec<usize> {
    let items = encoded.expected.iter().map(|reply| match reply {
        ExpectedReply::Items(items) => *items,
        ExpectedReply::Page => 0,
    });
    items.collect()
}

fn encoded(requests: Vec<Request>) -> Encoded {
    let names = Script::LOADED.iter().map(|script| format!("{script:?}")).collect();
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
    assert_eq!(runs(&all), [2, 1, 1]);
    let text = String::from_utf8(all.bytes).unwrap();
    let positions: Vec<_> = ["Batch", "p:b", "Inspect", "{p:a}:fence"].map(|word| text.find(word)).into();
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
    assert_eq!(runs(&all), [3, 2, 1, 1], "claims have other keys and scripts");
    let text = String::from_utf8(all.bytes).unwrap();
    let letters = "stamp\r\n$6\r\nb0d0b0\r\n$1\r\n6\r\n";
    assert!(text.contains("$5\r\nBatch\r\n$1\r\n5\r\n") && text.contains(letters), "{text}");
    assert!(
        text.contains("BatchClaims\r\n$1\r\n3\r\n") && text.contains("stamp\r\n$4\r\nd0b0\r\n"),
        "{text}"
    );
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
fn equal_arguments_are_sent_once_for_all_items_of_a_call() {
    let extend = |name: &str, seconds: u64| Request::Extend {
        resource: Resource::lock(name).unwrap(),
        owner: Owner::sign("w", 1, 2),
        ttl: Duration::from_secs(seconds),
        token: FencingToken::new(7),
        keep: Duration::from_secs(77),
    };
    let text = |requests| String::from_utf8(encoded(requests).bytes).unwrap();
    let one = text(vec![extend("a", 5), release("b"), extend("c", 6), extend("d", 5)]);
    // The keys of the queues come after all other keys. The list of shared arguments with the number 1 comes
    // before the list with the number 0.
    assert!(one.contains("$8\r\nc0b0c1c0\r\n$1\r\n9\r\n"), "{one}");
    assert!(one.ends_with(
        "$1\r\n7\r\n$4\r\n6000\r\n$5\r\n77000\r\n$1\r\n0\r\n$4\r\n5000\r\n$5\r\n77000\r\n$1\r\n0\r\n"
    ));
    let most = text((0..64).map(|number| extend(&number.to_string(), number)).collect());
    assert!(most.contains("c0c1c2") && most.contains("cmcnco\r\n"), "each item has its own: {most}");
}

#[test]
fn a_long_run_is_split_and_an_empty_batch_asks_for_the_time() {
    let long = (0..200).map(|number| release(&number.to_string())).collect();
    assert_eq!(runs(&encoded(long)), [ITEMS_A_CALL, ITEMS_A_CALL, ITEMS_A_CALL, 200 - 3 * ITEMS_A_CALL]);
    let none = encoded(vec![]);
    assert_eq!(runs(&none), [0]);
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
        Request::Stamp { own: "a".into(), known: [("a".into(), 1)].into(), step: StampStep::Advance },
    ]);
    all
}

/// Checks that each script declares exactly the parameters that the encoder sends: `serve(sets, votes, KEYS,
/// ARGS, …)`.
#[test]
fn every_script_declares_the_keys_and_arguments_that_it_receives() {
    let mut seen = Vec::new();
    for request in all_requests() {
        let script = script_of(&request);
        seen.push(script);
        let call = script.file().rsplit("return serve(").next().unwrap();
        let mut taken = call.split(", ").skip(2);
        let resp = |of: &dyn Fn(&mut RespCommand)| {
            let (mut resp, mut bytes) = (RespCommand::with_capacity(64), Vec::new());
            of(&mut resp);
            resp.finish(&mut bytes);
            let count: Vec<u8> = bytes[1..].iter().copied().take_while(u8::is_ascii_digit).collect();
            String::from_utf8(count).unwrap().parse::<usize>().unwrap()
        };
        let keys = resp(&|command| keys_of(command, &request, &Keys::new("")));
        assert_eq!((keys, Ok(keys)), (script.keys_per_item(), taken.next().unwrap().parse()), "{script:?}");
        // The arguments of a stamp continue to the end of the call.
        let args = if script == Script::Stamp { 0 } else { resp(&|to| args_of(to, &request)) };
        assert_eq!(taken.next().unwrap().parse(), Ok(args), "{script:?}");
        let reads_queue = call.contains("KEYS[q]");
        assert_eq!(queued_resource(&request).is_some(), reads_queue, "{script:?}");
        // A release has no shared arguments. Each other request has as many as it uses, and the rest are zero.
        let shared = script.batch().and_then(|_| shared_of(&request)).unwrap_or_default();
        let shared = shared.iter().filter(|arg| **arg != 0).count();
        let used = (0..SHARED_MAX).filter(|at| {
            let name = if *at == 0 { "ARGV[s]".to_owned() } else { format!("ARGV[s + {at}]") };
            script.file().contains(&name)
        });
        assert_eq!(used.count(), shared, "{script:?}");
    }
    let batched = [Script::BATCHED.as_slice(), Script::BATCHED_CLAIMS.as_slice()].concat();
    let served = |script: &Script| !matches!(script, Script::Batch | Script::BatchClaims);
    let mut all = Script::LOADED.into_iter().filter(served).chain(batched);
    assert_eq!(all.find(|script| !seen.contains(script)), None, "every script has a request");
}

#[test]
fn a_later_page_is_a_scan_and_a_script_call() {
    let seal = |after: Option<&str>| {
        let after = after.map(Cursor::new);
        Request::Seal { ledger: "g".into(), term: FencingToken::new(3), after }
    };
    let encoded = encoded(vec![seal(None), seal(Some("7")), seal(Some("9:20")), seal(None)]);
    let (page, script) = (ExpectedReply::Page, ExpectedReply::Items(1));
    assert_eq!(encoded.expected, [script, page, script, page, script, script]);
    let text = String::from_utf8(encoded.bytes).unwrap();
    let words: Vec<&str> = text.split("\r\n").filter(|word| !word.starts_with(['*', '$'])).collect();
    let text = words.join(" ");
    assert!(
        text.contains("HSCAN p:ledger/g 7 COUNT 500 EVALSHA Seal 2 p:node p:ledger/g 7 stamp 3 ="),
        "{text}"
    );
    assert!(
        text.contains("HSCAN p:ledger/g 9 COUNT 20 EVALSHA Seal 2 p:node p:ledger/g 7 stamp 3 ="),
        "{text}"
    );
}
