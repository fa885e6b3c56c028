//! Tests of `docs/guide`: every command in it runs as it is written, every link leads to a page or a section,
//! and the summary lists each page. The crate of the examples compiles its Rust.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod book;
mod links;
mod machines;
mod page;
mod script;
mod shell;
