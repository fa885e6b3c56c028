//! The extensions of leases, which are sent in groups: one message to a node has the extensions of many leases.
//!
//! Leases that are due at the same time form a group, and each node of the group gets one message. Its votes are held back
//! until they decide something, so that a lease is looked at twice in a round, and not once for each node: a worker may have
//! very many leases, which do not fit into the processor's caches.

use crate::{
    driver::RequestList,
    node::{Reply, Request},
    vote::{Answer, Vote},
};
use std::{collections::BTreeMap, mem, sync::Arc};

/// The maximum number of leases in one group: a node extends them in one script call.
const GROUP_MAX: usize = 64;

/// The groups of extensions that have not been sent, or whose nodes have not all answered.
#[derive(Debug)]
pub(super) struct Extensions {
    /// The number of nodes whose agreement decides a round.
    majority: usize,
    /// The ticket of the next group's first lease. The leases of a group have consecutive tickets.
    next: u64,
    unsent: Vec<Unsent>,
    /// The groups that were sent, by their first tickets.
    sent: BTreeMap<u64, Group>,
}

#[derive(Debug)]
struct Unsent {
    nodes: Vec<usize>,
    leases: Vec<u64>,
    requests: Vec<Request>,
}

/// A message that is to be sent to each of `nodes`.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) nodes: Vec<usize>,
    pub(super) requests: RequestList,
    pub(super) ticket: u64,
}

#[derive(Debug)]
struct Group {
    leases: Arc<[u64]>,
    /// The votes that have not been counted.
    votes: Vec<Vote>,
    /// The number of answers that are missing, and of agreeing answers that decide the round. A vote may have several.
    unanswered: u64,
    undecided: u64,
}

/// Votes to count, and the ids of the leases that they concern.
#[derive(Debug)]
pub(super) struct Counted {
    leases: Arc<[u64]>,
    first: u64,
    votes: Vec<Vote>,
}

impl Counted {
    /// Returns the id of each lease, with the votes on it.
    pub(super) fn each(&self) -> impl Iterator<Item = (u64, impl Iterator<Item = &Vote>)> {
        (self.first..).zip(&*self.leases).map(|(ticket, id)| {
            let concerns = move |vote: &&Vote| (vote.ticket..vote.ticket + vote.requests).contains(&ticket);
            (*id, self.votes.iter().filter(concerns))
        })
    }
}

impl Extensions {
    /// Creates the extensions of a worker that needs the agreement of `majority` nodes.
    pub(super) fn new(majority: usize) -> Self {
        Self { majority, next: 0, unsent: Vec::new(), sent: BTreeMap::new() }
    }

    /// Adds the extension of a lease by `nodes`.
    pub(super) fn add(&mut self, nodes: Vec<usize>, id: u64, request: Request) {
        let fits = |group: &&mut Unsent| group.leases.len() < GROUP_MAX && group.nodes == nodes;
        match self.unsent.last_mut().filter(fits) {
            Some(group) => {
                group.leases.push(id);
                group.requests.push(request);
            }
            None => self.unsent.push(Unsent { nodes, leases: vec![id], requests: vec![request] }),
        }
    }

    /// Takes the messages to send.
    pub(super) fn take_unsent(&mut self) -> Vec<Message> {
        let unsent = mem::take(&mut self.unsent);
        unsent.into_iter().map(|group| self.begin(group)).collect()
    }

    fn begin(&mut self, Unsent { nodes, leases, requests }: Unsent) -> Message {
        let (ticket, count, asked) = (self.next, leases.len() as u64, nodes.len());
        self.next += count;
        let group = Group {
            leases: leases.into(),
            votes: Vec::new(),
            unanswered: count * asked as u64,
            undecided: count * asked.min(self.majority) as u64,
        };
        self.sent.insert(ticket, group);
        Message { nodes, requests: requests.into(), ticket }
    }

    /// Takes a vote on extensions. Returns the votes that are to be counted now. Agreeing votes are held back until they
    /// decide the round, or until another vote arrives: each node answers within the node timeout.
    pub(super) fn voted(&mut self, vote: Vote) -> Option<Counted> {
        let (&first, group) = self.sent.range_mut(..=vote.ticket).next_back()?;
        let agrees = matches!(vote.answer, Answer::Reply(Reply::Extended));
        let was_undecided = group.undecided > 0;
        group.unanswered = group.unanswered.saturating_sub(vote.requests);
        if agrees {
            group.undecided = group.undecided.saturating_sub(vote.requests);
        }
        group.votes.push(vote);
        let decides = was_undecided && group.undecided == 0;
        let ends = group.unanswered == 0;
        let counted = (!agrees || decides || ends).then(|| Counted {
            leases: Arc::clone(&group.leases),
            first,
            votes: mem::take(&mut group.votes),
        });
        if ends {
            self.sent.remove(&first);
        }
        counted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        env::BootTime,
        node::{Cause, FencingToken, Owner, Resource},
        trust::NodeEpoch,
    };
    use std::time::Duration;

