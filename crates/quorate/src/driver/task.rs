use crate::{
    driver::{
        core::{Command, Core},
        message::DriverMessage,
        open_attempts::OpenAttempts,
    },
    env::{BootTime, Env},
    node::{BatchReply, Cause, Hello, Node, Push, PushSender, ReleasedLease, Session},
};
use futures_util::{
    FutureExt,
    future::{BoxFuture, OptionFuture},
};
use std::{
    future::poll_fn,
    pin::pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

/// The maximum number of messages taken from the mailbox at a time.
const MESSAGES_MAX: usize = 1024;
/// The number of times that a driver under load lets the other tasks run before it sends a batch. Each time,
/// replies arrive, wake tasks, and these tasks send their next requests. With two rounds, the calls are larger
/// and a cycle costs the servers about a fifth less than with one round. A third round gained nothing.
const GATHERING_ROUNDS: u32 = 2;

type OnRelease = Box<dyn Fn(&ReleasedLease, u32) + Send + Sync>;
type BatchReplyFuture = BoxFuture<'static, Result<BatchReply, Cause>>;
type SessionOpening<'a, S> = BoxFuture<'a, Result<(S, Hello), Cause>>;

/// The task of one driver. The task owns the session, carries out the commands of its [`Core`], and reports
/// events to the core.
pub(crate) struct Driver<'a, N: Node> {
    node: &'a N,
    env: &'a Env,
    core: Core,
    session: Option<N::Session>,
    opening: Option<SessionOpening<'a, N::Session>>,
    pushes: mpsc::Receiver<Push>,
    /// The batches in flight, by their ids, in the order of sending. There are few, so all of them are polled.
    replies: Vec<(u64, BatchReplyFuture)>,
}

/// The channels between a driver and its pool.
pub(crate) struct DriverChannels {
    pub(crate) messages: mpsc::UnboundedReceiver<DriverMessage>,
    /// Called when the node may have lost its grants.
    pub(crate) on_lost_memory: Box<dyn Fn() + Send + Sync>,
    /// Called when the node reports a release that a caller waits for.
    pub(crate) on_release: OnRelease,
    /// Notified when the registry's entry of another node has changed.
    pub(crate) changes: Arc<Notify>,
    /// Cancelled to make the driver send its pending requests and then end.
    pub(crate) flush: CancellationToken,
    /// The attempts whose releases a flush waits for.
    pub(crate) attempts: OpenAttempts,
    /// The longest time that a flush may take.
    pub(crate) flush_timeout: Duration,
}

/// The time between two looks at the open attempts during a flush.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Runs a driver: serves one node until the pool is dropped or requests a flush. Then sends the pending
/// requests, and those of the attempts that are open, and ends.
pub(crate) async fn drive<N: Node>(node: N, env: Env, core: Core, mut channels: DriverChannels) {
    let (_, pushes) = PushSender::channel();
    let mut driver =
        Driver { node: &node, env: &env, core, session: None, opening: None, pushes, replies: Vec::new() };
    let (mut ends, mut is_open) = (None::<BootTime>, true);
    let mut timer = Timer::new(&env);
    let mut flushed = pin!(channels.flush.clone().cancelled_owned());
    let mut messages = Vec::new();
    loop {
        for _ in 0..GATHERING_ROUNDS {
            if !driver.core.gathers() {
                break;
            }
            tokio::task::yield_now().await;
            while let Ok(message) = channels.messages.try_recv() {
                driver.core.enqueue(message);
            }
        }
        let now = env.now();
        driver.carry_out(now);
        if driver.core.take_lost_memory() {
            (channels.on_lost_memory)();
        }
        let is_late = ends.is_some_and(|at| now >= at);
        let is_done = ends.is_some() && driver.core.is_idle() && !(is_open && channels.attempts.any());
        if is_late || is_done {
            is_open = false;
            driver.close_mailbox(&mut channels).await;
            if is_late || driver.core.is_idle() {
                driver.core.stop(now);
                return;
            }
            continue;
        }
        let wake = driver.core.wake();
        let look_at = if driver.core.is_idle() { now + LOOK_EVERY } else { wake };
        timer.set(ends.map_or(wake, |at| at.min(wake).min(look_at)));
        tokio::select! { biased;
            (in_flight, result) = poll_fn(|context| poll_replies(&mut driver.session, &mut driver.replies, context)) => {
                driver.replied(in_flight, result);
            }
            Some(opened) = OptionFuture::from(driver.opening.as_mut()) => driver.opened(opened),
            count = channels.messages.recv_many(&mut messages, MESSAGES_MAX), if is_open => {
                messages.drain(..).for_each(|message| driver.core.enqueue(message));
                if count == 0 {
                    is_open = false;
                    ends = ends.or(Some(env.now() + channels.flush_timeout));
                }
            }
            () = &mut flushed, if ends.is_none() => ends = Some(env.now() + channels.flush_timeout),
            // Branches are polled in order. Replies and messages come before pushes, so a node that sends
            // many pushes does not delay them.
            Some(push) = driver.pushes.recv(), if driver.session.is_some() => driver.pushed(push, &channels),
            () = channels.changes.notified(), if driver.core.awaits_others() => {}
            () = timer.elapsed() => {}
        }
    }
}

