//! Differential tests of nodes: one history of requests, sent to several kinds of node, must get the same
//! replies.
//!
//! A history is a list of [`Step`]s drawn by [`history`]; [`compare`] sends it to every [`Kind`] and
//! compares the replies with the first kind's. Under proptest a difference shrinks to the shortest history
//! that shows it.
//!
//! # What is not guaranteed
//!
//! * Equal replies need not be right: an error that all kinds share is for the conformance suite to find.
//! * Node times, the remaining time of a lease and the distance between clocks are compared with a
//!   tolerance ([`replies_alike`]), and so is a ledger's low-water mark if a prune was clamped to the
//!   node's own time. Run ids are not compared at all.
//! * Time passes by shifting clocks ([`ShiftedWorld`]) or, on a server, by moving the ends of its keys. The
//!   server's own expiry is tested only with tiny lifetimes: milliseconds that really pass.
//! * Keys that never expire, keys of another type, and files that were written in part have no counterpart
//!   in the other kinds, and belong to their own tests.

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
pub use step::{Ask, Count, Late, Life, Pass, Seen, Stamp, Step, Tolerance, When, asks_in};
pub use target::{DynTarget, Target};
pub use wrong::{Fault, WrongNode};
