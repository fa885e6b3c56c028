use super::{BootTime, WallTime, World};
use futures_util::future::BoxFuture;
use std::time::Duration;
use tokio_util::task::TaskTracker;

/// The longest single timer. Tokio's timers do not advance while the machine sleeps, so a sleep reads the
/// boot clock at least this often.
const TIMER_MAX: Duration = Duration::from_millis(100);

/// Returns the name of this host. The result is empty if the host has no name, or its name is not UTF-8.
pub(crate) fn host_name() -> String {
    rustix::system::uname().nodename().to_str().unwrap_or_default().to_owned()
}

/// Returns whether this process has its id from a namespace of its own, as in a container. Then a process of another
/// container may have the same id. Linux numbers the namespace of the machine itself always in the same way
/// (`PROC_PID_INIT_INO`). Where the namespace cannot be read, the first process is taken for that of a container.
pub(crate) fn is_in_pid_namespace() -> bool {
    const OF_THE_MACHINE: &str = "pid:[4026531836]";
    match std::fs::read_link("/proc/self/ns/pid") {
        Ok(namespace) => namespace.as_os_str() != OF_THE_MACHINE,
        Err(_) => std::process::id() == 1,
    }
}

/// The [`World`] of the operating system: the kernel's clocks and randomness, and tokio's timers and tasks.
#[derive(Debug, Default, Clone, Copy)]
pub struct SystemWorld;

impl World for SystemWorld {
    fn now(&self) -> BootTime {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        const CLOCK: rustix::time::ClockId = rustix::time::ClockId::Boottime;
        // Darwin's monotonic clock includes sleep. On other systems a suspended machine is not supported.
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        const CLOCK: rustix::time::ClockId = rustix::time::ClockId::Monotonic;
        let at = rustix::time::clock_gettime(CLOCK);
        BootTime::from_nanos(at.tv_sec.cast_unsigned() * 1_000_000_000 + at.tv_nsec.cast_unsigned())
    }

    fn wall(&self) -> WallTime {
        let at = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        WallTime::from_micros(at.tv_sec.cast_unsigned() * 1_000_000 + at.tv_nsec.cast_unsigned() / 1_000)
    }

    fn random(&self) -> u64 {
        #[expect(clippy::expect_used, reason = "an owner token that can be guessed is worse than no worker")]
        getrandom::u64().expect("the operating system gives random bits")
    }

    // Each owner token gets its bits from the kernel. A buffer would give the same bits to all copies of a virtual machine.
    fn random_pair(&self) -> (u64, u64) {
        let mut bytes = [0; 16];
        #[expect(clippy::expect_used, reason = "an owner token that can be guessed is worse than no worker")]
        getrandom::fill(&mut bytes).expect("the operating system gives random bits");
        let bits = u128::from_ne_bytes(bytes);
        ((bits >> 64) as u64, bits as u64)
    }

    fn sleep_until(&self, at: BootTime) -> BoxFuture<'static, ()> {
        let time = self.now().until(at).min(TIMER_MAX);
        #[expect(clippy::disallowed_methods, reason = "the only place that starts timers")]
        Box::pin(tokio::time::sleep(time))
    }

    fn spawn(&self, tasks: &TaskTracker, work: BoxFuture<'static, ()>) {
        tasks.spawn(work);
    }
}
