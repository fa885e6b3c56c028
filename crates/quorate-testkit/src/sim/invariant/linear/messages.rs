use super::{
    Event, Moments,
    grants::{ChangeKind, Grants},
    judge,
};
use crate::{
    history::{Findings, History, Message, MessageCall, Moment, Operation},
    sim::{
        Excuse,
        invariant::{Invariant, MAJORITY},
    },
};
use quorate::node::{DoneRecord, Reply, Request, Resource, ResourceKind};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// Requires that the claims of each message are linearizable as a [`Message`]. A completion begins when the first
/// server stores its done record.
#[derive(Debug)]
pub(in super::super) struct MessageHistory {
    moments: Moments,
    grants: Grants,
    history: History<Message>,
    messages: BTreeMap<Resource, Completions>,
    findings: Findings,
}

/// The completions of one message.
#[derive(Debug, Default)]
struct Completions {
    /// For each token, the worker and the moment at which the first server stored the done record. A completion is
    /// removed when its worker learns the result.
    unanswered: BTreeMap<u64, (Arc<str>, Moment)>,
    /// The servers that store a done record and have not forgotten it.
    on: BTreeSet<String>,
    /// The largest token of a claim.
    newest: u64,
    /// For each server, the largest token of a claim or of its end that it has counted and not forgotten.
    counted: BTreeMap<String, u64>,
}

impl Completions {
    fn count(&mut self, node: &str, token: u64) {
        let counted = self.counted.entry(node.to_owned()).or_default();
        *counted = (*counted).max(token);
    }

    /// Removes what `node` has counted. Returns whether no majority knows the newest claim since then.
    fn forget_claims(&mut self, node: &str) -> bool {
        let knows =
            |counted: &BTreeMap<String, u64>| counted.values().filter(|token| **token >= self.newest).count();
        let before = knows(&self.counted);
        self.counted.remove(node);
        before >= MAJORITY && knows(&self.counted) < MAJORITY
    }
}

impl Default for MessageHistory {
    fn default() -> Self {
        Self {
            moments: Moments::default(),
            grants: Grants::of(&[ResourceKind::Claim]),
            history: History::default(),
            messages: BTreeMap::new(),
            findings: Findings::default(),
        }
    }
}

impl Invariant for MessageHistory {
    fn name(&self) -> &'static str {
        "message history"
    }

    fn judged(&self) -> Vec<(&'static str, u64)> {
        super::judged!(self.findings, "messages")
    }

    fn see(&mut self, now: Duration, event: &Event<'_>) -> Result<(), String> {
        let at = self.moments.next(now);
        self.follow_claims(at, event);
        match event {
            Event::Ran {
                node,
                request: Request::Complete { resource, owner, record, .. },
                reply: Reply::Completed,
            } => self.stored(node, resource, owner.worker(), record, at),
            Event::Ran {
                node,
                request: Request::Acquire { resource, .. },
                reply: Reply::Granted { counter, .. },
            } => self.counted(node, resource, counter.get()),
            Event::Ran { node, request: Request::Raise { resource, to, .. }, reply: Reply::Raised } => {
                self.counted(node, resource, to.get());
            }
            Event::Ran { node, request: Request::Extend { resource, token, .. }, reply: Reply::Extended } => {
                self.counted(node, resource, token.get());
            }
            Event::Granted(belief) if belief.resource.kind() == ResourceKind::Claim => {
                let message = self.messages.entry(belief.resource.clone()).or_default();
                message.newest = message.newest.max(belief.token);
            }
            Event::Completed { worker, resource, token } => {
                let begun = self.messages.get_mut(*resource).and_then(|of| of.unanswered.remove(token));
                let begun = begun.map_or(at, |(_, begun)| begun);
                let call = MessageCall::Completed { token: *token };
                self.push(resource, Operation::during(&(*worker).into(), call, begun, at));
            }
            Event::ToldDone { worker, resource, .. } => {
                let worker: Arc<str> = (*worker).into();
                let begun = self.grants.ends_without_grant(resource, &worker).unwrap_or(at);
                self.push(resource, Operation::during(&worker, MessageCall::FoundDone, begun, at));
            }
            Event::Forgot { node } => self.forgot(node, at),
            Event::Over => {
                self.close();
                return judge(&self.history, &mut self.findings);
            }
            _ => {}
        }
        Ok(())
    }
}

impl MessageHistory {
    fn follow_claims(&mut self, at: Moment, event: &Event<'_>) {
        for change in self.grants.see(at, event) {
            let token = change.token;
            let call = match change.kind {
                ChangeKind::Begins => MessageCall::Claimed { token },
                ChangeKind::GivenUp | ChangeKind::Expires => MessageCall::Ended { token },
            };
            let operation = Operation::during(&change.worker, call, change.from, change.to);
            self.history.push(&change.name, operation);
        }
    }

    fn stored(&mut self, node: &str, resource: &Resource, worker: &str, record: &DoneRecord, at: Moment) {
        let message = self.messages.entry(resource.clone()).or_default();
        message.unanswered.entry(record.token.get()).or_insert_with(|| (worker.into(), at));
        message.on.insert(node.to_owned());
        message.count(node, record.token.get());
    }

    fn counted(&mut self, node: &str, resource: &Resource, token: u64) {
        if resource.kind() == ResourceKind::Claim {
            self.messages.entry(resource.clone()).or_default().count(node, token);
        }
    }

