use super::*;
use crate::node::{Cursor, DoneRecord};
use crate::node::{FencingToken, Owner, Record, Resource};
use crate::redis::encode::record_text;
use crate::redis::reply::{TEXT_MAX, record};
use std::time::Duration;

fn s(text: &str) -> Value<'_> {
    Value::Text(text.as_bytes())
}

fn a<'a>(parts: &[&'a str]) -> Value<'a> {
    Value::Array(parts.iter().map(|part| s(part)).collect())
}

fn replies_to(expected: Vec<ExpectedReply>) -> Replies {
    let items = expected.iter().map(|reply| match reply {
        ExpectedReply::Items(items) => *items,
        ExpectedReply::Commands { acquires, .. } => *acquires,
        ExpectedReply::Page => 0,
    });
    let order: Vec<usize> = (0..items.sum()).collect();
    let encoded = Encoded { expected, counts: vec![41; order.len()], order, ..Encoded::default() };
    let requests = encoded.order.iter().map(|_| acquire(Resource::lock("r").unwrap())).collect();
    begun(encoded, requests)
}

fn begun(encoded: Encoded, requests: Vec<Request>) -> Replies {
    let batch = Batch { requests, not_after: NodeTime::from_micros(9_000_000), stamp: "stamp".into() };
    Replies::new(encoded, batch, &Keys::new(""), Arc::new(PlainAcquires::new(false)), false)
}

fn acquire(resource: Resource) -> Request {
    Request::Acquire {
        resource,
        owner: Owner::from_node("w"),
        ttl: Duration::from_secs(3),
        propose: FencingToken::new(8_000_000),
        tolerance: Duration::from_secs(1),
        keep: Duration::from_secs(30),
        ticket: None,
    }
}

/// Parses the replies to script calls with the item counts `runs`.
fn read(values: Vec<Value<'_>>, runs: &[usize]) -> Result<BatchReply, Cause> {
    let mut replies = replies_to(runs.iter().map(|items| ExpectedReply::Items(*items)).collect());
    values.iter().for_each(|value| replies.add(value, None));
    assert!(replies.is_complete(), "each command has a reply");
    replies.finish(None)
}

/// Parses `part` as the reply to one request.
fn one(part: Value<'_>) -> Result<Reply, Cause> {
    read(vec![Value::Array(vec![s("5"), part])], &[1]).map(|mut reply| reply.replies.remove(0))
}

#[test]
fn runs_are_read_in_order_and_the_last_time_counts() {
    let first = Value::Array(vec![s("7"), a(&["raised"]), a(&["refused", "stale"])]);
    let second = Value::Array(vec![s("9"), a(&["freed"]), Value::Int(5), s("freed"), s("absent")]);
    let reply = read(vec![first, second], &[2, 4]).unwrap();
    assert_eq!(reply.node_time, NodeTime::from_micros(9));
    let [raised, stale] = [Reply::Raised, Reply::Refused(Refusal::Stale)];
    let granted = Reply::Granted { counter: FencingToken::new(5), begun: None };
    let [freed, absent] = [true, false].map(Reply::Released);
    assert_eq!(reply.replies, [raised, stale, freed.clone(), granted, freed, absent]);
    let time = read(vec![a(&["3", "000004"])], &[0]).unwrap();
    assert_eq!(time, BatchReply { node_time: NodeTime::from_micros(3_000_004), replies: vec![] });
}

