use quorate_testkit::redis::RedisServer;

/// A key on a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// The name of the key.
    pub name: String,
    /// The type of the key, as reported by TYPE.
    pub kind: String,
    /// The remaining time of the key in milliseconds, as reported by PTTL. It is -1 without expiry.
    pub left: i64,
    /// The remaining milliseconds of the claim under this key. `None` if the key has no claim, or an expired
    /// one.
    pub claimed: Option<i64>,
}

/// Returns the keys on `server`.
///
/// # Panics
/// If the server does not answer.
pub fn keys(server: &RedisServer) -> Vec<Key> {
    let script = "local out, time = {}, redis.call('TIME') for _, name in ipairs(redis.call('KEYS', '*')) do \
                  local kind = redis.call('TYPE', name).ok \
                  local value = kind == 'string' and redis.call('GET', name) or '' \
                  local ends = tonumber(string.match(value, '^c:(%d+):') or 0) \
                  local claimed = math.floor(ends - time[1] * 1000 - time[2] / 1000) \
                  out[#out + 1] = table.concat({ redis.call('PTTL', name), claimed, kind, name }, ' ') end return out";
    let lines = server.command(&["EVAL", script, "0"]);
    let key = |line: &str| {
        let parts: Vec<&str> = line.splitn(4, ' ').collect();
        let [left, claimed, kind, name] = &*parts else { panic!("{line:?} for a key") };
        let claimed: i64 = claimed.parse().expect("milliseconds");
        Key {
            name: (*name).to_owned(),
            kind: (*kind).to_owned(),
            left: left.parse().expect("milliseconds"),
            claimed: (claimed >= 0).then_some(claimed),
        }
    };
    lines.lines().filter(|line| !line.is_empty()).map(key).collect()
}
