use crate::node::{Request, Resource};

/// The maximum work of one script call, in requests on a lock. The work is limited, because a server serves no other client
/// while a script runs.
pub(crate) const WORK_A_CALL: usize = 64;

/// The ways in which a server serves a request on a lock, in the order of their calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Group {
    /// One script releases many locks.
    Release,
    /// An acquire by plain commands.
    Commands,
    /// The script of the request.
    Script,
}

/// Requests on locks that follow each other in a batch, with their positions in it. Each group is one call, so the order of
/// requests on different locks changes. Requests on the same lock keep their order.
#[derive(Debug, Default)]
pub(crate) struct LockGroups<'a>([Vec<(usize, &'a Request)>; 3]);

impl<'a> LockGroups<'a> {
    /// Returns whether a request on `lock` may join this group: it has room, and no later group has a request on the lock.
    pub(crate) fn takes(&self, lock: &Resource, group: Group) -> bool {
        let mut later = self.0[group as usize + 1..].iter().flatten();
        self.0[group as usize].len() < WORK_A_CALL && later.all(|(_, other)| lock_of(other) != Some(lock))
    }

    pub(crate) fn add(&mut self, group: Group, position: usize, request: &'a Request) {
        self.0[group as usize].push((position, request));
    }

    /// Takes the requests of a group.
    pub(crate) fn take(&mut self, group: Group) -> Vec<(usize, &'a Request)> {
        std::mem::take(&mut self.0[group as usize])
    }
}

/// Returns the lock of a request that belongs to a group.
pub(crate) fn lock_of(request: &Request) -> Option<&Resource> {
    match request {
        Request::Acquire { resource, .. }
        | Request::Raise { resource, .. }
        | Request::Extend { resource, .. }
        | Request::Release { resource, .. }
            if !resource.is_claim() =>
        {
            Some(resource)
        }
        _ => None,
    }
}
