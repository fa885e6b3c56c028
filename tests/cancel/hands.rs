//! The test cases for many leases at once, slots, readers, and the transfer of a lease to another worker.

use crate::{
    at_every_await_point,
    cases::ENOUGH,
    stage::{Matter, NAME, NetworkConditions, SOON, Stage, TTL},
};
use futures_util::future::join;
use quorate::{
    election::{Election, ElectionError, Term},
    lease::{Leases, Lock, Locks, ReadLease, TryAcquire},
    ledger::{Operation, OperationLog},
    node::{FencingToken, Resource},
};
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);
/// Three names: one that sorts after [`NAME`], `NAME` itself, and one that sorts before it.
const NAMES: [&str; 3] = ["z", NAME, "a"];

/// Lists the futures that this file tests, by type and name, and defines a test for each.
macro_rules! cases {
    ($($test:ident: $name:literal, $matter:ident;)*) => {
        pub(crate) const TRIED: &[&str] = &[$($name),*];

        mod tried {
            use super::*;
            $(
                #[test]
                fn $test() {
                    at_every_await_point($name, Matter::$matter, |stage| Box::pin(super::$test(stage)));
                }
            )*
        }
    };
}

cases! {
    acquire_all: "Locks::acquire_all", Lock;
    acquire_each: "Locks::try_acquire_each", Lock;
    add_operation: "OperationLog::add", Lock;
    ask_to_resign: "Observer::ask_to_resign", Election;
    history: "Observer::history", Lock;
    newest_operations: "OperationLog::newest", Lock;
    note_forced_release: "Observer::note_forced_release", Lock;
    downgrade: "Lease::downgrade", Lock;
    force_release: "Quorum::force_release", Lock;
    leases_lost: "Leases::any_lost", Lock;
    leases_release: "Leases::release", Lock;
    leases_step_down: "Leases::any_step_down", Lock;
    read_acquire: "Lock<ReadLease>::acquire", Lock;
    read_extend: "ReadLease::extend", Lock;
    read_release: "ReadLease::release", Lock;
    read_try_acquire: "Lock<ReadLease>::try_acquire", Lock;
    slots_acquire: "Locks::acquire_any", Lock;
    slots_try_acquire: "Locks::try_acquire_any", Lock;
    transfer_to: "Lease::transfer_to", Lock;
    try_acquire_all: "Locks::try_acquire_all", Lock;
}

fn locks(stage: &Stage) -> Locks {
    stage.me.locks(NAMES).ttl(TTL)
}

async fn held(stage: &Stage, locks: &Locks) -> Leases {
    stage.soon("leases", Duration::from_secs(10), locks.acquire_all()).await.expect("it waits")
}

async fn acquire_all(stage: &Stage) -> bool {
    let locks = locks(stage);
    let acquired = stage.cut(locks.acquire_all()).await;
    if let Some(all) = &acquired {
        let tokens = all.as_ref().expect("it waits").fencing_tokens().expect("fresh leases are valid");
        assert_eq!(tokens.len(), NAMES.len());
    }
    acquired.is_some()
}

async fn try_acquire_all(stage: &Stage) -> bool {
    stage.cut(locks(stage).try_acquire_all()).await.is_some()
}

async fn acquire_each(stage: &Stage) -> bool {
    let each = stage.cut(locks(stage).try_acquire_each()).await;
    if let Some(each) = &each {
        let each = each.as_ref().expect("sound names");
        for (_, one) in each {
            if let Ok(TryAcquire::Acquired(lease)) = one {
                lease.fencing_token().expect("a fresh lease is valid");
            }
        }
        assert_eq!(each.len(), NAMES.len());
    }
    each.is_some()
}

async fn leases_step_down(stage: &Stage) -> bool {
    let all = held(stage, &locks(stage).auto_extend(false)).await;
    let told = stage.cut(all.any_step_down()).await.is_some();
    assert!(!told || all.iter().any(|lease| lease.step_down_token().is_cancelled()));
    told
}

async fn leases_lost(stage: &Stage) -> bool {
    let all = held(stage, &locks(stage).auto_extend(false)).await;
    let told = stage.cut(all.any_lost()).await.is_some();
    assert!(!told || all.fencing_tokens().is_err());
    told
}

async fn leases_release(stage: &Stage) -> bool {
    let all = held(stage, &locks(stage)).await;
    let lost: Vec<_> = all.iter().map(|lease| lease.lost_token().clone()).collect();
    let finished = stage.cut(all.release()).await.is_some();
    for lost in lost {
        stage.soon("loss", MS, lost.cancelled()).await;
    }
    finished
}

async fn slots_acquire(stage: &Stage) -> bool {
    let slot = stage.cut(stage.me.slots(NAME, 2).ttl(TTL).acquire_any()).await;
    if let Some(slot) = &slot {
        slot.as_ref().expect("it waits").1.fencing_token().expect("a fresh lease is valid");
    }
    slot.is_some()
}

