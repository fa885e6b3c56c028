//! The test cases, one for each public future. A case runs its future, and then checks the conditions that
//! must hold after a future of this kind. [`Stage::aftermath`] checks the conditions that must hold after
//! every future.

use crate::{
    cut::Cut,
    stage::{Alive, NAME, NetworkConditions, SOON, Stage, TTL},
};
use futures_util::future::{LocalBoxFuture, join};
use quorate::{
    claim::{Claim, ClaimOutcome, Processed},
    election::{Election, ElectionError, Term},
    env::{BootTime, Env},
    lease::{Lease, LeaseError, TryAcquire},
    ledger::Ledger,
    node::{FencingToken, Record, Resource},
    scheduler::{Job, RunContext, Schedule, Scheduler},
    shards::{Shard, ShardSet, Shards},
};
use std::{
    convert::Infallible,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

/// A test case. It returns whether its future completed before it was dropped.
pub(crate) type Case = for<'a> fn(&'a Stage) -> LocalBoxFuture<'a, bool>;

const MS: Duration = Duration::from_millis(1);

/// The error by which the work of an election ends its campaign.
pub(crate) const ENOUGH: &str = "enough";

async fn held(stage: &Stage) -> Lease {
    stage.soon("lease", Duration::from_secs(5), stage.lock().acquire()).await.expect("it waits")
}

async fn claimed(stage: &Stage) -> Claim {
    loop {
        if let Ok(ClaimOutcome::Claimed(claim)) = stage.claims().claim(NAME).await {
            return claim;
        }
        stage.env.sleep(20 * MS).await;
    }
}

// --- leases ---------------------------------------------------------------------------------------------

pub(crate) async fn try_acquire(stage: &Stage) -> bool {
    let lock = stage.lock();
    let tried = stage.cut(lock.try_acquire()).await;
    if let Some(Ok(TryAcquire::Acquired(lease))) = &tried {
        lease.fencing_token().expect("a fresh lease is valid");
    }
    tried.is_some()
}

pub(crate) async fn acquire(stage: &Stage) -> bool {
    let lock = stage.lock();
    let acquired = stage.cut(lock.acquire()).await;
    if let Some(lease) = &acquired {
        lease.as_ref().expect("it waits").fencing_token().expect("a fresh lease is valid");
    }
    let finished = acquired.is_some();
    drop(acquired);
    // The same lock can be acquired again right after the future was dropped.
    let again = stage.soon("the same lock again", SOON, lock.acquire()).await.expect("it waits");
    again.fencing_token().expect("a fresh lease is valid");
    finished
}

pub(crate) async fn lock_run(stage: &Stage) -> bool {
    let lock = stage.lock();
    let work = lock.run(async |lease| {
        stage.env.sleep(20 * MS).await;
        Ok::<_, LeaseError>(lease.fencing_token()?)
    });
    let ran = stage.cut(work).await;
    let finished = ran.is_some();
    ran.map(|ran| ran.expect("it waits, and the lease is valid"));
    let again = stage.soon("the same lock again", SOON, lock.acquire()).await.expect("it waits");
    again.fencing_token().expect("a fresh lease is valid");
    finished
}

pub(crate) async fn extend(stage: &Stage) -> bool {
    let lease = held(stage).await;
    let finished = stage.cut(lease.extend()).await.is_some();
    // Dropping the call does not end the lease. The lease must be extended as before, so it is still valid
    // after two TTLs.
    lease.fencing_token().expect("the lease stands");
    stage.env.sleep(TTL * 2).await;
    lease.fencing_token().expect("the lease is renewed");
    finished
}

pub(crate) async fn release(stage: &Stage) -> bool {
    let lease = held(stage).await;
    let lost = lease.lost_token().clone();
    let finished = stage.cut(lease.release()).await.is_some();
    stage.soon("loss", MS, lost.cancelled()).await;
    finished
}

// --- the quorum -----------------------------------------------------------------------------------------

pub(crate) async fn met(stage: &Stage) -> bool {
    stage.cut(stage.me.met(Duration::from_secs(1))).await.is_some()
}

pub(crate) async fn ready(stage: &Stage) -> bool {
    stage.cut(stage.me.ready(Duration::from_secs(1))).await.is_some()
}

