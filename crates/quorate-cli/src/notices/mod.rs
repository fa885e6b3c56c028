//! Notifications of operators: a command or a webhook for each `[[notify]]`, and the URLs that jobs ping.
//!
//! Each receiver has a queue of its own and one task, so that a receiver that hangs delays neither a tick nor
//! another receiver. The tasks belong to [`Notices`] and end with it.
//!
//! # What is not guaranteed
//!
//! * A notification of a job is sent *at least once*, and usually once. The leader stores it in the ledger before
//!   it is sent, and removes it afterwards. A claim for each receiver records that the receiver has got it. If the
//!   leader ends between the answer of the receiver and that record, or no majority of the nodes stores the record,
//!   the next leader sends the message again. A receiver can recognize the repetition by the `id`.
//! * A receiver that fails or does not answer gets a few further attempts, within about a minute. Then the
//!   notification is dropped, counted and logged. It is also dropped if the receiver's queue is full.
//! * A ping is sent *at most once*, apart from attempts without an answer. It is lost if the worker ends before.
//! * `no-leader` is sent once by agreement of the workers. Without a majority of the nodes they cannot agree:
//!   then each worker sends it. The same holds for `overdue` while there is no leader that can write.

mod agreement;
pub(crate) mod client;
mod command;
mod hook;
mod message;
mod no_leader;
mod overdue;
mod ping;
mod queue;
mod watch;

pub(crate) use client::{Call, Client};
pub(crate) use hook::Notices;
pub(crate) use ping::Pings;
