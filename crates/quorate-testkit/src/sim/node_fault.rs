use quorate::{
    internals::JobRow,
    node::{
        Batch, BatchReply, FencingToken, MemoryStore, Refusal, Reply, Request, Resource,
        copy::{HEADER_KEY, Header, LeadAct, Put},
        engine::{self, Clocks, CounterRow, Store as _},
    },
    scheduler::HistoryEntry,
};
use std::{sync::Arc, time::Duration};

/// A way in which a server violates its contract. Tests show that an invariant detects the effects of most of
/// these ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeFault {
    /// The server loses its data, but keeps its run id and its marker. The workers do not notice the loss,
    /// and count the server's votes.
    Forgetful,
    /// The server runs requests even after they have expired (`not_after`).
    Timeless,
    /// The server grants a lease that another owner still holds.
    Generous,
    /// The server does not increase the fencing counter when it grants a lease.
    Uncounting,
    /// The server answers that it has released a lease, but keeps the lease.
    Clinging,
    /// The server releases a lease for any caller, not only for its owner.
    Ruthless,
    /// The server raises a fencing counter for any caller, not only for the lease's owner.
    Obliging,
    /// The server starts a missing fencing counter at one, and not at the proposed time. After the server
    /// lost a counter, it gives small tokens again.
    Restarting,
    /// An extension sets the fencing counter to the token of the owner that extends, even if that lowers the
    /// counter.
    Lowering,
    /// The server sets a free lock again for a former holder, although it has counted later grants.
    Reviving,
    /// The server answers that it has extended a lease, but does not change the end of the lease.
    Shortening,
    /// A node serves every leader that sealed its copy of a ledger at some time, and not only the last one.
    Unsealed,
    /// A node that has forgotten says that its copy of a ledger is complete.
    Complete,
    /// When a worker writes a job's row, the server removes the pause from the row.
    Unpausing,
    /// The server answers that it has counted an attempt on a claim, but does not store the count.
    Miscounting,
    /// When the server prunes a history, it removes all entries.
    Shredding,
    /// The server lets a reader acquire a lock that a writer holds.
    Mingling,
    /// When one reader releases a lock, the server releases it for all readers.
    Dispersing,
    /// The server grants a lock without regard to the queue of its waiters.
    Unqueueing,
    /// The server answers that it has reserved a lock for a successor, but releases the lock.
    Unreserving,
}

/// Runs the requests of a batch one by one, and applies the fault to each.
pub(super) fn run(
    store: &mut MemoryStore,
    batch: &Batch,
    clocks: Clocks,
    node_fault: NodeFault,
) -> BatchReply {
    let mut faulty = FaultyNode { store, batch, clocks };
    let replies = batch.requests.iter().map(|request| faulty.serve(node_fault, request)).collect();
    BatchReply { node_time: clocks.wall, replies }
}

struct FaultyNode<'a> {
    store: &'a mut MemoryStore,
    batch: &'a Batch,
    clocks: Clocks,
}

