//! Runs a future and drops it at one of its await points.

use std::{fmt, future::poll_fn, pin::pin, task::Poll};

/// The point at which a future is dropped, which these tests call the *cut*.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// The future is dropped before its first poll.
    Unpolled,
    /// The future is dropped right after a poll that returned *pending*. Before this poll, the given number of
    /// polls returned *pending* too.
    Waiting(usize),
    /// The future is polled as with [`Cut::Waiting`], and dropped when it is woken after that. So the event
    /// for which the future waited has happened, but the future has not been polled since.
    Woken(usize),
    /// The future is not dropped.
    Never,
}

impl Cut {
    /// Runs `work` up to the cut, and drops it there. Returns `None` if `work` did not complete.
    pub(crate) async fn run<T>(self, work: impl Future<Output = T>) -> Option<T> {
        if self == Self::Unpolled {
            return None;
        }
        let mut work = pin!(work);
        let mut pending = 0;
        poll_fn(move |cx| {
            if self == Self::Woken(pending.max(1) - 1) && pending > 0 {
                return Poll::Ready(None);
            }
            match work.as_mut().poll(cx) {
                Poll::Ready(output) => Poll::Ready(Some(output)),
                Poll::Pending if self == Self::Waiting(pending) => Poll::Ready(None),
                Poll::Pending => {
                    pending += 1;
                    Poll::Pending
                }
            }
        })
        .await
    }
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unpolled => f.write_str("dropped before it was polled"),
            Self::Waiting(n) => write!(f, "dropped at await point {n}"),
            Self::Woken(n) => write!(f, "dropped when await point {n} was over"),
            Self::Never => f.write_str("not dropped"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    /// A future with three await points. Each await is pending at its first poll, and ready at its second.
    async fn three(reached: &mut usize) {
        for _ in 0..3 {
            *reached += 1;
            let mut over = false;
            poll_fn(|cx| {
                cx.waker().wake_by_ref();
                if std::mem::replace(&mut over, true) { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
        }
        *reached += 1;
    }

    fn reached(cut: Cut) -> (usize, bool) {
        let mut reached = 0;
        let mut work = Box::pin(cut.run(three(&mut reached)));
        let whole = (0..9).find_map(|_| work.as_mut().now_or_never()).expect("it ends").is_some();
        drop(work);
        (reached, whole)
    }

    #[test]
    fn each_await_point_can_be_hit() {
        assert_eq!(reached(Cut::Unpolled), (0, false));
        for n in 0..3 {
            assert_eq!(reached(Cut::Waiting(n)), (n + 1, false), "{n}");
            assert_eq!(reached(Cut::Woken(n)), (n + 1, false), "{n}");
        }
        assert_eq!(reached(Cut::Waiting(3)), (4, true));
        assert_eq!(reached(Cut::Never), (4, true));
    }
}
