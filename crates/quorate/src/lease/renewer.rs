use crate::{
    driver::{NodePool, PoolEvent, RequestList},
    env::BootTime,
    lease::{
        StepDownCause,
        backlog::Backlog,
        command::{Adoption, RenewerCommand},
        deadline::LeaseDeadline,
        error::{LeaseError, LeaseLost},
        event::LeaseEvent,
        extensions::{Extensions, Message},
        heartbeat::Health,
        lease_map::LeaseMap,
        state::LeaseState,
    },
    node::{Owner, Reply, Request},
    sabotage::Sabotage,
    vote::{Answer, ReplyTo, Vote, VoteReceiver, VoteSender, vote_channel},
};
use std::{collections::BTreeSet, sync::Arc, time::Duration};
use tokio::sync::{mpsc, oneshot};
use tracing::{Span, field::Empty};

/// The maximum number of messages that are taken from a channel at a time.
const MAIL_MAX: usize = 256;

/// The task that owns and extends every held lease of a quorum. All leases share one task, one ordered list
/// of due times, and one channel of votes.
#[derive(Debug)]
pub(crate) struct LeaseRenewer {
    pool: Arc<NodePool>,
    commands: mpsc::UnboundedReceiver<RenewerCommand>,
    events: mpsc::UnboundedReceiver<PoolEvent>,
    sender: VoteSender,
    votes: VoteReceiver,
    /// The leases, by their ids.
    kept: LeaseMap<RenewalEntry>,
    wheel: BTreeSet<(BootTime, u64)>,
    backlog: Backlog,
    extensions: Extensions,
}

#[derive(Debug)]
struct RenewalEntry {
    held: LeaseState,
    deadline: Arc<LeaseDeadline>,
    late: Option<VoteReceiver>,
    wake: BootTime,
    /// The time under which the lease waits in the backlog. Zero if it does not.
    waits: BootTime,
    /// The health check that must succeed before each extension, and the time at which it was set.
    heartbeat: Option<Box<(BootTime, Health)>>,
    /// `None` if the lease never had a watcher, and no caller waits for an extension.
    callers: Option<Box<Callers>>,
    /// The span of the present round of extensions. `None` if no subscriber is interested, or once a majority
    /// has extended the lease. Boxed, because a worker may have many leases.
    renewal: Option<Box<Span>>,
}

/// The callers that are notified about a lease. Boxed, because most leases have none.
#[derive(Debug, Default)]
struct Callers {
    watchers: Vec<mpsc::UnboundedSender<LeaseEvent>>,
    /// The callers that wait for an extension, each with the time of its request.
    extending: Vec<(BootTime, oneshot::Sender<Result<(), LeaseError>>)>,
}

/// If the task ends in another way than by the end of [`LeaseRenewer::run`], the leases end at once, because no task
/// extends them any more. Their keys expire on the nodes. The drivers end with the task.
impl Drop for LeaseRenewer {
    fn drop(&mut self) {
        let left: Vec<u64> = self.kept.ids().collect();
        left.into_iter().for_each(|id| drop(self.end(id)));
        self.pool.flush();
    }
}

impl LeaseRenewer {
    pub(crate) fn new(
        pool: Arc<NodePool>,
        commands: mpsc::UnboundedReceiver<RenewerCommand>,
        events: mpsc::UnboundedReceiver<PoolEvent>,
    ) -> Self {
        let (sender, votes) = vote_channel();
        let backlog = Backlog::new(pool.len(), pool.config().node_timeout);
        let (kept, wheel, extensions) = (LeaseMap::new(), BTreeSet::new(), Extensions::default());
        Self { pool, commands, events, sender, votes, kept, wheel, backlog, extensions }
    }

    /// Renews leases until the quorum is closed or its last handle is dropped, then releases the remaining leases.
    pub(crate) async fn run(mut self) {
        let pool = Arc::clone(&self.pool);
        let env = pool.env();
        let (mut commands, mut votes) = (Vec::new(), Vec::new());
        loop {
            self.turn(env.now());
            self.send_extensions();
            let wake = self.wheel.first().map_or(BootTime::from_nanos(u64::MAX), |(at, _)| *at);
            tokio::select! { biased;
                Some(PoolEvent::LostMemory) = self.events.recv() => self.forget(env.now()),
                count = self.commands.recv_many(&mut commands, MAIL_MAX) => {
                    commands.drain(..).for_each(|command| self.handle_command(env.now(), command));
                    if count == 0 {
                        break;
                    }
                }
                _ = self.votes.recv_many(&mut votes, MAIL_MAX) => {
                    votes.drain(..).for_each(|vote| self.count(env.now(), &vote));
                    self.extend_waiting(env.now());
                }
                () = env.stopped().cancelled() => break,
                () = env.sleep_until(wake) => {}
            }
        }
        self.commands.close();
        // Unlike `try_recv`, this also receives a command that another thread is sending at this moment.
        while let Some(command) = self.commands.recv().await {
            self.handle_command(env.now(), command);
        }
        let left: Vec<u64> = self.kept.ids().collect();
        left.into_iter().for_each(|id| self.release(id, None));
    }

