//! Claims on messages: several workers may receive the same message, and one of them handles it.
//!
//! # What is not guaranteed
//!
//! A claim alone does not make an effect happen exactly once. A worker may be paused after its last check of
//! the claim, and continue when another worker has the claim. So the store that receives the effect must
//! compare the token of [`Claim::fencing_token`] in its own transaction.
//!
//! A done record that is stored on a bare majority does not survive the loss of one of these nodes. In a
//! rolling restart, a majority of the nodes restart one after the other. If these nodes do not keep their
//! data, no done record survives, because no worker writes the records again. Once the retention of its done
//! record is over, a message counts as new. A claim that reports a message as done may return an older
//! record, which only a minority of the nodes stores.
//!
//! Completing an expired claim first checks the current owner. Another worker may claim the message between
//! this check and the write. The late worker's record may then be stored on nodes that did not grant the new
//! claim.
//!
//! More attempts than [`Claims::max_attempts`] may begin if nodes lost their counts. If an attempt's handler
//! never started, its count is withdrawn. The withdrawal fails if the worker crashed at that moment, or lost
//! the claim. It also fails if a node did not answer, or if the call was dropped before the node's answer.
//!
//! A different payload under the same id is detected once an attempt has begun, until the retention ends. If
//! two workers race, one of them may first get *in progress*, and the error at its next claim. After a
//! [reset](Claims::reset), a node that was unreachable during the reset may still report the message as given
//! up.
//!
//! # States
//!
//! | state of the message | outcome of a claim on it |
//! | --- | --- |
//! | free (new, abandoned, or its worker is gone) | [`ClaimOutcome::Claimed`]: this worker holds the message until it completes, abandons or loses the claim |
//! | claimed | [`ClaimOutcome::InProgress`]: another worker holds it; includes when to try again |
//! | done | [`ClaimOutcome::Done`]: its time and its small result, until the retention ends |
//! | dead-lettered | [`ClaimOutcome::DeadLettered`]: given up at the attempt limit, and handed to the dead-letter hook |
//!
//! A claim is a lease, which the renewer extends while the handler runs. The renewer extends thousands of
//! leases in few calls. If one node reports a done record, the message is done, even if a majority granted
//! the claim. Of two done records, the one with the higher token is valid.
//!
//! Each claim has an owner token of its own. So a worker whose claim has expired can neither complete nor
//! abandon a message that another worker holds. The error [`ClaimError::TakenOver`] names the other worker.
//! [`Claims::inspect`] reads the state of a message. [`Claims::reset`] makes a message count as new.
//!
//! # Attempts
//!
//! With [`Claims::max_attempts`] or a payload's fingerprint, an attempt begins only once a majority has
//! counted it. This takes one more round trip, which the messages of a batch share.
//! [`claim::attempts`](crate::claim::attempts) describes the rule and its reasons. An attempt that is
//! abandoned, dropped or lost counts. An attempt that is [cancelled before its handler
//! started](Claim::cancel_before_start) does not.
//!
//! Once the limit is reached, the worker with the next claim hands the message to the dead-letter hook. That
//! worker holds the claim meanwhile, so only one worker hands the message over. If that worker crashes, the
//! next worker that claims the message hands it over.
//!
//! # Payloads and idempotency keys
//!
//! A [`MessageId`] may carry a [`Fingerprint`] of its payload. The same id with another fingerprint is
//! [`ClaimError::OtherPayload`], whether the message is claimed, free again, or done.
//! [`Claims::process_or_wait`] is for idempotency keys: a duplicate call waits until the first call ends, and
//! returns the result of the first call.
//!
//! # Batches
//!
//! [`Claims::claim_many`] and [`Claim::complete_many`] send chunks of 256 ids, two chunks at a time.
//! [`Claim::abandon_many`] sends one chunk after the other. A script call carries at most 64 ids. One invalid id
//! refuses the whole call before anything is claimed. Every other failure affects only its own id.
//!
//! # Size
//!
//! The figures are bytes on *each* node, where one key stores all data of a claim. The server's own tables
//! add about 60 bytes for each key. The sizes were measured with MEMORY USAGE on redis-server 7.0.15. The ids
//! had 36 characters, the set's name six, and the worker's name nine.
//!
//! | state of the message | bytes |
//! | --- | --- |
//! | claimed, with or without attempts counted | 216 |
//! | claimed, with a fingerprint | 264 |
//! | abandoned, until its counter or its attempt count expires | 152, with attempts counted 168, with a fingerprint 200 |
//! | done, with a result of up to 20 bytes | 168 |
//! | done, with a fingerprint and a result of 100 bytes | 296 |
//! | done, with a result of 1 KiB | 1,384 |
//! | dead-lettered, without a note | 152 |
//!
//! A million done messages a day, each kept for a day, take 228 MB on each server, including its tables.

mod abandon;
#[doc(hidden)]
pub mod attempts;
mod begin;
mod claims;
mod complete;
mod crowd;
mod dead_letter;
mod error;
mod fingerprint;
mod handle;
mod many;
mod message;
mod outcome;
mod process;
mod record;
mod state;
pub mod stream;
mod votes;

pub use claims::Claims;
pub use dead_letter::DeadLetter;
pub use error::{ClaimError, ProcessError};
pub use fingerprint::Fingerprint;
pub use handle::{Claim, ClaimHandle};
pub use message::MessageId;
pub use outcome::{ClaimOutcome, ClaimResult, Processed};
pub use record::{DeadLettered, Done};
pub use state::ClaimState;

#[doc(hidden)]
pub use votes::{ClaimData, ClaimTally};
