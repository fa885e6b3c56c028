use super::{Event, Invariant, MAJORITY};
use crate::sim::Excuse;
use quorate::node::{Reply, Request, Resource};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// Requires that a message which is done stays done:
///
/// * While a majority of the servers stores its done record, no worker receives the message. No server that has
///   the record grants the message's claim.
/// * On a server, a record of a lower token never replaces one of a higher token.
/// * If a worker learns that it completed the message, a majority has stored the done record.
/// * If a worker learns that the message is already done, the result that it receives is one that a worker had
///   recorded.
///
/// That no message stays claimed is checked by the invariants `leftovers` and `liveness`.
///
/// The guarantee holds within the retention, which is longer than any run. There are two exceptions. A *done*
/// record on a bare majority need not survive the loss of one of its nodes. A server that forgot therefore no
/// longer counts, even if it comes back with a snapshot that has the record. A server whose dead-letter record was
/// reset no longer counts either. The second exception is a worker
/// whose boot clock stood still: it cannot know that its grant has ended.
#[derive(Debug, Default)]
pub(super) struct Claims {
    /// For each message, the servers that store it as done, with the token of each record.
    done: BTreeMap<Resource, BTreeMap<String, u64>>,
    /// For each message and token, the servers that ever recorded the message as done under this token.
    recorded: BTreeMap<(Resource, u64), BTreeSet<String>>,
    results: BTreeMap<Resource, BTreeSet<Arc<str>>>,
}

impl Invariant for Claims {
    fn name(&self) -> &'static str {
        "claims"
    }

    fn see(&mut self, _now: Duration, event: &Event<'_>) -> Result<(), String> {
        match event {
            Event::Forgot { node } => {
                for done in self.done.values_mut() {
                    done.remove(*node);
                }
            }
            Event::Ran { node, request: Request::Complete { resource, record, .. }, reply } => {
                if matches!(reply, Reply::Completed) {
                    return self.record(node, resource, record.token.get(), &record.result);
                }
            }
            Event::Ran {
                node,
                request: Request::ResetAttempts { resource, .. },
                reply: Reply::AttemptsReset,
            } => {
                if let Some(done) = self.done.get_mut(resource) {
                    done.remove(*node);
                }
            }
            Event::Ran { node, request: Request::Acquire { resource, .. }, reply: Reply::Granted { .. } }
                if self.done.get(resource).is_some_and(|done| done.contains_key(*node)) =>
            {
                return Err(format!("{node} grants {resource}, which is done there"));
            }
            Event::Granted(belief) => {
                let on = self.done.get(&belief.resource).map_or(0, BTreeMap::len);
                if on < MAJORITY && belief.valid && !belief.clock_stood {
                    Excuse::ClaimsForgotten.excuses(self.was_done(&belief.resource));
                }
                if on >= MAJORITY
                    && !Excuse::ClaimsEnded.excuses(!belief.valid)
                    && !Excuse::ClaimsClock.excuses(belief.clock_stood)
                {
                    let (worker, token) = (&belief.worker, belief.token);
                    return Err(format!(
                        "{worker} is given {} under {token}, which is done on {on} servers",
                        belief.resource
                    ));
                }
            }
            Event::Completed { worker, resource, token } => {
                let recorded = self.recorded.get(&((*resource).clone(), *token));
                let on = recorded.map_or(0, BTreeSet::len);
                if on < MAJORITY {
                    return Err(format!("{worker} completed {resource} under {token} on {on} servers"));
                }
            }
            Event::ToldDone { worker, resource, result }
                if !self.results.get(resource).is_some_and(|results| results.contains(*result)) =>
            {
                return Err(format!("{worker} receives the result {result:?} of {resource}"));
            }
            _ => {}
        }
        Ok(())
    }
}

impl Claims {
    /// Returns `true` if a majority of the servers has ever stored the message as done.
    fn was_done(&self, resource: &Resource) -> bool {
        let tokens = (resource.clone(), 0)..=(resource.clone(), u64::MAX);
        let on = self.recorded.range(tokens).flat_map(|(_, on)| on);
        on.collect::<BTreeSet<_>>().len() >= MAJORITY
    }

