//! The proofs for the kinds of locks in the fault-free phase. One worker after the other acquires a lock of the
//! seed's [`LockKind`], and the invariants require progress and order.

use super::{Process, Run};
use crate::sim::{
    Event, SeedRng, Waiter,
    scenario::WORKERS,
    worker::{FAIR, HANDED, LockKind, READ_WRITE, SLOTS, SLOTS_NAME},
};
use futures_util::future::{join, join3};
use quorate::lease::{Lease, ReadLease, TryAcquire};
use std::{fmt::Display, sync::Arc, time::Duration};

/// The longest time in which a worker acquires a lock that is free, or has just been released. A report of a
/// release may be missed, and the worker then tries again after 100 ms.
const ACQUIRED_IN: Duration = Duration::from_millis(250);
/// The time after which a waiter whose patience is over has joined the queue: it tries again at least every
/// 100 ms, and the request takes some milliseconds.
const JOINS_IN: Duration = Duration::from_millis(150);
/// The time for which a worker holds a lock.
const HELD_FOR: Duration = Duration::from_millis(30);
/// The TTL of the leases. No lease ends before its holder gives it up.
const TTL: Duration = Duration::from_secs(2);
/// The longest time for which a server keeps a reservation: a second of the server's clock.
const RESERVED_FOR: Duration = Duration::from_millis(1_110);
/// The number of times that each proof is repeated.
const ROUNDS: u64 = 2;

impl Run {
    /// Lets the workers use the seed's kind of lock, if the seed has one.
    pub(super) async fn prove_locks(&self) {
        let Some(kind) = self.duties[0].locks else { return };
        let workers: Vec<&Process> = self.workers.iter().flatten().collect();
        let Ok(mut workers) = <[&Process; WORKERS]>::try_from(workers) else { return };
        let mut rng = SeedRng::new(self.scenario.seed, "proofs of locks");
        for _ in 0..ROUNDS {
            workers.rotate_left(rng.index(WORKERS));
            if rng.chance(500) {
                workers.swap(0, 1);
            }
            match kind {
                LockKind::ReadWrite => self.prove_readers(workers).await,
                LockKind::Fair => self.prove_queue(workers, &mut rng).await,
                LockKind::Slots => self.prove_slots(workers).await,
                LockKind::Transfers => self.prove_transfer(workers).await,
                // The fault-free phase has judged the shards.
                LockKind::Shards => {}
            }
        }
    }

    /// Lets one worker write while another tries to read. Then the writer becomes a reader, a second reader
    /// joins, and a third worker waits to write until both have released the lock.
    async fn prove_readers(&self, [first, second, third]: [&Process; WORKERS]) {
        let write = |process: &Process| process.quorum.lock(READ_WRITE).ttl(TTL).wait(ACQUIRED_IN * 10);
        let read = |process: &Process| process.quorum.read_lock(READ_WRITE).ttl(TTL).wait(ACQUIRED_IN * 10);
        let Some(lease) = self.timed(first, write(first).acquire()).await else { return };
        let token = lease.unchecked_token().get();
        let held = self.referee.granted(&first.host, lease);
        if let Ok(TryAcquire::Acquired(lease)) = read(second).try_acquire().await {
            // The invariant *readers* judges the two leases.
            drop(self.referee.read(&second.host, lease, None));
        }
        let Some(lease) = held.take().and_then(Arc::into_inner) else { return };
        let Some(one) = self.timed(first, lease.downgrade()).await else { return };
        let one = self.referee.read(&first.host, one, Some(token));
        let Some(two) = self.timed(second, read(second).acquire()).await else { return };
        let two = self.referee.read(&second.host, two, None);
        if let Ok(TryAcquire::Acquired(lease)) = write(third).try_acquire().await {
            drop(self.referee.granted(&third.host, lease));
        }
        let writes = async {
            let lease = write(third).acquire().await;
            (self.truth.now(), lease)
        };
        let leaves = async {
            self.truth.pass(HELD_FOR).await;
            for held in [one, two] {
                self.referee.look();
                if let Some(lease) = held.take_reader().and_then(Arc::into_inner) {
                    self.released(lease.release().await);
                }
            }
            self.truth.now()
        };
        let ((acquired, lease), released) = join(writes, leaves).await;
        self.report(third, acquired.saturating_sub(released), &lease);
        if let Ok(lease) = lease {
            self.hold(third, lease).await;
        }
    }

