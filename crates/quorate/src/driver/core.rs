//! What a driver does next, as a pure state machine: no socket, no timer, no task.

mod probes;

use crate::{
    config::QuorumConfig,
    driver::{
        listening::ListenSet,
        message::{BatchContents, DriverMessage, InFlightBatch, Operation, PendingRequest},
    },
    env::BootTime,
    node::{Batch, BatchReply, Cause, Hello, Listen, NodeTime, Refusal, Reply, Request, Resource},
    sabotage::Sabotage,
    trust::{ClockOffset, ClockStepDetector, NodeEpoch, NodeRegistry, NodeState, NodeTrust, TrustPolicy},
    vote::{Answer, ReplyTo, Vote},
};
use std::{collections::VecDeque, sync::Arc, time::Duration};

/// Requests in one batch at most.
const BATCH_MAX: usize = 256;
/// Batches in flight at most: what arrives meanwhile travels together, and few bytes wait in a dead socket.
const FLIGHTS_MAX: usize = 2;
/// This many flights without a reply in a row are a dead connection.
const LATE_MAX: u32 = 3;
/// Releases kept for a node that is away; the oldest go first, and their keys end by their TTL.
const RELEASES_MAX: usize = 100_000;
/// How often a node in quarantine is asked whether its marker still says so: somebody may have admitted it.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often a node that was refused is met anew: somebody may have mended it.
const MEET_EVERY: Duration = Duration::from_secs(10);
/// A node that nobody asks anything is looked at this often in `max_ttl`, so that a jump of its clock shows.
const IDLE_PARTS: u32 = 3;
const BACK_OFF_FIRST: Duration = Duration::from_millis(10);
const BACK_OFF_MAX: Duration = Duration::from_secs(1);
/// Never.
const FAR: BootTime = BootTime::from_nanos(u64::MAX);

/// What the shell is to do.
#[derive(Debug)]
pub(crate) enum Command {
    /// Open a session.
    Open,
    /// Send a batch and bring back its reply under `in_flight`.
    Send { in_flight: u64, batch: Batch },
    /// Tell the session what to listen for.
    Listen(Listen),
    /// Drop the session and everything that flies on it, or the opening of one.
    Close,
}

/// One node's driver, without its socket.
#[derive(Debug)]
pub(crate) struct Core {
    me: usize,
    policy: Arc<TrustPolicy>,
    registry: Arc<NodeRegistry>,
    queue: VecDeque<PendingRequest>,
    /// Nothing in the queue is due before this: who looks before need not look at each.
    queue_due: BootTime,
    in_flight: Vec<InFlightBatch>,
    next_flight: u64,
    line: Line,
    node_trust: NodeTrust,
    offset: Option<ClockOffset>,
    /// Whether its clock keeps step with ours, where leases end by it. Outlives a connection.
    steps: Option<ClockStepDetector>,
    /// When it last said something, or was looked at.
    idle_since: BootTime,
    late: u32,
    back_off: Duration,
    /// No session may be opened before this: requests of the old one might still run.
    fence: BootTime,
    /// Releases for a node that is away, oldest first.
    kept: VecDeque<PendingRequest>,
    /// When to look again at a node whose vote is withheld.
    look_at: Option<BootTime>,
    /// Which releases somebody waits for.
    listening: ListenSet,
    /// No session has been open yet, nor has the first attempt at one failed: requests wait for it, and the time that a
    /// node has for them begins once it can be asked.
    starting: bool,
}

#[derive(Debug)]
enum Line {
    /// No session; `cause` answers whoever asks. Before the first attempt there is none.
    Down { retry_at: BootTime, cause: Option<Cause> },
    /// A session is being opened. Whoever asks waits if it is the first, else gets `cause`.
    SessionOpening { until: BootTime, began: BootTime, cause: Option<Cause> },
    /// A session is open.
    Up,
}

