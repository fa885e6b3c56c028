use super::*;
use crate::sim::LIMITED_SET;
use quorate::node::{AttemptCount, FencingToken, Owner, Reply};

const HOUR: Duration = Duration::from_secs(3600);
const NODES: [&str; 5] = ["n0", "n1", "n2", "n3", "n4"];

fn resource() -> Resource {
    Resource::claim(LIMITED_SET, "m").unwrap()
}

impl Attempts {
    /// Lets the servers with these indices count an attempt of `owner`, or withdraw its count.
    fn count(&mut self, nodes: &[usize], owner: &Owner, attempts: u32, withdraw: bool) {
        let (resource, payload) = (resource(), Some("p".into()));
        let request =
            Request::Count { resource, owner: owner.clone(), attempts, payload, withdraw, keep: HOUR };
        for node in nodes {
            let ran = Event::Ran { node: NODES[*node], request: &request, reply: &Reply::Counted };
            self.see(Duration::ZERO, &ran).unwrap();
        }
    }

    /// Lets a server grant the claim, with the attempts that it has counted.
    fn grants(&mut self, now: Duration, owner: &Owner, begun: Option<AttemptCount>) {
        let request = Request::Acquire {
            resource: resource(),
            owner: owner.clone(),
            ttl: HOUR,
            propose: FencingToken::new(1),
            tolerance: HOUR,
            keep: HOUR,
            ticket: None,
        };
        let reply = Reply::Granted { counter: FencingToken::new(8), begun };
        self.see(now, &Event::Ran { node: "n0", request: &request, reply: &reply }).unwrap();
    }

    fn step(&mut self, owner: &Owner, kind: AttemptStepKind<'_>) -> Result<(), String> {
        let resource = resource();
        let step = AttemptStep { worker: owner.worker(), resource: &resource, kind };
        self.see(Duration::ZERO, &Event::Attempt(&step))
    }

    fn begins(&mut self, owner: &Owner, attempt: u32) -> Result<(), String> {
        self.step(owner, AttemptStepKind::Began { attempt, payload: "p", valid: true })
    }
}

fn owner(number: u64) -> Owner {
    Owner::sign("w", number, 0)
}

#[test]
fn an_attempt_needs_a_majority_and_a_number_of_its_own() {
    let mut attempts = Attempts::default();
    attempts.count(&[0, 1], &owner(1), 1, false);
    assert!(attempts.begins(&owner(1), 1).unwrap_err().contains("counted on 2 servers"));
    attempts.count(&[2], &owner(1), 1, false);
    assert!(attempts.begins(&owner(1), 1).is_ok());
    attempts.count(&[2, 3, 4], &owner(2), 1, false);
    assert!(attempts.begins(&owner(2), 1).unwrap_err().contains("which began before"));
    attempts.count(&[0, 1, 2], &owner(3), 4, false);
    assert!(attempts.begins(&owner(3), 4).unwrap_err().contains("attempt 4"));
}

#[test]
fn a_server_that_forgot_excuses_a_second_attempt_with_the_same_number() {
    let mut attempts = Attempts::default();
    attempts.count(&[0, 1, 2], &owner(1), 1, false);
    attempts.begins(&owner(1), 1).unwrap();
    attempts.see(Duration::ZERO, &Event::Forgot { node: "n2" }).unwrap();
    attempts.count(&[2, 3, 4], &owner(2), 1, false);
    assert!(attempts.begins(&owner(2), 1).is_ok());
}

#[test]
fn a_message_is_given_up_only_for_attempts_that_count() {
    let mut attempts = Attempts::default();
    let gives_up = |attempts: &mut Attempts, count| {
        attempts.step(&owner(9), AttemptStepKind::GivenUp { attempts: count, valid: true })
    };
    for number in 1..=2 {
        attempts.count(&[0, 1, 2], &owner(number), number as u32, false);
        attempts.begins(&owner(number), number as u32).unwrap();
    }
    assert!(gives_up(&mut attempts, 2).is_err(), "below the limit");
    attempts.count(&[0, 1, 2], &owner(3), 3, false);
    attempts.count(&[0, 1], &owner(3), 3, true);
    assert!(gives_up(&mut attempts, 3).is_ok(), "its count was left on one server");
    attempts.count(&[2], &owner(3), 3, true);
    assert!(gives_up(&mut attempts, 3).is_err(), "it was withdrawn everywhere");
    attempts.see(Duration::ZERO, &Event::Restored { node: "n2" }).unwrap();
    assert!(gives_up(&mut attempts, 3).is_ok(), "the snapshot may have the count");
    let began = Duration::from_secs(1);
    attempts.step(&owner(9), AttemptStepKind::Reset { began }).unwrap();
    assert!(gives_up(&mut attempts, 3).is_err(), "it was reset");
    (1..=3).for_each(|number| attempts.count(&[2], &owner(number), number as u32, false));
    assert!(gives_up(&mut attempts, 3).is_ok(), "late requests have stored the counts again");
}

#[test]
fn an_attempt_that_begins_during_a_reset_may_continue_the_old_count() {
    let second = Duration::from_secs(1);
    let reset = |attempts: &mut Attempts| {
        let (resource, kind) = (resource(), AttemptStepKind::Reset { began: second / 2 });
        let step = AttemptStep { worker: "w", resource: &resource, kind };
        attempts.see(2 * second, &Event::Attempt(&step)).unwrap();
    };
    for is_during in [true, false] {
        let mut attempts = Attempts::default();
        attempts.count(&[0, 1, 2], &owner(1), 1, false);
        if is_during {
            attempts.grants(second, &owner(2), None);
        }
        reset(&mut attempts);
        if !is_during {
            attempts.grants(3 * second, &owner(2), None);
        }
        attempts.count(&[0, 1, 2], &owner(2), 2, false);
        attempts.count(&[0, 1, 2], &owner(3), 3, false);
        let gives_up = attempts.step(&owner(9), AttemptStepKind::GivenUp { attempts: 3, valid: true });
        assert_eq!(gives_up.is_ok(), is_during, "{gives_up:?}");
    }
}

#[test]
fn a_count_that_was_reported_before_its_withdrawal_counts() {
    let mut attempts = Attempts::default();
    attempts.count(&[0, 1, 2], &owner(1), 3, false);
    attempts.grants(Duration::ZERO, &owner(2), Some(AttemptCount { attempts: 3, payload: None }));
    attempts.count(&[0, 1, 2], &owner(1), 3, true);
    let message = attempts.log.message(&resource());
    assert!(message.attempts[0].seen && message.attempts[0].counted.is_empty());
}

#[test]
fn the_count_of_a_cancelled_attempt_is_withdrawn_before_its_release() {
    let release = Request::Release { resource: resource(), owner: owner(1) };
    let frees = |attempts: &mut Attempts| {
        attempts
            .see(Duration::ZERO, &Event::Ran { node: "n0", request: &release, reply: &Reply::Released(true) })
    };
    for withdraws in [false, true] {
        let mut attempts = Attempts::default();
        attempts.count(&[0, 1, 2], &owner(1), 1, false);
        assert!(frees(&mut attempts).is_ok(), "it was not cancelled");
        attempts.step(&owner(1), AttemptStepKind::Cancelled { attempt: 1, steady: true }).unwrap();
        if withdraws {
            attempts.count(&[0], &owner(1), 1, true);
        }
        assert_eq!(frees(&mut attempts).is_ok(), withdraws);
    }
}