async fn slots_try_acquire(stage: &Stage) -> bool {
    stage.cut(stage.me.slots(NAME, 2).ttl(TTL).try_acquire_any()).await.is_some()
}

async fn transfer_to(stage: &Stage) -> bool {
    let lease = stage.soon("lease", Duration::from_secs(5), stage.lock().acquire()).await.expect("it waits");
    let lost = lease.lost_token().clone();
    // The successor asks only a majority of the nodes at first. On a node that it does not ask, the
    // reservation stays for one second.
    stage.cleared_within.set(Duration::from_secs(1) + SOON);
    // The successor must be the worker that acquires the lease next. The network conditions determine which
    // worker that is.
    let successor = if stage.conditions == NetworkConditions::Rival { "rival" } else { "other" };
    let finished = stage.cut(lease.transfer_to(successor)).await.is_some();
    stage.soon("loss", MS, lost.cancelled()).await;
    finished
}

fn reader(stage: &Stage) -> Lock<ReadLease> {
    stage.me.read_lock(NAME).ttl(TTL)
}

async fn reading(stage: &Stage) -> ReadLease {
    stage.soon("reader's lease", Duration::from_secs(5), reader(stage).acquire()).await.expect("it waits")
}

async fn read_acquire(stage: &Stage) -> bool {
    let reader = reader(stage);
    let lease = stage.cut(reader.acquire()).await;
    if let Some(lease) = &lease {
        lease.as_ref().expect("it waits").ensure_held().expect("a fresh lease is valid");
    }
    lease.is_some()
}

async fn read_try_acquire(stage: &Stage) -> bool {
    let reader = reader(stage);
    stage.cut(reader.try_acquire()).await.is_some()
}

async fn read_extend(stage: &Stage) -> bool {
    let lease = reading(stage).await;
    let finished = stage.cut(lease.extend()).await.is_some();
    lease.ensure_held().expect("the lease stands");
    finished
}

async fn read_release(stage: &Stage) -> bool {
    let lease = reading(stage).await;
    stage.cut(lease.release()).await.is_some()
}

async fn downgrade(stage: &Stage) -> bool {
    let lease = stage.soon("lease", Duration::from_secs(5), stage.lock().acquire()).await.expect("it waits");
    let lost = lease.lost_token().clone();
    let reads = stage.cut(lease.downgrade()).await;
    stage.soon("end of the writer's lease", MS, lost.cancelled()).await;
    if let Some(Ok(reads)) = &reads {
        reads.ensure_held().expect("a fresh lease is valid");
    }
    reads.is_some()
}

async fn force_release(stage: &Stage) -> bool {
    let lease = stage.soon("lease", Duration::from_secs(5), stage.lock().acquire()).await.expect("it waits");
    let resource = Resource::lock(NAME).expect("a name");
    stage.cut(stage.me.force_release(&resource, lease.owner())).await.is_some()
}

async fn history(stage: &Stage) -> bool {
    let observer = Election::new(&stage.me, NAME).observe().expect("a name");
    stage.cut(observer.history(3)).await.is_some()
}

async fn note_forced_release(stage: &Stage) -> bool {
    let observer = Election::new(&stage.me, NAME).observe().expect("a name");
    let noted = observer.note_forced_release("other", Some(FencingToken::new(7)), "a reason");
    stage.cut(noted).await.is_some()
}

async fn add_operation(stage: &Stage) -> bool {
    let operation = Operation {
        at: stage.env.wall(),
        by: "ann".into(),
        action: "forced-release".into(),
        target: NAME.into(),
        group: None,
        reason: None,
        done: true,
        result: "released".into(),
    };
    stage.cut(OperationLog::new(&stage.me).add(&operation)).await.is_some()
}

async fn newest_operations(stage: &Stage) -> bool {
    stage.cut(OperationLog::new(&stage.me).newest(3)).await.is_some()
}

async fn ask_to_resign(stage: &Stage) -> bool {
    let wait = 300 * MS;
    let election = Election::new(&stage.me, NAME).ttl(TTL).back_off(50 * MS).end_on_error();
    let mut observer = election.observe().expect("a name");
    let led = election.run(|term: Term| async move {
        let env = term.quorum().env().clone();
        let ends = env.now() + Duration::from_secs(1);
        env.before(ends, term.step_down_token().cancelled()).await;
        Err::<(), _>(ENOUGH)
    });
    let asks = async {
        stage.env.sleep(100 * MS).await;
        stage.cut(observer.ask_to_resign(None, wait)).await.is_some()
    };
    let (finished, led) = join(asks, led.until(std::future::pending::<()>())).await;
    assert!(matches!(led, Err(ElectionError::Work(ENOUGH))), "{led:?}");
    // A resign request expires a second after its sender has stopped waiting.
    stage.env.sleep(wait + Duration::from_secs(1) + SOON).await;
    finished
}
