//! Tests of services that use [Quorate](quorate): a cluster in memory, a clock that the test turns, faults,
//! and assertions on runs, terms and claims. Without Redis and without waiting: days take seconds, and a test
//! with the same seed has the same result.
//!
//! ```toml
//! [dev-dependencies]
//! quorate-test = "0.1"
//! tokio = { version = "1", features = ["macros", "rt"] }
//!
//! [profile.dev.package."*"] # makes virtual time about twenty times as fast
//! opt-level = 1
//! ```
//!
//! ```rust,test_harness
//! use quorate::{Cron, Job, Scheduler};
//! use quorate_test::{Cluster, time};
//! use std::convert::Infallible;
//!
//! /// The service under test. A `main` function calls it, too, with its quorum and its shutdown signal.
//! async fn service(quorum: quorate::Quorum, shutdown: impl Future<Output = ()> + Send) -> Result<(), String> {
//!     let at_three = Cron::parse("0 3 * * *").map_err(|error| error.to_string())?;
//!     let nightly = Job::new("nightly", at_three, |_run| async { Ok::<(), Infallible>(()) });
//!     let scheduler = Scheduler::new(&quorum, "reports").job(nightly);
//!     scheduler.run().until(shutdown).await.map_err(|error| error.to_string())
//! }
//!
//! #[tokio::test(start_paused = true)]
//! async fn the_nightly_job_survives_its_leader() {
//!     let cluster = Cluster::builder().starts_at(time("2026-03-28T12:00:00Z")).start();
//!     for name in ["a", "b", "c"] {
//!         cluster.worker(name).run(|process| service(process.quorum().clone(), process.stopped()));
//!     }
//!     cluster.advance_to(time("2026-03-29T02:59:50Z")).await; // takes milliseconds
//!     let leader = cluster.leader("reports").await.expect("a leader");
//!     cluster.worker(&leader).kill();
//!     cluster.advance_to(time("2026-03-29T03:01:00Z")).await;
//!
//!     cluster.runs("reports", "nightly").await.assert_done(&[time("2026-03-29T03:00:00Z")]);
//!     cluster.terms("reports").await.assert_one_at_a_time();
//! }
//! ```
//!
//! The tests need `tokio` with the features `macros` and `rt`, and nothing else: no attribute of this crate.
//! [`run`] does without `#[tokio::test]`, and runs a test several times in one process.
//!
//! # Build
//!
//! The lines of `profile.dev.package` belong into the `Cargo.toml` of the workspace, and apply to dependencies only. Without
//! them, Cargo builds this crate, Quorate and `tokio` without optimization, and 48 virtual hours of three workers take 45 s in
//! place of 3 s. If this crate was built so, [`Cluster::advance`] says it on standard error, once for a process, when a test
//! lets many hours pass.
//!
//! # What a test can do
//!
//! | to | call |
//! | --- | --- |
//! | let time pass | [`Cluster::advance`], [`Cluster::advance_to`], [`Cluster::until`] |
//! | set clocks | [`Cluster::set_clocks`], [`Worker::set_clock`], [`Node::set_clock`] |
//! | stop a worker | [`Worker::stop`], [`Worker::kill`], [`Worker::pause`]; then [`Worker::restart`], [`Worker::resume`] |
//! | stop a node | [`Node::kill`], [`Node::pause`]; then [`Node::restart`], [`Node::restart_empty`], [`Node::resume`] |
//! | cut the network | [`Cluster::partition`], [`Worker::isolate`]; then [`Cluster::heal`] |
//! | check the result | [`Cluster::runs`], [`Cluster::terms`], [`Cluster::leader`], [`Cluster::message`] |
//! | call one handler | [`run_context`], [`term()`], [`claim()`], [`delivery`] |
//!
//! # Time
//!
//! Time passes only while the test awaits something and every task of the runtime waits. It then jumps to the
//! moment at which the next task is due. `tokio::time::sleep` in a handler takes no time, either. Real I/O
//! and `spawn_blocking` do not fit: while a task waits for them, the clock may jump ahead. A test that awaits
//! something that never happens does not end, since time passes without limit: give a lock a
//! [`wait`](quorate::Lock::wait), and wait for conditions with [`Cluster::until`].
//!
//! A worker that waits for a lock, for a leader's end or for work polls the nodes in production. Here it
//! sleeps until something changes on the nodes, so that an idle day costs little. What remains: a leader extends
//! its lease every third of the TTL, the other candidates ask for the lease when the one that they have seen would
//! end, and each worker tests each node every ten seconds. All of it grows with the number of nodes, so a cluster has
//! three by default.
//!
//! # What is not guaranteed
//!
//! - **The same result for the same seed** holds for one version of Quorate and of its dependencies, if the
//!   service is deterministic itself: no real time, no randomness of its own, no threads, no order of a
//!   `HashMap`, and `biased` in `tokio::select!`. Another version may elect another leader.
//! - **One seed is one history.** Requests take no time, and all clocks run at the same rate. Lost messages
//!   and late replies do not occur. The simulation of Quorate itself tests those.
//! - **The nodes run Quorate's engine**, not the Lua scripts of Redis. Quorate's tests check that both do the
//!   same. What only Redis does, such as eviction or `WAIT`, is not simulated.
//! - **A paused worker's clock continues**, and a killed worker's `Drop` implementations run, but send
//!   nothing.
//! - **The histories are those that the nodes keep.** A run whose leader and worker died has no entry before
//!   a later leader decides on it.

// A function fits on a screen. The tables of tests do not.
#![cfg_attr(not(test), warn(clippy::too_many_lines))]
#![allow(clippy::panic, reason = "a test fails by panicking")]

mod build_hint;
mod cluster;
mod node;
mod paused;
mod runs;
mod setup;
#[doc(hidden)]
pub mod sim;
mod state;
mod terms;
mod time;
mod unit;
mod worker;

pub use cluster::{Cluster, ClusterBuilder};
pub use node::Node;
pub use paused::run;
pub use runs::Runs;
pub use state::MessageState;
pub use terms::Terms;
pub use time::time;
pub use unit::{Held, UnderTest, claim, delivery, run_context, term};
pub use worker::{Process, ServiceEnd, Worker};

/// Compiles and runs the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
