use quorate::node::Request;
use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicUsize, Ordering},
};
use tokio::sync::oneshot;

/// The commands that are sent to the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// The script calls of Quorate's own encoder.
    Quorate,
    /// The plain commands with which Quorate acquires a lock that it has acquired before, without what it knows of locks, and
    /// its script for all releases of a call.
    Plain,
    /// The plain Redlock commands: `SET NX PX`, and a script that deletes a key if it has the expected value.
    Bare,
}

/// A request to one node.
pub(super) struct Job {
    pub(super) request: Request,
    pub(super) poll: Arc<Poll>,
}

/// The votes on one request.
pub(super) struct Poll {
    nodes: usize,
    needed: usize,
    yes: AtomicUsize,
    no: AtomicUsize,
    done: Mutex<Option<oneshot::Sender<bool>>>,
}

impl Poll {
    /// Returns a poll of this many nodes. `done` gets the result once as many as are needed have voted, or can no longer agree.
    pub(super) fn new((nodes, needed): (usize, usize), done: oneshot::Sender<bool>) -> Self {
        let (yes, no) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { nodes, needed, yes, no, done: Mutex::new(Some(done)) }
    }

    pub(super) fn vote(&self, yes: bool) {
        let (count, at) =
            if yes { (&self.yes, self.needed) } else { (&self.no, self.nodes - self.needed + 1) };
        if count.fetch_add(1, Ordering::AcqRel) + 1 == at
            && let Some(done) = self.done.lock().unwrap_or_else(PoisonError::into_inner).take()
        {
            let _ = done.send(yes);
        }
    }
}
