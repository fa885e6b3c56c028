//! The end: a table for people, or one JSON object.

use super::{
    checks::Counts,
    figures::{Figures, Spread},
};
use serde_json::{Value, json};
use std::{collections::BTreeMap, fmt::Write, sync::Arc, time::Duration};

/// All that is told at the end.
#[derive(Debug)]
pub(crate) struct Summary<'a> {
    pub(crate) seed: u64,
    pub(crate) time: Duration,
    pub(crate) figures: &'a Figures,
    pub(crate) ticks: &'a BTreeMap<Arc<str>, Counts>,
    /// Messages that are done, and how many of them were done again.
    pub(crate) messages: (usize, usize),
    /// How often liveness could be judged by all its bounds.
    pub(crate) calms: usize,
    pub(crate) violations: usize,
}

impl Summary<'_> {
    /// One JSON object.
    pub(crate) fn json(&self) -> Value {
        let Figures { locks, terms, claims, lost, lines, stalls, memory, watched, .. } = self.figures;
        let faults: BTreeMap<&str, usize> = self.figures.faults.iter().map(|(k, n)| (k.name(), *n)).collect();
        json!({
            "seed": self.seed,
            "seconds": self.time.as_secs_f64(),
            "locks": locks,
            "terms": terms,
            "claims": claims,
            "messages_done": self.messages.0,
            "messages_done_again": self.messages.1,
            "lost": lost,
            "ticks": self.ticks,
            "faults": faults,
            "leaderless_after_crash_ms": spread(&self.figures.after_crash),
            "leaderless_after_sigterm_ms": spread(&self.figures.after_term),
            "leaderless_ms": spread(&self.figures.leaderless),
            "told_before_end_ms": spread(&self.figures.told_before),
            "to_end_ms": spread(&self.figures.to_end),
            "calms_judged": self.calms,
            "journal_lines": lines,
            "stalls": stalls,
            "worker_memory_kib": memory,
            "watched": watched,
            "violations": self.violations,
        })
    }

    /// For people.
    pub(crate) fn text(&self) -> String {
        let figures = self.figures;
        let mut text = String::new();
        let mut row = |name: &str, value: String| {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{name:34} {value}");
        };
        row("time", format!("{:.0?} (seed {})", self.time, self.seed));
        row("locks granted", figures.locks.to_string());
        row("terms (leader changes)", figures.terms.to_string());
        row("claims granted", figures.claims.to_string());
        let (done, again) = self.messages;
        row("messages done", format!("{done}, and {again} done again after nodes forgot"));
        row("leases lost before their release", figures.lost.to_string());
        for (job, c) in self.ticks {
            let Counts { due, started, again, done, left_out } = c;
            let rest =
                format!("{due} due, {started} begun, {again} of them again, {done} done, {left_out} excused");
            row(&format!("ticks, {job}"), rest);
        }
        row("without a leader, after a crash", quantiles(&figures.after_crash));
        row("without a leader, after SIGTERM", quantiles(&figures.after_term));
        row("without a leader, all causes", quantiles(&figures.leaderless));
        row("told to stop before the end", quantiles(&figures.told_before));
        row("from SIGTERM to the process's end", quantiles(&figures.to_end));
        row("times of calm, liveness judged", self.calms.to_string());
        row("processes that were not scheduled", format!("{} times, by their own word", figures.stalls));
        row("largest worker", format!("{} KiB", figures.memory));
        row("journal lines", figures.lines.to_string());
        row("faults", figures.faults.values().sum::<usize>().to_string());
        for (kind, times) in &figures.faults {
            row(&format!("  {}", kind.name()), times.to_string());
        }
        row("VIOLATIONS", self.violations.to_string());
        text
    }
}

fn spread(spread: &Spread) -> Value {
    let quantiles = spread.quantiles();
    json!({ "times": spread.len(), "min": quantiles.map(|q| q[0]), "p50": quantiles.map(|q| q[1]),
            "p99": quantiles.map(|q| q[2]), "max": quantiles.map(|q| q[3]) })
}

fn quantiles(spread: &Spread) -> String {
    match spread.quantiles() {
        Some([min, p50, p99, max]) => {
            format!("min {min:.0} / p50 {p50:.0} / p99 {p99:.0} / max {max:.0} ms ({} times)", spread.len())
        }
        None => "never".to_owned(),
    }
}
