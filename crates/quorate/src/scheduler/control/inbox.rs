//! The leader's end of the inbox: the shell around [`Classification`](super::classify::Classification).
//!
//! # What is not guaranteed
//!
//! That a request is heard: between its posting and its end of validity somebody must lead and reach a majority. A
//! request may be handed to several leaders in turn; that it is carried out once is for them, by its id.

use crate::scheduler::control::classify::{self, Classification, Step};
use crate::{
    election::Term,
    env::{BootTime, Env},
    ledger::{Ledger, LedgerError},
    scheduler::{JobRequest, JobResponse, control::IncomingRequest},
};
use futures_util::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// And where too few nodes answer.
const LOOK_EVERY_AWAY: Duration = Duration::from_secs(1);
/// Between two prunings.
const INBOX_PRUNE_EVERY: Duration = Duration::from_secs(60);

/// The part of a group's ledger that takes requests.
pub(in crate::scheduler) fn part(ledger: &Ledger) -> Ledger {
    ledger.part("inbox")
}

/// Hands the requests in the inbox of `ledger`'s group to the leader, and writes the answers, until the term is told to
/// stop or nobody takes requests any more.
pub(in crate::scheduler) async fn tend(ledger: Ledger, term: Term, asked: mpsc::Sender<IncomingRequest>) {
    let inbox = part(&ledger);
    let env = term.env().clone();
    let mut clerk = Clerk {
        env: &env,
        ledger: &ledger,
        inbox: &inbox,
        term: &term,
        triage: Classification::default(),
        asked,
        pending: FuturesUnordered::new(),
        prune_at: env.now() + INBOX_PRUNE_EVERY,
    };
    tokio::select! { biased;
        () = term.step_down_token().cancelled() => {}
        () = clerk.serve() => {}
    }
}

/// What came of a request that is with the leader.
type Given = (JobRequest, Option<JobResponse>);

struct Clerk<'a> {
    env: &'a Env,
    ledger: &'a Ledger,
    inbox: &'a Ledger,
    term: &'a Term,
    triage: Classification,
    asked: mpsc::Sender<IncomingRequest>,
    pending: FuturesUnordered<BoxFuture<'static, Given>>,
    prune_at: BootTime,
}

impl Clerk<'_> {
    async fn serve(&mut self) {
        let mut look_at = self.env.now();
        while !self.asked.is_closed() {
            tokio::select! { biased;
                Some((request, answer)) = self.pending.next() => {
                    self.triage.answered(request.id, answer.clone());
                    if let Some(answer) = answer {
                        self.write(&request, &answer).await;
                    }
                }
                () = self.env.sleep_until(look_at) => {
                    let pause = self.look().await;
                    look_at = self.env.now() + pause;
                }
            }
        }
    }

    /// Looks once; for how long not to look again.
    async fn look(&mut self) -> Duration {
        let answers = match self.inbox.read().await {
            Ok(answers) => answers,
            Err(error) => {
                tracing::debug!(group = &**self.term.group(), "the inbox cannot be read: {error}");
                return LOOK_EVERY_AWAY;
            }
        };
        let now = self.term.quorum().wall();
        let mut late = Vec::new();
        for step in self.triage.look(&answers, now) {
            match step {
                Step::Ask(request) => self.ask(request).await,
                Step::Answer(request, answer) => self.write(&request, &answer).await,
                Step::TooLate(request) => late.push(request),
                Step::Unreadable(key, error) => {
                    let key = crate::plain::plain(&key, 80);
                    tracing::warn!(group = &**self.term.group(), key, "left alone in the inbox: {error}");
                }
            }
        }
        if !late.is_empty() {
            self.too_late(&late).await;
        }
        if self.env.now() >= self.prune_at
            && let Some(below) = classify::prune_below(&answers, now)
        {
            self.prune_at = self.env.now() + INBOX_PRUNE_EVERY;
            if let Err(error) = self.inbox.prune(Default::default(), below).await {
                tracing::debug!(group = &**self.term.group(), "the inbox was not pruned: {error}");
            }
        }
        LOOK_EVERY
    }

    async fn ask(&mut self, request: JobRequest) {
        let by = crate::plain::plain(&request.by, 80);
        tracing::info!(group = &**self.term.group(), id = %request.id, by, "asked: {:?}", request.what);
        let (reply, answer) = oneshot::channel();
        if self.asked.send(IncomingRequest { request: request.clone(), reply }).await.is_ok() {
            self.pending.push(Box::pin(async move { (request, answer.await.ok()) }));
        }
    }

    /// An earlier leader may have taken them up in time, and died before it answered: then that is in the ledger, which is
    /// read once for all of them.
    async fn too_late(&mut self, requests: &[JobRequest]) {
        let ledger = self.ledger.read().await;
        for request in requests {
            // Where it cannot be read, it is looked at again.
            let answer = ledger.as_ref().ok().map(|ledger| classify::late(ledger, request));
            self.triage.answered(request.id, answer.clone());
            if let Some(answer) = answer {
                self.write(request, &answer).await;
            }
        }
    }

    /// Writes the answer over the request. What fails is seen to stand by the next look, and is written again.
    async fn write(&mut self, request: &JobRequest, answer: &JobResponse) {
        let (seen, record) = (classify::asking(request), classify::answering(request, answer));
        match self.inbox.write(&classify::key(request.id), Some(&seen), &record).await {
            // An earlier leader's answer stands where ours does not: it says the same, for the id is one.
            Ok(()) | Err(LedgerError::Standing(_)) => {}
            Err(error) => {
                tracing::debug!(group = &**self.term.group(), id = %request.id, "not answered yet: {error}");
            }
        }
    }
}
