//! Tests of services.

mod cluster;
mod node;
mod paused;
mod runs;
mod setup;
#[doc(hidden)]
pub mod sim;
mod state;
mod terms;
mod time;
mod unit;
mod worker;

pub use cluster::{Cluster, ClusterBuilder};
pub use node::Node;
pub use paused::run;
pub use runs::Runs;
pub use state::MessageState;
pub use terms::Terms;
pub use time::time;
pub use unit::{Held, UnderTest, claim, delivery, run_context, term};
pub use worker::{Process, ServiceEnd, Worker};