    fn extension(name: &str) -> Request {
        let (ttl, keep) = (Duration::from_secs(1), Duration::from_secs(1));
        let (resource, owner) = (Resource::lock(name).unwrap(), Owner::sign("w", 1, 1));
        Request::Extend { resource, owner, ttl, token: FencingToken::new(1), keep }
    }

    fn vote(node: usize, ticket: u64, requests: u64, answer: Answer) -> Vote {
        let (sent, memory) = (Some(BootTime::default()), NodeEpoch::default());
        Vote { node, ticket, requests, sent, memory, answer }
    }

    fn extended(node: usize, ticket: u64, requests: u64) -> Vote {
        vote(node, ticket, requests, Answer::Reply(Reply::Extended))
    }

    /// Returns, for each lease, the nodes whose votes are counted.
    fn counted(votes: Option<Counted>) -> Vec<(u64, Vec<usize>)> {
        let each = |counted: &Counted| -> Vec<_> {
            counted.each().map(|(id, votes)| (id, votes.map(|vote| vote.node).collect())).collect()
        };
        votes.as_ref().map(each).unwrap_or_default()
    }

    #[test]
    fn leases_that_the_same_nodes_extend_share_a_message() {
        let mut extensions = Extensions::new(2);
        (0..70).for_each(|id| extensions.add(vec![0, 1, 2], id, extension("a")));
        extensions.add(vec![1], 70, extension("b"));
        extensions.add(vec![0, 1, 2], 71, extension("c"));
        let messages = extensions.take_unsent();
        let sizes: Vec<_> = messages
            .iter()
            .map(|message| (message.ticket, message.requests.len(), &*message.nodes))
            .collect();
        let all: &[usize] = &[0, 1, 2];
        assert_eq!(sizes, [(0, 64, all), (64, 6, all), (70, 1, &[1]), (71, 1, all)]);
        assert!(extensions.take_unsent().is_empty());
    }

    #[test]
    fn votes_are_counted_when_they_decide_and_when_all_have_answered() {
        let mut extensions = Extensions::new(3);
        [7, 9].into_iter().for_each(|id| extensions.add((0..5).collect(), id, extension("a")));
        extensions.take_unsent();
        assert!(extensions.voted(extended(0, 0, 2)).is_none());
        assert!(extensions.voted(extended(1, 0, 2)).is_none());
        let decided = counted(extensions.voted(extended(2, 0, 2)));
        assert_eq!(decided, [(7, vec![0, 1, 2]), (9, vec![0, 1, 2])]);
        assert!(extensions.voted(extended(3, 0, 2)).is_none());
        assert_eq!(counted(extensions.voted(extended(4, 0, 2))), [(7, vec![3, 4]), (9, vec![3, 4])]);
        assert!(extensions.sent.is_empty());
        assert!(extensions.voted(extended(4, 0, 2)).is_none(), "no such group");
    }

    #[test]
    fn a_vote_that_does_not_agree_is_counted_at_once_with_those_before_it() {
        let mut extensions = Extensions::new(2);
        [7, 8, 9].into_iter().for_each(|id| extensions.add(vec![0, 1, 2], id, extension("a")));
        extensions.take_unsent();
        assert!(extensions.voted(extended(0, 0, 3)).is_none());
        assert!(extensions.voted(extended(1, 0, 1)).is_none());
        let refused = vote(1, 1, 1, Answer::Failed(Cause::TimedOut));
        assert_eq!(counted(extensions.voted(refused)), [(7, vec![0, 1]), (8, vec![0, 1]), (9, vec![0])]);
        assert!(extensions.voted(extended(1, 2, 1)).is_none());
        assert_eq!(
            counted(extensions.voted(extended(2, 0, 3))),
            [(7, vec![2]), (8, vec![2]), (9, vec![1, 2])]
        );
        assert!(extensions.sent.is_empty());
    }

    #[test]
    fn a_node_that_is_asked_alone_decides_alone() {
        let mut extensions = Extensions::new(2);
        extensions.add(vec![2], 5, extension("a"));
        extensions.take_unsent();
        assert_eq!(counted(extensions.voted(extended(2, 0, 1))), [(5, vec![2])]);
    }
}
