//! Nothing yet but the configuration.

pub mod config;
