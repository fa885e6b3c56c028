use crate::redis::{
    RedisNode,
    command::cmd,
    durability::{Durability, durability},
    fault,
    keys::Keys,
    link::Link,
    reply,
    resp::Value,
    server_facts, server_version,
};
use crate::{
    env::BootTime,
    node::{Cause, NodeTime},
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

/// The key in [`REQUIRED`].
const KEY: &str = "KEY";

/// The commands of the handshake and of the scripts, in the notation of ACL rules, each with arguments under which it
/// changes nothing if [`KEY`] does not exist. A server checks permissions first, and only then refuses an invalid
/// command. `multi`, `exec`, `mget`, `exists`, `incrby` and `hmget` are optional: without them locks, claims and schedulers take
/// longer.
const REQUIRED: [(&str, &[&str]); 31] = [
    ("select", &["0"]),
    ("client|setname", &["quorate"]),
    ("info", &["server"]),
    ("time", &[]),
    ("config|get", &["appendfsync"]),
    ("script|load", &["no Lua"]),
    ("multi", &[]),
    ("exec", &[]),
    ("evalsha", &["0000000000000000000000000000000000000000", "1", KEY]),
    ("get", &[KEY]),
    ("mget", &[KEY]),
    ("exists", &[KEY]),
    // The increment is not a number.
    ("incrby", &[KEY, "x"]),
    ("set", &[KEY, "1", "xx", "px", "1"]),
    ("del", &[KEY]),
    ("pexpire", &[KEY, "1"]),
    ("pexpireat", &[KEY, "1"]),
    ("pttl", &[KEY]),
    ("hget", &[KEY, "f"]),
    ("hmget", &[KEY, "f"]),
    // The last field has no value.
    ("hset", &[KEY, "f", "v", "g"]),
    ("hdel", &[KEY, "f"]),
    ("hgetall", &[KEY]),
    ("hscan", &[KEY, "0"]),
    ("zadd", &[KEY, "xx", "1", "m"]),
    ("zrem", &[KEY, "m"]),
    ("zremrangebyscore", &[KEY, "0", "0"]),
    ("zrange", &[KEY, "0", "0"]),
    ("zscore", &[KEY, "m"]),
    ("zcard", &[KEY]),
    ("zcount", &[KEY, "0", "0"]),
];

/// The commands that notify waiters of releases, in the notation of ACL rules. They are optional.
const PUSHES: [&str; 5] = ["publish", "pubsub|numsub", "hello", "subscribe", "unsubscribe"];

impl RedisNode {
    /// Queries the server for the facts that an operator needs. The call has no time limit of its own: the
    /// caller sets one.
    ///
    /// # Errors
    /// The [`Cause`] of the failure. Its text contains no password.
    ///
    /// # Cancel safety
    /// Dropping the future drops the connection. Nothing is written to the server.
    #[doc(hidden)]
    pub async fn examine(&self) -> Result<Examination, Cause> {
        let mut link = Link::dial(self, fault::RIGHTS).await?;
        let found = self.query(&mut link).await;
        // A server may repeat its input. The password is removed, so that it does not appear in logs.
        let login = link.login();
        let mut found = found.map_err(|cause| login.redact(cause))?;
        for text in found.info.values_mut().chain(found.settings.values_mut()) {
            *text = login.clean(text).to_owned();
        }
        Ok(found)
    }

    async fn query(&self, link: &mut Link) -> Result<Examination, Cause> {
        link.log_in().await?;
        let info = server_facts::parse_info(&reply::text(&link.demand(&mut cmd("INFO")).await?)?);
        let info = info.into_iter().map(|(name, value)| (name, reply::shown(&value).to_string()));
        let mut found = Examination { info: info.collect(), ..Examination::default() };
        for name in SETTINGS {
            let value = link.ask(cmd("CONFIG").arg("GET").arg(name)).await?;
            if let Some(value) = server_facts::parse_setting(&value)? {
                found.settings.insert(name.to_owned(), reply::shown(&value).to_string());
            }
        }
        for _ in 0..CLOCK_READINGS {
            let sent = self.env().now();
            let value = link.ask(&mut cmd("TIME")).await?;
            if let Value::Array(_) = value {
                let received = self.env().now();
                found.looks.push(Look { sent, received, node_time: reply::time(&value)? });
            }
        }
        if let value @ Value::Text(_) = link.ask(cmd("ACL").arg("WHOAMI")).await? {
            found.user = Some(reply::shown(&reply::text(&value)?).to_string());
        }
        // The user may have no permission for ACL WHOAMI. Then the user's name is taken from the URL.
        found.user = found.user.or_else(|| link.login().user.clone());
        found.denied = denied(link, self.keys().prefix()).await?;
        found.denied_pushes = denied_pushes(link, self.keys()).await?;
        Ok(found)
    }

    /// Returns the smallest sufficient set of permissions for the user of a node, as an ACL rule for `ACL
    /// SETUSER` or a `user` line.
    pub fn least_acl(prefix: &str) -> String {
        let commands: Vec<String> = REQUIRED.iter().map(|(command, _)| format!("+{command}")).collect();
        format!(
            "resetkeys ~{prefix}* ~{{{prefix}* resetchannels &{prefix}* -@all {} {}",
            commands.join(" "),
            Self::pushes_acl()
        )
    }

    /// Returns the permissions for waking waiters, as a part of an ACL rule. Without them, waiters poll.
    pub fn pushes_acl() -> String {
        PUSHES.map(|command| format!("+{command}")).join(" ")
    }
}

/// Returns the [`REQUIRED`] commands that the user has no permission to run on keys like Quorate's.
async fn denied(link: &mut Link, prefix: &str) -> Result<Vec<String>, Cause> {
    let mut denied = Vec::new();
    // No data is stored under these keys: they have a brace directly after the prefix, or no name after the
    // prefix in braces, and no key of Quorate has either.
    for key in [format!("{prefix}{{doctor}}"), format!("{{{prefix}}}doctor")] {
        for (command, args) in REQUIRED {
            if command == "select" && link.login().database == 0 {
                continue;
            }
            let args = args.iter().map(|arg| if *arg == KEY { &key } else { *arg });
            let words: Vec<&str> = command.split('|').chain(args).collect();
            let text = words.join(" ");
            if is_denied(link, &words).await? && !denied.contains(&text) {
                denied.push(text);
            }
        }
    }
    Ok(denied)
}

/// Returns the commands for waking waiters that the user has no permission to run on a channel like Quorate's. This
/// function must be called last, because it switches the connection to another protocol.
async fn denied_pushes(link: &mut Link, keys: &Keys) -> Result<Vec<String>, Cause> {
    let channel = format!("{}{{doctor}}:freed", keys.prefix());
    // The subscription has only one effect on other clients. A script that releases a lease counts the
    // subscribers of its lock, and publishes a message if there are any.
    let waiters = keys.waiters().concat();
    let mut denied = Vec::new();
    for words in [
        &["publish", &channel, ""][..],
        &["pubsub", "numsub", &channel],
        &["hello", "3"],
        &["subscribe", &channel],
        &["subscribe", &waiters],
        &["unsubscribe", &channel],
    ] {
        if is_denied(link, words).await? {
            denied.push(words.join(" ").trim_end().to_owned());
        }
    }
    Ok(denied)
}

async fn is_denied(link: &mut Link, words: &[&str]) -> Result<bool, Cause> {
    let reply = link.ask(cmd(words[0]).args(&words[1..])).await?;
    Ok(matches!(&reply, Value::Error(error) if fault::parts(error).0 == "NOPERM"))
}
