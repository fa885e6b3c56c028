//! The decisions of a driver. They form a state machine that uses no socket, no timer and no task.

mod batches;
mod probes;

use crate::{
    config::QuorumConfig,
    driver::{
        listening::ListenSet,
        message::{DriverMessage, InFlightBatch, PendingRequest},
    },
    env::BootTime,
    node::{Batch, BatchReply, Cause, Hello, Listen, Resource, StampStep},
    sabotage::Sabotage,
    trust::{ClockOffset, ClockStepDetector, NodeEpoch, NodeRegistry, NodeState, NodeTrust, TrustPolicy},
    vote::{Answer, ReplyTo, Vote},
};
use std::{collections::VecDeque, mem, sync::Arc, time::Duration};

/// The number of batches in a row without a reply after which the connection counts as dead. One batch is
/// enough if it writes a marker.
const TIMEOUTS_MAX: u32 = 3;
/// The maximum number of releases that a driver keeps for a node without a connection. If there are more, the
/// oldest are dropped. That is safe, since a key that is not released expires.
const RELEASES_MAX: usize = 100_000;
/// The time between two probes of a quarantined node. A probe shows whether an operator has ended the
/// quarantine. Also the time between two handshakes with a node that must not vote for a reason that may soon
/// end.
const PROBE_EVERY: Duration = Duration::from_secs(1);
/// The shortest and the longest time between two probes of a node that was late. The time doubles after each
/// probe, until the node answers promptly again.
const PROBE_LATE_EVERY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(3));
/// The time between two handshakes with a refused node. A handshake shows whether an operator has fixed the
/// node.
const RECONNECT_EVERY: Duration = Duration::from_secs(10);
/// The number of tests of a node in one `max_ttl`. They serve to notice a step of the node's clock, and that the node
/// refuses what leases need.
const TESTS: u32 = 3;
/// The longest time between two tests of a node. After a long time without a reply, the estimate of the node's
/// clock would be too inaccurate for [`QuorumConfig::fence`](crate::config::QuorumConfig::fence).
const TEST_AT_LEAST_EVERY: Duration = Duration::from_secs(10);
/// The time between the increase of a node's stamp and the request that reports to the node the new stamps of the other
/// nodes, which were increased at about the same time.
const TELL_AFTER: Duration = Duration::from_millis(100);
const BACKOFF_FIRST: Duration = Duration::from_millis(10);
const BACKOFF_MAX: Duration = Duration::from_secs(1);
const NEVER: BootTime = BootTime::from_nanos(u64::MAX);

/// An effect of the core's decisions, which the driver's task carries out.
#[derive(Debug)]
pub(crate) enum Command {
    /// Open a session.
    Open,
    /// Send a batch, and pass its reply to [`Core::replied`] with the id `in_flight`.
    Send { in_flight: u64, batch: Batch },
    /// Change the session's subscriptions.
    Listen(Listen),
    /// Drop the session with everything in flight, or the attempt to open one.
    Close,
}

/// The driver of one node, without its socket.
#[derive(Debug)]
pub(crate) struct Core {
    me: usize,
    policy: Arc<TrustPolicy>,
    registry: Arc<NodeRegistry>,
    queue: VecDeque<PendingRequest>,
    /// A time before which no queued request times out. Until then, the queue need not be searched for expired
    /// requests.
    queue_due: BootTime,
    in_flight: Vec<InFlightBatch>,
    next_batch: u64,
    /// The number of requests in the last batch.
    last_batch: usize,
    connection: Connection,
    node_trust: NodeTrust,
    offset: Option<ClockOffset>,
    /// Detects steps of the node's clock. `None` if leases on the node do not end by its wall clock. The
    /// detector is kept when a connection ends, because the clock may step before the next connection.
    steps: Option<ClockStepDetector>,
    /// The time of the handshake, or of the last probe or stamp after it.
    tested_at: BootTime,
    /// The number of batches in a row that timed out.
    timeouts: u32,
    backoff: Duration,
    /// The time before which no session is opened, because requests of the old session might still run on the node.
    fence: BootTime,
    /// Releases for a node without a connection, the oldest first.
    releases: VecDeque<PendingRequest>,
    /// The time of the next probe of a node that must not vote, or of the next handshake with it.
    probe_at: Option<BootTime>,
    /// The time of the next probe of a node that was late, and the pause after that probe. `None` for a prompt
    /// node.
    late_probe: Option<(BootTime, Duration)>,
    /// The time of the next request about stamps, and what it does. It is sent only while
    /// [`NodeTrust::stores_stamps`] returns true.
    next_stamp: (BootTime, StampStep),
    /// The largest stamp of the node that this worker knew of when it began to open the present session.
    stamp_at_open: u64,
    /// The resources for whose releases callers wait.
    listening: ListenSet,
    /// True until the first session can be used, or the first attempt to open one has failed. Until then
    /// requests wait, and their timeout has not begun.
    starting: bool,
}

