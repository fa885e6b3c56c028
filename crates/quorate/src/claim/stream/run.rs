//! The task that runs a consumer: it pulls messages, claims them, starts their handlers, and ends them.

use super::{
    Consume, Consumed, Ended, Message, Outcome, Received,
    consume::Options,
    in_flight::{InFlightWindow, Number},
    one,
};
use crate::{
    claim::{ClaimError, ClaimOutcome, ClaimResult, Claims, MessageId, claims::CHUNK},
    env::{BootTime, Env, ScopedTask},
    node::Resource,
    plain::plain,
};
use futures_util::{FutureExt, Stream, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use std::{
    any::Any,
    fmt::Display,
    future,
    panic::AssertUnwindSafe,
    pin::{Pin, pin},
    sync::Arc,
    time::Duration,
};
use tokio_util::sync::CancellationToken;

/// The number of claim rounds that may be in flight at the same time. When this number is reached, further
/// messages are gathered for the next round.
const BATCHES: usize = 2;
/// The first pause after an error of the source, before the source is polled again.
const ASK_AGAIN: Duration = Duration::from_millis(50);
/// The longest pause after an error of the source. Pauses grow because the error may be permanent.
const ASK_AT_LEAST_EVERY: Duration = Duration::from_secs(5);
/// The time within which handlers that are dropped after the grace period must end. A handler ends within this
/// time if it reaches an await point.
const TO_END: Duration = Duration::from_secs(1);

/// The time between two log lines about messages that wait for a quorum.
const LOG_EVERY: Duration = Duration::from_secs(1);
/// The maximum length of an id in a log line, in bytes.
const ID_MAX: usize = 120;
/// The maximum length of the reason for an invalid id, in bytes, in the outcome and for the dead-letter hook.
const BAD_ID_MAX: usize = 240;
/// The maximum length of an outcome in a log line, in bytes.
const OUTCOME_MAX: usize = 500;

type Verdicts = Vec<(Number, Result<ClaimOutcome, ClaimError>)>;
type FinishedHandler = (Number, Result<Option<(Outcome, one::Acked)>, Box<dyn Any + Send>>);

pub(super) async fn run<S, M, H, F, T, E>(
    consume: Consume<S, M, H>,
    shutdown: impl Future,
) -> Result<Consumed, ClaimError>
where
    S: Stream<Item = Result<M, Arc<str>>>,
    M: Message,
    H: Fn(Received<M>) -> F + Send + Sync + 'static,
    F: Future<Output = Result<T, E>> + Send + 'static,
    T: ClaimResult + Send + 'static,
    E: Display + 'static,
{
    let Consume { claims, source, handler, options } = consume;
    // Settings that cannot be used are reported before any message is pulled.
    claims.validate()?;
    let env = claims.quorum.env().clone();
    let window = InFlightWindow::new(options.concurrency, options.most_waiting(), options.patience());
    let mut consumer = Consumer {
        window,
        env: env.clone(),
        claims,
        handler: Arc::new(handler),
        options,
        stop: CancellationToken::new(),
        kill: CancellationToken::new(),
        rounds: FuturesUnordered::new(),
        running: FuturesUnordered::new(),
        rest: Rest::default(),
        no_quorum: QuorumWaits::default(),
        consumed: Consumed::default(),
        refused: None,
    };
    let (mut source, mut shutdown) = (pin!(source.fuse()), pin!(shutdown));
    let mut dry = false;
    while !(dry && consumer.window.is_empty()) {
        consumer.claim();
        let next_look = consumer.next_look();
        let look = async {
            match next_look {
                Some(at) => env.sleep_until(at).await,
                None => future::pending().await,
            }
        };
        let pulls = !dry && consumer.pulls();
        tokio::select! { biased;
            () = env.stopped().cancelled() => break,
            _ = &mut shutdown => break,
            Some(worked) = consumer.running.next() => consumer.worked(worked),
            Some(verdicts) = consumer.rounds.next() => {
                verdicts.into_iter().for_each(|(number, verdict)| consumer.decide(number, verdict));
            }
            incoming = source.next(), if pulls => match incoming {
                None => dry = true,
                Some(incoming) => consumer.pull_ready(incoming, source.as_mut()),
            },
            () = look => {}
        }
        if consumer.refused.is_some() {
            break;
        }
    }
    consumer.shut_down().await;
    match consumer.refused {
        Some(error) => Err(error),
        None => Ok(consumer.consumed),
    }
}

struct Consumer<M, H> {
    window: InFlightWindow<M>,
    env: Env,
    claims: Claims,
    handler: Arc<H>,
    options: Options<M>,
    /// Cancelled to ask the handlers to finish.
    stop: CancellationToken,
    /// Cancelled to drop the handlers that still run.
    kill: CancellationToken,
    rounds: FuturesUnordered<BoxFuture<'static, Verdicts>>,
    running: FuturesUnordered<BoxFuture<'static, FinishedHandler>>,
    rest: Rest,
    no_quorum: QuorumWaits,
    consumed: Consumed,
    /// The error that ends the consumer. It is set if no majority can vote, only an operator can fix the
    /// reason, and this worker has never had a quorum.
    refused: Option<ClaimError>,
}

/// The pause before the source is polled again after an error.
#[derive(Default)]
struct Rest {
    failures: u32,
    until: Option<BootTime>,
}

impl Rest {
    /// Begins a pause. The pause grows with each consecutive error of the source. A message resets it.
    fn failed(&mut self, now: BootTime) {
        self.until = Some(now + ASK_AGAIN.saturating_mul(1 << self.failures.min(8)).min(ASK_AT_LEAST_EVERY));
        self.failures = self.failures.saturating_add(1);
    }

    fn is_over(&self, now: BootTime) -> bool {
        self.until.is_none_or(|until| until <= now)
    }
}

/// Counts the messages that begin to wait for a quorum, so that a consumer of many messages logs one line a second.
#[derive(Default)]
struct QuorumWaits {
    unlogged: u64,
    logged: Option<BootTime>,
}

impl QuorumWaits {
    /// Counts one more message. Returns the number of messages to log now, unless a line was logged within the last
    /// second.
    fn waits(&mut self, now: BootTime) -> Option<u64> {
        self.unlogged += 1;
        if self.logged.is_some_and(|at| at.until(now) < LOG_EVERY) {
            return None;
        }
        self.logged = Some(now);
        Some(std::mem::take(&mut self.unlogged))
    }
}

impl<M, H, F, T, E> Consumer<M, H>
where
    M: Message,
    H: Fn(Received<M>) -> F + Send + Sync + 'static,
    F: Future<Output = Result<T, E>> + Send + 'static,
    T: ClaimResult + Send + 'static,
    E: Display + 'static,
{
    /// Pulls a message, and all further ones that the source has ready now. They join the same claim round.
    fn pull_ready<S>(&mut self, first: Result<M, Arc<str>>, mut source: Pin<&mut S>)
    where
        S: Stream<Item = Result<M, Arc<str>>>,
    {
        self.pull(first);
        while self.pulls()
            && let Some(Some(incoming)) = source.next().now_or_never()
        {
            self.pull(incoming);
        }
    }

    fn pull(&mut self, item: Result<M, Arc<str>>) {
        let now = self.env.now();
        let message = match item {
            Ok(message) => Arc::new(message),
            Err(error) => return self.source_failed(&error, now),
        };
        self.rest = Rest::default();
        if message.is_gone() {
            let number = self.window.pull_unusable(Arc::clone(&message), now);
            return self.start(number, async move { (Outcome::Gone, one::ack(&*message).await) });
        }
        let id = message.id().map(Arc::<str>::from).map_err(|bad| plain(&bad.to_string(), BAD_ID_MAX).into());
        let id = id.and_then(|id| match Resource::claim(&self.claims.set, &id) {
            Ok(_) => Ok(id),
            Err(bad) => Err(bad.to_string().into()),
        });
        match id {
            Ok(id) => self.window.pull(message, id, now),
            Err(why) => {
                let number = self.window.pull_unusable(Arc::clone(&message), now);
                self.start(number, one::dead_letter(message, why, self.options.on_dead.clone()));
            }
        }
    }

    /// Returns whether another message may be pulled: there is room for it, and no pause of the source is
    /// active.
    fn pulls(&self) -> bool {
        self.window.room() > 0 && self.rest.is_over(self.env.now())
    }

    fn source_failed(&mut self, error: &str, now: BootTime) {
        self.rest.failed(now);
        self.consumed.source_errors += 1;
        match &self.options.on_source_error {
            Some(hook) => hook(error),
            None => tracing::warn!(set = &*self.claims.set, "the source failed: {error}"),
        }
    }

    /// Begins claim rounds for the messages that are ready to be claimed, while fewer than `BATCHES` rounds
    /// are in flight.
    fn claim(&mut self) {
        while self.rounds.len() < BATCHES {
            let mut batch = self.window.batch(self.env.now());
            if batch.is_empty() {
                return;
            }
            while !batch.is_empty() {
                let rest = batch.split_off(batch.len().min(CHUNK));
                let asked = std::mem::replace(&mut batch, rest);
                let asked = asked.into_iter().map(|(number, id)| {
                    let payload = self.window.message(number).and_then(|message| message.fingerprint());
                    (number, payload.into_iter().fold(MessageId::new(id.to_string()), MessageId::fingerprint))
                });
                self.rounds.push(Box::pin(round(self.claims.clone(), asked.collect())));
            }
        }
    }

    fn next_look(&self) -> Option<BootTime> {
        let look = if self.rounds.len() < BATCHES { self.window.next_look() } else { None };
        let ask = self.rest.until.filter(|at| self.window.room() > 0 && *at > self.env.now());
        look.into_iter().chain(ask).min()
    }

    fn decide(&mut self, number: Number, verdict: Result<ClaimOutcome, ClaimError>) {
        let now = self.env.now();
        let Some(message) = self.window.message(number).cloned() else { return };
        match verdict {
            Ok(ClaimOutcome::Claimed(claim)) if claim.is_given_up() => {
                let (claims, dead) = (self.claims.clone(), self.options.on_dead.clone());
                self.start(number, one::give_up(claims, claim, message, dead));
            }
            Ok(ClaimOutcome::Claimed(claim)) => {
                let (handler, stop) = (Arc::clone(&self.handler), self.stop.child_token());
                self.start(number, one::handle(claim, message, handler, stop));
            }
            Ok(ClaimOutcome::Done(done)) => self.start(number, async move {
                let acked = one::ack(&*message).await;
                (Outcome::Duplicate { result: done.result }, acked)
            }),
            // The dead-letter hook has already handled the message, on this worker or another.
            Ok(ClaimOutcome::DeadLettered(dead)) => {
                let has_hook = self.options.on_dead.is_some() || self.claims.dead_letter.is_some();
                self.start(number, async move {
                    let acked = one::given_up(&*message, dead.at.is_some(), has_hook).await;
                    (Outcome::DeadLettered { attempts: dead.attempts }, acked)
                });
            }
            Ok(ClaimOutcome::InProgress { retry_after, holder }) => {
                if !self.window.elsewhere(number, retry_after, now) {
                    self.start(number, async move {
                        message.leave().await;
                        (Outcome::InProgress { holder }, Ok(false))
                    });
                }
            }
            Err(error @ ClaimError::OtherPayload { .. }) => {
                let why = error.to_string().into();
                self.start(number, one::dead_letter(message, why, self.options.on_dead.clone()));
            }
            // The error ends the consumer. Only an operator can fix the cause, such as a wrong configuration of
            // this worker. A worker that has had a quorum waits instead, because an operator may just be
            // changing a password.
            Err(error) if error.is_permanent() && !self.claims.quorum.pool().has_had_quorum() => {
                self.window.away(number, now);
                self.refused = Some(error);
            }
            Err(error) => {
                if self.window.away(number, now)
                    && let Some(messages) = self.no_quorum.waits(now)
                {
                    tracing::warn!(set = &*self.claims.set, messages, "messages wait for a quorum: {error}");
                }
            }
        }
    }

    /// Runs the work on a message as a task of its own, so that messages are handled on all threads of the
    /// runtime.
    fn start(&mut self, number: Number, work: impl Future<Output = (Outcome, one::Acked)> + Send + 'static) {
        let kill = self.kill.clone();
        let task: ScopedTask<Option<(Outcome, one::Acked)>> = self.env.spawn_scoped(async move {
            tokio::select! { biased;
                () = kill.cancelled() => None,
                ended = work => Some(ended),
            }
        });
        self.running.push(Box::pin(async move { (number, task.await) }));
    }

    fn worked(&mut self, (number, worked): FinishedHandler) {
        // A task has no result if it was dropped when the quorum closed, or at the end of the grace period.
        let (outcome, acked) = worked.ok().flatten().unwrap_or((Outcome::Stopped, Ok(false)));
        self.end(number, outcome, acked);
    }

    fn end(&mut self, number: Number, outcome: Outcome, acked: one::Acked) {
        let Some((message, since)) = self.window.end(number) else { return };
        self.consumed.count(&outcome, &acked);
        self.log(&message, &outcome, &acked);
        if let Some(hook) = &self.options.on_end {
            hook(&Ended { message, outcome, acked, took: self.env.now().since(since) });
        }
    }

    /// Logs the end of a message. The line is a warning if the message was not acked, because the message is
    /// then lost unless the source redelivers it. Messages that the shutdown stops are logged at the level
    /// *debug*. [`Consumer::shut_down`] logs one warning with their number.
    fn log(&self, message: &M, outcome: &Outcome, acked: &one::Acked) {
        let set = &*self.claims.set;
        let id = message.id().map_or_else(|bad| plain(&bad.to_string(), ID_MAX), |id| plain(id, ID_MAX));
        let outcome_text = plain(&outcome.to_string(), OUTCOME_MAX);
        let ack = match acked {
            Ok(true) => "taken".to_owned(),
            Ok(false) => "not sent".to_owned(),
            Err(error) => plain(error, OUTCOME_MAX),
        };
        match (outcome, acked) {
            // A stopped message is logged at *debug* only. The shutdown logs one warning with the number of all
            // stopped messages.
            (_, Ok(true)) | (Outcome::Stopped, _) => {
                tracing::debug!(set, id, ack, "a message ended: {outcome_text}");
            }
            (Outcome::Handled | Outcome::Duplicate { .. } | Outcome::Gone, _) => {
                tracing::warn!(
                    set,
                    id,
                    ack,
                    "a message is done, but the source did not take the ack: {outcome_text}"
                );
            }
            (_, Ok(false)) => {
                tracing::warn!(
                    set,
                    id,
                    "a message was not handled and is left to its source: {outcome_text}"
                );
            }
            (_, Err(why)) => {
                tracing::warn!(
                    set,
                    id,
                    "a message was not handled and is left to its source: {outcome_text} ({why})"
                );
            }
        }
    }

    /// Asks the handlers to finish, and drops those that still run after the grace period. Reports the outcome
    /// of each message that has not ended.
    async fn shut_down(&mut self) {
        self.stop.cancel();
        // Claims that are still being acquired are dropped, which releases them.
        self.rounds.clear();
        let deadline = self.env.now() + self.options.grace;
        let env = self.env.clone();
        let ends = async {
            while let Some(worked) = self.running.next().await {
                self.worked(worked);
            }
        };
        let in_time = tokio::select! { biased;
            () = env.stopped().cancelled() => None,
            ended = env.before(deadline, ends) => ended,
        };
        if in_time.is_none() {
            self.kill.cancel();
            let until = env.now() + TO_END;
            while let Some(Some(worked)) = env.before(until, self.running.next()).await {
                self.worked(worked);
            }
            self.running.clear();
        }
        let until = env.now() + TO_END;
        for number in self.window.rest() {
            if let Some(message) = self.window.message(number).cloned() {
                // A source that does not answer, or that panics, gets its messages back as after a crash.
                let _ = env.before(until, AssertUnwindSafe(message.leave()).catch_unwind()).await;
            }
            self.end(number, Outcome::Stopped, Ok(false));
        }
        let stopped = self.consumed.stopped;
        if stopped > 0 {
            let set = &*self.claims.set;
            tracing::warn!(
                set,
                stopped,
                "shut down with messages that were not handled; they are left to their source"
            );
        }
    }
}

async fn round(claims: Claims, batch: Vec<(Number, MessageId<'static>)>) -> Verdicts {
    let (numbers, asked): (Vec<Number>, Vec<_>) = batch.into_iter().unzip();
    match claims.claim_many_unsettled(asked).await {
        Ok(claimed) => numbers.into_iter().zip(claimed).collect(),
        Err(error) => numbers.into_iter().map(|number| (number, Err(error.clone()))).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_without_a_quorum_are_logged_together_once_a_second() {
        let mut waits = QuorumWaits::default();
        let at = |ms: u64| BootTime::from_nanos(ms * 1_000_000);
        let lines = [0, 1, 2, 999, 1_000, 1_001, 2_100].map(|ms| waits.waits(at(ms)));
        assert_eq!(lines, [Some(1), None, None, None, Some(4), None, Some(2)]);
    }

    #[test]
    fn a_source_that_only_fails_is_asked_more_and_more_seldom_and_after_a_message_at_once() {
        let (mut rest, mut now) = (Rest::default(), BootTime::from_nanos(0));
        assert!(rest.is_over(now));
        let mut pauses = Vec::new();
        for _ in 0..9 {
            rest.failed(now);
            assert!(!rest.is_over(now));
            let until = rest.until.unwrap();
            pauses.push(now.until(until).as_millis());
            now = until;
            assert!(rest.is_over(now));
        }
        assert_eq!(pauses, [50, 100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        assert!(Rest::default().is_over(now));
    }
}