impl Core {
    /// The driver of node `me`; `watched` where a step of its clock may end leases early.
    pub(crate) fn new(
        me: usize,
        watched: bool,
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
            queue_due: FAR,
            in_flight: Vec::new(),
            next_flight: 0,
            line: Line::Down { retry_at: BootTime::default(), cause: None },
            offset: None,
            steps: watched.then_some(steps),
            idle_since: BootTime::default(),
            late: 0,
            back_off: BACK_OFF_FIRST,
            fence: BootTime::default(),
            kept: VecDeque::new(),
            look_at: None,
            listening: ListenSet::default(),
            starting: true,
        }
    }

    /// Takes a post, or a wish. Never waits, never fails: the answer comes by the post's deadline.
    pub(crate) fn enqueue(&mut self, mail: DriverMessage) {
        match mail {
            DriverMessage::PendingRequest(pending) => self.queue_up(pending),
            DriverMessage::Listen(listen) => self.listening.note(listen, matches!(self.line, Line::Up)),
        }
    }

    fn queue_up(&mut self, pending: PendingRequest) {
        let due = pending.deadline;
        self.queue_due = if self.queue.is_empty() { due } else { self.queue_due.min(due) };
        self.queue.push_back(pending);
    }

    /// Whether somebody waits for `resource`.
    pub(crate) fn wants(&self, resource: &Resource) -> bool {
        self.listening.has(resource)
    }

    /// Takes the result of an opening. The session is to be kept only where [`Core::is_up`] then.
    pub(crate) fn opened(&mut self, now: BootTime, result: Result<Hello, Cause>) {
        match result.and_then(|hello| refuse_volatile(&self.policy.config, hello)) {
            Ok(hello) => {
                let began = match self.line {
                    Line::SessionOpening { began, .. } => began,
                    _ => now,
                };
                self.line = Line::Up;
                self.listening.met();
                self.late = 0;
                self.back_off = BACK_OFF_FIRST;
                let sample = ClockOffset::sample(hello.node_time, began, now);
                self.registry.note_clock(self.me, sample);
                self.offset = Some(sample);
                self.registry.set_round_trip(self.me, began.until(now));
                let node_time = hello.node_time;
                self.node_trust.met(now, hello);
                self.watch(node_time, began, now);
                // What was waiting goes first: it belongs to attempts that are over.
                self.kept.append(&mut self.queue);
                self.queue = std::mem::take(&mut self.kept);
                self.queue_due = BootTime::default();
            }
            Err(cause) => self.down(now, cause),
        }
    }

    /// The connection broke.
    pub(crate) fn closed(&mut self, now: BootTime, cause: Cause) {
        self.down(now, cause);
    }

    /// A flight's reply, or why there is none.
    pub(crate) fn replied(&mut self, now: BootTime, id: u64, result: Result<BatchReply, Cause>) {
        let in_flight = self.in_flight.iter().position(|in_flight| in_flight.id == id);
        match (result, in_flight) {
            // Too late: its posts have been answered.
            (Ok(_), None) => {}
            (Ok(reply), Some(at)) if !self.in_flight[at].fits(&reply) => {
                self.down(now, Cause::Protocol("it answered something else than was asked".into()));
            }
            (Ok(reply), Some(at)) => {
                let in_flight = self.in_flight.remove(at);
                self.late = 0;
                self.registry.set_round_trip(self.me, in_flight.sent.until(now));
                let sample = ClockOffset::sample(reply.node_time, in_flight.sent, now);
                self.registry.note_clock(self.me, sample);
                self.offset = Some(self.offset.map_or(sample, |known| known.refine(sample)));
                // First: a vote that shows a jump is a vote of the memory before it.
                self.watch(reply.node_time, in_flight.sent, now);
                self.land(now, in_flight, reply);
            }
            (Err(cause), _) => self.down(now, cause),
        }
    }

    /// Whether the node's memory was lost since the last call: leases must stop counting on it.
    pub(crate) fn take_lost_memory(&mut self) -> bool {
        self.node_trust.take_lost_memory()
    }

    /// Whether there is a session.
    pub(crate) fn is_up(&self) -> bool {
        matches!(self.line, Line::Up)
    }

    /// Whether [`Core::step`] may have something to do as soon as the board changes.
    pub(crate) fn awaits_others(&self) -> bool {
        matches!(self.line, Line::Up) && self.node_trust.awaits_others()
    }

    /// Whether nothing is queued or under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.in_flight.is_empty() && self.kept.is_empty()
    }

    /// The driver ends: whoever still waits hears it. Every post with a waiter gets exactly one vote.
    pub(crate) fn stop(&mut self, now: BootTime) {
        self.down(now, Cause::Stopped);
        self.line = Line::Down { retry_at: now, cause: Some(Cause::Stopped) };
        self.answer_for_the_absent();
    }

    /// Answers what is due, and says what the shell must do. Call it after every event and at [`Core::wake`].
    pub(crate) fn step(&mut self, now: BootTime) -> Vec<Command> {
        let mut commands = Vec::new();
        self.expire(now, &mut commands);
        match &self.line {
            Line::Down { retry_at, .. } if now >= self.opens_at(*retry_at) => {
                let Line::Down { cause, .. } = &mut self.line else { return commands };
                let cause = cause.take();
                let until = now + self.open_timeout();
                self.line = Line::SessionOpening { until, began: now, cause };
                commands.push(Command::Open);
            }
            Line::SessionOpening { until, .. } if now >= *until => {
                commands.push(Command::Close);
                self.down(now, Cause::Unreachable("no handshake in time".into()));
            }
            _ => {}
        }
        if matches!(self.line, Line::Up) {
            // Before any batch: what that finds held is told of when it is freed.
            commands.extend(std::iter::from_fn(|| self.listening.next_untold()).map(Command::Listen));
            self.judge_standing(now, &mut commands);
            self.end_start(now);
            self.look_again(now, &mut commands);
            while matches!(self.line, Line::Up) && self.send_batch(now, &mut commands) {}
        } else {
            self.answer_for_the_absent();
            self.end_start(now);
        }
        commands
    }

    /// When [`Core::step`] has something to do, if nothing happens before.
    pub(crate) fn wake(&self) -> BootTime {
        let line = match &self.line {
            Line::Down { retry_at, .. } => Some(self.opens_at(*retry_at)),
            Line::SessionOpening { until, .. } => Some(*until),
            Line::Up => self.node_trust.wake().into_iter().chain(self.look_at).chain(self.idle_until()).min(),
        };
        let in_flight = self.in_flight.iter().map(|in_flight| in_flight.due);
        let kept = self.kept.front().map(|pending| pending.deadline);
        let queue = (!self.queue.is_empty() && !self.starting).then_some(self.queue_due);
        line.into_iter().chain(in_flight).chain(kept).chain(queue).min().unwrap_or(FAR)
    }

    /// When the next session may be opened: requests of the last one may run until the fence.
    fn opens_at(&self, retry_at: BootTime) -> BootTime {
        if self.policy.config.sabotaged(Sabotage::NoFence) { retry_at } else { retry_at.max(self.fence) }
    }

    // --- the line ---------------------------------------------------------------------------------------

    fn down(&mut self, now: BootTime, cause: Cause) {
        self.registry.set_state(self.me, NodeState::Unreachable(cause.clone()));
        self.disconnect(now, cause);
    }

    /// The session is over; the board still says how the node stands.
    fn disconnect(&mut self, now: BootTime, cause: Cause) {
        self.look_at = None;
        self.listening.parted();
        for in_flight in std::mem::take(&mut self.in_flight) {
            let sent = Some(in_flight.sent);
            match in_flight.contents {
                BatchContents::Requests(requests) => {
                    for pending in requests.into_iter().flatten() {
                        self.fail(pending, sent, &cause);
                    }
                }
                BatchContents::Marker { admits, .. } => {
                    self.answer(admits, sent, Answer::Failed(cause.clone()));
                }
                BatchContents::Probe => {}
            }
        }
        self.node_trust.parted();
        self.offset = None;
        self.line = Line::Down { retry_at: now + self.back_off, cause: Some(cause) };
        self.back_off = (self.back_off * 2).min(BACK_OFF_MAX);
    }

    /// A post whose flight is lost: its waiter hears, a release goes again on the next session.
    fn fail(&mut self, mut pending: PendingRequest, sent: Option<BootTime>, cause: &Cause) {
        self.answer(pending.reply.take(), sent, Answer::Failed(cause.clone()));
        if pending.is_release() {
            self.kept.push_back(pending);
        }
    }

    /// Whoever waits for a node that has been found away gets its cause at once.
    fn answer_for_the_absent(&mut self) {
        let cause = match &self.line {
            Line::Down { cause, .. } | Line::SessionOpening { cause, .. } => cause.clone(),
            Line::Up => None,
        };
        let Some(cause) = cause else { return };
        for pending in std::mem::take(&mut self.queue) {
            self.fail(pending, None, &cause);
        }
        let over = self.kept.len().saturating_sub(RELEASES_MAX);
        self.kept.drain(..over);
    }

    fn open_timeout(&self) -> Duration {
        // A handshake is several round trips, with TLS more; a round never waits for it but the first time, when its own
        // time begins only afterwards: see `Core::starting`.
        (self.policy.config.node_timeout * 2).max(Duration::from_secs(1))
    }

    // --- requests ---------------------------------------------------------------------------------------

    /// Sends one batch if there is one and room for it.
    fn send_batch(&mut self, now: BootTime, commands: &mut Vec<Command>) -> bool {
        if self.in_flight.len() >= FLIGHTS_MAX || self.queue.is_empty() {
            return false;
        }
        if self.node_trust.is_unknown() || self.marker_in_flight() {
            return false; // Nothing overtakes: an acquire must stay ahead of its release.
        }
        if self.policy.config.sabotaged(Sabotage::ReleasesFirst) {
            self.queue.make_contiguous().sort_by_key(|pending| !pending.is_release());
        }
        let objection = self.node_trust.objection(now);
        let mut requests = Vec::new();
        let mut sent = Vec::new();
        while requests.len() < BATCH_MAX
            && let Some(pending) = self.queue.pop_front()
        {
            match (&pending.operation, &objection) {
                (Operation::Admit, _) if requests.is_empty() => {
                    self.admit(now, pending.reply, commands);
                    return true;
                }
                (Operation::Admit, _) => {
                    self.queue.push_front(pending);
                    break;
                }
                (Operation::Ask(request), Some(why)) if request.votes() => {
                    let why = why.clone();
                    self.answer(pending.reply, None, Answer::Untrusted(why));
                }
                (Operation::Ask(request), _) => {
                    requests.push(request.clone());
                    sent.push(Some(pending));
                }
            }
        }
        if !requests.is_empty() {
            self.send(now, requests, BatchContents::Requests(sent), commands);
        }
        true
    }

    fn send(
        &mut self,
        now: BootTime,
        requests: Vec<Request>,
        contents: BatchContents,
        commands: &mut Vec<Command>,
    ) {
        let Some(offset) = self.offset else { return };
        let deadline = now + self.policy.config.node_timeout;
        let stamp = self.node_trust.standing_marker().unwrap_or_default();
        if requests.iter().any(Request::sets_a_key) {
            self.fence = now + self.policy.config.fence();
        }
        let mut batch = Batch { requests, not_after: offset.node_time_at_least(deadline), stamp };
        if self.policy.config.sabotaged(Sabotage::NoNotAfter) {
            batch.not_after = NodeTime::from_micros(u64::MAX);
        }
        let id = self.next_flight;
        self.next_flight += 1;
        let memory = self.registry.node_epoch(self.me);
        let mut in_flight = InFlightBatch { id, sent: now, memory, deadline, due: deadline, contents };
        in_flight.due = in_flight.next_deadline();
        self.in_flight.push(in_flight);
        commands.push(Command::Send { in_flight: id, batch });
    }

    fn land(&mut self, now: BootTime, in_flight: InFlightBatch, reply: BatchReply) {
        let late = self.policy.config.sabotaged(Sabotage::ValidityFromReceipt);
        let sent = Some(if late { now } else { in_flight.sent });
        match in_flight.contents {
            BatchContents::Requests(requests) if requests.len() == reply.replies.len() => {
                for (pending, answer) in requests.into_iter().zip(reply.replies) {
                    if let Reply::Refused(Refusal::Marker(marker)) = &answer {
                        self.node_trust.marker_changed(now, reply.node_time, marker.clone());
                    }
                    if let Some(pending) = pending {
                        self.answer_under(in_flight.memory, pending.reply, sent, Answer::Reply(answer));
                    }
                }
            }
            BatchContents::Requests(requests) => {
                let cause = Cause::Protocol("as many replies as requests were expected".into());
                for pending in requests.into_iter().flatten() {
                    self.answer(pending.reply, sent, Answer::Failed(cause.clone()));
                }
            }
            BatchContents::Probe => {
                if let Some(Reply::Refused(Refusal::Marker(node_trust))) = reply.replies.into_iter().next() {
                    self.node_trust.marker_changed(now, reply.node_time, node_trust);
                }
            }
            BatchContents::Marker { marking, admits } => match reply.replies.into_iter().next() {
                Some(Reply::Marked) => {
                    self.node_trust.marked(now, marking);
                    self.answer(admits, sent, Answer::Reply(Reply::Marked));
                }
                Some(Reply::Refused(Refusal::Marker(node_trust))) => {
                    self.node_trust.marker_changed(now, reply.node_time, node_trust);
                    self.answer(admits, sent, Answer::Failed(Cause::Closed));
                }
                // Too late, or the node failed: a new handshake tries again.
                other => {
                    let cause = match other {
                        Some(Reply::Refused(Refusal::Stale)) => Cause::TimedOut,
                        Some(Reply::Refused(why)) => {
                            Cause::Protocol(format!("the marker could not be written: {why}").into())
                        }
                        _ => Cause::Protocol("the marker was written, and answered by something else".into()),
                    };
                    self.answer(admits, sent, Answer::Failed(cause.clone()));
                    self.down(now, cause);
                }
            },
        }
    }

    /// Once the first session can be used, or there is none: what has waited for it has the node timeout from now on.
    fn end_start(&mut self, now: BootTime) {
        let waits = match &self.line {
            Line::Down { cause, .. } | Line::SessionOpening { cause, .. } => cause.is_none(),
            Line::Up => self.node_trust.is_unknown(),
        };
        if !self.starting || waits {
            return;
        }
        self.starting = false;
        let deadline = now + self.policy.config.node_timeout;
        for mut pending in std::mem::take(&mut self.queue) {
            let late = pending.deadline.until(now);
            if !late.is_zero()
                && let Operation::Ask(request) = &mut pending.operation
            {
                request.sent_later(late + self.policy.config.node_timeout);
            }
            pending.deadline = pending.deadline.max(deadline);
            self.queue_up(pending);
        }
    }

    /// Answers *timed out* for what is past its deadline.
    fn expire(&mut self, now: BootTime, commands: &mut Vec<Command>) {
        while self.kept.front().is_some_and(|pending| pending.deadline <= now) {
            self.kept.pop_front();
        }
        if !self.starting && !self.queue.is_empty() && self.queue_due <= now {
            self.queue_due = FAR;
            for pending in std::mem::take(&mut self.queue) {
                if pending.deadline > now {
                    self.queue_up(pending);
                } else {
                    self.answer(pending.reply, None, Answer::Failed(Cause::TimedOut));
                }
            }
        }
        let mut late = Vec::new();
        for in_flight in self.in_flight.iter_mut().filter(|in_flight| in_flight.due <= now) {
            if let BatchContents::Requests(requests) = &mut in_flight.contents {
                for entry in requests.iter_mut() {
                    if entry
                        .as_ref()
                        .is_some_and(|pending| pending.deadline <= now && pending.reply.is_some())
                    {
                        late.extend(entry.take().map(|pending| (pending, in_flight.sent)));
                    }
                }
            }
            in_flight.due = in_flight.next_deadline();
        }
        for (pending, sent) in late {
            self.answer(pending.reply, Some(sent), Answer::Failed(Cause::TimedOut));
        }
        self.drop_late_flights(now, commands);
    }

    fn drop_late_flights(&mut self, now: BootTime, commands: &mut Vec<Command>) {
        let late = self.in_flight.iter().filter(|in_flight| in_flight.deadline <= now).count();
        if late == 0 {
            return;
        }
        self.late += u32::try_from(late).unwrap_or(u32::MAX);
        let marker_late = self.in_flight.iter().any(|in_flight| {
            in_flight.deadline <= now && matches!(in_flight.contents, BatchContents::Marker { .. })
        });
        if self.late >= LATE_MAX || marker_late {
            commands.push(Command::Close);
            self.down(now, Cause::TimedOut);
        } else {
            // The batch stays on its way, in order before whatever follows; only its reply has no taker. Releases
            // go again: on a connection that is broken and does not say so, nothing else might ever follow.
            for in_flight in std::mem::take(&mut self.in_flight) {
                if in_flight.deadline > now {
                    self.in_flight.push(in_flight);
                } else if let BatchContents::Requests(requests) = in_flight.contents {
                    for mut pending in requests.into_iter().flatten() {
                        self.answer(
                            pending.reply.take(),
                            Some(in_flight.sent),
                            Answer::Failed(Cause::TimedOut),
                        );
                        if pending.is_release() {
                            self.queue_up(pending);
                        }
                    }
                }
            }
        }
    }

    fn answer(&self, to: Option<ReplyTo>, sent: Option<BootTime>, answer: Answer) {
        let memory = self.registry.node_epoch(self.me);
        self.answer_under(memory, to, sent, answer);
    }

    /// Answers for the memory of the node that was asked, which may have ended since.
    fn answer_under(&self, memory: NodeEpoch, to: Option<ReplyTo>, sent: Option<BootTime>, answer: Answer) {
        let Some(to) = to else { return };
        // Whoever asked may have gone: a late vote has no taker.
        let _ = to.sender.send(Vote { node: self.me, ticket: to.ticket, sent, memory, answer });
    }
}

/// Under `durable = true` refuses a node that is not known to have every answered write on its disk: what it granted
/// before a restart would be believed after it, though it may be lost.
fn refuse_volatile(config: &QuorumConfig, hello: Hello) -> Result<Hello, Cause> {
    if !config.durable || hello.durable == Some(true) {
        return Ok(hello);
    }
    let Some(why) = hello.volatile.as_deref() else {
        let why = "durable = true, and the server does not say yet whether every answered write is on its disk: it writes its \
                   append-only file anew; wait for that";
        return Err(Cause::Unreachable(why.into()));
    };
    Err(Cause::Denied(format!("durable = true, but {why}; or set durable = false on every worker").into()))
}
