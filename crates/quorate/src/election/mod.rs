//! Election: one copy of a group leads, for a term; when it fails, another copy leads.
//!
//! ```no_run
//! use quorate::{Election, Quorum};
//!
//! # async fn service(quorum: Quorum) -> Result<(), Box<dyn std::error::Error>> {
//! let work = |term: quorate::Term| async move {
//!     while !term.step_down_token().is_cancelled() {
//!         let token = term.fencing_token()?; // pass it to each write
//!         println!("work under {token}");
//!         tokio::time::sleep(std::time::Duration::from_secs(1)).await;
//!     }
//!     Ok::<(), Box<dyn std::error::Error>>(())
//! };
//! Election::new(&quorum, "billing").run(work).until(std::future::pending::<()>()).await?;
//! quorum.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! # What is not guaranteed
//!
//! - There may be no leader: without a trusted majority none is elected.
//! - Where the assumptions of [`lease`](crate::lease) do not hold, two copies may believe at one moment that they lead.
//! - A leader that is paused between [`Term::fencing_token`] and a write may write after its term: pass the token to the sink,
//!   which compares it.
//!
//! # What ends a term
//!
//! | the work … | then |
//! | --- | --- |
//! | returns `Ok` | the leader resigns, and campaigns again after a back-off |
//! | returns `Err`, or panics | the leader logs a warning with the error and resigns; the copy campaigns again after a pause ([`Election::restart_backoff`]) |
//! | the same, after [`Election::end_on_error`] | the leader resigns, and the campaign returns the error, or panics with the work's panic |
//! | is asked to shut down | it has the grace to end, then it is dropped; the leader resigns, and the campaign returns `Ok` |
//! | is asked to resign ([`Term::resign`], [`Term::transfer_to`], [`Observer::ask_to_resign`]) | it has the grace to end, then it is dropped; the leader resigns, hands over where a successor is named, and campaigns again after a back-off |
//! | is asked to step down (extensions failed, the longest term is over, the health check failed) | it has the grace to end; at the end of validity it is dropped; the copy campaigns again |
//!
//! On a resignation the work ends first, then the lease. Client-go's `ReleaseOnCancel` has the opposite order, which is unsafe.
//!
//! # When the work fails
//!
//! An error of the work is taken to be transient: a database connection that breaks, for instance, must not leave the group
//! without a leader. The leader releases its lease *before* the pause, rather than keep it for its own next attempt: another
//! copy may be healthy where this one is not, and leads at once. So a group of several copies is without a leader only for as
//! long as an election takes, and a single copy for as long as the pause, 1 s to 30 s by default. A panic is treated as an
//! error, as it is in a job or a message handler, for it would leave the group without a leader as well. Each term begins with
//! new work; state that the closure shares between terms must be usable after a panic.
//!
//! The log has the text of the error (`{:#}`). Where that leaves out the causes, as the text of a driver's error may, let the
//! work return an error whose text has them.
//!
//! Work that returns an error because it was asked to stop has not failed in this sense: the error is logged, and the copy
//! goes on as after `Ok`. At a shutdown the campaign then returns `Ok`.
//!
//! # The error type of the work
//!
//! Any type that can be displayed: `Box<dyn Error>` and `anyhow::Error` too. A campaign that is moved to another task, as by
//! `tokio::spawn`, needs an error that is `Send`, such as `Box<dyn Error + Send + Sync>`.

mod campaign;
mod candidate;
mod end;
mod error;
mod events;
mod known_leader;
mod log_limit;
mod observer;
mod resign;
mod restart;
mod tend;
mod term;

pub use campaign::Campaign;
pub use candidate::Election;
pub use error::ElectionError;
pub use events::ElectionEvent;
pub use observer::{Leader, Observer};
pub use resign::ResignError;
pub use term::Term;
