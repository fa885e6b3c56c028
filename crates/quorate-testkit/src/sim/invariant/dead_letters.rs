use super::{Event, Invariant, MAJORITY};
use crate::sim::{AttemptStep, AttemptStepKind, Excuse, is_limited};
use quorate::node::{Reply, Request, Resource};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// Requires that each message which is given up is handed over, and stays given up:
///
/// * A server records a dead letter only after the dead-letter hook has handled the message under the same claim. The
///   record has the hook's result.
/// * While a majority of the servers stores the record, the hook does not run again, and no attempt begins.
/// * If a worker learns that a dead letter is recorded, the result that it receives is one that the hook returned for
///   this message.
///
/// A hook that failed, or whose worker crashed, runs again. A record on a bare majority need not survive the loss of one
/// of its servers. A reset removes the record. A claim that had ended before its worker saw it is not judged. That every message is handed over, completed or reset in the fault-free
/// phase is checked by the invariant `liveness`: the broker delivers a message until then.
#[derive(Debug, Default)]
pub(super) struct DeadLetters {
    /// For each message, the results that the hook returned, with the token of each claim.
    handed_over: BTreeMap<Resource, BTreeSet<(u64, Arc<str>)>>,
    /// For each message, the servers that store its dead-letter record.
    dead: BTreeMap<Resource, BTreeSet<String>>,
    /// As `dead`, with the servers that have forgotten the record.
    was_dead: BTreeMap<Resource, BTreeSet<String>>,
    judged: u64,
}

impl Invariant for DeadLetters {
    fn name(&self) -> &'static str {
        "dead-letters"
    }

    fn judged(&self) -> Vec<(&'static str, u64)> {
        vec![("dead letter judged", self.judged)]
    }

    fn see(&mut self, _now: Duration, event: &Event<'_>) -> Result<(), String> {
        match event {
            Event::Forgot { node } => self.dead.values_mut().for_each(|dead| {
                dead.remove(*node);
            }),
            Event::Ran {
                node,
                request: Request::Complete { resource, record, .. },
                reply: Reply::Completed,
            } if is_limited(resource) => {
                let dead = self.dead.entry(resource.clone()).or_default();
                let was_dead = self.was_dead.entry(resource.clone()).or_default();
                if record.dead_lettered.is_none() {
                    dead.remove(*node);
                    was_dead.remove(*node);
                    return Ok(());
                }
                dead.insert((*node).to_owned());
                was_dead.insert((*node).to_owned());
                let entry = (record.token.get(), Arc::clone(&record.result));
                if !self.handed_over.get(resource).is_some_and(|taken| taken.contains(&entry)) {
                    return Err(format!(
                        "{node} records {resource} as given up with {:?}, and no hook has handled it",
                        record.result
                    ));
                }
            }
            Event::Ran {
                node,
                request: Request::ResetAttempts { resource, .. },
                reply: Reply::AttemptsReset,
            } => {
                for dead in [&mut self.dead, &mut self.was_dead] {
                    if let Some(dead) = dead.get_mut(resource) {
                        dead.remove(*node);
                    }
                }
            }
            Event::Attempt(step) => return self.step(step),
            _ => {}
        }
        Ok(())
    }
}

