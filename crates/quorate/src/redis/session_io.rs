//! The input and output of a session: its connection, the commands to write, and the replies to read.
//!
//! Either the session's driver or the session's own task carries the input and output on. The driver does so from
//! its first call of [`SharedIo::drive`] until the session is dropped. So a request and its reply need no other task.

use crate::node::{BatchReply, Cause, PushSender};
use crate::redis::{
    address::Login,
    pubsub::{PubSub, confirms},
    replies::Replies,
    resp::Value,
    server_facts::FactsReading,
    wire::{Output, Reader, Writer},
};
use std::{
    collections::VecDeque,
    mem,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker, ready},
};
use tokio::sync::oneshot;

/// A reply that the server has not sent yet.
pub(crate) enum PendingReply {
    /// The replies to the calls of a batch.
    Batch { replies: Replies, delivery: Delivery },
    /// The replies to the commands that read the facts about the server.
    Facts { reading: FactsReading, reply: oneshot::Sender<FactsReading> },
    /// The confirmation that a subscription has begun or ended. The server sends it as a push, or sends an error
    /// instead.
    Confirmation { begun: bool, channel: String },
}

/// Passes the pushes of a server on to the worker.
pub(crate) struct PushHandler {
    pub(crate) pubsub: PubSub,
    pub(crate) push_sender: PushSender,
}

/// The input and output of a session, shared by the session and its task.
pub(crate) struct SharedIo(Mutex<SessionIo>);

struct SessionIo {
    /// `None` once the connection has ended.
    connection: Option<(Reader, Writer)>,
    output: Output,
    pending: VecDeque<PendingReply>,
    pushes: PushHandler,
    /// The login of the connection. Its password is removed from every error of the server.
    login: Arc<Login>,
    /// The waker of the driver, if the driver carries the input and output on.
    driver: Option<Waker>,
    /// The waker of the session's task.
    task: Option<Waker>,
    /// True once the session was dropped. Then the sending direction is closed after the last command.
    is_dropped: bool,
    is_finished: bool,
}

impl SharedIo {
    pub(crate) fn new(connection: (Reader, Writer), pushes: PushHandler, login: Arc<Login>) -> Self {
        Self(Mutex::new(SessionIo {
            connection: Some(connection),
            output: Output::new(),
            pending: VecDeque::new(),
            pushes,
            login,
            driver: None,
            task: None,
            is_dropped: false,
            is_finished: false,
        }))
    }

    /// Queues commands, and the receiver of their replies. If the connection has ended, the receiver is dropped.
    pub(crate) fn submit(&self, bytes: Vec<u8>, pending: PendingReply) {
        let mut io = self.io();
        if io.has_ended() || io.is_dropped {
            return;
        }
        io.output.push(bytes);
        io.pending.push_back(pending);
        // A driver polls its session after each call, so it needs no waker.
        let task = if io.driver.is_none() { io.task.take() } else { None };
        drop(io);
        wake(task);
    }

    /// Queues commands like [`SharedIo::submit`], for a caller that is not the driver.
    pub(crate) fn submit_and_wake(&self, bytes: Vec<u8>, pending: PendingReply) {
        self.submit(bytes, pending);
        let driver = self.io().driver.clone();
        wake(driver);
    }

    /// Carries the input and output on, on behalf of the driver.
    pub(crate) fn drive(&self, context: &mut Context<'_>) {
        let mut io = self.io();
        if !io.driver.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
            io.driver = Some(context.waker().clone());
        }
        if io.poll(context).is_ready() {
            let task = io.task.take();
            drop(io);
            wake(task);
        }
    }

    /// Carries the input and output on, on behalf of the session's task. Ready once the connection has ended.
    pub(crate) fn poll_task(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut io = self.io();
        io.task = Some(context.waker().clone());
        match io.driver {
            Some(_) if io.has_ended() => Poll::Ready(()),
            Some(_) => Poll::Pending,
            None => io.poll(context),
        }
    }

    /// Notes that the session was dropped. Its task then sends what is queued.
    pub(crate) fn session_dropped(&self) {
        let mut io = self.io();
        (io.driver, io.is_dropped) = (None, true);
        let task = io.task.take();
        drop(io);
        wake(task);
    }

    /// Ends the connection. Pending requests are answered with `cause`.
    pub(crate) fn close(&self, cause: &Cause) {
        self.io().end(cause);
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.io().has_ended()
    }

    fn io(&self) -> MutexGuard<'_, SessionIo> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

impl SessionIo {
    fn has_ended(&self) -> bool {
        self.connection.is_none()
    }

