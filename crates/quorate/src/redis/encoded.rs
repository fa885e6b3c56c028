//! A batch as bytes, and the replies that it expects.

/// A batch as bytes, with the data that the parser of the replies needs.
#[derive(Debug, Default)]
pub(crate) struct Encoded {
    /// The bytes to send.
    pub(crate) bytes: Vec<u8>,
    /// The expected reply to each call, in order.
    pub(crate) expected: Vec<ExpectedReply>,
    /// The position in the batch of each request, in the order in which they are sent.
    pub(crate) order: Vec<usize>,
    /// For each acquire by plain commands, the count of an earlier grant. Zero for a claim.
    pub(crate) counts: Vec<u64>,
}

/// The expected reply to a call of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectedReply {
    /// The reply of a script to this number of items, or, if there are none, the reply to TIME.
    Items(usize),
    /// The replies to a transaction.
    Commands {
        /// The number of locks and claims that it acquires.
        acquires: usize,
        /// The number of its commands before EXEC.
        commands: usize,
    },
    /// The reply to HSCAN: the records of a ledger's page. The next command is the script that serves the same request.
    Page,
}
