use crate::{
    address::Login,
    durability::{self, Durability, durability},
    encode::Keys,
    fault, reply,
    scripts::{Loaded, Script},
    wire::{Reader, Writer},
};
use quorate::node::{Cause, Hello, NodeTime};
use redis::{Cmd, Value};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// The longest marker that is believed to be one, in bytes.
const MARKER_MAX: usize = 64 << 10;

/// What a server said when it was greeted.
pub(crate) struct Handshake {
    pub(crate) scripts: Loaded,
    pub(crate) hello: Hello,
    /// Whether it speaks RESP3 from here on, so that it can push.
    pub(crate) pushes: bool,
}

/// Greets the server, all in one round trip: who we are, which database, what it is, and the scripts.
pub(crate) async fn handshake_on(
    name: &str,
    halves: &mut (Reader, Writer),
    login: &Login,
    keys: &Keys,
) -> Result<Handshake, Cause> {
    let shaken = ask(name, halves, login, keys).await;
    // A server that repeats what it was told would have its password in every log.
    let Some(password) = &login.password else { return shaken };
    let clean = |text: &Arc<str>| -> Arc<str> { text.replace(password.reveal(), "***").into() };
    match shaken {
        Ok(mut shaken) => {
            shaken.hello.version = clean(&shaken.hello.version);
            shaken.hello.eviction = shaken.hello.eviction.as_ref().map(clean);
            shaken.hello.volatile = shaken.hello.volatile.as_ref().map(clean);
            Ok(shaken)
        }
        Err(cause) => Err(fault::without(cause, password.reveal())),
    }
}

async fn ask(
    name: &str,
    (reader, writer): &mut (Reader, Writer),
    login: &Login,
    keys: &Keys,
) -> Result<Handshake, Cause> {
    let questions = questions(login, keys);
    let mut bytes = Vec::new();
    for (_, command) in &questions {
        command.write_packed_command(&mut bytes);
    }
    send(name, reader, writer, &bytes).await?;
    let mut answers = Answers::default();
    for (question, _) in questions {
        let value = reader.next().await.map_err(|error| fault::of_broken(name, &error))?;
        if let (Value::ServerError(error), Some(password)) = (&value, &login.password) {
            fault::unless_it_repeats(error, password.reveal())?;
        }
        answers.take(question, value)?;
    }
    answers.finish()
}