#[derive(Debug)]
enum Connection {
    /// No session is open. A request is answered with `cause` at once. Before the first attempt to open a
    /// session, `cause` is `None`, and requests wait.
    Down { retry_at: BootTime, cause: Option<Cause> },
    /// A session is being opened. If it is the first one, `cause` is `None`, and requests wait. Otherwise a
    /// request is answered with `cause` at once.
    Opening { until: BootTime, began: BootTime, cause: Option<Cause> },
    /// A session is open.
    Up,
}

impl Connection {
    /// Returns the error with which requests are answered at once, if there is one. Such requests are not
    /// sent to the node.
    fn cause(&self) -> Option<&Cause> {
        match self {
            Self::Down { cause, .. } | Self::Opening { cause, .. } => cause.as_ref(),
            Self::Up => None,
        }
    }
}

impl Core {
    /// Creates the core of the driver of node `me`. `watch_clock` is true if a step of the node's clock may end
    /// leases early.
    pub(crate) fn new(
        me: usize,
        watch_clock: bool,
        policy: Arc<TrustPolicy>,
        registry: Arc<NodeRegistry>,
    ) -> Self {
        let config = &policy.config;
        let steps =
            ClockStepDetector::new(config.quarantine(), config.drift_rate, config.clock_step_allowance);
        Self {
            me,
            node_trust: NodeTrust::new(me, Arc::clone(&policy), Arc::clone(&registry)),
            policy,
            registry,
            queue: VecDeque::new(),
            queue_due: NEVER,
            in_flight: Vec::new(),
            next_batch: 0,
            last_batch: 0,
            connection: Connection::Down { retry_at: BootTime::default(), cause: None },
            offset: None,
            steps: watch_clock.then_some(steps),
            tested_at: BootTime::default(),
            timeouts: 0,
            backoff: BACKOFF_FIRST,
            fence: BootTime::default(),
            releases: VecDeque::new(),
            probe_at: None,
            late_probe: None,
            next_stamp: (BootTime::default(), StampStep::Advance),
            stamp_at_open: 0,
            listening: ListenSet::default(),
            starting: true,
        }
    }

    /// Accepts a message. This function never waits and never fails. A request is answered by its deadline at
    /// the latest.
    pub(crate) fn enqueue(&mut self, message: DriverMessage) {
        match message {
            DriverMessage::Request(pending) => self.push(pending),
            DriverMessage::Listen(listen) => self.listening.change(listen, self.is_up()),
            // The registry already shows that the node is late, and `Core::probe` reads that. The message only
            // wakes the driver.
            DriverMessage::Late => {}
        }
    }

    fn push(&mut self, pending: PendingRequest) {
        let due = pending.deadline;
        self.queue_due = if self.queue.is_empty() { due } else { self.queue_due.min(due) };
        self.queue.push_back(pending);
    }

    /// Returns whether a caller waits for a release of `resource`.
    pub(crate) fn listens_for(&self, resource: &Resource) -> bool {
        self.listening.contains(resource)
    }

    /// Handles the result of an attempt to open a session. The core may refuse the node. Then [`Core::is_up`]
    /// returns false afterwards, and the task drops the session.
    pub(crate) fn opened(&mut self, now: BootTime, result: Result<Hello, Cause>) {
        match result.and_then(|hello| refuse_volatile(&self.policy.config, hello)) {
            Ok(hello) => {
                let began = match self.connection {
                    Connection::Opening { began, .. } => began,
                    _ => now,
                };
                self.connection = Connection::Up;
                self.listening.connected();
                self.timeouts = 0;
                let sample = ClockOffset::sample(hello.node_time, began, now);
                self.registry.add_clock_sample(self.me, sample);
                self.offset = Some(sample);
                self.registry.set_round_trip(self.me, began.until(now));
                let node_time = hello.node_time;
                self.next_stamp = (now, StampStep::Advance);
                self.node_trust.connected(now, hello, self.stamp_at_open);
                self.tested_at = now;
                self.check_clock(node_time, began, now);
                // The releases are sent before all other requests, because they belong to attempts that are
                // over and may block others.
                self.releases.append(&mut self.queue);
                self.queue = mem::take(&mut self.releases);
                self.queue_due = BootTime::default();
            }
            Err(cause) => self.fail_connection(now, cause),
        }
    }

