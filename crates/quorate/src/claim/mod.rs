//! Claims: every copy sees a message, one handles it.
//!
//! # What is not guaranteed
//!
//! A claim alone does not make an effect happen exactly once: a worker may be paused after its last look and
//! act when another has the claim. Compare [`Claim::check`]'s token in the sink's own transaction. A done
//! record that reached a bare majority does not survive the loss of one of those nodes, nor any the restarts of
//! a majority, one after the other, that keep nothing (a rolling restart): nobody writes it again. After its
//! retention a message is as new. Who is told that a message is done may hear of a minority's older record.
//!
//! Not built yet: counting attempts and poisoned messages, fingerprints of payloads.
//!
//! # States
//!
//! | a message is … | and a claim on it gives |
//! | --- | --- |
//! | free | [`ClaimOutcome::Claimed`]: ours until we complete, abandon, or lose it |
//! | claimed | [`ClaimOutcome::InProgress`]: someone else's; when to look again |
//! | done | [`ClaimOutcome::Done`]: with its small result, for the retention |
//!
//! A claim is a lease that the keeper extends while its handler runs. Any *done* in the answers wins over
//! any number of grants; of two *done* records the one with the higher token stands.

mod abandon;
mod begin;
mod claims;
mod complete;
mod dead_letter;
mod error;
mod fingerprint;
mod handle;
mod many;
mod message;
mod outcome;
mod process;
mod state;
pub mod stream;

pub use claims::Claims;
pub use complete::Completed;
pub use dead_letter::DeadLetter;
pub use error::{AbandonError, ClaimError, CompleteError, ForgiveError, ProcessError};
pub use fingerprint::{Fingerprint, FingerprintError};
pub use handle::{Claim, ClaimHandle};
pub use many::{abandon_many, complete_many};
pub use message::MessageId;
pub use outcome::{ClaimOutcome, ClaimResult, Done, Once, Poisoned, Processed};
pub use state::ClaimState;
