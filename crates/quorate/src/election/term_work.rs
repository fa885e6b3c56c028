use super::{
    Election, ElectionEvent, Term,
    end::{End, Failure, WorkResult},
};
use crate::{
    env::{BootTime, Env},
    lease::{LeaseEvent, resign_requested},
    plain::plain,
};
use futures_util::{
    FutureExt,
    future::{BoxFuture, FusedFuture, join},
};
use std::pin::{Pin, pin};
use tokio::sync::mpsc;

/// Runs the work of a term until the work returns or must end. The work must end when the lease is lost, and
/// at the end of the grace period after a shutdown or a resignation. Returns the reason for the end of the
/// term.
pub(super) async fn run_work<E, S>(
    env: &Env,
    election: &Election,
    term: &Term,
    mut work: BoxFuture<'_, WorkResult<E>>,
    events: &mut mpsc::UnboundedReceiver<LeaseEvent>,
    mut shutdown: Pin<&mut S>,
) -> End<E>
where
    S: Future<Output = ()> + Send + FusedFuture,
{
    let token = term.unchecked_token();
    let mut step_down = StepDown::new();
    let mut at_risk = false;
    let mut resigning = false;
    let mut resign_request = pin!(resign_requested(term.lease(), term.bell()).fuse());
    // The leader rings once itself, and so learns whether the nodes report releases to it.
    let mut listens = pin!(join(term.bell().listen(), term.bell().ring()));
    loop {
        tokio::select! { biased;
            () = term.lost_token().cancelled() => {
                let notice = step_down.at.map(|at| at.until(env.now())).unwrap_or_default();
                return End::Lost { without_notice: notice < election.grace() / 2 };
            }
            Some(event) = events.recv() => match event {
                LeaseEvent::AtRisk => {
                    at_risk = true;
                    election.emit(ElectionEvent::AtRisk(token));
                }
                LeaseEvent::StepDown => step_down.announce(election, term, env.now()),
                LeaseEvent::Held if at_risk => {
                    at_risk = false;
                    election.emit(ElectionEvent::Recovered(token));
                }
                LeaseEvent::Held | LeaseEvent::Lost => {}
            },
            () = &mut shutdown, if !shutdown.is_terminated() => step_down.begin(election, term, env.now()),
            () = term.resigning().cancelled(), if !resigning => {
                resigning = true;
                step_down.begin(election, term, env.now());
            }
            to = &mut resign_request, if election.allows_remote_resign() && !resign_request.is_terminated() => {
                let successor = to.as_ref().map(|to| plain(to, 200));
                tracing::info!(group = &**election.group(), term = token.get(), successor, "asked to resign");
                election.emit(ElectionEvent::AskedToResign(token));
                if to.is_none_or(|to| term.transfer_to(&to).is_err()) {
                    term.resign();
                }
            }
            _ = &mut listens => {}
            result = &mut work => {
                let shut_down = shutdown.is_terminated();
                return match result {
                    Ok(Ok(())) if shut_down => End::ShutDown,
                    Ok(Ok(())) if resigning => End::Resigned,
                    Ok(Ok(())) => End::Done,
                    Ok(Err(error)) => End::Failed(Failure::Error(error)),
                    Err(panic) => End::Failed(Failure::Panic(panic)),
                };
            }
            () = env.sleep_until(step_down.stop_at) => {
                return if shutdown.is_terminated() { End::ShutDown } else { End::Resigned };
            }
        }
    }
}

/// The step-down of a term. The subscribers of the election's events get one report of each step-down.
struct StepDown {
    at: Option<BootTime>,
    /// The end of the grace period after the first shutdown or resignation.
    stop_at: BootTime,
}

impl StepDown {
    fn new() -> Self {
        Self { at: None, stop_at: BootTime::from_nanos(u64::MAX) }
    }

    /// Begins the grace period in which the work must end.
    fn begin(&mut self, election: &Election, term: &Term, now: BootTime) {
        self.stop_at = self.stop_at.min(now + election.grace());
        term.stop(self.stop_at);
        self.announce(election, term, now);
    }

    fn announce(&mut self, election: &Election, term: &Term, now: BootTime) {
        if self.at.is_none() {
            self.at = Some(now);
            election.emit(ElectionEvent::StepDown(term.unchecked_token()));
        }
    }
}
