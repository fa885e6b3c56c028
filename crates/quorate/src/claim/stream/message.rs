use crate::claim::Fingerprint;
use std::{convert::Infallible, error::Error, fmt::Display, future};

/// A message of a source: an id, and a way to acknowledge it to the source.
///
/// A pair `(id, payload)` is a message of a source that needs no ack and delivers each message once. A triple `(id, payload, ack)` is
/// acked by calling `ack`.
pub trait Message: Send + Sync + 'static {
    /// The error of a failed ack.
    type Error: Display + Send;

    /// True if the source delivers a message again that was not acked here. If it does not, the default of
    /// [`Consume::max_wait`](super::Consume::max_wait) is without limit, because a message that is given up would be
    /// lost. True by default; false for a pair `(id, payload)`.
    const REDELIVERED: bool = true;

    /// Returns the id by which the message is claimed: the same for every copy of the message, and for no
    /// other message.
    ///
    /// # Errors
    /// The reason why the message has no readable id. The message then goes to the dead-letter hook.
    fn id(&self) -> Result<&str, Box<dyn Error + Send + Sync>>;

    /// Returns a fingerprint of the message's payload. With it, the consumer detects the same id with another
    /// payload, and hands the message to the dead-letter hook. A fingerprint costs one more round trip for
    /// each claim. Returns `None` by default.
    fn fingerprint(&self) -> Option<Fingerprint> {
        None
    }

    /// Returns whether there is nothing left to handle, for instance because the source has deleted the
    /// message. Such a message is acked at once, and not claimed. Returns `false` by default.
    fn is_gone(&self) -> bool {
        false
    }

    /// Acknowledges the message to the source (*acks* it), which then does not deliver it again. The consumer
    /// acks each copy of a message that is done, is gone, or was handled by the dead-letter hook.
    ///
    /// # Cancel safety
    /// The future is dropped if the consumer is dropped. A message that was not acked is delivered again, and
    /// a claim on it then finds it done.
    fn ack(&self) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Notifies the source that the message will not be acked here, so that the source may redeliver the message
    /// sooner. Does nothing by default.
    ///
    /// # Cancel safety
    /// The future is dropped if the consumer is dropped. The source must then notice by itself that the ack
    /// is missing.
    fn leave(&self) -> impl Future<Output = ()> + Send {
        future::ready(())
    }
}

impl<I, P> Message for (I, P)
where
    I: AsRef<str> + Send + Sync + 'static,
    P: Send + Sync + 'static,
{
    type Error = Infallible;

    const REDELIVERED: bool = false;

    fn id(&self) -> Result<&str, Box<dyn Error + Send + Sync>> {
        Ok(self.0.as_ref())
    }

    async fn ack(&self) -> Result<(), Infallible> {
        Ok(())
    }
}

impl<I, P, A, F, E> Message for (I, P, A)
where
    I: AsRef<str> + Send + Sync + 'static,
    P: Send + Sync + 'static,
    A: Fn() -> F + Send + Sync + 'static,
    F: Future<Output = Result<(), E>> + Send + 'static,
    E: Display + Send + 'static,
{
    type Error = E;

    fn id(&self) -> Result<&str, Box<dyn Error + Send + Sync>> {
        Ok(self.0.as_ref())
    }

    fn ack(&self) -> impl Future<Output = Result<(), E>> + Send {
        (self.2)()
    }
}
