//! What a configuration that was read anew changes in one that is in force.

use super::Config;
use quorate::plain::plain;
use std::{collections::BTreeMap, fmt, sync::Arc};

/// The longest name that is shown, in bytes.
const NAME_MAX: usize = 128;

/// Which jobs came, went, and are others than before, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct JobChanges {
    pub(crate) added: Vec<Arc<str>>,
    pub(crate) changed: Vec<Arc<str>>,
    pub(crate) removed: Vec<Arc<str>>,
}

impl JobChanges {
    pub(crate) fn is_empty(&self) -> bool {
        self.added.is_empty() && self.changed.is_empty() && self.removed.is_empty()
    }
}

impl fmt::Display for JobChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds = [("added", &self.added), ("changed", &self.changed), ("removed", &self.removed)];
        let told = kinds.iter().filter(|(_, names)| !names.is_empty()).map(|(kind, names)| {
            let names: Vec<_> = names.iter().map(|name| plain(name, NAME_MAX)).collect();
            format!("{kind} {}", names.join(", "))
        });
        f.write_str(&told.collect::<Vec<_>>().join("; "))
    }
}

impl Config {
    /// What becomes of the jobs where `new` comes into force.
    pub(crate) fn job_changes(&self, new: &Self) -> JobChanges {
        let by_name = |config: &Self| -> BTreeMap<_, _> {
            config.jobs.iter().map(|job| (Arc::clone(&job.name), job.clone())).collect()
        };
        let (old, new) = (by_name(self), by_name(new));
        let differs = |name: &&Arc<str>| old.get(*name).is_some_and(|job| Some(job) != new.get(*name));
        let mut changes = JobChanges::default();
        changes.added.extend(new.keys().filter(|name| !old.contains_key(*name)).cloned());
        changes.changed.extend(new.keys().filter(differs).cloned());
        changes.removed.extend(old.keys().filter(|name| !new.contains_key(*name)).cloned());
        changes
    }

    /// The keys of `new` that cannot come into force while the program runs.
    pub(crate) fn needs_restart(&self, new: &Self) -> Vec<&'static str> {
        let (old_setup, setup) = (&self.setup, &new.setup);
        let table = [
            ("nodes", self.nodes != new.nodes),
            ("tls", self.tls != new.tls),
            ("prefix", self.prefix != new.prefix),
            ("group", self.group != new.group),
            ("worker", old_setup.worker != setup.worker),
            ("node_timeout", old_setup.node_timeout != setup.node_timeout),
            ("max_ttl", old_setup.max_ttl != setup.max_ttl),
            ("drift_rate", old_setup.drift_rate.to_bits() != setup.drift_rate.to_bits()),
            ("clock_step_allowance", old_setup.clock_step_allowance != setup.clock_step_allowance),
            ("max_clock_offset", old_setup.max_clock_offset != setup.max_clock_offset),
            ("fence_retention", old_setup.fence_retention != setup.fence_retention),
            ("ledger_retention", old_setup.ledger_retention != setup.ledger_retention),
            ("durable", old_setup.durable != setup.durable),
            ("trust_new_nodes", old_setup.trust_new_nodes != setup.trust_new_nodes),
            ("lease", self.lease != new.lease),
            ("max_running", self.max_running != new.max_running),
        ];
        table.into_iter().filter(|(_, differs)| *differs).map(|(key, _)| key).collect()
    }
}
