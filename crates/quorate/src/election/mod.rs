//! Election: one copy leads, for a term; when it fails, another does.
//!
//! # What is not guaranteed
//!
//! That there is a leader: without a trusted majority there is none. That two copies never *believe* they
//! lead at one moment of true time, where the assumptions of [`lease`](crate::lease) do not hold. And a
//! leader that is paused between [`Term::check`] and a write may write after its term: pass the fencing token
//! to the sink.
//!
//! # What ends a term
//!
//! | the work … | then |
//! | --- | --- |
//! | returns `Ok` | the leader resigns, and campaigns again after a back-off |
//! | returns `Err` | the leader resigns, and the campaign returns the error |
//! | panics | the leader resigns, and the panic goes on |
//! | is told to shut down | it has the grace to end, then it is dropped; the leader resigns, and the campaign returns `Ok` |
//! | is told to resign ([`Term::resign`], [`Term::transfer_to`], [`Observer::ask_to_resign`]) | it has the grace to end, then it is dropped; the leader resigns, hands over where an heir is named, and campaigns again after a back-off |
//! | is told to step down (extensions failed, the longest term is over, no sign of life) | it has the grace to end; at the end of validity it is dropped; the copy campaigns again |
//!
//! On a resign the work ends first, then the lease: the order that client-go's `ReleaseOnCancel` has the
//! wrong way round.

mod campaign;
mod error;
mod events;
mod observer;
mod resign;
mod term;

pub use campaign::{Campaign, Election};
pub use error::ElectionError;
pub use events::{ElectionEvent, ElectionEvents};
pub use observer::{Leader, Observer};
pub use resign::{ResignError, Resigned};
pub use term::Term;
