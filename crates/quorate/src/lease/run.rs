use super::{Lease, LeaseError, LeaseLost, Lock};

impl Lock {
    /// Acquires the lock as [`Lock::acquire`] does, runs `work` under the lease, and releases the lock.
    ///
    /// ```
    /// use quorate::{Quorum, lease::LeaseError, node::MemoryNode};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let nodes = (0..3).map(|i| MemoryNode::new(&format!("memory-{i}")));
    /// # let quorum = Quorum::builder().nodes(nodes).trust_new_nodes(true).build()?;
    /// let number = quorum
    ///     .lock("invoice-42")
    ///     .run(async |lease| {
    ///         let token = lease.fencing_token()?; // pass it to the write
    ///         Ok::<_, LeaseError>(token)
    ///     })
    ///     .await?;
    /// # drop(number);
    /// quorum.close().await;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// If the lease is lost, `work` is dropped, before another worker can acquire the lock, and the result is
    /// [`LeaseError::Lost`]. Some time before, the lease's [`step_down_token`](Lease::step_down_token) is cancelled: work that
    /// can stop in order waits for it. Work that blocks its thread is not interrupted.
    ///
    /// The result of work that ended is not replaced by an error of the release: on nodes that do not confirm the release, the
    /// lock ends with its TTL. Use [`Lock::acquire`] and [`Lease::release`] where the caller must know.
    ///
    /// # Errors
    /// [`LeaseError::Acquire`] and [`LeaseError::Lost`], converted into the error of `work`; and each error that `work` returns,
    /// after which the lock is released, too.
    ///
    /// # Cancel safety
    /// Safe: if the future is dropped, `work` is dropped, and then the lock is released.
    pub async fn run<T, E: From<LeaseError>>(
        &self,
        work: impl AsyncFnOnce(&Lease) -> Result<T, E>,
    ) -> Result<T, E> {
        let lease = self.acquire().await.map_err(LeaseError::from)?;
        let ended = {
            let lost = lease.lost_token().cancelled();
            tokio::select! {
                biased;
                () = lost => Err(LeaseError::from(LeaseLost).into()),
                ended = work(&lease) => ended,
            }
        };
        if let Err(error) = lease.release().await {
            tracing::debug!(%error, "the lock ends with its TTL where the release was not confirmed");
        }
        ended
    }
}
