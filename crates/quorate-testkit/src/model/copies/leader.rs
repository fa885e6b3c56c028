//! The steps of a leader: the shipped [`Leadership`] decides, and the model sends its requests at any later moment.

use super::{
    Copies, Rule,
    state::{Broken, End, Generation, Handler, Session, State, Value},
    step::{Steps, What},
};
use quorate::{
    ledger::copies::{Heard, Leadership, Phase, Standing, Takeover},
    node::FencingToken,
};
use std::array;

impl<const N: usize> State<N> {
    pub(super) fn leadership(&self, l: usize) -> Leadership<[Standing; N]> {
        Leadership::new(self.leaders[l].phase, array::from_fn(|at| self.sites[at].lines[l].standing))
    }

    pub(super) fn set_leadership(&mut self, l: usize, leadership: &Leadership<[Standing; N]>) {
        self.leaders[l].phase = leadership.phase();
        for (site, standing) in self.sites.iter_mut().zip(leadership.nodes()) {
            site.lines[l].standing = *standing;
        }
    }

    pub(super) const fn holds_lease(&self, l: usize) -> bool {
        self.judge.elected as usize == l + 1
    }

    fn count(&self, of: impl Fn(&super::state::Site) -> bool) -> usize {
        self.sites.iter().filter(|site| of(site)).count()
    }
}

impl<const N: usize> Copies<N> {
    pub(super) const fn majority(&self) -> usize {
        N / 2 + 1
    }

    /// Returns the number of nodes at which a record must be stored before its leader acts on it.
    pub(super) fn commits_at(&self) -> usize {
        if self.lacks(Rule::Majority) { 1 } else { self.majority() }
    }

    /// Notes that the node at `at` stores the leader's latest record, and counts.
    fn note_stored(&self, state: &mut State<N>, l: usize, at: usize) {
        let counts = |state: &State<N>| state.count(|site| site.lines[l].counts);
        let before = counts(state);
        state.sites[at].lines[l].counts = true;
        let crossed = before < self.commits_at() && counts(state) >= self.commits_at();
        if crossed && state.leaders[l].seq >= 2 {
            self.judge_commit(state, l);
        }
    }

    /// Judges a record of a leader that a majority stores now.
    fn judge_commit(&self, state: &mut State<N>, l: usize) {
        let (term, value) = (self.term(l), state.leaders[l].value());
        let stamp = (term, state.leaders[l].seq);
        let later = |k: usize| k > l || (self.twins && l == 1 && k == 0);
        for (_, other) in state.leaders.iter().enumerate().filter(|(k, _)| later(*k)) {
            let took_over = other.phase == Phase::Decided && !other.founded;
            if took_over && other.seen < stamp && term >= state.judge.founded {
                state.judge.broken = Some(Broken::DeposedCommits);
            }
        }
        state.leaders[l].committed = stamp;
        // A leader acts on a record only while its lease is valid.
        if self.timed && !state.holds_lease(l) && !self.lacks(Rule::Lease) {
            return;
        }
        let judge = &mut state.judge;
        match value {
            Value::Skipped if self.at_most_once || term >= judge.founded => {
                if judge.starts > 0 {
                    judge.broken = Some(Broken::SkippedStarts);
                }
                judge.skipped = true;
            }
            Value::Done if !judge.handler_ended => judge.broken = Some(Broken::DoneWithoutHandler),
            Value::Lost => judge.lost = true,
            _ => {}
        }
    }
}

