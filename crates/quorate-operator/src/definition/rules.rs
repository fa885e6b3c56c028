//! The rules of a stored job as fields.

use super::fields::{
    CONCURRENCY, DELIVERY, EXPECT_WITHIN, HISTORY, JITTER, KEEP_OUTPUT, MISFIRE, OVERLAP,
    PAUSE_AFTER_FAILURES, PRIORITY, RETRIES, RUNS_ON, TIMEOUT, Written, length, list, number, one_of, span,
    time_of, wrong,
};
use crate::{Given, WrongField};
use quorate::{
    internals::JobRules,
    scheduler::{Concurrency, Delivery, Labels, Misfire, Overlap, Placement, Retry},
};

/// Returns the rules that the fields give.
///
/// # Errors
/// The field that must be changed, and the reason.
pub(super) fn read(given: &impl Given) -> Result<JobRules, WrongField> {
    let usual = JobRules::of_named();
    let (placement, labels) = runs_on(given)?.unwrap_or((usual.placement, Labels::default()));
    let overlaps = [Overlap::Queue, Overlap::Skip, Overlap::CancelOld, Overlap::Allow];
    Ok(JobRules {
        misfire: misfire(given)?,
        delivery: one_of(given, &DELIVERY, &[Delivery::AtLeastOnce, Delivery::AtMostOnce])?
            .unwrap_or(usual.delivery),
        overlap: one_of(given, &OVERLAP, &overlaps)?.unwrap_or(usual.overlap),
        placement,
        labels,
        concurrency: concurrency(given)?,
        pause_after_failures: number(given, &PAUSE_AFTER_FAILURES)?,
        jitter: length(given, &JITTER)?.unwrap_or(usual.jitter),
        timeout: length(given, &TIMEOUT)?,
        retries: retries(given)?.unwrap_or(usual.retries),
        priority: number(given, &PRIORITY)?.unwrap_or(usual.priority),
        history: number(given, &HISTORY)?.unwrap_or(usual.history),
        keep_output: number(given, &KEEP_OUTPUT)?.unwrap_or(usual.keep_output),
        expect_within: length(given, &EXPECT_WITHIN)?,
    })
}

/// Adds the fields of the rules.
pub(super) fn write(rules: &JobRules, fields: &mut Written) {
    let usual = JobRules::of_named();
    let misfire = rules.misfire.map(|misfire| match misfire {
        Misfire::RunOnce { within } => format!("run-once {}", span(within)),
        Misfire::RunAll { within } => format!("run-all {}", span(within)),
        _ => "skip".to_owned(),
    });
    fields.add(&MISFIRE, misfire);
    fields.add(&DELIVERY, (rules.delivery != usual.delivery).then_some(rules.delivery));
    fields.add(&OVERLAP, (rules.overlap != usual.overlap).then_some(rules.overlap));
    let runs_on = match (rules.placement, rules.labels.to_string()) {
        (Placement::Leader, _) => Some("leader".to_owned()),
        (Placement::EveryWorker, labels) if labels.is_empty() => Some("every".to_owned()),
        (Placement::EveryWorker, labels) => Some(format!("every labels {labels}")),
        (_, labels) => (!labels.is_empty()).then(|| format!("labels {labels}")),
    };
    fields.add(&RUNS_ON, runs_on);
    let concurrency = rules.concurrency.as_ref();
    fields.add(&CONCURRENCY, concurrency.map(|rule| format!("{} {}", rule.limit, rule.key)));
    fields.add(&PAUSE_AFTER_FAILURES, rules.pause_after_failures);
    fields.add(&JITTER, (!rules.jitter.is_zero()).then(|| span(rules.jitter)));
    fields.add(&TIMEOUT, rules.timeout.map(span));
    let pauses = (span(rules.retries.first_backoff()), span(rules.retries.max_backoff()));
    let retries = format!("{} {} {}", rules.retries.attempts(), pauses.0, pauses.1);
    fields.add(&RETRIES, (rules.retries != usual.retries).then_some(retries));
    fields.add(&PRIORITY, (rules.priority != usual.priority).then_some(rules.priority));
    fields.add(&HISTORY, (rules.history != usual.history).then_some(rules.history));
    fields.add(&KEEP_OUTPUT, (rules.keep_output > 0).then_some(rules.keep_output));
    fields.add(&EXPECT_WITHIN, rules.expect_within.map(span));
}

