//! Leases that this process holds for other programs, its clients.
//!
//! A client asks for locks or messages and gets a lease with an id that cannot be guessed. The id is the only key to the
//! lease. The lease is extended while the client gives signs: a request about the lease that waits, or one at least every
//! `keep`. A client that dies or hangs gives none, and so loses the lease.
//!
//! # What a client may rely on
//!
//! Every answer says for how long the client may use the lease if it hears nothing more. Counted from the moment at which
//! the client *sent* the request, this time is over before another client can hold the lock. So it is bounded by the
//! lease's validity and by `keep`, and a daemon that stops waits for that long before it releases what a client still holds.
//!
//! # What is not guaranteed
//!
//! A forced release by an operator ends this: see `quorate lock release --force`. A client with an open stream whose
//! process hangs gives a sign until the stream ends, after `keep` at most.
//!
//! `attendance` decides, without a clock; `lease` is one lease, with the task that ends it; `registry` has all of them.

mod attendance;
mod id;
mod lease;
mod measures;
mod registry;
mod seats;

pub(crate) use attendance::{End, Phase};
pub(crate) use id::LeaseId;
pub(crate) use lease::{Held, Kind, Part, Sign, View};
pub(crate) use measures::Asked;
pub(crate) use registry::Leases;
pub(crate) use seats::{Limits, Refusal};
