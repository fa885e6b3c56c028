//! The input and output of a session: its connection, the commands to write, and the replies to read.
//!
//! Either the session's driver or the session's own task carries the input and output on. The driver does so from
//! its first call of [`SharedIo::drive`] until the session is dropped. So a request and its reply need no other task.

use crate::{
    address::Secret,
    ledger_page::LaterPage,
    pubsub::{PubSub, confirms},
    reply::{ExpectedReply, Replies},
    short_reply,
    wire::{Output, Reader, Writer},
};
use quorate::node::{BatchReply, Cause, PushSender};
use redis::Value;
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
    /// The replies to `count` other commands.
    Values { count: usize, values: Vec<Value>, reply: oneshot::Sender<Vec<Value>> },
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
    /// The password of the connection. It is removed from every error of the server.
    password: Option<Arc<Secret>>,
    /// The waker of the driver, if the driver carries the input and output on.
    driver: Option<Waker>,
    /// The waker of the session's task.
    task: Option<Waker>,
    /// True once the session was dropped. Then the sending direction is closed after the last command.
    is_dropped: bool,
    is_finished: bool,
}

impl SharedIo {
    pub(crate) fn new(
        connection: (Reader, Writer),
        pushes: PushHandler,
        password: Option<Arc<Secret>>,
    ) -> Self {
        Self(Mutex::new(SessionIo {
            connection: Some(connection),
            output: Output::new(),
            pending: VecDeque::new(),
            pushes,
            password,
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
        if let Some(PendingReply::Batch { replies, .. }) = self.pending.front_mut()
            && let Some((expected, into)) = replies.next_expected()
        {
            let is_parsed = match expected {
                ExpectedReply::Items(items) => {
                    let parse = |bytes: &[u8]| short_reply::parse(bytes, items, into);
                    ready!(reader.poll_parsed(context, parse)).map(|node_time| replies.parsed(node_time))
                }
                ExpectedReply::Page => {
                    let page = ready!(reader.poll_parsed(context, LaterPage::parse_bytes));
                    page.map(|page| replies.page_parsed(page))
                }
            };
            if is_parsed.is_some() {
                self.deliver_batch(context);
                return Poll::Ready(true);
            }
        }
        let value = ready!(reader.poll_next(context));
        Poll::Ready(value.is_ok_and(|value| self.deliver(value, context)))
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

    /// Delivers one value of the server. Returns false if no request explains it.
    fn deliver(&mut self, value: Value, context: &Context<'_>) -> bool {
        match (value, self.pending.front_mut()) {
            (Value::Push { kind, data }, first) => {
                let confirmed = matches!(&first, Some(PendingReply::Confirmation { begun, channel })
                    if confirms(&kind, &data, *begun, channel));
                if confirmed {
                    self.pending.pop_front();
                }
                if let Some(released) = self.pushes.pubsub.parse_release(&kind, &data) {
                    self.pushes.push_sender.push(released);
                }
            }
            // The server refused the subscription, because the connection's user has no permission for it.
            // Waiters poll instead. `quorate doctor` reports the missing permission.
            (Value::ServerError(_), Some(PendingReply::Confirmation { .. })) => {
                self.pending.pop_front();
            }
            (value, Some(PendingReply::Values { count, values, .. })) => {
                values.push(value);
                if values.len() == *count
                    && let Some(PendingReply::Values { values, reply, .. }) = self.pending.pop_front()
                {
                    // The send fails if the caller has stopped waiting.
                    let _ = reply.send(values);
                }
            }
            (value, Some(PendingReply::Batch { replies, .. })) => {
                replies.add(value, self.password.as_deref().map(Secret::reveal));
                self.deliver_batch(context);
            }
            (_, Some(PendingReply::Confirmation { .. }) | None) => return false,
        }
        true
    }

    /// Delivers the replies to the first batch if all of them have arrived.
    fn deliver_batch(&mut self, context: &Context<'_>) {
        match self.pending.pop_front() {
            Some(PendingReply::Batch { replies, delivery }) if replies.is_complete() => {
                let reply = replies.finish(self.password.as_deref().map(Secret::reveal));
                delivery.deliver(reply, context.waker());
            }
            Some(first) => self.pending.push_front(first),
            None => {}
        }
    }
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