pub(crate) async fn inspect(stage: &Stage) -> bool {
    let lease = held(stage).await;
    let resource = Resource::lock(NAME).expect("a name");
    let finished = stage.cut(stage.me.inspect(&resource)).await.is_some();
    lease.fencing_token().expect("a look takes nothing away");
    finished
}

pub(crate) async fn admit(stage: &Stage) -> bool {
    stage.cut(stage.me.trust_nodes()).await.is_some()
}

pub(crate) async fn close(stage: &Stage) -> bool {
    let lease = held(stage).await;
    let lost = lease.lost_token().clone();
    let cut = stage.cut(stage.me.close()).await;
    if stage.cut == Cut::Unpolled {
        lease.fencing_token().expect("the quorum is not closed");
        return false;
    }
    stage.closed.set(true);
    // The close has begun, so it must continue even if its future was dropped.
    stage.soon("loss of what it held", SOON, lost.cancelled()).await;
    assert!(lease.fencing_token().is_err());
    cut.is_some()
}

// --- elections ------------------------------------------------------------------------------------------

pub(crate) async fn campaign(stage: &Stage) -> bool {
    let election = Election::new(&stage.me, NAME).ttl(TTL).back_off(50 * MS).end_on_error();
    let (works, terms) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    // The work keeps clones of its terms. A clone must not keep the term alive.
    let kept = Arc::new(Mutex::new(Vec::new()));
    let work = {
        let (works, terms, kept) = (Arc::clone(&works), Arc::clone(&terms), Arc::clone(&kept));
        move |term: Term| {
            let alive = Alive::new(&works);
            kept.lock().unwrap().push(term.clone());
            // The first term resigns. The second one continues until its step-down.
            let first = terms.fetch_add(1, Ordering::Relaxed) == 0;
            async move {
                let _alive = alive;
                let wait = term.quorum().env().sleep(20 * MS);
                match first {
                    true => wait.await,
                    false => term.step_down_token().cancelled().await,
                }
                Ok::<(), Infallible>(())
            }
        }
    };
    let stop = stage.env.sleep(Duration::from_secs(1));
    let ended = stage.cut(election.run(work).until(stop)).await;
    assert!(!works.load(Ordering::Relaxed), "the work outlived the campaign");
    assert!(!election.is_leader() && election.term().is_none());
    assert!(
        kept.lock().unwrap().iter().all(|term| term.fencing_token().is_err()),
        "a term outlived the campaign"
    );
    if let Some(ended) = &ended {
        ended.as_ref().expect("shut down");
    }
    // After the campaign was dropped, the same election can be run again.
    let again = election.run(|_| async { Err(ENOUGH) }).until(std::future::pending::<()>());
    let again = stage.soon("another term of the same election", SOON, again).await;
    assert!(matches!(again, Err(ElectionError::Work(ENOUGH))), "{again:?}");
    ended.is_some()
}

pub(crate) async fn observer_leader(stage: &Stage) -> bool {
    let mut observer = Election::new(&stage.me, NAME).observe().expect("a name");
    let finished = stage.cut(observer.leader()).await.is_some();
    stage.soon("a look", SOON, observer.leader()).await.expect("a majority is there");
    finished
}

pub(crate) async fn observer_change(stage: &Stage) -> bool {
    let election = Election::new(&stage.me, NAME).ttl(TTL).end_on_error();
    let mut observer = election.observe().expect("a name");
    stage.soon("first look", SOON, observer.change()).await.expect("a majority is there");
    // From now on, a worker leads for a while. The observer must report this leader, even if an earlier call
    // that reads the leader was dropped.
    let led = election.run(|term: Term| async move {
        term.quorum().env().sleep(Duration::from_secs(2)).await;
        Err(ENOUGH)
    });
    let looks = async {
        let changed = stage.cut(observer.change()).await;
        let finished = changed.is_some();
        let leader = match changed {
            Some(changed) => changed,
            None => stage.soon("the change that it was dropped before", SOON, observer.change()).await,
        };
        // If there is a rival, the change may also be that there is no leader.
        let leader = leader.expect("a majority is there");
        assert!(leader.is_some() || stage.conditions == NetworkConditions::Rival, "a change is lost");
        finished
    };
    let (finished, led) = join(looks, led.until(std::future::pending::<()>())).await;
    assert!(matches!(led, Err(ElectionError::Work(ENOUGH))), "{led:?}");
    finished
}

