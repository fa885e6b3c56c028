/// The mode in which a lease holds its resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Held by one holder: a plain lock, a writer, a leader, a claim.
    #[default]
    Exclusive,
    /// Shared by readers, which have no fencing token.
    Shared,
}
