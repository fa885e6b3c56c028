use super::{
    acks::Acks,
    message::{Shared, StreamMessage},
    read::StreamReader,
    source::{StreamError, StreamSource},
};
use futures_util::{Stream, StreamExt, stream};
use std::sync::Arc;

impl StreamSource {
    /// Returns the endless stream of messages, and of errors in between. The source reads only when a message
    /// is requested. Reading and acknowledging use a connection each. Only one such stream should run for
    /// each consumer name.
    pub fn messages(&self) -> impl Stream<Item = Result<StreamMessage, StreamError>> + Send + use<> {
        let shared = Arc::new(Shared::new(Acks::new(self.clone()), self));
        let read = StreamReader::new(self.clone(), shared);
        stream::unfold(read, |mut read| async move { Some((read.next().await, read)) }).boxed()
    }
}
