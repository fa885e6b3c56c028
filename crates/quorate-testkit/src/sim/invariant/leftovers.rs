use super::{Event, Invariant};
use crate::sim::Excuse;
use quorate::node::{Refusal, Reply, Request, Resource};
use std::{collections::BTreeSet, time::Duration};

/// Requires that at the end no server stores a lease, and that no task of a worker still runs or has
/// panicked.
///
/// A lease is excused that plain commands have set after their deadline, and after the release overtook them on a later
/// connection. It ends one TTL after that deadline.
#[derive(Debug, Default)]
pub(super) struct Leftovers {
    /// The leases that plain commands have set late: server, resource and owner token.
    late: BTreeSet<(String, Resource, String)>,
}

impl Invariant for Leftovers {
    fn name(&self) -> &'static str {
        "leftovers"
    }

    fn is_timeless(&self) -> bool {
        true
    }

    fn see(&mut self, _now: Duration, event: &Event<'_>) -> Result<(), String> {
        match event {
            Event::Ran {
                node,
                request: Request::Acquire { resource, owner, .. },
                reply: Reply::MayHold(Refusal::Stale),
            } => {
                self.late.insert(((*node).to_owned(), resource.clone(), owner.as_str().to_owned()));
                Ok(())
            }
            Event::LeftoverLeases { node, leases } => {
                let is_late = |resource: &Resource, owner: &String| {
                    self.late.contains(&((*node).to_owned(), resource.clone(), owner.clone()))
                };
                let left = leases
                    .iter()
                    .filter(|(resource, owner, _)| !Excuse::LeftoversLate.excuses(is_late(resource, owner)));
                let left: Vec<_> = left.collect();
                if left.is_empty() { Ok(()) } else { Err(format!("{node} still has {left:?}")) }
            }
            Event::Ended { worker, panics, .. } if !panics.is_empty() => {
                Err(format!("a task of {worker} panicked: {}", panics.join("; ")))
            }
            Event::Ended { worker, tasks, .. } if *tasks > 0 => {
                Err(format!("{tasks} tasks of {worker} are left"))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate::node::{FencingToken, Owner};

    #[test]
    fn keys_tasks_and_panics_are_leftovers() {
        let mut leftovers = Leftovers::default();
        let mut see = |event: &Event<'_>| leftovers.see(Duration::ZERO, event);
        let mut ended = |tasks, panics| see(&Event::Ended { worker: "a", tasks, panics });
        assert!(ended(0, &[]).is_ok());
        assert!(ended(1, &[]).is_err());
        assert!(ended(0, &["no".to_owned()]).is_err());
        let (resource, owner) = (Resource::lock("x").unwrap(), Owner::from_node("a"));
        let leases = [(resource.clone(), "a".to_owned(), Duration::ZERO)];
        assert!(see(&Event::LeftoverLeases { node: "n", leases: &[] }).is_ok());
        assert!(see(&Event::LeftoverLeases { node: "n", leases: &leases }).is_err());
        let request = Request::Acquire {
            resource,
            owner,
            ttl: Duration::ZERO,
            propose: FencingToken::default(),
            tolerance: Duration::ZERO,
            keep: Duration::ZERO,
            ticket: None,
        };
        let late = Reply::MayHold(Refusal::Stale);
        assert!(see(&Event::Ran { node: "n", request: &request, reply: &late }).is_ok());
        assert!(see(&Event::LeftoverLeases { node: "n", leases: &leases }).is_ok());
        assert!(see(&Event::LeftoverLeases { node: "m", leases: &leases }).is_err(), "another server");
    }
}