/// Continues the input and output of the session, and polls for the reply to a batch.
fn poll_replies(
    session: &mut Option<impl Session>,
    replies: &mut Vec<(u64, BatchReplyFuture)>,
    context: &mut Context<'_>,
) -> Poll<(u64, Result<BatchReply, Cause>)> {
    if let Some(session) = session {
        session.poll_io(context);
    }
    for (at, (in_flight, reply)) in replies.iter_mut().enumerate() {
        if let Poll::Ready(result) = reply.as_mut().poll(context) {
            let in_flight = *in_flight;
            drop(replies.remove(at));
            return Poll::Ready((in_flight, result));
        }
    }
    Poll::Pending
}

/// A timer that is set very often, nearly always to a later time than before. A later time is only noted, and
/// the underlying timer stays as it is. So the timer may elapse too early once. That is harmless, and cheaper
/// than a new timer each time, unless the world [prefers exact timers](crate::env::World::prefers_exact_timers).
struct Timer<'a> {
    env: &'a Env,
    is_exact: bool,
    set: Option<(BootTime, BoxFuture<'a, ()>)>,
}

impl<'a> Timer<'a> {
    fn new(env: &'a Env) -> Self {
        Self { env, is_exact: env.world().prefers_exact_timers(), set: None }
    }

    /// Makes the timer elapse at `at` at the latest.
    fn set(&mut self, at: BootTime) {
        if self.set.as_ref().is_none_or(|(set, _)| at < *set || (self.is_exact && at != *set)) {
            self.set = Some((at, self.env.sleep_until(at).boxed()));
        }
    }

    /// Waits until the timer elapses.
    async fn elapsed(&mut self) {
        if let Some((_, timer)) = &mut self.set {
            timer.await;
        }
        self.set = None;
    }
}

impl<N: Node> Driver<'_, N> {
    fn carry_out(&mut self, now: BootTime) {
        for command in self.core.step(now) {
            match command {
                Command::Open => {
                    let (push_sender, pushes) = PushSender::channel();
                    self.pushes = pushes;
                    self.opening = Some(self.node.open(push_sender).boxed());
                }
                Command::Close => self.close(),
                Command::Listen(listen) => {
                    if let Some(session) = &mut self.session {
                        session.listen(listen);
                    }
                }
                Command::Send { in_flight, batch } => {
                    let Some(session) = &mut self.session else { continue };
                    let reply = session.send(batch);
                    self.replies.push((in_flight, reply.boxed()));
                }
            }
        }
    }

    fn opened(&mut self, result: Result<(N::Session, Hello), Cause>) {
        self.opening = None;
        let hello = result.map(|(session, hello)| {
            self.session = Some(session);
            hello
        });
        self.core.opened(self.env.now(), hello);
        self.core.compare_clocks(self.env.now(), self.env.wall());
        // The core may have refused the node because of its handshake. Then the session is not needed.
        if !self.core.is_up() {
            self.close();
        }
    }

    fn replied(&mut self, in_flight: u64, result: Result<BatchReply, Cause>) {
        self.core.replied(self.env.now(), in_flight, result);
        self.core.compare_clocks(self.env.now(), self.env.wall());
        // The core ends the session if the connection broke, or if the reply did not fit the request.
        if !self.core.is_up() {
            self.close();
        }
    }

    /// Closes the mailbox, and takes the messages that were sent before. A later request is answered by the pool.
    async fn close_mailbox(&mut self, channels: &mut DriverChannels) {
        channels.messages.close();
        // Unlike `try_recv`, this also receives a message that another thread is sending at this moment.
        while let Some(message) = channels.messages.recv().await {
            self.core.enqueue(message);
        }
    }

    fn pushed(&mut self, push: Push, channels: &DriverChannels) {
        match push {
            Push::Released { lease: freed, notified } if self.core.listens_for(&freed.resource) => {
                (channels.on_release)(&freed, notified);
            }
            Push::Released { .. } => {}
            Push::Closed(cause) => {
                self.close();
                self.core.closed(self.env.now(), cause);
            }
        }
    }

    /// Drops the session. Replies that arrive later are lost, but the core has already answered their callers.
    fn close(&mut self) {
        self.session = None;
        self.opening = None;
        self.replies.clear();
    }
}
