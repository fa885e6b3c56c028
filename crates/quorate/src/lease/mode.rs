//! What a lease is to the nodes: one holder's, or one reader's among many. All that differs is what is asked.

use crate::{
    lease::acquire::LeaseParams,
    node::{FencingToken, Owner, Request, Resource},
};
use std::time::Duration;

/// Who else may hold it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Nobody: a plain lock, a writer, a leader, a claim.
    #[default]
    Alone,
    /// Readers. They have no fencing token.
    Shared,
}

impl LeaseParams {
    /// Where a missing counter starts is the client's wall clock.
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
            Mode::Alone => Request::Acquire { resource, owner, ttl, propose, tolerance, keep, ticket },
            Mode::Shared => Request::Share { resource, owner, ttl, ticket },
        }
    }

    pub(super) fn extend(&self, resource: Resource, owner: Owner, token: FencingToken) -> Request {
        let Self { ttl, keep, .. } = *self;
        match self.mode {
            Mode::Alone => Request::Extend { resource, owner, ttl, token, keep },
            Mode::Shared => Request::ExtendShare { resource, owner, ttl },
        }
    }

    pub(super) fn release(&self, resource: Resource, owner: Owner) -> Request {
        match self.mode {
            Mode::Alone => Request::Release { resource, owner },
            Mode::Shared => Request::ReleaseShare { resource, owner },
        }
    }
}