impl DeadLetters {
    fn step(&mut self, AttemptStep { worker, resource, kind }: &AttemptStep<'_>) -> Result<(), String> {
        let on = self.dead.get(*resource).map_or(0, BTreeSet::len);
        match kind {
            AttemptStepKind::GivenUp { valid, .. } | AttemptStepKind::Began { valid, .. } => {
                let was_on = self.was_dead.get(*resource).map_or(0, BTreeSet::len);
                Excuse::DeadLettersForgotten.excuses(*valid && on < MAJORITY && was_on >= MAJORITY);
                if on < MAJORITY || Excuse::DeadLettersEnded.excuses(!valid) {
                    return Ok(());
                }
                Err(format!("{worker} receives {resource}, which {on} servers store as given up"))
            }
            AttemptStepKind::HandedOver { token, note } => {
                let taken = self.handed_over.entry((*resource).clone()).or_default();
                taken.insert((*token, (*note).into()));
                Ok(())
            }
            AttemptStepKind::ToldDead { note: Some(note), .. } => {
                self.judged += 1;
                let mut taken = self.handed_over.get(*resource).into_iter().flatten();
                if taken.any(|(_, other)| **other == **note) {
                    return Ok(());
                }
                Err(format!("{worker} is informed that {resource} was handed over with {note:?}"))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::LIMITED_SET;
    use quorate::node::{DoneRecord, FencingToken, Owner};

    const HOUR: Duration = Duration::from_secs(3600);

    fn resource() -> Resource {
        Resource::claim(LIMITED_SET, "m").unwrap()
    }

    fn record(letters: &mut DeadLetters, node: &str, note: &str) -> Result<(), String> {
        let record = DoneRecord {
            token: FencingToken::new(7),
            result: note.into(),
            dead_lettered: Some(3),
            ..DoneRecord::default()
        };
        let request =
            Request::Complete { resource: resource(), owner: Owner::from_node("w"), record, retention: HOUR };
        letters.see(Duration::ZERO, &Event::Ran { node, request: &request, reply: &Reply::Completed })
    }

    fn step(letters: &mut DeadLetters, kind: AttemptStepKind<'_>) -> Result<(), String> {
        let resource = resource();
        letters.see(Duration::ZERO, &Event::Attempt(&AttemptStep { worker: "w", resource: &resource, kind }))
    }

    #[test]
    fn a_dead_letter_is_recorded_after_the_hook_has_it_and_then_once() {
        let mut letters = DeadLetters::default();
        assert!(record(&mut letters, "n0", "note").is_err());
        step(&mut letters, AttemptStepKind::HandedOver { token: 7, note: "note" }).unwrap();
        for node in ["n0", "n1"] {
            record(&mut letters, node, "note").unwrap();
        }
        assert!(
            step(&mut letters, AttemptStepKind::GivenUp { attempts: 3, valid: true }).is_ok(),
            "a minority"
        );
        record(&mut letters, "n2", "note").unwrap();
        let began = AttemptStepKind::Began { attempt: 1, payload: "p", valid: true };
        assert!(step(&mut letters, AttemptStepKind::GivenUp { attempts: 3, valid: true }).is_err());
        assert!(step(&mut letters, began).is_err());
        letters.see(Duration::ZERO, &Event::Forgot { node: "n2" }).unwrap();
        assert!(step(&mut letters, began).is_ok(), "a bare majority lost one");
        assert!(record(&mut letters, "n3", "another").is_err());
    }

    #[test]
    fn no_worker_receives_a_note_that_no_hook_returned() {
        let mut letters = DeadLetters::default();
        step(&mut letters, AttemptStepKind::HandedOver { token: 7, note: "note" }).unwrap();
        let told = |note| AttemptStepKind::ToldDead { attempts: 3, note: Some(note) };
        assert!(step(&mut letters, told("note")).is_ok());
        assert!(step(&mut letters, told("another")).is_err());
    }

    #[test]
    fn a_reset_removes_the_record() {
        let mut letters = DeadLetters::default();
        step(&mut letters, AttemptStepKind::HandedOver { token: 7, note: "note" }).unwrap();
        for node in ["n0", "n1", "n2"] {
            record(&mut letters, node, "note").unwrap();
        }
        let request = Request::ResetAttempts { resource: resource(), keep: HOUR };
        let reset = Event::Ran { node: "n2", request: &request, reply: &Reply::AttemptsReset };
        letters.see(Duration::ZERO, &reset).unwrap();
        assert!(step(&mut letters, AttemptStepKind::GivenUp { attempts: 3, valid: true }).is_ok());
    }
}
