use super::{Owner, Resource};
use tokio::sync::mpsc;

/// How many pushes wait for a driver at most; the last place is for [`Push::Closed`]. More are lost.
const PUSHES_MAX: usize = 1024;

/// What a session tells unasked. May be lost, so nothing may depend on it alone.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Push {
    /// The connection is gone, although nothing was being asked.
    Closed,
    /// A resource that is listened for was freed on the node. Not told where a lease ended by its time, or
    /// where another client than Quorate freed it.
    Released {
        /// What, and whose.
        freed: Freed,
        /// How many sessions the node told, of whatever worker: so many may want it now.
        told: u32,
    },
}

/// A lease that a node has freed, on request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Freed {
    /// What was held.
    pub resource: Resource,
    /// Whose it was. An owner token signs one attempt, so that it names one lease on all nodes; readers alone go by
    /// one name, [`Owner::READERS`].
    pub owner: Owner,
}

/// What [`Session::listen`](super::Session::listen) asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// Tell when this is released.
    Begin(Resource),
    /// No longer.
    End(Resource),
}

/// Where a session leaves its [`Push`]es. Never blocks.
#[derive(Clone, Debug)]
pub struct Nudge(mpsc::Sender<Push>);

impl Nudge {
    /// A nudge and the receiving end of it.
    pub fn channel() -> (Self, mpsc::Receiver<Push>) {
        let (tx, rx) = mpsc::channel(PUSHES_MAX);
        (Self(tx), rx)
    }

    /// Leaves `push`; lost without harm if the driver has gone on to another session, or where a node pushes
    /// more than anybody can hear.
    pub fn push(&self, push: Push) {
        if push == Push::Closed || self.0.capacity() > 1 {
            let _ = self.0.try_send(push);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_floods_fills_no_memory_and_its_end_is_still_told() {
        let (nudge, mut pushes) = Nudge::channel();
        let resource = Resource::lock("r").unwrap();
        for number in 0..10_000 {
            let owner = Owner::sign("w", number, 0);
            nudge.push(Push::Released { freed: Freed { resource: resource.clone(), owner }, told: 1 });
        }
        nudge.push(Push::Closed);
        let told: Vec<Push> = std::iter::from_fn(|| pushes.try_recv().ok()).collect();
        assert_eq!((told.len(), told.last()), (PUSHES_MAX, Some(&Push::Closed)));
    }
}
