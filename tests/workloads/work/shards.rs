//! The part of a worker that owns shards.

use super::{CHECK_EVERY, Failure, GRACE};
use crate::harness::{Journal, LeaseLog};
use quorate::{
    env::BootTime,
    quorum::Quorum,
    shards::{Shard, Shards},
};
use std::{convert::Infallible, time::Duration};
use tokio_util::sync::CancellationToken;

/// The set, and the number of its shards: less than one for each worker of some plans, and more than one of others.
const SET: &str = "workload";
const COUNT: usize = 6;
/// The beginning of the names of shards in journals.
pub(crate) const SHARD: &str = "shard-";

pub(super) async fn own(
    quorum: &Quorum,
    journal: &Journal,
    ttl: Duration,
    stop: &CancellationToken,
) -> Result<(), Failure> {
    let _stop = stop.clone().drop_guard();
    let shards = Shards::new(quorum, SET, COUNT).ttl(ttl).step_down_grace(GRACE).grace(GRACE);
    let journal = journal.clone();
    let run = shards.run(move |shard| {
        let work = Work::begin(&journal, shard);
        async move {
            if let Some(work) = work {
                work.run().await;
            }
            Ok::<(), Infallible>(())
        }
    });
    match run.until(stop.cancelled()).await {
        Err(error) if error.is_permanent() => Err(error.into()),
        _ => Ok(()),
    }
}

/// The work of an owned shard. It may be dropped at any moment, and the journal then shows that.
struct Work {
    journal: Journal,
    shard: Shard,
    log: LeaseLog,
}

impl Work {
    /// Returns `None` if the lease of the shard has already ended.
    fn begin(journal: &Journal, shard: Shard) -> Option<Self> {
        let (name, token) = (format!("{SHARD}{}", shard.number()), shard.unchecked_token().get());
        let log = LeaseLog::begin(journal, &name, token, BootTime::default(), || shard.remaining())?;
        Some(Self { journal: journal.clone(), shard, log })
    }

    /// Works until the worker is asked to stop, or the lease has ended.
    async fn run(self) {
        while self.log.check(|| self.shard.remaining()) {
            tokio::select! { biased;
                () = self.shard.step_down_token().cancelled() => return,
                () = self.journal.env().sleep(CHECK_EVERY) => {}
            }
        }
        // The owner drops this work once it has noticed, too.
        self.shard.step_down_token().cancelled().await;
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        if self.shard.step_down_token().is_cancelled() {
            self.log.step_down();
        }
        self.log.end(|| self.shard.remaining());
    }
}
