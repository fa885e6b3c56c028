/// Identifies a job of the leader in its term. A job that is added again under its name gets another id, so that the
/// ends of its earlier runs are not taken for ends of its later ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::scheduler) struct JobId {
    /// The place in the table, by which the job is found at once. Another job may get the place later.
    pub(super) place: usize,
    /// The number of jobs that were added to the table before.
    pub(super) seq: u64,
}
