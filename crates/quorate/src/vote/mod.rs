//! Votes: a node's answer to one request of a round, and the verdict of a round's votes.

mod answer;
mod channel;
mod tally;

pub use answer::{Answer, NoMajority, NodeOutcome, Vote};
pub use tally::{Grant, RoundData, Tally, Verdict};

pub(crate) use channel::{ReplyTo, VoteReceiver, VoteSender, vote_channel};
pub(crate) use tally::quorum_th;
