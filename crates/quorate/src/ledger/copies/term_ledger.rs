use super::{Adopted, Asked, Content, Entry, Keeper, Key, Records, Takeover, Write, readers::Readers};
use crate::{
    env::{BootTime, ScopedTask},
    ledger::{
        Ledger, LedgerError,
        pages::{PageResult, Pages},
    },
    node::{
        Cursor, FencingToken, Incarnation, Refusal, Request,
        copy::{AssignmentId, Seal},
    },
    quorum::Quorum,
    vote::{Answer, NodeOutcome, ReplyTo, Vote, VoteReceiver, VoteSender, vote_channel},
};
use futures_util::FutureExt;
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::sync::{mpsc, oneshot};

/// The key of the record with the time of the founding, in microseconds since the epoch. A ledger that was not founded
/// after a loss has no such record.
pub(crate) const FOUNDED: &str = "founded";

/// The pause before a node that did not answer is asked again, while a caller waits.
const ASK_AGAIN: Duration = Duration::from_millis(50);
/// The time between two looks at the nodes while no caller waits.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// The ticket of the votes on pages. It is larger than every ticket of a [`Keeper`].
const PAGE: u64 = u64::MAX;

/// The ledger of a group in the hands of its leader, for one term. A task of the term makes the copies of all nodes equal
/// to the leader's content.
///
/// # What is not guaranteed
///
/// A write has no failure: it is sent until a majority has stored it, or the term has ended. A later leader may have a
/// write that was not acknowledged.
#[derive(Clone, Debug)]
pub(crate) struct TermLedger {
    ledger: Ledger,
    seal: Seal,
    orders: mpsc::UnboundedSender<Order>,
}

/// An order for the task.
enum Order {
    /// A write, with the channel that is informed once a majority has stored the record.
    Write(Write, Option<oneshot::Sender<()>>),
    /// Removes the records for which the function returns true.
    Prune(IsOutdated),
    /// Asks for the memory of each node in which the node stored this leader's seal.
    Memories(oneshot::Sender<Vec<Option<Incarnation>>>),
}

/// Returns for the key and the value of a record whether it is to be removed.
type IsOutdated = Box<dyn Fn(&str, &str) -> bool + Send>;

impl TermLedger {
    /// Takes the ledger over: seals the copies, and decides which records count. `may_found` returns whether this leader
    /// holds the latest lease of the leadership, so that it may found the ledger if a majority of the nodes has forgotten it
    /// (L5). Returns the handle, the records, and the task, which the caller must keep.
    ///
    /// The call waits for nodes as long as the ledger cannot be taken over. Until a majority of the nodes has everything and
    /// is marked, no write is done.
    ///
    /// # Errors
    /// [`LedgerError::Superseded`] if a later leader has sealed the ledger. [`LedgerError::Stranded`] if a majority of the nodes has
    /// forgotten meanwhile.
    ///
    /// # Cancel safety
    /// If the future is dropped, some nodes may be sealed. This affects only earlier terms.
    pub(crate) async fn take_over(
        ledger: &Ledger,
        term: FencingToken,
        may_found: impl Fn() -> bool + Send + 'static,
    ) -> Result<(Self, Adopted, ScopedTask<()>), LedgerError> {
        let env = ledger.quorum().env().clone();
        let (orders, inbox) = mpsc::unbounded_channel();
        let (adopted, answer) = oneshot::channel();
        let seal = Seal { term, leader: env.random() };
        let task = CopyTask::new(ledger, seal, Box::new(may_found), adopted);
        let task = env.spawn_scoped(task.serve(inbox));
        // The task ends without an answer only if the program stops.
        let adopted = answer.await.unwrap_or(Err(LedgerError::Superseded { by: term }))?;
        Ok((Self { ledger: ledger.clone(), seal, orders }, adopted, task))
    }

    /// Stores a record, or removes it with `None`, without waiting for it.
    pub(crate) fn put(&self, key: &Arc<str>, value: Option<Arc<str>>) {
        self.send((key, value, None), true, None);
    }

    /// Removes the records for which `is_outdated` returns true for the key and the value. The call does not wait.
    pub(crate) fn prune(&self, is_outdated: impl Fn(&str, &str) -> bool + Send + 'static) {
        let _ = self.orders.send(Order::Prune(Box::new(is_outdated)));
    }

    /// Stores a record.
    ///
    /// # Errors
    /// [`LedgerError::Ended`] if the term has ended before a majority has stored the record.
    ///
    /// # Cancel safety
    /// If the future is dropped, the record is written nevertheless.
    pub(crate) fn write(
        &self,
        key: &Arc<str>,
        value: Arc<str>,
    ) -> impl Future<Output = Result<(), LedgerError>> + Send + use<> {
        self.await_write((key, Some(value), None), true)
    }

