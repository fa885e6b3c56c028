use super::values;
use super::{Ask, Count, Led, Life, Pass, Seen, Stamp, Tolerance, When, Write};
use quorate::node::{
    DoneRecord, FencingToken, Incarnation, LedgerState, NodeTime, Record, Request,
    copy::{AssignmentId, LeadAct, Put, Seal, WorkAct},
};
use std::{sync::Arc, time::Duration};

/// A year, in microseconds.
const YEAR: u64 = 365 * 86_400 * 1_000_000;

/// The state of the first node before a batch. The numbers in an [`Ask`] are relative to this state.
/// [`Self::request`] adds them to the state, and returns a [`Request`].
#[derive(Debug)]
pub(super) struct KnownState {
    /// A moment shortly before the history began. Times in requests are computed from it, so that they are
    /// the same for every node.
    pub(super) began: NodeTime,
    /// The stored marker.
    pub(super) marker: Option<Arc<str>>,
    /// The counters of the resources that the batch names, by number of the resource.
    pub(super) counters: Vec<(u8, FencingToken)>,
    /// The ledgers that the batch names, by number of the ledger.
    pub(super) ledgers: Vec<(u8, LedgerState)>,
}

fn copy(number: u8) -> Arc<str> {
    values::ledger(values::LEDGERS + number % values::COPIES)
}

fn seal((term, leader): (u8, u8)) -> Seal {
    Seal { term: FencingToken::new(term.into()), leader: leader.into() }
}

fn id((term, seq): (u8, u8)) -> AssignmentId {
    AssignmentId { term: FencingToken::new(term.into()), seq: seq.into() }
}

fn put(Write { key, seq, assignment, value }: Write) -> Put {
    Put {
        key: values::copy_key(key),
        seq: seq.into(),
        assignment: assignment.map(id),
        value: value.map(values::value),
    }
}

fn lead(act: Led) -> LeadAct {
    match act {
        Led::Confirm => LeadAct::Confirm,
        Led::Put { writes } => LeadAct::Put { writes: writes.into_iter().flatten().map(put).collect() },
        Led::Mark { founded } => LeadAct::Mark { founded: FencingToken::new(founded.into()) },
        Led::Void { key, id: of } => LeadAct::Void { key: values::copy_key(key), id: id(of) },
    }
}

impl KnownState {
    /// Returns the requests that read the state on which `asks` depend, each with the number of its resource
    /// or ledger.
    pub(super) fn looks(asks: &[Ask]) -> Vec<(u8, Request)> {
        let look = |ask: &Ask| match *ask {
            Ask::Raise { resource, .. }
            | Ask::Extend { resource, .. }
            | Ask::Downgrade { resource, .. }
            | Ask::Complete { resource, .. } => {
                Some((resource, Request::Inspect { resource: values::resource(resource) }))
            }
            Ask::Write { ledger, .. } => {
                Some((ledger, Request::Read { ledger: values::ledger(ledger), after: None, key: None }))
            }
            _ => None,
        };
        asks.iter().filter_map(look).collect()
    }

