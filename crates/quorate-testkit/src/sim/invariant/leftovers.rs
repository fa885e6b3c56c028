use super::{Event, Invariant};
use std::time::Duration;

/// Requires that at the end no server stores a lease, and that no task of a worker still runs or has
/// panicked.
#[derive(Debug)]
pub(super) struct Leftovers;

impl Invariant for Leftovers {
    fn name(&self) -> &'static str {
        "leftovers"
    }

    fn is_timeless(&self) -> bool {
        true
    }

    fn see(&mut self, _now: Duration, event: &Event<'_>) -> Result<(), String> {
        match event {
            Event::LeftoverLeases { node, leases } if !leases.is_empty() => {
                Err(format!("{node} still has {leases:?}"))
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
    use quorate::node::Resource;

    #[test]
    fn keys_tasks_and_panics_are_leftovers() {
        let see = |event: &Event<'_>| Leftovers.see(Duration::ZERO, event);
        let ended = |tasks, panics| see(&Event::Ended { worker: "a", tasks, panics });
        assert!(ended(0, &[]).is_ok());
        assert!(ended(1, &[]).is_err());
        assert!(ended(0, &["no".to_owned()]).is_err());
        let lease = (Resource::lock("x").unwrap(), "a".to_owned(), Duration::ZERO);
        assert!(see(&Event::LeftoverLeases { node: "n", leases: &[] }).is_ok());
        assert!(see(&Event::LeftoverLeases { node: "n", leases: &[lease] }).is_err());
    }
}
