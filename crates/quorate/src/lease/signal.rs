use std::sync::{
    OnceLock,
    atomic::{AtomicBool, Ordering, fence},
};
use tokio_util::sync::CancellationToken;

/// A signal whose cancellation token is created when it is first used. A process may hold very many leases, and
/// most of them never need a token.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    fired: AtomicBool,
    token: OnceLock<CancellationToken>,
}

impl Signal {
    /// Fires the signal: cancels the token for all tasks that wait for it, and for all later callers of
    /// [`Signal::token`].
    pub(crate) fn fire(&self) {
        self.fired.store(true, Ordering::Relaxed);
        // This fence pairs with the one in `token`. Either this function sees the new token, or `token` sees
        // that the flag is set. So a token that is created at the same time is cancelled in any case.
        fence(Ordering::SeqCst);
        if let Some(token) = self.token.get() {
            token.cancel();
        }
    }

    /// Returns the token, cancelled if this signal has fired.
    pub(crate) fn token(&self) -> &CancellationToken {
        let token = self.token.get_or_init(CancellationToken::new);
        fence(Ordering::SeqCst);
        if self.fired.load(Ordering::Relaxed) {
            token.cancel();
        }
        token
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{sync::Barrier, thread};

    #[test]
    fn whoever_asks_before_or_after_is_told() {
        let signal = Signal::default();
        let before = signal.token().clone();
        assert!(!before.is_cancelled());
        signal.fire();
        assert!(before.is_cancelled() && signal.token().is_cancelled());
        let late = Signal::default();
        late.fire();
        assert!(late.token().is_cancelled());
    }

    #[test]
    fn whoever_asks_at_the_same_moment_is_told() {
        for _ in 0..2_000 {
            let (signal, start) = (Signal::default(), Barrier::new(2));
            let token = thread::scope(|scope| {
                let asks = scope.spawn(|| {
                    start.wait();
                    signal.token().clone()
                });
                start.wait();
                signal.fire();
                asks.join().unwrap()
            });
            assert!(token.is_cancelled());
        }
    }
}