    /// Lets two workers wait in the queue of a lock that a third one holds. After it has released the lock, the
    /// third worker tries to acquire it again, without waiting.
    async fn prove_queue(&self, [holder, one, two]: [&Process; WORKERS], rng: &mut SeedRng) {
        let lock = holder.quorum.lock(FAIR).ttl(TTL).wait(ACQUIRED_IN * 10);
        let Some(lease) = self.timed(holder, lock.acquire()).await else { return };
        let held = self.referee.granted(&holder.host, lease);
        let [first, second] = [(); 2].map(|()| (rng.millis(0..=300), rng.millis_up_to(&[1, 300])));
        let queued = |(after, patience): (Duration, Duration)| after + patience + JOINS_IN;
        let free_at = self.truth.now() + queued(first).max(queued(second)) + Duration::from_millis(10);
        let holds = async {
            self.truth.reach(free_at).await;
            if let Some(lease) = held.take().and_then(Arc::into_inner) {
                self.released(lease.release().await);
            }
            for _ in 0..4 {
                if let Ok(TryAcquire::Acquired(lease)) = lock.try_acquire().await {
                    self.referee.tell(&Event::Served { worker: holder.host.name(), waiter: None });
                    self.hold(holder, lease).await;
                }
                self.truth.pass(Duration::from_millis(7)).await;
            }
        };
        join3(holds, self.wait_in_queue(one, first, free_at), self.wait_in_queue(two, second, free_at)).await;
    }

    /// Waits for the lock, from `after` on, and joins the queue after `patience`. The lock is released at
    /// `free_at`.
    async fn wait_in_queue(
        &self,
        process: &Process,
        (after, patience): (Duration, Duration),
        free_at: Duration,
    ) {
        self.truth.pass(after).await;
        let lock = process.quorum.lock(FAIR).ttl(TTL).fair(patience).wait(ACQUIRED_IN * 10);
        let (number, worker) = (self.referee.next_number(), Arc::clone(process.host.name()));
        let waiter = Waiter { number, worker, began: process.quorum.env().wall() };
        let mut acquire = std::pin::pin!(lock.acquire());
        let early = tokio::select! { biased;
            got = &mut acquire => Some(got),
            () = self.truth.pass(patience + JOINS_IN) => None,
        };
        let got = match early {
            Some(got) => got,
            None => {
                self.referee.tell(&Event::Queued(&waiter));
                acquire.await
            }
        };
        // The other waiter may hold the lock first.
        let bound = ACQUIRED_IN + HELD_FOR;
        self.report_in(bound, process, self.truth.now().saturating_sub(free_at), &got);
        if let Ok(lease) = got {
            self.referee.tell(&Event::Served { worker: process.host.name(), waiter: Some(&waiter) });
            self.hold(process, lease).await;
        }
    }

