use serde::{Deserialize, Serialize};
use std::{collections::BTreeSet, fmt, sync::Arc};

/// The longest label, in bytes.
const LABEL_MAX: usize = 64;
/// The largest number of labels of a worker or a job.
const LABELS_MAX: usize = 16;
/// The beginning of the label that a worker has by its name.
const OF_WORKER: &str = "worker=";

/// The labels of a worker, or those that a job requires of the worker of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Labels(BTreeSet<Arc<str>>);

impl Labels {
    /// Returns the set of these labels.
    pub fn new(labels: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        Self(labels.into_iter().map(|label| label.as_ref().into()).collect())
    }

    pub(in crate::scheduler) fn iter(&self) -> impl Iterator<Item = &Arc<str>> {
        self.0.iter()
    }

    pub(in crate::scheduler) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether a worker with this name and the labels `offered` has all of these.
    pub(in crate::scheduler) fn are_in(&self, worker: &str, offered: &Self) -> bool {
        let is_its_name = |label: &str| label.strip_prefix(OF_WORKER) == Some(worker);
        self.0.iter().all(|label| offered.0.contains(label) || is_its_name(label))
    }

    /// Returns these labels, and the one that only the worker with this name has.
    pub(in crate::scheduler) fn of_worker(&self, worker: &str) -> Self {
        let mut labels = self.clone();
        labels.0.insert(format!("{OF_WORKER}{worker}").into());
        labels
    }

    /// Returns whether a worker gives itself a label that stands for the name of a worker.
    pub(in crate::scheduler) fn has_name(&self) -> bool {
        self.0.iter().any(|label| label.starts_with(OF_WORKER))
    }

    /// Returns the value and the fix if a label cannot be used.
    pub(in crate::scheduler) fn fault(&self) -> Option<(String, &'static str)> {
        if self.0.len() > LABELS_MAX {
            return Some((format!("{} labels", self.0.len()), "use at most 16"));
        }
        let wrong = |label: &&Arc<str>| {
            label.is_empty()
                || label.len() > LABEL_MAX
                || label.contains(|c: char| c.is_control() || c == ',')
        };
        let found = self.0.iter().find(wrong)?;
        let shown: String = found.chars().take(LABEL_MAX).collect();
        Some((format!("label {shown:?}"), "use 1 to 64 bytes without commas and control characters"))
    }
}

impl fmt::Display for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let labels: Vec<&str> = self.0.iter().map(|label| &**label).collect();
        f.write_str(&labels.join(", "))
    }
}