    /// Handles the end of the connection.
    pub(crate) fn closed(&mut self, now: BootTime, cause: Cause) {
        self.fail_connection(now, cause);
    }

    /// Handles the reply to a batch, or the reason why there is none.
    pub(crate) fn replied(&mut self, now: BootTime, id: u64, result: Result<BatchReply, Cause>) {
        let at = self.in_flight.iter().position(|batch| batch.id == id);
        match (result, at) {
            // The reply came too late. Its batch had timed out, and the callers were answered then.
            (Ok(_), None) => {}
            (Ok(reply), Some(at)) if !self.in_flight[at].is_answered_by(&reply) => {
                self.fail_connection(now, Cause::Protocol("a reply does not fit its request".into()));
            }
            (Ok(reply), Some(at)) => {
                let batch = self.in_flight.remove(at);
                self.timeouts = 0;
                // A handshake alone does not show that the node serves: a server may close each session after it.
                self.backoff = BACKOFF_FIRST;
                let took = batch.sent.until(now);
                self.registry.set_round_trip(self.me, took);
                self.registry.latencies().observe(self.me, took, self.policy.config.patience_max());
                let sample = ClockOffset::sample(reply.node_time, batch.sent, now);
                self.registry.add_clock_sample(self.me, sample);
                self.offset = Some(self.offset.map_or(sample, |known| known.refine(sample)));
                // The clock is checked before the votes are returned. If this reply shows a step of the clock,
                // its votes belong to the memory before the step, and must not count.
                self.check_clock(reply.node_time, batch.sent, now);
                self.on_reply(now, batch, reply);
            }
            (Err(cause), _) => self.fail_connection(now, cause),
        }
    }

    /// Returns whether the node's memory was lost since the last call of this function. If so, leases must no
    /// longer count the node's earlier grants.
    pub(crate) fn take_lost_memory(&mut self) -> bool {
        self.node_trust.take_lost_memory()
    }

    pub(crate) fn is_up(&self) -> bool {
        matches!(self.connection, Connection::Up)
    }

    /// Returns whether the driver waits for the first handshakes with other nodes. If so, [`Core::step`] must
    /// run again as soon as the registry of nodes changes.
    pub(crate) fn awaits_others(&self) -> bool {
        self.is_up() && self.node_trust.awaits_others()
    }

