use super::{
    Content, Entry, Heard, Key, Leadership, Phase, Records, Standing, Takeover,
    backlog::Backlog,
    content::{differences, merge},
};
use crate::node::{
    FencingToken, Incarnation, Refusal, Reply,
    copy::{AssignmentId, LeadAct, Put, Seal},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// The value of a record that was removed. Without it, a node that has missed the removal would bring the record back. The
/// leader removes it once every node has stored it, and a later leader once it leads: no node that decides then has the record from
/// before.
pub(super) const REMOVED: &str = "";

/// The content of a ledger in the hands of its leader, and the copies that it makes: the state machine of a whole term.
/// It performs no I/O. The caller asks for the [requests](Keeper::requests) after each event, sends them, and reports
/// the answers.
///
/// The *map* is the leader's content of the ledger: all that it adopted or sent, acknowledged or not. A node *lacks* the
/// keys under which its copy differs from the map.
#[derive(Debug)]
pub struct Keeper {
    seal: Seal,
    leadership: Leadership<Vec<Standing>>,
    copies: Vec<NodeCopy>,
    map: Records,
    founded: FencingToken,
    seq: u64,
    /// The writes of each key that are not stored at a majority of marked nodes yet.
    open: BTreeMap<Arc<str>, OpenWrites>,
    /// The number of those that are urgent.
    urgent: usize,
    /// The keys of the removed records that this leader has found, and has not removed itself.
    removed: BTreeSet<Arc<str>>,
    /// The numbers of the writes that were stored since the last [`Keeper::take_written`].
    written: Vec<u64>,
    /// The requests that are not answered yet, by ticket. A seal is none of them.
    asked: BTreeMap<u64, (usize, LeadAct)>,
    tickets: u64,
    superseded: Option<FencingToken>,
}

/// A leader's knowledge of one copy, beside its [`Standing`].
#[derive(Debug, Default)]
struct NodeCopy {
    /// The memory in which the node was sealed, and its number for the caller.
    memory: Option<(Incarnation, u64)>,
    /// The content that the node returned. `None` once the differences are known.
    content: Option<Content>,
    /// The content came while other nodes were asked to confirm, so it takes no part in this try to decide.
    is_late: bool,
    backlog: Backlog,
    is_asked_to_seal: bool,
    /// The confirmation that counts, if one is asked for.
    confirm: Option<u64>,
    mark: Option<u64>,
    /// A mark for this memory was sent. It may reach the node at any time, so it may be sent again.
    is_mark_sent: bool,
    /// The node did not answer a request. It is not asked before the caller says so.
    is_paused: bool,
    /// The node did not answer a request since it was sealed last.
    has_failed: bool,
}

/// The writes of one key that are not done.
#[derive(Debug, Default)]
struct OpenWrites {
    writes: Vec<OpenWrite>,
    /// The number of answers of nodes that have stored the last one. Before a majority has answered, the nodes need not be
    /// counted. A node that had the record already counts from its mark on.
    answers: usize,
}

/// A write that is not done.
#[derive(Clone, Copy, Debug)]
struct OpenWrite {
    seq: u64,
    is_urgent: bool,
}

/// A write of one record.
#[derive(Clone, Debug)]
pub struct Write {
    /// The key of the record.
    pub key: Arc<str>,
    /// The value. `None` removes the record: an empty one takes its place until every node has stored it, or a later leader
    /// leads.
    pub value: Option<Arc<str>>,
    /// The record is a new assignment.
    pub assignment: Option<AssignmentId>,
    /// The write is sent before those that are not urgent.
    pub is_urgent: bool,
}

/// A request to one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Seals the copy. The caller reads all its pages, and then calls [`Keeper::on_sealed`].
    Seal,
    /// A request in the memory in which the copy was sealed. The caller then calls [`Keeper::on_reply`].
    Lead {
        /// The number of the request.
        ticket: u64,
        /// The memory.
        memory: Incarnation,
        /// The request.
        act: LeadAct,
    },
}

/// The content of the ledger that a new leader has adopted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adopted {
    /// The term of the leader that founded the ledger.
    pub founded: FencingToken,
    /// The decision.
    pub takeover: Takeover,
    /// The records: of a ledger that goes on, its content; of one that is founded, what the deciding nodes still had.
    pub records: Records,
}

