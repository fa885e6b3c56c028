//! Tests acquires of locks and claims by plain commands: when they are used, how they end, and that they decide as the scripts
//! do.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panic, its helpers too")]

mod support;

use quorate::redis::RedisNode;
use quorate::{
    env::{SystemWorld, World},
    node::{Batch, DoneRecord, FencingToken, NodeTime, Owner, Refusal, Reply, Request, Resource, Session},
};
use quorate_testkit::{
    redis::{RedisConfig, RedisServer},
    sim::SeedRng,
};
use std::time::Duration;
use support::{LONG, NodeClient, STAMP, lock, owner};

const SECOND: Duration = Duration::from_secs(1);
/// The time that a batch has until its deadline.
const IN_TIME: Duration = Duration::from_secs(20);

/// A server, and a session on it.
struct Side {
    server: RedisServer,
    client: NodeClient,
}

impl Side {
    /// Starts a server whose user has all permissions but `less`.
    async fn start(less: &str) -> Self {
        let rules = format!("on >sesame ~* &* +@all {less}");
        let server = RedisConfig::new().user("worker", &rules).start().unwrap();
        let url = format!("redis://worker:sesame@127.0.0.1:{}", server.port());
        let client = NodeClient::bare(RedisNode::parse(&url).unwrap().prefix("")).await;
        let side = Self { server, client };
        side.forget();
        side
    }

    /// Starts a server that acquires by plain commands. Redis before 7.0 has no `SET … NX GET`: then `test` cannot run.
    async fn with_commands(test: &str) -> Option<Self> {
        let side = Self::start("").await;
        let version = side.server.version();
        if version.is_redis_before(7, 0) {
            quorate_testkit::cannot_run(
                &format!("commands::{test}"),
                &format!("Redis {version} is before 7.0"),
            );
            return None;
        }
        Some(side)
    }

    fn forget(&self) {
        self.server.flushall();
        self.server.command(&["SET", "node", STAMP]);
    }

    async fn send(&mut self, requests: Vec<Request>, not_after: NodeTime) -> Vec<Reply> {
        let batch = Batch { requests, not_after, stamp: STAMP.into() };
        support::soon(self.client.session.send(batch)).await.unwrap().replies
    }

    async fn ask(&mut self, request: Request) -> Reply {
        self.send(vec![request], SystemWorld.wall() + IN_TIME).await.remove(0)
    }

    /// Acquires and releases a lock by scripts, so that the next acquire is one by plain commands.
    async fn make_known(&mut self, name: &str) -> u64 {
        let before = self.transactions();
        let count = granted(&self.ask(support::acquire(name, 1)).await);
        assert_eq!(self.ask(release(name, 1)).await, Reply::Released(true));
        assert_eq!(self.transactions(), before, "the first use of a lock is a script");
        count
    }

    /// Returns the number of transactions that the server has run.
    fn transactions(&self) -> u64 {
        let stats = self.server.command(&["INFO", "commandstats"]);
        let calls = stats.lines().find_map(|line| line.strip_prefix("cmdstat_exec:calls="));
        calls.map_or(0, |line| line.split(',').next().unwrap().parse().unwrap())
    }

    fn get(&self, key: &str) -> String {
        self.server.command(&["GET", key])
    }

    fn number(&self, command: &[&str]) -> i64 {
        self.server.command(command).trim_start_matches("(integer) ").parse().unwrap()
    }
}

fn release(name: &str, by: u64) -> Request {
    Request::Release { resource: lock(name), owner: owner(by) }
}

