use crate::{
    RedisNode,
    address::Login,
    durability::{Durability, durability},
    fault, handshake, reply,
    wire::{Reader, Writer},
};
use quorate::{
    env::BootTime,
    node::{Cause, Node, NodeTime},
};
use redis::{Cmd, Value};
use std::collections::BTreeMap;

/// How often the clock is read: the quickest answer tells most.
const LOOKS: usize = 5;

/// What a server tells of itself to somebody who looks after it. Facts only; nothing is judged, and nothing
/// is written to the server.
#[derive(Clone, Debug, Default)]
pub struct Examination {
    /// The fields of INFO.
    pub info: BTreeMap<String, String>,
    /// The settings that matter here, as CONFIG GET tells them. Empty where the user may not ask.
    pub settings: BTreeMap<String, String>,
    /// Its clock, read several times.
    pub looks: Vec<Look>,
    /// The user that we are, where the server or the URL tells.
    pub user: Option<String>,
    /// What the user may not do and Quorate needs.
    pub denied: Vec<String>,
    /// What the user may not do and waiters would be woken by. Without, they look every 100 ms.
    pub denied_pushes: Vec<String>,
}

impl Examination {
    /// Checks that every answered write is on the server's disk, as `durable = true` requires.
    ///
    /// # Errors
    /// The setting and its value, the reason, and the fix.
    pub fn check_durable(&self) -> Result<(), String> {
        match durability(&self.info, &self.settings) {
            // A connection that is open goes on over a rewrite.
            Durability::Durable | Durability::Rewriting => Ok(()),
            Durability::Volatile(why) | Durability::Unknown(why) => Err(why),
        }
    }
}

/// One reading of a server's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// Our boot clock just before the question left.
    pub sent: BootTime,
    /// Our boot clock when the answer had come.
    pub received: BootTime,
    /// What the server's clock showed in between.
    pub node_time: NodeTime,
}

/// The settings that [`Examination::settings`] holds.
const SETTINGS: [&str; 8] = [
    "appendonly",
    "appendfsync",
    "no-appendfsync-on-rewrite",
    "maxmemory",
    "maxmemory-policy",
    "save",
    "stop-writes-on-bgsave-error",
    "cluster-enabled",
];

/// What the user of a node must be allowed, as words of an ACL rule: everything that the handshake asks and
/// the scripts call. The last [`PUSHES`] are for waking waiters, and can be done without; without `mget` a batch of claims
/// takes longer.
pub const COMMANDS: [&str; 30] = [
    "select",
    "client|setname",
    "info",
    "time",
    "config|get",
    "script|load",
    "evalsha",
    "get",
    "mget",
    "set",
    "del",
    "pexpire",
    "pexpireat",
    "pttl",
    "hget",
    "hset",
    "hdel",
    "hgetall",
    "hscan",
    "zadd",
    "zrem",
    "zremrangebyscore",
    "zrange",
    "zscore",
    "zcard",
    "publish",
    "pubsub|numsub",
    "hello",
    "subscribe",
    "unsubscribe",
];

/// How many of [`COMMANDS`], at their end, tell waiters of releases.
pub const PUSHES: usize = 5;

impl RedisNode {
    /// Asks the server what an operator would want to know of it. The caller sets the deadline.
    ///
    /// # Errors
    /// The [`Cause`] for which it could not be asked. Its text holds no password.
    ///
    /// # Cancel safety
    /// Dropping the future drops the connection. Nothing is written to the server.
    pub async fn examine(&self) -> Result<Examination, Cause> {
        let (reader, writer, login) = self.dial().await?;
        let talk = Talk { name: self.name(), reader, writer };
        let found = self.question(talk, &login).await;
        // A server that repeats what it was told would have its password in every log.
        let Some(password) = &login.password else { return found };
        match found {
            Ok(mut found) => {
                let clean = |text: &mut String| *text = text.replace(password.reveal(), "***");
                found.info.values_mut().chain(found.settings.values_mut()).for_each(clean);
                Ok(found)
            }
            Err(cause) => Err(fault::without(cause, password.reveal())),
        }
    }

    async fn question(&self, mut talk: Talk<'_>, login: &Login) -> Result<Examination, Cause> {
        talk.log_in(login).await?;
        let mut found = Examination::default();
        match talk.ask(&redis::cmd("INFO")).await? {
            Value::ServerError(error) => return Err(fault::of_server(&error)),
            value => {
                let facts = handshake::facts(&reply::text(&value)?).into_iter();
                found.info = facts.map(|(name, value)| (name, reply::shown(&value).to_string())).collect();
            }
        }
        for name in SETTINGS {
            if let Value::Array(pair) = talk.ask(redis::cmd("CONFIG").arg("GET").arg(name)).await?
                && let [_, value] = &pair[..]
            {
                found.settings.insert(name.to_owned(), reply::shown(&reply::text(value)?).to_string());
            }
        }
        for _ in 0..LOOKS {
            let sent = self.env().now();
            if let Value::Array(parts) = talk.ask(&redis::cmd("TIME")).await? {
                let received = self.env().now();
                found.looks.push(Look { sent, received, node_time: reply::time(&parts)? });
            }
        }
        if let value @ (Value::BulkString(_) | Value::SimpleString(_)) =
            talk.ask(redis::cmd("ACL").arg("WHOAMI")).await?
        {
            found.user = Some(reply::shown(&reply::text(&value)?).to_string());
        }
        // Who may not ask for its name has been told it.
        found.user = found.user.or(login.user.clone());
        found.denied = talk.denied(self.keys().prefix(), login.database).await?;
        found.denied_pushes = talk.denied_pushes(self.keys().prefix()).await?;
        Ok(found)
    }

