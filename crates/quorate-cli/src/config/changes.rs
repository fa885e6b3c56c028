//! The differences between the configuration in use and a configuration that was read later.

use super::Config;
use quorate::plain::plain;
use std::{collections::BTreeMap, fmt, sync::Arc};

/// The longest name that is shown, in bytes.
const NAME_MAX: usize = 128;

/// The names of the jobs that were added, changed and removed.
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
        let written = kinds.iter().filter(|(_, names)| !names.is_empty()).map(|(kind, names)| {
            let names: Vec<_> = names.iter().map(|name| plain(name, NAME_MAX)).collect();
            format!("{kind} {}", names.join(", "))
        });
        f.write_str(&written.collect::<Vec<_>>().join("; "))
    }
}

impl Config {
    /// Returns the changes of the jobs from this configuration to `new`.
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

    /// Returns the keys of `new` that differ and cannot be changed while the program runs.
    pub(crate) fn needs_restart(&self, new: &Self) -> Vec<&'static str> {
        let (old_settings, settings) = (&self.settings, &new.settings);
        let table = [
            ("nodes", self.nodes != new.nodes),
            ("tls", self.tls != new.tls),
            ("prefix", self.prefix != new.prefix),
            ("group", self.group != new.group),
            ("worker", old_settings.worker != settings.worker),
            ("node_timeout", old_settings.node_timeout != settings.node_timeout),
            ("contact", old_settings.ask_all_nodes != settings.ask_all_nodes),
            ("max_ttl", old_settings.max_ttl != settings.max_ttl),
            ("drift_rate", old_settings.drift_rate.to_bits() != settings.drift_rate.to_bits()),
            ("clock_step_allowance", old_settings.clock_step_allowance != settings.clock_step_allowance),
            ("max_clock_offset", old_settings.max_clock_offset != settings.max_clock_offset),
            ("fence_retention", old_settings.fence_retention != settings.fence_retention),
            ("ledger_retention", old_settings.ledger_retention != settings.ledger_retention),
            ("durable", old_settings.durable != settings.durable),
            ("trust_new_nodes", old_settings.trust_new_nodes != settings.trust_new_nodes),
            ("lease", self.lease != new.lease),
            ("max_running", self.max_running != new.max_running),
            ("http", self.http != new.http),
            ("output", self.output != new.output),
            ("otlp", self.otlp != new.otlp),
            ("notify", self.notify != new.notify),
        ];
        table.into_iter().filter(|(_, differs)| *differs).map(|(key, _)| key).collect()
    }
}
