//! Tests that the two paths of the script of claims have the same replies and effects, whatever is stored. The
//! short path serves common requests, and the long path runs the script of each request. If a user has no permission for
//! `MGET`, all requests of a call that completes a claim take the long path, and locks are released one by one.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panic, its helpers too")]

mod support;

use quorate::redis::RedisNode;
use quorate::{
    env::{SystemWorld, World},
    node::{Batch, DoneRecord, FencingToken, NodeTime, Owner, Reply, Request, Resource},
};
use quorate_testkit::{
    differential::replies_alike,
    redis::{RedisConfig, RedisServer},
    sim::SeedRng,
};
use std::time::Duration;
use support::{NodeClient, STAMP};

/// The number of histories with which the two paths are compared, and the number for each missing permission.
const HISTORIES: u64 = 40;
const HISTORIES_A_PERMISSION: u64 = 5;

/// The number of steps of a history.
const STEPS: usize = 40;

/// The largest difference between the expiry times that the same step has set on two servers, in milliseconds.
const SLACK_MS: u64 = 30_000;

/// Values that the scripts never store, or store only for other owners or in other states.
const VALUES: [&str; 25] = [
    "",
    "0",
    "-5",
    "007",
    "12ab",
    "1e3",
    " 5",
    "5",
    "9007199254740989",
    "9007199254740990",
    "9007199254740991",
    "9999999999999999",
    "18446744073709551615",
    "18446744073709551616",
    "quorate:readers",
    "worker:00000000000000010000000000000007",
    "worker:00000000000000020000000000000007",
    "worker:00000000000000090000000000000007:reserved",
    "d:7:5:::x",
    "d:99999999999999999999:5:::x",
    "c:5",
    "c:99999999999999:7:99999999999999:0:0::worker:00000000000000010000000000000007",
    "c:99999999999999:7:99999999999999:2:99999999999999:ab:worker:00000000000000020000000000000007",
    "c:0:7:99999999999999:2:99999999999999:ab:",
    "c:0:0:0:0:0::",
];

/// A server, and a session on it with one user.
struct Side {
    server: RedisServer,
    client: NodeClient,
}

impl Side {
    async fn start(less: &str) -> Self {
        // Without transactions, scripts serve every request.
        let rules = format!("on >sesame ~* &* +@all -multi {less}");
        let server = RedisConfig::new().user("worker", &rules).start().unwrap();
        let url = format!("redis://worker:sesame@127.0.0.1:{}", server.port());
        let client = NodeClient::bare(RedisNode::parse(&url).unwrap().prefix("")).await;
        Self { server, client }
    }

    fn forget(&self) {
        self.server.flushall();
        self.server.command(&["SET", "node", STAMP]);
    }

    async fn send(&mut self, batch: Batch) -> Vec<Reply> {
        use quorate::node::Session;
        support::soon(self.client.session.send(batch)).await.unwrap().replies
    }