// --- shards ---------------------------------------------------------------------------------------------

pub(crate) async fn shards_run(stage: &Stage) -> bool {
    let shards = Shards::new(&stage.me, NAME, 1).ttl(TTL);
    let (works, kept) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
    // The work keeps clones of its shards. A clone must not keep the ownership alive.
    let (flag, clones) = (Arc::clone(&works), Arc::clone(&kept));
    let work = move |shard: Shard| {
        let alive = Alive::new(&flag);
        clones.lock().unwrap().push(shard.clone());
        async move {
            let _alive = alive;
            shard.step_down_token().cancelled().await;
            Ok::<(), Infallible>(())
        }
    };
    let stop = stage.env.sleep(Duration::from_secs(1));
    let ended = stage.cut(shards.run(work).until(stop)).await;
    if let Some(ended) = &ended {
        ended.as_ref().expect("shut down");
        assert!(!works.load(Ordering::Relaxed), "the work outlived the run");
    }
    // The tasks of a dropped run end at their next turn.
    let over = async {
        while works.load(Ordering::Relaxed) || !shards.owned().is_empty() {
            stage.env.sleep(MS).await;
        }
    };
    stage.soon("end of the work", 2 * MS, over).await;
    let left = kept.lock().unwrap().iter().any(|shard: &Shard| shard.fencing_token().is_ok());
    assert!(!left, "a shard outlived the run");
    // After the run was dropped, the same set can be run again.
    let env = stage.env.clone();
    let owned = async {
        while shards.owned().is_empty() {
            env.sleep(10 * MS).await;
        }
    };
    let again = shards.run(|shard: Shard| async move {
        shard.step_down_token().cancelled().await;
        Ok::<(), Infallible>(())
    });
    stage.soon("the same shard", 2 * SOON, again.until(owned)).await.expect("shut down");
    ended.is_some()
}

pub(crate) async fn shard_set(stage: &Stage) -> bool {
    stage.cut(ShardSet::read(&stage.me, NAME)).await.is_some()
}

pub(crate) async fn shard_names(stage: &Stage) -> bool {
    stage.cut(ShardSet::names(&stage.me)).await.is_some()
}

pub(crate) async fn shard_sets(stage: &Stage) -> bool {
    stage.cut(ShardSet::read_all(&stage.me)).await.is_some()
}

// --- the ledger and jobs --------------------------------------------------------------------------------

const TERM: FencingToken = FencingToken::new(1_700_000_000_000_005);

fn ledger(stage: &Stage) -> Ledger {
    Ledger::new(&stage.me, NAME).expect("a name")
}

fn record(stage: &Stage, value: &str) -> Record {
    Record { at: stage.env.wall().as_micros() + 5_000_000, term: TERM, last: false, value: value.into() }
}

/// Returns the newest record of the ledger, if there is one.
async fn found(stage: &Stage) -> Option<Record> {
    let read = async {
        loop {
            match ledger(stage).read().await {
                Ok(answers) => return answers,
                Err(_) => stage.env.sleep(20 * MS).await,
            }
        }
    };
    let answers = stage.soon("read", SOON, read).await;
    let records = answers.into_iter().flat_map(|answer| answer.state.records);
    records.map(|(_, record)| record).max_by_key(|record| record.term)
}

/// Stores a record in the place of any other record.
async fn stores(stage: &Stage, key: &Arc<str>, next: &Record) {
    let writes = async {
        loop {
            let seen = found(stage).await;
            // The nodes that are not in the majority may store the record in `seen`, or no record. The second
            // write is for nodes without a record.
            for seen in [seen.as_ref(), None, seen.as_ref()] {
                if ledger(stage).write(key, seen, next).await.is_ok() {
                    return;
                }
            }
            stage.env.sleep(20 * MS).await;
        }
    };
    stage.soon("write", 3 * SOON, writes).await;
}

pub(crate) async fn read(stage: &Stage) -> bool {
    stage.cut(ledger(stage).read()).await.is_some()
}

