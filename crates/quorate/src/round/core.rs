//! What a driver does next, as a pure state machine: no socket, no timer, no task.

mod looks;

use super::{
    Answer, NodeState, Recall, ReplyTo, Sabotage, Setup, Vote,
    board::Board,
    flight::{Cargo, Errand, Flight, Mail, Post},
    offset::ClockOffset,
    standing::Standing,
    steps::StepWatch,
    trust::Judge,
    wanted::Wanted,
};
use crate::{
    env::BootTime,
    node::{Batch, BatchReply, Cause, Hello, Listen, NodeTime, Refusal, Reply, Request, Resource},
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
    /// Send a batch and bring back its reply under `flight`.
    Send { flight: u64, batch: Batch },
    /// Tell the session what to listen for.
    Listen(Listen),
    /// Drop the session and everything that flies on it, or the opening of one.
    Close,
}

/// One node's driver, without its socket.
#[derive(Debug)]
pub(crate) struct Core {
    me: usize,
    judge: Arc<Judge>,
    board: Arc<Board>,
    queue: VecDeque<Post>,
    /// Nothing in the queue is due before this: who looks before need not look at each.
    queue_due: BootTime,
    flights: Vec<Flight>,
    next_flight: u64,
    line: Line,
    standing: Standing,
    offset: Option<ClockOffset>,
    /// Whether its clock keeps step with ours, where leases end by it. Outlives a connection.
    steps: Option<StepWatch>,
    /// When it last said something, or was looked at.
    idle_since: BootTime,
    late: u32,
    back_off: Duration,
    /// No session may be opened before this: requests of the old one might still run.
    fence: BootTime,
    /// Releases for a node that is away, oldest first.
    kept: VecDeque<Post>,
    /// When to look again at a node whose vote is withheld.
    look_at: Option<BootTime>,
    /// Which releases somebody waits for.
    wanted: Wanted,
    /// No session has been open yet, nor has the first attempt at one failed: requests wait for it, and the time that a
    /// node has for them begins once it can be asked.
    starting: bool,
}

#[derive(Debug)]
enum Line {
    /// No session; `cause` answers whoever asks. Before the first attempt there is none.
    Down { retry_at: BootTime, cause: Option<Cause> },
    /// A session is being opened. Whoever asks waits if it is the first, else gets `cause`.
    Opening { until: BootTime, began: BootTime, cause: Option<Cause> },
    /// A session is open.
    Up,
}

impl Core {
    /// The driver of node `me`; `watched` where a step of its clock may end leases early.
    pub(crate) fn new(me: usize, watched: bool, judge: Arc<Judge>, board: Arc<Board>) -> Self {
        let setup = &judge.setup;
        let steps = StepWatch::new(setup.quarantine(), setup.drift_rate, setup.clock_step_allowance);
        Self {
            me,
            standing: Standing::new(me, Arc::clone(&judge), Arc::clone(&board)),
            judge,
            board,
            queue: VecDeque::new(),
            queue_due: FAR,
            flights: Vec::new(),
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
            wanted: Wanted::default(),
            starting: true,
        }
    }

    /// Takes a post, or a wish. Never waits, never fails: the answer comes by the post's deadline.
    pub(crate) fn enqueue(&mut self, mail: Mail) {
        match mail {
            Mail::Post(post) => self.queue_up(post),
            Mail::Listen(listen) => self.wanted.note(listen, matches!(self.line, Line::Up)),
        }
    }

    fn queue_up(&mut self, post: Post) {
        let due = post.deadline;
        self.queue_due = if self.queue.is_empty() { due } else { self.queue_due.min(due) };
        self.queue.push_back(post);
    }

    /// Whether somebody waits for `resource`.
    pub(crate) fn wants(&self, resource: &Resource) -> bool {
        self.wanted.has(resource)
    }

