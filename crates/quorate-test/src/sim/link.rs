use super::{SeedRng, Truth, execution_gate::ExecutionGate};
use std::{
    ops::RangeInclusive,
    sync::{Mutex, PoisonError},
    time::Duration,
};

/// The behaviour of messages on every link. Times are in milliseconds. A chance is a number of messages in a
/// thousand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkConditions {
    /// The time that a message travels.
    pub delay: RangeInclusive<u64>,
    /// The chance that a message is delayed for longer than `delay`.
    pub stall: u64,
    /// The time that such a delayed message travels.
    pub stalled: RangeInclusive<u64>,
    /// The chance that a request is lost, together with all later requests on its connection.
    pub lose_request: u64,
    /// The chance that a reply never arrives.
    pub lose_reply: u64,
    /// The chance that the connection breaks when a request is sent.
    pub break_off: u64,
}

impl NetworkConditions {
    /// Conditions under which no message is lost or late.
    pub const CALM: Self = Self { delay: 0..=3, ..Self::INSTANT };

    /// Conditions under which each message arrives at the moment at which it is sent.
    pub const INSTANT: Self =
        Self { delay: 0..=0, stall: 0, stalled: 0..=0, lose_request: 0, lose_reply: 0, break_off: 0 };
}

/// The fate of one request, which the seed decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Arrives,
    /// The server runs the request, and its reply is lost.
    ReplyLost,
    Lost,
    /// The sender's end of the connection breaks. If `runs` is true, this request and the later ones that were
    /// already sent still run, after the time `later`.
    BreaksOff {
        runs: bool,
        later: Duration,
    },
}

/// The link between one worker's machine and one server, over which all their connections run.
#[derive(Debug)]
pub struct Link {
    truth: Truth,
    road: Mutex<(SeedRng, NetworkConditions)>,
    there: ExecutionGate,
    back: ExecutionGate,
}

/// The two directions of a link. A direction is `true` if it is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Directions {
    /// From the worker to the server.
    pub there: bool,
    /// From the server to the worker.
    pub back: bool,
}

impl Link {
    /// Creates an open link.
    pub fn new(truth: Truth, rng: SeedRng, conditions: NetworkConditions) -> Self {
        let road = Mutex::new((rng, conditions));
        Self { truth, road, there: ExecutionGate::open(), back: ExecutionGate::open() }
    }

    /// Opens or cuts each direction of the link. A message that reaches a cut waits there until the cut ends.
    /// If the message's connection ends before the cut, a reply is lost, but a request still arrives.
    pub fn set_open(&self, open: Directions) {
        self.there.set_open(open.there);
        self.back.set_open(open.back);
    }

    /// Sets the conditions for all later messages.
    pub fn set_conditions(&self, conditions: NetworkConditions) {
        self.road.lock().unwrap_or_else(PoisonError::into_inner).1 = conditions;
    }

    pub(super) fn is_open_back(&self) -> bool {
        self.back.is_open()
    }

    pub(super) async fn open_there(&self) {
        self.there.pass().await;
    }

    pub(super) async fn open_back(&self) {
        self.back.pass().await;
    }

    /// Returns `true` if a message that is sent now arrives now, in both directions.
    pub(super) fn is_instant(&self) -> bool {
        let calm = self.road.lock().unwrap_or_else(PoisonError::into_inner).1 == NetworkConditions::INSTANT;
        calm && self.there.is_open() && self.back.is_open()
    }

    /// Returns the true time at which a message that is sent now arrives.
    pub(super) fn arrival(&self) -> Duration {
        let mut road = self.road.lock().unwrap_or_else(PoisonError::into_inner);
        let (rng, conditions) = &mut *road;
        let range = if rng.chance(conditions.stall) { &conditions.stalled } else { &conditions.delay };
        self.truth.now() + rng.millis(range.clone())
    }

    /// Draws whether the network loses a message that the server pushes to a client. The chance is the same as
    /// for a reply.
    pub(super) fn loses_push(&self) -> bool {
        let mut road = self.road.lock().unwrap_or_else(PoisonError::into_inner);
        let (rng, conditions) = &mut *road;
        rng.chance(conditions.lose_reply)
    }

    pub(super) fn fate(&self) -> Fate {
        let mut road = self.road.lock().unwrap_or_else(PoisonError::into_inner);
        let (rng, conditions) = &mut *road;
        if rng.chance(conditions.lose_request) {
            Fate::Lost
        } else if rng.chance(conditions.lose_reply) {
            Fate::ReplyLost
        } else if rng.chance(conditions.break_off) {
            Fate::BreaksOff { runs: rng.chance(600), later: rng.millis(0..=400) }
        } else {
            Fate::Arrives
        }
    }
}
