use super::{Consumed, Received, Ended, Message, Outcome, one::Dead, run};
use crate::claim::{ClaimError, ClaimHandle, ClaimResult, Claims};
use futures_util::{Stream, StreamExt};
use std::{
    fmt::{self, Display},
    sync::Arc,
    time::Duration,
};

/// The default of [`Consume::max_waiting`] is this number times [`Consume::concurrency`].
const WAITING_PER_PLACE: usize = 4;
/// The default of [`Consume::patience`] for a source that redelivers.
const PATIENCE: Duration = Duration::from_secs(30);

/// A consumer that is not running yet, made by [`Claims::consume`].
#[must_use = "nothing is pulled before `until` is awaited"]
pub struct Consume<S, M, H> {
    pub(super) claims: Claims,
    pub(super) source: S,
    pub(super) handler: H,
    pub(super) options: Options<M>,
}

pub(super) struct Options<M> {
    pub(super) concurrency: usize,
    pub(super) max_waiting: Option<usize>,
    pub(super) grace: Duration,
    /// `None` for the default, which depends on the source.
    pub(super) patience: Option<Duration>,
    pub(super) on_end: Option<Arc<OnEnd<M>>>,
    pub(super) on_source_error: Option<Arc<OnSourceError>>,
    pub(super) on_dead: Option<Arc<Dead<M>>>,
}

impl<M> Options<M> {
    pub(super) fn most_waiting(&self) -> usize {
        self.max_waiting.unwrap_or_else(|| self.concurrency.saturating_mul(WAITING_PER_PLACE))
    }
}

impl<M: Message> Options<M> {
    /// Returns how long a message waits while another worker handles it.
    pub(super) fn patience(&self) -> Duration {
        self.patience.unwrap_or(if M::REDELIVERED { PATIENCE } else { Duration::MAX })
    }
}

type OnEnd<M> = dyn Fn(&Ended<M>) + Send + Sync;
type OnSourceError = dyn Fn(&str) + Send + Sync;

impl Claims {
    /// Handles the messages of `source`. Each message is claimed, handled by `handler`, recorded as done, and
    /// acknowledged to the source (*acked*). [The module](crate::claim::stream) lists every other outcome of
    /// a message.
    ///
    /// [`Claims::try_consume`] takes a source that can fail.
    pub fn consume<S, M, H, F, T, E>(
        &self,
        source: S,
        handler: H,
    ) -> Consume<impl Stream<Item = Result<M, Arc<str>>> + use<S, M, H, F, T, E>, M, H>
    where
        S: Stream<Item = M>,
        M: Message,
        H: Fn(Received<M>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<T, E>> + Send + 'static,
        T: ClaimResult + Send + 'static,
        E: Display + Send + 'static,
    {
        self.consume_results(source.map(Ok), handler)
    }

    /// Handles the messages of a source that can fail and continue, in the same way as [`Claims::consume`].
    ///
    /// After an error the source is polled again after 50 ms. The pause grows with each further error, to 5 s
    /// at most. [`Consume::on_source_error`] receives the errors.
    pub fn try_consume<S, M, R, H, F, T, E>(
        &self,
        source: S,
        handler: H,
    ) -> Consume<impl Stream<Item = Result<M, Arc<str>>> + use<S, M, R, H, F, T, E>, M, H>
    where
        S: Stream<Item = Result<M, R>>,
        M: Message,
        R: Display,
        H: Fn(Received<M>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<T, E>> + Send + 'static,
        T: ClaimResult + Send + 'static,
        E: Display + Send + 'static,
    {
        let source = source.map(|item| item.map_err(|error| error.to_string().into()));
        self.consume_results(source, handler)
    }

    fn consume_results<S, M, H>(&self, source: S, handler: H) -> Consume<S, M, H> {
        let options = Options {
            concurrency: 16,
            max_waiting: None,
            grace: Duration::from_secs(10),
            patience: None,
            on_end: None,
            on_source_error: None,
            on_dead: None,
        };
        Consume { claims: self.clone(), source, handler, options }
    }
}

impl<S, M: Message, H> Consume<S, M, H> {
    /// Sets how many messages are claimed and handled at once, at least one. While that many are being
    /// claimed or handled, no message is pulled from the source. Default 16.
    pub fn concurrency(mut self, most: usize) -> Self {
        self.options.concurrency = most.max(1);
        self
    }

    /// Sets how many messages may wait because other workers handle them, at least one. A second copy of a
    /// message that is being handled here waits as well. When this number of messages wait, no more messages
    /// are pulled from the source. Messages that were pulled before may still begin to wait, so up to
    /// [`Consume::concurrency`] more may wait. Default four times the concurrency.
    ///
    /// While no messages are pulled, the source's next messages are not handled here, even if no other worker
    /// handles them. This lasts until one of the waiting messages is done, free, or out of
    /// [`Consume::patience`].
    ///
    /// If N workers receive the same messages in the same order, the limit should be at least (N − 1) times
    /// the concurrency. All of the workers are then busy.
    pub fn max_waiting(mut self, most: usize) -> Self {
        self.options.max_waiting = Some(most.max(1));
        self
    }

    /// Sets the time for which handlers may continue after a shutdown begins. Default 10 s.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.options.grace = grace;
        self
    }

    /// Sets how long a message waits while another worker handles it. The message is claimed again, at
    /// growing intervals, until it is done or free. When its patience is over, the message is logged, ends as
    /// [`Outcome::InProgress`](super::Outcome::InProgress), and is left to the source, which may deliver it
    /// again. Zero means no waiting.
    ///
    /// The default is 30 s if the source [redelivers](Message::REDELIVERED), else `Duration::MAX`: a message that is
    /// delivered only once waits until another worker has completed it, or until the other worker's claim has ended.
    ///
    /// The patience counts from the time at which another worker was first found to handle the message. After
    /// an outage of the quorum, the patience starts again.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.options.patience = Some(patience);
        self
    }

