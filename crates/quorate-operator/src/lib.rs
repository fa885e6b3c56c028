//! The views and the actions of an operator, which the commands of `quorate`, its HTTP API, its live view
//! and the pages of `quorate-web` share. A fact that is added to a view appears in all of them. The live view and the pages
//! also share the [reader](state::Reader) of a group's state, and the [verdict](state::judge) on it.
//!
//! # What is not guaranteed
//!
//! This crate is a part of the two others. Its interface may change in any version. A view may be out of date when it is
//! read. An action may have an effect although its answer was lost; its error then says so.

// A function fits on a screen. The tables of tests do not.
#![cfg_attr(not(test), warn(clippy::too_many_lines))]

mod action;
mod answer;
pub mod definition;
mod error;
mod field;
mod given;
mod moment;
mod operator;
mod read;
pub mod state;
#[cfg(any(test, feature = "testing"))]
#[doc(hidden)]
pub mod testing;
pub mod time;
mod verb;
pub mod view;

pub use action::Action;
pub use answer::{Answer, Done, Request, Reset, Resignation};
pub use error::ActionError;
pub use field::{Field, Kind, Need};
pub use given::{Given, WrongField};
pub use moment::Moment;
pub use operator::{Entry, Operator};
pub use verb::{Verb, Words};
