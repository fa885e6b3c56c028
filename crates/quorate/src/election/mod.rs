//! Election: one copy of a service leads its group for a term. When that copy fails, another copy leads.
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
//! - There may be no leader: no copy is elected without a majority of nodes that may vote.
//! - If the assumptions of [`lease`](crate::lease) do not hold, two copies may believe at the same time that they
//!   lead.
//! - A leader that is paused between [`Term::fencing_token`] and a write may write after its term. So the
//!   store that receives the write must compare the token.
//!
//! # What ends a term
//!
//! | the work … | then |
//! | --- | --- |
//! | returns `Ok` | the leader resigns, and campaigns again after a back-off |
//! | returns `Err`, or panics | the leader logs a warning with the error and resigns; the copy campaigns again after a pause ([`Election::restart_backoff`]) |
//! | returns `Err`, or panics, and [`Election::end_on_error`] is set | the leader resigns, and the campaign returns the error, or panics with the work's panic |
//! | is asked to shut down | the work may end within the grace period, and is then dropped; the leader resigns, and the campaign returns `Ok` |
//! | is asked to resign ([`Term::resign`], [`Term::transfer_to`], [`Observer::ask_to_resign`]) | the work may end within the grace period, and is then dropped; the leader resigns, hands the lease over if a successor is named, and campaigns again after a back-off |
//! | is asked to step down (extensions failed, the longest term is over, the health check failed) | the work may end within the grace period; at the end of validity it is dropped; the copy campaigns again, at once if extensions failed, otherwise after a back-off |
//!
//! When a leader resigns, its work ends first, then its lease. The option `ReleaseOnCancel` of Kubernetes'
//! client-go releases the lease first, which is unsafe.
//!
//! # When the work fails
//!
//! An error of the work counts as transient: a database connection that breaks, for instance, must not leave
//! the group without a leader. The leader releases its lease *before* the pause. So another copy, which may
//! be healthy, can lead at once. A group of several copies is then without a leader only for as long as an
//! election takes. A group of one copy is without a leader for the length of the pause, 1 s to 30 s by
//! default.
//!
//! A panic of the work is treated as an error too, as in a job or a message handler. Otherwise a panic would
//! leave the group without a leader. The work is called again for each term. State that its closure shares
//! between terms must be usable after a panic.
//!
//! The log contains the text of the error (`{:#}`). Some errors, such as those of database drivers, leave
//! their causes out of this text. In that case, let the work return an error whose text includes the causes.
//!
//! An error that the work returns after it was asked to stop does not count as a failure. The error is
//! logged, and the copy continues as after `Ok`. At a shutdown the campaign then returns `Ok`.
//!
//! # The error type of the work
//!
//! The error may be of any type that can be displayed, including `Box<dyn Error>` and `anyhow::Error`. A
//! campaign may be moved to another task, for instance by `tokio::spawn`. Then its error must be `Send`, such
//! as `Box<dyn Error + Send + Sync>`.

mod campaign;
mod candidate;
mod end;
mod error;
mod events;
mod following;
mod history;
mod history_writer;
mod impediment;
mod known_leader;
mod log_limit;
mod observer;
mod preference;
mod resign;
mod restart;
mod term;
mod term_work;

pub use campaign::Campaign;
pub use candidate::Election;
pub use error::ElectionError;
pub use events::ElectionEvent;
#[doc(hidden)]
pub use history::{PastTerm, TermEnd, TermEndCause};
pub use observer::{Leader, Observer};
pub use resign::ResignError;
pub use term::Term;
