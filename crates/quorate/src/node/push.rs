use super::{Cause, Owner, Resource};
use tokio::sync::mpsc;

/// The capacity of the channel from a session to its driver. Further pushes are lost. The last free slot is
/// kept for [`Push::Closed`].
const PUSHES_MAX: usize = 1024;

/// A message that a node sends without a request. It may be lost, so nothing may depend on it alone.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Push {
    /// The session has ended while no request was in flight, for this cause.
    Closed(Cause),
    /// A resource with a subscription was released on the node. The node does not send this push if a lease
    /// expires, or if a client other than Quorate releases the resource.
    Released {
        /// The released lease.
        lease: ReleasedLease,
        /// The number of sessions, of all workers, to which the node sent this push. At most this many
        /// workers may now try to acquire the resource at the same time.
        notified: u32,
    },
}

/// A lease that a node removed on request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReleasedLease {
    /// The resource that was held.
    pub resource: Resource,
    /// The former holder. A worker uses an owner token for one attempt, so the token identifies the same
    /// lease on all nodes. For readers it is always [`Owner::READERS`].
    pub owner: Owner,
}

/// A change of a session's subscriptions, for [`Session::listen`](super::Session::listen).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// Push the releases of this resource.
    Begin(Resource),
    /// Stop pushing the releases of this resource.
    End(Resource),
}

/// The sending half of the channel for a session's [`Push`]es. Sending never blocks.
#[derive(Clone, Debug)]
pub struct PushSender(mpsc::Sender<Push>);

impl PushSender {
    /// Returns a sender of pushes, and the receiving half of its channel.
    pub fn channel() -> (Self, mpsc::Receiver<Push>) {
        let (tx, rx) = mpsc::channel(PUSHES_MAX);
        (Self(tx), rx)
    }

    /// Sends `push`, without waiting. The push is lost if the driver has opened another session, or if the
    /// node pushes faster than the driver reads.
    pub fn push(&self, push: Push) {
        if matches!(push, Push::Closed(_)) || self.0.capacity() > 1 {
            let _ = self.0.try_send(push);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_pushes_uses_bounded_memory_and_the_end_is_still_reported() {
        let (push_sender, mut pushes) = PushSender::channel();
        let resource = Resource::lock("r").unwrap();
        for number in 0..10_000 {
            let owner = Owner::sign("w", number, 0);
            push_sender.push(Push::Released {
                lease: ReleasedLease { resource: resource.clone(), owner },
                notified: 1,
            });
        }
        push_sender.push(Push::Closed(Cause::Closed));
        let received: Vec<Push> = std::iter::from_fn(|| pushes.try_recv().ok()).collect();
        let closed = Push::Closed(Cause::Closed);
        assert_eq!((received.len(), received.last()), (PUSHES_MAX, Some(&closed)));
    }
}
