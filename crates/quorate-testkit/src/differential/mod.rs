//! Differential tests of nodes: several kinds of node must give the same replies to one history of requests.
//!
//! A history is a list of [`Step`]s that [`history`] draws. [`compare`] sends the history to every [`Kind`],
//! and compares the replies with those of the first kind. If there is a difference, proptest shrinks the
//! history to a short one that still has the difference.
//!
//! # What is not guaranteed
//!
//! * Equal replies need not be correct. The conformance suite has to find errors that all kinds share.
//! * The times of nodes, the remaining time of a lease and the difference between clocks are compared with a
//!   tolerance ([`replies_alike`]). If the node may have lowered the low-water mark of a ledger to its own time,
//!   this mark is compared with a tolerance too. Run ids are not compared at all.
//! * To let time pass, a test shifts clocks ([`ShiftedWorld`]) or, on a server, moves the ends of the keys.
//!   The server's own expiry is tested only with lifetimes of milliseconds that really pass.
//! * Keys that never expire, keys of another type, and partly written files exist in one kind only. That
//!   kind's own tests cover them.

mod compare;
mod draw;
mod kind;
mod reply;
mod resolve;
mod step;
mod target;
mod values;
mod wrong;

pub use compare::{Difference, compare};
pub use draw::history;
pub use kind::{FileKind, Kind, MemoryKind, ShiftedWorld};
pub use reply::replies_alike;
pub use step::{Ask, Count, Late, Led, Life, Pass, Seen, Stamp, Step, Tolerance, When, Write, asks_in};
pub use target::{DynTarget, Target};
pub use wrong::{Fault, WrongNode};
