//! Votes of the nodes. A vote is a node's answer to one request of a round. The votes of a round decide whether
//! the round is won.

mod answer;
mod channel;
mod tally;

pub use answer::{Answer, NoMajority, NodeOutcome, Vote};
pub use tally::{Grant, RoundData, Tally, Verdict};

pub(crate) use channel::{ReplyTo, VoteReceiver, VoteSender, vote_channel};
pub(crate) use tally::quorum_th;
