use super::*;
use crate::node::{FencingToken, Incarnation, NodeTime, Refusal, Reply, Resource};
use crate::redis::command::MS_MAX;
use std::collections::BTreeSet;
use std::time::Duration;

const SEAL: Seal = Seal { term: FencingToken::new(7), leader: 1 };
const ID: AssignmentId = AssignmentId { term: FencingToken::new(7), seq: 1 };

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
        ExpectedReply::Commands { acquires, .. } => *acquires,
        ExpectedReply::Page => 0,
    });
    items.collect()
}

fn encoded(requests: Vec<Request>) -> Encoded {
    encoded_with(requests, &PlainAcquires::new(false))
}

fn encoded_with(requests: Vec<Request>, known: &PlainAcquires) -> Encoded {
    let names = Script::ALL.iter().map(|script| format!("{script:?}")).collect();
    let batch = Batch { requests, not_after: NodeTime::from_micros(7), stamp: "stamp".into() };
    encode(&batch, &Keys::new("p:"), &Loaded::new(names).unwrap(), known)
}

#[test]
fn a_time_to_live_is_rounded_up_and_never_zero() {
    for (micros, ms) in [(0, 1), (1, 1), (1000, 1), (1001, 2), (80_300, 81)] {
        assert_eq!(millis(Duration::from_micros(micros)), ms);
    }
    assert_eq!(millis(Duration::MAX), MS_MAX);
}

#[test]
fn similar_requests_in_a_row_share_a_call_in_order() {
    let all = encoded(vec![release("a"), release("b"), inspect("a"), release("a")]);
    assert_eq!(runs(&all), [2, 1, 1]);
    let text = String::from_utf8(all.bytes).unwrap();
    let positions: Vec<_> = ["Release", "p:b", "Waiting", "{p:a}:fence"].map(|word| text.find(word)).into();
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
    assert_eq!(runs(&all), [2, 1, 2, 1, 1], "releases come first; claims have other keys and scripts");
    assert_eq!(all.order, [0, 2, 1, 3, 4, 5, 6]);
    let text = String::from_utf8(all.bytes).unwrap();
    assert!(text.contains("Release\r\n$1\r\n3\r\n"), "{text}");
    assert!(text.contains("Claims\r\n$1\r\n3\r\n") && text.contains("stamp\r\n$4\r\nd0b0\r\n"), "{text}");
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
    // The list of shared arguments with the number 1 comes before the list with the number 0.
    assert!(one.contains("$6\r\nb0b1b0\r\n"), "{one}");
    assert!(one.ends_with(
        "$1\r\n7\r\n$4\r\n6000\r\n$5\r\n77000\r\n$1\r\n0\r\n$1\r\n0\r\n\
         $4\r\n5000\r\n$5\r\n77000\r\n$1\r\n0\r\n$1\r\n0\r\n"
    ));
    let most = text((0..64).map(|number| extend(&number.to_string(), number)).collect());
    assert!(most.contains("b0b1b2") && most.contains("bmbnbo\r\n"), "each item has its own: {most}");
}

#[test]
fn a_long_run_is_split_and_an_empty_batch_asks_for_the_time() {
    let long = (0..200).map(|number| release(&number.to_string())).collect();
    assert_eq!(runs(&encoded(long)), [64, 64, 64, 8]);
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
        Request::Write { ledger: "g".into(), key: "k".into(), seen: None, record },
        Request::Prune { ledger: "g".into(), below: 1, after: None },
        Request::Read { ledger: "g".into(), after: None, key: None },
        Request::Keep { ledger: "g".into(), life: ttl },
        Request::SealCopy { ledger: "g".into(), seal: SEAL, after: None },
        Request::Work { ledger: "g".into(), key: "k".into(), id: ID, act: WorkAct::Start },
        Request::Work {
            ledger: "g".into(),
            key: "k".into(),
            id: ID,
            act: WorkAct::End { value: "v".into() },
        },
        Request::Mark { expect: None, marker: "m".into() },
        Request::Stamp { own: "a".into(), known: [("a".into(), 1)].into(), step: StampStep::Advance },
    ]);
    let put = Put { key: "k".into(), seq: 1, assignment: Some(ID), value: Some("v".into()) };
    let removal = Put { key: "l".into(), seq: 2, assignment: None, value: None };
    let put = LeadAct::Put { writes: [put, removal].into() };
    let void = LeadAct::Void { key: "k".into(), id: ID };
    let led = [LeadAct::Confirm, put, LeadAct::Mark { founded: token }, void];
    let memory = Incarnation::from_number(1);
    all.extend(led.map(|act| Request::Lead { ledger: "g".into(), seal: SEAL, memory, act }));
    all
}

