use super::{
    Copies, Name,
    state::{Generation, Handler, Session, State, Value, Work},
};
use quorate::ledger::copies::Phase;
use std::fmt;

/// A step of a history, and the state after it.
#[derive(Clone, Copy, PartialEq)]
pub struct Step<const N: usize> {
    pub(super) what: What,
    pub(super) state: State<N>,
}

/// The event of a step. Leaders and workers are numbered from zero here, and from one in a printed history.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum What {
    Forgets(Name),
    QuarantineEnds(Name),
    Elected(usize),
    Seals(usize, Name),
    AsksToConfirm(usize),
    Confirms(usize, Name),
    SealsAgain(usize),
    Decides(usize, bool),
    Writes(usize, Name, u8),
    SendsMark(usize, Name),
    Marks(usize, Name),
    BeginsJoin(usize, Name),
    Vouches(usize, Name),
    Puts(usize, Value),
    SendsVoid(usize),
    Voids(usize, Name),
    LeaderStarts(usize),
    LeaderEnds(usize),
    PassesOver(usize),
    Sees(usize, Name, Value),
    Registers(usize, Name),
    Starts(usize),
    GivesUp(usize),
    Ends(usize),
    Reports(usize, Name),
    SessionEnds(usize),
    SessionBegins(usize),
}

impl<const N: usize> fmt::Debug for Step<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.what.fmt(f)
    }
}

impl fmt::Debug for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Forgets(node) => write!(f, "{node:?} forgets"),
            Self::QuarantineEnds(node) => write!(f, "the quarantine of {node:?} ends"),
            Self::Elected(l) => write!(f, "L{} is elected", l + 1),
            Self::Seals(l, node) => write!(f, "L{} seals {node:?}", l + 1),
            Self::AsksToConfirm(l) => write!(f, "L{} asks to confirm", l + 1),
            Self::Confirms(l, node) => write!(f, "{node:?} confirms to L{}", l + 1),
            Self::SealsAgain(l) => write!(f, "L{} seals again", l + 1),
            Self::Decides(l, founds) => {
                write!(f, "L{} {}", l + 1, if founds { "founds" } else { "takes over" })
            }
            Self::Writes(l, node, seq) => write!(f, "L{}'s write {seq} runs on {node:?}", l + 1),
            Self::SendsMark(l, node) => write!(f, "L{} sends its mark to {node:?}", l + 1),
            Self::Marks(l, node) => write!(f, "L{} marks {node:?}", l + 1),
            Self::BeginsJoin(l, node) => write!(f, "L{} lets {node:?} join", l + 1),
            Self::Vouches(l, node) => write!(f, "{node:?} confirms to L{} for the join", l + 1),
            Self::Puts(l, value) => write!(f, "L{} sends {value:?}", l + 1),
            Self::SendsVoid(l) => write!(f, "L{} sends void", l + 1),
            Self::Voids(l, node) => write!(f, "L{}'s void runs on {node:?}", l + 1),
            Self::LeaderStarts(l) => write!(f, "L{} starts the handler", l + 1),
            Self::LeaderEnds(l) => write!(f, "L{}'s handler ends", l + 1),
            Self::PassesOver(l) => write!(f, "L{} passes the run over", l + 1),
            Self::Sees(w, node, value) => write!(f, "w{} sees {value:?} at {node:?}", w + 1),
            Self::Registers(w, node) => write!(f, "{node:?} registers the start of w{}", w + 1),
            Self::Starts(w) => write!(f, "w{} starts the handler", w + 1),
            Self::GivesUp(w) => write!(f, "w{} gives up", w + 1),
            Self::Ends(w) => write!(f, "w{}'s handler ends", w + 1),
            Self::Reports(w, node) => write!(f, "w{} reports its end to {node:?}", w + 1),
            Self::SessionEnds(w) => write!(f, "the session of w{} ends", w + 1),
            Self::SessionBegins(w) => write!(f, "a session of w{} begins", w + 1),
        }
    }
}

/// The steps that are possible in one state.
pub(super) struct Steps<'a, const N: usize> {
    pub(super) model: &'a Copies<N>,
    pub(super) now: &'a State<N>,
    pub(super) out: &'a mut Vec<Step<N>>,
}

