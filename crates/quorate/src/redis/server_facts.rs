//! The facts about a server on which the decision at the handshake is based. A session compares them again while it
//! is open, because an operator may change them without closing a connection.

use crate::node::{Cause, DataId};
use crate::redis::{
    command::cmd,
    durability::{Durability, SETTINGS, durability},
    reply,
    resp::Value,
};
use std::{collections::BTreeMap, sync::Arc};

/// The facts about a server on which the decision at the handshake is based.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerFacts {
    /// An id of the server process.
    pub(crate) run_id: Arc<str>,
    /// The role in the server's replication.
    pub(crate) role: Arc<str>,
    /// The eviction policy, if the server reports it.
    pub(crate) eviction: Option<Arc<str>>,
    /// The durability of an acknowledged write.
    pub(crate) durability: Durability,
    /// The id of the server's data, if the server reports it.
    pub(crate) data: Option<DataId>,
}

impl ServerFacts {
    /// Reads the facts from the fields of INFO and from the settings that CONFIG GET returned.
    pub(crate) fn read(
        info: &BTreeMap<String, String>,
        settings: &BTreeMap<String, String>,
    ) -> Result<Self, Cause> {
        let fact = |name: &str| info.get(name).map(|value| reply::shown(value));
        let need = |name: &str| {
            fact(name)
                .filter(|value| !value.is_empty())
                .ok_or_else(|| reply::unexpected(&format!("INFO reports no {name}; is this a Redis server?")))
        };
        Ok(Self {
            run_id: need("run_id")?,
            role: need("role")?,
            eviction: fact("maxmemory_policy"),
            durability: durability(info, settings),
            data: data_id(info),
        })
    }

    pub(crate) fn is_replica(&self) -> bool {
        &*self.role != "master"
    }

    /// Compares the facts of the handshake with those that the server reports `now`. Returns the first difference that
    /// may change the decision, as text. Of the durability only a loss counts. It is unknown for a time while the
    /// append-only file is rewritten, and an open session continues then. Of the data only a copy of another server's
    /// counts: a server also draws a new id when its first replica connects, and then its data is the same.
    pub(crate) fn change(&self, now: &Self) -> Option<String> {
        let Self { run_id, role, eviction, durability, data } = self;
        let text = |value: &Option<Arc<str>>| value.as_deref().unwrap_or("not reported").to_owned();
        let facts = [
            ("run_id", run_id.to_string(), now.run_id.to_string()),
            ("role", role.to_string(), now.role.to_string()),
            ("maxmemory-policy", text(eviction), text(&now.eviction)),
        ];
        let changed = facts.into_iter().find(|(_, before, after)| before != after);
        if let Some((name, before, after)) = changed {
            return Some(format!("its {name} was {before} and is now {after}"));
        }
        if let (Durability::Durable, Durability::Volatile(why)) = (durability, &now.durability) {
            return Some(why.clone());
        }
        let copied = now.data.as_ref().filter(|now| now.is_copied && data.as_ref() != Some(*now));
        copied.map(|_| "it has taken over the data of another server (REPLICAOF)".to_owned())
    }
}

/// The facts that a server reports while a session is open, as far as its replies have arrived.
pub(crate) struct FactsReading {
    /// The settings whose values have not arrived.
    settings_left: &'static [&'static str],
    info: Option<BTreeMap<String, String>>,
    settings: BTreeMap<String, String>,
}

impl FactsReading {
    /// Begins a reading of a server that is durable if `of_durable` is true. Returns it with the commands to send.
    pub(crate) fn new(of_durable: bool) -> (Self, Vec<u8>) {
        // The settings matter only while they make the server durable.
        let names: &[&str] = if of_durable { &SETTINGS } else { &[] };
        let mut bytes = cmd("INFO").packed();
        names.iter().for_each(|name| cmd("CONFIG").arg("GET").arg(name).finish(&mut bytes));
        (Self { settings_left: names, info: None, settings: BTreeMap::new() }, bytes)
    }

    /// Adds the next reply. Returns true if it is the last one.
    pub(crate) fn add(&mut self, value: &Value<'_>) -> bool {
        match (&self.info, self.settings_left) {
            // A server that is busy refuses to reply.
            (None, _) => {
                let info = reply::text(value).map(|text| parse_info(&text));
                self.info = Some(info.unwrap_or_default());
            }
            (Some(_), [name, rest @ ..]) => {
                self.settings_left = rest;
                if let Ok(Some(value)) = parse_setting(value) {
                    self.settings.insert((*name).to_owned(), value.to_string());
                }
            }
            (Some(_), []) => {}
        }
        self.settings_left.is_empty()
    }