pub(crate) async fn write(stage: &Stage) -> bool {
    let (key, record) = (Arc::from("key"), record(stage, "mine"));
    let written = stage.cut(ledger(stage).write(&key, None, &record)).await;
    // The write may have reached some nodes or none. So a reader may find the record or not, and a later record must
    // be able to replace it in both cases.
    let seen = found(stage).await;
    assert!(seen.as_ref().is_none_or(|seen| *seen == record), "{seen:?}");
    if let Some(Ok(())) = written {
        assert!(seen.is_some(), "a majority had written it");
    }
    let later = FencingToken::new(TERM.get() + 1);
    stores(stage, &key, &Record { term: later, value: "later".into(), ..record }).await;
    written.is_some()
}

/// Tests `Ledger::prune`. The call must not remove a later record, whether or not its future is dropped.
pub(crate) async fn prune(stage: &Stage) -> bool {
    let below = stage.env.wall().as_micros();
    let record = record(stage, "kept");
    stores(stage, &"key".into(), &record).await;
    let finished = stage.cut(ledger(stage).prune(below)).await.is_some();
    assert_eq!(found(stage).await, Some(record));
    finished
}

/// Tests `Ledger::keep`, which sets the retention of the ledger. The call must not add or change a record, whether or
/// not its future is dropped.
pub(crate) async fn keep(stage: &Stage) -> bool {
    let record = record(stage, "kept");
    stores(stage, &"key".into(), &record).await;
    let finished = stage.cut(ledger(stage).keep(3_600_000 * MS)).await.is_some();
    assert_eq!(found(stage).await, Some(record));
    finished
}

/// Returns a scheduler with a job that is always due, and a flag that is true while the job runs.
fn scheduler(stage: &Stage, election: &Election) -> (Scheduler, Arc<AtomicBool>) {
    let works = Arc::new(AtomicBool::new(false));
    let (flag, env) = (Arc::clone(&works), stage.env.clone());
    let job = move |tick: RunContext| {
        let (alive, env) = (Alive::new(&flag), env.clone());
        async move {
            let _alive = alive;
            tokio::select! { biased;
                () = tick.cancellation_token().cancelled() => {}
                () = env.sleep(150 * MS) => {}
            }
            Ok::<(), Infallible>(())
        }
    };
    let job = Job::new("j", Schedule::every(100 * MS).expect("a period"), job);
    (Scheduler::on(election).job(job), works)
}

pub(crate) async fn scheduler_lead(stage: &Stage) -> bool {
    let election = Election::new(&stage.me, NAME).ttl(TTL).end_on_error();
    let (scheduler, works) = scheduler(stage, &election);
    let finished = Arc::new(AtomicBool::new(false));
    let (cut, reported) = (stage.cut, Arc::clone(&finished));
    let led = election.run(move |term: Term| {
        let (scheduler, finished) = (scheduler.clone(), Arc::clone(&reported));
        async move {
            let env = term.quorum().env().clone();
            let stop = term.step_down_token().clone();
            let timer = env.clone();
            let _ends = env.spawn_scoped(async move {
                timer.sleep(700 * MS).await;
                stop.cancel();
            });
            finished.store(cut.run(scheduler.lead(term)).await.is_some(), Ordering::Relaxed);
            Err::<(), _>(ENOUGH)
        }
    });
    let led = led.until(std::future::pending::<()>()).await;
    stage.note_cut();
    assert!(matches!(led, Err(ElectionError::Work(ENOUGH))), "{led:?}");
    stage.until("end of the jobs", SOON, || !works.load(Ordering::Relaxed)).await;
    finished.load(Ordering::Relaxed)
}

pub(crate) async fn scheduler_run(stage: &Stage) -> bool {
    let election = Election::new(&stage.me, NAME).ttl(TTL);
    let (scheduler, works) = scheduler(stage, &election);
    let stop = stage.env.sleep(Duration::from_secs(1));
    let ended = stage.cut(scheduler.run().until(stop)).await;
    stage.until("end of the jobs", SOON, || !works.load(Ordering::Relaxed)).await;
    assert!(!election.is_leader() && election.term().is_none());
    ended.is_some()
}

