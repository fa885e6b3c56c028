//! Model of the ledger: no tick is started twice under `at_most_once`, and no older leader starts a tick
//! that a newer leader found not started.
//!
//! # Purpose of each rule
//!
//! Under `at_most_once`, compare-and-set alone keeps leaders from starting a tick twice, and so does the seal
//! alone. One of these two rules is enough for this property.
//!
//! With compare-and-set alone, no leader overwrites a record. Each node keeps the first record that reaches
//! it, so two records cannot both have a majority.
//!
//! With the seal alone, a leader that finds no record at a sealed majority may start the tick: no older
//! leader can write to a majority any more. A leader that finds a record does not start the tick.
//!
//! Only the seal makes the verdict *not started* reliable. A leader may act on this verdict before it has
//! written anything of its own. Or it may drop the tick as misfired and never write. If the leader had only
//! read the ledger, a delayed write of an older leader could still start the tick.
//!
//! # Not covered
//!
//! The model does not cover `at_least_once`, which may start a tick twice, nor retries within a term. The
//! model does not cover leadership itself: no leader in this model stops because its lease has ended.
//!
//! # Scope
//!
//! The model has three nodes, one tick, and leaders whose terms are unique and grow (which
//! [`fencing`](super::fencing) shows). A leader may be paused at any point for any time: between its seal and
//! its write, and between its write and its start. Requests run at any later moment, in any order, or never;
//! a write may run any number of times. A leader decides at any moment at which a majority has answered. A
//! node may forget everything, or come back with an earlier state. The memory of such a node is younger than
//! the tick. (A node that forgets before the tick has no record of the tick to lose.) A node that forgot
//! answers again at once, because the model needs no quarantine. A leader may prune a tick that has ended.
//!
//! Workers start a *spread* tick, in place of leaders. Each worker writes *started*, in a record of its own,
//! on the nodes that store no record. All these records have one term. The workers' claims, which usually let
//! only one worker try, are left out: any number of workers may believe that they hold the claim. A worker
//! that finds the record of another worker treats the tick as lost. The worker overwrites that record with
//! *lost*, at any moment and any number of times.
//!
//! # Parts that are the shipped code
//!
//! Seal, read, write and prune run on the shipped engine. The shipped [`verdict`] and [`Delivery::decide`]
//! evaluate the answers to a seal, and the shipped [`WriteTally`] those to a write.

use super::{
    NODES, Name,
    ledger_store::{LedgerStore, NOW, TICK, ask, prune, read, record, seal, stored_record, write},
};
use quorate::{
    env::WallTime,
    internals::{Answer, majority},
    internals::{Decision, NodeAnswer, SkipReason, verdict},
    ledger::{Memory, WriteTally, WriteVerdict},
    node::{NodeTime, Record, Reply},
    scheduler::Delivery,
};
use stateright::{Model, Property};
use std::{fmt, time::Duration};

/// The maximum number of leaders, or of workers.
pub const WRITERS: usize = 4;

/// The writer number in a *lost* record. No writer has this number.
const LOST: u8 = 7;

/// The property that no two writers both start the tick.
pub const ONCE: &str = "a tick starts once";
/// The property that a leader's verdict *not started* stays true. It exists only in models of leaders.
pub const FOUND: &str = "what a leader found not started, no older one starts";

/// The model, within bounds.
#[derive(Clone, Copy, Debug)]
pub struct Ledger {
    /// The number of writers. They are leaders, each with a term of its own, or workers if the tick is
    /// spread.
    pub writers: usize,
    /// True if the tick is spread: workers write its start, in place of leaders.
    pub spread: bool,
    /// The number of times that a node forgets everything.
    pub forgets: u8,
    /// The number of times that a node comes back with an earlier state.
    pub returns: u8,
    /// Lets leaders prune ended ticks.
    pub prunes: bool,
    /// The rules that this model leaves out.
    pub without: &'static [Rule],
}

/// A rule that keeps a tick from being started twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A leader seals the ledger before it decides. Without this rule, the leader only reads the ledger.
    Seal,
    /// A write names the record that its writer has seen. A node with another record refuses the write.
    CompareAndSet,
    /// A node counts only if its memory is older than the tick.
    Memory,
    /// A worker starts the work of a spread tick only after a majority has stored *started*.
    Majority,
    /// The record that a worker writes for a spread tick differs from that of every other worker.
    OwnRecord,
}

