//! Votes: what a node answered to one request of a round, and what the answers of a round mean together.

mod answer;
mod channel;
mod tally;

pub use answer::{Answer, NodeOutcome, Report, Vote};
pub use tally::{Grant, Tally, Verdict};

pub(crate) use answer::ReplyTo;
pub(crate) use channel::{VoteReceiver, VoteSender, vote_channel};
pub(crate) use tally::quorum_th;
