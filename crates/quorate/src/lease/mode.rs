/// The mode in which a lease holds its resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mode {
    /// At most one holder has the lease: the holder of a plain lock, a writer, a leader, or the worker with a
    /// claim.
    #[default]
    Exclusive,
    /// Several readers share the lease. They have no fencing token.
    Shared,
}
