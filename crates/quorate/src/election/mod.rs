//! Election: one copy leads, for a term; when it fails, another does.
//!
//! # What is not guaranteed
//!
//! That there is a leader: without a trusted majority there is none. That two copies never *believe* they
//! lead at one moment of true time, where the assumptions of [`lease`](crate::lease) do not hold. And a
//! leader that is paused between [`Term::fencing_token`] and a write may write after its term: pass the fencing token
//! to the sink.
//!
//! # What ends a term
//!
//! | the work … | then |
//! | --- | --- |
//! | returns `Ok` | the leader resigns, and campaigns again after a back-off |
//! | returns `Err`, or panics | the leader logs a warning with the error and resigns; the copy campaigns again after a pause ([`Election::restart_backoff`]) |
//! | the same, after [`Election::end_on_error`] | the leader resigns, and the campaign returns the error, or panics with the work's panic |
//! | is told to shut down | it has the grace to end, then it is dropped; the leader resigns, and the campaign returns `Ok` |
//! | is told to resign ([`Term::resign`], [`Term::transfer_to`], [`Observer::ask_to_resign`]) | it has the grace to end, then it is dropped; the leader resigns, hands over where an heir is named, and campaigns again after a back-off |
//! | is told to step down (extensions failed, the longest term is over, no sign of life) | it has the grace to end; at the end of validity it is dropped; the copy campaigns again |
//!
//! On a resign the work ends first, then the lease: the order that client-go's `ReleaseOnCancel` has the
//! wrong way round.
//!
//! # When the work fails
//!
//! An error of the work is taken for a transient one: a database connection that is cut, for instance, must not leave the
//! group without a leader. The leader releases its lease *before* the pause, rather than keep it for its own next attempt:
//! another copy may be healthy where this one is not, and leads at once. So a group of several copies is without a leader
//! only for as long as an election takes, and a single copy for as long as the pause, 1 s to 30 s by default. A panic is
//! treated as an error, as that of a job or of a message handler is, for it would leave the group without a leader as well.
//! Each term begins with new work; state that the closure shares between terms must be fit for that after a panic.
//!
//! The log has the text of the error (`{:#}`). Where that leaves out the causes, as the text of a driver's error may, let
//! the work return an error whose text has them.
//!
//! Work that returns an error because it was told to stop has not failed in this sense: the error is logged, and the copy
//! goes on as after `Ok`. At a shutdown the campaign then returns `Ok`.

mod campaign;
mod end;
mod error;
mod events;
mod observer;
mod resign;
mod restart;
mod term;

pub use campaign::{Campaign, Election};
pub use error::ElectionError;
pub use events::{ElectionEvent, ElectionEvents};
pub use observer::{Leader, Observer};
pub use resign::{ResignError, Resigned};
pub use term::Term;
