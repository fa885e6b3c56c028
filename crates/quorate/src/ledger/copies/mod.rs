//! The led ledger: its leader makes the nodes' [copies](crate::node::copy) equal to its own. The leader counts to a majority
//! of all nodes, and a node that may have forgotten is down until the leader has copied everything to it. So nothing depends
//! on the age of a memory, or on a clock.
//!
//! [`Leadership`] decides about nodes, and [`Keeper`] is the state machine of a whole term; both perform no I/O and read no
//! clock. `TermLedger` is the task of a term that carries out what [`Keeper`] decides. `LedgerView` is the ledger as a
//! reader sees it, and [`LedgerCopies`] shows which copies are complete.
//!
//! # Names of the rules
//!
//! L1 to L8 are rules of a leader. `docs/design/ledger.md` has each with the shortest history in which it is needed. L6 to
//! L8 and the rules of workers are not here: they are decisions about runs.

mod backlog;
mod content;
mod keeper;
mod leadership;
mod readers;
mod registers;
mod state;
mod term_ledger;
mod view;

pub use content::{Content, Entry, Key, Records};
pub use keeper::{Adopted, Asked, Keeper, Write};
pub use leadership::{Heard, Leadership, Phase, Standing, Takeover};
pub(crate) use registers::Registered;
pub(crate) use state::WAITING_FIX;
pub use state::{Copied, CopyAtNode, CopyState, LedgerCopies, Waiting};
pub(crate) use term_ledger::{FOUNDED, TermLedger};
pub(crate) use view::LedgerView;
