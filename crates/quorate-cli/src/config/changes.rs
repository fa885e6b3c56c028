//! The differences between the configuration in use and a configuration that was read later.

use super::{Config, JobConfig};
use quorate::plain::plain;
use std::{collections::BTreeMap, fmt, sync::Arc};

/// The longest name that is shown, in bytes.
const NAME_MAX: usize = 128;
/// The largest number of names of one kind that are shown.
const NAMES_MAX: usize = 100;

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
            let shown: Vec<_> = names.iter().take(NAMES_MAX).map(|name| plain(name, NAME_MAX)).collect();
            let more = match names.len() - shown.len() {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            format!("{kind} {}{more}", shown.join(", "))
        });
        f.write_str(&written.collect::<Vec<_>>().join("; "))
    }
}

impl Config {
    /// Returns the changes of the jobs from this configuration to `new`.
    pub(crate) fn job_changes(&self, new: &Self) -> JobChanges {
        fn by_name(config: &Config) -> BTreeMap<&Arc<str>, &JobConfig> {
            config.jobs.iter().map(|job| (&job.name, job)).collect()
        }
        let (old, new) = (by_name(self), by_name(new));
        let mut changes = JobChanges::default();
        for (name, job) in &new {
            match old.get(name) {
                None => changes.added.push(Arc::clone(name)),
                Some(before) if before != job => changes.changed.push(Arc::clone(name)),
                Some(_) => {}
            }
        }
        changes
            .removed
            .extend(old.keys().filter(|name| !new.contains_key(*name)).map(|name| Arc::clone(name)));
        changes
    }

    /// Returns the keys of `new` that differ and cannot be changed while the program runs.
    pub(crate) fn needs_restart(&self, new: &Self) -> Vec<&'static str> {
        let (old_settings, settings) = (&self.settings, &new.settings);
        let table = [
            ("nodes", self.nodes != new.nodes),
            ("tls", self.tls != new.tls),
            ("prefix", self.prefix != new.prefix),
            ("commands", self.commands != new.commands),
            ("group", self.group != new.group),
            ("worker", old_settings.worker != settings.worker),
            ("node_timeout", old_settings.node_timeout != settings.node_timeout),
            ("ask", old_settings.ask_all_nodes != settings.ask_all_nodes),
            ("max_ttl", old_settings.max_ttl != settings.max_ttl),
            ("drift_rate", old_settings.drift_rate.to_bits() != settings.drift_rate.to_bits()),
            ("clock_step_allowance", old_settings.clock_step_allowance != settings.clock_step_allowance),
            ("max_clock_offset", old_settings.max_clock_offset != settings.max_clock_offset),
            ("fence_retention", old_settings.fence_retention != settings.fence_retention),
            ("ledger_retention", old_settings.ledger_retention != settings.ledger_retention),
            ("durable", old_settings.durable != settings.durable),
            ("trust_new_nodes", old_settings.trust_new_nodes != settings.trust_new_nodes),
            ("lease", self.lease != new.lease),
            ("election", self.election != new.election),
            ("max_running", self.max_running != new.max_running),
            ("labels", self.labels != new.labels),
            ("http", self.http != new.http),
            ("serve", self.serve != new.serve),
            ("output", self.output != new.output),
            ("otlp", self.otlp != new.otlp),
            ("notify", self.notify != new.notify),
        ];
        table.into_iter().filter(|(_, differs)| *differs).map(|(key, _)| key).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn very_many_names_are_not_all_shown() {
        let names = |count: usize| (0..count).map(|number| format!("j{number}").into()).collect();
        let changes = JobChanges { added: names(NAMES_MAX + 3), changed: Vec::new(), removed: names(2) };
        let text = changes.to_string();
        assert!(
            text.starts_with("added j0, j1, ") && text.ends_with(", j99 and 3 more; removed j0, j1"),
            "{text}"
        );
    }
}