    /// Stores a record as [`write`](Self::write) does, or removes it.
    pub(crate) fn write_or_remove(
        &self,
        key: &Arc<str>,
        value: Option<Arc<str>>,
    ) -> impl Future<Output = Result<(), LedgerError>> + Send + use<> {
        self.await_write((key, value, None), true)
    }

    /// Stores a record in the same way as [`TermLedger::write`], but after all other writes. If the term ends, a record that
    /// was not sent yet is left out.
    pub(crate) fn write_later(
        &self,
        key: &Arc<str>,
        value: Arc<str>,
    ) -> impl Future<Output = Result<(), LedgerError>> + Send + use<> {
        self.await_write((key, Some(value), None), false)
    }

    /// Writes the record of a run that is the assignment `id` (see [`write`](Self::write)). An assignment has registers on
    /// the nodes, which stay while records with its id follow each other.
    pub(crate) fn assign(
        &self,
        key: &Arc<str>,
        value: Arc<str>,
        id: AssignmentId,
    ) -> impl Future<Output = Result<(), LedgerError>> + Send + use<> {
        self.await_write((key, Some(value), Some(id)), true)
    }

    pub(crate) fn term(&self) -> FencingToken {
        self.seal.term
    }

    pub(super) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    pub(super) fn seal(&self) -> Seal {
        self.seal
    }

    /// Returns the memory of each node in which the node stored this leader's seal. It is empty once the term has ended.
    pub(super) async fn memories(&self) -> Vec<Option<Incarnation>> {
        let (sender, answer) = oneshot::channel();
        let _ = self.orders.send(Order::Memories(sender));
        answer.await.unwrap_or_default()
    }

    fn await_write(
        &self,
        (key, value, assignment): (&Arc<str>, Option<Arc<str>>, Option<AssignmentId>),
        is_urgent: bool,
    ) -> impl Future<Output = Result<(), LedgerError>> + Send + use<> {
        let (done, stored) = oneshot::channel();
        self.send((key, value, assignment), is_urgent, Some(done));
        stored.map(|stored| stored.map_err(|_| LedgerError::Ended))
    }

    fn send(
        &self,
        (key, value, assignment): (&Arc<str>, Option<Arc<str>>, Option<AssignmentId>),
        is_urgent: bool,
        done: Option<oneshot::Sender<()>>,
    ) {
        let write = Write { key: Arc::clone(key), value, assignment, is_urgent };
        // The send fails only if the task has ended, and then the term has ended too.
        let _ = self.orders.send(Order::Write(write, done));
    }
}

/// The task that carries out what a [`Keeper`] decides.
struct CopyTask {
    ledger: Ledger,
    quorum: Quorum,
    seal: Seal,
    keeper: Keeper,
    votes: (VoteSender, VoteReceiver),
    /// The pages that each node has returned to the seal so far.
    pages: Vec<Pages>,
    readers: Readers,
    /// The time at which the records were sent. The other copies are read a little later: the caller now takes over its jobs.
    led_since: Option<BootTime>,
    /// The latest outcome of each node.
    outcomes: Vec<NodeOutcome>,
    may_found: Box<dyn Fn() -> bool + Send>,
    /// The receiver of the records. `None` once they are sent.
    receiver: Option<oneshot::Sender<Result<Adopted, LedgerError>>>,
    /// The records that this leader has adopted, until it leads and they are sent.
    adopted: Option<Adopted>,
    /// The number of records that nodes lacked when it was last looked whether the ledger stands still.
    lacked: usize,
    /// Those who wait for a write, by its number.
    waiters: BTreeMap<u64, oneshot::Sender<()>>,
}

impl CopyTask {
    fn new(
        ledger: &Ledger,
        seal: Seal,
        may_found: Box<dyn Fn() -> bool + Send>,
        receiver: oneshot::Sender<Result<Adopted, LedgerError>>,
    ) -> Self {
        let (quorum, nodes) = (ledger.quorum().clone(), ledger.quorum().pool().len());
        Self {
            ledger: ledger.clone(),
            quorum,
            seal,
            keeper: Keeper::new(nodes, seal),
            votes: vote_channel(),
            pages: (0..nodes).map(|_| Pages::default()).collect(),
            readers: Readers::new(ledger.quorum().pool().majority(), ledger.quorum().env().now()),
            led_since: None,
            outcomes: vec![NodeOutcome::Pending; nodes],
            may_found,
            receiver: Some(receiver),
            adopted: None,
            lacked: 0,
            waiters: BTreeMap::new(),
        }
    }