    pub(super) fn request(&self, ask: &Ask) -> Request {
        match *ask {
            Ask::Acquire { resource, owner, ttl, propose, tolerance, keep, ticket } => Request::Acquire {
                resource: values::resource(resource),
                owner: values::owner(owner),
                ttl: ttl.time(),
                propose: FencingToken::new(self.micros(propose)),
                tolerance: tolerance.time(),
                keep: keep.time(),
                ticket: ticket.map(values::owner),
            },
            Ask::Raise { resource, owner, to, keep } => Request::Raise {
                resource: values::resource(resource),
                owner: values::owner(owner),
                to: to.above(self.counter(resource)),
                keep: keep.time(),
            },
            Ask::Extend { resource, owner, ttl, token, keep } => Request::Extend {
                resource: values::resource(resource),
                owner: values::owner(owner),
                ttl: ttl.time(),
                token: token.above(self.counter(resource)),
                keep: keep.time(),
            },
            Ask::Reserve { resource, owner, successor, ttl } => Request::Reserve {
                resource: values::resource(resource),
                owner: values::owner(owner),
                successor: values::successor(successor),
                ttl: ttl.time(),
            },
            Ask::Release { resource, owner } => {
                Request::Release { resource: values::resource(resource), owner: values::owner(owner) }
            }
            Ask::Share { resource, owner, ttl, ticket } => Request::Share {
                resource: values::resource(resource),
                owner: values::owner(owner),
                ttl: ttl.time(),
                ticket: ticket.map(values::owner),
            },
            Ask::ExtendShare { resource, owner, ttl } => Request::ExtendShare {
                resource: values::resource(resource),
                owner: values::owner(owner),
                ttl: ttl.time(),
            },
            Ask::ReleaseShare { resource, owner } => {
                Request::ReleaseShare { resource: values::resource(resource), owner: values::owner(owner) }
            }
            Ask::Downgrade { resource, owner, token, reader, ttl } => Request::Downgrade {
                resource: values::resource(resource),
                owner: values::owner(owner),
                token: token.above(self.counter(resource)),
                reader: values::owner(reader),
                ttl: ttl.time(),
            },
            Ask::Queue { resource, ticket, at, now, tolerance, ttl, exclusive } => Request::Queue {
                resource: values::resource(resource),
                ticket: values::owner(ticket),
                at: self.micros(at),
                now: self.micros(now),
                tolerance: tolerance.time(),
                ttl: ttl.time(),
                exclusive,
            },
            Ask::LeaveQueue { resource, ticket } => {
                Request::LeaveQueue { resource: values::resource(resource), ticket: values::owner(ticket) }
            }
            Ask::Inspect { resource } => Request::Inspect { resource: values::resource(resource) },
            Ask::Complete { resource, owner, token, result, payload, dead_lettered, retention } => {
                Request::Complete {
                    resource: values::resource(resource),
                    owner: values::owner(owner),
                    record: DoneRecord {
                        token: token.above(self.counter(resource)),
                        at: self.began.as_micros(),
                        result: values::result(result),
                        payload: values::payload(payload),
                        dead_lettered: dead_lettered.then_some(u32::MAX),
                    },
                    retention: retention.time(),
                }
            }
            Ask::Count { resource, owner, attempts, payload, withdraw, keep } => Request::Count {
                resource: values::resource(resource),
                owner: values::owner(owner),
                attempts: values::attempts(attempts),
                payload: values::payload(payload),
                withdraw,
                keep: keep.time(),
            },
            Ask::ResetAttempts { resource, keep } => {
                Request::ResetAttempts { resource: values::resource(resource), keep: keep.time() }
            }
            Ask::Mark { expect, marker } => Request::Mark {
                expect: expect.and_then(|stamp| self.stamp(stamp)),
                marker: values::marker(marker),
            },
            Ask::Stamp { own, known, step } => Request::Stamp {
                own: values::node(own),
                known: (0..).zip(known).map(|(node, count)| (values::node(node), count)).collect(),
                step,
            },
            Ask::Read { ledger, key } => {
                Request::Read { ledger: values::ledger(ledger), after: None, key: key.map(values::key) }
            }
            Ask::SealCopy { ledger, seal } => {
                Request::SealCopy { ledger: copy(ledger), seal: self::seal(seal), after: None }
            }
            Ask::Lead { ledger, seal, memory, act } => Request::Lead {
                ledger: copy(ledger),
                seal: self::seal(seal),
                memory: Incarnation::from_number(memory.into()),
                act: lead(act),
            },
            Ask::Work { ledger, key, id, end } => Request::Work {
                ledger: copy(ledger),
                key: values::copy_key(key),
                id: self::id(id),
                act: end.map_or(WorkAct::Start, |end| WorkAct::End { value: values::value(end) }),
            },
            Ask::Prune { ledger, below } => {
                Request::Prune { ledger: values::ledger(ledger), below: self.micros(below), after: None }
            }
            Ask::Write { ledger, key, seen, at, written_in, last, value } => {
                let stored = self.stored(ledger, key);
                Request::Write {
                    ledger: values::ledger(ledger),
                    key: values::key(key),
                    seen: seen.of(stored),
                    record: Record {
                        at: self.micros(at),
                        term: written_in.above(stored.map_or(FencingToken::new(0), |record| record.term)),
                        last,
                        value: values::value(value),
                    },
                }
            }
        }
    }

    pub(super) fn stamp(&self, stamp: Stamp) -> Option<Arc<str>> {
        match stamp {
            Stamp::Right => self.marker.clone(),
            Stamp::Other(number) => Some(values::marker(number)),
        }
    }

    fn counter(&self, resource: u8) -> FencingToken {
        let found = self.counters.iter().find(|(of, _)| *of == resource);
        found.map_or(FencingToken::new(0), |(_, counter)| *counter)
    }

    fn stored(&self, ledger: u8, key: u8) -> Option<&Record> {
        let key = values::key(key);
        let (_, state) = self.ledgers.iter().find(|(of, _)| *of == ledger)?;
        state.records.iter().find(|(of, _)| *of == key).map(|(_, record)| record)
    }

    fn micros(&self, when: When) -> u64 {
        let now = self.began.as_micros();
        match when {
            When::Early(micros) => micros.into(),
            When::Now => now,
            When::Ahead => now + YEAR,
            When::Ago => now - YEAR,
            When::Top(more) => FencingToken::MAX.get().saturating_add_signed(more.into()),
            When::End => u64::MAX,
        }
    }
}

impl Seen {
    fn of(self, stored: Option<&Record>) -> Option<Record> {
        match self {
            Self::Right => stored.cloned(),
            Self::Nothing => None,
            Self::OtherFinality => stored.map(|record| Record { last: !record.last, ..record.clone() }),
            Self::OtherValue => stored.map(|record| Record { value: "other".into(), ..record.clone() }),
        }
    }
}

impl Count {
    fn above(self, stored: FencingToken) -> FencingToken {
        FencingToken::new(match self {
            Self::Standing(more) => stored.get().saturating_add_signed(more.into()),
            Self::Small(number) => number.into(),
            Self::Top(more) => FencingToken::MAX.get().saturating_add_signed(more.into()),
            Self::Huge => u64::MAX,
        })
    }
}

impl Life {
    fn time(self) -> Duration {
        match self {
            Self::Zero => Duration::ZERO,
            Self::Half => Duration::from_micros(500),
            Self::Tiny => Duration::from_millis(3),
            Self::Short => Duration::from_secs(9),
            Self::Middle => Duration::from_secs(22),
            Self::Long => Duration::from_secs(3_599),
            Self::Endless => Duration::MAX,
        }
    }
}

impl Pass {
    pub(super) fn time(self) -> Duration {
        match self {
            Self::Little => Duration::from_secs(6),
            Self::More => Duration::from_secs(14),
            Self::Much => Duration::from_secs(7_200),
        }
    }
}

impl Tolerance {
    fn time(self) -> Duration {
        match self {
            Self::None => Duration::ZERO,
            Self::Days => Duration::from_secs(20 * 86_400),
            Self::Any => Duration::MAX,
        }
    }
}
