//! A read-write lock. Many copies of a service read a snapshot. One copy at a time rebuilds the snapshot, and
//! continues as a reader as soon as it has finished.
//!
//! The writer waits in a queue (`fair`). Otherwise readers that arrive all the time could keep it from ever
//! acquiring the lock.

#![expect(clippy::disallowed_methods, reason = "main awaits the tasks; a service has its own")]

use quorate_examples::{Failure, quorum};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let snapshot = Arc::new(AtomicU64::new(0));
    let done = CancellationToken::new();

    // Two copies read all the time.
    let mut readers = Vec::new();
    for name in ["reader-1", "reader-2"] {
        let (quorum, snapshot, done) = (quorum(name)?, Arc::clone(&snapshot), done.clone());
        readers.push(tokio::spawn(async move {
            let mut looks = 0_u32;
            while !done.is_cancelled() {
                let lease = quorum.read_lock("snapshot").acquire().await?;
                let first = snapshot.load(Ordering::Relaxed);
                tokio::task::yield_now().await;
                let second = snapshot.load(Ordering::Relaxed);
                // The result of the read is valid only if the lease was held until here.
                if lease.ensure_held().is_ok() && first != second {
                    return Err(Failure::from("another worker wrote during the read"));
                }
                looks += 1;
                lease.release().await?;
            }
            quorum.close().await;
            Ok(looks)
        }));
    }

    // A third copy rebuilds the snapshot. It then continues as a reader without a release in between, so that
    // no other writer can acquire the lock.
    let writer = quorum("writer")?;
    for version in 1..=3 {
        let lock = writer.lock("snapshot").fair(Duration::from_millis(50));
        let lease = lock.acquire().await?;
        println!("version {version} is written under token {}", lease.fencing_token()?);
        snapshot.store(version, Ordering::Relaxed);
        let lease = lease.downgrade().await?;
        if snapshot.load(Ordering::Relaxed) != version {
            return Err("another worker wrote in between".into());
        }
        lease.release().await?;
    }
    done.cancel();
    for reader in readers {
        println!("a reader looked {} times", reader.await??);
    }
    writer.close().await;
    Ok(())
}
