//! The functions that the fuzz targets call. CI's property tests call the same functions.

#[path = "../unfriendly/mod.rs"]
pub mod unfriendly;
#[cfg(feature = "program")]
#[path = "../unfriendly_program/mod.rs"]
pub mod unfriendly_program;
