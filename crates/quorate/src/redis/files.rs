use crate::{env::Env, node::Cause};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};
use tokio::sync::oneshot;

/// The longest wait for a file.
const DEADLINE: Duration = Duration::from_secs(5);

/// Reads the files of one node, each on a thread of its own, since a file system that hangs would block the
/// runtime's tasks.
///
/// A thread that hangs cannot be stopped. While it hangs, further reads for the same node fail, so that a node
/// has at most one such thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct Files {
    busy: Arc<AtomicBool>,
}

impl Files {
    /// Runs `read` on a thread of its own, and returns its result.
    ///
    /// # Cancel safety
    /// Safe: the thread continues to its end, and its result is dropped.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        env: &Env,
        what: &str,
        read: impl FnOnce() -> Result<T, Cause> + Send + 'static,
    ) -> Result<T, Cause> {
        self.read_within(env, DEADLINE, what, read).await
    }

    async fn read_within<T: Send + 'static>(
        &self,
        env: &Env,
        deadline: Duration,
        what: &str,
        read: impl FnOnce() -> Result<T, Cause> + Send + 'static,
    ) -> Result<T, Cause> {
        let unread = |why: &str| Cause::Unreachable(format!("{what} cannot be read: {why}").into());
        if self.busy.swap(true, Ordering::AcqRel) {
            return Err(unread(
                "an earlier read has not ended; is it a pipe, or on a file system that hangs?",
            ));
        }
        let busy = Busy(Arc::clone(&self.busy));
        let (done, result) = oneshot::channel();
        let work = move || {
            let read = read();
            drop(busy);
            // The send fails if the caller has stopped waiting.
            let _ = done.send(read);
        };
        // If the thread cannot be started, `work` is dropped. That also clears the flag for a read in progress.
        if let Err(error) = thread::Builder::new().name("quorate-file".to_owned()).spawn(work) {
            return Err(unread(&error.to_string()));
        }
        match env.before(env.now() + deadline, result).await {
            Some(Ok(read)) => read,
            Some(Err(_)) => Err(unread("its reader has panicked")),
            None => Err(unread(&format!(
                "no answer within {deadline:?}; is it a pipe, or on a file system that hangs?"
            ))),
        }
    }
}

/// A mark that a read is in progress. Dropping this value clears the mark.
struct Busy(Arc<AtomicBool>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    const LONG: Duration = Duration::from_secs(20);

    #[tokio::test]
    async fn a_file_that_hangs_blocks_neither_the_runtime_nor_more_than_one_thread() {
        let (env, files) = (Env::system(), Files::default());
        let (go_on, hung) = mpsc::channel::<()>();
        let (short, hang) = (Duration::from_millis(50), move || {
            // The sender is dropped when the test ends, which ends this wait.
            let _ = hung.recv();
            Ok(1)
        });
        let error = files.read_within(&env, short, "the file a", hang).await.unwrap_err().to_string();
        assert!(error.contains("the file a cannot be read: no answer within 50ms"), "{error}");
        let error = files.read_within(&env, LONG, "the file a", || Ok(2)).await.unwrap_err().to_string();
        assert!(error.contains("an earlier read has not ended"), "{error}");
        go_on.send(()).unwrap();
        let give_up = env.now() + LONG;
        while files.read_within(&env, LONG, "the file a", || Ok(3)).await != Ok(3) {
            assert!(env.now() < give_up, "the file is readable again");
            env.sleep(Duration::from_millis(5)).await;
        }
    }
}
