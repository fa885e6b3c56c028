//! A faulty network on loopback: a TCP proxy between clients and one server. A test can delay the bytes, cut
//! one direction or both, break connections, and break a connection in the middle of a reply.
//!
//! # What is not guaranteed
//!
//! A client connects to the proxy, not to the server. Connecting therefore succeeds even while the network is
//! cut or the server is dead. Only the requests fail.
//!
//! A connection that is not broken loses nothing. Bytes that meet a cut wait in the proxy and arrive after
//! [`Proxy::heal`], as if TCP had sent them again. Bytes never take less time than the requested latency.
//! They take longer by the time that the machine needs to schedule the proxy.
//!
//! A fault is in effect once its call has returned. For example, after [`Proxy::cut`] not one byte more
//! passes in that direction.

mod cluster;
mod connection;
#[expect(clippy::module_inception, reason = "the module is named after its main type")]
mod proxy;
mod pump;
mod rules;

pub use cluster::ProxiedCluster;
pub use proxy::Proxy;
pub use rules::{Directions, Latency};
