use super::{Recall, ReplyTo, standing::Marking};
use crate::{
    env::BootTime,
    node::{BatchReply, Listen, Owner, Request},
};

/// What a driver finds in its mailbox.
#[derive(Debug)]
pub(crate) enum Mail {
    /// Something for its node to do.
    Post(Post),
    /// What its node is to tell of, or no longer.
    Listen(Listen),
}

/// Something for a node to do.
#[derive(Debug)]
pub(crate) struct Post {
    pub(crate) errand: Errand,
    /// When the answer is of no more use; for a release, when its key has ended anyway.
    pub(crate) deadline: BootTime,
    /// Who waits. A release goes on without its waiter.
    pub(crate) reply: Option<ReplyTo>,
}

impl Post {
    /// Whether it is a release that may go again, and late: it frees one attempt's lease and nobody's after it.
    pub(super) fn is_release(&self) -> bool {
        let every_reader = |request: &Request| matches!(request, Request::Release { owner, .. } if owner.as_str() == Owner::READERS);
        matches!(&self.errand, Errand::Ask(request) if request.is_release() && !every_reader(request))
    }
}

/// What a post asks for.
#[derive(Debug)]
pub(crate) enum Errand {
    /// A request to the node.
    Ask(Request),
    /// End the node's quarantine in its marker.
    Admit,
}

/// A batch under way.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) id: u64,
    pub(super) sent: BootTime,
    /// The memory of the node that was asked.
    pub(super) memory: Recall,
    pub(super) deadline: BootTime,
    /// As [`Flight::next_deadline`] said last: nothing of it is due before.
    pub(super) due: BootTime,
    pub(super) cargo: Cargo,
}

/// What a batch carries.
#[derive(Debug)]
pub(super) enum Cargo {
    /// In the order of the batch; an entry that has been answered is `None`.
    Posts(Vec<Option<Post>>),
    /// A look whether our marker still stands.
    Look,
    /// A marker on its way, and what holds once it stands.
    Marker { marking: Marking, admits: Option<ReplyTo> },
}

impl Flight {
    /// Whether each reply can be one to what was asked. What has been answered for already is not looked at.
    pub(super) fn fits(&self, reply: &BatchReply) -> bool {
        let Cargo::Posts(posts) = &self.cargo else { return true };
        posts.iter().zip(&reply.replies).all(|(post, reply)| match post.as_ref().map(|post| &post.errand) {
            Some(Errand::Ask(request)) => request.is_answered_by(reply),
            _ => true,
        })
    }

    /// When the first of its waiters, or the flight itself, is answered *timed out*.
    pub(super) fn next_deadline(&self) -> BootTime {
        match &self.cargo {
            Cargo::Posts(posts) => {
                let waiting = posts.iter().flatten().filter(|post| post.reply.is_some());
                waiting.map(|post| post.deadline).min().unwrap_or(self.deadline).min(self.deadline)
            }
            Cargo::Look | Cargo::Marker { .. } => self.deadline,
        }
    }
}
