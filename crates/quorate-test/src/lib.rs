//! x
#[doc(hidden)]
pub mod sim;
