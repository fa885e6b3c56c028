//! Tests of `docs/guide` and of the README files: every command in them runs as it is written, every link leads to a
//! page or a section, and the summary lists each page. The crate of the examples compiles their Rust.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod book;
mod links;
mod machines;
mod output;
mod page;
mod readme;
mod script;
mod shell;
