use super::{
    Connection, Database, Facts, KeySpace, ScriptFault, ServerProcess, Subscribers, resp,
    rows::PREFIX,
    stream::{Hub, Stream, lock},
};
use futures_util::FutureExt;
use quorate::node::{
    Batch, BatchReply, Cause, Hello, Push, Refusal, ReleasedLease, Reply, Request, Resource,
    engine::{Clocks, LeaseRow, Store},
};
use quorate_redis::probe::{self, Calls};
use quorate_test::sim::{Listeners, ServerStore};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

/// The number of batches between two removals of the keys whose lifetime has ended.
const SWEEP_EVERY: u32 = 500;

/// The store of a simulated server that runs the shipped scripts. Requests reach it, and replies leave it, in the
/// bytes of the protocol.
#[derive(Debug)]
pub struct ScriptStore {
    server: ServerProcess,
    database: Database,
    connection: Connection,
    facts: Facts,
    /// The encoder of a session, once a client has connected.
    calls: Option<Arc<Calls>>,
    /// The resources that requests have named, by the channels of their waiters.
    channels: Arc<BTreeMap<Vec<u8>, Resource>>,
    batches: u32,
}

impl ScriptStore {
    /// Returns an empty store. Its server changes the scripts by `fault`.
    pub fn new(fault: Option<ScriptFault>) -> Self {
        Self {
            server: ServerProcess::new(fault),
            database: Database::default(),
            connection: Connection::default(),
            facts: Facts { run_id: "".into(), uptime_seconds: 0, durable: false },
            calls: None,
            channels: Arc::default(),
            batches: 0,
        }
    }

    pub(super) fn keys(&self) -> &KeySpace {
        &self.database.keys
    }

    pub(super) fn keys_mut(&mut self) -> &mut KeySpace {
        &mut self.database.keys
    }

    /// Returns a copy with the keys `keys`.
    fn with_keys(&self, keys: KeySpace) -> Self {
        Self {
            server: self.server.clone(),
            database: Database { keys, ..Database::default() },
            connection: Connection::default(),
            facts: self.facts.clone(),
            calls: self.calls.clone(),
            channels: Arc::clone(&self.channels),
            batches: 0,
        }
    }

    /// Performs the shipped handshake over a connection to this server.
    fn open(&mut self, now_micros: u64) -> Result<(Calls, Hello), Cause> {
        let server = std::mem::take(&mut self.server);
        let database = std::mem::take(&mut self.database);
        let hub = Arc::new(Mutex::new(Hub::new(server, database, self.facts.clone(), move || now_micros)));
        let opened = probe::open(Stream::open(&hub), PREFIX).now_or_never();
        let mut hub = lock(&hub);
        self.server = std::mem::take(&mut hub.server);
        self.database = std::mem::take(&mut hub.database);
        opened.unwrap_or(Err(Cause::TimedOut))
    }

    /// Runs a batch as a session does: encodes it, and parses the replies.
    fn exchange(&mut self, batch: &Batch, freed: &mut Vec<ReleasedLease>) -> Result<BatchReply, Cause> {
        let Some(calls) = self.calls.clone() else { return Err(Cause::Closed) };
        let (bytes, runs) = calls.encode(batch);
        let (mut rest, mut out) = (&*bytes, Vec::new());
        while !rest.is_empty() {
            let parsed = resp::command(rest).map_err(|why| Cause::Protocol(why.into()))?;
            let (args, length) = parsed.ok_or(Cause::Closed)?;
            let reply = self.server.run(&mut self.database, &mut self.connection, &self.facts, &args);
            self.connection.write(&reply, &mut out);
            rest = &rest[length..];
        }
        for (channel, message) in std::mem::take(&mut self.database.published) {
            let resource = self.channels.get(&channel);
            let push = resource.and_then(|resource| calls.push(resource, message));
            match push {
                Some(Push::Released { lease, .. }) => freed.push(lease),
                _ => return Err(Cause::Protocol("a published message that is no release".into())),
            }
        }
        let (values, complete) = probe::values(&out, usize::MAX);
        if !complete {
            return Err(Cause::Protocol("bytes that are no reply".into()));
        }
        probe::replies(values, &runs)
    }

