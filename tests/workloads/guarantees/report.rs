//! The end: a table for people, or one JSON object.

use super::account::{Kind, Story, Verdict, number_of_terms};
use serde_json::{Value, json};
use std::{collections::BTreeMap, fmt::Write};

/// All that is told at the end.
pub(crate) struct Report<'a> {
    pub(crate) seed: u64,
    pub(crate) seconds: f64,
    pub(crate) story: &'a Story,
    pub(crate) verdict: &'a Verdict,
}

impl Report<'_> {
    /// One JSON object.
    pub(crate) fn json(&self) -> Value {
        json!({
            "seed": self.seed,
            "seconds": self.seconds,
            "changes": self.changes().into_iter().map(|(kind, n)| (kind.to_string(), n)).collect::<BTreeMap<_, _>>(),
            "terms": number_of_terms(&self.story.lines),
            "journal_lines": self.story.lines.len(),
            "jobs": self.verdict.jobs,
            "late_ms": { "p50": self.verdict.late(50), "p99": self.verdict.late(99), "max": self.verdict.late_ms.last() },
            "worst_gap_ms": self.verdict.worst_gap_ms,
            "violations": self.verdict.violations,
        })
    }

    /// For people.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        let mut row = |name: &str, value: String| {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{name:28} {value}");
        };
        row("time", format!("{:.0} s (seed {})", self.seconds, self.seed));
        let by_kind: Vec<String> = self.changes().iter().map(|(kind, n)| format!("{n} {kind}")).collect();
        row("changes of the leader", by_kind.join(", "));
        row("terms", number_of_terms(&self.story.lines).to_string());
        for (job, account) in &self.verdict.jobs {
            let (due, done, again) = (account.due, account.done, account.again);
            row(job, format!("{due} due, {done} done, {} named, {again} started again", account.named.len()));
        }
        let max = self.verdict.late_ms.last().copied().unwrap_or_default();
        row(
            "late, made-up ticks too",
            format!("p50 {} / p99 {} / max {max} ms", self.verdict.late(50), self.verdict.late(99)),
        );
        row("longest without a start", format!("{} ms", self.verdict.worst_gap_ms));
        for (job, account) in &self.verdict.jobs {
            for named in &account.named {
                row("not done, and why", format!("{job} {named}"));
            }
        }
        row("VIOLATIONS", self.verdict.violations.len().to_string());
        for violation in &self.verdict.violations {
            row("", violation.clone());
        }
        text
    }

    fn changes(&self) -> BTreeMap<Kind, usize> {
        let mut changes = BTreeMap::new();
        self.story.changes.iter().for_each(|change| *changes.entry(change.kind).or_default() += 1);
        changes
    }
}
