//! A server on loopback that speaks Redis's protocol wrongly on purpose.
//!
//! # What is not guaranteed
//!
//! It knows what Quorate asks, and breaks its answers in the stated ways; it is no other server's model. A
//! [`Hostility::Liar`] breaks nothing: it grants everything to everyone, well-formed, and nothing can tell.

mod asked;
mod says;
mod server;

pub use says::Hostility;
pub use server::HostileServer;