impl<const N: usize> Steps<'_, N> {
    /// Adds a step after which the state is `state`.
    pub(super) fn add(&mut self, what: What, mut state: State<N>) {
        self.model.forget_the_useless(&mut state);
        state.sites.sort_unstable();
        if state != *self.now {
            self.out.push(Step { what, state });
        }
    }

    /// Adds all steps of nodes, leaders and workers.
    pub(super) fn all(&mut self) {
        for at in 0..N {
            self.losses(at);
        }
        for leader in 0..self.model.leaders {
            self.leader(leader);
        }
        for worker in 0..self.model.workers {
            self.worker(worker);
        }
    }

    fn losses(&mut self, at: usize) {
        let Self { model, now, .. } = *self;
        let name = now.sites[at].name;
        if now.judge.losses < model.losses {
            let mut state = *now;
            state.judge.losses += 1;
            model.lose_memory(&mut state, at);
            self.add(What::Forgets(name), state);
        }
        if now.sites[at].node.is_silent {
            let mut state = *now;
            state.sites[at].node.is_silent = false;
            if !model.lacks(super::Rule::Valid) {
                for worker in 0..super::WORKERS {
                    if state.workers[worker].work == Work::Starting
                        && state.sites[at].hands[worker].registered
                    {
                        state.give_up(worker);
                    }
                }
            }
            self.add(What::QuarantineEnds(name), state);
        }
    }
}

impl<const N: usize> Copies<N> {
    /// Lets the node at `at` forget everything, or come back with an old state.
    fn lose_memory(&self, state: &mut State<N>, at: usize) {
        let old = state.sites[at].node;
        let node = &mut state.sites[at].node;
        *node = super::state::Node { is_silent: self.timed, ..Default::default() };
        if self.snapshot {
            (node.value, node.stamp) = (old.value, old.stamp);
            node.register = old.value.is_assigned().then(Default::default);
        }
        if self.lacks(super::Rule::Exact) {
            // The requests reach whatever memory the node has.
            return;
        }
        for (line, leader) in state.sites[at].lines.iter_mut().zip(&state.leaders) {
            line.is_current &= !leader.elected;
        }
    }

    /// Drops what no later step can use: requests to a memory that is gone or that another leader has sealed, and the data
    /// of phases that are over. Otherwise, states with the same future would count as different ones.
    fn forget_the_useless(&self, state: &mut State<N>) {
        let fenced = !self.lacks(super::Rule::Fence) && !self.lacks(super::Rule::Exact);
        for l in 0..super::LEADERS {
            if !state.leaders[l].elected {
                continue;
            }
            let mut leadership = state.leadership(l);
            for at in 0..N {
                let node = state.sites[at].node;
                let line = &mut state.sites[at].lines[l];
                line.is_current &= !(fenced && self.fences(&node, l));
                if !line.is_current {
                    (line.writes, line.stored) = (0, 0);
                    (line.mark_sent, line.void_sent, line.vouch_asked) = (false, false, false);
                    leadership.on_forgot(at);
                }
            }
            state.set_leadership(l, &leadership);
            if !leadership.nodes().iter().any(|node| node.joins) {
                state.sites.iter_mut().for_each(|site| site.lines[l].vouch_asked = false);
            }
            let leader = &mut state.leaders[l];
            if leader.phase == Phase::Decided {
                let mut used = 1 << leader.seq;
                for site in &mut state.sites {
                    let standing = &mut site.lines[l].standing;
                    (standing.complete, standing.may_mark) = (false, standing.may_mark && !standing.marked);
                    used |= site.lines[l].writes;
                }
                let values = leader.values.iter_mut().enumerate().skip(1);
                values.filter(|(seq, _)| used >> seq & 1 == 0).for_each(|(_, value)| *value = Value::Absent);
            }
        }
        for w in 0..super::WORKERS {
            let worker = &mut state.workers[w];
            if worker.work == Work::Stopped {
                worker.assignment = Value::Absent;
                state.sites.iter_mut().for_each(|site| site.hands[w] = Default::default());
            }
        }
    }
}

impl<const N: usize> State<N> {
    /// Lets a worker give up its start, and report that it did not.
    pub(super) fn give_up(&mut self, worker: usize) {
        self.workers[worker].work = Work::GivenUp;
        for site in &mut self.sites {
            site.hands[worker] = super::state::Hand { end_sent: true, ..Default::default() };
        }
    }

    /// Judges the start of an attempt.
    pub(super) fn judge_start<const M: usize>(&mut self, model: &Copies<M>, attempt: Generation) {
        use super::state::Broken::*;
        let (running, judge) = (self.running(), &mut self.judge);
        judge.starts = (judge.starts + 1).min(7);
        let mut broken = |is: bool, what| {
            if is {
                judge.broken = Some(what);
            }
        };
        broken(model.at_most_once && judge.starts > 1, TwoStarts);
        broken(judge.skipped, SkippedStarts);
        let passer = judge.passer.checked_sub(1);
        broken(passer.is_some_and(|l| attempt.term < model.term(l.into())), PassedStarts);
        broken(model.timed && judge.lost, StartAfterLost);
        if attempt.term >= judge.founded {
            let starts = &mut judge.of_generation[usize::from(attempt.number) - 1];
            if *starts >= 1 {
                judge.broken = Some(GenerationTwice);
            } else {
                *starts += 1;
            }
        } else {
            if model.timed {
                judge.broken = Some(OldStarts);
            }
            judge.old_starts += 1;
        }
        if model.timed && running > 1 {
            judge.broken = Some(TwoAtOnce);
        }
    }
}

