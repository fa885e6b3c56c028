//! Histories of operations, and their check by a linearizability checker, as Jepsen's tests do it.
//!
//! A test records what processes did as [`Operation`]s, each with a begin and an end. The [`History`] of a kind of
//! object has the operations of each object by name. A [`Specification`] says what such an object does if one call
//! follows the other: [`Lock`], [`Register`], [`AtMostOnce`] and [`AtLeastOnce`] for ticks, [`Message`].
//! [`History::check`] asks for each object whether some order of its operations is right. Objects are independent of
//! each other, so a history is linearizable if that of each object is.
//!
//! # The checker
//!
//! The search is not ours, so that an error of our own checks does not repeat in it. It is `porcupine-rs` (MIT), which
//! was chosen among the packages of crates.io:
//!
//! | package | algorithm | for us |
//! | --- | --- | --- |
//! | `porcupine-rs` 0.3 (2026) | Porcupine's: Wing and Gong with Lowe's cache, over a linked list; a set of bits for each cached state; a time limit | chosen. Its own tests check Porcupine's histories of etcd by Jepsen. It lists its benchmark's crates as dependencies, which costs build time and nothing else |
//! | `todc-utils` 0.1 (2023) | the same, over a vector, with two bytes for each cached operation; no time limit, no open operations | each step is linear in the history, and each cached state takes sixteen times the memory |
//! | `stateright` 0.31 | every order, without a cache; open operations | exponential on histories that are not linearizable. It is our second opinion: on thousands of small histories both must agree |
//! | `lincheck` 0.2 | runs threads under loom | for data structures in memory, not for recorded histories |
//!
//! Porcupine (Go) and Knossos (Clojure) are not packages of a registry that this workspace uses.
//!
//! # What is not guaranteed
//!
//! * Each specification says what it does not judge. An operation that a test leaves out is not judged at all.
//! * An operation of unknown result stays open to the end: it may take effect at any later moment. A history with
//!   many of them proves less, and takes longer.
//! * The search can take exponential time in the number of operations that are open at one moment. [`Limits`] bounds it. What
//!   exceeds the limits is counted in [`Findings::undecided`], and is not judged.

mod check;
mod checker;
mod lock;
mod message;
mod operation;
mod parts;
mod register;
mod specification;
mod tick;

pub use check::{Findings, History, Limits};
pub use lock::{Lock, LockCall, LockState};
pub use message::{Message, MessageCall, MessageState};
pub use operation::{Moment, Operation};
pub use register::{Fence, Register, RegisterCall, RegisterState};
pub use specification::Specification;
pub use tick::{AtLeastOnce, AtMostOnce, TickCall, TickState};

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
