//! Checks that the simulated Redis gives the same replies as a real server, to random commands and to scripts.
//!
//! `QUORATE_CASES=5000` runs more histories than CI does, and `QUORATE_SEED=7` runs other histories.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panic, its helpers too")]

use proptest::{
    prelude::*,
    sample::select,
    test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner},
};
use quorate::env::{SystemWorld, World};
use quorate_redis::probe;
use quorate_testkit::{
    redis::RedisServer,
    simulated_redis::{Connection, Database, Facts, ServerProcess},
};
use redis::Value;
use std::{
    cell::RefCell,
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

/// The number of random histories in an ordinary run, and the number of commands of the longest.
const CASES: u32 = 300;
const COMMANDS: usize = 40;

/// The largest difference between the two clocks, in milliseconds. The two servers run a command one after the
/// other.
const APART_MS: i64 = 5_000;

/// A command, and the way in which its replies are compared.
type Command = Vec<String>;

fn words(text: &str) -> Command {
    text.split(' ').map(str::to_owned).collect()
}

/// Draws a command. `K` is a key, `V` a value, `N` a number, `F` a field or member, and `T` a lifetime or an end
/// that is certainly over or certainly not.
fn command() -> impl Strategy<Value = Command> {
    let forms = [
        "GET K",
        "MGET K K K",
        "SET K V",
        "SET K V NX",
        "SET K V XX",
        "SET K V GET",
        "SET K V NX GET",
        "SET K V PX T",
        "SET K V EX T",
        "SET K V PXAT E",
        "SET K V NX PXAT E",
        "SET K V KEEPTTL",
        "SET K V KEEPTTL PX T",
        "SET K V NX XX",
        "SET K V PX",
        "SET K V PX 0",
        "SET K V PX -1",
        "SET K V PX x",
        "SET K V EX 9223372036854775807",
        "SET K N",
        "SET K N PX T",
        "GETDEL K",
        "GETEX K",
        "GETEX K PX T",
        "GETEX K PERSIST",
        "GETEX K PXAT E",
        "STRLEN K",
        "INCR K",
        "INCRBY K N",
        "DECR K",
        "DECRBY K N",
        "DEL K",
        "DEL K K",
        "EXISTS K K K",
        "TYPE K",
        "PEXPIRE K T",
        "PEXPIREAT K E NX",
        "PEXPIREAT K E XX",
        "PEXPIREAT K E GT",
        "PEXPIREAT K E LT",
        "PEXPIRE K 0",
        "PEXPIRE K -1",
        "PEXPIRE K x",
        "PEXPIRE K 9223372036854775807",
        "EXPIRE K T",
        "PEXPIREAT K E",
        "EXPIREAT K N",
        "PTTL K",
        "TTL K",
        "PEXPIRETIME K",
        "EXPIRETIME K",
        "PERSIST K",
        "PEXPIRE K T GT LT",
        "PEXPIRE K T NX GT",
        "PEXPIRE K T ZZ",
        "HGET K F",
        "HMGET K F F",
        "HSET K F V",
        "HSET K F V F V",
        "HSET K F V F",
        "HSETNX K F V",
        "HDEL K F",
        "HDEL K F F",
        "HLEN K",
        "HEXISTS K F",
        "HGETALL K",
        "HSCAN K 0",
        "HSCAN K 0 COUNT 50",
        "HSCAN K x",
        "ZADD K N F",
        "ZADD K N F N F",
        "ZADD K NX N F",
        "ZADD K XX N F",
        "ZADD K GT N F",
        "ZADD K LT CH N F",
        "ZADD K CH N F",
        "ZADD K x F",
        "ZADD K NX XX N F",
        "ZADD K N",
        "ZREM K F",
        "ZREM K F F",
        "ZSCORE K F",
        "ZCARD K",
        "ZRANGE K 0 -1",
        "ZRANGE K -1 -1 WITHSCORES",
        "ZRANGE K 0 0",
        "ZRANGE K 1 5",
        "ZRANGE K -2 -1",
        "ZRANGE K 0 -1 REV WITHSCORES",
        "ZRANGE K x y",
        "ZREMRANGEBYSCORE K -inf N",
        "ZREMRANGEBYSCORE K (N +inf",
        "ZREMRANGEBYSCORE K N N",
        "ZREMRANGEBYSCORE K x N",
        "PUBLISH c m",
        "PUBSUB NUMSUB c d",
        "TIME",
        "NOPE K",
        "GET",
        "SET K",
    ];
    let one = |texts: &[&'static str]| select(texts.to_vec());
    let numbers =
        ["0", "1", "-1", "7", "9007199254740991", "9223372036854775807", "01", "+1", " 1", "1.5", "x"];
    let draw = (
        one(&["k:a", "k:b", "k:c", "k:d"]),
        one(&["", "1", "9", "x y", "17", "-5"]),
        one(&numbers),
        one(&["f", "g", "h"]),
        one(&["100000", "5000000"]),
        one(&["1", "1000", "99999999999998", "99999999999999"]),
    );
    (select(forms.to_vec()), proptest::collection::vec(draw, 8)).prop_map(|(form, draws)| {
        let fill = |(word, (key, value, number, field, life, end))| match word {
            "K" => String::from(key),
            "V" => String::from(value),
            "N" => String::from(number),
            "(N" => format!("({number}"),
            "F" => String::from(field),
            "T" => String::from(life),
            "E" => String::from(end),
            word => String::from(word),
        };
        form.split(' ').zip(draws).map(fill).collect()
    })
}

/// Scripts for what scripts do with values, numbers and errors. Each has the keys k:a and k:b, and the arguments
/// 7 and x.
const SCRIPTS: [&str; 36] = [
    "return 1",
    "return 2.9",
    "return -2.9",
    "return 9007199254740993",
    "return 'x'",
    "return ''",
    "return true",
    "return false",
    "return nil",
    "return {}",
    "return { 1, 'a', false, { true, 3.5 } }",
    "return { 1, nil, 2 }",
    "return { ok = 'fine' }",
    "return { err = 'MY error' }",
    "return redis.status_reply('fine')",
    "return redis.error_reply('MY error')",
    "return { KEYS[1], KEYS[2], ARGV[1], ARGV[2], #KEYS, #ARGV }",
    "return ARGV[1] + 1",
    "return tostring(ARGV[1] * 2^60)",
    "return string.format('%.0f', 2^53 - 1)",
    "return string.format('%.17g', 0.1)",
    "redis.call('SET', KEYS[1], 2^53) return redis.call('GET', KEYS[1])",
    "redis.call('SET', KEYS[1], -7) return redis.call('INCRBY', KEYS[1], 3)",
    "return redis.call('GET', 'none')",
    "return type(redis.call('GET', 'none'))",
    "return redis.call('MGET', 'none', 'none')[2] == false",
    "return redis.call('SET', KEYS[1], 'v').ok",
    "redis.call('DEL', 'h') redis.call('HSET', 'h', 'f', 'v') return redis.call('HGETALL', 'h')",
    "redis.call('HSET', 'h', 'f', 'v') return redis.call('GET', 'h')",
    "redis.call('HSET', 'h', 'f', 'v') return redis.pcall('GET', 'h')",
    "redis.call('HSET', 'h', 'f', 'v') local r = redis.pcall('GET', 'h') return string.sub(r.err, 1, 10)",
    "redis.call('HSET', 'h', 'f', 'v') local ok, e = pcall(redis.call, 'GET', 'h') return { ok, type(e), e.err ~= nil }",
    "local ok, e = pcall(error, { 'refused', 'x' }, 0) return e",
    "return redis.pcall('NOPE').err ~= nil",
    "return redis.pcall('SET', KEYS[1]).err ~= nil",
    "local t = { 'b', 'a', 'c' } table.sort(t) return { unpack(t, 2) }",
];

/// Scripts that fail. Only the code of their error is compared.
const FAILING: [&str; 7] = [
    "error('x')",
    "left = 1",
    "return left",
    "return redis.call('NOPE')",
    "return redis.call({})",
    "return redis.call()",
    "no Lua",
];

/// A real server and a simulated one, on one clock.
struct Pair {
    _server: RedisServer,
    stream: TcpStream,
    process: ServerProcess,
    database: Database,
    connection: Connection,
    facts: Facts,
}

impl Pair {
    fn start() -> Self {
        let server = RedisServer::start().unwrap();
        let stream = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Self {
            _server: server,
            stream,
            process: ServerProcess::default(),
            database: Database::default(),
            connection: Connection::default(),
            facts: Facts { run_id: "simulated".into(), uptime_seconds: 0, durable: false },
        }
    }

    fn flush(&mut self) {
        self.both(&words("FLUSHALL"));
    }

    /// Returns the replies of the real server and of the simulated one.
    fn both(&mut self, command: &[String]) -> (Value, Value) {
        let bytes = redis::cmd(&command[0]).arg(&command[1..]).get_packed_command();
        self.stream.write_all(&bytes).unwrap();
        let mut real = Vec::new();
        let real = loop {
            let mut buffer = [0; 4096];
            let length = self.stream.read(&mut buffer).unwrap();
            assert!(length > 0, "the server closed the connection after {command:?}");
            real.extend_from_slice(&buffer[..length]);
            if let [value] = &probe::values(&real, usize::MAX).0[..] {
                break value.clone();
            }
        };
        self.database.now_micros = SystemWorld.wall().as_micros();
        let args: Vec<&[u8]> = command.iter().map(String::as_bytes).collect();
        let reply = self.process.run(&mut self.database, &mut self.connection, &self.facts, &args);
        self.database.published.clear();
        let mut bytes = Vec::new();
        self.connection.write(&reply, &mut bytes);
        (real, probe::values(&bytes, usize::MAX).0.remove(0))
    }

    /// Compares the replies to a command.
    fn compare(&mut self, command: &[String]) -> Result<(), String> {
        let (real, simulated) = self.both(command);
        let name = command[0].to_ascii_uppercase();
        let (a, b) = (in_order(&name, real.clone()), in_order(&name, simulated.clone()));
        let alike = match (&a, &b) {
            (Value::ServerError(a), Value::ServerError(b)) => a.code() == b.code(),
            (Value::Int(a), Value::Int(b)) if name.contains("TTL") || name.ends_with("RETIME") => {
                a == b || (*a > 0 && *b > 0 && a.abs_diff(*b) <= APART_MS.unsigned_abs())
            }
            (Value::Array(a), Value::Array(b)) if name == "TIME" => a.len() == b.len(),
            (a, b) => a == b,
        };
        if alike { Ok(()) } else { Err(format!("{command:?}: a server {real:?}, simulated {simulated:?}")) }
    }
}

/// Sorts the fields in the replies whose order is not defined.
fn in_order(name: &str, value: Value) -> Value {
    match (name, value) {
        ("HGETALL", Value::Array(fields)) => {
            let mut pairs: Vec<_> = fields.chunks(2).map(<[Value]>::to_vec).collect();
            pairs.sort_by_key(|pair| format!("{pair:?}"));
            Value::Array(pairs.concat())
        }
        ("HSCAN", Value::Array(mut parts)) if parts.len() == 2 => {
            let fields = parts.remove(1);
            parts.push(in_order("HGETALL", fields));
            Value::Array(parts)
        }
        (_, value) => value,
    }
}

#[test]
fn random_commands_get_the_same_replies() {
    let number = |name: &str, default: u32| {
        std::env::var(name)
            .map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} is a number")))
    };
    let mut seed = [0; 32];
    seed[..4].copy_from_slice(&number("QUORATE_SEED", 1).to_le_bytes());
    let config =
        Config { cases: number("QUORATE_CASES", CASES), failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &seed));
    let pair = RefCell::new(Pair::start());
    let compared = runner.run(&proptest::collection::vec(command(), 1..COMMANDS), |commands| {
        let mut pair = pair.borrow_mut();
        pair.flush();
        commands.iter().try_for_each(|command| pair.compare(command).map_err(TestCaseError::fail))
    });
    if let Err(difference) = compared {
        panic!("{difference}");
    }
}

#[test]
fn scripts_get_the_same_replies() {
    let mut pair = Pair::start();
    let mut different = Vec::new();
    for script in SCRIPTS.iter().chain(&FAILING) {
        let command = ["EVAL", script, "2", "k:a", "k:b", "7", "x"].map(str::to_owned);
        different.extend(pair.compare(&command).err());
    }
    let wrong = [
        &["EVALSHA", "0000000000000000000000000000000000000000", "0"][..],
        &["EVAL", "return 1", "2", "a"],
        &["EVAL", "return 1", "x"],
        &["SCRIPT", "LOAD", "no Lua"],
    ];
    for command in wrong {
        let command: Command = command.iter().map(ToString::to_string).collect();
        different.extend(pair.compare(&command).err());
    }
    assert!(different.is_empty(), "{different:#?}");
}

/// Checks that the comparison finds a difference. Otherwise the tests above could not fail.
#[test]
fn a_difference_is_found() {
    let mut pair = Pair::start();
    assert_eq!(pair.compare(&words("SET k 1")), Ok(()));
    pair.database = Database::default();
    assert!(pair.compare(&words("GET k")).unwrap_err().contains("GET"));
    assert!(pair.compare(&words("INCR k")).is_err(), "2 on the real server, 1 on the other");
}
