//! A Redis server in this process, for the simulation: the scripts that ship run in Lua 5.1, over keys in memory
//! and on a clock that the caller gives.
//!
//! * [`ScriptStore`] is the store of a simulated server. A batch is encoded by the shipped encoder, run as the
//!   bytes that a session would send, and its reply bytes are parsed by the shipped parser.
//! * [`SimulatedRedisNode`] is a node whose sessions are the shipped ones, over a stream in memory. The
//!   conformance suite and the differential tests run on it, beside real servers.
//! * [`ScriptFault`] changes the text of scripts, to show that the simulation detects the change.
//!
//! `tests/simulated_redis.rs` sends random commands and scripts to this server and to a real one, which must
//! give the same replies.
//!
//! # What is not guaranteed
//!
//! The server has the commands of [`quorate_redis::COMMANDS`] and some related ones, for keys that hold a string,
//! a hash or a sorted set. It has no users, no limit on memory, no replication and one database. HGETALL and
//! HSCAN return the fields of a hash in another order than a real server. The clock stands still while a script
//! runs, as in Redis 7. Of an error only the first word is that of a real server, and often the rest.

mod arguments;
mod commands;
mod database;
mod key_space;
mod lua;
mod node;
mod resp;
mod rows;
mod script_fault;
mod server_process;
mod store;
mod stored_claim;
mod stream;

pub use database::{Database, NoSubscribers, Subscribers};
pub use key_space::KeySpace;
pub use node::{SimulatedRedis, SimulatedRedisNode};
pub use resp::Reply;
pub use script_fault::ScriptFault;
pub use server_process::{Connection, Facts, ServerProcess};
pub use store::ScriptStore;