    fn record(
        &mut self,
        node: &str,
        resource: &Resource,
        token: u64,
        result: &Arc<str>,
    ) -> Result<(), String> {
        let done = self.done.entry(resource.clone()).or_default();
        let stood = done.insert(node.to_owned(), token);
        self.recorded.entry((resource.clone(), token)).or_default().insert(node.to_owned());
        self.results.entry(resource.clone()).or_default().insert(Arc::clone(result));
        match stood.filter(|stood| *stood > token) {
            Some(stood) => {
                Err(format!("{node} replaces the done record of {resource} under {stood} by {token}'s"))
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::belief, *};
    use crate::sim::Belief;
    use quorate::node::{DoneRecord, FencingToken, Owner};

    const HOUR: Duration = Duration::from_secs(3600);

    fn resource() -> Resource {
        Resource::claim("s", "m").unwrap()
    }

    fn complete(claims: &mut Claims, node: &str, token: u64, result: &str) -> Result<(), String> {
        let request = Request::Complete {
            resource: resource(),
            owner: Owner::from_node("a"),
            record: DoneRecord {
                token: FencingToken::new(token),
                result: result.into(),
                ..DoneRecord::default()
            },
            retention: HOUR,
        };
        claims.see(Duration::ZERO, &Event::Ran { node, request: &request, reply: &Reply::Completed })
    }

    fn given(claims: &mut Claims, valid: bool) -> Result<(), String> {
        let belief = Belief { resource: resource(), ..belief(9, "b", 9, valid) };
        claims.see(Duration::ZERO, &Event::Granted(&belief))
    }

    #[test]
    fn a_message_done_on_a_majority_is_granted_to_no_worker() {
        let mut claims = Claims::default();
        for node in ["n0", "n1"] {
            complete(&mut claims, node, 5, "x").unwrap();
        }
        assert!(given(&mut claims, true).is_ok(), "a minority is not enough");
        complete(&mut claims, "n2", 5, "x").unwrap();
        assert!(given(&mut claims, false).is_ok(), "a grant that had ended before it was seen");
        let frozen = Belief { resource: resource(), clock_stood: true, ..belief(9, "b", 9, true) };
        assert!(claims.see(Duration::ZERO, &Event::Granted(&frozen)).is_ok(), "its clock stood (seed 1220)");
        assert!(given(&mut claims, true).is_err());
        claims.see(Duration::ZERO, &Event::Forgot { node: "n0" }).unwrap();
        assert!(given(&mut claims, true).is_ok(), "a bare majority lost one");
        complete(&mut claims, "n0", 5, "x").unwrap();
        assert!(given(&mut claims, true).is_err());
        let reset = Request::ResetAttempts { resource: resource(), keep: HOUR };
        let reset = Event::Ran { node: "n0", request: &reset, reply: &Reply::AttemptsReset };
        claims.see(Duration::ZERO, &reset).unwrap();
        assert!(given(&mut claims, true).is_ok(), "a bare majority, one of which was reset");
        let completed = Event::Completed { worker: "a", resource: &resource(), token: 5 };
        assert!(
            claims.see(Duration::ZERO, &completed).is_ok(),
            "it was recorded when the worker learnt of it"
        );
    }

    #[test]
    fn a_server_keeps_its_done_record() {
        let mut claims = Claims::default();
        complete(&mut claims, "n0", 5, "x").unwrap();
        complete(&mut claims, "n0", 7, "y").unwrap();
        assert!(complete(&mut claims, "n0", 6, "z").is_err(), "the higher token's stands");
        let request = Request::Acquire {
            resource: resource(),
            owner: Owner::from_node("b"),
            ttl: HOUR,
            propose: FencingToken::new(1),
            tolerance: HOUR,
            keep: HOUR,
            ticket: None,
        };
        let reply = Reply::Granted { counter: FencingToken::new(8), begun: None };
        let mut grants =
            |node| claims.see(Duration::ZERO, &Event::Ran { node, request: &request, reply: &reply });
        assert!(grants("n1").is_ok());
        assert!(grants("n0").is_err());
    }

    #[test]
    fn no_worker_receives_a_false_result() {
        let mut claims = Claims::default();
        for node in ["n0", "n1"] {
            complete(&mut claims, node, 5, "x").unwrap();
        }
        let resource = resource();
        let mut see = |event: Event<'_>| claims.see(Duration::ZERO, &event);
        assert!(see(Event::Completed { worker: "a", resource: &resource, token: 5 }).is_err(), "two of five");
        assert!(see(Event::ToldDone { worker: "b", resource: &resource, result: "x" }).is_ok());
        assert!(see(Event::ToldDone { worker: "b", resource: &resource, result: "y" }).is_err());
    }
}
