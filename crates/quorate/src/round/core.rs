//! What a driver does next, as a pure state machine: no socket, no timer, no task.

use super::{
    Answer, Distrust, Marker, NodeState, QuarantineReason, ReplyTo, Vote,
    board::Board,
    offset::ClockOffset,
    trust::{Judge, Judgement},
};
use crate::{
    env::BootTime,
    node::{Batch, BatchReply, Cause, Hello, NodeTime, Refusal, Reply, Request},
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
const BACK_OFF_FIRST: Duration = Duration::from_millis(10);
const BACK_OFF_MAX: Duration = Duration::from_secs(1);

/// Something for a node to do.
#[derive(Debug)]
pub(crate) struct Post {
    pub(crate) errand: Errand,
    /// When the answer is of no more use; for a release, when its key has ended anyway.
    pub(crate) deadline: BootTime,
    /// Who waits. A release goes on without its waiter.
    pub(crate) reply: Option<ReplyTo>,
}

impl Post {
    fn is_release(&self) -> bool {
        matches!(self.errand, Errand::Ask(Request::Release { .. }))
    }
}

/// What a post asks for.
#[derive(Debug)]
pub(crate) enum Errand {
    /// A request to the node.
    Ask(Request),
    /// End the node's quarantine in its marker.
    Admit,
}

/// What the shell is to do.
#[derive(Debug)]
pub(crate) enum Command {
    /// Open a session.
    Open,
    /// Send a batch and bring back its reply under `flight`.
    Send { flight: u64, batch: Batch },
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
    flights: Vec<Flight>,
    next_flight: u64,
    line: Line,
    standing: Standing,
    /// The memory whose votes are being counted: its beginning, by the node's clock.
    memory: Option<Marker>,
    hello: Option<Hello>,
    offset: Option<ClockOffset>,
    late: u32,
    back_off: Duration,
    /// No session may be opened before this: requests of the old one might still run.
    fence: BootTime,
    /// Releases for a node that is away, oldest first.
    kept: VecDeque<Post>,
    /// Releases of batches whose reply came too late; the next reply on this session confirms them.
    unconfirmed: Vec<Post>,
    lost_memory: bool,
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

/// Whether the node may vote.
#[derive(Debug)]
enum Standing {
    /// Being found out: voting requests wait.
    Unknown,
    /// Not yet or not at all.
    Untrusted { until: Option<BootTime>, why: Distrust },
    /// Yes.
    Trusted,
}

#[derive(Debug)]
struct Flight {
    id: u64,
    sent: BootTime,
    deadline: BootTime,
    cargo: Cargo,
}

#[derive(Debug)]
enum Cargo {
    /// In the order of the batch; an entry that has been answered is `None`.
    Posts(Vec<Option<Post>>),
    /// A marker on its way, and what holds once it stands.
    Marker { marker: Marker, from: BootTime, reason: QuarantineReason, admits: Option<ReplyTo> },
}

impl Core {
    pub(crate) fn new(me: usize, judge: Arc<Judge>, board: Arc<Board>) -> Self {
        Self {
            me,
            judge,
            board,
            queue: VecDeque::new(),
            flights: Vec::new(),
            next_flight: 0,
            line: Line::Down { retry_at: BootTime::default(), cause: None },
            standing: Standing::Unknown,
            memory: None,
            hello: None,
            offset: None,
            late: 0,
            back_off: BACK_OFF_FIRST,
            fence: BootTime::default(),
            kept: VecDeque::new(),
            unconfirmed: Vec::new(),
            lost_memory: false,
        }
    }

    /// Takes a post. Never waits, never fails: the answer comes by the post's deadline.
    pub(crate) fn enqueue(&mut self, post: Post) {
        self.queue.push_back(post);
    }

    /// The session is open, or not.
    pub(crate) fn opened(&mut self, now: BootTime, result: Result<Hello, Cause>) {
        match result {
            Ok(hello) => {
                let began = match self.line {
                    Line::Opening { began, .. } => began,
                    _ => now,
                };
                self.line = Line::Up;
                self.late = 0;
                self.back_off = BACK_OFF_FIRST;
                self.offset = Some(ClockOffset::sample(hello.node_time, began, now));
                self.board.set_round_trip(self.me, began.until(now));
                self.board.met(self.me, &hello.run_id, &hello.version);
                self.standing = Standing::Unknown;
                self.hello = Some(hello);
                // What was waiting goes first: it belongs to attempts that are over.
                self.kept.append(&mut self.queue);
                self.queue = std::mem::take(&mut self.kept);
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
            (Ok(reply), Some(at)) => {
                let flight = self.flights.remove(at);
                self.late = 0;
                self.unconfirmed.clear();
                self.board.set_round_trip(self.me, flight.sent.until(now));
                let sample = ClockOffset::sample(reply.node_time, flight.sent, now);
                self.offset = Some(self.offset.map_or(sample, |known| known.refine(sample)));
                self.land(now, flight, reply);
            }
            (Err(cause), _) => self.down(now, cause),
        }
    }

    /// Whether the node's memory was lost since the last call: leases must stop counting on it.
    pub(crate) fn take_lost_memory(&mut self) -> bool {
        std::mem::take(&mut self.lost_memory)
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
            Line::Down { retry_at, .. } if now >= (*retry_at).max(self.fence) => {
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
            self.judge_if_unknown(now, &mut commands);
            self.become_trusted(now);
            while self.send_batch(now, &mut commands) {}
        } else {
            self.answer_for_the_absent();
        }
        commands
    }

    /// When [`Core::step`] has something to do, if nothing happens before.
    pub(crate) fn wake(&self) -> BootTime {
        let line = match &self.line {
            Line::Down { retry_at, .. } => Some((*retry_at).max(self.fence)),
            Line::Opening { until, .. } => Some(*until),
            Line::Up => match &self.standing {
                Standing::Untrusted { until, .. } => *until,
                _ => None,
            },
        };
        let flights = self.flights.iter().map(Flight::next_deadline);
        let kept = self.kept.front().map(|post| post.deadline);
        let queue = self.queue.iter().map(|post| post.deadline);
        let far = BootTime::from_nanos(u64::MAX);
        line.into_iter().chain(flights).chain(kept).chain(queue.min()).min().unwrap_or(far)
    }

    // --- the line ---------------------------------------------------------------------------------------

    fn down(&mut self, now: BootTime, cause: Cause) {
        self.board.set_state(self.me, NodeState::Unreachable(cause.clone()));
        for flight in std::mem::take(&mut self.flights) {
            let sent = Some(flight.sent);
            match flight.cargo {
                Cargo::Posts(posts) => {
                    for post in posts.into_iter().flatten() {
                        self.bury(post, sent, &cause);
                    }
                }
                Cargo::Marker { admits, .. } => self.answer(admits, sent, Answer::Failed(cause.clone())),
            }
        }
        self.kept.extend(std::mem::take(&mut self.unconfirmed));
        self.standing = Standing::Unknown;
        self.hello = None;
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
        // A handshake is several round trips, with TLS more; a round never waits for it but the first time.
        (self.judge.setup.node_timeout * 2).max(Duration::from_secs(1))
    }

    // --- trust ------------------------------------------------------------------------------------------

    fn judge_if_unknown(&mut self, now: BootTime, commands: &mut Vec<Command>) {
        if !matches!(self.standing, Standing::Unknown) || self.marker_in_flight() {
            return;
        }
        let Some(hello) = &self.hello else { return };
        match self.judge.judge(hello, now) {
            Judgement::Votes { marker, from, reason } => self.settle(now, marker, from, reason),
            Judgement::Write { marker, from, reason } => {
                self.lose_memory_unless(|known| known.since == marker.since);
                self.send_marker(now, commands, Cargo::Marker { marker, from, reason, admits: None });
            }
            Judgement::Refused(why) => self.distrust(None, why),
        }
    }

    /// The marker stands: votes count from `from` on.
    fn settle(&mut self, now: BootTime, marker: Marker, from: BootTime, reason: QuarantineReason) {
        let remembers = self.memory.as_ref().is_some_and(|known| known.since == marker.since);
        if !remembers {
            self.lost_memory |= self.memory.is_some();
            self.board.begin_epoch(self.me, marker.since);
        }
        self.memory = Some(marker);
        if from <= now {
            self.trust();
        } else {
            let why = Distrust::Quarantined { reason, remaining: now.until(from) };
            self.distrust(Some(from), why);
        }
    }

    /// Stops counting on what the node remembers, at once and for leases already held.
    fn lose_memory_unless(&mut self, same: impl FnOnce(&Marker) -> bool) {
        if self.memory.as_ref().is_some_and(|known| !same(known)) {
            self.memory = None;
            self.lost_memory = true;
            self.board.begin_epoch(self.me, self.board.since(self.me));
        }
    }

    fn distrust(&mut self, until: Option<BootTime>, why: Distrust) {
        let state = match until {
            Some(until) => NodeState::Quarantined { until, why: why.clone() },
            None => NodeState::Refused(why.clone()),
        };
        if until.is_none() {
            // Whatever it granted while it voted no longer counts.
            self.lose_memory_unless(|_| false);
        }
        self.board.set_state(self.me, state);
        self.standing = Standing::Untrusted { until, why };
    }

    fn trust(&mut self) {
        self.standing = Standing::Trusted;
        self.board.set_state(self.me, NodeState::Trusted);
    }

    fn become_trusted(&mut self, now: BootTime) {
        if matches!(self.standing, Standing::Untrusted { until: Some(until), .. } if now >= until) {
            self.trust();
        }
    }

    /// Why the node may not vote now, if so.
    fn objection(&self, now: BootTime) -> Option<Distrust> {
        if let Some(twin) = self.board.twin(self.me) {
            return Some(Distrust::Twin(twin));
        }
        match &self.standing {
            Standing::Untrusted { until: Some(until), why: Distrust::Quarantined { reason, .. } } => {
                Some(Distrust::Quarantined { reason: *reason, remaining: now.until(*until) })
            }
            Standing::Untrusted { why, .. } => Some(why.clone()),
            _ => None,
        }
    }

    /// Another marker stands than we believed: judge again on what stands. The run is still the same, for
    /// the connection is.
    fn marker_changed(&mut self, reply_time: NodeTime, marker: Option<Arc<str>>) {
        if let Some(hello) = &mut self.hello
            && hello.marker != marker
        {
            let since =
                marker.as_deref().and_then(|text| Marker::parse(text).ok()).map(|marker| marker.since);
            hello.marker = marker;
            hello.node_time = reply_time;
            self.standing = Standing::Unknown;
            self.lose_memory_unless(|known| since == Some(known.since));
        }
    }

    fn send_marker(&mut self, now: BootTime, commands: &mut Vec<Command>, cargo: Cargo) {
        let Cargo::Marker { marker, .. } = &cargo else { return };
        let expect = self.hello.as_ref().and_then(|hello| hello.marker.clone());
        let request = Request::Mark { expect, marker: marker.to_text() };
        self.send(now, vec![request], cargo, commands);
    }

    fn marker_in_flight(&self) -> bool {
        self.flights.iter().any(|flight| matches!(flight.cargo, Cargo::Marker { .. }))
    }

    /// Ends the quarantine in the marker, for all.
    fn admit(&mut self, now: BootTime, reply: Option<ReplyTo>, commands: &mut Vec<Command>) {
        match (&self.standing, &self.memory) {
            (Standing::Trusted, _) => self.answer(reply, Some(now), Answer::Reply(Reply::Marked)),
            (Standing::Untrusted { until: Some(_), .. }, Some(memory)) => {
                let marker = Marker { votes_from: memory.since, ..memory.clone() };
                let reason = QuarantineReason::Marked;
                let cargo = Cargo::Marker { marker, from: now, reason, admits: reply };
                self.send_marker(now, commands, cargo);
            }
            (Standing::Untrusted { why, .. }, _) => {
                let why = why.clone();
                self.answer(reply, None, Answer::Untrusted(why));
            }
            (Standing::Unknown, _) => self.answer(reply, None, Answer::Failed(Cause::Closed)),
        }
    }

    // --- requests ---------------------------------------------------------------------------------------

    /// Sends one batch if there is one and room for it.
    fn send_batch(&mut self, now: BootTime, commands: &mut Vec<Command>) -> bool {
        if self.flights.len() >= FLIGHTS_MAX || self.queue.is_empty() {
            return false;
        }
        if matches!(self.standing, Standing::Unknown) || self.marker_in_flight() {
            return false; // Nothing overtakes: an acquire must stay ahead of its release.
        }
        let objection = self.objection(now);
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
        let (Some(offset), Some(hello)) = (self.offset, &self.hello) else { return };
        let deadline = now + self.judge.setup.node_timeout;
        let stamp = match &self.memory {
            Some(marker) => marker.to_text(),
            None => hello.marker.clone().unwrap_or_default(),
        };
        if requests.iter().any(Request::sets_a_key) {
            self.fence = now + self.judge.setup.fence();
        }
        let batch = Batch { requests, not_after: offset.node_time_at_least(deadline), stamp };
        let id = self.next_flight;
        self.next_flight += 1;
        self.flights.push(Flight { id, sent: now, deadline, cargo });
        commands.push(Command::Send { flight: id, batch });
    }

    fn land(&mut self, now: BootTime, flight: Flight, reply: BatchReply) {
        let sent = Some(flight.sent);
        match flight.cargo {
            Cargo::Posts(posts) if posts.len() == reply.replies.len() => {
                for (post, answer) in posts.into_iter().zip(reply.replies) {
                    if let Reply::Refused(Refusal::Marker(marker)) = &answer {
                        self.marker_changed(reply.node_time, marker.clone());
                    }
                    if let Some(post) = post {
                        self.answer(post.reply, sent, Answer::Reply(answer));
                    }
                }
            }
            Cargo::Posts(posts) => {
                let cause = Cause::Protocol("as many replies as requests were expected".into());
                for post in posts.into_iter().flatten() {
                    self.answer(post.reply, sent, Answer::Failed(cause.clone()));
                }
            }
            Cargo::Marker { marker, from, reason, admits } => match reply.replies.into_iter().next() {
                Some(Reply::Marked) => {
                    if let Some(hello) = &mut self.hello {
                        hello.marker = Some(marker.to_text());
                    }
                    self.settle(now, marker, from, reason);
                    self.answer(admits, sent, Answer::Reply(Reply::Marked));
                }
                Some(Reply::Refused(Refusal::Marker(standing))) => {
                    self.marker_changed(reply.node_time, standing);
                    self.answer(admits, sent, Answer::Failed(Cause::Closed));
                }
                // Too late, or the node failed: a new handshake tries again.
                other => {
                    let text = format!("the marker could not be written: {other:?}");
                    self.answer(admits, sent, Answer::Failed(Cause::Protocol(text.as_str().into())));
                    self.down(now, Cause::Protocol(text.into()));
                }
            },
        }
    }

    /// Answers *timed out* for what is past its deadline.
    fn expire(&mut self, now: BootTime, commands: &mut Vec<Command>) {
        while self.kept.front().is_some_and(|post| post.deadline <= now) {
            self.kept.pop_front();
        }
        if self.queue.iter().any(|post| post.deadline <= now) {
            for post in std::mem::take(&mut self.queue) {
                if post.deadline > now {
                    self.queue.push_back(post);
                } else {
                    self.answer(post.reply, None, Answer::Failed(Cause::TimedOut));
                }
            }
        }
        let mut late = Vec::new();
        for flight in &mut self.flights {
            if let Cargo::Posts(posts) = &mut flight.cargo {
                for entry in posts.iter_mut() {
                    if entry.as_ref().is_some_and(|post| post.deadline <= now && post.reply.is_some()) {
                        late.extend(entry.take().map(|post| (post, flight.sent)));
                    }
                }
            }
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
            // The batch stays on its way, in order before whatever follows; only its reply has no taker.
            for flight in std::mem::take(&mut self.flights) {
                if flight.deadline > now {
                    self.flights.push(flight);
                } else if let Cargo::Posts(posts) = flight.cargo {
                    for mut post in posts.into_iter().flatten() {
                        self.answer(post.reply.take(), Some(flight.sent), Answer::Failed(Cause::TimedOut));
                        if post.is_release() {
                            self.unconfirmed.push(post);
                        }
                    }
                }
            }
        }
    }

    fn answer(&self, to: Option<ReplyTo>, sent: Option<BootTime>, answer: Answer) {
        let Some(to) = to else { return };
        let (epoch, since) = (self.board.epoch(self.me), self.board.since(self.me));
        // Whoever asked may have gone: a late vote has no taker.
        let _ = to.ballots.send(Vote { node: self.me, ticket: to.ticket, sent, epoch, since, answer });
    }
}

impl Flight {
    fn next_deadline(&self) -> BootTime {
        match &self.cargo {
            Cargo::Posts(posts) => {
                let waiting = posts.iter().flatten().filter(|post| post.reply.is_some());
                waiting.map(|post| post.deadline).min().unwrap_or(self.deadline).min(self.deadline)
            }
            Cargo::Marker { .. } => self.deadline,
        }
    }
}