impl<const N: usize> Steps<'_, N> {
    pub(super) fn leader(&mut self, l: usize) {
        let Self { model, now, .. } = *self;
        if !now.leaders[l].elected {
            if usize::from(now.judge.elected) == l {
                let mut state = *now;
                state.judge.elected += 1;
                state.leaders[l].elected = true;
                if model.timed && l > 0 && now.leaders[l - 1].handler == Handler::Runs {
                    state.leaders[l - 1].handler = Handler::Stopped;
                }
                self.add(What::Elected(l), state);
            }
            return;
        }
        for at in 0..N {
            self.seals(l, at);
            match now.leaders[l].phase {
                Phase::Sealing => {}
                Phase::Confirming => self.confirms(l, at),
                Phase::Decided => {
                    self.writes(l, at);
                    self.marks(l, at);
                    self.joins(l, at);
                    self.voids(l, at);
                }
            }
        }
        match now.leaders[l].phase {
            Phase::Sealing => self.asks_to_confirm(l),
            Phase::Confirming => self.decides(l),
            Phase::Decided => {
                self.puts(l);
                self.handler(l);
            }
        }
    }

    fn seals(&mut self, l: usize, at: usize) {
        let Self { model, now, .. } = *self;
        let (site, line) = (&now.sites[at], now.sites[at].lines[l]);
        let phase = now.leaders[l].phase;
        let has_answered = line.is_current && line.standing.sealed;
        if phase == Phase::Confirming || site.node.is_silent || has_answered {
            return;
        }
        let Some(sealed) = model.seal(&site.node, l) else { return };
        let mut state = *now;
        state.sites[at].node = sealed;
        let mut leadership = state.leadership(l);
        leadership.on_sealed(at, site.node.mark > 0);
        state.set_leadership(l, &leadership);
        let line = &mut state.sites[at].lines[l];
        (line.is_current, line.stored) = (true, 0);
        if phase == Phase::Sealing {
            (line.counts, line.voided, line.writes) = (false, false, 0);
            line.answer = (site.node.value, site.node.stamp, site.node.mark);
        } else {
            line.writes = 1 << now.leaders[l].seq;
        }
        self.add(What::Seals(l, site.name), state);
    }

    fn asks_to_confirm(&mut self, l: usize) {
        let (mut state, mut leadership) = (*self.now, self.now.leadership(l));
        if !leadership.ask_to_confirm() {
            return;
        }
        state.set_leadership(l, &leadership);
        if self.model.lacks(Rule::Confirm) {
            let standings = state.sites.iter_mut().map(|site| &mut site.lines[l].standing);
            standings.for_each(|standing| standing.confirmed = standing.asked);
        }
        self.add(What::AsksToConfirm(l), state);
    }

    fn confirms(&mut self, l: usize, at: usize) {
        let (site, line) = (&self.now.sites[at], self.now.sites[at].lines[l]);
        let waits = line.standing.asked && !line.standing.confirmed;
        if waits && self.reaches(l, at) {
            let mut state = *self.now;
            state.sites[at].lines[l].standing.confirmed = true;
            self.add(What::Confirms(l, site.name), state);
        }
    }

    /// Returns whether a request of the leader reaches the node at `at` and is served.
    fn reaches(&self, l: usize, at: usize) -> bool {
        let (node, line) = (&self.now.sites[at].node, &self.now.sites[at].lines[l]);
        line.is_current && !node.is_silent && self.model.admits(node, l, line.is_current)
    }

    fn decides(&mut self, l: usize) {
        let now = self.now;
        let lines = || now.sites.iter().map(|site| &site.lines[l]);
        if lines().any(|line| !line.is_current || !line.standing.sealed) {
            let (mut state, mut leadership) = (*now, now.leadership(l));
            leadership.seal_again();
            state.set_leadership(l, &leadership);
            self.add(What::SealsAgain(l), state);
        }
        let confirmed =
            lines().enumerate().fold(0u8, |all, (at, line)| all | u8::from(line.standing.confirmed) << at);
        for heard in (1..1u8 << N).filter(|heard| heard & !confirmed == 0) {
            self.decides_on(l, heard);
        }
    }

    /// Adds the decision of a leader on the answers of the nodes whose bits are set in `heard`.
    fn decides_on(&mut self, l: usize, heard: u8) {
        let Self { model, now, .. } = *self;
        let within: Vec<usize> = (0..N).filter(|at| heard >> at & 1 == 1).collect();
        let mark = |at: usize| {
            let line = &now.sites[at].lines[l];
            let counts = line.standing.complete || model.lacks(Rule::Complete);
            counts.then(|| FencingToken::new(line.answer.2.into()))
        };
        let answers: Vec<Heard> = within.iter().map(|&node| Heard { node, mark: mark(node) }).collect();
        let (mut state, mut leadership) = (*now, now.leadership(l));
        let latest = now.holds_lease(l) || model.lacks(Rule::FoundLatest);
        let Some(takeover) = leadership.decide(&answers, latest) else { return };
        let (value, seen) = match takeover {
            Takeover::Continue { mark: newest } => {
                let decides = |heard: &&Heard| heard.mark == Some(newest) || model.lacks(Rule::NewestMark);
                let complete = answers.iter().filter(|heard| heard.mark.is_some());
                let records = complete.filter(decides).map(|heard| now.sites[heard.node].lines[l].answer);
                let (value, stamp, _) = records.max_by_key(|answer| answer.1).unwrap_or_default();
                (value, stamp)
            }
            Takeover::Found => {
                let done = within.iter().any(|&at| now.sites[at].lines[l].answer.0 == Value::Done);
                let value = match () {
                    () if done => Value::Done,
                    () if model.lacks(Rule::FoundUnknown) => Value::Absent,
                    () if model.at_most_once => Value::Lost,
                    () => Value::Unknown,
                };
                (value, (0, 0))
            }
        };
        let founded = takeover == Takeover::Found;
        state.set_leadership(l, &leadership);
        let leader = &mut state.leaders[l];
        (leader.seq, leader.values[1], leader.seen, leader.founded) = (1, value, seen, founded);
        for (at, site) in state.sites.iter_mut().enumerate() {
            let line = &mut site.lines[l];
            if model.lacks(Rule::Complete) && line.standing.sealed && heard >> at & 1 == 1 {
                line.standing.may_mark = true;
            }
            line.writes = if line.standing.sealed && line.is_current { 2 } else { 0 };
            (line.answer, line.stored) = (Default::default(), 0);
        }
        if !founded {
            self.judge_takeover(&mut state, l);
        }
        self.add(What::Decides(l, founded), state);
    }

    /// Judges what a leader has read at its takeover.
    fn judge_takeover(&self, state: &mut State<N>, l: usize) {
        let (model, leader) = (self.model, state.leaders[l]);
        let earlier = |k: usize| k < l || (model.twins && l == 0 && k == 1);
        for (_, other) in state.leaders.iter().enumerate().filter(|(k, _)| earlier(*k)) {
            let (term, seq) = other.committed;
            let commits = other.phase == Phase::Decided && seq >= 2 && term >= state.judge.founded;
            if commits && other.committed > leader.seen {
                state.judge.broken = Some(Broken::NotRead);
            }
        }
        if let (Some(passer), Some(attempt)) =
            (state.judge.passer.checked_sub(1), leader.value().generation())
            && attempt.term < model.term(passer.into())
            && usize::from(passer) < l
        {
            state.judge.broken = Some(Broken::ComesBack);
        }
    }

    fn writes(&mut self, l: usize, at: usize) {
        let Self { model, now, .. } = *self;
        let (me, site) = (&now.leaders[l], &now.sites[at]);
        if !self.reaches(l, at) {
            return;
        }
        for seq in (1..=me.seq).filter(|seq| site.lines[l].writes >> seq & 1 == 1) {
            let mut state = *now;
            model.write(&mut state.sites[at].node, l, seq, me.values[usize::from(seq)]);
            let line = &mut state.sites[at].lines[l];
            line.writes &= !(1 << seq);
            line.stored = line.stored.max(seq);
            let marked =
                site.node.mark == model.term(l) || (model.lacks(Rule::CountMarked) && site.node.mark > 0);
            if seq == me.seq && marked && !line.counts {
                model.note_stored(&mut state, l, at);
            }
            self.add(What::Writes(l, site.name, seq), state);
        }
    }

    /// Returns whether the node has everything that the leader has sent.
    fn has_all(&self, l: usize, at: usize) -> bool {
        let line = &self.now.sites[at].lines[l];
        line.stored == self.now.leaders[l].seq || self.model.lacks(Rule::CopyAll)
    }

    fn marks(&mut self, l: usize, at: usize) {
        let Self { model, now, .. } = *self;
        let (site, line) = (&now.sites[at], now.sites[at].lines[l]);
        let mut leadership = now.leadership(l);
        if line.is_current && !line.mark_sent && leadership.is_mark_due(at, self.has_all(l, at)) {
            let mut state = *now;
            leadership.on_mark_sent(at);
            state.set_leadership(l, &leadership);
            state.sites[at].lines[l].mark_sent = true;
            self.add(What::SendsMark(l, site.name), state);
        }
        if line.mark_sent && self.reaches(l, at) {
            let (mut state, mut leadership) = (*now, now.leadership(l));
            leadership.on_marked(at);
            state.set_leadership(l, &leadership);
            state.sites[at].lines[l].mark_sent = false;
            if now.leaders[l].founded {
                self.judge_founding(&mut state, l, at);
            }
            state.sites[at].node.mark = model.term(l);
            if line.stored == now.leaders[l].seq && !line.counts {
                model.note_stored(&mut state, l, at);
            }
            self.add(What::Marks(l, site.name), state);
        }
    }

    /// Judges the mark of a founding leader, which is about to run on the node at `at`.
    fn judge_founding(&self, state: &mut State<N>, l: usize, at: usize) {
        let (model, now, term) = (self.model, self.now, self.model.term(l));
        if now.sites[at].node.mark == 0 {
            if now.count(|site| site.node.mark > 0 && site.node.mark < term) >= model.majority() {
                state.judge.broken = Some(Broken::FoundedBeside);
            }
            let judge = &mut state.judge;
            if judge.founded < term {
                (judge.founded, judge.of_generation) = (term, [0; 3]);
                (judge.passer, judge.passed) = (0, false);
                if !model.at_most_once {
                    // How it had ended is unknown now.
                    (judge.skipped, judge.lost) = (false, false);
                }
            }
        }
        let first = state.leaders[l].seq == 1 && state.leaders[l].values[1] == Value::Lost;
        if first && state.count(|site| site.lines[l].standing.marked) >= model.majority() {
            state.judge.lost = true;
        }
    }

    fn joins(&mut self, l: usize, at: usize) {
        let Self { model, now, .. } = *self;
        let (site, line) = (&now.sites[at], now.sites[at].lines[l]);
        let (mut state, mut leadership) = (*now, now.leadership(l));
        if line.is_current && !line.mark_sent && leadership.begin_join(at, self.has_all(l, at)) {
            state.set_leadership(l, &leadership);
            for (other, site) in state.sites.iter_mut().enumerate() {
                let line = &mut site.lines[l];
                line.vouch_asked = other != at;
                line.standing.vouches =
                    model.lacks(Rule::JoinConfirm) || (model.lacks(Rule::JoinOthers) && other == at);
            }
            self.add(What::BeginsJoin(l, site.name), state);
        }
        if line.vouch_asked && self.reaches(l, at) && site.node.mark == model.term(l) {
            let (mut state, mut leadership) = (*now, now.leadership(l));
            leadership.on_vouched(at);
            state.set_leadership(l, &leadership);
            state.sites[at].lines[l].vouch_asked = false;
            self.add(What::Vouches(l, site.name), state);
        }
    }

    fn voids(&mut self, l: usize, at: usize) {
        let site = &self.now.sites[at];
        if !site.lines[l].void_sent || !self.reaches(l, at) {
            return;
        }
        let mut state = *self.now;
        if self.model.void(&mut state.sites[at].node, self.now.leaders[l].value()) {
            let line = &mut state.sites[at].lines[l];
            (line.void_sent, line.voided) = (false, true);
            self.add(What::Voids(l, site.name), state);
        }
    }

    /// Adds what a leader may record next, and its void.
    fn puts(&mut self, l: usize) {
        let Self { model, now, .. } = *self;
        let me = &now.leaders[l];
        let settled = me.seq == 1 || now.count(|site| site.lines[l].counts) >= model.commits_at();
        if !now.leadership(l).leads() || !settled || me.seq >= model.writes {
            return;
        }
        for value in self.next_values(l) {
            let mut state = *now;
            let leader = &mut state.leaders[l];
            leader.seq += 1;
            leader.values[usize::from(leader.seq)] = value;
            let seq = leader.seq;
            for site in &mut state.sites {
                let line = &mut site.lines[l];
                (line.counts, line.voided, line.void_sent) = (false, false, false);
                if line.standing.sealed && line.is_current {
                    line.writes |= 1 << seq;
                }
            }
            self.add(What::Puts(l, value), state);
        }
        let asked = now.sites.iter().any(|site| site.lines[l].void_sent || site.lines[l].voided);
        if me.value().is_assigned() && !asked {
            let mut state = *now;
            for site in &mut state.sites {
                site.lines[l].void_sent = site.lines[l].standing.sealed && site.lines[l].is_current;
            }
            self.add(What::SendsVoid(l), state);
        }
        if model.passes && me.value() == Value::Absent && !now.judge.passed && me.seq == 1 {
            let mut state = *now;
            (state.judge.passed, state.judge.passer) = (true, l as u8 + 1);
            self.add(What::PassesOver(l), state);
        }
    }

    /// Returns the records that the leader may write after its present one.
    fn next_values(&self, l: usize) -> Vec<Value> {
        let Self { model, now, .. } = *self;
        let (me, term, mut next) = (&now.leaders[l], model.term(l), Vec::new());
        match me.value() {
            Value::Absent if now.judge.passer == l as u8 + 1 => {}
            Value::Absent => {
                self.open(l, 1, &mut next);
                next.extend(model.skips.then_some(Value::Skipped));
            }
            Value::Unknown => {
                self.open(l, 2, &mut next);
                next.push(Value::Lost);
            }
            Value::Direct(attempt) if attempt.term == term => {
                next.extend((me.handler == Handler::Ended).then_some(Value::Done));
            }
            Value::Direct(attempt) => {
                next.push(Value::Lost);
                if !model.at_most_once {
                    self.open(l, attempt.number + 1, &mut next);
                }
            }
            Value::Assigned(attempt, worker) => self.after_assignment(l, attempt, worker, &mut next),
            Value::Skipped | Value::Done | Value::Lost => {}
        }
        next
    }

    fn after_assignment(&self, l: usize, attempt: Generation, worker: u8, next: &mut Vec<Value>) {
        let Self { model, now, .. } = *self;
        let value = now.leaders[l].value();
        let reported = |end: End| {
            now.sites
                .iter()
                .any(|site| site.node.mark > 0 && site.node.value == value && site.node.end == Some(end))
        };
        let needed = if model.lacks(Rule::VoidMajority) { 0 } else { model.majority() };
        if reported(End::Done) {
            next.push(Value::Done);
            if model.shard {
                self.open(l, attempt.number + 1, next);
            }
        }
        if now.count(|site| site.lines[l].voided) >= needed || reported(End::NotStarted) {
            // A later generation ends as cancelled, which promises nothing.
            next.extend((attempt.number == 1).then_some(Value::Skipped));
            self.open(l, attempt.number + 1, next);
        }
        let session = now.workers[usize::from(worker)].session;
        if !model.timed || session == Session::Ended || model.lacks(Rule::Session) {
            next.push(Value::Lost);
            if !model.at_most_once {
                self.open(l, attempt.number + 1, next);
            }
        }
    }

    /// Adds the attempts with this number that the leader may record.
    fn open(&self, l: usize, number: u8, next: &mut Vec<Value>) {
        let Self { model, now, .. } = *self;
        let value = now.leaders[l].value();
        let earlier_ended = now.workers[..model.workers]
            .iter()
            .all(|worker| worker.session != Session::Alive || worker.founding >= now.judge.founded);
        let waited = value != Value::Unknown || !model.timed || model.lacks(Rule::FoundWait) || earlier_ended;
        if number > model.generations || !waited {
            return;
        }
        let attempt = Generation { term: model.term(l), number };
        next.extend(model.direct.then_some(Value::Direct(attempt)));
        let alive = (0..model.workers).filter(|worker| now.workers[*worker].session == Session::Alive);
        next.extend(alive.map(|worker| Value::Assigned(attempt, worker as u8)));
    }
}
