use super::{SeedRng, Truth, execution_gate::ExecutionGate};
use std::{
    ops::RangeInclusive,
    sync::{Mutex, PoisonError},
    time::Duration,
};

/// The behaviour of messages on every link. Times are in milliseconds. A chance is the number of messages in
/// a thousand to which the event happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkConditions {
    /// The time that a message takes.
    pub delay: RangeInclusive<u64>,
    /// The chance that a message stalls, and so takes longer.
    pub stall: u64,
    /// The time that a message takes if it stalls.
    pub stalled: RangeInclusive<u64>,
    /// The chance that a request is lost, together with all later requests on its connection.
    pub lose_request: u64,
    /// The chance that a reply never arrives.
    pub lose_reply: u64,
    /// The chance that the connection breaks at a request.
    pub break_off: u64,
}

impl NetworkConditions {
    /// No message is lost or late.
    pub const CALM: Self =
        Self { delay: 0..=3, stall: 0, stalled: 0..=0, lose_request: 0, lose_reply: 0, break_off: 0 };
}

/// The fate of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Arrives,
    /// The request runs, and its reply is lost.
    ReplyLost,
    Lost,
    /// The sender's end of the connection breaks. If `runs` is set, the request and those behind it still
    /// run, after `later`.
    BreaksOff {
        runs: bool,
        later: Duration,
    },
}

/// The link between one worker's machine and one server.
#[derive(Debug)]
pub struct Link {
    truth: Truth,
    road: Mutex<(SeedRng, NetworkConditions)>,
    there: ExecutionGate,
    back: ExecutionGate,
}

/// The directions that are open.
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

    /// Opens or cuts the directions of the link. A message that reaches a cut waits there until the cut ends.
    /// A reply whose connection ends before that is lost; a request still arrives.
    pub fn set_open(&self, open: Directions) {
        self.there.set_open(open.there);
        self.back.set_open(open.back);
    }

    /// Sets the network conditions from now on.
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

    /// Returns the true time of arrival of a message that is sent now.
    pub(super) fn arrival(&self) -> Duration {
        let mut road = self.road.lock().unwrap_or_else(PoisonError::into_inner);
        let (rng, conditions) = &mut *road;
        let range = if rng.chance(conditions.stall) { &conditions.stalled } else { &conditions.delay };
        self.truth.now() + rng.millis(range.clone())
    }

    /// Draws the fate of a push message of the server: returns `true` if it is lost. The chance is that of a
    /// reply.
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