    /// Returns the content of each key without its expiry times, and these times separately.
    fn stored(&self) -> Vec<(String, Vec<u64>)> {
        let script = "local rows = {}
            for _, key in ipairs(redis.call('KEYS', '*')) do
              local kind, value, ends = redis.call('TYPE', key).ok, '', { redis.call('PTTL', key) }
              if kind == 'string' then
                value = redis.call('GET', key)
                local held, count, kept, attempts, counted, rest =
                  string.match(value, '^c:(%d+):(%d+):(%d+):(%d+):(%d+)(:.*)$')
                if held then
                  value = table.concat({ 'c', count, attempts, rest }, ':')
                  ends = { ends[1], held, kept, counted }
                end
              end
              for i = 1, #ends do
                ends[i] = string.format('%.0f', math.max(ends[i], 0))
              end
              rows[#rows + 1] = key .. '|' .. kind .. '|' .. value .. '|' .. table.concat(ends, ',')
            end
            table.sort(rows)
            return rows";
        let text = self.server.command(&["EVAL", script, "0"]);
        let row = |line: &str| {
            let (content, ends) = line.rsplit_once('|').unwrap();
            (content.to_owned(), ends.split(',').map(|end| end.parse().unwrap()).collect())
        };
        text.lines().map(row).collect()
    }
}

/// Draws requests, and values to store.
struct Draw(SeedRng);

impl Draw {
    fn of<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.0.index(choices.len())].clone()
    }

    fn owner(&mut self) -> Owner {
        let number = self.0.number(1..=3);
        support::owner(number)
    }

    fn time(&mut self) -> Duration {
        let seconds = self.of(&[90, 900, 9_000, u64::MAX]);
        Duration::from_secs(seconds)
    }

    fn token(&mut self, now: u64) -> FencingToken {
        let number = self.of(&[1, 5, 7, now, (1 << 53) - 2, u64::MAX]);
        FencingToken::new(number)
    }

    fn lock_request(&mut self, now: u64) -> Request {
        let resource = Resource::lock(self.of(&["a", "b", "c"])).unwrap();
        let (owner, ttl, keep, token) = (self.owner(), self.time(), self.time(), self.token(now));
        match self.0.index(12) {
            0..=4 => Request::Acquire {
                resource,
                owner,
                ttl,
                propose: FencingToken::new(self.of(&[now, now, now, 5, (1 << 53) - 1])),
                tolerance: self.of(&[Duration::from_secs(9_000), Duration::MAX, Duration::ZERO]),
                keep,
                ticket: (self.0.chance(300)).then(|| self.owner()),
            },
            5..=7 => Request::Release { resource, owner },
            8..=10 => Request::Extend { resource, owner, ttl, token, keep },
            _ => Request::Raise { resource, owner, to: token, keep },
        }
    }

    fn claim_request(&mut self, now: u64) -> Request {
        let resource = Resource::claim("s", self.of(&["a", "b", "c"])).unwrap();
        let (owner, ttl, keep, token) = (self.owner(), self.time(), self.time(), self.token(now));
        match self.0.index(12) {
            0..=4 => Request::Acquire {
                resource,
                owner,
                ttl,
                propose: FencingToken::new(self.of(&[now, now, now, 5, (1 << 53) - 1])),
                tolerance: self.of(&[Duration::from_secs(9_000), Duration::MAX, Duration::ZERO]),
                keep,
                ticket: None,
            },
            5 => Request::Release { resource, owner },
            6 => Request::Extend { resource, owner, ttl, token, keep },
            7 => Request::Raise { resource, owner, to: token, keep },
            8 => Request::Count {
                resource,
                owner,
                attempts: 2,
                payload: None,
                withdraw: self.0.chance(300),
                keep,
            },
            _ => Request::Complete {
                resource,
                owner,
                record: DoneRecord { token, at: now, result: "x:y".into(), ..DoneRecord::default() },
                retention: keep,
            },
        }
    }

    /// Returns a batch of requests on locks or on claims. Some of them have equal times, so that they share
    /// arguments.
    fn batch(&mut self) -> Batch {
        let now = SystemWorld.wall().as_micros();
        let (claims, count) = (self.0.chance(500), self.of(&[1, 1, 2, 3, 4, 6]));
        let requests = (0..count).map(|_| match claims {
            true => self.claim_request(now),
            false => self.lock_request(now),
        });
        let requests = requests.collect();
        let not_after = NodeTime::from_micros(if self.0.chance(80) { 1 } else { u64::MAX });
        let stamp = if self.0.chance(80) { "another marker" } else { STAMP };
        Batch { requests, not_after, stamp: stamp.into() }
    }

    /// Returns a command that stores an unusual value.
    fn odd_command(&mut self) -> Vec<String> {
        let name = self.of(&["a", "b", "c"]);
        let key = match self.0.index(4) {
            0 => name.to_owned(),
            1 => format!("{{{name}}}:fence"),
            2 => format!("{{{name}}}:queue"),
            _ => format!("claim/s/{name}"),
        };
        let queue = format!("{{{name}}}:queue");
        let ticket = self.owner().as_str().to_owned();
        let place = format!("5:{}:{}", self.of(&["5", "99999999999999"]), self.of(&["r", "w"]));
        let value = self.of(&VALUES);
        let words: Vec<&str> = match self.0.index(10) {
            0..=3 => vec!["SET", &key, value],
            4 => vec!["SET", &key, value, "PX", "500000000"],
            5 => vec!["DEL", &key],
            6 => vec!["LPUSH", &key, "x"],
            7 => vec!["PERSIST", &key],
            8 => vec!["HSET", &queue, &ticket, &place],
            _ => vec!["HSET", &queue, "x", "no place"],
        };
        words.into_iter().map(str::to_owned).collect()
    }
}

fn are_alike(one: &[(String, Vec<u64>)], two: &[(String, Vec<u64>)]) -> bool {
    let near = |(a, b): (&u64, &u64)| a.abs_diff(*b) <= SLACK_MS;
    one.len() == two.len()
        && one.iter().zip(two).all(|((content, ends), (other, other_ends))| {
            content == other && ends.len() == other_ends.len() && ends.iter().zip(other_ends).all(near)
        })
}

/// Runs the same random histories on two servers. The user of one may run every command. The user of the other
/// may not run the commands in `less`.
async fn compare(less: &str, histories: u64) {
    let (mut one, mut two) = (Side::start("").await, Side::start(less).await);
    for seed in 0..histories {
        let mut draw = Draw(SeedRng::new(seed, less));
        let mut history = Vec::new();
        one.forget();
        two.forget();
        for _ in 0..STEPS {
            if draw.0.chance(200) {
                let command = draw.odd_command();
                let args: Vec<&str> = command.iter().map(String::as_str).collect();
                assert_eq!(one.server.command(&args), two.server.command(&args), "{args:?}");
                history.push(format!("{args:?}"));
                continue;
            }
            let batch = draw.batch();
            history.push(format!("{batch:?}"));
            let (first, second) = (one.send(batch.clone()).await, two.send(batch).await);
            let (left, right) = (one.stored(), two.stored());
            let alike = first.len() == second.len()
                && first.iter().zip(&second).all(|(a, b)| replies_alike(a, b))
                && are_alike(&left, &right);
            assert!(alike, "seed {seed}\n{}\n{first:?}\n{second:?}\n{left:?}\n{right:?}", history.join("\n"));
        }
    }
}

#[tokio::test]
async fn both_paths_have_the_same_replies_and_effects() {
    compare("-mget", HISTORIES).await;
}

/// Checks that a user with only the permissions of an earlier version gets the same replies and effects.
#[tokio::test]
async fn a_missing_permission_changes_no_reply() {
    for less in ["-exists", "-incrby", "-pexpireat", "-exists -incrby -mget -pexpireat -pubsub"] {
        compare(less, HISTORIES_A_PERMISSION).await;
    }
}
