use futures_util::future::BoxFuture;
use quorate::{
    env::{BootTime, SystemWorld, WallTime, World},
    node::{FileNode, MemoryNode, Node, NodeTime, Resource},
};
use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio_util::task::TaskTracker;

/// One kind of node, with the events that a history can cause on it.
pub trait Kind {
    /// The node.
    type Node: Node;
    /// Returns the name of the kind.
    fn name(&self) -> &'static str;
    /// Returns a handle of the node in its present state. The caller asks for a new handle before it opens a
    /// session.
    fn node(&self) -> Self::Node;
    /// Returns the node's wall clock.
    fn wall(&self) -> NodeTime;
    /// Advances the node's clocks by `time`, so that leases and records with a lifetime may expire.
    fn pass(&mut self, time: Duration);
    /// Makes the node forget everything.
    fn flush(&mut self);
    /// Restarts the node with its data. A kind that cannot restart does nothing.
    fn restart(&mut self);
    /// Takes back one count of an acquire that was not granted, or removes the record of a claim that was new before it. Only
    /// the plain commands of a Redis server count such an acquire.
    fn take_back_count(&mut self, _: &Resource) {}
    /// Keeps a counter for `keep` from now, after a grant. Only the plain commands of a Redis server do not.
    fn keep_count(&mut self, _: &Resource, _keep: Duration) {}
}

/// The system's clocks and timers, except that a test can move both clocks forward.
#[derive(Debug, Default)]
pub struct ShiftedWorld {
    ahead_nanos: AtomicU64,
}

impl ShiftedWorld {
    /// Moves both clocks forward.
    pub fn pass(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.ahead_nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    fn ahead(&self) -> Duration {
        Duration::from_nanos(self.ahead_nanos.load(Ordering::Relaxed))
    }
}

impl World for ShiftedWorld {
    fn now(&self) -> BootTime {
        SystemWorld.now() + self.ahead()
    }

    fn wall(&self) -> WallTime {
        SystemWorld.wall() + self.ahead()
    }

    fn random(&self) -> u64 {
        SystemWorld.random()
    }

    fn sleep_until(&self, at: BootTime) -> BoxFuture<'static, ()> {
        SystemWorld.sleep_until(at - self.ahead())
    }

    fn spawn(&self, tasks: &TaskTracker, work: BoxFuture<'static, ()>) {
        SystemWorld.spawn(tasks, work);
    }
}

/// The kind [`MemoryNode`]. Such a node cannot keep its data over a restart of its process, so a restart does
/// nothing.
#[derive(Debug)]
pub struct MemoryKind {
    world: Arc<ShiftedWorld>,
    node: MemoryNode,
}

impl MemoryKind {
    /// Creates an empty node.
    pub fn new() -> Self {
        let world = Arc::<ShiftedWorld>::default();
        Self { node: MemoryNode::with_world("memory", world.clone()), world }
    }
}

impl Default for MemoryKind {
    fn default() -> Self {
        Self::new()
    }
}

impl Kind for MemoryKind {
    type Node = MemoryNode;

    fn name(&self) -> &'static str {
        "MemoryNode"
    }

    fn node(&self) -> MemoryNode {
        self.node.clone()
    }

    fn wall(&self) -> NodeTime {
        self.world.wall()
    }

    fn pass(&mut self, time: Duration) {
        self.world.pass(time);
    }

    fn flush(&mut self) {
        self.node = MemoryNode::with_world("memory", self.world.clone());
    }

    fn restart(&mut self) {}
}

/// The kind [`FileNode`]. The node keeps its data in a directory below `home`. After each flush it uses a new
/// directory.
#[derive(Debug)]
pub struct FileKind {
    world: Arc<ShiftedWorld>,
    home: PathBuf,
    lives: u32,
}

impl FileKind {
    /// Creates an empty node in a directory of its own below `home`.
    pub fn new(home: &Path) -> Self {
        Self { world: Arc::default(), home: home.to_owned(), lives: 0 }
    }
}

impl Kind for FileKind {
    type Node = FileNode;

    fn name(&self) -> &'static str {
        "FileNode"
    }

    fn node(&self) -> FileNode {
        FileNode::with_world(self.home.join(self.lives.to_string()), self.world.clone())
    }

    fn wall(&self) -> NodeTime {
        self.world.wall()
    }

    fn pass(&mut self, time: Duration) {
        self.world.pass(time);
    }

    fn flush(&mut self) {
        self.lives += 1;
    }

    /// Does nothing. A process that ends leaves only the directory, and [`Kind::node`] makes a new node from
    /// that directory each time.
    fn restart(&mut self) {}
}
