//! The parameters of a lease, and the requests to nodes that contain them.

use crate::{
    config::{QuorumConfig, SettingError},
    lease::mode::Mode,
    node::{FencingToken, Owner, Request, Resource},
};
use std::time::Duration;

/// The parameters of one lease.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LeaseParams {
    pub(crate) ttl: Duration,
    /// The grace period: the time between the step-down and the end of validity.
    pub(crate) grace: Duration,
    /// The shortest validity that must be left when the attempt ends. Otherwise the attempt counts as lost.
    pub(crate) min_validity: Duration,
    /// The time for which a node keeps the fencing counter after its last use.
    pub(crate) keep: Duration,
    /// True if the renewer extends the lease automatically.
    pub(crate) extended: bool,
    pub(crate) mode: Mode,
}

impl LeaseParams {
    /// Returns the parameters of a lease. Its fencing counter lives for `fence_retention`. An option that is
    /// `None` gets its default value.
    ///
    /// # Errors
    /// [`SettingError`] if the timings cannot work.
    pub(crate) fn checked(
        config: &QuorumConfig,
        ttl: Duration,
        grace: Option<Duration>,
        min_validity: Option<Duration>,
        extended: bool,
    ) -> Result<Self, SettingError> {
        let grace = grace.unwrap_or(QuorumConfig::default_grace(ttl));
        config.validate_lease(ttl, grace, extended)?;
        let (min_validity, keep) = (min_validity.unwrap_or(grace), config.fence_retention);
        // An attempt takes some time. If no attempt could leave so much validity, the lease would be acquired and
        // released again without end.
        let (valid, timeout) = (config.validity(ttl), config.node_timeout);
        if valid < min_validity.saturating_add(timeout) {
            let reason = format!(
                "and a lease of ttl {ttl:?} is valid for {valid:?} less one node_timeout {timeout:?}"
            );
            let fix = "shorten min_validity, or lengthen ttl";
            return Err(SettingError::new("min_validity", format!("{min_validity:?}"), reason, fix));
        }
        Ok(Self { ttl, grace, min_validity, keep, extended, mode: Mode::Exclusive })
    }

    /// Returns the request that acquires the lease. `propose` is the client's wall clock. A node without a
    /// fencing counter starts one at that value, if it differs from the node's clock by at most `tolerance`.
    /// `ticket` is the caller's ticket, if the caller has joined the queue.
    pub(super) fn acquire(
        &self,
        resource: Resource,
        owner: Owner,
        propose: FencingToken,
        tolerance: Duration,
        ticket: Option<Owner>,
    ) -> Request {
        let Self { ttl, keep, .. } = *self;
        match self.mode {
            Mode::Exclusive => Request::Acquire { resource, owner, ttl, propose, tolerance, keep, ticket },
            Mode::Shared => Request::Share { resource, owner, ttl, ticket },
        }
    }

    pub(super) fn extend(&self, resource: Resource, owner: Owner, token: FencingToken) -> Request {
        let Self { ttl, keep, .. } = *self;
        match self.mode {
            Mode::Exclusive => Request::Extend { resource, owner, ttl, token, keep },
            Mode::Shared => Request::ExtendShare { resource, owner, ttl },
        }
    }

    pub(super) fn release(&self, resource: Resource, owner: Owner) -> Request {
        match self.mode {
            Mode::Exclusive => Request::Release { resource, owner },
            Mode::Shared => Request::ReleaseShare { resource, owner },
        }
    }
}