/// The state of nodes and writers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State {
    sites: [Site; NODES],
    phases: [Phase; WRITERS],
    forgets: u8,
    returns: u8,
}

/// One node, and the messages between it and each writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
struct Site {
    store: LedgerStore,
    /// True if the node's memory began after the tick was due.
    young: bool,
    saved: Option<LedgerStore>,
    lines: [Line; WRITERS],
    name: Name,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
struct Line {
    /// True if the writer's seal has run on the node.
    asked: bool,
    /// The answer to the seal: the node's store, and whether its memory began after the tick. The answer is in
    /// flight until `arrived` is set.
    answer: Option<(LedgerStore, bool)>,
    arrived: bool,
    /// True if the node accepted a write of this writer. The reply is in flight until `counted` is set.
    written: bool,
    counted: bool,
    /// True if the node's memory began after the tick at every write that the node accepted from this writer.
    /// Such a node must not count.
    young: bool,
}

/// The phase of a leader or a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
enum Phase {
    /// The writer sends its seal and waits for answers.
    #[default]
    Asking,
    /// The writer sends its write of *started* and waits for answers.
    Writing,
    /// A majority has stored *started*, and the writer has started the work.
    Started,
    /// The writer found that the tick was started before.
    Skipped,
    /// The writer found that no majority of the nodes remembers the tick.
    Unknown,
}

/// A step of the model. Writers are numbered from one: a leader's number is its term.
#[derive(Clone, Copy, PartialEq)]
pub enum Action {
    /// A writer's seal runs on a node.
    Ask(u8, Name),
    /// The answer to a seal arrives.
    Answer(u8, Name),
    /// A leader decides on the answers that have arrived.
    Decide(u8),
    /// A writer's write of *started* runs on a node.
    Write(u8, Name),
    /// The answer to a write arrives.
    Written(u8, Name),
    /// A worker that has found another worker's record treats the tick as lost, and overwrites that record
    /// with *lost*.
    Lose(u8, Name),
    /// A node prunes the tick.
    Prune(u8, Name),
    /// A node forgets everything.
    Forget(Name),
    /// A node saves its state.
    Save(Name),
    /// A node comes back with the saved state.
    Return(Name),
}

impl fmt::Debug for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Ask(l, node) => write!(f, "{l} asks {node:?}"),
            Self::Answer(l, node) => write!(f, "{l} receives the answer of {node:?}"),
            Self::Decide(l) => write!(f, "{l} decides"),
            Self::Write(l, node) => write!(f, "{l} writes {node:?}"),
            Self::Written(l, node) => write!(f, "{l} receives the reply of {node:?} to its write"),
            Self::Lose(l, node) => write!(f, "{l} gives up over {node:?}"),
            Self::Prune(l, node) => write!(f, "{l} prunes {node:?}"),
            Self::Forget(node) => write!(f, "{node:?} forgets"),
            Self::Save(node) => write!(f, "{node:?} saves"),
            Self::Return(node) => write!(f, "{node:?} returns"),
        }
    }
}

impl Ledger {
    /// Returns the model of two leaders, and a node that forgets.
    pub fn leaders() -> Self {
        Self { writers: 2, spread: false, forgets: 1, returns: 0, prunes: false, without: &[] }
    }

    /// Returns the model of two workers that may both write the start of a spread tick, and a node that
    /// forgets.
    pub fn spread() -> Self {
        Self { spread: true, ..Self::leaders() }
    }

    fn leaves_out(&self, rule: Rule) -> bool {
        self.without.contains(&rule)
    }

    fn ask(&self, site: &mut Site, writer: u8) {
        let line = usize::from(writer) - 1;
        site.lines[line].asked = true;
        let request = if self.leaves_out(Rule::Seal) { read() } else { seal(writer) };
        if let Reply::Ledger(_) = ask(&mut site.store, request) {
            site.lines[line].answer = Some((site.store, site.young));
        }
    }