    /// Takes the result of an opening. The session is to be kept only where [`Core::is_up`] then.
    pub(crate) fn opened(&mut self, now: BootTime, result: Result<Hello, Cause>) {
        match result.and_then(|hello| refuse_volatile(&self.judge.setup, hello)) {
            Ok(hello) => {
                let began = match self.line {
                    Line::Opening { began, .. } => began,
                    _ => now,
                };
                self.line = Line::Up;
                self.wanted.met();
                self.late = 0;
                self.back_off = BACK_OFF_FIRST;
                let sample = ClockOffset::sample(hello.node_time, began, now);
                self.board.note_clock(self.me, sample);
                self.offset = Some(sample);
                self.board.set_round_trip(self.me, began.until(now));
                let node_time = hello.node_time;
                self.standing.met(now, hello);
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
        let flight = self.flights.iter().position(|flight| flight.id == id);
        match (result, flight) {
            // Too late: its posts have been answered.
            (Ok(_), None) => {}
            (Ok(reply), Some(at)) if !self.flights[at].fits(&reply) => {
                self.down(now, Cause::Protocol("it answered something else than was asked".into()));
            }
            (Ok(reply), Some(at)) => {
                let flight = self.flights.remove(at);
                self.late = 0;
                self.board.set_round_trip(self.me, flight.sent.until(now));
                let sample = ClockOffset::sample(reply.node_time, flight.sent, now);
                self.board.note_clock(self.me, sample);
                self.offset = Some(self.offset.map_or(sample, |known| known.refine(sample)));
                // First: a vote that shows a jump is a vote of the memory before it.
                self.watch(reply.node_time, flight.sent, now);
                self.land(now, flight, reply);
            }
            (Err(cause), _) => self.down(now, cause),
        }
    }

    /// Whether the node's memory was lost since the last call: leases must stop counting on it.
    pub(crate) fn take_lost_memory(&mut self) -> bool {
        self.standing.take_lost_memory()
    }

    /// Whether there is a session.
    pub(crate) fn is_up(&self) -> bool {
        matches!(self.line, Line::Up)
    }

    /// Whether [`Core::step`] may have something to do as soon as the board changes.
    pub(crate) fn awaits_others(&self) -> bool {
        matches!(self.line, Line::Up) && self.standing.awaits_others()
    }

    /// Whether nothing is queued or under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.flights.is_empty() && self.kept.is_empty()
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
                self.line = Line::Opening { until, began: now, cause };
                commands.push(Command::Open);
            }
            Line::Opening { until, .. } if now >= *until => {
                commands.push(Command::Close);
                self.down(now, Cause::Unreachable("no handshake in time".into()));
            }
            _ => {}
        }
        if matches!(self.line, Line::Up) {
            // Before any batch: what that finds held is told of when it is freed.
            commands.extend(std::iter::from_fn(|| self.wanted.next_untold()).map(Command::Listen));
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
            Line::Opening { until, .. } => Some(*until),
            Line::Up => self.standing.wake().into_iter().chain(self.look_at).chain(self.idle_until()).min(),
        };
        let flights = self.flights.iter().map(|flight| flight.due);
        let kept = self.kept.front().map(|post| post.deadline);
        let queue = (!self.queue.is_empty() && !self.starting).then_some(self.queue_due);
        line.into_iter().chain(flights).chain(kept).chain(queue).min().unwrap_or(FAR)
    }

    /// When the next session may be opened: requests of the last one may run until the fence.
    fn opens_at(&self, retry_at: BootTime) -> BootTime {
        if self.judge.setup.sabotaged(Sabotage::NoFence) { retry_at } else { retry_at.max(self.fence) }
    }

    // --- the line ---------------------------------------------------------------------------------------

    fn down(&mut self, now: BootTime, cause: Cause) {
        self.board.set_state(self.me, NodeState::Unreachable(cause.clone()));
        self.part(now, cause);
    }

    /// The session is over; the board still says how the node stands.
    fn part(&mut self, now: BootTime, cause: Cause) {
        self.look_at = None;
        self.wanted.parted();
        for flight in std::mem::take(&mut self.flights) {
            let sent = Some(flight.sent);
            match flight.cargo {
                Cargo::Posts(posts) => {
                    for post in posts.into_iter().flatten() {
                        self.bury(post, sent, &cause);
                    }
                }
                Cargo::Marker { admits, .. } => self.answer(admits, sent, Answer::Failed(cause.clone())),
                Cargo::Look => {}
            }
        }
        self.standing.parted();
        self.offset = None;
        self.line = Line::Down { retry_at: now + self.back_off, cause: Some(cause) };
        self.back_off = (self.back_off * 2).min(BACK_OFF_MAX);
    }

    /// A post whose flight is lost: its waiter hears, a release goes again on the next session.
    fn bury(&mut self, mut post: Post, sent: Option<BootTime>, cause: &Cause) {
        self.answer(post.reply.take(), sent, Answer::Failed(cause.clone()));
        if post.is_release() {
            self.kept.push_back(post);
        }
    }

    /// Whoever waits for a node that has been found away gets its cause at once.
    fn answer_for_the_absent(&mut self) {
        let cause = match &self.line {
            Line::Down { cause, .. } | Line::Opening { cause, .. } => cause.clone(),
            Line::Up => None,
        };
        let Some(cause) = cause else { return };
        for post in std::mem::take(&mut self.queue) {
            self.bury(post, None, &cause);
        }
        let over = self.kept.len().saturating_sub(RELEASES_MAX);
        self.kept.drain(..over);
    }

    fn open_timeout(&self) -> Duration {
        // A handshake is several round trips, with TLS more; a round never waits for it but the first time, when its own
        // time begins only afterwards: see `Core::starting`.
        (self.judge.setup.node_timeout * 2).max(Duration::from_secs(1))
    }

    // --- requests ---------------------------------------------------------------------------------------

    /// Sends one batch if there is one and room for it.
    fn send_batch(&mut self, now: BootTime, commands: &mut Vec<Command>) -> bool {
        if self.flights.len() >= FLIGHTS_MAX || self.queue.is_empty() {
            return false;
        }
        if self.standing.is_unknown() || self.marker_in_flight() {
            return false; // Nothing overtakes: an acquire must stay ahead of its release.
        }
        if self.judge.setup.sabotaged(Sabotage::ReleasesFirst) {
            self.queue.make_contiguous().sort_by_key(|post| !post.is_release());
        }
        let objection = self.standing.objection(now);
        let mut posts = Vec::new();
        let mut requests = Vec::new();
        while posts.len() < BATCH_MAX
            && let Some(post) = self.queue.pop_front()
        {
            match (&post.errand, &objection) {
                (Errand::Admit, _) if posts.is_empty() => {
                    self.admit(now, post.reply, commands);
                    return true;
                }
                (Errand::Admit, _) => {
                    self.queue.push_front(post);
                    break;
                }
                (Errand::Ask(request), Some(why)) if request.votes() => {
                    let why = why.clone();
                    self.answer(post.reply, None, Answer::Untrusted(why));
                }
                (Errand::Ask(request), _) => {
                    requests.push(request.clone());
                    posts.push(Some(post));
                }
            }
        }
        if !requests.is_empty() {
            self.send(now, requests, Cargo::Posts(posts), commands);
        }
        true
    }

    fn send(&mut self, now: BootTime, requests: Vec<Request>, cargo: Cargo, commands: &mut Vec<Command>) {
        let Some(offset) = self.offset else { return };
        let deadline = now + self.judge.setup.node_timeout;
        let stamp = self.standing.standing_marker().unwrap_or_default();
        if requests.iter().any(Request::sets_a_key) {
            self.fence = now + self.judge.setup.fence();
        }
        let mut batch = Batch { requests, not_after: offset.node_time_at_least(deadline), stamp };
        if self.judge.setup.sabotaged(Sabotage::NoNotAfter) {
            batch.not_after = NodeTime::from_micros(u64::MAX);
        }
        let id = self.next_flight;
        self.next_flight += 1;
        let memory = self.board.recall(self.me);
        let mut flight = Flight { id, sent: now, memory, deadline, due: deadline, cargo };
        flight.due = flight.next_deadline();
        self.flights.push(flight);
        commands.push(Command::Send { flight: id, batch });
    }

    fn land(&mut self, now: BootTime, flight: Flight, reply: BatchReply) {
        let late = self.judge.setup.sabotaged(Sabotage::ValidityFromReceipt);
        let sent = Some(if late { now } else { flight.sent });
        match flight.cargo {
            Cargo::Posts(posts) if posts.len() == reply.replies.len() => {
                for (post, answer) in posts.into_iter().zip(reply.replies) {
                    if let Reply::Refused(Refusal::Marker(marker)) = &answer {
                        self.standing.marker_changed(now, reply.node_time, marker.clone());
                    }
                    if let Some(post) = post {
                        self.answer_under(flight.memory, post.reply, sent, Answer::Reply(answer));
                    }
                }
            }
            Cargo::Posts(posts) => {
                let cause = Cause::Protocol("as many replies as requests were expected".into());
                for post in posts.into_iter().flatten() {
                    self.answer(post.reply, sent, Answer::Failed(cause.clone()));
                }
            }
            Cargo::Look => {
                if let Some(Reply::Refused(Refusal::Marker(standing))) = reply.replies.into_iter().next() {
                    self.standing.marker_changed(now, reply.node_time, standing);
                }
            }
            Cargo::Marker { marking, admits } => match reply.replies.into_iter().next() {
                Some(Reply::Marked) => {
                    self.standing.marked(now, marking);
                    self.answer(admits, sent, Answer::Reply(Reply::Marked));
                }
                Some(Reply::Refused(Refusal::Marker(standing))) => {
                    self.standing.marker_changed(now, reply.node_time, standing);
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
            Line::Down { cause, .. } | Line::Opening { cause, .. } => cause.is_none(),
            Line::Up => self.standing.is_unknown(),
        };
        if !self.starting || waits {
            return;
        }
        self.starting = false;
        let deadline = now + self.judge.setup.node_timeout;
        for mut post in std::mem::take(&mut self.queue) {
            let late = post.deadline.until(now);
            if !late.is_zero()
                && let Errand::Ask(request) = &mut post.errand
            {
                request.sent_later(late + self.judge.setup.node_timeout);
            }
            post.deadline = post.deadline.max(deadline);
            self.queue_up(post);
        }
    }

    /// Answers *timed out* for what is past its deadline.
    fn expire(&mut self, now: BootTime, commands: &mut Vec<Command>) {
        while self.kept.front().is_some_and(|post| post.deadline <= now) {
            self.kept.pop_front();
        }
        if !self.starting && !self.queue.is_empty() && self.queue_due <= now {
            self.queue_due = FAR;
            for post in std::mem::take(&mut self.queue) {
                if post.deadline > now {
                    self.queue_up(post);
                } else {
                    self.answer(post.reply, None, Answer::Failed(Cause::TimedOut));
                }
            }
        }
        let mut late = Vec::new();
        for flight in self.flights.iter_mut().filter(|flight| flight.due <= now) {
            if let Cargo::Posts(posts) = &mut flight.cargo {
                for entry in posts.iter_mut() {
                    if entry.as_ref().is_some_and(|post| post.deadline <= now && post.reply.is_some()) {
                        late.extend(entry.take().map(|post| (post, flight.sent)));
                    }
                }
            }
            flight.due = flight.next_deadline();
        }
        for (post, sent) in late {
            self.answer(post.reply, Some(sent), Answer::Failed(Cause::TimedOut));
        }
        self.drop_late_flights(now, commands);
    }

    fn drop_late_flights(&mut self, now: BootTime, commands: &mut Vec<Command>) {
        let late = self.flights.iter().filter(|flight| flight.deadline <= now).count();
        if late == 0 {
            return;
        }
        self.late += u32::try_from(late).unwrap_or(u32::MAX);
        let marker_late = self
            .flights
            .iter()
            .any(|flight| flight.deadline <= now && matches!(flight.cargo, Cargo::Marker { .. }));
        if self.late >= LATE_MAX || marker_late {
            commands.push(Command::Close);
            self.down(now, Cause::TimedOut);
        } else {
            // The batch stays on its way, in order before whatever follows; only its reply has no taker. Releases
            // go again: on a connection that is broken and does not say so, nothing else might ever follow.
            for flight in std::mem::take(&mut self.flights) {
                if flight.deadline > now {
                    self.flights.push(flight);
                } else if let Cargo::Posts(posts) = flight.cargo {
                    for mut post in posts.into_iter().flatten() {
                        self.answer(post.reply.take(), Some(flight.sent), Answer::Failed(Cause::TimedOut));
                        if post.is_release() {
                            self.queue_up(post);
                        }
                    }
                }
            }
        }
    }

    fn answer(&self, to: Option<ReplyTo>, sent: Option<BootTime>, answer: Answer) {
        let memory = self.board.recall(self.me);
        self.answer_under(memory, to, sent, answer);
    }

    /// Answers for the memory of the node that was asked, which may have ended since.
    fn answer_under(&self, memory: Recall, to: Option<ReplyTo>, sent: Option<BootTime>, answer: Answer) {
        let Some(to) = to else { return };
        // Whoever asked may have gone: a late vote has no taker.
        let _ = to.ballots.send(Vote { node: self.me, ticket: to.ticket, sent, memory, answer });
    }
}

/// Under `durable = true` refuses a node that is not known to have every answered write on its disk: what it granted
/// before a restart would be believed after it, though it may be lost.
fn refuse_volatile(setup: &Setup, hello: Hello) -> Result<Hello, Cause> {
    if !setup.durable || hello.durable == Some(true) {
        return Ok(hello);
    }
    let Some(why) = hello.volatile.as_deref() else {
        let why = "durable = true, and the server does not say yet whether every answered write is on its disk: it writes its \
                   append-only file anew; wait for that";
        return Err(Cause::Unreachable(why.into()));
    };
    Err(Cause::Denied(format!("durable = true, but {why}; or set durable = false on every worker").into()))
}
