//! The assignment of runs to workers by the leader.
//!
//! A worker holds one lease, its *session*, and announces itself. The leader writes which worker gets which run, ahead of the
//! time at which the run is due. At that time, the worker asks the nodes to register its start. If a majority does, it
//! executes the run, and then reports the end to the nodes, where the leader finds it. A leader that wants a run back asks
//! the nodes to register that it does not start: of *start* and *void*, each node registers what comes first. So a run
//! of which a majority has registered *void* has not started and never will, and another worker may get it.
//! `docs/design/scheduler.md` has the rules.

mod assigned_run;
mod dispatcher;
mod roster;
#[cfg(test)]
mod sample_nodes;
#[cfg(test)]
mod samples;
mod task;

pub(in crate::scheduler) use roster::LiveWorker;
pub(in crate::scheduler) use task::{OpenEnd, OpenRuns};
