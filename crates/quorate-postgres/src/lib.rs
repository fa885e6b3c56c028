//! Exactly-once effects in PostgreSQL: the message's id, or the lease's fencing token, is checked in the
//! transaction that has the effect.
//!
//! # What is not guaranteed
//!
//! Only what this database does in *that* transaction happens once: a letter that is sent from within it is
//! sent again when the transaction is rolled back and the message handled anew. An id is known for as long as
//! its row stands: [`Effects::forget_before`] must not remove what may still be delivered again.
//!
//! # Why, if the message was claimed
//!
//! A lock cannot give exactly-once effects alone. A worker may be paused, or killed, between its effect and the
//! moment in which it says so; its claim ends, and another handles the message again. What decides must
//! be decided where the effect is: here a row with the message's id, which commits or vanishes together with it.
//! (Martin Kleppmann, *How to do distributed locking*, 2016, calls for the same of a lock's fencing token.) A claim
//! keeps the copies from doing the work twice nearly always; this crate, the rest.
//!
//! ```no_run
//! # use quorate::claim::ClaimHandle;
//! # use quorate_postgres::{Effects, Error, Once};
//! # async fn handle(client: &mut tokio_postgres::Client, id: &str, claim: ClaimHandle) -> Result<(), Error> {
//! let effects = Effects::new("orders");
//! let transaction = client.transaction().await?;
//! if let Once::First = effects.once(&transaction, id, claim.token()).await? {
//!     transaction.execute("UPDATE stock SET left = left - 1", &[]).await?;
//! }
//! transaction.commit().await?; // and then complete the claim, whichever it was
//! # Ok(())
//! # }
//! ```

mod create;
mod effects;
mod error;
mod fences;

pub use effects::{Effects, Once};
pub use error::Error;
pub use fences::Fences;
pub use tokio_postgres;
