//! Exactly-once effects in PostgreSQL. A transaction checks a message's id ([`Effects`]) or a lease's fencing
//! token ([`Fences`]), and makes its changes only if the check succeeds.
//!
//! # Example
//!
//! ```no_run
//! # use quorate::claim::ClaimHandle;
//! # use quorate_postgres::{Effects, Once};
//! # async fn handle(client: &mut tokio_postgres::Client, id: &str, claim: ClaimHandle) -> Result<(), Box<dyn std::error::Error>> {
//! let effects = Effects::new("orders");
//! let transaction = client.transaction().await?;
//! if let Once::First = effects.once(&transaction, id, claim.fencing_token()?).await? {
//!     transaction.execute("UPDATE stock SET left = left - 1", &[]).await?;
//! }
//! transaction.commit().await?; // then complete the claim in both cases
//! # Ok(())
//! # }
//! ```
//!
//! # Why a claim is not enough
//!
//! A claim alone, like any lock, cannot give exactly-once effects. A worker may be paused or killed after it
//! has made its changes and before it completes the claim. The claim then expires, and another worker handles
//! the message again. So the transaction that makes the changes must decide whether they were made before.
//! With [`Effects`], the transaction inserts a row with the message's id. The row commits or rolls back
//! together with the changes. (Martin Kleppmann, *How to do distributed locking*, 2016, requires the same of
//! a lock's fencing token.) A claim avoids nearly all duplicate work; this crate excludes the rest.
//!
//! # What is not guaranteed
//!
//! Only the changes that the checked transaction makes in this database happen once. A letter sent during the
//! transaction is sent again when the transaction is rolled back and the message is handled again. An id is known as
//! long as its row exists: [`Effects::forget_before`] must not remove an id that may still be delivered again.

// A function fits on a screen. The tables of tests do not.
#![cfg_attr(not(test), warn(clippy::too_many_lines))]

mod create;
mod effects;
mod error;
mod fences;

pub use effects::{Effects, Once};
pub use error::Error;
pub use fences::Fences;
pub use tokio_postgres;
