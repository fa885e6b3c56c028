//! Sends the acks of a stream's entries in batches. The task that holds the connection sends its own ack
//! together with the acks of all other waiting tasks.

use super::{StreamError, StreamSource, broker::BrokerConnection};
use crate::node::Cause;
use crate::redis::{command::cmd, reply, resp::Value};
use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};
use tokio::sync::oneshot;

/// The maximum number of acks in one command.
const BATCH_MAX: usize = 1000;
/// The number of tries of an ack, and the pause before the second try. The pause doubles before each further
/// try.
const TRIES: u32 = 5;
const RETRY_AFTER: Duration = Duration::from_millis(50);

/// Acknowledges the entries of one consumer group, over a connection of its own.
pub(super) struct Acks {
    source: StreamSource,
    pending: Mutex<Vec<PendingAck>>,
    connection: tokio::sync::Mutex<Option<BrokerConnection>>,
}

struct PendingAck {
    id: String,
    result: oneshot::Sender<Result<(), Cause>>,
}

impl Acks {
    pub(super) fn new(source: StreamSource) -> Self {
        Self { source, pending: Mutex::default(), connection: tokio::sync::Mutex::default() }
    }

    /// Acknowledges the entry. If the future is dropped, the entry may or may not be acknowledged.
    pub(super) async fn ack(&self, id: &str) -> Result<(), StreamError> {
        let mut tries = 0;
        loop {
            let failed = match self.send_one(id).await {
                Ok(()) => return Ok(()),
                Err(cause) => cause,
            };
            tries += 1;
            if tries == TRIES || matches!(failed, Cause::Denied(_)) {
                return Err(self.source.failed(failed));
            }
            self.source.env().sleep(RETRY_AFTER * (1 << (tries - 1))).await;
        }
    }

    async fn send_one(&self, id: &str) -> Result<(), Cause> {
        let (result_tx, mut result) = oneshot::channel();
        self.pending().push(PendingAck { id: id.to_owned(), result: result_tx });
        let mut connection = self.connection.lock().await;
        loop {
            // While this task waited for the connection, another task may already have sent this ack.
            match result.try_recv() {
                Ok(result) => return result,
                // The task that sent this ack was dropped before the reply. So it is not known whether the ack
                // was accepted.
                Err(oneshot::error::TryRecvError::Closed) => return Err(Cause::Closed),
                Err(oneshot::error::TryRecvError::Empty) => self.flush(&mut connection).await,
            }
        }
    }

    /// Sends the acks that wait, and reports the result to the caller of each.
    async fn flush(&self, connection: &mut Option<BrokerConnection>) {
        let batch: Vec<PendingAck> = {
            let mut pending = self.pending();
            let most = pending.len().min(BATCH_MAX);
            pending.drain(..most).collect()
        };
        // The connection is put back only after the reply. If this future is dropped before, the connection is
        // not used again, because a reply may still be on its way.
        let taken = connection.take();
        let sent = self.send(taken, &batch).await;
        let result = sent.map(|used| *connection = Some(used));
        for ack in batch {
            // The send fails if the caller has stopped waiting. The entry has been acknowledged nevertheless.
            let _ = ack.result.send(result.clone());
        }
    }

    async fn send(
        &self,
        connection: Option<BrokerConnection>,
        batch: &[PendingAck],
    ) -> Result<BrokerConnection, Cause> {
        let mut connection = match connection {
            Some(connection) => connection,
            None => BrokerConnection::open(&self.source).await?,
        };
        let mut xack = cmd("XACK");
        xack.arg(&*self.source.stream).arg(&*self.source.group).args(batch.iter().map(|ack| &ack.id));
        match connection.ask(&mut xack, Duration::ZERO).await? {
            // The server returns the number of entries that this command has acknowledged. Entries that were
            // acknowledged before are not counted, so the number does not matter.
            Value::Int(_) => {}
            other => return Err(reply::mismatch(&other, "XACK")),
        }
        Ok(connection)
    }

    fn pending(&self) -> std::sync::MutexGuard<'_, Vec<PendingAck>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
