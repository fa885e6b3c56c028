//! The sentence and the small pictures of the pages. Each picture is SVG without scripts or inline styles. A state is a shape, a word, and
//! only then a colour.

use crate::time::{self, span};
use maud::{Markup, PreEscaped, html};
use quorate::{env::WallTime, scheduler::RunOutcome};
use quorate_operator::state::{Level, ProblemIcon, STRIP, SeenNode, Severity};
use quorate_operator::view::{JobState, JobView, RunEnd, Vote};
use std::{collections::BTreeMap, fmt::Write as _, time::Duration};

/// The distance between two marks of a strip.
const STEP: usize = 8;
/// The width of the chart of durations, in its own units.
const CHART: usize = 1_000;
/// The most bars of the chart of durations.
pub(crate) const BARS: usize = 30;

// The shapes of the pictures, in a box of 14 by 14.
const CROSS: &str = r#"<rect x="1" y="1" width="12" height="12" rx="2" class="f-bad"/><path d="M4.5 4.5l5 5m0-5l-5 5" class="s-bg" stroke-width="1.8"/>"#;
const ALERT: &str = r#"<path d="M7 .8L13.8 13H.2z" class="f-bad"/><path d="M7 4.6v4.2m0 1.4v1.5" class="s-bg" stroke-width="1.7"/>"#;
const WARNING: &str = r#"<g class="s-warn" fill="none" stroke-width="1.6"><path d="M7 1.8L13 12.6H1z"/><path d="M7 5.4v3.4m0 1.2v1.3"/></g>"#;
const CLOCK: &str = r#"<g class="s-warn" fill="none" stroke-width="1.5"><circle cx="7" cy="7" r="5.8" stroke-dasharray="2.4 1.6"/><path d="M7 3.8V7l2.2 1.6"/></g>"#;
const BARS_UP: &str = r#"<g class="s-warn" fill="none"><circle cx="7" cy="7" r="5.8" stroke-width="1.5"/><path d="M5.4 4.6v4.8m3.2-4.8v4.8" stroke-width="1.6"/></g>"#;
const CHECK: &str = r#"<path d="M2.5 7.5l3 3 6-7" class="s-ok" fill="none" stroke-width="2"/>"#;
const SOFT_CHECK: &str = r#"<path d="M2.5 7.5l3 3 6-7" class="s-soft" fill="none" stroke-width="2"/>"#;
const PLAY: &str = r#"<path d="M3 1.5l9 5.5-9 5.5z" class="f-run"/>"#;
const DASHED: &str = r#"<rect x="2" y="1" width="10" height="12" class="s-warn f-none" stroke-width="1.5" stroke-dasharray="3 2"/>"#;
const NOTE: &str = r#"<g class="s-soft" fill="none"><circle cx="7" cy="7" r="5.8" stroke-width="1.5"/><path d="M7 6.2v4m0-6.2v1.4" stroke-width="1.6"/></g>"#;

/// Returns the sentence at the top of a page.
pub(super) fn sentence(level: Level, headline: &str, detail: &Markup) -> Markup {
    html! {
        div.verdict aria-live="polite" {
            (verdict_icon(level))
            h1 { (headline) }
            p { (detail) }
        }
    }
}

/// Returns the names of the columns of a table.
pub(super) fn head(columns: &[&str]) -> Markup {
    head_with(&columns.iter().map(|name| (*name, false)).collect::<Vec<_>>())
}

/// Returns the names of the columns of a table, each with whether it has numbers.
pub(super) fn head_with(columns: &[(&str, bool)]) -> Markup {
    html! {
        thead role="rowgroup" { tr role="row" {
            @for (name, numbers) in columns { th.num[*numbers] scope="col" role="columnheader" { (name) } }
        } }
    }
}

fn icon(shape: &str) -> Markup {
    html! { svg.i viewBox="0 0 14 14" aria-hidden="true" { (PreEscaped(shape)) } }
}

/// Returns the large mark of a page's sentence.
pub(crate) fn verdict_icon(level: Level) -> Markup {
    html! {
        svg viewBox="0 0 14 14" aria-hidden="true" {
            (PreEscaped(match level { Level::Well => CHECK, Level::Warn => WARNING, Level::Bad => CROSS }))
        }
    }
}