    fn handle_command(&mut self, now: BootTime, command: RenewerCommand) {
        match command {
            RenewerCommand::Adopt(adoption) => self.adopt(now, *adoption),
            RenewerCommand::Release { id, reply } => self.release(id, reply.as_ref()),
            RenewerCommand::Transfer { id, successor, lasts, reply } => {
                self.transfer(id, &successor, lasts, &reply);
            }
            RenewerCommand::Forget { id } => drop(self.end(id)),
            RenewerCommand::Limit { id, until, heartbeat } => {
                if let Some(kept) = self.kept.get_mut(id) {
                    kept.held.limit(until);
                    kept.heartbeat = heartbeat.map(|heartbeat| Box::new((now, heartbeat)));
                    self.attend(now, id);
                }
            }
            RenewerCommand::Extend { id, done } => match self.kept.get_mut(id) {
                Some(kept) => {
                    kept.held.renew_now(now);
                    kept.callers.get_or_insert_default().extending.push((now, done));
                    self.attend(now, id);
                }
                None => {
                    let _ = done.send(Err(LeaseLost.into()));
                }
            },
            RenewerCommand::Watch { id, events } => {
                // A lease that has been released is not in the map. Its watcher gets no event: the channel
                // closes.
                if let Some(kept) = self.kept.get_mut(id) {
                    let _ = events.send(kept.held.stage());
                    // Closed watchers are removed here, and not only when an event is reported. A lease may get
                    // many watchers, and may have no event for a long time.
                    let watchers = &mut kept.callers.get_or_insert_default().watchers;
                    watchers.retain(|watcher| !watcher.is_closed());
                    watchers.push(events);
                }
            }
        }
    }

    fn adopt(&mut self, now: BootTime, adoption: Adoption) {
        let Adoption { id, resource, owner, token, params, grants, spared, late, deadline } = adoption;
        let nodes = self.pool.len();
        let mut held = LeaseState::new(resource, owner, token, params, self.pool.config(), nodes, now);
        for (node, grant) in grants {
            held.granted(node, grant.sent, grant.memory.epoch);
        }
        held.spare(now, &spared);
        // A node may have lost its memory between the end of the round and this point. Its grant must not
        // count.
        let pool = &self.pool;
        held.forget_unless(now, |node, epoch| pool.epoch(node) == epoch);
        let waits = BootTime::default();
        let kept = RenewalEntry {
            held,
            deadline,
            late,
            wake: now,
            waits,
            heartbeat: None,
            callers: None,
            renewal: None,
        };
        self.wheel.insert((now, id));
        self.kept.insert(id, Box::new(kept));
        self.attend(now, id);
    }

    /// Handles every lease that is due at `now`.
    fn turn(&mut self, now: BootTime) {
        while let Some(&(at, id)) = self.wheel.first()
            && at <= now
        {
            self.attend(now, id);
        }
    }

    fn forget(&mut self, now: BootTime) {
        let ids: Vec<u64> = self.kept.ids().collect();
        for id in ids {
            if let Some(kept) = self.kept.get_mut(id) {
                kept.take_late(&self.pool);
                let pool = &self.pool;
                kept.held.forget_unless(now, |node, epoch| pool.epoch(node) == epoch);
            }
            self.attend(now, id);
        }
    }

    /// Extends leases that have waited, as far as there is room now.
    fn extend_waiting(&mut self, now: BootTime) {
        while let Some(id) = self.backlog.next() {
            self.attend(now, id);
        }
    }

    fn count(&mut self, now: BootTime, vote: &Vote) {
        let answers = usize::try_from(vote.requests).unwrap_or(usize::MAX);
        self.backlog.answered(vote.node, answers, matches!(vote.answer, Answer::Failed(_)), now);
        for id in self.extensions.voted(vote) {
            let Some(kept) = self.kept.get_mut(id) else { continue };
            let decides = if vote.memory.epoch == self.pool.epoch(vote.node) {
                kept.held.count(now, vote)
            } else {
                kept.held.discount(now, vote.node); // The node may have lost its memory since.
                true
            };
            // Most votes decide nothing, and a worker may have very many leases.
            if decides || kept.callers.as_ref().is_some_and(|callers| !callers.extending.is_empty()) {
                self.attend(now, id);
            }
        }
    }

    /// Sends the extensions that are due, together those of many leases.
    fn send_extensions(&mut self) {
        for Message { nodes, requests, ticket } in self.extensions.take_unsent() {
            for node in nodes {
                let reply = ReplyTo { sender: self.sender.clone(), ticket };
                self.pool.ask(node, requests.clone(), reply);
            }
        }
    }