/// Checks that each script declares exactly the parameters that the encoder sends: `define(LETTER, sets, votes, KEYS,
/// ARGS, …)`.
#[test]
fn every_script_declares_the_keys_and_arguments_that_it_receives() {
    let mut seen = BTreeSet::new();
    for request in all_requests() {
        let script = script_of(&request);
        if script == Script::Release {
            continue;
        }
        let bytes = encoded(vec![request.clone()]).bytes;
        let text = String::from_utf8(bytes).unwrap();
        let words: Vec<&str> = text.split("\r\n").filter(|word| !word.starts_with(['*', '$'])).collect();
        // EVALSHA, the script's name, the number of keys, the keys, `not_after`, the stamp and the letters.
        let number = |text: &str| text.parse::<usize>().unwrap();
        let all_keys = number(words[2]);
        let rest = &words[3 + all_keys + 2..];
        let letter = &rest[0][..1];
        let definition = script.source().split("define('").find(|part| part.starts_with(letter)).unwrap();
        let declared: Vec<&str> = definition.split(", ").collect();
        assert_eq!(declared[3], (all_keys - 1).to_string(), "{request:?}");
        let used = (0..4).filter(|at| {
            let name = if *at == 0 { "ARGV[s]".to_owned() } else { format!("ARGV[s + {at}]") };
            definition.contains(&name)
        });
        // The words end with an empty one. The arguments of a stamp continue to the end of the call.
        let sent = &rest[1..rest.len() - 1];
        let args = declared[4].parse::<usize>().unwrap();
        let shared = if matches!(request, Request::Stamp { .. }) { &[][..] } else { &sent[args..] };
        assert!(shared.is_empty() || shared.len() == 4, "{request:?}: {shared:?}");
        assert_eq!(used.count(), shared.iter().filter(|arg| **arg != "0").count(), "{request:?}");
        seen.insert(format!("{script:?} {letter}"));
    }
    let all = Script::ALL.iter().map(|script| script.source().matches("\ndefine('").count());
    assert_eq!(seen.len(), all.sum::<usize>(), "every script has a request");
}