fn granted(reply: &Reply) -> u64 {
    match reply {
        Reply::Granted { counter, .. } => counter.get(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_known_lock_is_acquired_by_commands_until_it_is_refused() {
    let Some(mut side) =
        Side::with_commands("a_known_lock_is_acquired_by_commands_until_it_is_refused").await
    else {
        return;
    };
    let first = side.make_known("a").await;
    let before = side.transactions();
    assert_eq!(granted(&side.ask(support::acquire("a", 2)).await), first + 1);
    assert_eq!((side.transactions(), side.get("a")), (before + 1, owner(2).as_str().to_owned()));
    let left = Duration::from_millis(u64::try_from(side.number(&["PTTL", "a"])).unwrap());
    assert!(left > LONG && left < LONG + IN_TIME + SECOND, "a key ends a TTL after the deadline: {left:?}");
    let held = Reply::Held { owner: owner(2), remaining: None };
    assert_eq!(side.ask(support::acquire("a", 3)).await, held);
    assert_eq!(side.transactions(), before + 2);
    let reply = side.ask(support::acquire("a", 4)).await;
    assert!(matches!(&reply, Reply::Held { remaining: Some(_), .. }), "by a script: {reply:?}");
    assert_eq!(side.ask(release("a", 2)).await, Reply::Released(true));
    assert_eq!(granted(&side.ask(support::acquire("a", 5)).await), first + 3, "the loser has counted too");
    assert_eq!(side.ask(release("a", 5)).await, Reply::Released(true));
    side.ask(support::acquire("a", 6)).await;
    assert_eq!(side.transactions(), before + 2, "within a second after a refusal");
}

#[tokio::test]
async fn a_batch_with_all_kinds_of_requests_has_its_replies_in_order() {
    let mut side = Side::start("").await;
    let (a, b) = (side.make_known("a").await, side.make_known("b").await);
    let deadline = SystemWorld.wall() + IN_TIME;
    let inspect = Request::Inspect { resource: lock("b") };
    let requests = vec![
        support::acquire("a", 2),
        release("b", 9),
        support::acquire("new", 2),
        support::acquire("b", 2),
        release("a", 2),
        support::acquire("a", 3),
        inspect,
    ];
    let replies = side.send(requests, deadline).await;
    assert_eq!((granted(&replies[0]), granted(&replies[3]), granted(&replies[5])), (a + 1, b + 1, a + 2));
    assert_eq!((&replies[1], &replies[4]), (&Reply::Released(false), &Reply::Released(true)));
    granted(&replies[2]);
    assert!(matches!(&replies[6], Reply::State { holder: Some((holder, _)), .. } if *holder == owner(2)));
}

#[tokio::test]
async fn what_commands_find_too_late_may_be_held_and_is_released() {
    let Some(mut side) = Side::with_commands("what_commands_find_too_late_may_be_held_and_is_released").await
    else {
        return;
    };
    for name in ["late", "marker", "queue", "count", "free"] {
        side.make_known(name).await;
    }
    // The deadline passes before the server has received the commands.
    let stale = side.send(vec![support::acquire("late", 2)], SystemWorld.wall()).await;
    assert_eq!(stale, [Reply::MayHold(Refusal::Stale)]);
    let left = side.number(&["PTTL", "late"]);
    assert!(left > 0 && left < 61_000, "it ends when a timely one does: {left}");
    assert_eq!(side.ask(release("late", 2)).await, Reply::Released(true));

    side.server.command(&["ZADD", "{queue}:queue", "99999999999999", &format!("w{}", owner(8).as_str())]);
    side.server.command(&["ZADD", "{queue}:queue:w", "5", owner(8).as_str()]);
    assert_eq!(side.ask(support::acquire("queue", 2)).await, Reply::MayHold(Refusal::Queued));
    assert_eq!(side.ask(release("queue", 2)).await, Reply::Released(true));
    let reply = side.ask(support::acquire("queue", 2)).await;
    assert!(matches!(&reply, Reply::Held { owner, .. } if owner.as_str() == Owner::QUEUE), "{reply:?}");

    side.server.command(&["DEL", "{count}:fence"]);
    let reply = side.ask(support::acquire("count", 2)).await;
    assert!(matches!(&reply, Reply::MayHold(Refusal::Failed(_))), "{reply:?}");
    assert_eq!(side.get("{count}:fence"), "1");
    assert_eq!(side.ask(release("count", 2)).await, Reply::Released(true));
    let now = SystemWorld.wall().as_micros();
    assert!(granted(&side.ask(support::acquire("count", 2)).await) >= now, "it begins at the clock again");
    assert!(side.number(&["PTTL", "{count}:fence"]) > 0);

    side.server.command(&["SET", "node", "another"]);
    let reply = side.ask(support::acquire("marker", 2)).await;
    assert_eq!(reply, Reply::MayHold(Refusal::Marker(Some("another".into()))));
    assert_eq!(side.ask(release("marker", 2)).await, Reply::Released(true));
    let before = side.transactions();
    side.server.command(&["SET", "node", STAMP]);
    granted(&side.ask(support::acquire("free", 2)).await);
    assert_eq!(side.transactions(), before, "a node with another marker may have lost all counters");
}

/// Checks that a session uses a reservation that its commands have only named.
#[tokio::test]
async fn a_reservation_is_taken_by_the_next_attempt() {
    let Some(mut side) = Side::with_commands("a_reservation_is_taken_by_the_next_attempt").await else {
        return;
    };
    side.make_known("a").await;
    granted(&side.ask(support::acquire("a", 2)).await);
    let successor = Owner::reserve("worker", 5, 7);
    let (owner, ttl) = (owner(2), LONG);
    let reserve = Request::Reserve { resource: lock("a"), owner, successor: successor.clone(), ttl };
    assert_eq!(side.ask(reserve).await, Reply::Reserved);
    let named = Reply::Held { owner: successor, remaining: None };
    assert_eq!(side.ask(support::acquire("a", 3)).await, named);
    granted(&side.ask(support::acquire("a", 3)).await);
}

#[tokio::test]
async fn without_a_permission_scripts_serve_every_acquire() {
    for less in ["-multi", "-exec", "-incrby", "-exists", "-@transaction"] {
        let mut side = Side::start(less).await;
        side.make_known("a").await;
        let before = side.transactions();
        for number in 2..5 {
            granted(&side.ask(support::acquire("a", number)).await);
            assert_eq!(side.ask(release("a", number)).await, Reply::Released(true));
        }
        assert_eq!(side.transactions(), before, "{less}");
    }
}

/// Returns a value that differs only where the replies of commands may differ from those of scripts.
fn decision(reply: &Reply) -> String {
    match reply {
        Reply::Granted { .. } => "granted".to_owned(),
        // The attempt of a lock that may be held is released in the same batch.
        Reply::Released(_) => "released".to_owned(),
        Reply::Held { owner, .. } => format!("held by {}", owner.as_str()),
        Reply::MayHold(why) | Reply::Refused(why) => format!("refused: {why}"),
        other => format!("{other:?}"),
    }
}

/// Runs random histories on a server with plain commands and on one without. The decisions must be the same. The count of
/// each grant must be larger than that of the grant before.
#[tokio::test]
async fn commands_decide_as_scripts_do() {
    let Some(mut one) = Side::with_commands("commands_decide_as_scripts_do").await else { return };
    let mut two = Side::start("-multi").await;
    let mut by_commands = 0;
    for seed in 0..30 {
        let mut rng = SeedRng::new(seed, "commands");
        for side in [&mut one, &mut two] {
            side.forget();
            side.client = NodeClient::bare(side.client.node.clone()).await;
        }
        let mut counts = std::collections::BTreeMap::<&str, u64>::new();
        let before = one.transactions();
        for step in 0..40 {
            let mut named = Vec::new();
            let now = SystemWorld.wall();
            let requests: Vec<Request> = (0..rng.number(1..=6))
                .map(|_| {
                    let (name, by) = (["a", "b", "c"][rng.index(3)], rng.number(1..=3));
                    named.push(name);
                    match rng.index(5) {
                        0 | 1 => support::acquire(name, by),
                        _ => release(name, by),
                    }
                })
                .collect();
            let not_after = if rng.chance(50) { now - SECOND } else { now + IN_TIME };
            if rng.chance(60) {
                let marker = if rng.chance(500) { "another" } else { STAMP };
                [&one, &two].into_iter().for_each(|side| _ = side.server.command(&["SET", "node", marker]));
            }
            if rng.chance(60) {
                let (key, place) = ("{b}:queue", "5:99999999999999:w");
                let ticket = owner(9);
                let command: &[&str] =
                    if rng.chance(300) { &["HSET", key, ticket.as_str(), place] } else { &["DEL", key] };
                [&one, &two].into_iter().for_each(|side| _ = side.server.command(command));
            }
            let first = one.send(requests.clone(), not_after).await;
            let second = two.send(requests.clone(), not_after).await;
            let decisions = |replies: &[Reply]| replies.iter().map(decision).collect::<Vec<_>>();
            // One queue refuses all acquires of the call.
            let queued = first.contains(&Reply::MayHold(Refusal::Queued));
            let shown = format!("seed {seed}, step {step}: {requests:?}\n{first:?}\n{second:?}");
            assert!(queued || decisions(&first) == decisions(&second), "{shown}");
            for (name, reply) in named.iter().zip(&first) {
                if let Reply::Granted { counter, .. } = reply {
                    let last = counts.insert(name, counter.get());
                    assert!(last.is_none_or(|last| last < counter.get()), "{shown}");
                }
            }
            // The attempts release what they may hold.
            let undone: Vec<Request> = requests
                .into_iter()
                .zip(&first)
                .filter_map(|(request, reply)| match (request, reply) {
                    (Request::Acquire { resource, owner, .. }, reply)
                        if queued || matches!(reply, Reply::MayHold(_)) =>
                    {
                        Some(Request::Release { resource, owner })
                    }
                    _ => None,
                })
                .collect();
            one.send(undone.clone(), now + IN_TIME).await;
            two.send(undone, now + IN_TIME).await;
            for key in ["a", "b", "c"] {
                assert_eq!(one.get(key), two.get(key), "{key}, {shown}");
            }
        }
        by_commands += one.transactions() - before;
    }
    assert!(by_commands > 100, "only {by_commands} batches used commands");
}

/// Checks that a full counter grants no more.
#[tokio::test]
async fn a_full_counter_grants_no_more() {
    let Some(mut side) = Side::with_commands("a_full_counter_grants_no_more").await else { return };
    side.make_known("a").await;
    let top = (FencingToken::MAX.get() - 1).to_string();
    side.server.command(&["SET", "{a}:fence", &top, "KEEPTTL"]);
    assert_eq!(granted(&side.ask(support::acquire("a", 2)).await), FencingToken::MAX.get());
    assert_eq!(side.ask(release("a", 2)).await, Reply::Released(true));
    assert_eq!(side.ask(support::acquire("a", 3)).await, Reply::MayHold(Refusal::CounterFull));
    assert_eq!(side.ask(release("a", 3)).await, Reply::Released(true));
    assert_eq!(side.ask(support::acquire("a", 4)).await, Reply::Refused(Refusal::CounterFull));
}

fn claim(name: &str) -> Resource {
    Resource::claim("s", name).unwrap()
}

fn claimed(name: &str, by: u64) -> Request {
    match support::acquire(name, by) {
        // The deadline is so far ahead.
        Request::Acquire { owner, ttl, propose, keep, ticket, .. } => {
            let tolerance = 2 * IN_TIME;
            Request::Acquire { resource: claim(name), owner, ttl, propose, tolerance, keep, ticket }
        }
        other => panic!("{other:?}"),
    }
}

/// Starts a server, and a session that knows its time.
async fn with_claims(test: &str) -> Option<Side> {
    let mut side = Side::with_commands(test).await?;
    let before = side.transactions();
    granted(&side.ask(claimed("first", 1)).await);
    assert_eq!(side.transactions(), before, "the first claim is acquired by a script");
    Some(side)
}

#[tokio::test]
async fn a_new_claim_is_one_command_and_another_one_a_script() {
    let Some(mut side) = with_claims("a_new_claim_is_one_command_and_another_one_a_script").await else {
        return;
    };
    let (before, now) = (side.transactions(), SystemWorld.wall().as_micros());
    let requests = vec![claimed("a", 2), support::acquire("lock", 2), claimed("b", 2)];
    let replies = side.send(requests, SystemWorld.wall() + IN_TIME).await;
    assert_eq!(side.transactions(), before + 1);
    assert!(granted(&replies[0]) > now && granted(&replies[2]) > now && granted(&replies[1]) > now);
    let left = Duration::from_millis(u64::try_from(side.number(&["PTTL", "claim/s/a"])).unwrap());
    assert!(left > LONG && left < LONG + IN_TIME + SECOND, "the record ends after the deadline: {left:?}");

    let Reply::Held { owner: holder, remaining: Some(held) } = side.ask(claimed("a", 3)).await else {
        panic!()
    };
    assert!(holder == owner(2) && held > LONG && held < LONG + IN_TIME + SECOND, "{held:?}");
    assert_eq!(side.transactions(), before + 2);
    let release = |by| Request::Release { resource: claim("a"), owner: owner(by) };
    assert_eq!(side.ask(release(2)).await, Reply::Released(true));
    let again = granted(&side.ask(claimed("a", 3)).await);
    assert!(again > granted(&replies[0]), "the count is kept");
    assert_eq!(side.transactions(), before + 2, "the session knows that it is not new");
    assert_eq!(side.ask(release(3)).await, Reply::Released(true));

    // Another session learns that from the server.
    side.client = NodeClient::bare(side.client.node.clone()).await;
    granted(&side.ask(claimed("c", 4)).await);
    assert_eq!(side.ask(claimed("a", 4)).await, Reply::Refused(Refusal::NotNew));
    assert_eq!(granted(&side.ask(claimed("a", 4)).await), again + 1);

    let record =
        DoneRecord { token: FencingToken::new(again + 1), result: "x:y".into(), ..DoneRecord::default() };
    let (resource, owner, retention) = (claim("a"), owner(4), LONG);
    let complete = Request::Complete { resource, owner, record: record.clone(), retention };
    assert_eq!(side.ask(complete).await, Reply::Completed);
    let before = side.transactions();
    for _ in 0..2 {
        assert_eq!(side.ask(claimed("a", 5)).await, Reply::Done(record.clone()));
    }
    assert_eq!(side.transactions(), before + 2, "a record that is found is enough");
}

#[tokio::test]
async fn a_claim_that_commands_set_in_vain_may_be_held() {
    let Some(mut side) = with_claims("a_claim_that_commands_set_in_vain_may_be_held").await else { return };
    let release = |name: &str| Request::Release { resource: claim(name), owner: owner(2) };
    let stale = side.send(vec![claimed("late", 2)], SystemWorld.wall()).await;
    assert_eq!(stale, [Reply::MayHold(Refusal::Stale)]);
    assert!(side.get("claim/s/late").ends_with(owner(2).as_str()));
    assert_eq!(side.ask(release("late")).await, Reply::Released(true));

    let far = match claimed("far", 2) {
        Request::Acquire { resource, owner, ttl, propose, tolerance, keep, ticket } => {
            let propose = FencingToken::new(propose.get() - 60_000_000);
            Request::Acquire { resource, owner, ttl, propose, tolerance, keep, ticket }
        }
        other => panic!("{other:?}"),
    };
    let refused = side.ask(far).await;
    assert!(
        matches!(refused, Reply::Refused(Refusal::Clock { .. })),
        "by a script, which sets nothing: {refused:?}"
    );

    side.server.command(&["SET", "claim/s/odd", "something"]);
    side.server.command(&["LPUSH", "claim/s/list", "x"]);
    for name in ["odd", "list"] {
        let reply = side.ask(claimed(name, 2)).await;
        assert!(matches!(&reply, Reply::Refused(Refusal::WrongType(_))), "{reply:?}");
    }
    side.server.command(&["SET", "node", "another"]);
    let reply = side.ask(claimed("marker", 2)).await;
    assert_eq!(reply, Reply::MayHold(Refusal::Marker(Some("another".into()))));
    assert_eq!(side.ask(release("marker")).await, Reply::Released(true));
}

/// Runs random histories of claims on a server with plain commands and on one without. The decisions and the records must
/// be the same, once a request has been repeated that found a claim that was not new.
#[tokio::test]
async fn commands_decide_on_claims_as_scripts_do() {
    let test = "commands_decide_on_claims_as_scripts_do";
    let (Some(mut one), mut two) = (with_claims(test).await, Side::start("-multi").await) else { return };
    let before = one.transactions();
    for seed in 0..20 {
        let mut rng = SeedRng::new(seed, "claims");
        [&one, &two].into_iter().for_each(Side::forget);
        for step in 0..40 {
            let (mut requests, now) = (Vec::new(), SystemWorld.wall());
            for name in ["a", "b", "c"].into_iter().filter(|_| rng.chance(700)).collect::<Vec<_>>() {
                let (resource, by) = (claim(name), owner(rng.number(1..=3)));
                let token = FencingToken::new(now.as_micros() + rng.number(0..=2) * 1_000_000);
                let record = DoneRecord { token, result: "x".into(), ..DoneRecord::default() };
                requests.push(match rng.index(8) {
                    0..=3 => claimed(name, rng.number(1..=3)),
                    4 | 5 => Request::Release { resource, owner: by },
                    6 if rng.chance(300) => {
                        Request::Complete { resource, owner: by, record, retention: LONG }
                    }
                    6 => Request::ResetAttempts { resource, keep: LONG },
                    _ => Request::Extend { resource, owner: by, ttl: LONG, token, keep: LONG },
                });
            }
            if rng.chance(30) {
                [&one, &two].into_iter().for_each(|side| _ = side.server.command(&["DEL", "claim/s/a"]));
            }
            let (mut first, second) = (
                one.send(requests.clone(), now + IN_TIME).await,
                two.send(requests.clone(), now + IN_TIME).await,
            );
            for (request, reply) in requests.iter().zip(&mut first) {
                if *reply == Reply::Refused(Refusal::NotNew) {
                    *reply = one.ask(request.clone()).await;
                }
            }
            let shown = format!("seed {seed}, step {step}: {requests:?}\n{first:?}\n{second:?}");
            let decisions = |replies: &[Reply]| replies.iter().map(decision).collect::<Vec<_>>();
            assert_eq!(decisions(&first), decisions(&second), "{shown}");
            for name in ["claim/s/a", "claim/s/b", "claim/s/c"] {
                // The times that commands set are later by the time to the deadline, and so may be the counts.
                let ends =
                    |side: &Side| side.get(name).rsplit(':').take(2).map(str::to_owned).collect::<Vec<_>>();
                assert_eq!(ends(&one), ends(&two), "{name}, {shown}");
            }
        }
    }
    assert!(one.transactions() - before > 100, "{} batches used commands", one.transactions() - before);
}
