//! The events of readers' leases and of transferred leases.

use super::Referee;
use crate::sim::{Event, Held, Holder, Host};
use quorate::lease::{Lease, ReadLease};
use std::sync::{Arc, Mutex};

impl Referee {
    /// Records that a worker's code has received the reader's lease `lease`. `downgraded` is the token of the
    /// writer's lease that the worker turned into this lease, if it did.
    pub fn read(&self, host: &Arc<Host>, lease: ReadLease, downgraded: Option<u64>) -> Arc<Held> {
        let nodes = self.list(host);
        let mut state = self.state();
        state.held.retain(|held| !held.is_over());
        let held = Held {
            id: state.next(),
            host: Arc::clone(host),
            resource: lease.resource().clone(),
            token: 0,
            // No simulated worker changes the step-down grace from its default, a fifth of the TTL.
            grace: lease.ttl() / 5,
            nodes,
            holder: Mutex::new(Some(Holder::ReadLease(Arc::new(lease)))),
            seen: Mutex::default(),
        };
        let held = Arc::new(held);
        state.held.push(Arc::clone(&held));
        drop(state);
        if let Some(belief) = self.beliefs(std::slice::from_ref(&held)).pop() {
            self.trace.note(format_args!("{} reads {}", belief.worker, belief.resource));
            self.count(if belief.valid {
                "reader's lease granted"
            } else {
                "reader's lease granted too late"
            });
            self.judge(&Event::Read { belief: &belief, downgraded });
        }
        self.look();
        held
    }

    /// Transfers `lease` to the worker called `successor`, and records the result.
    pub async fn transfer(&self, host: &Arc<Host>, lease: Lease, successor: &str) {
        let (resource, token) = (lease.resource().clone(), lease.unchecked_token().get());
        let given = lease.transfer_to(successor).await;
        if given.is_ok() {
            self.tell(&Event::Transferred { worker: host.name(), resource: &resource, token });
        }
        self.count(if given.is_ok() { "lease transferred" } else { "lease not transferred" });
    }
}
