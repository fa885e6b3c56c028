use crate::{
    harness::{Assignment, Event, Journal},
    work::Failure,
};
use quorate::{
    election::{Election, Term},
    quorum::Quorum,
};
use quorate_tests::support::told_to_end;
use serde::{Deserialize, Serialize};
use std::{
    convert::Infallible,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio_util::sync::CancellationToken;

/// The time that a contender holds the lease.
const HOLD: Duration = Duration::from_millis(8);
/// The time that a contender stays away after its turn, so that others have theirs.
const AWAY: Duration = Duration::from_millis(2);
/// The name of the lock and of the election.
const NAME: &str = "handed-round";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Task {
    /// Contenders of this process.
    pub(super) contenders: usize,
    /// Turns of each.
    pub(super) rounds: usize,
    /// They share one quorum.
    pub(super) one_quorum: bool,
    /// They elect a leader instead of locking.
    pub(super) elect: bool,
}

/// Runs the contenders, writes their turns once all are over, and waits for SIGTERM.
pub(crate) async fn work(
    task: &Task,
    assignment: &Assignment,
    quorum: &Quorum,
    journal: &Journal,
) -> Result<(), Failure> {
    let told = told_to_end()?;
    let turns = if task.elect {
        lead(quorum, task.rounds).await?
    } else {
        let mut contenders = Vec::new();
        for _ in 0..task.contenders {
            let quorum = if task.one_quorum { quorum.clone() } else { assignment.quorum()? };
            let rounds = task.rounds;
            contenders.push(journal.env().spawn_scoped(async move { contend(&quorum, rounds).await }));
        }
        let mut turns = Vec::new();
        for contender in contenders {
            turns.extend(contender.await.map_err(|_| "a contender panicked")?);
        }
        turns
    };
    turns.into_iter().for_each(|turn| journal.write(turn));
    told.await;
    Ok(())
}

async fn contend(quorum: &Quorum, rounds: usize) -> Vec<Event> {
    let (lock, env) = (quorum.lock(NAME), quorum.env());
    let mut turns = Vec::new();
    for _ in 0..rounds {
        let requested = env.now().as_nanos();
        let lease = lock.acquire().await.expect("a quorum");
        let acquired = env.now().as_nanos();
        env.sleep(HOLD).await;
        let released = env.now().as_nanos();
        // On a busy machine a majority may answer late: the lease is released all the same.
        let _ = lease.release().await;
        turns.push(Event::Turn { requested, acquired, released });
        env.sleep(AWAY).await;
    }
    turns
}

/// Leads, resigns, and campaigns again, for so many rounds.
async fn lead(quorum: &Quorum, rounds: usize) -> Result<Vec<Event>, Failure> {
    let (env, done) = (quorum.env().clone(), CancellationToken::new());
    let progress = Arc::new(Mutex::new((env.now().as_nanos(), Vec::new())));
    let (shared, over) = (Arc::clone(&progress), done.clone());
    let work = move |_: Term| {
        let (shared, over, env) = (Arc::clone(&shared), over.clone(), env.clone());
        async move {
            let acquired = env.now().as_nanos();
            env.sleep(HOLD).await;
            let released = env.now().as_nanos();
            let (requested, turns) = &mut *shared.lock().unwrap_or_else(PoisonError::into_inner);
            turns.push(Event::Turn { requested: *requested, acquired, released });
            // The campaign goes on at once, or after a back-off of its own: a wait counts from here all the same.
            *requested = released;
            if turns.len() >= rounds {
                over.cancel();
            }
            Ok::<(), Infallible>(())
        }
    };
    let election = Election::new(quorum, NAME).back_off(AWAY);
    election.run(work).until(done.cancelled()).await?;
    let mut progress = progress.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(std::mem::take(&mut progress.1))
}