    /// The least that the user of a node must be allowed, as an ACL rule for `ACL SETUSER` or a `user` line.
    pub fn least_acl(prefix: &str) -> String {
        let commands: Vec<String> = COMMANDS.iter().map(|command| format!("+{command}")).collect();
        format!("resetkeys ~{prefix}* ~{{{prefix}* resetchannels &{prefix}* -@all {}", commands.join(" "))
    }
}

/// One question after the other.
struct Talk<'a> {
    name: &'a str,
    reader: Reader,
    writer: Writer,
}

impl Talk<'_> {
    async fn ask(&mut self, command: &Cmd) -> Result<Value, Cause> {
        let bytes = command.get_packed_command();
        handshake::send(self.name, &mut self.reader, &mut self.writer, &bytes).await?;
        self.reader.next().await.map_err(|error| fault::of_broken(self.name, &error))
    }

    async fn log_in(&mut self, login: &Login) -> Result<(), Cause> {
        let (Some(auth), Some(password)) = (login.auth(), &login.password) else { return Ok(()) };
        match self.ask(&auth).await? {
            Value::ServerError(error) => {
                fault::unless_it_repeats(&error, password.reveal())?;
                Err(fault::of_server(&error))
            }
            _ => Ok(()),
        }
    }

    /// What of [`COMMANDS`] but the pushes the user may not do, on keys such as Quorate's. Each is tried in a form that changes
    /// nothing: servers look at rights first, and then find that there is nothing to be done.
    async fn denied(&mut self, prefix: &str, database: i64) -> Result<Vec<String>, Cause> {
        let mut denied = Vec::new();
        // No resource's name has braces, so these are keys of nobody.
        for key in [format!("{prefix}{{doctor}}"), format!("{{{prefix}}}doctor")] {
            for resp in harmless(&key) {
                if resp[0] == "select" && database == 0 {
                    continue;
                }
                let text = resp.join(" ");
                if self.is_denied(&resp).await? && !denied.contains(&text) {
                    denied.push(text);
                }
            }
        }
        Ok(denied)
    }

    /// The same for what wakes waiters, on a channel such as Quorate's. To be asked last: the connection speaks
    /// another protocol afterwards.
    async fn denied_pushes(&mut self, prefix: &str) -> Result<Vec<String>, Cause> {
        let channel = format!("{prefix}{{doctor}}:freed");
        let mut denied = Vec::new();
        let resp: [Vec<&str>; PUSHES] = [
            vec!["publish", &channel, ""],
            vec!["pubsub", "numsub", &channel],
            vec!["hello", "3"],
            vec!["subscribe", &channel],
            vec!["unsubscribe", &channel],
        ];
        for resp in resp {
            if self.is_denied(&resp).await? {
                denied.push(resp.join(" ").trim_end().to_owned());
            }
        }
        Ok(denied)
    }

    async fn is_denied(&mut self, resp: &[&str]) -> Result<bool, Cause> {
        let reply = self.ask(redis::cmd(resp[0]).arg(&resp[1..])).await?;
        Ok(matches!(&reply, Value::ServerError(error) if error.code() == "NOPERM"))
    }
}

/// Each of [`COMMANDS`] but the pushes in a form that changes nothing where `key` does not exist.
fn harmless(key: &str) -> [Vec<&str>; COMMANDS.len() - PUSHES] {
    [
        vec!["select", "0"],
        vec!["client", "setname", "quorate"],
        vec!["info", "server"],
        vec!["time"],
        vec!["config", "get", "appendfsync"],
        vec!["script", "load", "no Lua"],
        vec!["evalsha", "0000000000000000000000000000000000000000", "1", key],
        vec!["get", key],
        vec!["mget", key],
        vec!["set", key, "1", "xx", "px", "1"],
        vec!["del", key],
        vec!["pexpire", key, "1"],
        vec!["pexpireat", key, "1"],
        vec!["pttl", key],
        vec!["hget", key, "f"],
        // A value without its field.
        vec!["hset", key, "f", "v", "g"],
        vec!["hdel", key, "f"],
        vec!["hgetall", key],
        vec!["hscan", key, "0"],
        vec!["zadd", key, "xx", "1", "m"],
        vec!["zrem", key, "m"],
        vec!["zremrangebyscore", key, "0", "0"],
        vec!["zrange", key, "0", "0"],
        vec!["zscore", key, "m"],
        vec!["zcard", key],
    ]
}
