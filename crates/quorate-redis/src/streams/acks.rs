//! Acks travel together: whoever has the connection takes along what has gathered meanwhile.

use super::{
    StreamError, StreamSource,
    link::{Link, unexpected},
};
use quorate::node::Cause;
use redis::Value;
use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};
use tokio::sync::oneshot;

/// Acks in one command, at most.
const BATCH_MAX: usize = 1000;
/// How often an ack is tried, and the pause before the second time; then longer each time.
const TRIES: u32 = 5;
const RETRY_AFTER: Duration = Duration::from_millis(50);

/// Acks of one group, over a connection of their own.
pub(super) struct Acks {
    source: StreamSource,
    waiting: Mutex<Vec<Waiting>>,
    link: tokio::sync::Mutex<Option<Link>>,
}

struct Waiting {
    id: String,
    answer: oneshot::Sender<Result<(), Cause>>,
}

impl Acks {
    pub(super) fn new(source: StreamSource) -> Self {
        Self { source, waiting: Mutex::default(), link: tokio::sync::Mutex::default() }
    }

    /// Tells the server that the entry is done. Dropping it may leave it acked or not.
    pub(super) async fn ack(&self, id: &str) -> Result<(), StreamError> {
        let mut tries = 0;
        loop {
            let failed = match self.once(id).await {
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

    async fn once(&self, id: &str) -> Result<(), Cause> {
        let (tell, mut answer) = oneshot::channel();
        self.waiting().push(Waiting { id: id.to_owned(), answer: tell });
        let mut link = self.link.lock().await;
        loop {
            // Another may have taken ours along while we waited for the connection.
            match answer.try_recv() {
                Ok(answer) => return answer,
                // Whoever took it along was dropped on the way.
                Err(oneshot::error::TryRecvError::Closed) => return Err(Cause::Closed),
                Err(oneshot::error::TryRecvError::Empty) => self.flush(&mut link).await,
            }
        }
    }

    /// Sends what waits, and tells each what came of it.
    async fn flush(&self, link: &mut Option<Link>) {
        let batch: Vec<Waiting> = {
            let mut waiting = self.waiting();
            let most = waiting.len().min(BATCH_MAX);
            waiting.drain(..most).collect()
        };
        // Not put back before it has answered: a connection that is given up halfway is not used again.
        let taken = link.take();
        let sent = self.send(taken, &batch).await;
        let answer = sent.map(|used| *link = Some(used));
        for one in batch {
            // Where nobody waits any more, it is acked all the same.
            let _ = one.answer.send(answer.clone());
        }
    }

    async fn send(&self, link: Option<Link>, batch: &[Waiting]) -> Result<Link, Cause> {
        let mut link = match link {
            Some(link) => link,
            None => Link::open(&self.source).await?,
        };
        let mut xack = redis::cmd("XACK");
        xack.arg(&*self.source.stream).arg(&*self.source.group);
        for one in batch {
            xack.arg(&one.id);
        }
        match link.ask(&xack).await? {
            // Those that had been acked before do not count.
            Value::Int(_) => Ok(link),
            other => Err(unexpected("XACK", &other)),
        }
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, Vec<Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
