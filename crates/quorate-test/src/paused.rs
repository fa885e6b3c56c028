use std::time::Duration;
use tokio::{
    runtime::{Builder, Handle, RuntimeFlavor},
    time::Instant,
};

/// Runs `test` on a runtime of its own with a paused clock, and returns its output. For tests without
/// `#[tokio::test(start_paused = true)]`, and to run a test several times in one process.
///
/// # Panics
/// With the panic of `test`, or if no runtime can be created.
pub fn run<T>(test: impl Future<Output = T>) -> T {
    match Builder::new_current_thread().enable_time().start_paused(true).build() {
        Ok(runtime) => runtime.block_on(test),
        Err(error) => panic!("cannot create a runtime: {error}"),
    }
}

/// Panics unless the caller runs on a runtime with a paused clock.
#[track_caller]
pub(crate) fn require_paused_clock() {
    const ADVICE: &str = "use #[tokio::test(start_paused = true)], or quorate_test::run";
    let flavor = Handle::try_current().map(|runtime| runtime.runtime_flavor());
    assert!(
        matches!(flavor, Ok(RuntimeFlavor::CurrentThread)),
        "a cluster needs a current-thread runtime of tokio: {ADVICE}"
    );
    #[expect(
        clippy::disallowed_methods,
        reason = "compares two readings of tokio's clock, to see whether it is paused"
    )]
    let now = Instant::now;
    let before = now();
    // Any time is enough: a clock that is not paused counts nanoseconds.
    std::thread::sleep(Duration::from_micros(50));
    assert!(now() == before, "a cluster needs a paused clock, which the test turns: {ADVICE}");
}
