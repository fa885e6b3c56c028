use crate::{
    RedisNode,
    address::Login,
    command::{Command, cmd},
    durability::{Durability, durability},
    fault, handshake,
    keys::Keys,
    reply,
    resp::Value,
    server_version,
    wire::{Reader, Writer},
};
use quorate::{
    env::BootTime,
    node::{Cause, Node, NodeTime},
};
use std::collections::BTreeMap;

/// The number of times that a server's clock is read. The reading with the shortest round trip is the most
/// accurate.
const CLOCK_READINGS: usize = 5;

/// The facts that a server reports, for its operator.
#[derive(Clone, Debug, Default)]
pub struct Examination {
    /// The fields of INFO.
    pub info: BTreeMap<String, String>,
    /// The settings that matter to Quorate, from CONFIG GET. Empty if the user has no permission to read
    /// them.
    pub settings: BTreeMap<String, String>,
    /// Several readings of the server's clock.
    pub looks: Vec<Look>,
    /// The user of the connection, if the server or the URL names it.
    pub user: Option<String>,
    /// The required commands that the user is not allowed to run.
    pub denied: Vec<String>,
    /// The commands for waking waiters that the user is not allowed to run. Without them, waiters poll every
    /// 100 ms.
    pub denied_pushes: Vec<String>,
}

impl Examination {
    /// Checks that every acknowledged write is on the server's disk, as `durable = true` requires.
    ///
    /// # Errors
    /// The setting and its value, the reason, and the fix.
    pub fn check_durable(&self) -> Result<(), String> {
        match durability(&self.info, &self.settings) {
            // While the append-only file is rewritten, the settings are accepted, as they are on an open
            // connection.
            Durability::Durable | Durability::Rewriting => Ok(()),
            Durability::Volatile(why) | Durability::Unknown(why) => Err(why),
        }
    }

    /// Checks that the server's version has every command that leases need. Workers refuse an older server.
    ///
    /// # Errors
    /// The version, the reason, and the fix.
    pub fn check_version(&self) -> Result<(), String> {
        server_version::check(&self.info)
    }
}

/// One reading of a server's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// This process's boot clock just before the request was sent.
    pub sent: BootTime,
    /// This process's boot clock when the reply had arrived.
    pub received: BootTime,
    /// The server's clock at a time between the two.
    pub node_time: NodeTime,
}

/// The settings that [`Examination::settings`] contains.
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

/// The commands that the user of a node must be allowed to run, in the notation of ACL rules: all commands of
/// the handshake and of the scripts. The last [`PUSHES`] wake waiters, and are optional. `mget`,
/// `exists`, `incrby` and `hmget` are optional too: without them locks, claims and schedulers take longer.
pub const COMMANDS: [&str; 33] = [
    "select",
    "client|setname",
    "info",
    "time",
    "config|get",
    "script|load",
    "evalsha",
    "get",
    "mget",
    "exists",
    "incrby",
    "set",
    "del",
    "pexpire",
    "pexpireat",
    "pttl",
    "hget",
    "hmget",
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

/// The number of commands at the end of [`COMMANDS`] that notify waiters of releases.
pub const PUSHES: usize = 5;

impl RedisNode {
    /// Queries the server for the facts that an operator needs. The call has no time limit of its own: the
    /// caller sets one.
    ///
    /// # Errors
    /// The [`Cause`] of the failure. Its text contains no password.
    ///
    /// # Cancel safety
    /// Dropping the future drops the connection. Nothing is written to the server.
    pub async fn examine(&self) -> Result<Examination, Cause> {
        let (reader, writer, login) = self.dial().await?;
        let connection = Connection::new(self.name(), reader, writer);
        let found = self.query(connection, &login).await;
        // A server may repeat its input in an error. The password is removed, so that it does not appear in
        // logs.
        let Some(password) = &login.password else { return found };
        match found {
            Ok(mut found) => {
                let clean =
                    |text: &mut String| *text = fault::fact_without(text, password.reveal()).to_owned();
                found.info.values_mut().chain(found.settings.values_mut()).for_each(clean);
                Ok(found)
            }
            Err(cause) => Err(fault::redact(cause, password.reveal())),
        }
    }

    async fn query(&self, mut connection: Connection<'_>, login: &Login) -> Result<Examination, Cause> {
        connection.log_in(login).await?;
        let mut found = Examination::default();
        match connection.ask(&mut cmd("INFO")).await? {
            Value::Error(error) => return Err(fault::of_server(&error, login.secret())),
            value => {
                let facts = handshake::facts(&reply::text(&value)?).into_iter();
                found.info = facts.map(|(name, value)| (name, reply::shown(&value).to_string())).collect();
            }
        }
        for name in SETTINGS {
            let reply = connection.ask(cmd("CONFIG").arg("GET").arg(name)).await?;
            if let Some([_, value]) = reply.list() {
                found.settings.insert(name.to_owned(), reply::shown(&reply::text(value)?).to_string());
            }
        }
        for _ in 0..CLOCK_READINGS {
            let sent = self.env().now();
            if let Value::Array(parts) = connection.ask(&mut cmd("TIME")).await? {
                let received = self.env().now();
                found.looks.push(Look { sent, received, node_time: reply::time(&parts)? });
            }
        }
        if let value @ Value::Text(_) = connection.ask(cmd("ACL").arg("WHOAMI")).await? {
            found.user = Some(reply::shown(&reply::text(&value)?).to_string());
        }
        // The user may have no permission for ACL WHOAMI. Then the user's name is taken from the URL.
        found.user = found.user.or(login.user.clone());
        found.denied = connection.denied(self.keys().prefix(), login.database).await?;
        found.denied_pushes = connection.denied_pushes(self.keys()).await?;
        Ok(found)
    }

    /// Returns the smallest sufficient set of permissions for the user of a node, as an ACL rule for `ACL
    /// SETUSER` or a `user` line.
    pub fn least_acl(prefix: &str) -> String {
        let commands: Vec<String> = COMMANDS.iter().map(|command| format!("+{command}")).collect();
        format!("resetkeys ~{prefix}* ~{{{prefix}* resetchannels &{prefix}* -@all {}", commands.join(" "))
    }
}

/// A connection that sends one command and waits for its reply.
pub(crate) struct Connection<'a> {
    name: &'a str,
    reader: Reader,
    writer: Writer,
}

