//! The HTTP server of a daemon: metrics, health checks, and the API with the JSON of the commands.
//!
//! # What is not guaranteed
//!
//! The server speaks plain HTTP: on a network, everybody between can read the tokens. Put a proxy with TLS in
//! front of it. An answer may be out of date when the client reads it: a leader may lose its lease right after
//! `/leader` has answered 200. A client that keeps all connections busy keeps other clients, also health checks, from
//! an answer for as long as it does so.
//!
//! # Access
//!
//! Without a read token, every client that can connect may read; such a server listens on loopback only, and
//! refuses a `Host` that is a name, so that no web page can reach it under a name of its own. With a read token,
//! `/livez`, `/readyz` and `/leader` answer everybody with their status alone. Operations always need the
//! operate token. A request from a page of another origin is refused.
//!
//! # Limits
//!
//! A slow, malformed or hostile client costs a connection and a bounded time: see [`server`]. The daemon's loop
//! does not wait for the server, and the lease does not depend on it.

mod api;
mod error;
mod exporter;
mod guard;
mod health;
mod openapi;
mod params;
mod router;
mod server;
mod site;
mod tokens;

pub(crate) use server::{Listener, Server};
