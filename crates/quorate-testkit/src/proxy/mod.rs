//! A faulty network on loopback: a TCP proxy between clients and one server. A test can make it slow, cut
//! it in one direction or both, break its connections, and break them in the middle of a reply.
//!
//! # What is not guaranteed
//!
//! It is a proxy and no network. A client connects to the proxy, not to the server: while the network is
//! cut, or the server is dead, connecting still succeeds, and everything after it fails. A connection that
//! lives loses nothing: bytes that meet a cut wait (as TCP would send them again), and arrive after
//! [`Proxy::heal`] unless the connection was broken meanwhile. Latency is never shorter than asked, and
//! longer by the time that the machine takes to schedule the proxy.
//!
//! A fault is in effect once its call has returned: after [`Proxy::cut`] not one byte more passes in that
//! direction.

mod cluster;
mod connection;
#[expect(clippy::module_inception, reason = "the module is named after its main type")]
mod proxy;
mod pump;
mod rules;

pub use cluster::ProxiedCluster;
pub use proxy::Proxy;
pub use rules::{Directions, Latency};
