use super::{Database, Reply, ScriptFault, arguments::is, lua};
use sha2::{Digest, Sha256};
use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    sync::Arc,
};

/// The facts that a server reports of itself in INFO.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The id of the server's process.
    pub run_id: Arc<str>,
    /// The time since the process started, in whole seconds.
    pub uptime_seconds: u64,
    /// True if every acknowledged write is on the server's disk.
    pub durable: bool,
}

/// The state of one client's connection.
#[derive(Debug, Default)]
pub struct Connection {
    resp3: bool,
    /// The channels to which the client is subscribed.
    pub channels: BTreeSet<Vec<u8>>,
}

impl Connection {
    /// Returns the state of a connection after HELLO 3.
    pub(super) fn after_hello() -> Self {
        Self { resp3: true, ..Self::default() }
    }

    /// Appends `reply` to `out`, in the protocol of the connection.
    pub fn write(&self, reply: &Reply, out: &mut Vec<u8>) {
        reply.write(self.resp3, out);
    }
}

/// The process of a server: what belongs to no client and is not stored with the keys.
#[derive(Clone, Debug, Default)]
pub struct ServerProcess {
    scripts: BTreeMap<Arc<str>, Arc<str>>,
    fault: Option<ScriptFault>,
}

impl ServerProcess {
    /// Returns a process that changes the scripts that are loaded into it by `fault`.
    pub fn new(fault: Option<ScriptFault>) -> Self {
        Self { fault, ..Self::default() }
    }

    /// Starts the process again. It has no scripts.
    pub fn restart(&mut self) {
        self.scripts.clear();
    }

    /// Runs a command of a client.
    pub fn run(
        &mut self,
        database: &mut Database,
        connection: &mut Connection,
        facts: &Facts,
        args: &[&[u8]],
    ) -> Reply {
        match args {
            [name, rest @ ..] if is(name, "EVALSHA") => self.evalsha(database, rest),
            [name, rest @ ..] if is(name, "EVAL") => eval(database, rest),
            [name, load, source] if is(name, "SCRIPT") && is(load, "LOAD") => self.load(source),
            [name, ..] if is(name, "INFO") => Reply::Verbatim(info(facts)),
            [name, get, setting] if is(name, "CONFIG") && is(get, "GET") => config(facts, setting),
            [name, set, _] if is(name, "CLIENT") && is(set, "SETNAME") => Reply::OK,
            [name, _] if is(name, "SELECT") => Reply::OK,
            [name] if is(name, "PING") => Reply::Status("PONG"),
            [name, version] if is(name, "HELLO") => hello(connection, version),
            [name, channel] if is(name, "SUBSCRIBE") => subscribe(connection, channel, true),
            [name, channel] if is(name, "UNSUBSCRIBE") => subscribe(connection, channel, false),
            _ => database.run(args),
        }
    }

    fn load(&mut self, source: &[u8]) -> Reply {
        let Ok(text) = std::str::from_utf8(source) else {
            return Reply::error("ERR a script that is no text");
        };
        let (name, source) = known(text, self.fault);
        if let Err(error) = lua::compile(&source) {
            return error;
        }
        self.scripts.insert(Arc::clone(&name), source);
        Reply::bulk(&*name)
    }

    fn evalsha(&mut self, database: &mut Database, args: &[&[u8]]) -> Reply {
        let Some((name, rest)) = args.split_first() else { return no_script() };
        let script = std::str::from_utf8(name).ok().and_then(|name| self.scripts.get(name));
        let Some(source) = script else { return no_script() };
        run(database, source, rest)
    }
}

fn no_script() -> Reply {
    Reply::error("NOSCRIPT No matching script. Please use EVAL.")
}

fn eval(database: &mut Database, args: &[&[u8]]) -> Reply {
    let source = args.first().and_then(|source| std::str::from_utf8(source).ok());
    let Some(source) = source else { return Reply::error("ERR a script that is no text") };
    run(database, &known(source, None).1, &args[1..])
}

fn run(database: &mut Database, source: &Arc<str>, args: &[&[u8]]) -> Reply {
    let keys = args.first().and_then(|count| std::str::from_utf8(count).ok()?.parse::<usize>().ok());
    match keys {
        Some(keys) if keys < args.len() => {
            let (keys, args) = args[1..].split_at(keys);
            lua::run(source, database, keys, args)
        }
        Some(_) => Reply::error("ERR Number of keys can't be greater than number of args"),
        None => Reply::error("ERR value is not an integer or out of range"),
    }
}

/// Returns the name of a script, and its text with the fault. Each text exists once, so that it is compiled once.
///
/// The name is the beginning of SHA-256 in place of SHA-1. No client computes names of its own.
fn known(text: &str, fault: Option<ScriptFault>) -> (Arc<str>, Arc<str>) {
    type Known = BTreeMap<Option<ScriptFault>, BTreeMap<String, (Arc<str>, Arc<str>)>>;
    thread_local! {
        static KNOWN: RefCell<Known> = const { RefCell::new(BTreeMap::new()) };
    }
    KNOWN.with_borrow_mut(|known| {
        let known = known.entry(fault).or_default();
        if let Some(found) = known.get(text) {
            return found.clone();
        }
        let mut name = String::new();
        for byte in &Sha256::digest(text)[..20] {
            // `write!` to a string never fails.
            let _ = write!(name, "{byte:02x}");
        }
        let changed = fault.map_or_else(|| text.to_owned(), |fault| fault.change(text));
        let new: (Arc<str>, Arc<str>) = (name.into(), changed.into());
        known.insert(text.to_owned(), new.clone());
        new
    })
}

fn info(facts: &Facts) -> String {
    let Facts { run_id, uptime_seconds, durable } = facts;
    format!(
        "# Server\r\nredis_version:7.0.15\r\nrun_id:{run_id}\r\nuptime_in_seconds:{uptime_seconds}\r\n\
         # Memory\r\nmaxmemory_policy:noeviction\r\n\
         # Persistence\r\naof_enabled:{}\r\naof_rewrite_in_progress:0\r\naof_rewrite_scheduled:0\r\n\
         # Replication\r\nrole:master\r\n",
        u8::from(*durable)
    )
}

fn config(facts: &Facts, setting: &[u8]) -> Reply {
    let yes = if facts.durable { "yes" } else { "no" };
    let settings =
        [("appendonly", yes), ("appendfsync", "always"), ("no-appendfsync-on-rewrite", "no"), ("save", "")];
    let found = settings.into_iter().filter(|(name, _)| is(setting, name));
    Reply::Map(found.map(|(name, value)| (Reply::bulk(name), Reply::bulk(value))).collect())
}

fn hello(connection: &mut Connection, version: &[u8]) -> Reply {
    connection.resp3 = match version {
        b"2" => false,
        b"3" => true,
        _ => return Reply::error("NOPROTO unsupported protocol version"),
    };
    let facts = [("server", "redis"), ("version", "7.0.15"), ("mode", "standalone"), ("role", "master")];
    let mut facts: Vec<_> = facts.map(|(name, value)| (Reply::bulk(name), Reply::bulk(value))).into();
    facts.push((Reply::bulk("proto"), Reply::Int(if connection.resp3 { 3 } else { 2 })));
    Reply::Map(facts)
}

fn subscribe(connection: &mut Connection, channel: &[u8], begin: bool) -> Reply {
    let kind = if begin {
        connection.channels.insert(channel.to_vec());
        "subscribe"
    } else {
        connection.channels.remove(channel);
        "unsubscribe"
    };
    Reply::Push(vec![Reply::bulk(kind), Reply::bulk(channel), Reply::count(connection.channels.len())])
}
