//! The rules of a stored job as fields.

use super::fields::{
    CONCURRENCY, DELIVERY, EXPECT_WITHIN, HISTORY, JITTER, KEEP_OUTPUT, MISFIRE, OVERLAP,
    PAUSE_AFTER_FAILURES, PRIORITY, RETRIES, RUNS_ON, TIMEOUT, Written, list, span, time_of, wrong,
};
use crate::{Given, WrongField};
use quorate::{
    internals::{JobDefinition, MisfireData},
    scheduler::{Delivery, Misfire, Placement, Retry},
};

/// Adds the fields of the rules.
pub(super) fn write(definition: &JobDefinition, fields: &mut Written) {
    let misfire = definition.misfire.as_ref().map(|misfire| match misfire {
        MisfireData::Skip => "skip".to_owned(),
        MisfireData::RunOnce { within } => format!("run-once {}", span(*within)),
        MisfireData::RunAll { within } => format!("run-all {}", span(*within)),
    });
    fields.add(&MISFIRE, misfire);
    fields.add(&DELIVERY, (definition.delivery != Delivery::default()).then_some(definition.delivery));
    fields.add(&OVERLAP, definition.overlap.as_ref());
    let placement = definition.placement.as_deref();
    let (any, every) = (Placement::AnyWorker.to_string(), Placement::EveryWorker.to_string());
    let placement = placement.map(|text| match text {
        text if text == any => "any",
        text if text == every => "every",
        text => text,
    });
    fields.add(
        &RUNS_ON,
        match (definition.labels.to_string(), placement) {
            (labels, placement) if labels.is_empty() => placement.map(ToOwned::to_owned),
            (labels, Some("every")) => Some(format!("every labels {labels}")),
            (labels, _) => Some(format!("labels {labels}")),
        },
    );
    let concurrency = definition.concurrency.as_ref();
    fields.add(&CONCURRENCY, concurrency.map(|rule| format!("{} {}", rule.limit, rule.key)));
    fields.add(&PAUSE_AFTER_FAILURES, definition.pause_after_failures);
    fields.add(&JITTER, (definition.jitter > 0).then(|| span(definition.jitter)));
    fields.add(&TIMEOUT, definition.timeout.map(span));
    let retries = definition.retries.as_ref();
    fields.add(
        &RETRIES,
        retries.map(|rule| format!("{} {} {}", rule.attempts, span(rule.first), span(rule.max))),
    );
    fields.add(&PRIORITY, (definition.priority != 0).then_some(definition.priority));
    fields.add(&HISTORY, definition.history);
    fields.add(&KEEP_OUTPUT, (definition.keep_output > 0).then_some(definition.keep_output));
    fields.add(&EXPECT_WITHIN, definition.expect_within.map(span));
}

/// Returns the workers on which a job runs, with the labels that they must have.
pub(super) fn runs_on(given: &impl Given) -> Result<Option<(Placement, Vec<&str>)>, WrongField> {
    let Some(text) = given.text(RUNS_ON.name) else { return Ok(None) };
    Ok(Some(match (text.trim(), text.trim().split_once(char::is_whitespace)) {
        ("any", _) => (Placement::AnyWorker, Vec::new()),
        ("leader", _) => (Placement::Leader, Vec::new()),
        ("every", _) => (Placement::EveryWorker, Vec::new()),
        (_, Some(("every", rest))) => (Placement::EveryWorker, labels(text, rest)?),
        (rest, _) => (Placement::AnyWorker, labels(text, rest)?),
    }))
}

/// Returns the labels of `labels eu, ssd`, which is part of `text`.
fn labels<'a>(text: &str, rest: &'a str) -> Result<Vec<&'a str>, WrongField> {
    match rest.trim().strip_prefix("labels") {
        Some(labels) if !list(labels).is_empty() => Ok(list(labels)),
        Some(_) => Err(wrong(&RUNS_ON, text, "has no label; write labels eu, or any")),
        None => Err(wrong(&RUNS_ON, text, "is unknown; write any, every, leader or labels eu")),
    }
}

/// Returns the concurrency key of a job, with its limit.
pub(super) fn concurrency(given: &impl Given) -> Result<Option<(&str, usize)>, WrongField> {
    let Some(text) = given.text(CONCURRENCY.name) else { return Ok(None) };
    let parts = text.trim().split_once(char::is_whitespace);
    let found = parts.and_then(|(limit, key)| Some((key.trim(), limit.parse().ok()?)));
    found.map(Some).ok_or_else(|| wrong(&CONCURRENCY, text, "has no limit and key; write 2 database"))
}

pub(super) fn misfire(given: &impl Given) -> Result<Option<Misfire>, WrongField> {
    let Some(text) = given.text(MISFIRE.name) else { return Ok(None) };
    let words: Vec<&str> = text.split_whitespace().collect();
    Ok(Some(match words[..] {
        ["skip"] => Misfire::Skip,
        ["run-once", within] => Misfire::run_once(time_of(&MISFIRE, within)?),
        ["run-all", within] => Misfire::run_all(time_of(&MISFIRE, within)?),
        _ => return Err(wrong(&MISFIRE, text, "is not a rule; write skip, run-once 1h or run-all 1h")),
    }))
}

pub(super) fn retries(given: &impl Given) -> Result<Option<Retry>, WrongField> {
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
