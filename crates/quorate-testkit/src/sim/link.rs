use super::{SeedRng, Truth, execution_gate::ExecutionGate};
use std::{
    ops::RangeInclusive,
    sync::{Mutex, PoisonError},
    time::Duration,
};

/// How messages fare on every link, in milliseconds and in chances of a thousand a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkConditions {
    /// How long a message takes.
    pub delay: RangeInclusive<u64>,
    /// How often it takes longer.
    pub stall: u64,
    /// How long then.
    pub stalled: RangeInclusive<u64>,
    /// How often a request never arrives, nor anything behind it on its connection.
    pub lose_request: u64,
    /// How often a reply never arrives.
    pub lose_reply: u64,
    /// How often the connection breaks at a request.
    pub break_off: u64,
}

impl NetworkConditions {
    /// Nothing is lost and nothing is late.
    pub const CALM: Self =
        Self { delay: 0..=3, stall: 0, stalled: 0..=0, lose_request: 0, lose_reply: 0, break_off: 0 };
}

/// What becomes of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Arrives,
    /// It runs, and nobody hears of it.
    ReplyLost,
    Lost,
    /// The sender's socket breaks. If it `runs`, that is later, and so do those that wait behind it.
    BreaksOff {
        runs: bool,
        later: Duration,
    },
}

/// The road between one worker's machine and one server.
#[derive(Debug)]
pub struct Link {
    truth: Truth,
    road: Mutex<(SeedRng, NetworkConditions)>,
    there: ExecutionGate,
    back: ExecutionGate,
}

/// Which directions are open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Directions {
    /// From the worker to the server.
    pub there: bool,
    /// From the server to the worker.
    pub back: bool,
}

impl Link {
    /// An open road.
    pub fn new(truth: Truth, rng: SeedRng, weather: NetworkConditions) -> Self {
        let road = Mutex::new((rng, weather));
        Self { truth, road, there: ExecutionGate::open(), back: ExecutionGate::open() }
    }

    /// Opens and cuts. What is sent into a cut waits there until it is mended, unless its connection ends
    /// before; requests of an ended connection still arrive.
    pub fn set_open(&self, open: Directions) {
        self.there.set_open(open.there);
        self.back.set_open(open.back);
    }

    /// Other weather from now on.
    pub fn set_weather(&self, weather: NetworkConditions) {
        self.road.lock().unwrap_or_else(PoisonError::into_inner).1 = weather;
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

    /// When a message that leaves now arrives, in true time.
    pub(super) fn arrival(&self) -> Duration {
        let mut road = self.road.lock().unwrap_or_else(PoisonError::into_inner);
        let (rng, weather) = &mut *road;
        let range = if rng.chance(weather.stall) { &weather.stalled } else { &weather.delay };
        self.truth.now() + rng.millis(range.clone())
    }

    /// Whether what a server says unasked never arrives: as often as a reply does not.
    pub(super) fn loses_push(&self) -> bool {
        let mut road = self.road.lock().unwrap_or_else(PoisonError::into_inner);
        let (rng, weather) = &mut *road;
        rng.chance(weather.lose_reply)
    }

    pub(super) fn fate(&self) -> Fate {
        let mut road = self.road.lock().unwrap_or_else(PoisonError::into_inner);
        let (rng, weather) = &mut *road;
        if rng.chance(weather.lose_request) {
            Fate::Lost
        } else if rng.chance(weather.lose_reply) {
            Fate::ReplyLost
        } else if rng.chance(weather.break_off) {
            Fate::BreaksOff { runs: rng.chance(600), later: rng.millis(0..=400) }
        } else {
            Fate::Arrives
        }
    }
}