#[test]
fn an_invalid_reply_is_a_protocol_error_and_never_a_panic() {
    let resp = [
        "granted",
        "held",
        "done",
        "shared",
        "queued",
        "raised",
        "extended",
        "freed",
        "absent",
        "completed",
        "counted",
        "attempts_reset",
        "state",
        "ledger",
        "pruned",
        "written",
        "stored",
        "marked",
        "refused",
        "nonsense",
        "",
    ];
    let odd = [
        Value::Nil,
        Value::Int(-1),
        Value::Text(b"OK"),
        Value::Other,
        Value::Array(vec![]),
        Value::Text(&[0xff, 0xfe]),
        s(""),
        s("-5"),
        s("+5"),
        s("5.0"),
        s(" 5"),
        s("99999999999999999999999"),
        s("x"),
    ];
    for part in &odd {
        assert!(matches!(one(part.clone()), Err(Cause::Protocol(_))), "{part:?}");
        assert!(matches!(read(vec![part.clone()], &[1]), Err(Cause::Protocol(_))), "{part:?}");
        assert!(read(vec![Value::Array(vec![part.clone(), a(&["raised"])])], &[1]).is_err(), "{part:?}");
        for word in resp {
            for length in 1..7 {
                let mut parts = vec![s(word)];
                parts.extend(std::iter::repeat_n(part.clone(), length));
                // Some of these values are valid replies, since a result may be any text. The test only
                // checks that none of them causes a panic.
                let read = one(Value::Array(parts));
                assert!(matches!(read, Ok(_) | Err(Cause::Protocol(_))), "{word} {part:?}: {read:?}");
            }
        }
    }
    for wrong in [
        a(&["granted", "-1"]),
        a(&["granted"]),
        a(&["granted", "1", "2"]),
        a(&["granted", "1"]),
        a(&["freed", "2"]),
        a(&["held", "x", "-2"]),
        a(&["refused"]),
        a(&["refused", "sealed", "x"]),
        a(&["ledger", "0"]),
        a(&["ledger", "", "0", "x"]),
        a(&["pruned", "x"]),
        a(&["pruned", "-1"]),
    ] {
        assert!(matches!(one(wrong.clone()), Err(Cause::Protocol(_))), "{wrong:?}");
    }
}

#[test]
fn a_page_of_a_ledger_has_its_records_in_the_order_of_the_server() {
    let page = |next: &'static str, pieces: Vec<Value<'static>>| {
        Value::Array(vec![s("ledger"), s(next), s("3"), Value::Array(pieces)])
    };
    let pieces = vec![a(&["r:b", "5:7:0:x", "l", "9"]), a(&["r:a", "5:7:1:", "r:b", "5:7:0:x", "w", "3"])];
    let Reply::Ledger(read) = one(page("17", pieces)).unwrap() else { panic!("no page") };
    assert_eq!(read.next, Some(Cursor::new("17")));
    assert_eq!(read.state.low_water, 3);
    let keys: Vec<_> = read.state.records.iter().map(|(key, _)| &**key).collect();
    assert_eq!(keys, ["b", "a", "b"]);
    let Reply::Ledger(last) = one(page("0", vec![])).unwrap() else { panic!("no page") };
    assert!(last.next.is_none() && last.state.records.is_empty());
    for wrong in [
        page("0", vec![a(&["r:a"])]),
        page("0", vec![s("x")]),
        page("x", vec![]),
        page("-1", vec![]),
        page("", vec![]),
    ] {
        assert!(matches!(one(wrong.clone()), Err(Cause::Protocol(_))), "{wrong:?}");
    }
}

#[test]
fn too_few_and_too_many_answers_are_protocol_errors() {
    for items in [1, 3] {
        let two = Value::Array(vec![s("7"), a(&["raised"]), a(&["raised"])]);
        assert!(matches!(read(vec![two], &[items]), Err(Cause::Protocol(_))), "{items}");
    }
}

#[test]
fn the_owner_of_another_client_is_cut_and_passed_on() {
    let long = "ü".repeat(1 << 20);
    let huge = Value::Array(vec![s("held"), s(&long), s("-1")]);
    match one(huge).unwrap() {
        Reply::Held { owner, remaining: None } => assert_eq!(owner.as_str().len(), TEXT_MAX),
        other => panic!("{other:?}"),
    }
    let bytes = Value::Array(vec![s("held"), Value::Text(&[0xff, b'a']), s("0")]);
    match one(bytes).unwrap() {
        Reply::Held { owner, remaining } => {
            assert_eq!((owner.as_str(), remaining), ("\u{fffd}a", Some(Duration::from_millis(1))));
        }
        other => panic!("{other:?}"),
    }
    assert!(one(a(&["held", "x", "18446744073709551615"])).is_ok(), "no overflow");
    let far = read(vec![a(&["18446744073709551615", "999999"])], &[0]);
    assert!(matches!(far, Err(Cause::Protocol(_))));
}

