//! The views. Their fields are typed, and text of other parties is made plain. The names of the fields in JSON are
//! those of the documented API, so programs that read it break if one is renamed.

mod audit;
mod job;
mod leader;
mod lease;
mod lock;
mod message;
mod node;
mod pause;
mod run;
mod serial;
mod shards;
mod term;
mod why;
mod worker;

pub use audit::{AuditEntry, AuditError};
pub use job::{JobState, JobView, Unsent};
pub use leader::LeaderView;
pub use lease::ClientLease;
pub use lock::{LockState, LockView, OwnerView};
pub use message::{MessageState, MessageView};
pub use node::{NodeView, Vote, without_name};
pub use pause::Pause;
use quorate::plain::plain;
pub use run::{ActiveRun, RunEnd};
pub use serial::{
    Line, MaybeCause, MaybeFineMillis, MaybeMicros, MaybeMillis, MaybeName, MaybeRfc3339, Millis, Name,
    Rfc3339, Text,
};
pub use shards::{ShardSetView, ShardView, ShardWorkerView};
pub use term::TermView;
pub use why::WhyView;
pub use worker::WorkerView;

/// The longest name that is shown, in bytes.
const NAME_MAX: usize = 200;
/// The longest reason, rule or schedule that is shown, in bytes.
const TEXT_MAX: usize = 1_000;

/// Returns a name of another party for people.
pub fn name(text: &str) -> String {
    plain(text, NAME_MAX)
}

/// Returns a line of another party for people.
pub fn text(text: &str) -> String {
    plain(text, TEXT_MAX)
}

/// Returns the lines of another party for people.
pub fn lines(text: &str) -> String {
    let lines: Vec<String> = text.split('\n').map(|line| plain(line, usize::MAX)).collect();
    lines.join("\n")
}
