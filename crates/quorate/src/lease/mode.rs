/// The mode in which a lease holds its resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mode {
    /// One holder: a plain lock, a writer, a leader, a claim.
    #[default]
    Exclusive,
    /// Shared by readers. They have no fencing token.
    Shared,
}
