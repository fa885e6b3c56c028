use super::{
    Directions, Memory, SimClock,
    scenario::{NODES, WORKERS},
};

/// A fault, or the end of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Opens or closes the link between a worker and a server, in each direction.
    Road(usize, usize, Directions),
    /// Splits the network into halves, or joins the halves again.
    Partition(Halves, Parted),
    /// Breaks every connection to a server at both ends.
    Tear(usize),
    /// Stops a server's process, as SIGSTOP does.
    StopServer(usize),
    /// Lets a stopped server continue.
    ResumeServer(usize),
    /// Kills a server.
    CrashServer(usize),
    /// Starts a killed server again, with the data that it has kept.
    StartServer(usize, Memory),
    /// Replaces a server by a new one with this clock.
    ReplaceServer(usize, SimClock),
    /// Erases all data of a server, whose process continues to run.
    FlushServer(usize),
    /// Steps a server's clock by this many milliseconds.
    StepServer(usize, i64),
    /// Stops a server's clock.
    StandServer(usize),
    /// Lets a server's stopped clock continue from where it stopped.
    UnstandServer(usize),
    /// Stops a worker's process, as SIGSTOP does.
    PauseWorker(usize),
    /// Lets a worker's stopped process continue.
    ResumeWorker(usize),
    /// Puts a worker's machine to sleep. Its clocks continue to run, and its timers stop.
    SleepWorker(usize),
    /// Wakes a worker's machine.
    WakeWorker(usize),
    /// Stops a worker's machine with all its clocks, as pausing a virtual machine does.
    FreezeWorker(usize),
    /// Stops a worker's boot clock. Its other clocks continue to run.
    StandWorker(usize),
    /// Ends [`Self::FreezeWorker`] or [`Self::StandWorker`]. The worker's machine, or its boot clock,
    /// continues to run.
    UnfreezeWorker(usize),
    /// Steps a worker's wall clock by this many milliseconds.
    StepWorker(usize, i64),
    /// Kills a worker's process.
    CrashWorker(usize),
    /// Gives a worker the new node list, in seeds in which the node set is replaced. The worker's next process has it.
    GiveNewList(usize),
    /// Starts a worker's process again, possibly with a mistake in its configuration.
    StartWorker(usize, Option<Mistake>),
}

/// A division of the workers and the servers into two halves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Halves {
    /// For each worker, `true` if it is in the first half.
    pub workers: [bool; WORKERS],
    /// For each server, `true` if it is in the first half.
    pub nodes: [bool; NODES],
}

/// The state of the network between two halves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parted {
    /// Messages between the halves wait.
    Cut,
    /// Connections between the halves break, at both ends.
    Torn,
    /// The halves are joined again.
    Healed,
}

/// A mistake in the configuration of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// The worker's list has only three of the five nodes, beginning with this one.
    FewerNodes(usize),
    /// The worker's `max_ttl` differs from that of the other workers.
    OtherMaxTtl,
}

impl Fault {
    /// Returns the name under which faults of this kind are counted.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Road(_, _, Directions { there: true, back: true }) => "road restored",
            Self::Road(_, _, Directions { there: false, back: false }) => "road cut",
            Self::Road(_, _, Directions { there: false, .. }) => "road there cut",
            Self::Road(..) => "road back cut",
            Self::Partition(_, Parted::Cut) => "network parted",
            Self::Partition(_, Parted::Torn) => "network torn",
            Self::Partition(_, Parted::Healed) => "network whole",
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
            Self::GiveNewList(_) => "worker given the new list",
            Self::StartWorker(_, None) => "worker started",
            Self::StartWorker(_, Some(Mistake::FewerNodes(_))) => "worker started with fewer nodes",
            Self::StartWorker(_, Some(Mistake::OtherMaxTtl)) => "worker started with another max_ttl",
        }
    }

    /// Returns `true` if the fault may keep a worker from receiving messages of one of these servers for a
    /// long time, or may erase the messages that a worker has received. The plan `far-steps` leaves out such
    /// faults.
    pub(super) fn parts_from(&self, nodes: &[usize]) -> bool {
        match self {
            Self::Road(_, node, _) | Self::StopServer(node) | Self::CrashServer(node) => nodes.contains(node),
            Self::Partition(..) | Self::CrashWorker(_) | Self::StartWorker(..) => true,
            _ => false,
        }
    }

    /// Returns `true` if `counted` is the name under which faults of one kind are counted. The ends of
    /// faults, and other events, are counted under other names.
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
