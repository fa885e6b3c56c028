use crate::vote::Vote;
use std::{
    collections::VecDeque,
    future::poll_fn,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

/// A box for votes, and where they are taken out. Every acquire has one, and every lease for a while: an `mpsc` channel
/// would take room for 32 votes at once, which is kilobytes.
pub(crate) fn vote_channel() -> (VoteSender, VoteReceiver) {
    let state = State { votes: VecDeque::new(), boxes: 1, taker: None, taken_away: false };
    let shared = Arc::new(Mutex::new(state));
    (VoteSender(Arc::clone(&shared)), VoteReceiver(shared))
}

/// Where votes go in. Never blocks.
#[derive(Debug)]
pub(crate) struct VoteSender(Arc<Mutex<State>>);

/// Where votes come out, in the order in which they went in.
#[derive(Debug)]
pub(crate) struct VoteReceiver(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    votes: VecDeque<Vote>,
    /// How many can still put one in.
    boxes: usize,
    /// Who waits for one.
    taker: Option<Waker>,
    /// Nobody takes them out any more.
    taken_away: bool,
}

impl VoteSender {
    /// Puts a vote in, or gives it back where nobody counts any more.
    pub(crate) fn send(&self, vote: Vote) -> Result<(), Box<Vote>> {
        let mut state = lock(&self.0);
        if state.taken_away {
            return Err(Box::new(vote));
        }
        state.votes.push_back(vote);
        let taker = state.taker.take();
        drop(state);
        if let Some(taker) = taker {
            taker.wake();
        }
        Ok(())
    }
}

impl Clone for VoteSender {
    fn clone(&self) -> Self {
        lock(&self.0).boxes += 1;
        Self(Arc::clone(&self.0))
    }
}

impl Drop for VoteSender {
    fn drop(&mut self) {
        let mut state = lock(&self.0);
        state.boxes -= 1;
        let taker = if state.boxes == 0 { state.taker.take() } else { None };
        drop(state);
        if let Some(taker) = taker {
            taker.wake();
        }
    }
}

impl VoteReceiver {
    /// The next vote; `None` once none can come.
    ///
    /// # Cancel safety
    /// Safe: no vote is lost.
    pub(crate) async fn recv(&mut self) -> Option<Vote> {
        poll_fn(|context| self.poll(context, VecDeque::pop_front)).await
    }

    /// Takes `most` votes at most, once there is one, and says how many; none once none can come.
    ///
    /// # Cancel safety
    /// Safe: no vote is lost.
    pub(crate) async fn recv_many(&mut self, into: &mut Vec<Vote>, most: usize) -> usize {
        let some = |votes: &mut VecDeque<Vote>| {
            let count = most.min(votes.len());
            into.extend(votes.drain(..count));
            (count > 0).then_some(count)
        };
        let mut some = some;
        poll_fn(|context| self.poll(context, &mut some)).await.unwrap_or(0)
    }

    /// A vote that is there.
    pub(crate) fn try_recv(&mut self) -> Option<Vote> {
        lock(&self.0).votes.pop_front()
    }

    fn poll<T>(
        &self,
        context: &Context<'_>,
        take: impl FnOnce(&mut VecDeque<Vote>) -> Option<T>,
    ) -> Poll<Option<T>> {
        let mut state = lock(&self.0);
        if let Some(taken) = take(&mut state.votes) {
            return Poll::Ready(Some(taken));
        }
        if state.boxes == 0 {
            return Poll::Ready(None);
        }
        if !state.taker.as_ref().is_some_and(|taker| taker.will_wake(context.waker())) {
            state.taker = Some(context.waker().clone());
        }
        Poll::Pending
    }
}

impl Drop for VoteReceiver {
    fn drop(&mut self) {
        let mut state = lock(&self.0);
        state.taken_away = true;
        let votes = std::mem::take(&mut state.votes);
        drop(state);
        drop(votes);
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{node::Cause, trust::NodeEpoch, vote::Answer};
    use futures_util::FutureExt;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn vote(node: usize) -> Vote {
        Vote {
            node,
            ticket: 0,
            sent: None,
            memory: NodeEpoch::default(),
            answer: Answer::Failed(Cause::Closed),
        }
    }

    struct Count(AtomicUsize);

    impl std::task::Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn votes_come_out_in_order_and_an_end_follows_the_last_box() {
        let (box_a, mut votes) = vote_channel();
        let box_b = box_a.clone();
        assert!(votes.recv().now_or_never().is_none());
        (0..3).for_each(|node| box_a.send(vote(node)).unwrap());
        drop(box_a);
        assert_eq!(votes.recv().now_or_never().unwrap().unwrap().node, 0);
        let mut some = Vec::new();
        assert_eq!(votes.recv_many(&mut some, 1).now_or_never(), Some(1));
        assert_eq!(votes.try_recv().unwrap().node, 2);
        assert!(votes.recv().now_or_never().is_none(), "one box is left");
        drop(box_b);
        assert!(votes.recv().now_or_never().unwrap().is_none());
        assert_eq!(votes.recv_many(&mut some, 9).now_or_never(), Some(0));
    }

    #[test]
    fn who_waits_is_woken_by_a_vote_and_by_the_end() {
        let (ballot_box, mut votes) = vote_channel();
        let count = Arc::new(Count(AtomicUsize::new(0)));
        let waker = Waker::from(Arc::clone(&count));
        let mut context = Context::from_waker(&waker);
        let woken = || count.0.load(Ordering::Relaxed);
        assert!(votes.recv().poll_unpin_pending(&mut context));
        ballot_box.send(vote(0)).unwrap();
        assert_eq!(woken(), 1);
        assert!(votes.try_recv().is_some());
        assert!(votes.recv().poll_unpin_pending(&mut context));
        drop(ballot_box);
        assert_eq!(woken(), 2);
    }

    #[test]
    fn a_vote_that_nobody_counts_is_given_back() {
        let (ballot_box, votes) = vote_channel();
        drop(votes);
        assert_eq!(ballot_box.send(vote(4)).unwrap_err().node, 4);
    }

    trait PollPending: Future + Sized {
        fn poll_unpin_pending(self, context: &mut Context<'_>) -> bool {
            std::pin::pin!(self).poll(context).is_pending()
        }
    }

    impl<F: Future> PollPending for F {}
}
