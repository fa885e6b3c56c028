//! The leader's side of the inbox: the leader reads the requests and writes the answers.
//! [`Classification`](super::classify::Classification) makes the decisions.
//!
//! # Not guaranteed
//!
//! A leader can accept a request only if it reaches a majority of the nodes while the request is valid. If the
//! leader changes, the new leader may receive a request that an earlier leader has accepted. The new leader
//! recognizes the request by its id, so that the request is carried out once.

use crate::{
    backoff::poll_pause,
    election::Term,
    env::{BootTime, Env},
    ledger::{Ledger, LedgerError},
    scheduler::{
        control::{
            audit::{AuditEntry, AuditLog},
            classify::{self, Classification, Step},
            pending::IncomingRequest,
        },
        store::{JobRequest, JobResponse},
    },
};
use futures_util::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// The shortest and the longest time between two reads of the inbox, if the bell of the term is not heard. The longest is for
/// an inbox that has been empty for long.
const READ_EVERY: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(2));
/// The time after a read that found something in which the inbox is read often: an answer may have to be written again.
const SETTLES_IN: Duration = Duration::from_secs(4);
/// The pause after a read that too few nodes answered.
const READ_AGAIN: Duration = Duration::from_secs(1);
/// The time between two prunings of the inbox.
const INBOX_PRUNE_EVERY: Duration = Duration::from_secs(60);

/// Returns the part of a group's ledger that is the inbox.
pub(in crate::scheduler) fn part(ledger: &Ledger) -> Ledger {
    ledger.part("inbox")
}

/// Serves the inbox of a group: passes the requests to the leader's event loop, and writes the answers. Returns
/// when the term steps down, or when the event loop drops the receiver of the requests.
pub(in crate::scheduler) async fn serve_inbox(
    ledger: Ledger,
    term: Term,
    leader: mpsc::Sender<IncomingRequest>,
) {
    let inbox = part(&ledger);
    let env = term.env().clone();
    let mut server = InboxServer {
        env: &env,
        inbox: &inbox,
        term: &term,
        classification: Classification::default(),
        leader,
        pending: FuturesUnordered::new(),
        prune_at: env.now() + INBOX_PRUNE_EVERY,
        asked_at: env.now(),
        audit: AuditLog::new(&ledger),
    };
    tokio::select! { biased;
        () = term.step_down_token().cancelled() => {}
        () = server.serve() => {}
    }
}

/// Waits until the bell has rung after the first `rings`, or until the next read is due.
async fn next_read(term: &Term, rings: u64, began: BootTime, (at, latest): (BootTime, BootTime)) {
    tokio::select! { biased;
        () = term.bell().rung_after(rings) => {}
        () = term.env().sleep_until_poll(began, at, latest) => {}
    }
}

/// A request that was passed to the leader, and the leader's answer.
type LeaderAnswer = (JobRequest, Option<JobResponse>);

struct InboxServer<'a> {
    env: &'a Env,
    inbox: &'a Ledger,
    term: &'a Term,
    classification: Classification,
    leader: mpsc::Sender<IncomingRequest>,
    pending: FuturesUnordered<BoxFuture<'static, LeaderAnswer>>,
    prune_at: BootTime,
    /// The time of the last read that found something to do.
    asked_at: BootTime,
    audit: AuditLog,
}

impl InboxServer<'_> {
    async fn serve(&mut self) {
        // The times at which the last read began, the next one is due, and the next one is due at the latest if it
        // is known that nothing has changed on the nodes.
        let (mut began, mut read_at, mut latest) = (self.env.now(), self.env.now(), self.env.now());
        let mut rings = self.term.bell().rings();
        while !self.leader.is_closed() {
            tokio::select! { biased;
                Some((request, answer)) = self.pending.next() => {
                    self.classification.answered(request.id, answer.clone());
                    if let Some(answer) = answer {
                        self.write(&request, &answer).await;
                    }
                }
                () = next_read(self.term, rings, began, (read_at, latest)) => {
                    (began, rings) = (self.env.now(), self.term.bell().rings());
                    let pause = self.read().await;
                    (read_at, latest) = (self.env.now() + pause, self.env.now() + INBOX_PRUNE_EVERY);
                }
            }
        }
    }

    /// Reads the inbox once, and returns the time until the next read.
    async fn read(&mut self) -> Duration {
        let answers = match self.inbox.read().await {
            Ok(answers) => answers,
            Err(error) => {
                tracing::debug!(group = &**self.term.group(), "cannot read the inbox: {error}");
                return READ_AGAIN;
            }
        };
        let now = self.term.quorum().wall();
        for step in self.classification.update(&answers, now) {
            self.asked_at = self.env.now();
            match step {
                Step::PassOn(request) => self.pass_on(request).await,
                Step::Answer(request, answer) => self.write(&request, &answer).await,
                Step::Unreadable(key, error) => {
                    let key = crate::plain::plain(&key, 80);
                    tracing::warn!(group = &**self.term.group(), key, "ignored in the inbox: {error}");
                }
            }
        }
        if self.env.now() >= self.prune_at {
            self.prune_at = self.env.now() + INBOX_PRUNE_EVERY;
            self.audit.prune().await;
            if let Some(below) = classify::prune_below(&answers, now)
                && let Err(error) = self.inbox.prune(below).await
            {
                tracing::debug!(group = &**self.term.group(), "cannot prune the inbox: {error}");
            }
        }
        let quiet = self.asked_at.until(self.env.now());
        let unheard = poll_pause(quiet, READ_EVERY.0, READ_EVERY.1);
        if quiet < SETTLES_IN { unheard } else { self.term.bell().look_every(unheard) }
    }

    async fn pass_on(&mut self, request: JobRequest) {
        let by = crate::plain::plain(&request.by, 80);
        tracing::info!(group = &**self.term.group(), id = %request.id, by, "request: {}", request.what);
        let (reply, answer) = oneshot::channel();
        if self.leader.send(IncomingRequest { request: request.clone(), reply }).await.is_ok() {
            self.pending.push(Box::pin(async move { (request, answer.await.ok()) }));
        }
    }

    /// Writes the request to the audit list, and writes the answer over the request. If the second write fails,
    /// the next read of the inbox finds the request again, and the write is repeated.
    async fn write(&mut self, request: &JobRequest, answer: &JobResponse) {
        let leader = &self.term.quorum().config().worker;
        self.audit.write(&AuditEntry::new(request, leader, answer)).await;
        let (seen, record) = (classify::request_record(request), classify::answer_record(request, answer));
        match self.inbox.write(&request.id.key(), Some(&seen), &record).await {
            // If an earlier leader has stored an answer, this answer is not written. Both leaders answered the
            // same request, so both answers have the same meaning.
            Ok(()) | Err(LedgerError::Standing(_)) => {}
            Err(error) => {
                tracing::debug!(group = &**self.term.group(), id = %request.id, "not answered yet: {error}");
            }
        }
    }
}