pub(crate) fn problem_icon(kind: ProblemIcon, level: Level) -> Markup {
    icon(match (kind, level) {
        (ProblemIcon::Failed, _) => CROSS,
        (ProblemIcon::Alert, Level::Bad) => ALERT,
        (ProblemIcon::Alert, Level::Warn) => WARNING,
        (ProblemIcon::Alert, Level::Well) => NOTE,
        (ProblemIcon::Clock, _) => CLOCK,
        (ProblemIcon::Paused, _) => BARS_UP,
        (ProblemIcon::Lost, _) => DASHED,
    })
}

/// Returns the state of a job, as a mark and a word.
pub(crate) fn job_state(state: JobState) -> Markup {
    let (class, shape) = match state {
        JobState::Failed => ("st bad", CROSS),
        JobState::Lost => ("st warn", DASHED),
        JobState::Paused | JobState::Frozen => ("st warn", BARS_UP),
        JobState::Running => ("st run", PLAY),
        JobState::Idle => ("st", SOFT_CHECK),
    };
    html! { span class=(class) { (icon(shape)) (state.word()) } }
}

/// Returns the outcome of a run, as a mark and a word.
pub(crate) fn outcome(outcome: RunOutcome) -> Markup {
    let (class, shape) = match outcome {
        RunOutcome::Done => ("st", CHECK),
        RunOutcome::Failed => ("st bad", CROSS),
        RunOutcome::TimedOut => ("st bad", ALERT),
        RunOutcome::Lost => ("st warn", DASHED),
        RunOutcome::Cancelled => ("st", NOTE),
        _ => ("st warn", BARS_UP),
    };
    html! { span class=(class) { (icon(shape)) (outcome.as_str()) } }
}

/// Returns the state of a node, as a mark and a word.
pub(crate) fn vote(vote: Vote) -> Markup {
    let (class, shape) = match vote {
        Vote::Votes => ("st", CHECK),
        Vote::Quarantine | Vote::Connecting => ("st warn", CLOCK),
        Vote::Refused => ("st bad", CROSS),
        Vote::Unreachable => ("st bad", ALERT),
    };
    html! { span class=(class) { (icon(shape)) (vote.word()) } }
}

/// Returns the importance of a finding, as a mark and a word.
pub(crate) fn severity(severity: Severity) -> Markup {
    let (class, shape, word) = match severity {
        Severity::Critical => ("st bad", ALERT, "critical"),
        Severity::Warning => ("st warn", WARNING, "warning"),
        Severity::Note => ("st", NOTE, "note"),
    };
    html! { span class=(class) { (icon(shape)) (word) } }
}

/// Returns the mark of a state that must not last.
pub(crate) fn trouble() -> Markup {
    icon(ALERT)
}

