use super::{
    Event, Invariant, MAJORITY,
    attempt_log::{Attempt, AttemptLog},
};
use crate::sim::{ATTEMPT_LIMIT, AttemptStep, AttemptStepKind, Excuse};
use quorate::node::{Request, Resource};
use std::time::Duration;

/// Requires that a message with an attempt limit is given up after exactly as many attempts as the limit says:
///
/// * An attempt begins only after a majority of the servers has counted it. Its number is at most the limit.
/// * Two attempts with one number do not both begin, while a majority remembers each of them. With the rule above, no
///   more attempts begin than the limit says.
/// * When a message is given up, its number of attempts is at least the limit, and at least so many attempts have
///   begun, or have left a count behind.
/// * If a claim is cancelled before its handler starts, the servers withdraw its count.
///
/// `claim::attempts` documents the exceptions. A server that forgot, or was reset, has lost its counts, so more
/// attempts may begin. A server that comes back with a snapshot may have counts that were withdrawn or reset. After
/// such a return, every attempt on the message counts until the next reset. An attempt that did not begin may leave its
/// count behind; the withdrawal is required only if the claim was made long after the faults had ended.
///
/// That a message which is given up is not handled is part of the first two conditions, and of the invariant `claims`.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    log: AttemptLog,
    began: u64,
    given_up: u64,
    cancelled: u64,
}

impl Invariant for Attempts {
    fn name(&self) -> &'static str {
        "attempts"
    }

    fn judged(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("attempt judged", self.began),
            ("given-up message judged", self.given_up),
            ("cancelled attempt judged", self.cancelled),
        ]
    }

    fn see(&mut self, now: Duration, event: &Event<'_>) -> Result<(), String> {
        self.log.see(now, event);
        match event {
            Event::Ran { node, request: Request::Release { resource, owner }, .. } => {
                match self.log.released(node, resource, owner) {
                    Some(attempt) if attempt.is_withdrawn => Err(format!(
                        "{node} frees {resource} and keeps the count {} of an attempt that was cancelled",
                        attempt.number
                    )),
                    Some(attempt) => {
                        Excuse::AttemptsUnsteady.excuses(attempt.may_stay);
                        Ok(())
                    }
                    None => Ok(()),
                }
            }
            Event::Attempt(AttemptStep { worker, resource, kind }) => match kind {
                AttemptStepKind::Began { attempt, .. } => self.begin(worker, resource, *attempt),
                AttemptStepKind::Cancelled { attempt, steady: true } => {
                    self.cancelled += 1;
                    if let Some(attempt) = self.log.message(resource).counted(worker, *attempt) {
                        attempt.is_withdrawn = true;
                    }
                    Ok(())
                }
                AttemptStepKind::Cancelled { attempt, steady: false } => {
                    if let Some(attempt) = self.log.message(resource).counted(worker, *attempt) {
                        attempt.may_stay = true;
                    }
                    Ok(())
                }
                AttemptStepKind::GivenUp { attempts, valid } => {
                    self.give_up(worker, resource, *attempts, *valid)
                }
                // By now the worker has released the claim, and another worker may have reset the message.
                AttemptStepKind::ToldDead { attempts, note: None } => {
                    self.give_up(worker, resource, *attempts, false)
                }
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }
}

impl Attempts {
    fn begin(&mut self, worker: &str, resource: &Resource, number: u32) -> Result<(), String> {
        self.began += 1;
        let message = self.log.message(resource);
        let on = message.counted(worker, number).map_or(0, |attempt| attempt.ever.len());
        if number > ATTEMPT_LIMIT {
            return Err(format!("{worker} begins attempt {number} on {resource}, of {ATTEMPT_LIMIT}"));
        }
        if on < MAJORITY {
            return Err(format!("{worker} begins attempt {number} on {resource}, counted on {on} servers"));
        }
        let began = |attempt: &&Attempt| attempt.number == number && attempt.began;
        if let Some(attempt) = message.counted(worker, number) {
            attempt.began = true;
            let remembered = attempt.remembered.len() >= MAJORITY;
            let is_remembered = |attempt: &&Attempt| attempt.remembered.len() >= MAJORITY;
            let same = message.attempts.iter().filter(began).filter(is_remembered).count();
            if remembered && same > 1 {
                return Err(format!("{worker} begins attempt {number} on {resource}, which began before"));
            }
            let ever = message.attempts.iter().filter(began).filter(|attempt| attempt.ever.len() >= MAJORITY);
            Excuse::AttemptsForgotten.excuses(ever.count() > 1);
        }
        Ok(())
    }

    /// Judges a message that is given up. If `holds` is false, the worker may hold the claim no longer, and then only
    /// the number of attempts is judged.
    fn give_up(
        &mut self,
        worker: &str,
        resource: &Resource,
        attempts: u32,
        holds: bool,
    ) -> Result<(), String> {
        if attempts < ATTEMPT_LIMIT {
            return Err(format!("{worker} gives {resource} up after {attempts} of {ATTEMPT_LIMIT} attempts"));
        }
        self.given_up += u64::from(holds);
        let message = self.log.message(resource);
        let is_left = |attempt: &&Attempt| {
            !attempt.is_reset && (attempt.began || attempt.seen || !attempt.counted.is_empty())
        };
        let count = |counts: &dyn Fn(&&Attempt) -> bool| message.attempts.iter().filter(counts).count();
        let (left, needed) = (count(&is_left), attempts as usize);
        let during_reset = message.attempts.iter().any(|attempt| !attempt.is_reset && attempt.during_reset);
        let found = if message.restored || during_reset { message.attempts.len() } else { left };
        if found >= needed && holds {
            let began = count(&|attempt| !attempt.is_reset && attempt.began);
            Excuse::AttemptsRestored.excuses(left < needed && message.restored);
            Excuse::AttemptsDuringReset.excuses(left < needed && !message.restored);
            Excuse::AttemptsLeft.excuses(left >= needed && began < needed);
        }
        if found < needed && !Excuse::AttemptsEnded.excuses(!holds) {
            return Err(format!(
                "{worker} gives {resource} up after {attempts} attempts, of which {found} count"
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