#[test]
fn records_are_parsed_as_they_were_written_and_other_texts_are_refused() {
    for value in ["", "v", ":", "1:2:1:", "a\nb"] {
        let written = Record { at: u64::MAX, term: FencingToken::new(7), last: true, value: value.into() };
        assert_eq!(record(&record_text(&written)), Some(written));
    }
    for text in ["", "1", "1:2", "1:2:0", "x:2:0:v", "1:x:0:v", "1:2:2:v", "-1:2:0:v"] {
        assert_eq!(record(text), None, "{text:?}");
        let stored = one(a(&["stored", text])).unwrap();
        assert!(matches!(stored, Reply::Refused(Refusal::WrongType(_))), "{stored:?}");
    }
}

const ONE_LOCK: ExpectedReply = ExpectedReply::Commands { acquires: 1, commands: 6 };

/// Parses the results of SET, INCRBY, EXISTS, GET and TIME of an acquire of one lock.
fn acquired(results: [Value<'_>; 5]) -> Result<Vec<Reply>, Cause> {
    let prelude: [Value<'_>; 6] = ["OK", "QUEUED", "QUEUED", "QUEUED", "QUEUED", "QUEUED"].map(s);
    let mut replies = replies_to(vec![ONE_LOCK]);
    prelude.iter().for_each(|value| replies.add(value, None));
    replies.add(&Value::Array(results.into()), None);
    assert!(replies.is_complete());
    replies.finish(None).map(|reply| reply.replies)
}

#[test]
fn an_acquire_by_commands_is_granted_only_if_everything_fits() {
    let (nil, zero, one, stamp) = (|| Value::Nil, || Value::Int(0), || Value::Int(1), || s("stamp"));
    let (in_time, late, next) = (|| a(&["8", "999999"]), || a(&["9", "000001"]), || Value::Int(42));
    let granted = Reply::Granted { counter: FencingToken::new(42), begun: None };
    let held = Reply::Held { owner: Owner::from_node("other"), remaining: None };
    let stale = || Refusal::Stale;
    for (results, reply) in [
        ([nil(), next(), zero(), stamp(), in_time()], granted),
        ([s("other"), next(), zero(), stamp(), in_time()], held),
        ([nil(), next(), zero(), stamp(), late()], Reply::MayHold(stale())),
        ([s("other"), next(), zero(), stamp(), late()], Reply::MayHold(stale())),
        ([nil(), next(), zero(), nil(), in_time()], Reply::MayHold(Refusal::Marker(None))),
        ([s("other"), next(), zero(), s("x"), in_time()], Reply::MayHold(Refusal::Marker(Some("x".into())))),
        ([nil(), next(), one(), stamp(), in_time()], Reply::MayHold(Refusal::Queued)),
        (
            [nil(), Value::Int((1 << 53) - 1), zero(), stamp(), in_time()],
            Reply::Granted { counter: FencingToken::MAX, begun: None },
        ),
        ([nil(), Value::Int(1 << 53), zero(), stamp(), in_time()], Reply::MayHold(Refusal::CounterFull)),
    ] {
        let shown = format!("{results:?}");
        assert_eq!(acquired(results).unwrap(), [reply], "{shown}");
    }
    for count in [Value::Int(41), Value::Int(1), Value::Int(-1), Value::Nil, Value::Error("ERR x".into())] {
        let shown = format!("{count:?}");
        let reply = acquired([nil(), count, zero(), stamp(), in_time()]).unwrap();
        assert!(matches!(&reply[..], [Reply::MayHold(Refusal::Failed(_))]), "{shown}: {reply:?}");
    }
    let wrong = acquired([Value::Error("WRONGTYPE x".into()), next(), zero(), stamp(), in_time()]).unwrap();
    assert!(matches!(&wrong[..], [Reply::Refused(Refusal::WrongType(_))]), "{wrong:?}");
    for results in [
        [Value::Int(1), next(), zero(), stamp(), in_time()],
        [nil(), next(), zero(), Value::Int(1), in_time()],
        [nil(), next(), zero(), stamp(), nil()],
    ] {
        assert!(matches!(acquired(results), Err(Cause::Protocol(_))));
    }
}

/// Parses the results of SET, GET and TIME of an acquire of one claim.
fn claimed(results: [Value<'_>; 3]) -> Result<Vec<Reply>, Cause> {
    let expected = ExpectedReply::Commands { acquires: 1, commands: 4 };
    let encoded = Encoded { expected: vec![expected], counts: vec![0], order: vec![0], ..Encoded::default() };
    let mut replies = begun(encoded, vec![acquire(Resource::claim("s", "m").unwrap())]);
    ["OK", "QUEUED", "QUEUED", "QUEUED"].map(s).iter().for_each(|value| replies.add(value, None));
    replies.add(&Value::Array(results.into()), None);
    assert!(replies.is_complete());
    replies.finish(None).map(|reply| reply.replies)
}

#[test]
fn a_claim_is_granted_by_commands_only_if_it_is_new_and_everything_fits() {
    let (nil, stamp, in_time) = (|| Value::Nil, || s("stamp"), || a(&["8", "999999"]));
    let counter = FencingToken::new(8_000_001);
    let other = |text: &'static str| Reply::Held {
        owner: Owner::from_node(text),
        remaining: Some(Duration::from_millis(2)),
    };
    let done =
        DoneRecord { token: FencingToken::new(7), at: 5, result: "x:y".into(), ..DoneRecord::default() };
    let apart = Duration::from_micros(1_000_001);
    for (results, reply) in [
        ([nil(), stamp(), in_time()], Reply::Granted { counter, begun: None }),
        ([nil(), stamp(), a(&["9", "000001"])], Reply::MayHold(Refusal::Stale)),
        ([nil(), nil(), in_time()], Reply::MayHold(Refusal::Marker(None))),
        ([s("c:9000:7:9000:0:0::w:x"), s("x"), in_time()], Reply::MayHold(Refusal::Marker(Some("x".into())))),
        // The server's time is in millisecond 8999.
        ([s("c:9000:7:9000:0:0::w:x"), stamp(), in_time()], other("w:x")),
        (
            [s("c:8999:7:9000:2:9000:ab:w"), stamp(), in_time()],
            Reply::Held { owner: Owner::from_node("w"), remaining: Some(Duration::from_millis(1)) },
        ),
        ([s("c:8998:7:9000:2:9000:ab:w"), stamp(), in_time()], Reply::Refused(Refusal::NotNew)),
        ([s("c:0:7:9000:0:0::"), stamp(), in_time()], Reply::Refused(Refusal::NotNew)),
        ([s("d:7:5:::x:y"), stamp(), in_time()], Reply::Done(done)),
    ] {
        let shown = format!("{results:?}");
        assert_eq!(claimed(results).unwrap(), [reply], "{shown}");
    }
    let long = format!("c:9000:7:9000:0:0:{}:w", "a".repeat(65));
    for odd in [
        "",
        "x",
        "c:",
        "c:1:2:3:4:5",
        "c:1:2:3:4:5:x",
        "c:-1:2:3:4:5::w",
        "c:1:2:3:4:5:xy:w",
        "d:x",
        "c:18446744073709551615:7:9000:0:0::w",
        "c:9000:7:9000:99999999999:0::w",
        &long,
    ] {
        let reply = claimed([s(odd), stamp(), in_time()]).unwrap();
        assert!(matches!(&reply[..], [Reply::Refused(Refusal::WrongType(_))]), "{odd}: {reply:?}");
    }
    let far = claimed([nil(), stamp(), a(&["6", "999999"])]).unwrap();
    assert_eq!(far, [Reply::MayHold(Refusal::Clock { apart })], "the proposed time is 8 s");
    assert!(matches!(claimed([Value::Int(1), stamp(), in_time()]), Err(Cause::Protocol(_))));
}

#[test]
fn a_refused_transaction_ends_the_session() {
    let mut replies = replies_to(vec![ONE_LOCK]);
    let oom = || Value::Error("OOM command not allowed when used memory > 'maxmemory'.".into());
    for value in [s("OK"), oom(), s("QUEUED"), s("QUEUED"), s("QUEUED"), s("QUEUED")] {
        replies.add(&value, None);
    }
    replies.add(&Value::Error("EXECABORT Transaction discarded because of previous errors.".into()), None);
    assert!(matches!(replies.finish(None), Err(Cause::Unreachable(why)) if why.contains("OOM")));
    // Without MULTI, the server has run each command by itself.
    let mut replies = replies_to(vec![ONE_LOCK]);
    let busy = || Value::Error("BUSY Redis is busy running a script".into());
    for value in [busy(), Value::Nil, Value::Int(42), Value::Int(0), s("stamp"), a(&["8", "000000"])] {
        replies.add(&value, None);
    }
    replies.add(&Value::Error("ERR EXEC without MULTI".into()), None);
    assert!(replies.is_complete() && replies.finish(None).is_err());
}