#[test]
fn a_later_page_is_a_scan_and_a_script_call() {
    let read = |after: Option<&str>| {
        let after = after.map(Cursor::new);
        Request::Read { ledger: "g".into(), after, key: None }
    };
    let seal = Request::SealCopy { ledger: "g".into(), seal: SEAL, after: Some(Cursor::new("5")) };
    let encoded = encoded(vec![read(None), read(Some("7")), read(Some("9:20")), read(None), seal]);
    let (page, script) = (ExpectedReply::Page, ExpectedReply::Items(1));
    assert_eq!(encoded.expected, [script, page, script, page, script, script, page, script]);
    let text = String::from_utf8(encoded.bytes).unwrap();
    let words: Vec<&str> = text.split("\r\n").filter(|word| !word.starts_with(['*', '$'])).collect();
    let text = words.join(" ");
    for part in [
        "HSCAN p:ledger/g 7 COUNT 500 EVALSHA Ledgers 2 p:node p:ledger/g 7 stamp a0 = ",
        "HSCAN p:ledger/g 9 COUNT 20 EVALSHA Ledgers 2 p:node p:ledger/g 7 stamp a0 = ",
        "HSCAN p:ledger/g 5 COUNT 500 EVALSHA Copies 2 p:node p:ledger/g 7 stamp a0 7 0000000000000001 =",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// Returns the locks that a script has just acquired.
fn known(names: &[&str]) -> PlainAcquires {
    let known = PlainAcquires::new(true);
    for name in names {
        known.learn(&acquire(name, None), &granted(), NodeTime::from_micros(1), false);
    }
    known
}

/// Returns what a session knows after a reply at this time of the server.
fn of_time(micros: u64) -> PlainAcquires {
    let known = PlainAcquires::new(true);
    known.learn(&acquire("any", None), &granted(), NodeTime::from_micros(micros), false);
    known
}

fn granted() -> Reply {
    Reply::Granted { counter: FencingToken::new(41), begun: None }
}

fn acquire(name: &str, ticket: Option<Owner>) -> Request {
    Request::Acquire {
        resource: Resource::lock(name).unwrap(),
        owner: Owner::sign("w", 1, 2),
        ttl: Duration::from_millis(5),
        propose: FencingToken::new(7),
        tolerance: Duration::from_secs(1),
        keep: Duration::from_secs(1),
        ticket,
    }
}

#[test]
fn acquires_by_plain_commands_are_one_transaction_between_the_releases_and_the_scripts() {
    let ticket = Some(Owner::sign("w", 3, 4));
    let requests = vec![
        acquire("new", None),
        acquire("a", None),
        release("c"),
        acquire("b", None),
        acquire("c", ticket),
    ];
    let all = encoded_with(requests, &known(&["a", "b", "c"]));
    let commands = ExpectedReply::Commands { acquires: 2, commands: 8 };
    assert_eq!(all.expected, [ExpectedReply::Items(1), commands, ExpectedReply::Items(2)]);
    assert_eq!((all.order, all.counts), (vec![2, 1, 3, 0, 4], vec![41, 41]));
    let text = String::from_utf8(all.bytes).unwrap();
    let words: Vec<&str> = text.split("\r\n").filter(|word| !word.starts_with(['*', '$'])).collect();
    let owner = Owner::sign("w", 1, 2);
    let commands = format!(
        "MULTI SET p:a {owner} NX GET PXAT 6 INCRBY {{p:a}}:fence 1 SET p:b {owner} NX GET PXAT 6 \
         INCRBY {{p:b}}:fence 1 EXISTS {{p:a}}:queue {{p:b}}:queue GET p:node TIME EXEC EVALSHA Locks",
        owner = owner.as_str()
    );
    assert!(words.join(" ").contains(&commands), "a key ends a TTL after the deadline: {words:?}");
}

#[test]
fn requests_on_one_lock_keep_their_order() {
    let known = known(&["a", "b"]);
    let again = encoded_with(vec![acquire("a", None), release("b"), release("a")], &known);
    let (one, commands) = (ExpectedReply::Items(1), ExpectedReply::Commands { acquires: 1, commands: 6 });
    assert_eq!((again.expected, again.order), (vec![one, commands, one], vec![1, 0, 2]));
    let raised = Request::Raise {
        resource: Resource::lock("a").unwrap(),
        owner: Owner::sign("w", 1, 2),
        to: FencingToken::new(7),
        keep: Duration::from_secs(1),
    };
    let after = encoded_with(vec![raised, acquire("a", None)], &known);
    assert_eq!((after.expected, after.order), (vec![one, commands], vec![0, 1]));
    let many = (0..200).flat_map(|_| [acquire("a", None), release("b")]).collect();
    assert_eq!(runs(&encoded_with(many, &known)), [64, 64, 64, 64, 64, 64, 8, 8]);
}

#[test]
fn new_claims_share_a_transaction_with_locks_and_precede_the_other_requests_on_claims() {
    let claim = |name: &str| Resource::claim("s", name).unwrap();
    let of = |name: &str| of_claim(&claim(name));
    let done = |name: &str| Request::Complete {
        resource: claim(name),
        owner: Owner::sign("w", 1, 2),
        record: DoneRecord::default(),
        retention: Duration::from_secs(1),
    };
    let known = known(&["a"]);
    let all = encoded_with(vec![done("x"), of("y"), acquire("a", None), done("z"), of("x")], &known);
    // MULTI, a SET for the claim, SET and INCRBY for the lock, EXISTS, GET and TIME.
    let one = |commands| ExpectedReply::Commands { acquires: 1, commands };
    let (two, items) = (ExpectedReply::Commands { acquires: 2, commands: 7 }, ExpectedReply::Items(2));
    assert_eq!(
        (all.expected, all.order),
        (vec![two, items, one(4)], vec![1, 2, 0, 3, 4]),
        "x keeps its order"
    );
    let text = String::from_utf8(all.bytes).unwrap();
    let words: Vec<&str> = text.split("\r\n").filter(|word| !word.starts_with(['*', '$'])).collect();
    let owner = Owner::sign("w", 1, 2);
    let commands = format!(
        "MULTI SET p:claim/s/x c:6:8:1001:0:0::{owner} NX GET PXAT 1001 GET p:node TIME EXEC",
        owner = owner.as_str()
    );
    assert!(words.join(" ").contains(&commands), "the record outlives the lease: {words:?}");
}

#[test]
fn a_claim_that_is_not_new_or_has_a_distant_deadline_is_acquired_by_a_script() {
    let claim = Resource::claim("s", "x").unwrap();
    let request = of_claim(&claim);
    let commands = |known: &PlainAcquires| {
        matches!(encoded_with(vec![request.clone()], known).expected[..], [ExpectedReply::Commands { .. }])
    };
    let (known, hour) = (known(&["a"]), NodeTime::from_micros(7) + Duration::from_secs(3600));
    assert!(commands(&known));
    let count = |known: &PlainAcquires, micros| known.floor(&request, NodeTime::from_micros(micros));
    assert_eq!([count(&known, 0), known.floor(&request, hour)], [None, None]);
    // The worker's clock shows 7 µs, and its time may be one second from the server's: between 1 µs and the deadline.
    assert_eq!(
        [count(&known, 1_000_007), count(&known, 1_000_008)],
        [Some(0), None],
        "the clocks may be apart"
    );
    let later = of_time(2_000_000);
    assert_eq!([count(&later, 2_000_000), count(&later, 2_000_001)], [None, None]);
    let new = PlainAcquires::new(true);
    assert_eq!(count(&new, 0), None, "the server's time is not known");
    assert_eq!(count(&PlainAcquires::new(false), 7), None);
    let release = Request::Release { resource: claim.clone(), owner: Owner::sign("w", 1, 2) };
    for (request, reply) in [(&request, Reply::Refused(Refusal::NotNew)), (&release, Reply::Released(true))] {
        known.learn(request, &reply, NodeTime::from_micros(1), true);
        assert!(!commands(&known), "{reply:?}");
        known.learn(&of_claim(&claim), &granted(), NodeTime::from_micros(1), false);
        assert!(commands(&known));
    }
}

fn of_claim(claim: &Resource) -> Request {
    match acquire("a", None) {
        Request::Acquire { owner, ttl, propose, tolerance, keep, ticket, .. } => {
            Request::Acquire { resource: claim.clone(), owner, ttl, propose, tolerance, keep, ticket }
        }
        other => other,
    }
}
