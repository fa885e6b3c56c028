//! The histories of operations in the journals, and their check by a linearizability checker. The specifications, the
//! checker and what they do not judge are in `quorate_testkit::history`. The simulation is judged by the same.
//!
//! They judge the exclusion of leases and the order of their fencing tokens, the starts of ticks, and that a message that
//! is done is not claimed again. The checks of `crate::checks` judge what needs the director's record of the faults.
//!
//! # What is not guaranteed
//!
//! A lease counts as held from the grant to the last check that found it valid, or for as long as its process was stopped
//! just after that check. A run whose process was stopped may have done nothing since its start.

mod belief;
mod leases;
mod messages;
mod store;
mod ticks;

pub(crate) use leases::Leases;
pub(crate) use messages::Messages;
pub(crate) use store::Calls;
pub(crate) use ticks::Runs;

use quorate::env::BootTime;
use quorate_testkit::history::{Findings, Moment};
use quorate_tests::support::Who;
use serde_json::{Value, json};
use std::{fmt::Display, sync::Arc};

fn moment(at: BootTime) -> Moment {
    Moment::from_nanos(at.as_nanos())
}

fn process(who: Who) -> Arc<str> {
    format!("{}.{}", who.member, who.run).into()
}

/// Returns the line of a report about a check of histories.
pub(crate) fn figures(found: &Findings) -> Value {
    json!({
        "operations": found.operations,
        "objects": found.objects,
        "largest_part": found.largest,
        "undecided": found.undecided,
        "violations": found.violations.len(),
    })
}

/// Returns the violations of histories of one kind, for a report. A history that was not judged is one too.
pub(crate) fn violations(kind: impl Display, found: &Findings) -> Vec<String> {
    let all = found.violations.iter().chain(&found.undecided);
    all.map(|violation| format!("linearizability: {kind}: {violation}")).collect()
}