impl<'a> Connection<'a> {
    pub(crate) fn new(name: &'a str, reader: Reader, writer: Writer) -> Self {
        Self { name, reader, writer }
    }

    pub(crate) async fn ask(&mut self, command: &mut Command) -> Result<Value<'_>, Cause> {
        let bytes = command.packed();
        handshake::send(self.name, &mut self.reader, &mut self.writer, &bytes).await?;
        self.reader.next().await.map_err(|error| fault::of_broken(self.name, &error))
    }

    /// Raises the limit on the length of a reply. Call it after the login.
    pub(crate) fn allow_long_replies(&mut self) {
        self.reader.allow_long_replies();
    }

    pub(crate) async fn log_in(&mut self, login: &Login) -> Result<(), Cause> {
        let Some(mut auth) = login.auth() else { return Ok(()) };
        match self.ask(&mut auth).await? {
            Value::Error(error) => Err(fault::of_server(&error, login.secret())),
            _ => Ok(()),
        }
    }

    /// Returns the required [`COMMANDS`] that the user has no permission to run on keys like Quorate's. Each
    /// command is tried in a form that changes nothing. A server checks permissions first, and only then
    /// finds that there is nothing to do.
    async fn denied(&mut self, prefix: &str, database: u64) -> Result<Vec<String>, Cause> {
        let mut denied = Vec::new();
        // No data is stored under these keys: they have a brace directly after the prefix, or no name after the
        // prefix in braces, and no key of Quorate has either.
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

    /// Returns the commands for waking waiters that the user has no permission to run on a channel like
    /// Quorate's. This function must be called last, because it switches the connection to another protocol.
    async fn denied_pushes(&mut self, keys: &Keys) -> Result<Vec<String>, Cause> {
        let channel = format!("{}{{doctor}}:freed", keys.prefix());
        // The subscription has only one effect on other clients. A script that releases a lease counts the
        // subscribers of its lock, and publishes a message if there are any.
        let waiters = keys.waiters();
        let mut denied = Vec::new();
        let resp = [
            vec!["publish", &channel, ""],
            vec!["pubsub", "numsub", &channel],
            vec!["hello", "3"],
            vec!["subscribe", &channel],
            vec!["subscribe", &waiters],
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
        let reply = self.ask(cmd(resp[0]).args(&resp[1..])).await?;
        Ok(matches!(&reply, Value::Error(error) if fault::parts(error).0 == "NOPERM"))
    }
}

/// Returns each of the required [`COMMANDS`] in a form that changes nothing if `key` does not exist.
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
        vec!["exists", key],
        // The increment is not a number. The server checks permissions first, and then refuses the command.
        vec!["incrby", key, "x"],
        vec!["set", key, "1", "xx", "px", "1"],
        vec!["del", key],
        vec!["pexpire", key, "1"],
        vec!["pexpireat", key, "1"],
        vec!["pttl", key],
        vec!["hget", key, "f"],
        vec!["hmget", key, "f"],
        // The last field has no value. A server checks permissions first, and then refuses this invalid
        // command. So nothing is written.
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
