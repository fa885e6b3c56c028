//! Claims: every copy sees a message, one handles it.
//!
//! # What is not guaranteed
//!
//! A claim alone does not make an effect happen exactly once: a worker may be paused after its last look and
//! act when another has the claim. Compare [`Claim::fencing_token`]'s token in the sink's own transaction. A done
//! record that reached a bare majority does not survive the loss of one of those nodes, nor any the restarts of
//! a majority, one after the other, that keep nothing (a rolling restart): nobody writes it again. After its
//! retention a message is as new. Who is told that a message is done may hear of a minority's older record. Who completes after
//! its claim has run out looks first whose the message is; where another claims it in that very moment, its record may stand
//! on nodes that the other has not got.
//!
//! More attempts than [`Claims::max_attempts`] may begin where nodes forgot their counts. An attempt whose handler never began
//! is taken back, except where its worker died just then, lost the claim, did not hear from a node, or dropped the call before that: such a one counts.
//! Whether a payload is another is known from the moment an attempt began on a majority, for the retention: of two that
//! race, one may be told *in progress* first. A forgiven message may be told to be given up by a node that was away.
//!
//! # States
//!
//! | a message is … | and a claim on it gives |
//! | --- | --- |
//! | free (new, abandoned, or its worker is gone) | [`ClaimOutcome::Claimed`]: ours until we complete, abandon, or lose it |
//! | claimed | [`ClaimOutcome::InProgress`]: someone else's; when to look again |
//! | done | [`ClaimOutcome::Done`]: when, and with its small result, for the retention |
//! | poisoned | [`ClaimOutcome::DeadLettered`]: given up after so many attempts, handed to the dead-letter hook |
//!
//! A claim is a lease that the keeper extends while its handler runs, thousands in few calls. Any *done* in the answers wins
//! over any number of grants; of two *done* records the one with the higher token stands. It is signed by its owner: who
//! comes late neither completes nor abandons what another holds, and is told who does ([`CompleteError::TakenOver`],
//! [`AbandonError::TakenOver`]). [`Claims::inspect`] looks, [`Claims::reset`] has a message begin anew.
//!
//! # Attempts
//!
//! With [`Claims::max_attempts`] (or a payload's fingerprint) an attempt begins only once a majority has counted it: one more
//! round trip, which a batch shares. The rule and what it rests on: [`claim::attempts`](crate::claim::attempts). What is
//! abandoned, dropped or lost counts; what is [given back](Claim::give_back) before its handler began does not. At the
//! limit the next claim *holds* the message to hand it over, so that one worker does, and the next one if that dies.
//!
//! # Payloads and idempotency keys
//!
//! A [`MessageId`] may come with a [`Fingerprint`] of its payload: the same id with another is [`ClaimError::OtherPayload`],
//! while it is claimed, free again, or done. [`Claims::once`] is for an idempotency key: a duplicate waits for the first one's
//! end and gets its result.
//!
//! # Batches
//!
//! [`Claims::claim_many`] and [`complete_many`] send 256 ids at a time, two such batches side by side, and [`abandon_many`] one
//! after the other; in script calls of 64 at most. A bad id refuses the whole batch before anything is claimed; all else is a
//! verdict of its own.
//!
//! # Size
//!
//! Measured by MEMORY USAGE on redis-server 7.0.15, for ids of 36 characters in a set of six, a worker's name of nine; bytes on
//! *each* node, where all of a claim stands under one key. An entry of the server's tables (about 60 bytes a key) comes on top.
//!
//! | a message that is … | bytes |
//! | --- | --- |
//! | claimed, with or without attempts counted | 216 |
//! | claimed, with a fingerprint | 264 |
//! | abandoned, until its counter or the count ends | 152, counted 168, with a fingerprint 200 |
//! | done, with a result of up to 20 bytes | 168 |
//! | done, with a fingerprint and a result of 100 bytes | 296 |
//! | done, with a result of 1 KiB | 1,384 |
//! | poisoned, without a note | 152 |
//!
//! A million done messages a day, kept for a day, are 228 MB on each server, tables included.

mod abandon;
#[doc(hidden)]
pub mod attempts;
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
mod slot;
mod state;
pub mod stream;
mod votes;

pub use claims::Claims;
pub use complete::Completed;
pub use dead_letter::DeadLetter;
pub use error::{AbandonError, ClaimError, CompleteError, ProcessError, ResetError};
pub use fingerprint::{Fingerprint, FingerprintError};
pub use handle::{Claim, ClaimHandle};
pub use many::{abandon_many, complete_many};
pub use message::MessageId;
pub use outcome::{ClaimOutcome, ClaimResult, DeadLettered, Done, IdempotentResult, Processed};
pub use state::ClaimState;

#[doc(hidden)]
pub use slot::{CloseTally, SlotTally};
#[doc(hidden)]
pub use votes::{ClaimData, ClaimTally};

pub(crate) use slot::{Claimed, SlotClaim, SlotId, Slots, VOID};
