//! A server on loopback that speaks Redis's protocol wrongly on purpose.
//!
//! # What is not guaranteed
//!
//! It knows Quorate's commands and breaks its answers in the stated ways; it models no other server. A
//! [`Hostility::Liar`] breaks nothing: it grants everything to every client, well-formed, and no client can
//! detect it.

mod answers;
mod command;
mod server;

pub use answers::Hostility;
pub use server::HostileServer;