    /// Returns whether nothing is queued or in flight.
    pub(crate) fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.in_flight.is_empty() && self.releases.is_empty()
    }

    /// Ends the driver. Every caller that still waits is answered with an error.
    pub(crate) fn stop(&mut self, now: BootTime) {
        self.fail_connection(now, Cause::Stopped);
        self.connection = Connection::Down { retry_at: now, cause: Some(Cause::Stopped) };
        self.fail_queue();
    }

    /// Answers the requests that are due, and returns the commands for the task. The task calls this function
    /// after every event and at the time that [`Core::wake`] returns.
    pub(crate) fn step(&mut self, now: BootTime) -> Vec<Command> {
        let mut commands = Vec::new();
        self.expire(now, &mut commands);
        match &self.connection {
            Connection::Down { retry_at, .. } if now >= self.opens_at(*retry_at) => {
                let Connection::Down { cause, .. } = &mut self.connection else { return commands };
                let cause = cause.take();
                let until = now + self.open_timeout();
                self.connection = Connection::Opening { until, began: now, cause };
                self.stamp_at_open = self.registry.stamp(self.me);
                commands.push(Command::Open);
            }
            Connection::Opening { until, .. } if now >= *until => {
                commands.push(Command::Close);
                self.fail_connection(now, Cause::Unreachable("no handshake in time".into()));
            }
            _ => {}
        }
        if self.is_up() {
            // Subscriptions are sent before any batch. If a request of the batch finds the lock held, the node
            // then reports the release of that lock to this session.
            commands.extend(std::iter::from_fn(|| self.listening.next_change()).map(Command::Listen));
            self.evaluate_trust(now, &mut commands);
            self.end_start(now);
            self.probe(now, &mut commands);
            while self.is_up() && self.send_batch(now, &mut commands) {}
        } else {
            self.fail_queue();
            self.end_start(now);
        }
        commands
    }

    /// Returns the time at which the task must call [`Core::step`] if no event comes earlier.
    pub(crate) fn wake(&self) -> BootTime {
        let connection = match &self.connection {
            Connection::Down { retry_at, .. } => Some(self.opens_at(*retry_at)),
            Connection::Opening { until, .. } => Some(*until),
            Connection::Up => {
                let late_probe = self.late_probe.map(|(at, _)| at);
                let probes = self.probe_at.into_iter().chain(late_probe).chain(self.test_due());
                let probes = probes.chain(self.stamp_due());
                self.node_trust.wake().into_iter().chain(probes).min()
            }
        };
        let in_flight = self.in_flight.iter().map(|batch| batch.due);
        let releases = self.releases.front().map(|pending| pending.deadline);
        let queue = (!self.queue.is_empty() && !self.starting).then_some(self.queue_due);
        connection.into_iter().chain(in_flight).chain(releases).chain(queue).min().unwrap_or(NEVER)
    }

    /// Returns the time from which the next session may be opened. Until the time `fence`, the node may still
    /// execute requests of the last session.
    fn opens_at(&self, retry_at: BootTime) -> BootTime {
        if self.policy.config.sabotaged(Sabotage::NoFence) { retry_at } else { retry_at.max(self.fence) }
    }

    // --- connection -------------------------------------------------------------------------------------

    fn fail_connection(&mut self, now: BootTime, cause: Cause) {
        self.registry.set_state(self.me, NodeState::Unreachable(cause.clone()));
        self.disconnect(now, cause);
    }

    /// Ends the session. The registry keeps the node's state.
    fn disconnect(&mut self, now: BootTime, cause: Cause) {
        (self.probe_at, self.late_probe) = (None, None);
        self.listening.disconnected();
        for mut batch in mem::take(&mut self.in_flight) {
            let sent = Some(batch.sent);
            for pending in batch.take_pending() {
                self.fail(pending, sent, &cause);
            }
            self.answer(batch.trust_reply, sent, Answer::Failed(cause.clone()));
        }
        self.node_trust.disconnected();
        self.offset = None;
        self.connection = Connection::Down { retry_at: now + self.backoff, cause: Some(cause) };
        self.backoff = (self.backoff * 2).min(BACKOFF_MAX);
    }

    /// Answers the caller of requests that got no reply. A release is kept for the next session.
    fn fail(&mut self, mut pending: PendingRequest, sent: Option<BootTime>, cause: &Cause) {
        self.answer_all(&pending, sent, Answer::Failed(cause.clone()));
        pending.reply = None;
        if pending.is_release() {
            self.releases.push_back(pending);
        }
    }

    /// Answers every queued request at once if the node is known to be unreachable.
    fn fail_queue(&mut self) {
        let Some(cause) = self.connection.cause().cloned() else { return };
        for pending in mem::take(&mut self.queue) {
            self.fail(pending, None, &cause);
        }
        let excess = self.releases.len().saturating_sub(RELEASES_MAX);
        self.releases.drain(..excess);
    }

    fn open_timeout(&self) -> Duration {
        // A handshake takes several round trips, and more with TLS. Only the requests of the first round wait
        // for the handshake. The timeout of these requests begins after the handshake: see `Core::starting`.
        (self.policy.config.node_timeout * 2).max(Duration::from_secs(1))
    }

    // --- requests ---------------------------------------------------------------------------------------

    /// Sets `starting` to false once the first session can be used, or could not be opened. The requests that
    /// waited for the session then get the node timeout, from now on.
    fn end_start(&mut self, now: BootTime) {
        let waits = match &self.connection {
            Connection::Up => self.node_trust.is_unknown(),
            other => other.cause().is_none(),
        };
        if !self.starting || waits {
            return;
        }
        self.starting = false;
        let deadline = now + self.policy.config.node_timeout;
        for mut pending in mem::take(&mut self.queue) {
            let late = pending.deadline.until(now);
            if !late.is_zero()
                && let Some(requests) = &mut pending.requests
            {
                requests.sent_later(late + self.policy.config.node_timeout);
            }
            pending.deadline = pending.deadline.max(deadline);
            self.push(pending);
        }
    }

    /// Answers *timed out* to all callers whose deadline has passed.
    fn expire(&mut self, now: BootTime, commands: &mut Vec<Command>) {
        while self.releases.front().is_some_and(|pending| pending.deadline <= now) {
            self.releases.pop_front();
        }
        if !self.starting && !self.queue.is_empty() && self.queue_due <= now {
            self.queue_due = NEVER;
            for pending in mem::take(&mut self.queue) {
                if pending.deadline > now {
                    self.push(pending);
                } else {
                    self.answer_all(&pending, None, Answer::Failed(Cause::TimedOut));
                }
            }
        }
        let mut expired = Vec::new();
        for batch in self.in_flight.iter_mut().filter(|batch| batch.due <= now) {
            let is_expired =
                |pending: &mut PendingRequest| pending.deadline <= now && pending.reply.is_some();
            let taken = batch.messages.iter_mut().filter_map(|message| message.pending.take_if(is_expired));
            expired.extend(taken.map(|pending| (pending, batch.sent)));
            batch.due = batch.next_deadline();
        }
        for (pending, sent) in expired {
            self.answer_all(&pending, Some(sent), Answer::Failed(Cause::TimedOut));
        }
        self.expire_batches(now, commands);
    }

    fn expire_batches(&mut self, now: BootTime, commands: &mut Vec<Command>) {
        let expired = self.in_flight.iter().filter(|batch| batch.deadline <= now).count();
        if expired == 0 {
            return;
        }
        self.timeouts += u32::try_from(expired).unwrap_or(u32::MAX);
        self.registry.latencies().mark_late(self.me);
        let marker_expired =
            self.in_flight.iter().any(|batch| batch.deadline <= now && batch.marking.is_some());
        if self.timeouts >= TIMEOUTS_MAX || marker_expired {
            commands.push(Command::Close);
            self.fail_connection(now, Cause::TimedOut);
            return;
        }
        // The connection may be broken without an error. If the driver has nothing else to send, only the
        // timeouts of releases show that. So releases are sent again, although the node may still receive their
        // batch.
        for mut batch in mem::take(&mut self.in_flight) {
            if batch.deadline > now {
                self.in_flight.push(batch);
                continue;
            }
            for mut pending in batch.take_pending() {
                self.answer_all(&pending, Some(batch.sent), Answer::Failed(Cause::TimedOut));
                pending.reply = None;
                if pending.is_release() {
                    self.push(pending);
                }
            }
        }
    }

    /// Sends a vote to the caller of a single request.
    fn answer(&self, to: Option<ReplyTo>, sent: Option<BootTime>, answer: Answer) {
        let (memory, ticket) = (self.registry.node_epoch(self.me), to.as_ref().map_or(0, |to| to.ticket));
        self.answer_under(memory, to.as_ref(), (ticket, 1), sent, answer);
    }

    /// Sends one vote on all requests of a message.
    fn answer_all(&self, pending: &PendingRequest, sent: Option<BootTime>, answer: Answer) {
        let memory = self.registry.node_epoch(self.me);
        let (first, count) = (pending.reply.as_ref().map_or(0, |to| to.ticket), pending.count());
        self.answer_under(memory, pending.reply.as_ref(), (first, count), sent, answer);
    }

    /// Sends a vote on that many requests, from the one with `ticket` on, to the caller. The vote belongs to the memory
    /// epoch `memory`, which the node had when the requests were sent. The epoch may have ended since then.
    fn answer_under(
        &self,
        memory: NodeEpoch,
        to: Option<&ReplyTo>,
        (ticket, requests): (u64, u64),
        sent: Option<BootTime>,
        answer: Answer,
    ) {
        let Some(to) = to else { return };
        // The send fails if the caller no longer waits for the vote.
        let _ = to.sender.send(Vote { node: self.me, ticket, requests, sent, memory, answer });
    }
}

/// Refuses a node under `durable = true`, unless the node is known to write every change to its disk before it
/// replies. Under this setting, a restarted node votes without a quarantine. So it must not lose any grant.
fn refuse_volatile(config: &QuorumConfig, hello: Hello) -> Result<Hello, Cause> {
    if !config.durable || hello.durable == Some(true) {
        return Ok(hello);
    }
    let Some(why) = hello.volatile.as_deref() else {
        let why = "durable = true, and the server does not say yet whether every answered write is on its disk: it \
                   rewrites its append-only file; wait until the rewrite has ended";
        return Err(Cause::Unreachable(why.into()));
    };
    Err(Cause::Denied(format!("durable = true, but {why}; or set durable = false on every worker").into()))
}
