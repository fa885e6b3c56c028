use crate::node::{Cause, Hello, NodeTime};
use crate::redis::{
    address::Login,
    command::{Command, cmd},
    durability::{self, Durability},
    fault,
    keys::Keys,
    link::Link,
    reply,
    resp::Value,
    scripts::{Loaded, Script},
    server_facts::{ServerFacts, parse_info, parse_setting},
    server_version,
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// The longest marker that is accepted, in bytes.
const MARKER_MAX: usize = 64 << 10;

/// The maximum number of nodes whose stamps are read. Nodes that left the node set long ago may be among them.
const STAMPS_MAX: usize = 1024;

/// The result of a handshake.
pub(crate) struct Handshake {
    pub(crate) scripts: Loaded,
    pub(crate) hello: Hello,
    /// The facts on which the quorum decides. They may change while the session is open.
    pub(crate) facts: ServerFacts,
    /// True if the connection now uses RESP3, so that the server can push.
    pub(crate) pushes: bool,
    /// True if locks and claims may be acquired by plain commands in a transaction.
    pub(crate) commands: bool,
}

/// Performs the handshake in one round trip: authenticates, selects the database, queries the facts that
/// [`Hello`] reports, and loads the scripts.
pub(crate) async fn perform(link: &mut Link, keys: &Keys) -> Result<Handshake, Cause> {
    let handshake = ask(link, keys).await;
    // A server may repeat its input. The password is removed, so that it does not appear in logs.
    let login = link.login();
    let clean = |text: &Arc<str>| -> Arc<str> { login.clean(text).into() };
    let mut handshake = handshake.map_err(|cause| login.redact(cause))?;
    let hello = &mut handshake.hello;
    hello.version = clean(&hello.version);
    hello.eviction = hello.eviction.as_ref().map(clean);
    hello.volatile = hello.volatile.as_ref().map(clean);
    hello.unable = hello.unable.as_ref().map(clean);
    Ok(handshake)
}

async fn ask(link: &mut Link, keys: &Keys) -> Result<Handshake, Cause> {
    let login = link.login().clone();
    let (steps, bytes) = steps(&login, keys);
    link.send(&bytes).await?;
    let mut replies = Replies::default();
    for step in steps {
        replies.take(step, &link.next().await?, login.secret())?;
    }
    replies.finish()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum HandshakeStep {
    Auth,
    Select,
    SetName,
    Info,
    Time,
    Marker,
    Stamps,
    Setting(&'static str),
    /// A command that a lease needs. It changes nothing, because its key does not exist.
    Write,
    Load,
    /// A command of a transaction like those that acquire locks. It changes nothing.
    Transaction,
    Pushes,
}

/// Returns the steps, and the commands to send.
fn steps(login: &Login, keys: &Keys) -> (Vec<HandshakeStep>, Vec<u8>) {
    let (mut steps, mut bytes) = (Vec::new(), Vec::new());
    let mut add = |step, command: &mut Command| {
        steps.push(step);
        command.finish(&mut bytes);
    };
    if let Some(mut auth) = login.auth() {
        add(HandshakeStep::Auth, &mut auth);
    }
    if let Some(mut select) = login.select() {
        add(HandshakeStep::Select, &mut select);
    }
    add(HandshakeStep::SetName, cmd("CLIENT").arg("SETNAME").arg("quorate"));
    add(HandshakeStep::Info, &mut cmd("INFO"));
    add(HandshakeStep::Time, &mut cmd("TIME"));
    add(HandshakeStep::Marker, cmd("GET").joined(keys.marker()));
    add(HandshakeStep::Stamps, cmd("HGETALL").joined(keys.stamps()));
    for name in durability::SETTINGS {
        add(HandshakeStep::Setting(name), cmd("CONFIG").arg("GET").arg(name));
    }
    let none = keys.never_stored();
    add(HandshakeStep::Write, cmd("SET").joined(none).args(["", "XX", "PX", "1"]));
    add(HandshakeStep::Write, cmd("PEXPIRE").joined(none).arg("1"));
    add(HandshakeStep::Write, cmd("DEL").joined(none));
    for script in Script::ALL {
        add(HandshakeStep::Load, cmd("SCRIPT").arg("LOAD").arg(script.source()));
    }
    // The increment is not a number.
    for words in [&["MULTI"][..], &["INCRBY", "x"], &["EXISTS"], &["EXEC"]] {
        let mut command = cmd(words[0]);
        if !matches!(words[0], "MULTI" | "EXEC") {
            command.joined(none);
        }
        add(HandshakeStep::Transaction, command.args(&words[1..]));
    }
    // HELLO is the last command, so that all replies before it use RESP2. If a server refuses HELLO, it cannot
    // push.
    add(HandshakeStep::Pushes, cmd("HELLO").arg("3"));
    (steps, bytes)
}

/// The data from the replies of the handshake that have arrived so far.
#[derive(Default)]
struct Replies {
    info: BTreeMap<String, String>,
    node_time: NodeTime,
    marker: Option<Arc<str>>,
    stamps: BTreeMap<Arc<str>, u64>,
    settings: BTreeMap<String, String>,
    /// The reason why the server refused a write, with the fix.
    unable: Option<Arc<str>>,
    scripts: Vec<String>,
    /// The number of commands of the transaction that the server has accepted, and whether it has run them.
    queued: usize,
    commands: bool,
    pushes: bool,
}

impl Replies {
    fn take(&mut self, step: HandshakeStep, value: &Value<'_>, secret: Option<&str>) -> Result<(), Cause> {
        if let Value::Error(error) = value {
            return match step {
                // Managed servers and strict ACLs may refuse these commands. A session works without them.
                HandshakeStep::SetName
                | HandshakeStep::Setting(_)
                | HandshakeStep::Transaction
                | HandshakeStep::Pushes => Ok(()),
                // The session is opened nevertheless: the server still answers reads and releases.
                HandshakeStep::Write => {
                    let why = fault::of_refused_write(error, secret).map(Into::into);
                    self.unable = self.unable.take().or(why);
                    Ok(())
                }
                HandshakeStep::Select => Err(Cause::Denied(reply::shown(&format!(
                    "no such database; choose another number in the node's URL: {}",
                    fault::error_text(error, secret)
                )))),
                HandshakeStep::Marker | HandshakeStep::Stamps if error.starts_with("WRONGTYPE") => {
                    let key = if step == HandshakeStep::Marker {
                        "the marker's key"
                    } else {
                        "the key of the stamps"
                    };
                    let why = format!("{key} holds another type; delete it, or choose another prefix");
                    Err(Cause::Misconfigured(why.into()))
                }
                _ => Err(fault::of_server(error, secret, fault::RIGHTS)),
            };
        }
        match (step, value) {
            (HandshakeStep::Info, _) => {
                self.info = parse_info(&reply::text(value)?);
                // An old server may also refuse a later step of the handshake, with an error that hides the reason.
                server_version::check(&self.info).map_err(|why| Cause::Misconfigured(reply::shown(&why)))?;
            }
            (HandshakeStep::Time, _) => self.node_time = reply::time(value)?,
            (HandshakeStep::Marker, Value::Nil) => self.marker = None,
            (HandshakeStep::Marker, _) => {
                let marker = reply::text(value)?;
                if marker.len() > MARKER_MAX {
                    return Err(reply::unexpected(&format!("a marker of {} bytes", marker.len())));
                }
                self.marker = Some(marker);
            }
            (HandshakeStep::Stamps, value) => self.stamps = stamps(value)?,
            (HandshakeStep::Setting(name), value) => {
                if let Some(text) = parse_setting(value)? {
                    self.settings.insert(name.to_owned(), text.to_string());
                }
            }
            (HandshakeStep::Load, _) => self.scripts.push(reply::text(value)?.to_string()),
            (HandshakeStep::Transaction, Value::Array(_)) => self.commands = self.queued == 3,
            (HandshakeStep::Transaction, _) => self.queued += 1,
            (HandshakeStep::Pushes, value) => self.pushes = matches!(value, Value::Map(_)),
            (
                HandshakeStep::Auth | HandshakeStep::Select | HandshakeStep::SetName | HandshakeStep::Write,
                _,
            ) => {}
        }
        Ok(())
    }

    fn finish(self) -> Result<Handshake, Cause> {
        let fact = |name: &str| self.info.get(name).map(String::as_str);
        let facts = ServerFacts::read(&self.info, &self.settings)?;
        // The uptime is only shown. It follows the server's wall clock, so it is negative if that clock was set back.
        let uptime: i64 = fact("uptime_in_seconds").and_then(|text| text.parse().ok()).unwrap_or_default();
        let version = match fact("valkey_version") {
            Some(version) => format!("valkey {version}"),
            None => fact("redis_version").unwrap_or("unknown").to_owned(),
        };
        let (durable, volatile) = match &facts.durability {
            Durability::Durable => (Some(true), None),
            Durability::Rewriting => (None, None),
            Durability::Volatile(why) => (Some(false), Some(why)),
            Durability::Unknown(why) => (None, Some(why)),
        };
        let hello = Hello {
            node_time: self.node_time,
            run_id: Arc::clone(&facts.run_id),
            uptime: Duration::from_secs(u64::try_from(uptime).unwrap_or_default()),
            version: reply::shown(&version),
            replica: facts.is_replica(),
            eviction: facts.eviction.clone(),
            durable,
            volatile: volatile.map(|why| why.as_str().into()),
            unable: self.unable,
            marker: self.marker,
            data: facts.data.clone(),
            stamps: self.stamps,
        };
        let scripts =
            Loaded::new(self.scripts).ok_or_else(|| reply::unexpected("a script was not loaded"))?;
        let commands = self.commands && server_version::has_set_nx_get(&self.info);
        Ok(Handshake { scripts, hello, facts, pushes: self.pushes, commands })
    }
}

/// Returns the stamps from the reply to HGETALL.
fn stamps(value: &Value<'_>) -> Result<BTreeMap<Arc<str>, u64>, Cause> {
    let fields = value.list().ok_or_else(|| reply::mismatch(value, "HGETALL"))?;
    let pairs = fields.as_chunks::<2>().0.iter().take(STAMPS_MAX).map(|[name, count]| {
        let count = reply::word(count)?.parse().map_err(|_| {
            Cause::Misconfigured(
                "the key of its stamps holds something else; delete it, or choose another prefix".into(),
            )
        })?;
        Ok((reply::text(name)?, count))
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_reply_is_a_cause_and_not_a_panic() {
        let mut replies = Replies::default();
        for value in [Value::Nil, Value::Int(-1), Value::Array(vec![]), Value::Text(b"OK")] {
            assert!(matches!(replies.take(HandshakeStep::Time, &value, None), Err(Cause::Protocol(_))));
        }
        assert!(matches!(replies.take(HandshakeStep::Info, &Value::Nil, None), Err(Cause::Protocol(_))));
        assert!(replies.take(HandshakeStep::Setting("appendfsync"), &Value::Array(vec![]), None).is_ok());
        let old = Value::Text(b"redis_version:6.0.20\r\n");
        let refused = Replies::default().take(HandshakeStep::Info, &old, None);
        assert!(matches!(refused, Err(Cause::Misconfigured(why)) if why.contains("Redis 6.0.20")));
        assert!(matches!(replies.finish(), Err(Cause::Protocol(text)) if text.contains("run_id")));
    }

    /// Regression: a server whose clock was set back after its start was refused for as long as its uptime was negative.
    #[test]
    fn an_uptime_that_is_no_count_of_seconds_is_shown_as_zero() {
        for (uptime, shown) in [("7", 7), ("-3540", 0), ("", 0), ("1.5", 0), ("99999999999999999999", 0)] {
            let mut replies = Replies::default();
            let info = format!("run_id:abc\r\nrole:master\r\nuptime_in_seconds:{uptime}\r\n");
            replies.take(HandshakeStep::Info, &Value::Text(info.as_bytes()), None).unwrap();
            for _ in Script::ALL {
                replies.take(HandshakeStep::Load, &Value::Text(&[b'0'; 40]), None).unwrap();
            }
            let hello = replies.finish().unwrap_or_else(|cause| panic!("{uptime:?}: {cause}")).hello;
            assert_eq!(hello.uptime.as_secs(), shown, "{uptime:?}");
        }
    }
}