impl Keeper {
    /// Begins the term of a leader of `nodes` nodes, which has answered nothing yet.
    pub fn new(nodes: usize, seal: Seal) -> Self {
        Self {
            seal,
            leadership: Leadership::new(Phase::Sealing, vec![Standing::default(); nodes]),
            copies: (0..nodes).map(|_| NodeCopy::default()).collect(),
            map: Records::new(),
            founded: FencingToken::default(),
            seq: 0,
            open: BTreeMap::new(),
            urgent: 0,
            removed: BTreeSet::new(),
            written: Vec::new(),
            asked: BTreeMap::new(),
            tickets: 0,
            superseded: None,
        }
    }

    /// Returns whether the leader may act on the ledger: a majority of all nodes has everything and is marked.
    pub fn leads(&self) -> bool {
        self.superseded.is_none() && self.leadership.leads()
    }

    /// Returns whether this leader can never act on the ledger again, because too many nodes have forgotten.
    pub fn is_stranded(&self) -> bool {
        !self.leadership.can_lead()
    }

    /// Returns the term of a later leader, if a node is sealed by one.
    pub fn superseded(&self) -> Option<FencingToken> {
        self.superseded
    }

    /// Returns the leader's content of the ledger.
    pub fn map(&self) -> &Records {
        &self.map
    }

    /// Returns the memory in which `node` was sealed.
    pub fn memory(&self, node: usize) -> Option<Incarnation> {
        self.copies[node].memory.map(|(memory, _)| memory)
    }

    /// Returns whether `node` counts: it has all records and is marked.
    pub fn is_complete(&self, node: usize) -> bool {
        self.standing(node).marked && self.copies[node].has_all()
    }

    /// Returns whether the copy of `node` is complete: the node has not forgotten since this leader marked it.
    pub fn is_marked(&self, node: usize) -> bool {
        self.standing(node).marked && self.copies[node].memory.is_some()
    }

    /// Returns the number of records that `node` is known to lack. `None` while the leader does not know its copy.
    pub fn lacking(&self, node: usize) -> Option<usize> {
        let copy = &self.copies[node];
        copy.is_known().then_some(copy.backlog.len())
    }

    /// Begins a write. Returns its number, which [`Keeper::take_written`] returns once the write is done.
    pub fn write(&mut self, write: Write) -> u64 {
        let Write { key, value, assignment, is_urgent } = write;
        let seq = self.next_seq();
        self.removed.remove(&key);
        let value = value.unwrap_or_else(|| REMOVED.into());
        self.map.insert(Key::from(&key), Entry { value, assignment });
        for copy in self.copies.iter_mut().filter(|copy| copy.is_known()) {
            copy.backlog.add(&key, seq, is_urgent);
        }
        self.urgent += usize::from(is_urgent);
        let open = self.open.entry(key).or_default();
        open.writes.push(OpenWrite { seq, is_urgent });
        open.answers = 0;
        seq
    }

    /// Returns whether each urgent write is stored at a majority of marked nodes.
    pub fn has_written_urgent(&self) -> bool {
        self.urgent == 0
    }

    /// Removes the records for which `is_outdated` returns true. Nothing is left of them. So a later leader may find one again,
    /// on a node that has missed its removal: these must be records that do no harm then.
    pub fn prune(&mut self, is_outdated: impl Fn(&str, &str) -> bool) {
        let outdated = self.map.iter().filter(|(key, entry)| is_outdated(key.text(), &entry.value));
        let outdated: Vec<Arc<str>> = outdated.map(|(key, _)| Arc::clone(key.text())).collect();
        outdated.iter().for_each(|key| self.remove(key));
    }

    /// Removes a record, so that nothing is left of it.
    fn remove(&mut self, key: &Arc<str>) {
        let seq = self.next_seq();
        self.map.remove(&Key::from(key));
        for copy in self.copies.iter_mut().filter(|copy| copy.is_known()) {
            copy.backlog.add(key, seq, false);
        }
    }