/// Sends what is to be answered. Where the server has closed the connection, the reason may be waiting to be read: that
/// of TLS 1.3 to refuse a client's certificate always is.
pub(crate) async fn send(
    name: &str,
    reader: &mut Reader,
    writer: &mut Writer,
    bytes: &[u8],
) -> Result<(), Cause> {
    let Err(unsent) = writer.send(bytes).await else { return Ok(()) };
    match reader.next().await {
        Err(reason) if reason.is_io_error() && !reason.is_connection_dropped() => {
            Err(fault::of_broken(name, &reason))
        }
        _ => Err(fault::of_io(name, &unsent)),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Question {
    Auth,
    Select,
    SetName,
    Info,
    Time,
    Marker,
    Setting(&'static str),
    Load,
    Pushes,
}

fn questions(login: &Login, keys: &Keys) -> Vec<(Question, Cmd)> {
    let mut all = Vec::new();
    if let Some(auth) = login.auth() {
        all.push((Question::Auth, auth));
    }
    if login.database != 0 {
        all.push((Question::Select, redis::cmd("SELECT").arg(login.database).take()));
    }
    all.push((Question::SetName, redis::cmd("CLIENT").arg("SETNAME").arg("quorate").take()));
    all.push((Question::Info, redis::cmd("INFO")));
    all.push((Question::Time, redis::cmd("TIME")));
    all.push((Question::Marker, redis::cmd("GET").arg(keys.marker()).take()));
    for name in durability::SETTINGS {
        all.push((Question::Setting(name), redis::cmd("CONFIG").arg("GET").arg(name).take()));
    }
    for script in Script::ALL {
        all.push((Question::Load, redis::cmd("SCRIPT").arg("LOAD").arg(script.source()).take()));
    }
    // Last, so that all before it is answered the old way. A server that will not is one that cannot push.
    all.push((Question::Pushes, redis::cmd("HELLO").arg(3).take()));
    all
}

/// What the server has said so far.
#[derive(Default)]
struct Answers {
    info: BTreeMap<String, String>,
    node_time: NodeTime,
    marker: Option<Arc<str>>,
    settings: BTreeMap<String, String>,
    scripts: Vec<String>,
    pushes: bool,
}

impl Answers {
    fn take(&mut self, question: Question, value: Value) -> Result<(), Cause> {
        if let Value::ServerError(error) = &value {
            return match question {
                // Managed servers and careful ACLs deny these, and nothing depends on them.
                Question::SetName | Question::Setting(_) | Question::Pushes => Ok(()),
                Question::Select => Err(Cause::Denied(reply::shown(&format!(
                    "no such database; choose another number in the node's URL: {error}"
                )))),
                Question::Marker if error.code() == "WRONGTYPE" => Err(Cause::Misconfigured(
                    "the marker's key holds another type; delete it, or choose another prefix".into(),
                )),
                _ => Err(fault::of_server(error)),
            };
        }
        match (question, &value) {
            (Question::Info, _) => self.info = facts(&reply::text(&value)?),
            (Question::Time, Value::Array(parts)) => self.node_time = reply::time(parts)?,
            (Question::Time, other) => {
                return Err(reply::unexpected(&format!("{} for TIME", reply::kind(other))));
            }
            (Question::Marker, Value::Nil) => self.marker = None,
            (Question::Marker, _) => {
                let marker = reply::text(&value)?;
                if marker.len() > MARKER_MAX {
                    return Err(reply::unexpected(&format!("a marker of {} bytes", marker.len())));
                }
                self.marker = Some(marker);
            }
            (Question::Setting(name), value) => {
                if let Some(text) = setting(value)? {
                    self.settings.insert(name.to_owned(), text.to_string());
                }
            }
            (Question::Load, _) => self.scripts.push(reply::text(&value)?.to_string()),
            (Question::Pushes, value) => self.pushes = matches!(value, Value::Map(_)),
            (Question::Auth | Question::Select | Question::SetName, _) => {}
        }
        Ok(())
    }

    fn finish(self) -> Result<Handshake, Cause> {
        let fact = |name: &str| self.info.get(name).map(String::as_str);
        let need = |name: &str| {
            fact(name)
                .filter(|value| !value.is_empty())
                .ok_or_else(|| reply::unexpected(&format!("INFO tells no {name}; is this a Redis server?")))
        };
        let uptime = need("uptime_in_seconds")?;
        let uptime =
            uptime.parse().map_err(|_| reply::unexpected(&format!("uptime_in_seconds is {uptime:?}")))?;
        let version = match fact("valkey_version") {
            Some(version) => format!("valkey {version}"),
            None => fact("redis_version").unwrap_or("unknown").to_owned(),
        };
        let (durable, volatile) = match durability(&self.info, &self.settings) {
            Durability::Durable => (Some(true), None),
            Durability::Rewriting => (None, None),
            Durability::Volatile(why) => (Some(false), Some(why)),
            Durability::Unknown(why) => (None, Some(why)),
        };
        let hello = Hello {
            node_time: self.node_time,
            run_id: reply::shown(need("run_id")?),
            uptime: Duration::from_secs(uptime),
            version: reply::shown(&version),
            replica: need("role")? != "master",
            eviction: fact("maxmemory_policy").map(reply::shown),
            durable,
            volatile: volatile.map(Into::into),
            marker: self.marker,
        };
        let scripts =
            Loaded::new(self.scripts).ok_or_else(|| reply::unexpected("a script was not loaded"))?;
        Ok(Handshake { scripts, hello, pushes: self.pushes })
    }
}

/// The value in the reply to CONFIG GET of one name, which is a map once the connection speaks RESP3. `None` where the
/// server does not know the setting.
pub(crate) fn setting(value: &Value) -> Result<Option<Arc<str>>, Cause> {
    match value {
        Value::Array(pair) => pair.get(1).map(reply::text).transpose(),
        Value::Map(pairs) => pairs.first().map(|(_, value)| reply::text(value)).transpose(),
        _ => Ok(None),
    }
}

/// The `name:value` lines of INFO.
pub(crate) fn facts(info: &str) -> BTreeMap<String, String> {
    let lines = info.lines().filter_map(|line| line.split_once(':'));
    lines.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_answers_nonsense_is_a_cause_and_not_a_panic() {
        let mut answers = Answers::default();
        for value in [Value::Nil, Value::Int(-1), Value::Array(vec![]), Value::Okay] {
            assert!(matches!(answers.take(Question::Time, value), Err(Cause::Protocol(_))));
        }
        assert!(matches!(answers.take(Question::Info, Value::Nil), Err(Cause::Protocol(_))));
        assert!(answers.take(Question::Setting("appendfsync"), Value::Array(vec![])).is_ok());
        let info = "run_id:abc\r\nrole:master\r\nuptime_in_seconds:-5\r\n";
        answers.take(Question::Info, Value::BulkString(info.into())).unwrap();
        assert!(matches!(answers.finish(), Err(Cause::Protocol(text)) if text.contains("uptime")));
    }
}
