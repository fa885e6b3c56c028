use crate::{
    node::Reply,
    vote::{Answer, Vote},
};
use std::{
    collections::VecDeque,
    future::poll_fn,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

/// Creates a channel of votes. Every acquire uses one, and every lease keeps one for some time. An `mpsc`
/// channel would need kilobytes for each lease, because it allocates room for 32 votes at once.
pub(crate) fn vote_channel() -> (VoteSender, VoteReceiver) {
    let state = State { votes: VecDeque::new(), senders: 1, receiver: None, unneeded: 0, closed: false };
    let shared = Arc::new(Mutex::new(state));
    (VoteSender(Arc::clone(&shared)), VoteReceiver(shared))
}

/// The sending end of a channel of votes. It never blocks.
#[derive(Debug)]
pub(crate) struct VoteSender(Arc<Mutex<State>>);

/// The receiving end of a channel of votes. Votes keep their order.
#[derive(Debug)]
pub(crate) struct VoteReceiver(Arc<Mutex<State>>);

/// The receiver to which a driver sends the votes on the requests of one message, and the number of the round. The
/// requests of a message have consecutive numbers.
#[derive(Clone, Debug)]
pub(crate) struct ReplyTo {
    pub(crate) sender: VoteSender,
    /// The number of the first request, which is copied to its vote.
    pub(crate) ticket: u64,
}

#[derive(Debug)]
struct State {
    votes: VecDeque<Vote>,
    /// The number of senders.
    senders: usize,
    /// The task that waits for a vote.
    receiver: Option<Waker>,
    /// The number of agreeing votes that need not wake the receiver.
    unneeded: usize,
    /// True once the receiver has been dropped.
    closed: bool,
}

impl VoteSender {
    /// Sends a vote, or returns it if the receiver has been dropped.
    pub(crate) fn send(&self, vote: Vote) -> Result<(), Box<Vote>> {
        let mut state = lock(&self.0);
        if state.closed {
            return Err(Box::new(vote));
        }
        let wakes = state.is_needed(&vote);
        state.votes.push_back(vote);
        let receiver = if wakes { state.receiver.take() } else { None };
        drop(state);
        if let Some(receiver) = receiver {
            receiver.wake();
        }
        Ok(())
    }
}

impl State {
    /// Returns whether this vote wakes the receiver.
    fn is_needed(&mut self, vote: &Vote) -> bool {
        if self.unneeded == 0 {
            return true;
        }
        let agrees = matches!(
            vote.answer,
            Answer::Reply(
                Reply::Granted { .. }
                    | Reply::Shared
                    | Reply::Released(_)
                    | Reply::Completed
                    | Reply::Written
                    | Reply::Kept
            )
        );
        if !agrees {
            self.unneeded = 0;
        } else if vote.sent.is_some() {
            self.unneeded -= 1;
        }
        !agrees
    }
}

impl Clone for VoteSender {
    fn clone(&self) -> Self {
        lock(&self.0).senders += 1;
        Self(Arc::clone(&self.0))
    }
}

impl Drop for VoteSender {
    fn drop(&mut self) {
        let mut state = lock(&self.0);
        state.senders -= 1;
        let receiver = if state.senders == 0 { state.receiver.take() } else { None };
        drop(state);
        if let Some(receiver) = receiver {
            receiver.wake();
        }
    }
}

impl VoteReceiver {
    /// Makes the channel wake the receiver only once `count` nodes have agreed, by votes on requests that were sent,
    /// or once any other vote has arrived. Votes that wait here count too, because the drivers may have answered
    /// before this call. The receiver still gets every vote.
    pub(crate) fn wake_after(&self, count: usize) {
        let mut state = lock(&self.0);
        state.unneeded = count.saturating_sub(1);
        let votes = std::mem::take(&mut state.votes);
        for vote in &votes {
            state.is_needed(vote);
        }
        state.votes = votes;
    }

    /// Returns the next vote, or `None` once every sender is gone and no vote is left.
    ///
    /// # Cancel safety
    /// Safe: no vote is lost.
    pub(crate) async fn recv(&mut self) -> Option<Vote> {
        poll_fn(|context| self.poll(context, VecDeque::pop_front)).await
    }

    /// Waits for votes and takes at most `most` of them. Returns their number: 0 once every sender is gone
    /// and no vote is left.
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

    /// Returns a vote if one has arrived, without waiting.
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
        if state.senders == 0 {
            return Poll::Ready(None);
        }
        if !state.receiver.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
            state.receiver = Some(context.waker().clone());
        }
        Poll::Pending
    }
}

