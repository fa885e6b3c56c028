use super::{
    Directions, Memory, SimClock,
    scenario::{NODES, WORKERS},
};

/// One thing that happens to the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The road between a worker and a server opens or closes.
    Road(usize, usize, Directions),
    /// The network falls in halves, or is whole again.
    Partition(Halves, Parted),
    /// Every connection to a server breaks at both ends.
    Tear(usize),
    /// A server stops (SIGSTOP).
    StopServer(usize),
    /// A server goes on.
    ResumeServer(usize),
    /// A server is killed.
    CrashServer(usize),
    /// A server starts again.
    StartServer(usize, Memory),
    /// Another, new server takes a server's place, with this clock.
    ReplaceServer(usize, SimClock),
    /// A server forgets everything and runs on.
    FlushServer(usize),
    /// A server's clock steps by this many milliseconds.
    StepServer(usize, i64),
    /// A server's clock stands still.
    StandServer(usize),
    /// A server's clock goes on from where it stood.
    UnstandServer(usize),
    /// A worker's process stops (SIGSTOP).
    PauseWorker(usize),
    /// A worker's process goes on.
    ResumeWorker(usize),
    /// A worker's machine is suspended: its clocks go on, its timers do not.
    SleepWorker(usize),
    /// A worker's machine wakes.
    WakeWorker(usize),
    /// A worker's machine stands still, clocks and all, as a paused virtual machine does.
    FreezeWorker(usize),
    /// A worker's boot clock stands still, and nothing else.
    StandWorker(usize),
    /// A worker's machine and its clocks go on.
    UnfreezeWorker(usize),
    /// A worker's wall clock steps by this many milliseconds.
    StepWorker(usize, i64),
    /// A worker's process is killed.
    CrashWorker(usize),
    /// A worker's process starts again.
    StartWorker(usize, Option<Mistake>),
}

/// One half of the workers and of the servers; the others are the other half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Halves {
    /// Which workers.
    pub workers: [bool; WORKERS],
    /// Which servers.
    pub nodes: [bool; NODES],
}

/// How a network falls in halves, or is whole again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parted {
    /// What is sent from half to half waits.
    Cut,
    /// Connections from half to half break, at both ends.
    Torn,
    /// It is whole again.
    Mended,
}

/// What a process may be deployed with that it must not be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// Three of the five nodes, from this one on.
    FewerNodes(usize),
    /// Another `max_ttl`.
    OtherMaxTtl,
}

impl Fault {
    /// What it is counted as.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Road(_, _, Directions { there: true, back: true }) => "road mended",
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

    /// Whether it may keep a worker from hearing of one of these servers for long, or makes a worker forget what
    /// it heard.
    pub(super) fn parts_from(&self, nodes: &[usize]) -> bool {
        match self {
            Self::Road(_, node, _) | Self::StopServer(node) | Self::CrashServer(node) => nodes.contains(node),
            Self::Partition(..) | Self::CrashWorker(_) | Self::StartWorker(..) => true,
            _ => false,
        }
    }

    /// Whether a thing that was counted is a fault, rather than the end of one or something else.
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
