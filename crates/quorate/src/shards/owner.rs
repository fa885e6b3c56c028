//! The task of one shard on the worker that is to own it: acquires the lease of the shard, runs the work, and hands over.

use super::{Shard, set::Set};
use crate::{
    backoff::Failures,
    env::BootTime,
    lease::{AcquireError, Lease, Shown},
    panic,
};
use futures_util::FutureExt;
use std::{collections::BTreeSet, fmt::Display, panic::AssertUnwindSafe, sync::Arc, time::Duration};
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

/// The pause after an error of the nodes, before the lease is tried again.
const AFTER_ERROR: Duration = Duration::from_secs(1);

/// The plan, as far as it concerns this worker.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    /// The number of the read, by [`Set::begin_read`].
    pub(super) read: u64,
    pub(super) count: usize,
    /// The shards of this worker.
    pub(super) mine: BTreeSet<usize>,
}

/// A report of the task of a shard to the worker.
#[derive(Debug)]
pub(super) enum Report {
    /// The worker owns the shard.
    Begun,
    /// The task has ended. The error is one that ends the whole run.
    Ended(usize, Result<(), AcquireError>),
}

/// The task of one shard.
pub(super) struct Owner<W> {
    pub(super) set: Arc<Set>,
    pub(super) number: usize,
    pub(super) work: Arc<W>,
    /// Cancelled when the shard is to be handed over.
    pub(super) revoked: CancellationToken,
    /// The plan as this worker knows it, and the signal that asks for a new look at it.
    pub(super) known: Arc<Shown<Known>>,
    pub(super) look: Arc<Notify>,
    pub(super) reports: mpsc::UnboundedSender<Report>,
}

/// The reason why this worker ends its ownership of a shard.
enum Loss {
    /// It is to be handed over.
    Revoked,
    /// Its lease has ended, or ends soon.
    Lease,
}

/// Ends the ownership when the task ends, also if the work keeps clones of the shard.
struct Owned<'a>(&'a Set, Shard);

impl Drop for Owned<'_> {
    fn drop(&mut self) {
        self.1.end();
        self.0.disown(&self.1);
    }
}

impl<W, F, E> Owner<W>
where
    W: Fn(Shard) -> F + Send + Sync + 'static,
    F: Future<Output = Result<(), E>> + Send + 'static,
    E: Display + Send + 'static,
{
    /// Owns the shard whenever it can, until it is revoked. Returns an error that no later attempt can avoid.
    pub(super) async fn own(self) {
        let ended = self.run().await;
        let _ = self.reports.send(Report::Ended(self.number, ended));
    }

    async fn run(&self) -> Result<(), AcquireError> {
        let lock = self.set.lock_of(self.number);
        let mut failures = Failures::default();
        loop {
            let acquired = tokio::select! { biased;
                () = self.revoked.cancelled() => return Ok(()),
                acquired = lock.acquire() => acquired,
            };
            match acquired {
                Ok(lease) => {
                    let Some(count) = self.confirmed().await else { return Ok(()) };
                    if let Loss::Revoked = self.hold(lease, count, &mut failures).await {
                        return Ok(());
                    }
                }
                Err(error @ (AcquireError::Setting(_) | AcquireError::Closed)) => return Err(error),
                Err(error) => {
                    tracing::debug!(set = &*self.set.name, shard = self.number, "not acquired yet: {error}");
                    tokio::select! { biased;
                        () = self.revoked.cancelled() => return Ok(()),
                        () = self.set.env().sleep(AFTER_ERROR) => {}
                    }
                }
            }
        }
    }

    /// Looks at the plan once more, now that this worker has the lease. Returns the number of shards, or `None` if the shard is
    /// not for this worker any more. Before the leader changes the number of shards, it holds the leases of all of them at one
    /// moment. So a worker that acquires a lease later finds the new number here.
    async fn confirmed(&self) -> Option<usize> {
        let begun = self.set.reads_begun();
        self.look.notify_one();
        tokio::select! { biased;
            () = self.revoked.cancelled() => None,
            seen = self.known.until(|known| known.read > begun) => {
                seen.mine.contains(&self.number).then_some(seen.count)
            }
        }
    }

    /// Runs the work while this worker holds `lease`. The work ends before the lease does.
    async fn hold(&self, lease: Lease, count: usize, failures: &mut Failures) -> Loss {
        let shard = Shard::new(&self.set.name, self.number, count, lease);
        self.set.own(&shard);
        let owned = Owned(&self.set, shard.clone());
        let _ = self.reports.send(Report::Begun);
        tracing::debug!(
            set = &*self.set.name,
            shard = self.number,
            token = shard.unchecked_token().get(),
            "owned"
        );
        let loss = self.work(&shard, failures).await;
        // An error means that the lease ends with its TTL on the nodes that did not confirm.
        if !shard.lease().keeps_keys() {
            let _ = shard.lease().end().await;
        }
        drop(owned);
        loss
    }

    async fn work(&self, shard: &Shard, failures: &mut Failures) -> Loss {
        let env = self.set.env();
        let mut revoked = false;
        let mut stop_at = BootTime::from_nanos(u64::MAX);
        loop {
            if !shard.is_valid() {
                return self.lost(shard);
            }
            let began = env.now();
            let mut work = AssertUnwindSafe((self.work)(shard.clone())).catch_unwind().boxed();
            let result = loop {
                tokio::select! { biased;
                    () = shard.lost_token().cancelled() => return self.lost(shard),
                    () = self.revoked.cancelled(), if !revoked => {
                        revoked = true;
                        stop_at = env.now() + self.set.grace;
                        shard.stop(stop_at);
                    }
                    result = &mut work => break result,
                    () = env.sleep_until(stop_at) => return Loss::Revoked,
                }
            };
            drop(work);
            if revoked {
                return Loss::Revoked;
            }
            if shard.step_down_token().is_cancelled() {
                return self.lost(shard);
            }
            let pause = self.pause(failures, result, began.until(env.now()));
            tokio::select! { biased;
                () = self.revoked.cancelled() => return Loss::Revoked,
                () = shard.step_down_token().cancelled() => return self.lost(shard),
                () = env.sleep(pause) => {}
            }
        }
    }

    /// Returns the pause before the work, which ended by itself, begins again.
    fn pause(
        &self,
        failures: &mut Failures,
        result: Result<Result<(), E>, Box<dyn std::any::Any + Send>>,
        ran: Duration,
    ) -> Duration {
        let (set, shard) = (&*self.set.name, self.number);
        let why = match result {
            Ok(Ok(())) => {
                failures.ended(self.set.backoff, ran);
                return self.set.backoff.pause(1, self.set.env().random());
            }
            Ok(Err(error)) => format!("{error:#}"),
            Err(panic) => format!("panic: {}", panic::message(&*panic)),
        };
        let pause = failures.failed(self.set.backoff, ran, self.set.env().random());
        let in_a_row = failures.in_a_row();
        self.set.measures.failed();
        tracing::warn!(set, shard, in_a_row, "the work failed, and begins again in {pause:.1?}: {why}");
        pause
    }

    fn lost(&self, shard: &Shard) -> Loss {
        let why = shard.failed_extension().map_or_else(String::new, |report| format!(": {report}"));
        tracing::warn!(set = &*self.set.name, shard = self.number, "lost the lease of the shard{why}");
        Loss::Lease
    }
}