impl Drop for VoteReceiver {
    fn drop(&mut self) {
        let mut state = lock(&self.0);
        state.closed = true;
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
    use crate::{env::BootTime, node::Cause, trust::NodeEpoch};
    use futures_util::FutureExt;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn vote(node: usize) -> Vote {
        Vote {
            node,
            ticket: 0,
            requests: 1,
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
    fn votes_keep_their_order_and_the_end_follows_the_last_sender() {
        let (sender_a, mut votes) = vote_channel();
        let sender_b = sender_a.clone();
        assert!(votes.recv().now_or_never().is_none());
        (0..3).for_each(|node| sender_a.send(vote(node)).unwrap());
        drop(sender_a);
        assert_eq!(votes.recv().now_or_never().unwrap().unwrap().node, 0);
        let mut some = Vec::new();
        assert_eq!(votes.recv_many(&mut some, 1).now_or_never(), Some(1));
        assert_eq!(votes.try_recv().unwrap().node, 2);
        assert!(votes.recv().now_or_never().is_none(), "one sender is left");
        drop(sender_b);
        assert!(votes.recv().now_or_never().unwrap().is_none());
        assert_eq!(votes.recv_many(&mut some, 9).now_or_never(), Some(0));
    }

    #[test]
    fn a_waiting_receiver_is_woken_by_a_vote_and_by_the_end() {
        let (sender, mut votes) = vote_channel();
        let count = Arc::new(Count(AtomicUsize::new(0)));
        let waker = Waker::from(Arc::clone(&count));
        let mut context = Context::from_waker(&waker);
        let woken = || count.0.load(Ordering::Relaxed);
        assert!(votes.recv().poll_unpin_pending(&mut context));
        sender.send(vote(0)).unwrap();
        assert_eq!(woken(), 1);
        assert!(votes.try_recv().is_some());
        assert!(votes.recv().poll_unpin_pending(&mut context));
        drop(sender);
        assert_eq!(woken(), 2);
    }

    #[test]
    fn a_receiver_that_needs_a_majority_is_woken_by_its_last_vote_or_by_any_other_vote() {
        let agrees = |sent: Option<u64>| Vote {
            sent: sent.map(BootTime::from_nanos),
            answer: Answer::Reply(Reply::Released(true)),
            ..vote(0)
        };
        let wakes = |votes: Vec<Vote>| {
            let (sender, mut receiver) = vote_channel();
            receiver.wake_after(3);
            let count = Arc::new(Count(AtomicUsize::new(0)));
            let waker = Waker::from(Arc::clone(&count));
            let mut context = Context::from_waker(&waker);
            let mut after = Vec::new();
            for vote in votes {
                assert!(receiver.recv().poll_unpin_pending(&mut context));
                sender.send(vote).unwrap();
                after.push(count.0.load(Ordering::Relaxed));
                assert!(receiver.try_recv().is_some());
            }
            after
        };
        let sent = || agrees(Some(1));
        assert_eq!(wakes(vec![sent(), sent(), sent(), sent()]), [0, 0, 1, 2]);
        assert_eq!(wakes(vec![agrees(None), agrees(None), sent(), sent(), sent()]), [0, 0, 0, 0, 1]);
        assert_eq!(wakes(vec![sent(), vote(1), sent()]), [0, 1, 2], "a node did not agree");
    }

    #[test]
    fn votes_that_came_before_the_receiver_said_how_many_it_needs_count() {
        let agrees = || Vote {
            sent: Some(BootTime::from_nanos(1)),
            answer: Answer::Reply(Reply::Released(true)),
            ..vote(0)
        };
        for early in 0..4 {
            let (sender, mut receiver) = vote_channel();
            (0..early).for_each(|_| sender.send(agrees()).unwrap());
            receiver.wake_after(3);
            while receiver.try_recv().is_some() {}
            let count = Arc::new(Count(AtomicUsize::new(0)));
            let waker = Waker::from(Arc::clone(&count));
            let mut context = Context::from_waker(&waker);
            for _ in early..3 {
                assert!(receiver.recv().poll_unpin_pending(&mut context));
                assert_eq!(count.0.load(Ordering::Relaxed), 0);
                sender.send(agrees()).unwrap();
                assert!(receiver.try_recv().is_some());
            }
            assert_eq!(count.0.load(Ordering::Relaxed), usize::from(early < 3), "{early} early votes");
        }
    }

    #[test]
    fn a_vote_without_a_receiver_is_returned() {
        let (sender, votes) = vote_channel();
        drop(votes);
        assert_eq!(sender.send(vote(4)).unwrap_err().node, 4);
    }

    trait PollPending: Future + Sized {
        fn poll_unpin_pending(self, context: &mut Context<'_>) -> bool {
            std::pin::pin!(self).poll(context).is_pending()
        }
    }

    impl<F: Future> PollPending for F {}
}