    /// Returns the facts. Returns `None` if the server has refused to report them.
    pub(crate) fn facts(&self) -> Option<ServerFacts> {
        ServerFacts::read(self.info.as_ref()?, &self.settings).ok()
    }
}

/// Returns the id of the server's data from the fields of INFO; `None` if the server does not report it.
///
/// A server draws a new `master_replid` when it stops being a replica. It then reports the id of its former master as
/// `master_replid2`. It also draws a new one when its first replica connects (`redis-cli --rdb` is one), and when it has
/// had no replica for `repl-backlog-ttl`. In these two cases it clears `master_replid2`. A server that loads an
/// append-only file begins with a new id, and without a second one.
fn data_id(info: &BTreeMap<String, String>) -> Option<DataId> {
    let fact = |name: &str| info.get(name).map(String::as_str).filter(|value| !value.is_empty());
    let id = reply::shown(fact("master_replid")?);
    let is_copied = fact("master_replid2").is_some_and(|id| id.bytes().any(|digit| digit != b'0'));
    Some(DataId { id, is_copied })
}

/// Returns the value from the reply to CONFIG GET of one name. The reply is an array, or a map once the
/// connection uses RESP3. Returns `None` if the server does not know the setting.
pub(crate) fn parse_setting(value: &Value<'_>) -> Result<Option<Arc<str>>, Cause> {
    value.list().and_then(|pair| pair.get(1)).map(reply::text).transpose()
}

/// Parses the `name:value` lines of INFO.
pub(crate) fn parse_info(info: &str) -> BTreeMap<String, String> {
    let lines = info.lines().filter_map(|line| line.split_once(':'));
    lines.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const INFO: &str = "run_id:a\r\nrole:master\r\nmaxmemory_policy:noeviction\r\naof_enabled:1\r\n\
                        aof_rewrite_in_progress:0\r\naof_rewrite_scheduled:0\r\n\
                        master_replid:d\r\nmaster_replid2:000\r\n";
    const ALWAYS: [(&str, &str); 2] = [("appendfsync", "always"), ("no-appendfsync-on-rewrite", "no")];

    /// Returns the facts of [`INFO`] after a change of its text and of the settings.
    fn facts(change: (&str, &str), settings: &[(&str, &str)]) -> ServerFacts {
        let info = parse_info(&INFO.replace(change.0, change.1));
        let settings =
            settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        ServerFacts::read(&info, &settings).unwrap()
    }

    #[test]
    fn each_fact_on_which_the_handshake_decides_ends_the_session_when_it_changes() {
        let before = facts(("", ""), &ALWAYS);
        assert_eq!(before.change(&before), None);
        for (change, names) in [
            (("run_id:a", "run_id:b"), "its run_id was a and is now b"),
            (("role:master", "role:slave"), "its role was master and is now slave"),
            (("noeviction", "volatile-ttl"), "its maxmemory-policy was noeviction and is now volatile-ttl"),
            (("maxmemory_policy", "other"), "its maxmemory-policy was noeviction and is now not reported"),
            (("aof_enabled:1", "aof_enabled:0"), "its appendonly is no"),
            (("d\r\nmaster_replid2:000", "e\r\nmaster_replid2:d"), "the data of another server (REPLICAOF)"),
        ] {
            let why = before.change(&facts(change, &ALWAYS)).unwrap();
            assert!(why.contains(names), "{names}: {why}");
        }
        let lazy = facts(("", ""), &[("appendfsync", "everysec"), ALWAYS[1]]);
        assert!(before.change(&lazy).is_some_and(|why| why.contains("appendfsync is everysec")));
        // The durability may be unknown for a time, and a server may become durable.
        let rewrites = facts(("rewrite_in_progress:0", "rewrite_in_progress:1"), &ALWAYS);
        assert_eq!(before.change(&rewrites), None);
        assert_eq!(before.change(&facts(("", ""), &[])), None, "CONFIG GET was refused");
        assert_eq!(lazy.change(&before), None);
        let has_a_replica = facts(("master_replid:d", "master_replid:e"), &ALWAYS);
        assert_eq!(before.change(&has_a_replica), None, "a first replica changes nothing in the data");
    }

    #[test]
    fn a_changed_fact_of_a_hostile_server_controls_no_terminal() {
        let why = facts(("", ""), &ALWAYS).change(&facts(("noeviction", "\u{1b}[2J"), &ALWAYS)).unwrap();
        assert!(!why.contains('\u{1b}'), "{why:?}");
    }
}