    /// Serves until every handle is dropped and every urgent write is done, or this leader can no longer write the ledger.
    async fn serve(mut self, mut orders: mpsc::UnboundedReceiver<Order>) {
        let env = self.quorum.env().clone();
        let mut is_open = true;
        let mut looked = env.now();
        while is_open || !self.keeper.has_written_urgent() {
            self.decide();
            if let Some(by) = self.keeper.superseded() {
                return self.fail(LedgerError::Superseded { by });
            }
            if self.keeper.is_stranded() {
                return self.fail(LedgerError::Stranded);
            }
            self.ask();
            let look = looked + if self.is_awaited() { ASK_AGAIN } else { LOOK_EVERY };
            tokio::select! { biased;
                order = orders.recv(), if is_open => match order {
                    Some(order) => {
                        self.take(order);
                        while let Ok(order) = orders.try_recv() {
                            self.take(order);
                        }
                    }
                    None => is_open = false,
                },
                Some(vote) = self.votes.1.recv() => {
                    self.on_vote(vote);
                    while let Some(Some(vote)) = self.votes.1.recv().now_or_never() {
                        self.on_vote(vote);
                    }
                }
                () = env.sleep_until(look) => {
                    looked = env.now();
                    self.look_at_nodes();
                    let held = match self.led_since {
                        Some(since) if since + LOOK_EVERY <= looked => self.readers.lead(),
                        Some(_) => Vec::new(),
                        None => self.readers.look(looked),
                    };
                    self.ask_pages(held);
                    self.report_copies();
                    self.report_standstill();
                }
            }
        }
    }

    /// Returns whether a caller waits for the takeover or for a write.
    fn is_awaited(&self) -> bool {
        self.receiver.is_some() || !self.keeper.has_written_urgent()
    }

    fn take(&mut self, order: Order) {
        match order {
            Order::Write(write, done) => {
                let seq = self.keeper.write(write);
                self.waiters.extend(done.map(|done| (seq, done)));
            }
            Order::Prune(is_outdated) => self.keeper.prune(is_outdated),
            Order::Memories(receiver) => {
                let memories = (0..self.pages.len()).map(|node| self.keeper.memory(node)).collect();
                let _ = receiver.send(memories);
            }
        }
    }

    /// Decides about the takeover, if that is possible now, and informs those who wait for it or for writes.
    ///
    /// The records are passed on only once this leader leads. Before, the next leader may not find what this one has adopted,
    /// so no caller may act on it.
    fn decide(&mut self) {
        if self.receiver.is_some()
            && let Some(mut adopted) = self.keeper.decide((self.may_found)())
        {
            self.readers.decided();
            if adopted.takeover == Takeover::Found {
                adopted.records = self.found(adopted.records);
            }
            self.adopted = Some(adopted);
        }
        if self.keeper.leads()
            && let Some(adopted) = self.adopted.take()
            && let Some(receiver) = self.receiver.take()
        {
            let _ = receiver.send(Ok(adopted));
            self.led_since = Some(self.quorum.env().now());
        }
        let written = self.keeper.take_written();
        if !written.is_empty() {
            self.ledger.note_written();
        }
        for seq in written {
            if let Some(waiter) = self.waiters.remove(&seq) {
                let _ = waiter.send(());
            }
        }
    }

    /// Founds the ledger: notes the time of the founding in it.
    fn found(&mut self, mut records: Records) -> Records {
        tracing::info!(
            group = &**self.ledger.name(),
            term = self.seal.term.get(),
            records = records.len(),
            "founded the ledger: it is new, or a majority of the nodes has forgotten it"
        );
        let at = self.quorum.pool().latest_wall().as_micros();
        records.insert(Key::from(FOUNDED), Entry { value: at.to_string().into(), assignment: None });
        self.keeper.found(records.clone());
        records
    }

    /// Ends the writes of this leader. The caller that holds the handle learns it from the end of the task.
    fn fail(&mut self, why: LedgerError) {
        let (group, term) = (&**self.ledger.name(), self.seal.term.get());
        match self.receiver.take() {
            Some(receiver) => drop(receiver.send(Err(why))),
            None => tracing::error!(group, term, "the leader can no longer write the ledger: {why}"),
        }
        self.waiters.clear();
    }

    fn ask(&mut self) {
        for (node, asked) in self.keeper.requests() {
            match asked {
                Asked::Seal => {
                    self.pages[node] = Pages::default();
                    self.leave_readers(node);
                    self.ask_page(node, None);
                }
                Asked::Lead { ticket, memory, act } => {
                    let (ledger, seal) = (Arc::clone(self.ledger.name()), self.seal);
                    self.send(node, Request::Lead { ledger, seal, memory, act }, ticket);
                }
            }
        }
    }