    /// Reads and writes as much as possible. Ready once the connection has ended.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        // Reading comes first. So a reply that has arrived is delivered even if the connection has broken since.
        while let Poll::Ready(delivered) = self.poll_read(context) {
            if !delivered {
                self.end(&Cause::Closed);
                return Poll::Ready(());
            }
        }
        let Some((_, writer)) = &mut self.connection else { return Poll::Ready(()) };
        let mut written = writer.poll_send(&mut self.output, context);
        if self.is_dropped && !self.is_finished && matches!(written, Poll::Ready(Ok(()))) {
            // Replies may still arrive. The session ends when the server closes the connection.
            written = writer.poll_finish(context);
            self.is_finished = matches!(written, Poll::Ready(Ok(())));
        }
        if matches!(written, Poll::Ready(Err(_))) {
            self.end(&Cause::Closed);
            return Poll::Ready(());
        }
        Poll::Pending
    }

    /// Reads and delivers one value of the server. Returns false once the connection has ended.
    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<bool> {
        let Some((reader, _)) = &mut self.connection else { return Poll::Ready(false) };
        let arrived = ready!(reader.poll_arrived(context));
        let secret = self.login.secret();
        Poll::Ready(match arrived.and_then(|()| reader.take()) {
            Ok(value) => deliver(&value, &mut self.pending, &self.pushes, secret, context),
            Err(_) => false,
        })
    }

    fn end(&mut self, cause: &Cause) {
        self.connection = None;
        for pending in self.pending.drain(..) {
            // The other receivers get an error, because their senders are dropped.
            if let PendingReply::Batch { delivery, .. } = pending {
                delivery.fail(cause.clone());
            }
        }
    }
}

/// Delivers one value of the server to the first pending request. Returns false if no request explains the value.
fn deliver(
    value: &Value<'_>,
    pending: &mut VecDeque<PendingReply>,
    pushes: &PushHandler,
    secret: Option<&str>,
    context: &Context<'_>,
) -> bool {
    let is_answered = match (value, pending.front_mut()) {
        (Value::Push(data), first) => {
            if let Some(released) = pushes.pubsub.parse_release(data) {
                pushes.push_sender.push(released);
            }
            matches!(&first, Some(PendingReply::Confirmation { begun, channel }) if confirms(data, *begun, channel))
        }
        // The server refused the subscription, because the connection's user has no permission for it.
        // Waiters poll instead. `quorate doctor` reports the missing permission.
        (Value::Error(_), Some(PendingReply::Confirmation { .. })) => true,
        (value, Some(PendingReply::Facts { reading, .. })) => reading.add(value),
        (value, Some(PendingReply::Batch { replies, .. })) => {
            replies.add(value, secret);
            replies.is_complete()
        }
        (_, Some(PendingReply::Confirmation { .. }) | None) => return false,
    };
    match if is_answered { pending.pop_front() } else { None } {
        Some(PendingReply::Batch { replies, delivery }) => {
            delivery.deliver(replies.finish(secret), context.waker());
        }
        Some(PendingReply::Facts { reading, reply }) => {
            // The send fails if the caller has stopped waiting.
            let _ = reply.send(reading);
        }
        Some(PendingReply::Confirmation { .. }) | None => {}
    }
    true
}

/// Creates the two ends of a channel for the reply to one batch.
pub(crate) fn reply_slot() -> (Delivery, BatchReplyFuture) {
    let slot = Arc::new(Mutex::new(Slot::Waiting(None)));
    (Delivery(Arc::clone(&slot)), BatchReplyFuture(slot))
}

enum Slot {
    Waiting(Option<Waker>),
    Ready(Result<BatchReply, Cause>),
}

/// The sending end. If it is dropped, the reply is that the connection has closed.
pub(crate) struct Delivery(Arc<Mutex<Slot>>);

impl Delivery {
    /// Delivers the reply. `current` is the waker of the task that runs now. If that task waits for the reply
    /// itself, it is not woken, because it polls the reply after the input.
    fn deliver(self, reply: Result<BatchReply, Cause>, current: &Waker) {
        wake(self.set(reply).filter(|waker| !waker.will_wake(current)));
    }

    /// Delivers the cause for which there is no reply.
    fn fail(self, cause: Cause) {
        wake(self.set(Err(cause)));
    }

    fn set(&self, reply: Result<BatchReply, Cause>) -> Option<Waker> {
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match mem::replace(&mut *slot, Slot::Ready(reply)) {
            Slot::Waiting(waker) => waker,
            delivered @ Slot::Ready(_) => {
                *slot = delivered;
                None
            }
        }
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        wake(self.set(Err(Cause::Closed)));
    }
}

/// The reply to one batch.
pub(crate) struct BatchReplyFuture(Arc<Mutex<Slot>>);

impl Future for BatchReplyFuture {
    type Output = Result<BatchReply, Cause>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *slot {
            Slot::Waiting(waker) => {
                if !waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
                    *waker = Some(context.waker().clone());
                }
                Poll::Pending
            }
            Slot::Ready(reply) => Poll::Ready(mem::replace(reply, Err(Cause::Closed))),
        }
    }
}
