//! The HTTP server of a daemon: metrics, health checks, the API with the JSON of the commands, and the operator's page.
//!
//! # What is not guaranteed
//!
//! The server speaks plain HTTP, so on a network other parties can read the tokens. Put a proxy with TLS in
//! front of it. An answer may be out of date when the client reads it: a leader may lose its lease right after
//! `/leader` has answered 200. A client that opens thousands of connections in a second can end the connections of other
//! clients without a token, and of health checks, before they have their answer.
//!
//! # Access
//!
//! Without a read token, every client that can connect may read. Such a server listens on loopback only. It
//! refuses a `Host` that is a name, because a web page could let its own name point to this server (DNS
//! rebinding). With a read token, `/livez`, `/readyz` and `/leader` answer every client with their status
//! alone. Operations always need the operate token. A request from a page of another origin is refused.
//!
//! Where clients of leases connect ([`crate::leases`]), nothing is shown of other clients without such a token. On a unix socket the
//! permission of its file is the access; on an address of this machine, clients send a token of their own.
//!
//! # Limits
//!
//! A slow, malformed or hostile client costs a connection and a limited time: see [`server`]. The daemon's
//! loop does not wait for the server, and the lease does not depend on it.

mod api;
mod door;
mod error;
mod guard;
mod health;
mod leases;
mod messages;
mod openapi;
mod operate;
mod operations;
mod page;
mod parameter;
mod params;
mod places;
mod router;
mod server;
mod site;
mod tokens;
mod watch;

pub(crate) use server::{Listener, Server};