    /// Sets a hook that is called with the outcome of each message, in the consumer's own task. The hook must
    /// not block.
    pub fn on_end(mut self, hook: impl Fn(&Ended<M>) + Send + Sync + 'static) -> Self {
        self.options.on_end = Some(Arc::new(hook));
        self
    }

    /// Sets a hook that is called with each error of the source, in the consumer's own task. The hook must
    /// not block.
    pub fn on_source_error(mut self, hook: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.options.on_source_error = Some(Arc::new(hook));
        self
    }

    /// Sets a hook for messages that cannot be handled. There are three kinds: messages that are [given
    /// up](Claims::max_attempts), messages whose id is not valid for a claim, and messages whose id was used with
    /// another payload. For messages that are given up, the hook replaces the claims' [own hook](Claims::dead_letter).
    /// Once the hook has handled a message, the message is acked. If the hook fails, or is missing, the message is
    /// left to the source. The hook may receive a message again if the source redelivers it after a crash.
    ///
    /// The hook's arguments are the message, the reason, and a view of the claim. The reason is
    /// [`Outcome::DeadLettered`] or [`Outcome::Unusable`], whose text is for people. This worker holds the
    /// claim while the hook runs, so no other worker runs the hook for this message. There is no claim on an
    /// unusable message.
    pub fn on_dead<D, F, E>(mut self, hook: D) -> Self
    where
        D: Fn(Arc<M>, Outcome, Option<ClaimHandle>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: Display,
    {
        self.options.on_dead = Some(Arc::new(move |message, reason, claim| {
            let hooked = hook(message, reason, claim);
            Box::pin(async move { hooked.await.map_err(|error| error.to_string().into()) })
        }));
        self
    }

    /// Runs until the source and all its messages have ended, or until `shutdown` completes with any output.
    /// After the shutdown no more messages are pulled, handlers may continue for the grace period, and the
    /// remaining messages are abandoned. A quorum that is closed counts as a shutdown too.
    ///
    /// # Errors
    /// [`ClaimError`] if the settings of the claims cannot be used; then no message has been pulled. The
    /// error is also returned if no majority could vote since the quorum was built, for a reason that only an
    /// operator can fix. Every message that was pulled is then left to the source.
    ///
    /// # Cancel safety
    /// Dropping the future drops every handler at its next await point and abandons the messages; nothing is
    /// acked. The source must then deliver again all messages that were pulled and not acked.
    pub async fn until<F, T, E>(self, shutdown: impl Future) -> Result<Consumed, ClaimError>
    where
        S: Stream<Item = Result<M, Arc<str>>>,
        M: Message,
        H: Fn(Received<M>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<T, E>> + Send + 'static,
        T: ClaimResult + Send + 'static,
        E: Display + 'static,
    {
        run::run(self, shutdown).await
    }
}

impl<S, M: Message, H> fmt::Debug for Consume<S, M, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consume")
            .field("claims", &self.claims)
            .field("concurrency", &self.options.concurrency)
            .field("grace", &self.options.grace)
            .field("max_waiting", &self.options.most_waiting())
            .field("patience", &self.options.patience())
            .finish_non_exhaustive()
    }
}
