use super::{Mode, database};
use crate::{
    harness::{Assignment, Event, Journal, Point},
    work::Failure,
};
use futures_util::future::join_all;
use quorate::{
    claim::{Claim, ClaimOutcome, Claims},
    quorum::Quorum,
};
use quorate_postgres::{Effects, Once, tokio_postgres::Client};
use quorate_tests::support::told_to_end;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The number of messages that are claimed in one request.
const BATCH: usize = 50;
/// The time that a worker waits at each [`Point`], in some of its batches. The director may cause a fault
/// during this time.
const THINKS: Duration = Duration::from_millis(25);
const THINKS_EACH: u64 = 8;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Task {
    pub(crate) mode: Mode,
    pub(crate) workers: usize,
    pub(crate) messages: usize,
    /// The URL of the database.
    pub(crate) database: String,
}

/// The work of one worker process: it claims messages in batches, commits the effects of each batch in one
/// transaction, and completes the messages.
pub(crate) async fn work(
    Task { mode, workers, messages, database }: &Task,
    assignment: &Assignment,
    quorum: &Quorum,
    journal: &Journal,
) -> Result<(), Failure> {
    // After its last event, the worker waits until it is asked to end. The director may still kill or stop it.
    let told = told_to_end()?;
    let mut worker = Worker {
        mode: *mode,
        journal,
        claims: Claims::new(quorum, mode.to_string()).ttl(assignment.ttl),
        effects: Effects::new(&mode.to_string()),
        client: database::connect(database).await?,
        batches: 0,
    };
    let ids: Vec<String> = (0..*messages).map(|number| format!("m-{number}")).collect();
    let batches: Vec<&[String]> = ids.chunks(BATCH).collect();
    // Each worker begins with another batch, so that two workers rarely claim the same messages.
    let first = assignment.member * batches.len() / workers;
    let mut open: Vec<usize> = (0..batches.len()).map(|at| (at + first) % batches.len()).collect();
    while !open.is_empty() {
        let mut left = Vec::new();
        for at in open {
            if !worker.handle(batches[at]).await? {
                left.push(at);
            }
        }
        open = left;
        journal.env().sleep(THINKS).await;
    }
    journal.write(Event::Reached { point: Point::AllDone, element: 0 });
    told.await;
    Ok(())
}

/// Returns the numbers and the tokens of claimed messages.
fn tokens(claims: &[Claim]) -> Vec<(u64, u64)> {
    claims.iter().filter_map(|claim| Some((number(claim.id())?, claim.unchecked_token().get()))).collect()
}

/// Returns the number of a message, from its id.
fn number(id: &str) -> Option<u64> {
    id.strip_prefix("m-")?.parse().ok()
}

struct Worker<'a> {
    mode: Mode,
    journal: &'a Journal,
    claims: Claims,
    effects: Effects,
    client: Client,
    batches: u64,
}

impl Worker<'_> {
    /// Handles the messages of a batch that can be claimed. Returns whether all messages of the batch are done.
    async fn handle(&mut self, ids: &[String]) -> Result<bool, Failure> {
        let (mut mine, mut done) = (Vec::new(), Vec::new());
        let requested = self.journal.now().as_nanos();
        for (id, outcome) in self.claims.claim_many(ids.iter().map(String::as_str)).await? {
            match outcome {
                Ok(ClaimOutcome::Claimed(claim)) => mine.push(claim),
                Ok(ClaimOutcome::Done { .. }) => done.extend(number(&id)),
                // Another worker has the message, or too few servers answered. The message is claimed again in
                // the next pass over the batches.
                Ok(_) | Err(_) => {}
            }
        }
        let all_done = done.len() == ids.len();
        let (claimed, found) = (tokens(&mine), done.len());
        self.journal.write(Event::BatchClaimed { requested, claimed: claimed.clone(), done });
        if mine.is_empty() {
            return Ok(all_done);
        }
        self.batches += 1;
        self.reach(Point::Claimed).await;
        self.commit_effects(&mine).await?;
        self.reach(Point::Committed).await;
        // If a claim was lost before its completion, another worker has the message. That worker finds the
        // effect in the database, and completes the message.
        let requested = self.journal.now().as_nanos();
        let completing = mine.into_iter().map(|claim| async move { claim.complete("").await.is_ok() });
        let completed = join_all(completing).await.into_iter().zip(claimed);
        let stored: Vec<_> = completed.filter_map(|(stored, claim)| stored.then_some(claim)).collect();
        let done = found + stored.len();
        self.journal.write(Event::BatchCompleted { requested, stored });
        Ok(done == ids.len())
    }

    /// Commits the effects of the batch in one transaction. The claims are not checked before, because a pause
    /// could follow any check.
    async fn commit_effects(&mut self, mine: &[Claim]) -> Result<(), Failure> {
        let transaction = self.client.transaction().await?;
        let messages: Vec<_> = mine.iter().map(|claim| (&**claim.id(), claim.unchecked_token())).collect();
        let verdicts = match self.mode {
            Mode::With => self.effects.once_each(&transaction, &messages).await?,
            Mode::Without => vec![Once::First; messages.len()],
        };
        let first = messages.iter().zip(verdicts).filter(|(_, verdict)| *verdict == Once::First);
        let first: Vec<&str> = first.map(|((id, _), _)| *id).collect();
        let effect = format!("INSERT INTO {} SELECT unnest($1::text[])", database::table(self.mode));
        transaction.execute(&effect, &[&first]).await?;
        Ok(transaction.commit().await?)
    }

    /// Reports that the worker is at this point, and waits there. In most batches this method does nothing:
    /// only one batch in [`THINKS_EACH`] waits.
    async fn reach(&self, point: Point) {
        if self.batches.is_multiple_of(THINKS_EACH) {
            self.journal.write(Event::Reached { point, element: self.batches });
            self.journal.env().sleep(THINKS).await;
        }
    }
}