impl<const N: usize> Steps<'_, N> {
    fn worker(&mut self, w: usize) {
        let Self { model, now, .. } = *self;
        let me = now.workers[w];
        for at in 0..N {
            self.worker_at(w, at);
        }
        let registered = now.sites.iter().filter(|site| site.hands[w].registered).count();
        let needed = if model.lacks(super::Rule::StartMajority) { 1 } else { model.majority() };
        if me.work == Work::Starting && registered >= needed && me.session == Session::Alive {
            let mut state = *now;
            state.workers[w].work = Work::Runs;
            let end_sent = model.lacks(super::Rule::EndTrue);
            for site in &mut state.sites {
                site.hands[w] = super::state::Hand { end_sent, ..Default::default() };
            }
            state.judge_start(model, me.assignment.generation().unwrap_or_default());
            self.add(What::Starts(w), state);
        }
        if me.work == Work::Starting {
            let mut state = *now;
            state.give_up(w);
            self.add(What::GivesUp(w), state);
        }
        if me.work == Work::Runs {
            let mut state = *now;
            state.workers[w].work = Work::Ended;
            state.sites.iter_mut().for_each(|site| site.hands[w].end_sent = true);
            state.judge.handler_ended = true;
            self.add(What::Ends(w), state);
        }
        if model.timed && me.session == Session::Alive {
            let mut state = *now;
            state.workers[w].session = Session::Ended;
            if matches!(me.work, Work::Runs | Work::Starting) {
                state.workers[w].work = Work::Stopped;
            }
            self.add(What::SessionEnds(w), state);
        }
        if model.timed && me.session == Session::None {
            let mut state = *now;
            (state.workers[w].session, state.workers[w].founding) = (Session::Alive, now.judge.founded);
            self.add(What::SessionBegins(w), state);
        }
    }

    /// Adds the steps between a worker and one node.
    fn worker_at(&mut self, w: usize, at: usize) {
        let Self { model, now, .. } = *self;
        let (me, site) = (now.workers[w], now.sites[at]);
        let node = site.node;
        if node.is_silent {
            return;
        }
        let idle = matches!(me.work, Work::Idle | Work::Starting | Work::Ended | Work::GivenUp);
        if let Value::Assigned(attempt, worker) = node.value
            && usize::from(worker) == w
            && node.mark > 0
            && me.session == Session::Alive
            && idle
            && attempt > me.last
        {
            let mut state = *now;
            let worker = &mut state.workers[w];
            (worker.assignment, worker.last, worker.work) = (node.value, attempt, Work::Starting);
            for site in &mut state.sites {
                site.hands[w] = super::state::Hand { start_sent: true, ..Default::default() };
            }
            self.add(What::Sees(w, site.name, node.value), state);
        }
        if me.work == Work::Starting && site.hands[w].start_sent {
            let mut state = *now;
            if model.start(&mut state.sites[at].node, me.assignment) {
                let hand = &mut state.sites[at].hands[w];
                (hand.registered, hand.start_sent) = (true, false);
                self.add(What::Registers(w, site.name), state);
            }
        }
        if site.hands[w].end_sent && model.takes_end(&node, me.assignment) {
            let mut state = *now;
            let early = model.lacks(super::Rule::EndTrue) && matches!(me.work, Work::Starting | Work::Runs);
            let done = me.work == Work::Ended || early;
            let end = if done { super::state::End::Done } else { super::state::End::NotStarted };
            state.sites[at].node.end = Some(end);
            state.sites[at].hands[w].end_sent = false;
            self.add(What::Reports(w, site.name), state);
        }
    }

    /// Adds the steps of a leader's handler, which it starts only for its own record and only within its lease.
    pub(super) fn handler(&mut self, l: usize) {
        let Self { model, now, .. } = *self;
        let me = &now.leaders[l];
        let committed = now.sites.iter().filter(|site| site.lines[l].counts).count() >= model.commits_at();
        let in_lease = !model.timed || now.holds_lease(l) || model.lacks(super::Rule::Lease);
        if let Value::Direct(attempt) = me.value()
            && attempt.term == model.term(l)
            && me.handler == Handler::None
            && committed
            && in_lease
        {
            let mut state = *now;
            state.leaders[l].handler = Handler::Runs;
            state.judge_start(model, attempt);
            self.add(What::LeaderStarts(l), state);
        }
        if me.handler == Handler::Runs {
            let mut state = *now;
            state.leaders[l].handler = Handler::Ended;
            state.judge.handler_ended = true;
            self.add(What::LeaderEnds(l), state);
        }
    }
}