    /// Evaluates the answers that have arrived, with the shipped code.
    fn decide(&self, state: &State, line: usize) -> Option<Phase> {
        let answers = state.sites.iter().filter(|site| site.lines[line].arrived);
        let answers: Vec<(LedgerStore, bool)> = answers.filter_map(|site| site.lines[line].answer).collect();
        let records: Vec<_> = answers.iter().map(|(store, _)| stored_record(store)).collect();
        let views = answers.iter().zip(&records).map(|((store, young), record)| {
            let young = *young && !self.leaves_out(Rule::Memory);
            let since = NodeTime::from_micros(if young { NOW } else { 0 });
            NodeAnswer { since, low_water: store.low_water(), record: record.as_ref() }
        });
        let views: Vec<NodeAnswer<'_>> = views.collect();
        let tick = WallTime::from_micros(TICK);
        let weighed = verdict(&views, majority(NODES), tick, Duration::from_micros(1));
        match Delivery::AtMostOnce.decide(&weighed) {
            Decision::Run => Some(Phase::Writing),
            Decision::Skip(SkipReason::Unknown) => Some(Phase::Unknown),
            Decision::Skip(_) => Some(Phase::Skipped),
            Decision::AskAgain => None,
        }
    }

    fn write(&self, site: &mut Site, writer: u8) {
        // Without compare-and-set, the model names the stored record as the one that the writer has seen. The
        // node's comparison then always succeeds.
        let seen = if self.leaves_out(Rule::CompareAndSet) { stored_record(&site.store) } else { None };
        let record = self.started(writer);
        if ask(&mut site.store, write(if self.spread { 0 } else { writer }, seen, record)) == Reply::Written {
            let line = &mut site.lines[usize::from(writer) - 1];
            line.young = site.young && (line.young || !line.written);
            line.written = true;
        }
    }

    /// Returns the record with which `writer` starts the tick.
    fn started(&self, writer: u8) -> Record {
        match self.spread {
            true => record(0, if self.leaves_out(Rule::OwnRecord) { 1 } else { writer }, false),
            false => record(writer, writer, false),
        }
    }

    /// Overwrites the stored record of another writer with *lost*.
    fn lose(&self, site: &mut Site, writer: u8) -> bool {
        let seen = stored_record(&site.store).filter(|seen| !seen.last && *seen != self.started(writer));
        seen.is_some_and(|seen| {
            ask(&mut site.store, write(0, Some(seen), record(0, LOST, true))) == Reply::Written
        })
    }

    fn counted(&self, state: &mut State, line: usize) {
        let nodes = if self.leaves_out(Rule::Majority) { 1 } else { NODES };
        let mut tally = WriteTally::new(nodes, TICK);
        for site in state.sites.iter().filter(|site| site.lines[line].counted).take(nodes) {
            let young = site.lines[line].young && !self.leaves_out(Rule::Memory);
            let since = NodeTime::from_micros(if young { NOW } else { 0 });
            let memory = Memory { since, max_clock_offset: Duration::from_micros(1) };
            tally.count(memory, &Answer::Reply(Reply::Written));
        }
        if tally.verdict() == WriteVerdict::Written {
            state.phases[line] = Phase::Started;
        }
    }

    /// Gives a node a new memory with the data of `store`. The new memory began after the tick. Answers that
    /// have already left the node still arrive, and requests that have not run may run on the new memory.
    fn lose_memory(site: &mut Site, store: LedgerStore) {
        (site.store, site.young) = (store, true);
    }

    /// Drops answers for which no writer waits any more. Otherwise, states with the same future would count
    /// as different states.
    fn drop_stale_messages(state: &mut State) {
        for (line, phase) in state.phases.iter().enumerate() {
            if *phase == Phase::Asking {
                continue;
            }
            for site in &mut state.sites {
                let Line { written, counted, young, .. } = site.lines[line];
                let listens = *phase == Phase::Writing;
                site.lines[line] = Line {
                    asked: true,
                    written: written && listens,
                    counted: counted && listens,
                    young: young && listens,
                    ..Line::default()
                };
            }
        }
    }

    fn line_actions(&self, state: &State, site: &Site, actions: &mut Vec<Action>) {
        let name = site.name;
        for (writer, (line, phase)) in (1..).zip(site.lines.iter().zip(state.phases)).take(self.writers) {
            if !line.asked && phase == Phase::Asking {
                actions.push(Action::Ask(writer, name));
            }
            if line.answer.is_some() && !line.arrived {
                actions.push(Action::Answer(writer, name));
            }
            if matches!(phase, Phase::Writing | Phase::Started) {
                actions.push(Action::Write(writer, name));
            }
            if line.written && !line.counted {
                actions.push(Action::Written(writer, name));
            }
            if self.spread && matches!(phase, Phase::Writing | Phase::Skipped) {
                actions.push(Action::Lose(writer, name));
            }
            if self.prunes && matches!(phase, Phase::Started | Phase::Skipped | Phase::Unknown) {
                actions.push(Action::Prune(writer, name));
            }
        }
    }
}