    /// Returns the numbers of the writes that were stored at a majority of marked nodes since the last call.
    pub fn take_written(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.written)
    }

    /// Returns the requests to send now, each with its node.
    pub fn requests(&mut self) -> Vec<(usize, Asked)> {
        let mut requests = Vec::new();
        if self.superseded.is_some() {
            return requests;
        }
        self.hear_late_nodes();
        self.leadership.ask_to_confirm();
        self.begin_a_join();
        for node in 0..self.copies.len() {
            if !self.copies[node].is_paused {
                self.requests_to(node, &mut requests);
            }
        }
        requests
    }

    /// Notes the content of `node`, which it returned to the seal. `epoch` is the number of its memory for the caller.
    pub fn on_sealed(&mut self, node: usize, epoch: u64, content: Content) {
        let is_late = self.leadership.phase() == Phase::Confirming;
        let memory = Some((content.header.incarnation, epoch));
        self.copies[node] = NodeCopy { memory, is_late, content: Some(content), ..NodeCopy::default() };
        if !is_late {
            self.note_sealed(node);
        }
    }

    /// Notes the reply of a node to the request with this ticket, which the node gave in the memory with the number `epoch`.
    /// A node that did not answer has no reply.
    pub fn on_reply(&mut self, ticket: u64, epoch: u64, reply: Option<&Reply>) {
        let Some((node, act)) = self.asked.remove(&ticket) else { return };
        if let LeadAct::Put { writes } = &act {
            self.copies[node].backlog.answered(writes.len());
        }
        if self.copies[node].memory.is_none_or(|(_, sealed)| sealed != epoch) {
            // The answer is about an earlier memory, or about a later one that this leader has not sealed.
            self.on_epoch(node, epoch);
            return;
        }
        match reply {
            Some(Reply::Written) => self.on_written(node, ticket, &act),
            Some(Reply::Refused(Refusal::Sealed { by })) => self.on_superseded(*by),
            Some(Reply::Refused(Refusal::NotSealed)) => self.on_forgot(node),
            Some(Reply::Refused(Refusal::TooLate)) => self.write_again(node, &act),
            _ => {
                if let LeadAct::Put { writes } = &act {
                    let backlog = &mut self.copies[node].backlog;
                    writes.iter().for_each(|put| backlog.failed(&put.key, put.seq));
                }
                self.on_failed(node);
            }
        }
    }

    /// Notes that the memory of `node` has this number now.
    pub fn on_epoch(&mut self, node: usize, epoch: u64) {
        if self.copies[node].memory.is_some_and(|(_, sealed)| sealed < epoch) {
            self.on_forgot(node);
        }
    }

    /// Notes that a node is sealed by a later term.
    pub fn on_superseded(&mut self, by: FencingToken) {
        self.superseded = self.superseded.max(Some(by));
    }

    /// Notes that `node` did not answer a request, so that it may have carried it out or not. The leader asks the node
    /// nothing until [`Keeper::resume`].
    pub fn on_failed(&mut self, node: usize) {
        let copy = &mut self.copies[node];
        (copy.is_paused, copy.has_failed) = (true, true);
        (copy.is_asked_to_seal, copy.confirm, copy.mark) = (false, None, None);
    }

    /// Lets the leader ask `node` again after a failure.
    pub fn resume(&mut self, node: usize) {
        self.copies[node].is_paused = false;
    }

    /// Returns whether the leader waits for [`Keeper::resume`] of this node.
    pub fn is_paused(&self, node: usize) -> bool {
        self.copies[node].is_paused
    }

    /// Decides about the takeover, if enough nodes have confirmed. `holds_latest_lease` is true if this leader holds the
    /// latest lease of the leadership.
    ///
    /// If the ledger goes on, its records are adopted. If it is founded, the caller calls [`Keeper::found`] with the records
    /// that it keeps. A new ledger lacks what only the other nodes have. So the leader founds it once each node has confirmed
    /// or has failed to answer.
    pub fn decide(&mut self, holds_latest_lease: bool) -> Option<Adopted> {
        if self.leadership.phase() != Phase::Confirming {
            return None;
        }
        let confirmed = |(node, copy): (usize, &NodeCopy)| {
            let content = copy.content.as_ref().filter(|_| !copy.is_late && self.standing(node).confirmed)?;
            Some(Heard { node, mark: content.header.mark })
        };
        let heard: Vec<Heard> = self.copies.iter().enumerate().filter_map(confirmed).collect();
        let may_found = holds_latest_lease && !self.awaits_a_node();
        let takeover = self.leadership.decide(&heard, may_found)?;
        let counts = |heard: &Heard| match takeover {
            Takeover::Continue { mark } => heard.mark == Some(mark),
            Takeover::Found => true,
        };
        let contents = |heard: &Heard| self.copies[heard.node].content.as_ref();
        let deciding: Vec<&Content> =
            heard.iter().filter(|heard| counts(heard)).filter_map(contents).collect();
        let mut records = merge(deciding.iter().copied());
        if let Takeover::Continue { .. } = takeover {
            self.founded = deciding.iter().map(|content| content.header.founded).max().unwrap_or_default();
            self.adopt(records.clone());
        }
        records.retain(|_, entry| *entry.value != *REMOVED);
        let founded = if takeover == Takeover::Found { self.seal.term } else { self.founded };
        Some(Adopted { founded, takeover, records })
    }

    /// Returns whether a node may still confirm that has not failed.
    fn awaits_a_node(&self) -> bool {
        let awaited = |(copy, standing): (&NodeCopy, &Standing)| {
            !copy.has_failed && (copy.memory.is_none() || copy.is_late || !standing.confirmed)
        };
        self.copies.iter().zip(self.leadership.nodes()).any(awaited)
    }

    /// Founds the ledger with these records.
    pub fn found(&mut self, records: Records) {
        self.founded = self.seal.term;
        self.adopt(records);
    }

    fn adopt(&mut self, records: Records) {
        let removed = records.iter().filter(|(_, entry)| *entry.value == *REMOVED);
        self.removed = removed.map(|(key, _)| Arc::clone(key.text())).collect();
        self.map = records;
        for node in 0..self.copies.len() {
            if std::mem::take(&mut self.copies[node].is_late) {
                self.note_sealed(node);
            } else {
                self.compare(node);
            }
        }
    }

    /// Notes that `node` has answered the seal.
    fn note_sealed(&mut self, node: usize) {
        let is_complete =
            self.copies[node].content.as_ref().is_some_and(|content| content.header.is_complete());
        self.leadership.on_sealed(node, is_complete);
        if self.leadership.phase() == Phase::Decided {
            self.compare(node);
        }
    }

    /// If the nodes that have confirmed cannot decide, goes back to the seal and hears those that came later.
    fn hear_late_nodes(&mut self) {
        let waits = |(copy, standing): (&NodeCopy, &Standing)| {
            standing.asked && !standing.confirmed && !copy.is_paused
        };
        let has_late = self.copies.iter().any(|copy| copy.is_late);
        if !has_late || self.copies.iter().zip(self.leadership.nodes()).any(waits) {
            return;
        }
        self.leadership.seal_again();
        for node in 0..self.copies.len() {
            self.copies[node].confirm = None;
            if std::mem::take(&mut self.copies[node].is_late) {
                self.note_sealed(node);
            }
        }
    }

    /// Works out what the copy of `node` lacks.
    fn compare(&mut self, node: usize) {
        let seq = self.next_seq();
        let Self { copies, map, .. } = self;
        let copy = &mut copies[node];
        if let Some(content) = copy.content.take() {
            let lacks = differences(map, &content);
            lacks.iter().for_each(|key| copy.backlog.add(key, seq, false));
        }
    }

    fn next_seq(&mut self) -> u64 {
        self.seq += 1;
        self.seq
    }

    fn standing(&self, node: usize) -> Standing {
        self.leadership.nodes()[node]
    }

    fn requests_to(&mut self, node: usize, requests: &mut Vec<(usize, Asked)>) {
        let Some((memory, _)) = self.copies[node].memory else {
            if !std::mem::replace(&mut self.copies[node].is_asked_to_seal, true) {
                requests.push((node, Asked::Seal));
            }
            return;
        };
        let mut acts = self.puts(node);
        acts.extend(self.confirmation(node));
        acts.extend(self.mark(node));
        for act in acts {
            let ticket = self.tickets;
            self.tickets += 1;
            match act {
                LeadAct::Confirm => self.copies[node].confirm = Some(ticket),
                LeadAct::Mark { .. } => self.copies[node].mark = Some(ticket),
                _ => {}
            }
            self.asked.insert(ticket, (node, act.clone()));
            requests.push((node, Asked::Lead { ticket, memory, act }));
        }
    }

    /// Returns the requests with the writes to send next.
    fn puts(&mut self, node: usize) -> Vec<LeadAct> {
        let Self { copies, map, .. } = self;
        let sent = std::iter::from_fn(|| copies[node].backlog.send());
        let put = |(key, seq): (Arc<str>, u64)| {
            let entry = map.get(&Key::from(&key));
            let (assignment, value) =
                (entry.and_then(|entry| entry.assignment), entry.map(|entry| entry.value.clone()));
            Put { key, seq, assignment, value }
        };
        LeadAct::puts(sent.map(put))
    }

    /// Lets a node join that had forgotten and has everything now, if no other one joins.
    fn begin_a_join(&mut self) {
        let Self { leadership, copies, .. } = self;
        if (0..copies.len()).any(|node| leadership.begin_join(node, copies[node].has_all())) {
            // What was asked before the join began says nothing about it.
            copies.iter_mut().for_each(|copy| copy.confirm = None);
        }
    }

    /// Returns the request to confirm, if one is due: before the decision, or because another node joins.
    fn confirmation(&mut self, node: usize) -> Option<LeadAct> {
        let standing = self.standing(node);
        let is_due = match self.leadership.phase() {
            Phase::Sealing => false,
            Phase::Confirming => standing.asked && !standing.confirmed,
            Phase::Decided => {
                let joins = self.leadership.nodes().iter().any(|standing| standing.joins);
                joins
                    && !standing.joins
                    && standing.marked
                    && !standing.vouches
                    && self.copies[node].is_known()
            }
        };
        (is_due && self.copies[node].confirm.is_none()).then_some(LeadAct::Confirm)
    }

    /// Returns the request to mark the node, if it is due.
    fn mark(&mut self, node: usize) -> Option<LeadAct> {
        let copy = &mut self.copies[node];
        let is_marked = self.leadership.nodes()[node].marked;
        let is_due = self.leadership.phase() == Phase::Decided
            && copy.mark.is_none()
            && (copy.is_mark_sent && !is_marked || self.leadership.is_mark_due(node, copy.has_all()));
        is_due.then(|| {
            copy.is_mark_sent = true;
            self.leadership.on_mark_sent(node);
            LeadAct::Mark { founded: self.founded }
        })
    }

    fn on_written(&mut self, node: usize, ticket: u64, act: &LeadAct) {
        let copy = &mut self.copies[node];
        match act {
            LeadAct::Confirm if copy.confirm == Some(ticket) => {
                copy.confirm = None;
                match self.leadership.phase() {
                    Phase::Sealing => {}
                    Phase::Confirming => self.leadership.on_confirmed(node),
                    Phase::Decided => self.leadership.on_vouched(node),
                }
            }
            LeadAct::Put { writes } => writes.iter().for_each(|put| self.on_put(node, put)),
            LeadAct::Mark { .. } => {
                copy.mark = None;
                self.leadership.on_marked(node);
                if self.leads() {
                    let removed = std::mem::take(&mut self.removed);
                    removed.iter().for_each(|key| self.remove(key));
                }
                let keys: Vec<Arc<str>> = self.open.keys().cloned().collect();
                keys.iter().for_each(|key| self.close_writes_of(key));
            }
            LeadAct::Confirm | LeadAct::Void { .. } => {}
        }
    }

    fn on_put(&mut self, node: usize, put: &Put) {
        if self.copies[node].backlog.written(&put.key, put.seq)
            && let Some(open) = self.open.get_mut(&put.key)
        {
            open.answers += 1;
            if open.answers >= crate::config::majority(self.copies.len()) {
                self.close_writes_of(&put.key);
            }
        }
        self.remove_for_good(&put.key);
    }

    /// If a record was removed and every node has that, removes what is left of it: no node can bring the record back.
    fn remove_for_good(&mut self, key: &Arc<str>) {
        let is_removed = |entry: &Entry| *entry.value == *REMOVED;
        if self.copies.iter().all(|copy| copy.has(key))
            && !self.open.contains_key(key)
            && self.map.get(&Key::from(key)).is_some_and(is_removed)
        {
            self.remove(key);
        }
    }

    /// Sends records under a new number: requests were carried out in another order than they were sent in, so the node
    /// cannot know whether a later one had removed a record.
    fn write_again(&mut self, node: usize, act: &LeadAct) {
        let seq = self.next_seq();
        if let LeadAct::Put { writes } = act {
            let backlog = &mut self.copies[node].backlog;
            writes.iter().for_each(|put| backlog.renumber(&put.key, put.seq, seq));
        }
    }

    fn on_forgot(&mut self, node: usize) {
        self.copies[node] = NodeCopy { is_paused: self.copies[node].is_paused, ..NodeCopy::default() };
        match self.leadership.phase() {
            Phase::Decided => self.leadership.on_forgot(node),
            Phase::Sealing | Phase::Confirming => self.leadership.on_unsealed(node),
        }
    }

    /// Ends the writes of `key`, if a majority of marked nodes has stored the last of them.
    fn close_writes_of(&mut self, key: &Arc<str>) {
        let has = |(copy, standing): &(&NodeCopy, &Standing)| standing.marked && copy.has(key);
        let stored = self.copies.iter().zip(self.leadership.nodes()).filter(has).count();
        if stored >= crate::config::majority(self.copies.len()) {
            for OpenWrite { seq, is_urgent } in self.open.remove(key).unwrap_or_default().writes {
                self.urgent -= usize::from(is_urgent);
                self.written.push(seq);
            }
        }
    }
}

impl NodeCopy {
    /// Returns whether the leader knows what the node lacks.
    fn is_known(&self) -> bool {
        self.memory.is_some() && self.content.is_none()
    }

    fn has(&self, key: &str) -> bool {
        self.is_known() && !self.backlog.lacks(key)
    }

    fn has_all(&self) -> bool {
        self.is_known() && self.backlog.len() == 0
    }
}

#[cfg(test)]
#[path = "keeper_tests.rs"]
mod tests;
