use super::{
    Directions, Memory, SimClock,
    scenario::{NODES, WORKERS},
};

/// One fault, or the end of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The link between a worker and a server opens or closes, in each direction.
    Road(usize, usize, Directions),
    /// The network splits into halves, or becomes whole again.
    Partition(Halves, Parted),
    /// Every connection to a server breaks at both ends.
    Tear(usize),
    /// A server's process is stopped (SIGSTOP).
    StopServer(usize),
    /// A stopped server continues.
    ResumeServer(usize),
    /// A server is killed.
    CrashServer(usize),
    /// A server starts again.
    StartServer(usize, Memory),
    /// A new server with this clock takes a server's place.
    ReplaceServer(usize, SimClock),
    /// A server forgets everything, and its process continues to run.
    FlushServer(usize),
    /// A server's clock steps by this many milliseconds.
    StepServer(usize, i64),
    /// A server's clock stands still.
    StandServer(usize),
    /// A server's clock continues from where it stood still.
    UnstandServer(usize),
    /// A worker's process is stopped (SIGSTOP).
    PauseWorker(usize),
    /// A worker's stopped process continues.
    ResumeWorker(usize),
    /// A worker's machine goes to sleep: its clocks continue to run, and its timers stop.
    SleepWorker(usize),
    /// A worker's machine wakes.
    WakeWorker(usize),
    /// A worker's machine stands still with all its clocks, as a paused virtual machine does.
    FreezeWorker(usize),
    /// A worker's boot clock stands still. Its other clocks continue to run.
    StandWorker(usize),
    /// The end of [`Self::FreezeWorker`] and [`Self::StandWorker`]: the worker's machine, or its boot clock,
    /// continues to run.
    UnfreezeWorker(usize),
    /// A worker's wall clock steps by this many milliseconds.
    StepWorker(usize, i64),
    /// A worker's process is killed.
    CrashWorker(usize),
    /// A worker's process starts again.
    StartWorker(usize, Option<Mistake>),
}

/// A division of the workers and the servers into two halves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Halves {
    /// The workers: `true` for each that is in the first half.
    pub workers: [bool; WORKERS],
    /// The servers: `true` for each that is in the first half.
    pub nodes: [bool; NODES],
}

/// The state of the network between two halves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parted {
    /// Messages between the halves wait.
    Cut,
    /// Connections between the halves break, at both ends.
    Torn,
    /// The network is whole again.
    Mended,
}

/// A wrong configuration of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// Three of the five nodes, from this one on.
    FewerNodes(usize),
    /// Another `max_ttl`.
    OtherMaxTtl,
}

impl Fault {
    /// Returns the name under which the fault is counted.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Road(_, _, Directions { there: true, back: true }) => "road restored",
            Self::Road(_, _, Directions { there: false, back: false }) => "road cut",
            Self::Road(_, _, Directions { there: false, .. }) => "road there cut",
            Self::Road(..) => "road back cut",
            Self::Partition(_, Parted::Cut) => "network parted",
            Self::Partition(_, Parted::Torn) => "network torn",
            Self::Partition(_, Parted::Mended) => "network whole",
            Self::Tear(_) => "connections torn",
            Self::StopServer(_) => "server stopped",
            Self::ResumeServer(_) => "server resumed",
            Self::CrashServer(_) => "server crashed",
            Self::StartServer(_, Memory::Empty) => "server started empty",
            Self::StartServer(_, Memory::Snapshot) => "server started from a snapshot",
            Self::StartServer(_, Memory::Kept) => "server started with all it had",
            Self::ReplaceServer(..) => "server replaced",
            Self::FlushServer(_) => "server flushed",
            Self::StepServer(..) => "server clock stepped",
            Self::StandServer(_) => "server clock stood still",
            Self::UnstandServer(_) => "server clock went on",
            Self::PauseWorker(_) => "worker paused",
            Self::ResumeWorker(_) => "worker resumed",
            Self::SleepWorker(_) => "worker slept",
            Self::WakeWorker(_) => "worker woke",
            Self::FreezeWorker(_) => "worker frozen",
            Self::StandWorker(_) => "worker clock stood still",
            Self::UnfreezeWorker(_) => "worker clock went on",
            Self::StepWorker(..) => "worker clock stepped",
            Self::CrashWorker(_) => "worker crashed",
            Self::StartWorker(_, None) => "worker started",
            Self::StartWorker(_, Some(Mistake::FewerNodes(_))) => "worker started with fewer nodes",
            Self::StartWorker(_, Some(Mistake::OtherMaxTtl)) => "worker started with another max_ttl",
        }
    }

    /// Returns `true` if, because of the fault, a worker may receive no message from one of these servers for
    /// a long time. Also returns `true` if a worker may lose what it has received.
    pub(super) fn parts_from(&self, nodes: &[usize]) -> bool {
        match self {
            Self::Road(_, node, _) | Self::StopServer(node) | Self::CrashServer(node) => nodes.contains(node),
            Self::Partition(..) | Self::CrashWorker(_) | Self::StartWorker(..) => true,
            _ => false,
        }
    }

    /// Returns `true` if `counted` is the name of a fault. Ends of faults and other events are counted under other
    /// names.
    pub fn is_kind(counted: &str) -> bool {
        const FAULTS: [&str; 23] = [
            "road cut",
            "road there cut",
            "road back cut",
            "network parted",
            "network torn",
            "connections torn",
            "server stopped",
            "server crashed",
            "server started empty",
            "server started from a snapshot",
            "server started with all it had",
            "server replaced",
            "server flushed",
            "server clock stepped",
            "server clock stood still",
            "worker paused",
            "worker slept",
            "worker frozen",
            "worker clock stood still",
            "worker clock stepped",
            "worker crashed",
            "worker started with fewer nodes",
            "worker started with another max_ttl",
        ];
        FAULTS.contains(&counted)
    }
}
