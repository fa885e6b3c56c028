use super::name;
use quorate::internals::GroupWorker;
use schemars::JsonSchema;
use serde::Serialize;

/// A live worker of a group, with what it offers to runs.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "Worker")]
pub struct WorkerView {
    /// The name of the worker.
    pub worker: String,
    /// The labels of the worker.
    pub labels: Vec<String>,
    /// The handlers that the worker has registered for jobs that are stored on the nodes.
    pub handlers: Vec<String>,
    /// The largest number of runs that it executes at once; `null` if there is no limit.
    pub max_running: Option<usize>,
}

impl WorkerView {
    /// Returns the view of a worker.
    pub fn new(worker: &GroupWorker) -> Self {
        let names = |list: &[std::sync::Arc<str>]| list.iter().map(|text| name(text)).collect();
        Self {
            worker: name(&worker.worker),
            labels: names(&worker.labels),
            handlers: names(&worker.handlers),
            max_running: worker.max_running,
        }
    }

    /// Returns whether it offers more than a worker without settings.
    pub fn is_special(&self) -> bool {
        !self.labels.is_empty() || !self.handlers.is_empty()
    }
}
