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
/// The time for which a contender pauses after its turn, so that the other contenders have their turns.
const AWAY: Duration = Duration::from_millis(2);
/// The name of the lock and of the election.
const NAME: &str = "handed-round";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Task {
    /// The number of contenders in this process.
    pub(super) contenders: usize,
    /// The number of turns of each contender.
    pub(super) rounds: usize,
    /// True if the contenders share one quorum.
    pub(super) one_quorum: bool,
    /// True if the contenders elect a leader. False if they acquire a lock.
    pub(super) elect: bool,
}

/// The work of one process: it runs its contenders, writes their turns when all have ended, and waits for
/// SIGTERM.
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
        // On a busy machine, a majority may confirm the release too late. The lease has ended nevertheless.
        let _ = lease.release().await;
        turns.push(Event::Turn { requested, acquired, released });
        env.sleep(AWAY).await;
    }
    turns
}

/// Leads, resigns and campaigns again, as often as `rounds` says.
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
            // The candidate campaigns again, at once or after its back-off. The wait for its next turn counts
            // from the release.
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
