use super::{
    Event, Invariant, MAJORITY,
    attempt_log::{Attempt, AttemptLog},
};
use crate::sim::{AttemptStep, AttemptStepKind, Excuse};
use quorate::node::Resource;
use std::{collections::BTreeSet, time::Duration};

/// Requires that an id is used with one payload:
///
/// * An attempt does not begin while a majority of the servers remembers an attempt that has begun with another
///   fingerprint.
/// * If the library refuses a message because of another fingerprint, a majority has counted attempts with that
///   fingerprint, or a server has it in a done record. The fingerprint differs from the given one.
///
/// The first condition does not judge an attempt whose claim had ended before the attempt began. A server that forgot,
/// or was reset, no longer counts.
#[derive(Debug, Default)]
pub(super) struct Payloads {
    log: AttemptLog,
    refused: u64,
}

impl Invariant for Payloads {
    fn name(&self) -> &'static str {
        "payloads"
    }

    fn judged(&self) -> Vec<(&'static str, u64)> {
        vec![("other payload judged", self.refused)]
    }

    fn see(&mut self, now: Duration, event: &Event<'_>) -> Result<(), String> {
        self.log.see(now, event);
        let Event::Attempt(AttemptStep { worker, resource, kind }) = event else { return Ok(()) };
        match kind {
            AttemptStepKind::Began { attempt, payload, valid } => {
                self.begin(worker, resource, *attempt, payload, *valid)
            }
            AttemptStepKind::OtherPayload { given, stored } => {
                self.refused += 1;
                let message = self.log.message(resource);
                let with =
                    || message.attempts.iter().filter(|attempt| attempt.payload.as_deref() == Some(*stored));
                let counted = with().any(|attempt| attempt.ever.len() >= MAJORITY) || {
                    let together: BTreeSet<&String> = with().flat_map(|attempt| &attempt.ever).collect();
                    Excuse::PayloadsLeft.excuses(together.len() >= MAJORITY)
                };
                if given == stored || !(counted || message.recorded.contains(*stored)) {
                    return Err(format!(
                        "{worker} is refused {resource} with {given} because of {stored}, which no majority has counted"
                    ));
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

impl Payloads {
    fn begin(
        &mut self,
        worker: &str,
        resource: &Resource,
        number: u32,
        payload: &str,
        valid: bool,
    ) -> Result<(), String> {
        let message = self.log.message(resource);
        let mut before = message.attempts.iter();
        let is_other = |attempt: &Attempt| attempt.began && attempt.payload.as_deref() != Some(payload);
        let other = before.find(|attempt| is_other(attempt) && attempt.remembered.len() >= MAJORITY);
        let forgotten = |attempt: &Attempt| is_other(attempt) && attempt.ever.len() >= MAJORITY;
        let is_forgotten = valid && other.is_none() && message.attempts.iter().any(forgotten);
        Excuse::PayloadsForgotten.excuses(is_forgotten);
        let other = other.map(|attempt| attempt.payload.as_deref().unwrap_or_default().to_owned());
        if let Some(attempt) = message.counted(worker, number) {
            attempt.began = true;
        }
        match other.filter(|_| !Excuse::PayloadsEnded.excuses(!valid)) {
            Some(other) => Err(format!(
                "{worker} begins attempt {number} on {resource} with {payload}, after an attempt with {other}"
            )),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::LIMITED_SET;
    use quorate::node::{Owner, Reply, Request};

    fn resource() -> Resource {
        Resource::claim(LIMITED_SET, "m").unwrap()
    }

    fn count(payloads: &mut Payloads, nodes: &[&str], number: u64, payload: &str) {
        let request = Request::Count {
            resource: resource(),
            owner: Owner::sign("w", number, 0),
            attempts: number as u32,
            payload: Some(payload.into()),
            withdraw: false,
            keep: Duration::from_secs(3600),
        };
        for node in nodes {
            let ran = Event::Ran { node, request: &request, reply: &Reply::Counted };
            payloads.see(Duration::ZERO, &ran).unwrap();
        }
    }

    fn step(payloads: &mut Payloads, kind: AttemptStepKind<'_>) -> Result<(), String> {
        let resource = resource();
        payloads.see(Duration::ZERO, &Event::Attempt(&AttemptStep { worker: "w", resource: &resource, kind }))
    }

    #[test]
    fn an_attempt_with_another_payload_does_not_begin() {
        let began = |attempt, payload| AttemptStepKind::Began { attempt, payload, valid: true };
        for forgot in [false, true] {
            let mut payloads = Payloads::default();
            count(&mut payloads, &["n0", "n1", "n2"], 1, "p");
            step(&mut payloads, began(1, "p")).unwrap();
            if forgot {
                payloads.see(Duration::ZERO, &Event::Forgot { node: "n2" }).unwrap();
            }
            count(&mut payloads, &["n2", "n3", "n4"], 2, "q");
            assert_eq!(step(&mut payloads, began(2, "q")).is_ok(), forgot);
        }
    }

    #[test]
    fn a_refusal_needs_a_majority_with_the_other_payload() {
        let mut payloads = Payloads::default();
        let refused = |given, stored| AttemptStepKind::OtherPayload { given, stored };
        count(&mut payloads, &["n0", "n1"], 1, "p");
        assert!(step(&mut payloads, refused("q", "p")).is_err());
        count(&mut payloads, &["n2"], 1, "p");
        assert!(step(&mut payloads, refused("q", "p")).is_ok());
        assert!(step(&mut payloads, refused("p", "p")).is_err());
    }

    #[test]
    fn attempts_that_leave_one_payload_at_a_majority_together_excuse_a_refusal() {
        let mut payloads = Payloads::default();
        let refused = |given, stored| AttemptStepKind::OtherPayload { given, stored };
        count(&mut payloads, &["n0", "n1"], 1, "p");
        count(&mut payloads, &["n2"], 2, "q");
        assert!(step(&mut payloads, refused("r", "p")).is_err(), "the third server has another payload");
        count(&mut payloads, &["n1", "n2"], 3, "p");
        assert!(step(&mut payloads, refused("r", "p")).is_ok());
        assert!(step(&mut payloads, refused("r", "q")).is_err());
    }
}