    /// Notes the channels of the resources that `batch` names.
    fn note_channels(&mut self, calls: &Calls, batch: &Batch) {
        for resource in batch.requests.iter().filter_map(resource_of) {
            let channel = calls.freed_channel(resource).into_bytes();
            if !self.channels.contains_key(&channel) {
                Arc::make_mut(&mut self.channels).insert(channel, resource.clone());
            }
        }
    }
}

impl ServerStore for ScriptStore {
    fn run(
        &mut self,
        batch: &Batch,
        clocks: Clocks,
        listeners: &Listeners,
        freed: &mut Vec<ReleasedLease>,
    ) -> BatchReply {
        self.database.now_micros = clocks.wall.as_micros();
        self.batches += 1;
        if self.batches.is_multiple_of(SWEEP_EVERY) {
            self.database.keys.sweep(self.database.now_ms());
        }
        if let Some(calls) = self.calls.clone() {
            self.note_channels(&calls, batch);
            let (listeners, channels) = (listeners.clone(), Arc::clone(&self.channels));
            self.database.subscribers =
                Box::new(ListeningSessions { listeners, channels, waiters: calls.waiters_channel() });
        }
        self.exchange(batch, freed).unwrap_or_else(|cause| {
            // A session would end here. Every request is refused with the cause, which the referee reports.
            let refused = Reply::Refused(Refusal::Failed(format!("the simulated Redis: {cause}").into()));
            BatchReply { node_time: clocks.wall, replies: vec![refused; batch.requests.len()] }
        })
    }

    /// Lets the client learn the facts from INFO, CONFIG GET, TIME and GET, and loads the scripts.
    fn handshake(&mut self, facts: Hello) -> Hello {
        self.facts = Facts {
            run_id: Arc::clone(&facts.run_id),
            uptime_seconds: facts.uptime.as_secs(),
            durable: facts.durable == Some(true),
        };
        self.connection = Connection::after_hello();
        match self.open(facts.node_time.as_micros()) {
            Ok((calls, hello)) => {
                self.calls = Some(Arc::new(calls));
                hello
            }
            // Without an encoder, every request is refused, which the referee reports.
            Err(_) => facts,
        }
    }

    fn snapshot(&self) -> Box<dyn ServerStore> {
        Box::new(self.with_keys(self.database.keys.clone()))
    }

    fn emptied(&self) -> Box<dyn ServerStore> {
        Box::new(self.with_keys(KeySpace::default()))
    }

    fn process_restarted(&mut self) {
        self.server.restart();
        self.calls = None;
    }

    fn live_leases(&self, clocks: Clocks) -> Vec<(Resource, LeaseRow)> {
        let row = |resource: &Resource| {
            let Ok(row) = self.lease(resource);
            Some((resource.clone(), row.filter(|row| row.until_nanos > clocks.lease_nanos)?))
        };
        self.channels.values().filter_map(row).collect()
    }
}

/// The sessions of the simulation's workers that wait for releases.
#[derive(Debug)]
struct ListeningSessions {
    listeners: Listeners,
    channels: Arc<BTreeMap<Vec<u8>, Resource>>,
    waiters: String,
}

impl Subscribers for ListeningSessions {
    fn count(&self, channel: &[u8]) -> usize {
        if channel == self.waiters.as_bytes() {
            return self.listeners.sessions();
        }
        self.channels.get(channel).map_or(0, |resource| self.listeners.of(resource))
    }
}

fn resource_of(request: &Request) -> Option<&Resource> {
    match request {
        Request::Acquire { resource, .. }
        | Request::Raise { resource, .. }
        | Request::Extend { resource, .. }
        | Request::Reserve { resource, .. }
        | Request::Release { resource, .. }
        | Request::Share { resource, .. }
        | Request::ExtendShare { resource, .. }
        | Request::ReleaseShare { resource, .. }
        | Request::Downgrade { resource, .. }
        | Request::Queue { resource, .. }
        | Request::LeaveQueue { resource, .. }
        | Request::Inspect { resource }
        | Request::Complete { resource, .. }
        | Request::Count { resource, .. }
        | Request::ResetAttempts { resource, .. } => Some(resource),
        Request::Seal { .. }
        | Request::Write { .. }
        | Request::Prune { .. }
        | Request::Keep { .. }
        | Request::Read { .. }
        | Request::Mark { .. }
        | Request::Stamp { .. } => None,
    }
}
