//! The extensions of leases, which are sent in groups: one message to a node has the extensions of many leases, and its
//! vote is for many of them.

use crate::{driver::RequestList, node::Request, vote::Vote};
use std::{collections::BTreeMap, mem, sync::Arc};

/// The maximum number of leases in one group. A server extends as many in one script call.
const GROUP_MAX: usize = 64;

/// The groups of extensions that have not been sent, or whose nodes have not all answered.
#[derive(Debug, Default)]
pub(super) struct Extensions {
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
    /// The number of answers that are missing. A vote may have several.
    unanswered: u64,
}

impl Extensions {
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
        let (ticket, count) = (self.next, leases.len() as u64);
        self.next += count;
        let group = Group { leases: leases.into(), unanswered: count * nodes.len() as u64 };
        self.sent.insert(ticket, group);
        Message { nodes, requests: requests.into(), ticket }
    }

    /// Notes that a node has answered. Returns the ids of the leases that the vote concerns.
    pub(super) fn voted(&mut self, vote: &Vote) -> impl Iterator<Item = u64> + use<> {
        let group = self.sent.range_mut(..=vote.ticket).next_back();
        let (leases, at) = group.map_or((Arc::default(), 0), |(first, group)| {
            group.unanswered = group.unanswered.saturating_sub(vote.requests);
            (Arc::clone(&group.leases), vote.ticket - first)
        });
        if let Some((&first, Group { unanswered: 0, .. })) = self.sent.range(..=vote.ticket).next_back() {
            self.sent.remove(&first);
        }
        let ids = at..(at + vote.requests).min(leases.len() as u64);
        ids.filter_map(move |at| leases.get(usize::try_from(at).ok()?).copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        node::{FencingToken, Owner, Reply, Resource},
        trust::NodeEpoch,
        vote::Answer,
    };
    use std::time::Duration;

    fn extension(name: &str) -> Request {
        let (ttl, keep) = (Duration::from_secs(1), Duration::from_secs(1));
        let (resource, owner) = (Resource::lock(name).unwrap(), Owner::sign("w", 1, 1));
        Request::Extend { resource, owner, ttl, token: FencingToken::new(1), keep }
    }

    fn voted(extensions: &mut Extensions, node: usize, ticket: u64, requests: u64) -> Vec<u64> {
        let (sent, memory, answer) = (None, NodeEpoch::default(), Answer::Reply(Reply::Extended));
        extensions.voted(&Vote { node, ticket, requests, sent, memory, answer }).collect()
    }

    #[test]
    fn leases_that_the_same_nodes_extend_share_a_message() {
        let mut extensions = Extensions::default();
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
    fn a_vote_is_for_some_leases_of_its_group_and_a_group_ends_with_its_last_answer() {
        let mut extensions = Extensions::default();
        [7, 8, 9].into_iter().for_each(|id| extensions.add(vec![0, 1], id, extension("a")));
        extensions.add(vec![1], 5, extension("b"));
        extensions.take_unsent();
        assert_eq!(voted(&mut extensions, 0, 0, 3), [7, 8, 9]);
        assert_eq!(voted(&mut extensions, 1, 0, 1), [7]);
        assert_eq!(voted(&mut extensions, 1, 3, 1), [5], "another group");
        assert_eq!(extensions.sent.len(), 1);
        assert_eq!(voted(&mut extensions, 1, 1, 2), [8, 9]);
        assert!(extensions.sent.is_empty());
        assert_eq!(voted(&mut extensions, 1, 1, 2), [0_u64; 0], "no such group");
    }
}
