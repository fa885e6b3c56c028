//! Helpers for tests of the program: its processes, the files that they write, and waits for conditions.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod beats;
mod browser;
mod crew;
mod ended;
mod http;
mod job_bench;
mod keys;
mod nodes;
mod processes;
mod program;
mod receiver;
mod running;
mod say;
mod schema;
mod sink;
mod tmux;
mod told;

pub use beats::Beats;
pub use browser::{Browser, ENTER, TAB};
pub use crew::{Crew, Failed, Told, Who};
pub use ended::Ended;
pub use http::{Http, Response};
pub use job_bench::JobBench;
pub use keys::{Key, keys};
pub use nodes::Nodes;
pub use processes::{is_alive, parent_of, signal};
pub use program::Program;
pub use receiver::{Received, Receiver};
pub use running::Running;
pub use say::say;
pub use schema::check_schema;
pub use sink::Sink;
pub use tmux::Tmux;
pub use told::told_to_end;

use quorate::env::{SystemWorld, WallTime, World};
use std::{thread, time::Duration};

/// The longest wait for an event that would happen at once on an idle machine.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// The time between two checks of a condition.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Returns the time of the wall clock.
pub fn now() -> WallTime {
    SystemWorld.wall()
}

/// Calls `look` until it returns a value, for at most `within`.
///
/// # Panics
/// If `look` returned no value in that time. The message contains `what`.
pub fn until<T>(what: &str, within: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let give_up = SystemWorld.now() + within;
    loop {
        // The last check is made after the deadline. So a test that was not scheduled for a while still makes
        // one check.
        let late = SystemWorld.now() >= give_up;
        match look() {
            Some(found) => return found,
            None if late => panic!("no {what} in {within:?}"),
            None => thread::sleep(LOOK_EVERY),
        }
    }
}
