use crate::{
    driver::{
        core::{Command, Core},
        message::DriverMessage,
    },
    env::{BootTime, Env},
    node::{BatchReply, Cause, Freed, Hello, Node, Nudge, Push, Session},
};
use futures_util::{
    FutureExt, StreamExt,
    future::{BoxFuture, OptionFuture},
    stream::FuturesUnordered,
};
use std::{pin::pin, sync::Arc, time::Duration};
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

/// Requests taken from the mailbox at one go.
const MAIL_MAX: usize = 1024;

type OnFreed = Box<dyn Fn(&Freed, u32) + Send + Sync>;
type BatchEnd = BoxFuture<'static, (u64, Result<BatchReply, Cause>)>;
type SessionOpening<'a, S> = BoxFuture<'a, Result<(S, Hello), Cause>>;

/// The shell around one node's [`Core`]: owns the session, carries out commands, reports events.
pub(crate) struct Driver<'a, N: Node> {
    node: &'a N,
    env: &'a Env,
    core: Core,
    session: Option<N::Session>,
    opening: Option<SessionOpening<'a, N::Session>>,
    pushes: mpsc::Receiver<Push>,
    flying: FuturesUnordered<BatchEnd>,
}

/// Where a driver's mail comes from, and when it ends.
pub(crate) struct DriverChannels {
    pub(crate) mail: mpsc::UnboundedReceiver<DriverMessage>,
    /// Called when the node may have forgotten what it granted.
    pub(crate) on_lost_memory: Box<dyn Fn() + Send + Sync>,
    /// Called when the node has told of a release that somebody waits for.
    pub(crate) on_freed: OnFreed,
    /// Fires when another driver has written about its node.
    pub(crate) changes: Arc<Notify>,
    /// Asks the driver to flush and end.
    pub(crate) flush: CancellationToken,
    /// How long a flush may take.
    pub(crate) flush_for: Duration,
}

/// Serves one node until nobody can ask any more, or until a flush is asked for and done.
pub(crate) async fn drive<N: Node>(node: N, env: Env, core: Core, mut channels: DriverChannels) {
    let (_, pushes) = Nudge::channel();
    let mut driver = Driver {
        node: &node,
        env: &env,
        core,
        session: None,
        opening: None,
        pushes,
        flying: FuturesUnordered::new(),
    };
    let mut ends: Option<BootTime> = None;
    let mut alarm = Timer::new(&env);
    let mut flushed = pin!(channels.flush.clone().cancelled_owned());
    let mut mail = Vec::new();
    loop {
        let now = env.now();
        driver.act(now);
        if driver.core.take_lost_memory() {
            (channels.on_lost_memory)();
        }
        if ends.is_some_and(|at| now >= at || driver.core.is_idle()) {
            driver.core.stop(now);
            return;
        }
        let wake = driver.core.wake();
        alarm.set(ends.map_or(wake, |at| at.min(wake)));
        tokio::select! { biased;
            Some((in_flight, result)) = driver.flying.next() => driver.landed(in_flight, result),
            Some(opened) = OptionFuture::from(driver.opening.as_mut()) => driver.opened(opened),
            count = channels.mail.recv_many(&mut mail, MAIL_MAX), if ends.is_none() => {
                mail.drain(..).for_each(|mail| driver.core.enqueue(mail));
                if count == 0 {
                    ends = Some(env.now() + channels.flush_for);
                }
            }
            () = &mut flushed, if ends.is_none() => {
                channels.mail.close();
                while let Ok(mail) = channels.mail.try_recv() {
                    driver.core.enqueue(mail);
                }
                ends = Some(env.now() + channels.flush_for);
            }
            // Behind whatever else can be ready: a node that floods keeps nobody waiting.
            Some(push) = driver.pushes.recv(), if driver.session.is_some() => driver.pushed(push, &channels),
            () = channels.changes.notified(), if driver.core.awaits_others() => {}
            () = alarm.rings() => {}
        }
    }
}

/// A timer that is set again and again, nearly always to later than it is set already. Then it rings too early once,
/// which harms nothing, and costs less than a new timer each time.
struct Timer<'a> {
    env: &'a Env,
    set: Option<(BootTime, BoxFuture<'a, ()>)>,
}

impl<'a> Timer<'a> {
    fn new(env: &'a Env) -> Self {
        Self { env, set: None }
    }

    /// To ring at `at` at the latest.
    fn set(&mut self, at: BootTime) {
        if self.set.as_ref().is_none_or(|(set, _)| at < *set) {
            self.set = Some((at, self.env.sleep_until(at).boxed()));
        }
    }

    /// Waits for it.
    async fn rings(&mut self) {
        if let Some((_, timer)) = &mut self.set {
            timer.await;
        }
        self.set = None;
    }
}

impl<N: Node> Driver<'_, N> {
    fn act(&mut self, now: BootTime) {
        for command in self.core.step(now) {
            match command {
                Command::Open => {
                    let (nudge, pushes) = Nudge::channel();
                    self.pushes = pushes;
                    self.opening = Some(self.node.open(nudge).boxed());
                }
                Command::Close => self.hang_up(),
                Command::Listen(listen) => {
                    if let Some(session) = &mut self.session {
                        session.listen(listen);
                    }
                }
                Command::Send { in_flight, batch } => {
                    let Some(session) = &mut self.session else { continue };
                    let reply = session.send(batch);
                    self.flying.push(async move { (in_flight, reply.await) }.boxed());
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
        // The node may be one that is refused at its handshake.
        if !self.core.is_up() {
            self.hang_up();
        }
    }

    fn landed(&mut self, in_flight: u64, result: Result<BatchReply, Cause>) {
        self.core.replied(self.env.now(), in_flight, result);
        // The line broke, or what came over it was no answer.
        if !self.core.is_up() {
            self.hang_up();
        }
    }

    fn pushed(&mut self, push: Push, channels: &DriverChannels) {
        match push {
            Push::Released { freed, told } if self.core.wants(&freed.resource) => {
                (channels.on_freed)(&freed, told);
            }
            Push::Released { .. } => {}
            Push::Closed => {
                self.hang_up();
                self.core.closed(self.env.now(), Cause::Closed);
            }
        }
    }

    /// Late replies of the old session reach nobody: its flights have been answered for.
    fn hang_up(&mut self) {
        self.session = None;
        self.opening = None;
        self.flying = FuturesUnordered::new();
    }
}
