//! The second version of the ledger: the decisions of a leader, which makes the nodes' [copies](crate::node::copy) equal to
//! its own. No I/O, no clock. The leader counts to a majority of all nodes, and a node that may have forgotten is down until
//! a leader has copied everything to it. So nothing depends on the age of a memory, or on a clock. Only the test-kit uses
//! these decisions yet; the ledger of [`super`] is the one that schedulers use.
//!
//! # Names of the rules
//!
//! L1 to L8 are rules of a leader. `docs/design/ledger.md` has each with the shortest history in which it is needed. L6 to
//! L8 and the rules of workers are not here: they are decisions about runs.

mod content;
mod keeper;
mod leadership;

pub use content::{Content, Entry};
pub use keeper::{Adopted, Asked, Keeper};
pub use leadership::{Heard, Leadership, Phase, Standing, Takeover};