    /// Lets all workers but one acquire a slot, so that none is free for the last one until another releases
    /// its slot.
    async fn prove_slots(&self, [first, second, third]: [&Process; WORKERS]) {
        let slots = |process: &Process| process.quorum.slots(SLOTS_NAME, SLOTS).ttl(TTL);
        let mut held = Vec::new();
        for process in [first, second] {
            let acquired = self.timed(process, slots(process).wait(ACQUIRED_IN * 10).acquire_any()).await;
            let Some((number, lease)) = acquired else { return };
            let resource = lease.resource().clone();
            held.push(self.referee.granted(&process.host, lease));
            let worker = process.host.name();
            self.referee.tell(&Event::SlotGranted { worker, resource: &resource, number });
        }
        for is_free in [false, true] {
            if is_free && let Some(lease) = held.pop().and_then(|held| held.take()).and_then(Arc::into_inner)
            {
                self.released(lease.release().await);
            }
            let found = slots(third).try_acquire_any().await;
            let found = found.ok().and_then(TryAcquire::acquired);
            let (worker, held) = (third.host.name(), held.len());
            self.referee.tell(&Event::SlotSought { worker, held, found: found.is_some() });
            if let Some((_, lease)) = found {
                self.hold(third, lease).await;
            }
        }
        for held in held {
            if let Some(lease) = held.take().and_then(Arc::into_inner) {
                self.released(lease.release().await);
            }
        }
    }

    /// Lets two workers wait for a lock whose holder transfers it to one of them. The successor must soon have
    /// it, and the other worker after it.
    async fn prove_transfer(&self, [holder, successor, other]: [&Process; WORKERS]) {
        let lock = |process: &Process| process.quorum.lock(HANDED).ttl(TTL).wait(ACQUIRED_IN * 10);
        let Some(lease) = self.timed(holder, lock(holder).acquire()).await else { return };
        let held = self.referee.granted(&holder.host, lease);
        let given_at = self.truth.now() + HELD_FOR * 2;
        let gives = async {
            self.truth.reach(given_at).await;
            if let Some(lease) = held.take().and_then(Arc::into_inner) {
                self.referee.transfer(&holder.host, lease, successor.host.name()).await;
            }
        };
        let waits = |process, bound| async move {
            let got = lock(process).acquire().await;
            self.report_in(bound, process, self.truth.now().saturating_sub(given_at), &got);
            if let Ok(lease) = got {
                self.hold(process, lease).await;
            }
        };
        join3(gives, waits(successor, ACQUIRED_IN), waits(other, ACQUIRED_IN * 2 + HELD_FOR)).await;
        // Servers that the successor did not ask keep the reservation until its end.
        self.truth.pass(RESERVED_FOR).await;
    }

    /// Holds a lease for a short time, and releases it.
    async fn hold(&self, process: &Process, lease: Lease) {
        let held = self.referee.granted(&process.host, lease);
        self.truth.pass(HELD_FOR).await;
        self.referee.look();
        if let Some(lease) = held.take().and_then(Arc::into_inner) {
            self.released(lease.release().await);
        }
    }

    fn released<E: Display>(&self, released: Result<(), E>) {
        if let Err(error) = released {
            self.referee.fail(&format!("a release in the fault-free phase: {error}"));
        }
    }

    /// Waits for `acquire`, and reports how long it took.
    async fn timed<T: Token, E: Display>(
        &self,
        process: &Process,
        acquire: impl Future<Output = Result<T, E>>,
    ) -> Option<T> {
        let began = self.truth.now();
        let got = acquire.await;
        self.report(process, self.truth.now() - began, &got);
        got.ok()
    }

    fn report<T: Token, E: Display>(&self, process: &Process, took: Duration, got: &Result<T, E>) {
        self.report_in(ACQUIRED_IN, process, took, got);
    }

    fn report_in<T: Token, E: Display>(
        &self,
        bound: Duration,
        process: &Process,
        took: Duration,
        got: &Result<T, E>,
    ) {
        let got = got.as_ref().map(Token::number).map_err(ToString::to_string);
        self.referee.tell(&Event::Calm { worker: process.host.name(), took, bound, got });
    }
}

/// A lease whose token a report names.
trait Token {
    fn number(&self) -> u64;
}

impl Token for Lease {
    fn number(&self) -> u64 {
        self.unchecked_token().get()
    }
}

impl Token for ReadLease {
    /// Returns zero, because a reader has no token.
    fn number(&self) -> u64 {
        0
    }
}

impl Token for (usize, Lease) {
    fn number(&self) -> u64 {
        self.1.number()
    }
}