    /// Handles one lease that may be due: its health check, its deadline, its events, its extensions and its
    /// next wake-up.
    fn attend(&mut self, now: BootTime, id: u64) {
        let Some(kept) = self.kept.get_mut(id) else { return };
        kept.ask_health(now);
        let round = kept.held.round();
        let due = match kept.may_ask(now, id, &mut self.backlog) {
            true => kept.held.due(now),
            false => Vec::new(),
        };
        if kept.held.round() != round {
            kept.begin_renewal();
        }
        if !due.is_empty() {
            // Late grants are counted before the deadline is set, because the step-down depends on the
            // deadline.
            kept.take_late(&self.pool);
        }
        let until = kept.held.valid_until().unwrap_or_default();
        if !kept.deadline.set(now, until) {
            self.wheel.remove(&(kept.wake, id));
            let released = kept.deadline.is_released();
            if !released {
                kept.record_cause(now, &self.pool);
            }
            kept.finish();
            // If the lease has ended because its time was over, its keys are released, even if an extension
            // succeeded after that. If the holder has ended the lease, the holder's own command arrives soon.
            // That command decides what happens to the keys: they may have to stay on the nodes.
            if !released {
                if kept.deadline.keeps_keys() {
                    drop(self.end(id));
                } else {
                    self.release(id, None);
                }
            }
            return;
        }
        kept.end_renewal_if_won();
        for event in kept.held.advance(now) {
            if event == LeaseEvent::StepDown {
                kept.record_cause(now, &self.pool);
            }
            kept.tell(event);
        }
        if kept.waits == BootTime::default() {
            kept.answer_extensions(&self.pool);
        }
        if !due.is_empty() {
            let LeaseState { resource, owner, params, token, .. } = &kept.held;
            due.iter().for_each(|node| self.backlog.asked(*node));
            let extend = |token| params.extend(resource.clone(), owner.clone(), token);
            let (own, vouched): (Vec<_>, Vec<_>) =
                due.into_iter().partition(|node| kept.held.token_for(*node) == *token);
            for node in vouched {
                self.extensions.add(vec![node], id, extend(kept.held.token_for(node)));
            }
            if !own.is_empty() {
                self.extensions.add(own, id, extend(*token));
            }
        }
        let mut wake = kept.held.wake();
        if self.pool.config().sabotaged(Sabotage::LossFromVotesOnly) {
            let steps_down = kept.held.stage() >= LeaseEvent::StepDown;
            wake = if steps_down { BootTime::from_nanos(u64::MAX) } else { kept.held.sends_at() };
        }
        if kept.waits != BootTime::default() {
            wake = kept.held.steps_down_at();
        }
        // Most votes do not change the time of the next wake-up, and then the ordered list need not change.
        if wake != kept.wake {
            self.wheel.remove(&(kept.wake, id));
            self.wheel.insert((wake, id));
            kept.wake = wake;
        }
    }

    /// Removes a lease, reports its last events, and then releases it on every node that was ever asked for it.
    fn release(&mut self, id: u64, reply: Option<&ReplyTo>) {
        if let Some(held) = self.end(id) {
            let unasked: Vec<usize> = held.unasked().collect();
            let LeaseState { resource, owner, params, .. } = held;
            self.pool.free(params.release(resource, owner), |node| !unasked.contains(&node), reply);
            if let Some(reply) = reply {
                unasked.into_iter().for_each(|node| self.pool.holds_nothing(node, reply));
            }
        }
    }

    /// Removes a lease, and asks every node to reserve the resource for the successor. The renewer itself
    /// sends these requests, because it also sends the extensions. So no extension can arrive at a node after
    /// the reservation and set the old owner again.
    fn transfer(&mut self, id: u64, successor: &Owner, lasts: Duration, reply: &ReplyTo) {
        let Some(held) = self.end(id) else { return };
        let extends = self.pool.config().sabotaged(Sabotage::ExtendedAfterTransfer);
        let LeaseState { resource, owner, params, token, .. } = &held;
        let request = RequestList::from(Request::Reserve {
            resource: resource.clone(),
            owner: owner.clone(),
            successor: successor.clone(),
            ttl: lasts,
        });
        for node in 0..self.pool.len() {
            self.pool.ask(node, request.clone(), reply.clone());
            if extends {
                let request = params.extend(resource.clone(), owner.clone(), *token);
                drop(self.pool.ask_some([node], request));
            }
        }
        // A node that did not store the reservation must release the key, as after any lease. On a node that
        // did store it, the release has no effect, because the owner differs.
        self.pool.release(&held.resource, &held.owner, |_| true, None);
    }

