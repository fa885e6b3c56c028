use super::Env;
use futures_util::{
    FutureExt,
    future::{AbortHandle, Abortable},
};
use std::{
    any::Any,
    panic::AssertUnwindSafe,
    pin::Pin,
    task::{Context, Poll},
};
use tokio::sync::oneshot;

/// A task that ends with its handle. Dropping the handle aborts the task at its next await point.
///
/// Awaiting the handle returns the task's output, or its panic as an error. The task also
/// ends when its [`Env`] is asked to end.
#[derive(Debug)]
pub struct ScopedTask<T> {
    abort: AbortHandle,
    output: oneshot::Receiver<Result<T, Box<dyn Any + Send>>>,
}

impl<T: Send + 'static> ScopedTask<T> {
    pub(super) fn start(env: &Env, work: impl Future<Output = T> + Send + 'static) -> Self {
        let (abort, registration) = AbortHandle::new_pair();
        let (done, output) = oneshot::channel();
        let work = Abortable::new(AssertUnwindSafe(work).catch_unwind(), registration);
        let stopped = env.stopped().clone();
        env.spawn(async move {
            tokio::select! { biased;
                () = stopped.cancelled() => {}
                result = work => if let Ok(result) = result {
                    // The send fails if the handle was dropped. Then the output is not needed.
                    let _ = done.send(result);
                }
            }
        });
        Self { abort, output }
    }
}

impl<T> Future for ScopedTask<T> {
    type Output = Result<T, Box<dyn Any + Send>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.output.poll_unpin(cx).map(|got| got.unwrap_or_else(|_| Err(Box::new("the task was aborted"))))
    }
}

impl<T> Drop for ScopedTask<T> {
    fn drop(&mut self) {
        self.abort.abort();
    }
}
