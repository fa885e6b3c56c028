//! A server on loopback that speaks Redis's protocol wrongly on purpose.
//!
//! # What is not guaranteed
//!
//! The server answers Quorate's commands, and breaks these answers in the stated ways. It models no other
//! server. A [`Hostility::Liar`] breaks no answer: it grants everything to every client. No client can detect
//! that.

mod answers;
mod command;
mod server;

pub use answers::Hostility;
pub use server::HostileServer;
