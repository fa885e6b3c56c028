//! The decisions of the second version of the ledger: those of a node, which stores a copy, and those of a leader, which
//! makes copies equal to its own. No I/O, no clock. Nothing uses them yet but the test-kit's model, which shows that each
//! of them is needed; the ledger of [`super`] is the one that schedulers use.
//!
//! # The rule
//!
//! **A node that may have forgotten is down until a leader has copied everything to it.** A node's memory has an id, its
//! [`Incarnation`](crate::trust::Incarnation), which is new whenever the node may have forgotten. A node is *complete* if a
//! leader has marked it in its present memory. The node itself refuses what an incomplete copy must not serve, and a
//! leader counts to a majority of all nodes. So nothing depends on the age of a memory, or on a clock.
//!
//! # Names of the rules
//!
//! N1 to N5 are rules of a node, L1 to L8 of a leader. `docs/design/ledger.md` has each with the shortest history in which
//! it is needed. L6 to L8 and the rules of workers are not here: they are decisions about runs.

mod entry;
mod header;
mod leadership;

pub use entry::{AssignmentId, Entry, NoRegister, Register, Stamp};
pub use header::{Header, HeaderRefusal, Seal};
pub use leadership::{Heard, Leadership, Phase, Standing, Takeover};