pub(crate) async fn drain(stage: &Stage) -> bool {
    let election = Election::new(&stage.me, NAME).ttl(TTL);
    let (scheduler, works) = scheduler(stage, &election);
    let handle = scheduler.handle();
    let run = stage.env.spawn_scoped(scheduler.run().until(std::future::pending::<()>()));
    stage.env.sleep(700 * MS).await;
    let finished = stage.cut(handle.drain()).await.is_some();
    // The draining continues even if its future was dropped, and can be awaited again.
    handle.drain().await;
    assert!(!works.load(Ordering::Relaxed) && election.term().is_none());
    assert!(matches!(run.await, Ok(Ok(()))));
    finished
}

// --- claims ---------------------------------------------------------------------------------------------

pub(crate) async fn claim(stage: &Stage) -> bool {
    stage.cut(stage.claims().claim(NAME)).await.is_some()
}

pub(crate) async fn claim_many(stage: &Stage) -> bool {
    stage.cut(stage.claims().claim_many(["q", NAME, "s", "t"])).await.is_some()
}

pub(crate) async fn process(stage: &Stage) -> bool {
    let works = Arc::new(AtomicBool::new(false));
    let claims = stage.claims();
    let handled = stage
        .cut(claims.process(NAME, |claim| {
            let alive = Alive::new(&works);
            let env = stage.env.clone();
            async move {
                let _alive = alive;
                for _ in 0..2 {
                    env.sleep(15 * MS).await;
                    claim.fencing_token().expect("it is ours");
                }
                Ok::<_, Infallible>("it worked")
            }
        }))
        .await;
    assert!(!works.load(Ordering::Relaxed), "the handler outlived its future");
    // If the future was dropped while it recorded the handler's result, the message stays claimed until the TTL
    // of the claim ends.
    stage.patience.set(TTL + SOON);
    if let Some(Ok(Processed::Handled)) = &handled {
        done_is_final(stage, "it worked").await;
    }
    settled(stage, "it worked").await;
    handled.is_some()
}

pub(crate) async fn complete(stage: &Stage) -> bool {
    let claim = claimed(stage).await;
    let lost = claim.handle().lost_token().clone();
    let completed = stage.cut(claim.complete("it worked")).await;
    stage.soon("end of the claim", MS, lost.cancelled()).await;
    stage.patience.set(TTL + SOON);
    if let Some(Ok(_)) = &completed {
        done_is_final(stage, "it worked").await;
    }
    settled(stage, "it worked").await;
    completed.is_some()
}

pub(crate) async fn abandon(stage: &Stage) -> bool {
    let claim = claimed(stage).await;
    let lost = claim.handle().lost_token().clone();
    let finished = stage.cut(claim.abandon()).await.is_some();
    stage.soon("end of the claim", MS, lost.cancelled()).await;
    finished
}

pub(crate) async fn complete_many(stage: &Stage) -> bool {
    let claim = claimed(stage).await;
    let lost = claim.handle().lost_token().clone();
    let completed = stage.cut(Claim::complete_many([(claim, "it worked")])).await;
    stage.soon("end of the claim", MS, lost.cancelled()).await;
    stage.patience.set(TTL + SOON);
    if let Some([(_, Ok(_))]) = completed.as_deref() {
        done_is_final(stage, "it worked").await;
    }
    settled(stage, "it worked").await;
    completed.is_some()
}

pub(crate) async fn abandon_many(stage: &Stage) -> bool {
    let claim = claimed(stage).await;
    let lost = claim.handle().lost_token().clone();
    let finished = stage.cut(Claim::abandon_many([claim])).await.is_some();
    stage.soon("end of the claim", MS, lost.cancelled()).await;
    finished
}

pub(crate) async fn cancel_before_start(stage: &Stage) -> bool {
    let claim = claimed(stage).await;
    let lost = claim.handle().lost_token().clone();
    let finished = stage.cut(claim.cancel_before_start()).await.is_some();
    stage.soon("end of the claim", MS, lost.cancelled()).await;
    finished
}

pub(crate) async fn claims_inspect(stage: &Stage) -> bool {
    stage.cut(stage.claims().inspect(NAME)).await.is_some()
}

pub(crate) async fn reset_attempts(stage: &Stage) -> bool {
    let reset = stage.cut(stage.claims().reset(NAME)).await;
    stage.patience.set(TTL + SOON);
    reset.is_some()
}