    fn forgot(&mut self, node: &str, at: Moment) {
        let mut forgotten = Vec::new();
        for (resource, message) in &mut self.messages {
            if message.on.remove(node) && message.on.len() < MAJORITY {
                forgotten.push((resource.clone(), MessageCall::Forgotten));
            }
            if message.forget_claims(node) {
                forgotten.push((resource.clone(), MessageCall::ClaimForgotten));
            }
        }
        let node: Arc<str> = node.into();
        for (resource, call) in forgotten {
            Excuse::HistoryForgotten.count();
            self.push(&resource, Operation::open(&node, call, at));
        }
    }

    /// Adds the completions whose result no worker has learned.
    fn close(&mut self) {
        for (resource, message) in std::mem::take(&mut self.messages) {
            for (token, (worker, begun)) in message.unanswered {
                let call = MessageCall::CompleteUnanswered { token };
                self.push(&resource, Operation::open(&worker, call, begun));
            }
        }
    }

    fn push(&mut self, resource: &Resource, operation: Operation<MessageCall>) {
        self.history.push(&resource.to_string().into(), operation);
    }
}

#[cfg(test)]
mod tests {
    use super::{super::super::belief, *};
    use crate::sim::Belief;
    use quorate::node::{FencingToken, Owner};

    fn resource() -> Resource {
        Resource::claim("s", "m").unwrap()
    }

    fn claim(number: u64, worker: &str) -> Belief {
        Belief { resource: resource(), ..belief(number, worker, number, true) }
    }

    struct Story(MessageHistory, u64);

    impl Story {
        fn see(&mut self, event: &Event<'_>) -> Result<(), String> {
            self.1 += 1;
            self.0.see(Duration::from_millis(self.1), event)
        }

        fn claimed(&mut self, number: u64, worker: &str) {
            let belief = claim(number, worker);
            self.see(&Event::Granted(&belief)).unwrap();
            self.see(&Event::Looked(&[belief])).unwrap();
            self.see(&Event::Looked(&[])).unwrap();
        }

        fn granted(&mut self, node: &str, token: u64) {
            let (resource, owner, token) = (resource(), Owner::from_node("b:1"), FencingToken::new(token));
            let extend = Request::Extend {
                resource,
                owner,
                ttl: Duration::from_secs(1),
                token,
                keep: Duration::from_secs(9),
            };
            self.see(&Event::Ran { node, request: &extend, reply: &Reply::Extended }).unwrap();
        }

        fn stored(&mut self, node: &str, token: u64) {
            let record = DoneRecord { token: FencingToken::new(token), ..DoneRecord::default() };
            let (resource, owner) = (resource(), Owner::from_node("a:1"));
            let request = Request::Complete { resource, owner, record, retention: Duration::from_secs(9) };
            self.see(&Event::Ran { node, request: &request, reply: &Reply::Completed }).unwrap();
        }
    }

    #[test]
    fn a_message_that_is_claimed_after_it_was_done_is_found() {
        let run = |nodes: &[&str], learns: bool, forgets: bool| {
            let mut story = Story(MessageHistory::default(), 0);
            story.claimed(5, "a");
            nodes.iter().for_each(|node| story.stored(node, 5));
            if learns {
                let completed = Event::Completed { worker: "a", resource: &resource(), token: 5 };
                story.see(&completed).unwrap();
            }
            if forgets {
                story.see(&Event::Forgot { node: nodes[0] }).unwrap();
            }
            story.claimed(7, "b");
            story.see(&Event::Over)
        };
        let three = ["n0", "n1", "n2"];
        assert!(run(&three, true, false).is_err());
        assert_eq!(run(&three, true, true), Ok(()), "a bare majority lost one");
        assert_eq!(run(&three[..2], false, false), Ok(()), "no worker learned the result");
        assert!(run(&["n0", "n1", "n2", "n3"], true, true).is_err(), "three still store it");
    }

    #[test]
    fn an_earlier_claim_completes_late_only_after_a_majority_lost_the_later_one() {
        let run = |forget: &[&str]| {
            let mut story = Story(MessageHistory::default(), 0);
            story.claimed(5, "a");
            for node in ["n0", "n1", "n2", "n3"] {
                story.granted(node, 7);
            }
            story.claimed(7, "b");
            for &node in forget {
                story.see(&Event::Forgot { node }).unwrap();
            }
            ["n0", "n1", "n2"].iter().for_each(|node| story.stored(node, 5));
            story.see(&Event::Completed { worker: "a", resource: &resource(), token: 5 }).unwrap();
            story.see(&Event::Over)
        };
        assert!(run(&[]).is_err());
        assert!(run(&["n0", "n4"]).is_err(), "three still know the later claim");
        assert_eq!(run(&["n0", "n1"]), Ok(()));
    }

    #[test]
    fn a_completion_whose_result_is_unknown_may_be_found_done() {
        let run = |stored: bool| {
            let mut story = Story(MessageHistory::default(), 0);
            story.claimed(5, "a");
            if stored {
                story.stored("n0", 5);
            }
            let (worker, resource) = ("b", &resource());
            story.see(&Event::ToldDone { worker, resource, result: "" }).unwrap();
            story.see(&Event::Over)
        };
        assert_eq!(run(true), Ok(()));
        assert!(run(false).is_err());
    }
}
