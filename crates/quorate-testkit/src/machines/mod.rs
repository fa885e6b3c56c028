//! Machines that are namespaces of this one: each has a network of its own, and optionally a boot clock of its own.
//! A bridge connects them, and packet filters on the bridge drop what one machine sends to another. Linux only.
//!
//! # What is not guaranteed
//!
//! All machines share the kernel, the processors, the file system and the wall clock. A boot clock of its own has
//! another value, but the same rate.

mod isolated;
mod machine;
mod network;

pub use isolated::{can_isolate, isolated};
pub use machine::Machine;
pub use network::{Link, Network};