/// Returns a mark for a page that is read from the nodes.
pub(crate) fn live_mark() -> Markup {
    icon(r#"<circle cx="7" cy="7" r="4" class="f-ok"/>"#)
}

/// The marks of one colour in a strip. A path for all of them takes a third of the bytes of a shape for each.
#[derive(Default)]
struct Marks {
    soft: String,
    bad: String,
    run: String,
    /// The positions of the runs whose end is unknown, and of those that were cancelled: their marks have an outline.
    lost: Vec<usize>,
    cancelled: Vec<usize>,
}

impl Marks {
    /// Adds a mark at a horizontal position. The worse the outcome, the taller the mark.
    fn add(&mut self, outcome: Option<RunOutcome>, x: usize) {
        // `write!` to a string never fails.
        let _ = match outcome {
            None => write!(self.run, "M{x} 8l6 6-6 6z"),
            Some(RunOutcome::Done) => write!(self.soft, "M{x} 11h6v9h-6z"),
            Some(RunOutcome::Failed) => write!(self.bad, "M{x} 0h6v20h-6z"),
            Some(RunOutcome::TimedOut) => write!(self.bad, "M{x} 0h6v7h-6zM{x} 9h6v11h-6z"),
            Some(RunOutcome::Lost) => {
                self.lost.push(x);
                Ok(())
            }
            Some(RunOutcome::Cancelled) => {
                self.cancelled.push(x);
                Ok(())
            }
            Some(_) => write!(self.soft, "M{x} 18h6v2h-6z"),
        };
    }

    fn draw(&self) -> Markup {
        html! {
            @for (path, class) in [(&self.soft, "f-soft"), (&self.bad, "f-bad"), (&self.run, "f-run")] {
                @if !path.is_empty() { path d=(path) class=(class) {} }
            }
            @for x in &self.lost {
                rect x=(format!("{x}.7")) y="2.7" width="4.6" height="16.6" class="s-warn f-none" stroke-width="1.4" stroke-dasharray="3 2" {}
            }
            @for x in &self.cancelled { rect x=(x) y="14" width="6" height="6" class="s-soft f-none" {} }
        }
    }
}

/// Returns the newest runs of a job as marks, the newest on the right.
pub(crate) fn strip(job: &JobView) -> Markup {
    let mut runs: Vec<Option<RunOutcome>> =
        job.running.iter().filter(|run| !run.orphaned).map(|_| None).collect();
    runs.extend(job.ends.iter().map(|end| Some(end.outcome)));
    runs.truncate(STRIP);
    if runs.is_empty() {
        return html! { span.soft { "not run yet" } };
    }
    let mut counts = BTreeMap::<&str, usize>::new();
    for run in &runs {
        *counts.entry(run.map_or("running", RunOutcome::as_str)).or_default() += 1;
    }
    let counts: Vec<String> = counts.iter().map(|(word, count)| format!("{count} {word}")).collect();
    let newest = runs[0].map_or("running", RunOutcome::as_str);
    let label = format!("Newest runs: {}; the last {newest}", counts.join(", "));
    let width = STRIP * STEP - 2;
    let mut marks = Marks::default();
    for (place, run) in runs.iter().enumerate() {
        marks.add(*run, (STRIP - 1 - place) * STEP);
    }
    html! {
        svg width=(width) height="20" viewBox=(format!("0 0 {width} 20")) role="img" aria-label=(label) { (marks.draw()) }
    }
}

/// Explains the marks of a strip.
pub(crate) fn legend() -> Markup {
    let entry = |outcome, text: &str| {
        let mut mark = Marks::default();
        mark.add(outcome, 0);
        html! { li { svg width="6" height="20" viewBox="0 0 6 20" aria-hidden="true" { (mark.draw()) } (text) } }
    };
    html! {
        ul.legend {
            (entry(Some(RunOutcome::Done), "done"))
            (entry(Some(RunOutcome::Failed), "failed"))
            (entry(Some(RunOutcome::TimedOut), "timed out"))
            (entry(Some(RunOutcome::Lost), "lost: its end is unknown"))
            (entry(Some(RunOutcome::Cancelled), "cancelled"))
            (entry(Some(RunOutcome::SkippedPaused), "skipped"))
            (entry(None, "running"))
            li { "the newest is on the right; the worse, the taller" }
        }
    }
}

/// Returns the short name of a node: its host, without the scheme, the port and the database.
pub(crate) fn short_name(name: &str) -> &str {
    let rest = name.split_once("://").map_or(name, |(_, rest)| rest);
    rest.split('/').next().filter(|host| !host.is_empty()).unwrap_or(rest)
}

/// Draws the nodes in a row: those that are needed on the left of a line, those to spare on the right.
pub(crate) fn quorum(nodes: &[SeenNode], needed: usize, now: WallTime) -> Markup {
    let mut order: Vec<&SeenNode> = nodes.iter().collect();
    order.sort_by_key(|node| node.vote != Vote::Votes);
    let voting = order.iter().filter(|node| node.vote == Vote::Votes).count();
    let width = order.len().max(1) * 72;
    let line = needed * 72;
    let spare = voting.saturating_sub(needed);
    let label = format!(
        "{voting} of {} nodes vote, {needed} needed, {spare} to spare.{}",
        nodes.len(),
        order.iter().filter(|node| node.vote != Vote::Votes).fold(String::new(), |mut text, node| {
            // `write!` to a string never fails.
            let _ = write!(text, " {} does not vote: {}.", short_name(&node.name), node.vote.word());
            text
        })
    );
    html! {
        svg.quorum width=(width) height="92" viewBox=(format!("0 0 {width} 92")) role="img" aria-label=(label) {
            path d=(format!("M8 22v-5h{}v5", line - 16)) class="s-soft f-none" {}
            text x=(line / 2) y="12" text-anchor="middle" { (needed) " needed" }
            @if order.len() > needed {
                path d=(format!("M{} 22v-5h{}v5", line + 8, width - line - 16)) class="s-soft f-none" {}
                text.k x=(line + (width - line) / 2) y="12" text-anchor="middle" { (spare) " spare" }
                path d=(format!("M{line} 4V92")) class="s-ink" stroke-width="1.5" stroke-dasharray="4 3" {}
            }
            @for (at, node) in order.iter().enumerate() { (dot(node, at * 72 + 36, now)) }
        }
    }
}

fn dot(node: &SeenNode, x: usize, now: WallTime) -> Markup {
    let word = match (node.vote, node.votes_at) {
        (Vote::Quarantine, Some(at)) => time::until(at, now),
        _ => node.vote.word().to_owned(),
    };
    html! {
        @match node.vote {
            Vote::Votes => {
                circle cx=(x) cy="46" r="15" class="f-ok" {}
                path d=(format!("M{} 46.5l4.500 4.500 8-9.500", x - 6)) class="s-okink f-none" stroke-width="2.4" {}
            }
            Vote::Quarantine | Vote::Connecting => {
                circle cx=(x) cy="46" r="14" class="s-warn f-none" stroke-width="2" stroke-dasharray="5.5 3.3" {}
                path d=(format!("M{x} 39v7l5 4")) class="s-warn f-none" stroke-width="2" {}
            }
            Vote::Refused | Vote::Unreachable => {
                circle cx=(x) cy="46" r="14" class="s-bad f-none" stroke-width="2" {}
                path d=(format!("M{} 41l10 10m0-10l-10 10", x - 5)) class="s-bad" stroke-width="2" {}
            }
        }
        text x=(x) y="80" text-anchor="middle" class=(if node.vote == Vote::Votes { "c" } else { "k" }) { (word) }
    }
}

/// Draws how much of the lease is left.
pub(crate) fn lease(remaining: Duration, ttl: Duration) -> Markup {
    let left = (remaining.as_secs_f64() / ttl.as_secs_f64().max(0.001) * 100.0).clamp(0.0, 100.0);
    let label = format!("{} of the {} lease are left.", span(remaining), span(ttl));
    html! {
        svg.wide.lease height="14" viewBox="0 0 100 14" preserveAspectRatio="none" role="img" aria-label=(label) {
            rect width="100" height="14" class="f-line" {}
            rect width=(format!("{left:.1}")) height="14" class="f-ok left" {}
        }
    }
}

/// Draws the last round trips of a node, on a scale of their own.
pub(crate) fn sparkline(trips: &[Duration]) -> Markup {
    let Some(worst) = trips.iter().max().filter(|_| trips.len() > 1) else {
        return html! { span.soft { "–" } };
    };
    let worst = worst.as_secs_f64().max(1e-6);
    let step = 118.0 / (trips.len() - 1) as f64;
    let mut path = String::new();
    for (at, trip) in trips.iter().enumerate() {
        let letter = if at == 0 { 'M' } else { 'L' };
        let y = 22.0 - trip.as_secs_f64() / worst * 20.0;
        // `write!` to a string never fails.
        let _ = write!(path, "{letter}{:.1} {y:.1}", at as f64 * step);
    }
    html! {
        svg width="120" height="24" viewBox="0 0 120 24" aria-hidden="true" {
            path d="M0 23.500H120" class="s-line" {}
            path d=(path) class="s-ink f-none" stroke-width="1.2" {}
        }
    }
}

/// Draws the durations of the newest runs. A failed run is hollow. `shown` formats a tick.
pub(crate) fn chart(ends: &[RunEnd], shown: impl Fn(WallTime) -> String) -> Markup {
    let runs: Vec<&RunEnd> = ends.iter().take(BARS).filter(|end| end.took.is_some()).collect();
    let longest = runs.iter().filter_map(|end| end.took).max().unwrap_or_default();
    let (Some(newest), Some(oldest)) = (runs.first(), runs.last()) else {
        return html! { p.soft.small { "No run has a duration yet." } };
    };
    let label = format!("Durations of the last {} runs, the longest {}", runs.len(), span(longest));
    let step = CHART / BARS;
    html! {
        div.chart {
            div.y aria-hidden="true" { span { (span(longest)) } span { "0" } }
            svg.wide viewBox="0 0 1000 120" preserveAspectRatio="none" role="img" aria-label=(label) {
                path d="M0 119.500H1000" class="s-line" vector-effect="non-scaling-stroke" {}
                @for (place, end) in runs.iter().enumerate() { (bar(end, longest, (BARS - 1 - place) * step + 4)) }
            }
            div.scale { span { (shown(oldest.tick)) } span { (shown(newest.tick)) } }
        }
    }
}

fn bar(end: &RunEnd, longest: Duration, x: usize) -> Markup {
    let part = end.took.unwrap_or_default().as_secs_f64() / longest.as_secs_f64().max(1e-9);
    let height = (part * 116.0).max(2.0);
    let class = match end.outcome {
        RunOutcome::Done => "f-soft",
        _ => "f-bg s-bad",
    };
    html! {
        rect x=(x) y=(format!("{:.1}", 120.0 - height)) width="25" height=(format!("{height:.1}")) class=(class)
            stroke-width="2" vector-effect="non-scaling-stroke" {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_operator::testing;

    #[test]
    fn a_strip_counts_its_runs_and_names_the_newest() {
        let mut state = testing::state(3);
        testing::fail(&mut state, 0);
        let shown = strip(&state.jobs.as_ref().unwrap().list[0]).into_string();
        assert!(shown.contains("Newest runs: 1 done, 1 failed; the last failed"), "{shown}");
        testing::start(&mut state, 0);
        let shown = strip(&state.jobs.as_ref().unwrap().list[0]).into_string();
        assert!(shown.contains("1 running; the last running"), "{shown}");
    }

    #[test]
    fn a_strip_of_many_runs_is_short_and_has_a_mark_for_each() {
        let mut job = testing::job("j");
        job.ends = (0..STRIP as u64).map(|at| testing::end(RunOutcome::Done, 60 * at)).collect();
        job.ends[3].outcome = RunOutcome::Failed;
        job.ends[4].outcome = RunOutcome::Lost;
        job.ends[5].outcome = RunOutcome::TimedOut;
        job.ends[6].outcome = RunOutcome::Cancelled;
        let shown = strip(&job).into_string();
        assert!(shown.len() < 900, "{} bytes: {shown}", shown.len());
        assert_eq!(shown.matches("11h6v9h-6z").count(), STRIP - 4, "{shown}");
        for part in ["M128 0h6v20h-6z", "<rect x=\"120.7\"", "M112 0h6v7h-6z", "<rect x=\"104\" y=\"14\""] {
            assert!(shown.contains(part), "no {part} in {shown}");
        }
    }

    #[test]
    fn the_lease_is_never_wider_than_its_frame() {
        for (left, ttl, width) in [(5, 10, "50.0"), (20, 10, "100.0"), (0, 0, "0.0")] {
            let shown = lease(Duration::from_secs(left), Duration::from_secs(ttl)).into_string();
            assert!(shown.contains(&format!("width=\"{width}\"")), "{shown}");
        }
    }

    #[test]
    fn the_name_of_a_node_is_short() {
        assert_eq!(short_name("redis://redis-a.fra1:6379/0"), "redis-a.fra1:6379");
        assert_eq!(short_name("file:///var/lib/q"), "/var/lib/q");
        assert_eq!(short_name("memory"), "memory");
    }

    #[test]
    fn the_drawing_names_the_nodes_that_do_not_vote() {
        let mut state = testing::state(5);
        state.nodes[4].node.vote = Vote::Unreachable;
        let shown = quorum(&state.nodes, 3, testing::NOW).into_string();
        assert!(
            shown.contains("4 of 5 nodes vote, 3 needed, 1 to spare. redis-4:6379 does not vote"),
            "{shown}"
        );
    }
}
