use crate::lease::AcquireError;

/// The reason why a campaign ended.
///
/// ```
/// use quorate::{Election, ElectionError, Quorum, node::MemoryNode};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let nodes = (0..3).map(|i| MemoryNode::new(&format!("memory-{i}")));
/// # let quorum = Quorum::builder().nodes(nodes).trust_new_nodes(true).build()?;
/// let election = Election::new(&quorum, "billing").end_on_error();
/// match election.run(|_term| async { Err("no such table") }).await {
///     Err(ElectionError::Work(error)) => assert_eq!(error, "no such table"),
///     Err(error) => panic!("{error}"), // the settings, the access to the nodes, or a closed quorum
///     Ok(()) => {}
/// }
/// quorum.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ElectionError<E> {
    /// The group's name or the settings cannot be used, or the quorum has been closed. The campaign also ends
    /// with this error if no majority could vote since the quorum was built, for a reason that only an
    /// operator can fix.
    #[error(transparent)]
    Acquire(AcquireError),
    /// A candidate of the same group is already running on this quorum: this candidate or a clone of it, another
    /// [`Election`](super::Election), or a scheduler. The second would never lead.
    #[error(
        "an election or a scheduler of the group {group} is already running on this quorum, and a second one would never \
         lead; run all work of the group in one `run`: pass the election to `Scheduler::on`, and call `Scheduler::lead` \
         from its work"
    )]
    AlreadyRunning {
        /// The group.
        group: String,
    },
    /// The work failed, and the election [ends on an error](super::Election::end_on_error). The leader has resigned.
    #[error("the work of a term failed: {0}")]
    Work(E),
}
