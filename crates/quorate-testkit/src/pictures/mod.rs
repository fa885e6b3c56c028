//! The pictures of the guide, drawn from histories of the simulated servers and workers.
//!
//! # What is not guaranteed
//!
//! A picture shows one history. The states are read every 20 ms, so shorter states are not seen.

mod scene;
mod stories;
mod timeline;

use crate::sim::Truth;

/// Returns the file name and the text of each picture. Two calls return the same.
///
/// # Panics
/// If no runtime can be created, or if a story does not go as its picture says.
pub fn pictures() -> Vec<(&'static str, String)> {
    vec![
        ("lease.svg", drawn(stories::life_of_a_lease)),
        ("stopped-holder.svg", drawn(stories::stopped_holder)),
        ("clock-jump.svg", drawn(stories::clock_jump)),
    ]
}

/// Runs a story in a runtime of its own, in which time is simulated, and draws it.
#[expect(clippy::expect_used, reason = "a test-kit that cannot start its runtime has nothing to report")]
fn drawn<F: Future<Output = timeline::Timeline>>(story: impl FnOnce(Truth) -> F) -> String {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime on this thread").block_on(async { story(Truth::begin()).await.svg() })
}
