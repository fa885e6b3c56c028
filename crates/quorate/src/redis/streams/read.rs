//! Reads the entries of a stream over one connection, with one command at a time. Reads only when a message is
//! requested.

use super::{
    Begin, StreamError, StreamMessage, StreamSource,
    broker::BrokerConnection,
    entry::{self, Entry},
    message::Shared,
    plan::{Plan, Step},
    source::BLOCK_MAX,
};
use crate::node::Cause;
use crate::redis::command::{Command, cmd};
use std::{collections::VecDeque, sync::Arc, time::Duration};

/// The state of a running consumer.
pub(super) struct StreamReader {
    source: StreamSource,
    shared: Arc<Shared>,
    plan: Plan,
    connection: Option<BrokerConnection>,
    /// Entries that were read and have not been requested yet.
    ready: VecDeque<Entry>,
    /// True once the group exists. If the group is lost after that, a new one is created that begins at the
    /// stream's first entry, since the lost group may not have delivered all entries.
    group_exists: bool,
}

impl StreamReader {
    pub(super) fn new(source: StreamSource, shared: Arc<Shared>) -> Self {
        let plan = Plan::new(source.min_idle, source.env().now());
        Self { source, shared, plan, connection: None, ready: VecDeque::new(), group_exists: false }
    }

    /// Returns the next entry, or an error. After an error, the caller may call this function again.
    pub(super) async fn next(&mut self) -> Result<StreamMessage, StreamError> {
        loop {
            while let Some(entry) = self.ready.pop_front() {
                if let Some(message) = self.shared.deliver(entry) {
                    return Ok(message);
                }
            }
            if let Err(cause) = self.fill().await {
                self.connection = None;
                self.plan.on_failure();
                return Err(self.source.failed(cause));
            }
        }
    }

    async fn fill(&mut self) -> Result<(), Cause> {
        // The connection is put back only after the reply. If this future is dropped before, the connection is
        // not used again, because a reply may still be on its way.
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        let env = self.source.env();
        match self.plan.next(BLOCK_MAX, env.now()) {
            Step::Own(after) => {
                let mut read_own = self.read_group(&after, None);
                let read = entry::of_read(&connection.ask(&mut read_own, Duration::ZERO).await?)?;
                self.plan.on_own(read.last().map(|last| last.id.clone()));
                self.ready.extend(read);
            }
            Step::Takeover(from) => {
                let mut claim = self.autoclaim(&from);
                let taken = entry::of_autoclaim(&connection.ask(&mut claim, Duration::ZERO).await?)?;
                if !taken.deleted.is_empty() {
                    let (stream, deleted) = (&*self.source.stream, taken.deleted.len());
                    tracing::warn!(stream, deleted, "entries were deleted while they were pending");
                }
                self.plan.on_takeover(taken.next, self.source.env().now());
                if taken.moved_deleted {
                    self.plan.read_own_again();
                }
                self.ready.extend(taken.entries);
            }
            Step::New(block) => {
                let mut read_new = self.read_group(">", Some(block));
                self.ready.extend(entry::of_read(&connection.ask(&mut read_new, block).await?)?);
                self.plan.on_new();
            }
        }
        self.connection = Some(connection);
        Ok(())
    }

    async fn connect(&mut self) -> Result<BrokerConnection, Cause> {
        let env = self.source.env();
        let pause = self.plan.pause();
        // Many workers may lose the server at the same time. The random part makes them reconnect at different
        // times.
        env.sleep(pause - env.random_below(pause / 2)).await;
        let mut connection = BrokerConnection::open(&self.source).await?;
        let from = if self.source.begin == Begin::New && !self.group_exists { "$" } else { "0" };
        let mut create = cmd("XGROUP");
        create.args(["CREATE", &self.source.stream, &self.source.group, from, "MKSTREAM"]);
        match connection.ask(&mut create, Duration::ZERO).await {
            Ok(_) => {}
            Err(Cause::Denied(why)) if why.starts_with("BUSYGROUP") => {}
            Err(cause) => return Err(cause),
        }
        self.group_exists = true;
        Ok(connection)
    }

    fn read_group(&self, after: &str, block: Option<Duration>) -> Command {
        let StreamSource { stream, group, consumer, batch, .. } = &self.source;
        let mut read = cmd("XREADGROUP");
        read.args(["GROUP", group, consumer, "COUNT"]).number(*batch as u64);
        if let Some(block) = block {
            read.arg("BLOCK").number(millis(block));
        }
        read.args(["STREAMS", stream, after]);
        read
    }

    fn autoclaim(&self, from: &str) -> Command {
        let StreamSource { stream, group, consumer, batch, min_idle, .. } = &self.source;
        let mut claim = cmd("XAUTOCLAIM");
        claim.args([&**stream, group, consumer]).number(millis(*min_idle));
        claim.args([from, "COUNT"]).number(*batch as u64);
        claim
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