    /// Removes a lease, and reports its last events. Its extension is sent before, if it is due: no extension may follow
    /// a release.
    fn end(&mut self, id: u64) -> Option<LeaseState> {
        self.send_extensions();
        let mut kept = *self.kept.remove(id)?;
        self.wheel.remove(&(kept.wake, id));
        self.backlog.forget(kept.waits, id);
        if !self.pool.config().sabotaged(Sabotage::LeaseOutlivesRelease) {
            kept.finish();
        }
        Some(kept.held)
    }
}

impl RenewalEntry {
    /// Returns whether the nodes may be asked now. If requests are due and too many are unanswered, the lease waits in the
    /// backlog.
    fn may_ask(&mut self, now: BootTime, id: u64, backlog: &mut Backlog) -> bool {
        if self.waits != BootTime::default() {
            backlog.forget(self.waits, id);
            self.waits = BootTime::default();
        }
        let until = self.held.valid_until().unwrap_or_default();
        let is_admitted = !self.held.is_due(now) || backlog.admits(until);
        if !is_admitted {
            backlog.wait(until, id);
            self.waits = until;
        }
        is_admitted
    }

    /// Counts the grants that arrived after the acquire was decided.
    fn take_late(&mut self, pool: &NodePool) {
        let Some(mut late) = self.late.take() else { return };
        while let Some(vote) = late.try_recv() {
            if vote.memory.epoch != pool.epoch(vote.node) {
                continue; // The node may have lost its memory since.
            }
            if let (Answer::Reply(Reply::Granted { .. } | Reply::Shared), Some(sent)) =
                (&vote.answer, vote.sent)
            {
                self.held.granted(vote.node, sent, vote.memory.epoch);
            }
        }
    }

    /// Runs the health check of the lease, if an extension is due.
    fn ask_health(&mut self, now: BootTime) {
        if let Some(heartbeat) = &self.heartbeat
            && self.held.wants_to_extend(now)
        {
            let (since, heartbeat) = &**heartbeat;
            self.held.health_checked(now, heartbeat.is_good(*since, now));
        }
    }

    /// Begins the span of a round of extensions. The span of a previous round that still waits for a majority
    /// ends as failed.
    fn begin_renewal(&mut self) {
        self.end_renewal("failed");
        let LeaseState { resource: lock, token, .. } = &self.held;
        let span = tracing::debug_span!(parent: None, "renewal", %lock, token = token.get(), outcome = Empty);
        self.renewal = (!span.is_disabled()).then(|| Box::new(span));
    }

    fn end_renewal_if_won(&mut self) {
        if self.renewal.is_some() && self.held.round_won() {
            self.end_renewal("extended");
        }
    }

    fn end_renewal(&mut self, outcome: &str) {
        if let Some(span) = self.renewal.take() {
            span.record("outcome", outcome);
        }
    }

    /// Ends the lease, reports the remaining events, and answers the callers that wait for an extension.
    fn finish(&mut self) {
        self.end_renewal(if self.deadline.is_released() { "released" } else { "failed" });
        self.deadline.end();
        self.deadline.record_cause(StepDownCause::Released);
        for event in self.held.finish() {
            self.tell(event);
        }
        for (_, done) in self.callers.iter_mut().flat_map(|callers| callers.extending.drain(..)) {
            let _ = done.send(Err(LeaseLost.into()));
        }
    }

    /// Records why the work is asked to stop. If too few nodes extended the lease, also records each node's answer.
    fn record_cause(&self, now: BootTime, pool: &NodePool) {
        let cause = self.held.cause(now);
        if cause == StepDownCause::NotExtended {
            let report = pool.report(self.held.outcomes());
            self.deadline.record_report(report.of("too few nodes extended the lease in time"));
        }
        self.deadline.record_cause(cause);
    }

    fn tell(&mut self, event: LeaseEvent) {
        match event {
            LeaseEvent::StepDown => self.deadline.step_down.fire(),
            LeaseEvent::Lost => {
                self.deadline.end();
                self.deadline.step_down.fire();
                self.deadline.lost.fire();
            }
            LeaseEvent::Held | LeaseEvent::AtRisk => {}
        }
        if let Some(callers) = &mut self.callers {
            callers.watchers.retain(|watcher| watcher.send(event).is_ok());
        }
    }

    fn answer_extensions(&mut self, pool: &NodePool) {
        let Some(callers) = &mut self.callers else { return };
        let mut waiting = Vec::new();
        for (began, done) in callers.extending.drain(..) {
            match self.held.round_since(began) {
                None => waiting.push((began, done)),
                Some(true) => {
                    let _ = done.send(Ok(()));
                }
                Some(false) => {
                    let report = pool.report(self.held.outcomes());
                    let _ = done.send(Err(report.of("the extension did not reach a majority").into()));
                }
            }
        }
        callers.extending = waiting;
    }
}