/// Tests `Claims::process_or_wait` with an attempt limit. With a limit, the nodes count the attempt before the
/// handler begins.
pub(crate) async fn claims_process_or_wait(stage: &Stage) -> bool {
    let works = Arc::new(AtomicBool::new(false));
    let claims = stage.claims().max_attempts(3);
    let handled = stage
        .cut(claims.process_or_wait(NAME, TTL, |claim| {
            let alive = Alive::new(&works);
            let env = stage.env.clone();
            async move {
                let _alive = alive;
                env.sleep(15 * MS).await;
                claim.fencing_token().expect("it is ours");
                Ok::<_, Infallible>("it worked")
            }
        }))
        .await;
    assert!(!works.load(Ordering::Relaxed), "the handler outlived its future");
    stage.patience.set(TTL + SOON);
    if let Some(Ok(once)) = &handled {
        assert_eq!(&*once.result, "it worked");
        done_is_final(stage, "it worked").await;
    }
    settled(stage, "it worked").await;
    handled.is_some()
}

/// Checks that the message is done, and that a later claim gets the same result.
async fn done_is_final(stage: &Stage, result: &str) {
    match stage.claims().claim(NAME).await {
        Ok(ClaimOutcome::Done(reported)) => assert_eq!(&*reported.result, result),
        other => panic!("done by a majority, and then {other:?}"),
    }
}

/// Waits until the message is done with the handler's result, or free. Fails if this takes longer than the TTL.
async fn settled(stage: &Stage, result: &str) {
    let ends = async {
        loop {
            match stage.claims().claim(NAME).await {
                Ok(ClaimOutcome::Done(reported)) => {
                    assert_eq!(&*reported.result, result);
                    return;
                }
                Ok(ClaimOutcome::Claimed(claim)) => {
                    let _ = claim.abandon().await;
                    return;
                }
                _ => stage.env.sleep(20 * MS).await,
            }
        }
    };
    stage.soon("end of the claim", TTL + SOON, ends).await;
}

// --- clocks and timers ----------------------------------------------------------------------------------

pub(crate) async fn sleep(stage: &Stage) -> bool {
    stage.cut(stage.env.sleep(30 * MS)).await.is_some()
}

pub(crate) async fn sleep_until(stage: &Stage) -> bool {
    stage.cut(stage.env.sleep_until(stage.env.now() + 30 * MS)).await.is_some()
}

pub(crate) async fn sleep_until_poll(stage: &Stage) -> bool {
    let now = stage.env.now();
    stage.cut(stage.env.sleep_until_poll(now, now + 30 * MS, now + 60 * MS)).await.is_some()
}

pub(crate) async fn before(stage: &Stage) -> bool {
    let works = Arc::new(AtomicBool::new(false));
    let alive = Alive::new(&works);
    let ends: BootTime = stage.env.now() + 30 * MS;
    let work = async {
        let _alive = alive;
        stage.env.sleep(20 * MS).await;
    };
    let finished = stage.cut(stage.env.before(ends, work)).await.is_some();
    assert!(!works.load(Ordering::Relaxed), "the work is dropped with it");
    finished
}

pub(crate) async fn finish(stage: &Stage) -> bool {
    let env: Env = stage.env.sibling();
    let inner = env.clone();
    env.spawn(async move {
        inner.stopped().cancelled().await;
        inner.sleep(20 * MS).await;
    });
    let finished = stage.cut(env.finish()).await.is_some();
    stage.soon("finish, called again", SOON, env.finish()).await;
    assert_eq!(env.tasks_alive(), 0);
    finished
}

pub(crate) async fn scoped_task(stage: &Stage) -> bool {
    let works = Arc::new(AtomicBool::new(false));
    let env = stage.env.sibling();
    let (alive, inner) = (Alive::new(&works), env.clone());
    let task = env.spawn_scoped(async move {
        let _alive = alive;
        inner.sleep(20 * MS).await;
    });
    let finished = stage.cut(task).await.is_some();
    stage.until("end of the task", MS * 10, || env.tasks_alive() == 0).await;
    assert!(!works.load(Ordering::Relaxed));
    finished
}