/// Returns the workers on which a job runs, with the labels that they must have.
fn runs_on(given: &impl Given) -> Result<Option<(Placement, Labels)>, WrongField> {
    let Some(text) = given.text(RUNS_ON.name) else { return Ok(None) };
    Ok(Some(match (text.trim(), text.trim().split_once(char::is_whitespace)) {
        ("any", _) => (Placement::AnyWorker, Labels::default()),
        ("leader", _) => (Placement::Leader, Labels::default()),
        ("every", _) => (Placement::EveryWorker, Labels::default()),
        (_, Some(("every", rest))) => (Placement::EveryWorker, labels(text, rest)?),
        (rest, _) => (Placement::AnyWorker, labels(text, rest)?),
    }))
}

/// Returns the labels of `labels eu, ssd`, which is part of `text`.
fn labels(text: &str, rest: &str) -> Result<Labels, WrongField> {
    match rest.trim().strip_prefix("labels") {
        Some(labels) if !list(labels).is_empty() => Ok(Labels::new(list(labels))),
        Some(_) => Err(wrong(&RUNS_ON, text, "has no label; write labels eu, or any")),
        None => Err(wrong(&RUNS_ON, text, "is unknown; write any, every, leader or labels eu")),
    }
}

/// Returns the concurrency key of a job, with its limit.
fn concurrency(given: &impl Given) -> Result<Option<Concurrency>, WrongField> {
    let Some(text) = given.text(CONCURRENCY.name) else { return Ok(None) };
    let parts = text.trim().split_once(char::is_whitespace);
    let found = parts
        .and_then(|(limit, key)| Some(Concurrency { key: key.trim().into(), limit: limit.parse().ok()? }));
    found.map(Some).ok_or_else(|| wrong(&CONCURRENCY, text, "has no limit and key; write 2 database"))
}

fn misfire(given: &impl Given) -> Result<Option<Misfire>, WrongField> {
    let Some(text) = given.text(MISFIRE.name) else { return Ok(None) };
    let words: Vec<&str> = text.split_whitespace().collect();
    Ok(Some(match words[..] {
        ["skip"] => Misfire::Skip,
        ["run-once", within] => Misfire::run_once(time_of(&MISFIRE, within)?),
        ["run-all", within] => Misfire::run_all(time_of(&MISFIRE, within)?),
        _ => return Err(wrong(&MISFIRE, text, "is not a rule; write skip, run-once 1h or run-all 1h")),
    }))
}

fn retries(given: &impl Given) -> Result<Option<Retry>, WrongField> {
    let Some(text) = given.text(RETRIES.name) else { return Ok(None) };
    let words: Vec<&str> = text.split_whitespace().collect();
    let attempts = |word: &str| match word.parse() {
        Ok(attempts @ 1..=100) => Ok(Retry::new(attempts)),
        _ => Err(wrong(&RETRIES, text, "has no number of attempts; give it 1 to 100")),
    };
    Ok(Some(match words[..] {
        [count] => attempts(count)?,
        [count, first, max] => {
            let (first, max) = (time_of(&RETRIES, first)?, time_of(&RETRIES, max)?);
            if first > max {
                return Err(wrong(
                    &RETRIES,
                    text,
                    "has a first pause longer than the longest; exchange them",
                ));
            }
            attempts(count)?.backoff(first, max)
        }
        _ => return Err(wrong(&RETRIES, text, "is not a rule; write 3, or 3 1s 60s")),
    }))
}
