//! Reports measurements through the facade crate `metrics` (feature `metrics`).
//!
//! The program that uses the library chooses the exporter, and installs it before it builds a quorum. The
//! exporter does not see counters and gauges that were made before. Without the feature, every type here is
//! empty and every function does nothing.
//!
//! A label is a node, a group, a job, an outcome, an event or a set of claims or shards. A tick, a fencing token, a
//! worker or a time is never a label, so the number of series does not grow while a program runs. Every series
//! exists, with the value zero, as soon as its node, group, job or set is known.
//!
//! `docs/guide/src/reference/metrics.md` lists the names.

mod claims;
mod copies;
mod facade;
mod jobs;
mod leases;
mod nodes;
mod shards;

pub(crate) use claims::{ClaimMeasures, ClaimResultKind};
pub(crate) use copies::CopyMeasures;
pub(crate) use jobs::{JobGauges, JobsMeasures};
pub(crate) use leases::{AcquireMeasures, AcquireResultKind, ElectionMeasures, TermGauges};
pub(crate) use nodes::{NodeMeasures, NodeReport};
pub(crate) use shards::ShardMeasures;