impl FaultyNode<'_> {
    fn serve(&mut self, node_fault: NodeFault, request: &Request) -> Reply {
        match (node_fault, request) {
            (NodeFault::Generous, Request::Acquire { resource, .. }) => {
                let Ok(()) = self.store.set_lease(resource, None);
                self.honestly(request)
            }
            (NodeFault::Uncounting, Request::Acquire { resource, .. }) => self.uncounted(resource, request),
            (NodeFault::Restarting, Request::Acquire { .. }) => self.restarted(request.clone()),
            (NodeFault::Clinging, Request::Release { .. }) => Reply::Released(true),
            (NodeFault::Mingling, Request::Share { resource, .. }) => {
                let Ok(held) = self.store.lease(resource);
                if held.is_some_and(|row| !row.is_read()) {
                    let Ok(()) = self.store.set_lease(resource, None);
                }
                self.honestly(request)
            }
            (NodeFault::Unqueueing, Request::Acquire { resource, .. } | Request::Share { resource, .. }) => {
                let Ok(()) = self.store.set_queue(resource, None);
                self.honestly(request)
            }
            (NodeFault::Unreserving, Request::Reserve { resource, .. }) => {
                let reply = self.honestly(request);
                if reply == Reply::Reserved {
                    let Ok(()) = self.store.set_lease(resource, None);
                }
                reply
            }
            (NodeFault::Ruthless, Request::Release { resource, .. })
            | (NodeFault::Dispersing, Request::ReleaseShare { resource, .. }) => {
                let Ok(()) = self.store.set_lease(resource, None);
                Reply::Released(true)
            }
            (NodeFault::Obliging, Request::Raise { resource, to, .. }) => self.obliged(resource, *to),
            (NodeFault::Lowering, Request::Extend { resource, token, .. }) => {
                let reply = self.honestly(request);
                if reply == Reply::Extended {
                    self.set_count(resource, *token);
                }
                reply
            }
            (NodeFault::Reviving, Request::Extend { .. }) => self.revived(request.clone()),
            (NodeFault::Shortening, Request::Extend { resource, .. }) => self.shortened(resource, request),
            (NodeFault::Unsealed, Request::Lead { ledger, seal, .. }) => {
                self.change_header(ledger, |header| header.seal = Some(*seal));
                self.honestly(request)
            }
            (NodeFault::Complete, Request::SealCopy { ledger, seal, .. }) => {
                let reply = self.honestly(request);
                self.change_header(ledger, |header| header.mark = header.mark.or(Some(seal.term)));
                if matches!(reply, Reply::Ledger(_)) { self.honestly(request) } else { reply }
            }
            (NodeFault::Miscounting, Request::Count { resource, .. }) => {
                let Ok(before) = self.store.claim(resource);
                let reply = self.honestly(request);
                let Ok(()) = self.store.set_claim(resource, before);
                reply
            }
            (NodeFault::Unpausing, Request::Lead { act: LeadAct::Put { .. }, .. }) => {
                self.unpaused(request.clone())
            }
            (NodeFault::Shredding, Request::Prune { ledger, .. })
                if ledger.contains(&*HistoryEntry::part("")) =>
            {
                self.shredded(request.clone())
            }
            _ => self.honestly(request),
        }
    }

    fn honestly(&mut self, request: &Request) -> Reply {
        let one = Batch { requests: vec![request.clone()], ..self.batch.clone() };
        engine::run_telling(self.store, &one, self.clocks, &mut Vec::new()).replies.remove(0)
    }

    fn uncounted(&mut self, resource: &Resource, request: &Request) -> Reply {
        let Ok(before) = self.store.counter(resource);
        match (self.honestly(request), before) {
            (Reply::Granted { .. }, Some(row)) => {
                let Ok(()) = self.store.set_counter(resource, row);
                Reply::Granted { counter: row.count, begun: None }
            }
            (other, _) => other,
        }
    }

    fn restarted(&mut self, mut request: Request) -> Reply {
        if let Request::Acquire { propose, tolerance, .. } = &mut request {
            (*propose, *tolerance) = (FencingToken::new(0), Duration::MAX);
        }
        self.honestly(&request)
    }

    fn revived(&mut self, mut request: Request) -> Reply {
        let reply = self.honestly(&request);
        if let (Request::Extend { token, .. }, Reply::Refused(Refusal::LaterGrants { counter })) =
            (&mut request, &reply)
        {
            *token = *counter;
            return self.honestly(&request);
        }
        reply
    }

    fn obliged(&mut self, resource: &Resource, to: FencingToken) -> Reply {
        let Ok(standing) = self.store.counter(resource);
        if standing.is_none_or(|row| row.count > to) {
            return Reply::Refused(Refusal::Superseded);
        }
        self.set_count(resource, to);
        Reply::Raised
    }

    fn shortened(&mut self, resource: &Resource, request: &Request) -> Reply {
        let Ok(before) = self.store.lease(resource);
        let reply = self.honestly(request);
        let Ok(after) = self.store.lease(resource);
        if let (Some(before), Some(after)) = (before, after)
            && before.owner == after.owner
            && before.until_nanos > self.clocks.lease_nanos
        {
            let Ok(()) = self.store.set_lease(resource, Some(before));
        }
        reply
    }

    /// Changes the header of a stored copy, if there is one.
    fn change_header(&mut self, ledger: &Arc<str>, change: impl FnOnce(&mut Header)) {
        let Ok(mut state) = self.store.ledger(ledger);
        let stored = state.records.iter_mut().find(|(key, _)| **key == *HEADER_KEY);
        let Some((_, record)) = stored else { return };
        let Some(mut header) = Header::of_record(record) else { return };
        change(&mut header);
        if let Some(changed) = header.to_record() {
            *record = changed;
        }
        let Ok(()) = self.store.set_ledger(ledger, state);
    }

    fn unpaused(&mut self, mut request: Request) -> Reply {
        let unpaused = |put: &Put| {
            let row = put.value.as_ref().filter(|_| put.key.starts_with(JobRow::PREFIX));
            let row = row.and_then(|value| JobRow::parse(value).ok());
            let value = row.map(|row| JobRow { paused: None, ..row }.to_value()).or(put.value.clone());
            Put { value, ..put.clone() }
        };
        if let Request::Lead { act: LeadAct::Put { writes }, .. } = &mut request {
            *writes = writes.iter().map(unpaused).collect();
        }
        self.honestly(&request)
    }

    fn shredded(&mut self, mut request: Request) -> Reply {
        if let Request::Prune { below, .. } = &mut request {
            *below = self.clocks.wall.as_micros();
        }
        self.honestly(&request)
    }

    fn set_count(&mut self, resource: &Resource, count: FencingToken) {
        let until_micros = (self.clocks.wall + HOUR).as_micros();
        let Ok(()) = self.store.set_counter(resource, CounterRow { count, until_micros });
    }
}

const HOUR: Duration = Duration::from_secs(3600);
