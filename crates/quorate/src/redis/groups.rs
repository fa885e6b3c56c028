use crate::node::{Request, Resource};

/// The maximum work of one script call, in requests on a resource. The work is limited, because a server serves no other client
/// while a script runs.
pub(crate) const WORK_A_CALL: usize = 64;

/// The ways in which a server serves a request on a lock or a claim, in the order of their calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Group {
    /// One script releases many locks.
    Release,
    /// An acquire by plain commands.
    Commands,
    /// The script of the requests on locks.
    Locks,
    /// The script of the requests on claims.
    Claims,
}

/// Requests on locks and claims that follow each other in a batch, with their positions in it. Each group is one call, so the
/// order of requests on different resources changes. Requests on the same resource keep their order.
#[derive(Debug, Default)]
pub(crate) struct Groups<'a>([Vec<(usize, &'a Request)>; 4]);

impl<'a> Groups<'a> {
    /// Returns whether a request on `resource` may join this group: it has room, and no later group has a request on the
    /// resource.
    pub(crate) fn takes(&self, resource: &Resource, group: Group) -> bool {
        let mut later = self.0[group as usize + 1..].iter().flatten();
        self.0[group as usize].len() < WORK_A_CALL && later.all(|(_, other)| grouped(other) != Some(resource))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(Vec::is_empty)
    }

    pub(crate) fn add(&mut self, group: Group, position: usize, request: &'a Request) {
        self.0[group as usize].push((position, request));
    }

    /// Takes the requests of a group.
    pub(crate) fn take(&mut self, group: Group) -> Vec<(usize, &'a Request)> {
        std::mem::take(&mut self.0[group as usize])
    }
}

/// Returns the resource of a request that belongs to a group.
pub(crate) fn grouped(request: &Request) -> Option<&Resource> {
    match request {
        Request::Acquire { resource, .. }
        | Request::Raise { resource, .. }
        | Request::Extend { resource, .. }
        | Request::Release { resource, .. } => Some(resource),
        Request::Inspect { resource }
        | Request::Count { resource, .. }
        | Request::Complete { resource, .. }
        | Request::ResetAttempts { resource, .. }
            if resource.is_claim() =>
        {
            Some(resource)
        }
        _ => None,
    }
}
