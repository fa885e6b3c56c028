use super::{Consumed, DeadMessage, Delivery, Ended, Incoming, Message, one::Dead, run};
use crate::claim::{ClaimError, ClaimResult, Claims};
use futures_util::Stream;
use std::{
    fmt::{self, Display},
    sync::Arc,
    time::Duration,
};

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
    pub(super) grace: Duration,
    pub(super) patience: Duration,
    pub(super) on_end: Option<Arc<OnEnd<M>>>,
    pub(super) on_source_error: Option<Arc<OnSourceError>>,
    pub(super) on_dead: Option<Arc<Dead<M>>>,
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
    /// How many messages are claimed and handled at once, at least one; as many more at most wait for other workers.
    /// No message is pulled from the source without room for it. Default 16.
    pub fn concurrency(mut self, most: usize) -> Self {
        self.options.concurrency = most.max(1);
        self
    }

    /// How long handlers may go on after the shut-down. Default 10 s.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.options.grace = grace;
        self
    }

    /// How long a message that another worker handles is looked at again, until it is done or free, before it is
    /// left to the source to bring it again. Default 30 s; zero for not at all.
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

    /// Runs until the source ends and all its messages have, or until `shutdown`: then nothing more is pulled,
    /// handlers may go on for the grace, and what is left is abandoned. The end of the quorum is a shut-down.
    ///
    /// # Errors
    /// [`ClaimError`] for timings of the claims that cannot work; nothing has been pulled then.
    ///
    /// # Cancel safety
    /// Dropping it drops every handler at its next await point and abandons their messages; nothing is acked. What
    /// was pulled and not acked is the source's to bring again.
    pub async fn until<F, T, E>(self, shutdown: impl Future<Output = ()>) -> Result<Consumed, ClaimError>
    where
        S: Stream,
        S::Item: Incoming<Message = M>,
        H: Fn(Delivery<M>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<T, E>> + Send + 'static,
        T: ClaimResult + Send + 'static,
        E: Display + Send + 'static,
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
            .field("patience", &self.options.patience)
            .finish_non_exhaustive()
    }
}
