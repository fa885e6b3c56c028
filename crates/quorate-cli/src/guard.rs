use crate::supervisor::{Deadline, Exit, ForwardedSignals, Supervisor};
use quorate::env::{BootTime, Env};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Keeps the supervisor process of a command informed of the deadline of the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Guard {
    grace: Duration,
    kill_margin: Duration,
    watch_every: Duration,
}

impl Guard {
    /// Returns the guard for a lease of this TTL. `grace` is the time between the step-down and the end of
    /// validity.
    pub(crate) fn new(ttl: Duration, grace: Duration) -> Self {
        let ms = Duration::from_millis;
        // The time by which SIGKILL is sent before validity ends. A busy machine may deliver the signal late.
        let kill_margin = (grace / 4).clamp(ms(10), ms(250)).min(grace);
        Self { grace, kill_margin, watch_every: (ttl / 20).clamp(ms(20), ms(250)) }
    }

    /// Returns the deadline of a command whose lease is valid until `until`.
    pub(crate) fn deadline(self, until: BootTime) -> Deadline {
        Deadline { step_down: until - self.grace, kill: until - self.kill_margin }
    }

    /// Waits for the end of the command. During the wait, passes each new deadline, the step-down, and signals
    /// to the supervisor process. `valid_until` returns the time until which the command may run, or `None`
    /// once it may not run.
    ///
    /// # Cancel safety
    /// Safe: the command continues under its supervisor process until its last deadline.
    pub(crate) async fn watch(
        self,
        env: &Env,
        supervisor: &mut Supervisor,
        valid_until: impl Fn() -> Option<BootTime>,
        step_down: &CancellationToken,
        mut signals: Option<&mut ForwardedSignals>,
    ) -> Exit {
        let mut stepping_down = false;
        // The supervisor process was started with an earlier deadline, so the present one is sent first.
        let mut last = None;
        loop {
            let signal = async {
                match &mut signals {
                    Some(signals) => signals.next().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! { biased;
                exit = supervisor.wait() => return exit,
                number = signal => supervisor.signal(number),
                () = step_down.cancelled(), if !stepping_down => {
                    stepping_down = true;
                    // After the step-down, the command has its grace period and no more, because the lease is
                    // released afterwards.
                    let until = valid_until().unwrap_or_default().min(env.now() + self.grace);
                    supervisor.extend(self.deadline(until));
                    supervisor.step_down();
                    last = Some(until);
                }
                () = env.sleep(self.watch_every) => {
                    let now = valid_until().unwrap_or_default();
                    // After the step-down, a new deadline is passed on only if it is earlier.
                    let moved = if stepping_down { last.is_some_and(|last| now < last) } else { last != Some(now) };
                    if moved {
                        supervisor.extend(self.deadline(now));
                        last = Some(now);
                    }
                }
            }
        }
    }
}

/// A command whose processes may still run. If this value is dropped, the call in it sees to it that what the command runs under is
/// not released: other workers then wait until it has expired. Call [`Unconfirmed::confirm`] instead once the end of all
/// processes was observed.
pub(crate) struct Unconfirmed<F: Fn()>(pub(crate) F);

impl<F: Fn()> Unconfirmed<F> {
    pub(crate) fn confirm(self) {
        std::mem::forget(self);
    }
}

impl<F: Fn()> Drop for Unconfirmed<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_is_killed_before_validity_ends() {
        let guard = Guard::new(Duration::from_secs(2), Duration::from_millis(400));
        let until = BootTime::from_nanos(10_000_000_000);
        let deadline = guard.deadline(until);
        assert_eq!(deadline.step_down.until(until), Duration::from_millis(400));
        assert_eq!(deadline.kill.until(until), Duration::from_millis(100));
        let tiny = Guard::new(Duration::from_millis(300), Duration::from_millis(5));
        assert!(
            tiny.deadline(until).kill <= until && tiny.deadline(until).step_down <= tiny.deadline(until).kill
        );
    }
}
