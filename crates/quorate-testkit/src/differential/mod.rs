//! Nodes alike: one history of requests, asked of several kinds of node, must get the same replies.
//!
//! A history is a list of [`Step`]s drawn by [`history`]; [`compare`] asks it of every [`Kind`] and holds each
//! against the first. Under proptest a difference shrinks to the shortest history that shows it.
//!
//! # What is not guaranteed
//!
//! * Alike is not right: what all kinds get wrong together is the conformance suite's business.
//! * Node times, the time that a lease has left and how far clocks are apart are compared with a tolerance
//!   ([`replies_alike`]), and so is a ledger's low-water mark where a prune was clamped to the node's own time.
//!   Run ids are not compared at all.
//! * Time passes by shifting clocks ([`ShiftedWorld`]), or, on a server, the ends of its keys. What a server's
//!   own expiry does is seen where a life is tiny: milliseconds, waited for in earnest.
//! * Keys that never expire, of another type, or torn files have no counterpart in the other kinds, and are
//!   their own tests' business.

mod compare;
mod draw;
mod kind;
mod reply;
mod resolve;
mod seat;
mod step;
mod words;
mod wrong;

pub use compare::{Difference, compare};
pub use draw::history;
pub use kind::{FileKind, Kind, MemoryKind, ShiftedWorld};
pub use reply::replies_alike;
pub use seat::{Seat, Sits};
pub use step::{Ask, Count, Late, Life, Pass, Seen, Stamp, Step, Tolerance, When, asks_in};
pub use wrong::{Fault, WrongNode};
