use crate::{claim::Fingerprint, plain::plain};
use std::{convert::Infallible, fmt::Display, future, sync::Arc};

/// How much of what is wrong with an id is repeated, in bytes.
const SHOWN: usize = 120;

/// A message of some source: an id, and a way to tell the source that it need not come again.
///
/// Pairs `(id, payload)` are messages of a source that wants no ack; triples `(id, payload, ack)` are acked by
/// calling `ack`.
pub trait Message: Send + Sync + 'static {
    /// Why the source did not take an ack.
    type Error: Display + Send;

    /// What it is claimed by: the same for every copy of the message, and for no other.
    ///
    /// # Errors
    /// [`BadId`] where it has none that can be read: such a message goes to the dead-letter hook.
    fn id(&self) -> Result<&str, BadId>;

    /// What tells its payload from others, where the same id with another payload is to be found out: such a message
    /// goes to the dead-letter hook. It costs a round trip more a claim. Default none.
    fn fingerprint(&self) -> Option<Fingerprint> {
        None
    }

    /// Whether nothing is left of it to handle (the source has deleted it, say): it is acked at once, and not claimed.
    /// Default no.
    fn is_gone(&self) -> bool {
        false
    }

    /// Tells the source that the message is done. Called once it is, and possibly for several copies.
    ///
    /// # Cancel safety
    /// It is dropped where the consumer is: what was not acked comes again, and is known to be done then.
    fn ack(&self) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Tells the source that the message will not be acked here, for sources that bring it again sooner then. The
    /// default is to say nothing.
    ///
    /// # Cancel safety
    /// It is dropped where the consumer is: the source finds out by itself.
    fn leave(&self) -> impl Future<Output = ()> + Send {
        future::ready(())
    }
}

/// What a stream may consist of: messages, or results of a source that can fail and go on.
pub trait Incoming {
    /// The messages.
    type Message: Message;

    /// The message, or what went wrong with the source.
    ///
    /// # Errors
    /// Words for people.
    fn message(self) -> Result<Self::Message, Arc<str>>;
}

/// An id that no claim can have, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct BadId {
    why: Arc<str>,
}

impl BadId {
    /// Because of `why`, of which control characters are taken out, and what is too long.
    pub fn new(why: &str) -> Self {
        Self { why: plain(why, SHOWN * 2).into() }
    }

    /// Because these bytes are no UTF-8.
    pub fn not_utf8(bytes: &[u8]) -> Self {
        Self::new(&format!("the message id {:?} is not UTF-8", plain(&String::from_utf8_lossy(bytes), SHOWN)))
    }

    /// Why.
    pub fn why(&self) -> &Arc<str> {
        &self.why
    }
}

impl<M: Message> Incoming for M {
    type Message = M;

    fn message(self) -> Result<M, Arc<str>> {
        Ok(self)
    }
}

impl<M: Message, E: Display> Incoming for Result<M, E> {
    type Message = M;

    fn message(self) -> Result<M, Arc<str>> {
        self.map_err(|error| error.to_string().into())
    }
}

impl<I, P> Message for (I, P)
where
    I: AsRef<str> + Send + Sync + 'static,
    P: Send + Sync + 'static,
{
    type Error = Infallible;

    fn id(&self) -> Result<&str, BadId> {
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

    fn id(&self) -> Result<&str, BadId> {
        Ok(self.0.as_ref())
    }

    fn ack(&self) -> impl Future<Output = Result<(), E>> + Send {
        (self.2)()
    }
}