    fn ask_page(&self, node: usize, after: Option<Cursor>) {
        let request = Request::SealCopy { ledger: Arc::clone(self.ledger.name()), seal: self.seal, after };
        self.send(node, request, PAGE);
    }

    /// Lets another node take the place of one whose copy is of no use now.
    fn leave_readers(&mut self, node: usize) {
        let places = self.readers.leaves(node);
        self.ask_pages(places);
    }

    fn ask_pages(&self, pages: impl IntoIterator<Item = (usize, Cursor)>) {
        pages.into_iter().for_each(|(node, next)| self.ask_page(node, Some(next)));
    }

    fn send(&self, node: usize, request: Request, ticket: u64) {
        self.quorum.pool().ask(node, request, ReplyTo { sender: self.votes.0.clone(), ticket });
    }

    /// Notes which nodes have lost their memory, and lets those be asked again that did not answer.
    fn look_at_nodes(&mut self) {
        for node in 0..self.pages.len() {
            self.keeper.on_epoch(node, self.quorum.pool().epoch(node));
            self.keeper.resume(node);
        }
    }

    fn on_vote(&mut self, vote: Vote) {
        let node = vote.node;
        self.outcomes[node] = NodeOutcome::of(&vote.answer);
        if vote.ticket == PAGE {
            self.on_page(vote);
        } else {
            let reply = match &vote.answer {
                Answer::Reply(reply) => Some(reply),
                Answer::Failed(_) | Answer::Untrusted(_) => None,
            };
            self.keeper.on_reply(vote.ticket, vote.memory.epoch, reply);
            self.keeper.on_epoch(node, self.quorum.pool().epoch(node));
        }
        if self.keeper.is_paused(node) {
            if self.led_since.is_some() {
                // A copy that was held back may be needed for the majority.
                let held = self.readers.lead();
                self.ask_pages(held);
            }
            self.report_failure();
        }
    }

    fn on_page(&mut self, vote: Vote) {
        let (node, epoch) = (vote.node, self.quorum.pool().epoch(vote.node));
        match self.pages[node].take(vote.memory, epoch, vote.answer) {
            PageResult::More(next) => {
                let next = self.readers.next(node, next);
                self.ask_pages(next.map(|next| (node, next)));
            }
            PageResult::Complete => {
                let (memory, state) = std::mem::take(&mut self.pages[node]).into_unsorted();
                match Content::of(state.records) {
                    Some(content) => {
                        if content.header.is_complete() {
                            self.readers.complete(node, self.quorum.env().now());
                        } else {
                            self.leave_readers(node);
                        }
                        self.keeper.on_sealed(node, memory.epoch, content);
                    }
                    None => {
                        self.keeper.on_failed(node);
                        self.leave_readers(node);
                    }
                }
            }
            PageResult::Superseded(by) => self.keeper.on_superseded(by),
            PageResult::Failed(outcome) => {
                self.outcomes[node] = outcome;
                self.keeper.on_failed(node);
                self.leave_readers(node);
            }
        }
    }

    fn report_copies(&self) {
        let copy = |node| (self.keeper.is_marked(node), self.keeper.lacking(node).unwrap_or_default());
        self.ledger.note_copies(&(0..self.pages.len()).map(copy).collect::<Vec<_>>());
    }

    /// Reports that too few nodes are left for a majority, if that is so.
    fn report_failure(&self) {
        self.report(self.outcomes.clone());
    }

    /// Reports that a caller waits and too few copies are complete, if that is so and no copy makes progress.
    fn report_standstill(&mut self) {
        let lacked = (0..self.pages.len()).filter_map(|node| self.keeper.lacking(node)).sum();
        let stands_still = std::mem::replace(&mut self.lacked, lacked) == lacked;
        if !stands_still || !self.is_awaited() {
            return;
        }
        let outcome = |(node, outcome): (usize, &NodeOutcome)| match outcome {
            NodeOutcome::Granted if !self.keeper.is_complete(node) => {
                NodeOutcome::Refused(Refusal::Incomplete)
            }
            other => other.clone(),
        };
        self.report(self.outcomes.iter().enumerate().map(outcome).collect());
    }

    fn report(&self, outcomes: Vec<NodeOutcome>) {
        let pool = self.quorum.pool();
        let failing =
            |outcome: &&NodeOutcome| !matches!(outcome, NodeOutcome::Granted | NodeOutcome::Pending);
        if outcomes.iter().filter(failing).count() > pool.len() - pool.majority() {
            self.ledger.note_not_written(&pool.report(outcomes));
        }
    }
}
