use super::{Consumed, DeadMessage, Delivery, Ended, Incoming, Message, one::Dead, run};
use crate::claim::{ClaimError, ClaimResult, Claims};
use futures_util::Stream;
use std::{
    fmt::{self, Display},
    sync::Arc,
    time::Duration,
};

/// How many messages may wait for other workers, for each place of the concurrency.
const WAITING_PER_PLACE: usize = 4;

/// A consumer, before it runs: made by [`Claims::consume`].
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
    pub(super) patience: Duration,
    pub(super) on_end: Option<Arc<OnEnd<M>>>,
    pub(super) on_source_error: Option<Arc<OnSourceError>>,
    pub(super) on_dead: Option<Arc<Dead<M>>>,
}

impl<M> Options<M> {
    pub(super) fn most_waiting(&self) -> usize {
        self.max_waiting.unwrap_or_else(|| self.concurrency.saturating_mul(WAITING_PER_PLACE))
    }
}

type OnEnd<M> = dyn Fn(&Ended<M>) + Send + Sync;
type OnSourceError = dyn Fn(&str) + Send + Sync;

impl Claims {
    /// Handles the messages of `source`: each is claimed, handled by `handler`, recorded as done, and acked. See
    /// [the module](crate::claim::stream) for what becomes of those for which that does not work out.
    ///
    /// `source` is a stream of [`Message`]s, or of `Result`s of them: after an error it is asked again, after 50 ms and
    /// then later each time, every 5 s at least.
    pub fn consume<S, H, F, T, E>(
        &self,
        source: S,
        handler: H,
    ) -> Consume<S, <S::Item as Incoming>::Message, H>
    where
        S: Stream,
        S::Item: Incoming,
        H: Fn(Delivery<<S::Item as Incoming>::Message>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<T, E>> + Send + 'static,
        T: ClaimResult + Send + 'static,
        E: Display + Send + 'static,
    {
        let options = Options {
            concurrency: 16,
            max_waiting: None,
            grace: Duration::from_secs(10),
            patience: Duration::from_secs(30),
            on_end: None,
            on_source_error: None,
            on_dead: None,
        };
        Consume { claims: self.clone(), source, handler, options }
    }
}

impl<S, M: Message, H> Consume<S, M, H> {
    /// Sets how many messages are claimed and handled at once, at least one. No message is pulled from the source while
    /// none of these places is free. Default 16.
    pub fn concurrency(mut self, most: usize) -> Self {
        self.options.concurrency = most.max(1);
        self
    }

    /// Sets how many messages may wait for other workers, at least one: nothing more is pulled from the source while so
    /// many wait. Messages that were pulled before may still join them, so that at most [`Consume::concurrency`] more are
    /// held. A second copy of a message that is being handled here waits as well. Default four times the concurrency.
    ///
    /// While the source is not read, messages behind the waiting ones are not handled here, even if no other worker handles
    /// them. This lasts until one of the waiting messages is done, free, or out of [`Consume::patience`]. Where N workers
    /// are given the same messages in the same order, all of them stay busy if N - 1 times the concurrency may wait.
    pub fn max_waiting(mut self, most: usize) -> Self {
        self.options.max_waiting = Some(most.max(1));
        self
    }

    /// How long handlers may go on after the shut-down. Default 10 s.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.options.grace = grace;
        self
    }

    /// Sets how long a message waits while another worker handles it. It is looked at again until it is done or free;
    /// after this time it is logged, ends as [`Outcome::InProgress`](super::Outcome::InProgress), and is left to the source
    /// to bring it again. Default 30 s; zero for not at all.
    ///
    /// The time counts from when the other worker was first found to handle the message, and anew after an outage of the
    /// quorum. Use `Duration::MAX` for a source that brings a message only once: such a message waits until another worker
    /// has done it, or until its claim is free.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.options.patience = patience;
        self
    }

    /// Told how each message ended, in the consumer's own task: it must not block.
    pub fn on_end(mut self, hook: impl Fn(&Ended<M>) + Send + Sync + 'static) -> Self {
        self.options.on_end = Some(Arc::new(hook));
        self
    }

    /// Told of each error of the source, in the consumer's own task: it must not block.
    pub fn on_source_error(mut self, hook: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.options.on_source_error = Some(Arc::new(hook));
        self
    }

    /// Given the messages that cannot be handled: those that are [given up](Claims::max_attempts), in place of the claims'
    /// [own hook](Claims::dead_letter), and those whose id no claim can have. Once it has one, the message is acked; where it
    /// fails, or is missing, the message is left to the source. It may be given a message again: after a crash, by its
    /// redelivery.
    pub fn on_dead<D, F, E>(mut self, hook: D) -> Self
    where
        D: Fn(DeadMessage<M>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: Display,
    {
        self.options.on_dead = Some(Arc::new(move |letter| {
            let hooked = hook(letter);
            Box::pin(async move { hooked.await.map_err(|error| error.to_string().into()) })
        }));
        self
    }

    /// Runs until the source and all its messages have ended, or until `shutdown` completes, with whatever output: then nothing
    /// more is pulled, handlers may go on for the grace, and the remaining messages are abandoned. The end of the quorum is a
    /// shutdown too.
    ///
    /// # Errors
    /// [`ClaimError`] for timings of the claims that cannot work; nothing has been pulled then. And where only an operator
    /// can fix what keeps a majority of nodes from voting, and none has voted since the quorum was built: then every
    /// message that was pulled is left to the source.
    ///
    /// # Cancel safety
    /// Dropping it drops every handler at its next await point and abandons their messages; nothing is acked. What
    /// was pulled and not acked is the source's to bring again.
    pub async fn until<F, T, E>(self, shutdown: impl Future) -> Result<Consumed, ClaimError>
    where
        S: Stream,
        S::Item: Incoming<Message = M>,
        H: Fn(Delivery<M>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<T, E>> + Send + 'static,
        T: ClaimResult + Send + 'static,
        E: Display + 'static,
    {
        run::run(self, shutdown).await
    }
}

impl<S, M, H> fmt::Debug for Consume<S, M, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consume")
            .field("claims", &self.claims)
            .field("concurrency", &self.options.concurrency)
            .field("grace", &self.options.grace)
            .field("max_waiting", &self.options.most_waiting())
            .field("patience", &self.options.patience)
            .finish_non_exhaustive()
    }
}
