//! The state of a group and its nodes, which the page and the live view show: one [`Reader`] asks the nodes, and
//! [`judge`] says what an operator must do.

mod past;
mod reader;
mod snapshot;
mod source;
mod strips;
mod verdict;

pub use past::LeadershipPast;
pub use reader::{Key, Reader, Round, Watched};
pub use snapshot::{Detail, JobDetail, JobsView, Leadership, Missing, STRIP, SeenNode, Snapshot, cron_words};
pub use source::{Examination, Finding, Messages, NodeFacts, NodeSource, Severity, SourceFuture};
pub use verdict::{Level, Problem, ProblemIcon, Target, Verdict, judge, shell, voting};