/// Returns `true` if an older leader has started the tick although a newer leader found it not started.
/// (Every leader that writes *started* has found the tick not started.) If the older leader had started the
/// tick before the newer leader's seal, the seal would have found the older leader's record.
fn verdict_contradicted(state: &State) -> bool {
    let found = |phase: &Phase| matches!(phase, Phase::Writing | Phase::Started);
    let older = state.phases.iter().position(|phase| *phase == Phase::Started);
    older.is_some_and(|older| state.phases[older + 1..].iter().any(found))
}

fn started(state: &State) -> usize {
    state.phases.iter().filter(|phase| **phase == Phase::Started).count()
}

impl Model for Ledger {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let sites = std::array::from_fn(|node| Site { name: Name(node as u8), ..Site::default() });
        let mut phases = [Phase::Asking; WRITERS];
        if self.spread {
            phases[..self.writers].fill(Phase::Writing);
        }
        vec![State { sites, phases, forgets: self.forgets, returns: self.returns }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for writer in 1..=self.writers as u8 {
            if state.phases[usize::from(writer) - 1] == Phase::Asking {
                actions.push(Action::Decide(writer));
            }
        }
        for site in &state.sites {
            self.line_actions(state, site, actions);
            if state.forgets > 0 {
                actions.push(Action::Forget(site.name));
            }
            if state.returns > 0 && state.sites.iter().all(|any| any.saved.is_none()) {
                actions.push(Action::Save(site.name));
            }
            if state.returns > 0 && site.saved.is_some() {
                actions.push(Action::Return(site.name));
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = *last;
        let at = |name: Name| last.sites.iter().position(|site| site.name.0 == name.0);
        match action {
            Action::Ask(writer, node) => self.ask(&mut state.sites[at(node)?], writer),
            Action::Answer(writer, node) => {
                state.sites[at(node)?].lines[usize::from(writer) - 1].arrived = true;
            }
            Action::Decide(writer) => {
                let line = usize::from(writer) - 1;
                state.phases[line] = self.decide(last, line)?;
            }
            Action::Write(writer, node) => self.write(&mut state.sites[at(node)?], writer),
            Action::Written(writer, node) => {
                let line = usize::from(writer) - 1;
                state.sites[at(node)?].lines[line].counted = true;
                self.counted(&mut state, line);
            }
            Action::Lose(writer, node) => {
                if !self.lose(&mut state.sites[at(node)?], writer) {
                    return None;
                }
                state.phases[usize::from(writer) - 1] = Phase::Skipped;
            }
            Action::Prune(writer, node) => {
                let term = if self.spread { 0 } else { writer };
                ask(&mut state.sites[at(node)?].store, prune(term));
            }
            Action::Forget(node) => {
                state.forgets -= 1;
                Self::lose_memory(&mut state.sites[at(node)?], LedgerStore::default());
            }
            Action::Save(node) => {
                let site = &mut state.sites[at(node)?];
                site.saved = Some(site.store);
            }
            Action::Return(node) => {
                state.returns -= 1;
                let saved = state.sites[at(node)?].saved.take()?;
                Self::lose_memory(&mut state.sites[at(node)?], saved);
            }
        }
        Self::drop_stale_messages(&mut state);
        state.sites.sort();
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always(ONCE, |_, state: &State| started(state) <= 1),
            Property::sometimes("a tick started", |_, state: &State| started(state) == 1),
        ];
        if self.spread {
            properties.push(Property::sometimes("a worker gave it up", |_, state: &State| {
                state.phases.contains(&Phase::Skipped)
            }));
        } else {
            properties.push(Property::always(FOUND, |_, state: &State| !verdict_contradicted(state)));
            properties.push(Property::sometimes("a leader found it started", |_, state: &State| {
                state.phases[1] == Phase::Skipped && state.phases[0] == Phase::Started
            }));
            if self.forgets + self.returns >= 2 {
                properties.push(Property::sometimes("too few remembered", |_, state: &State| {
                    state.phases.contains(&Phase::Unknown)
                }));
            }
        }
        properties
    }
}
