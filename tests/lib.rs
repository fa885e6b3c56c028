//! Tests that need several real processes. See the files beside this one.
