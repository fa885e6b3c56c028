//! The stage of each test: two workers, three servers, and the network between them. [`Stage::aftermath`]
//! makes the checks that follow every cut.

use crate::{
    cut::Cut,
    world::{PausedWorld, Road, Server},
};
use futures_util::future::BoxFuture;
use quorate::{
    claim::{ClaimOutcome, Claims},
    election::{Election, Term},
    env::{BootTime, Env},
    lease::Lock,
    quorum::{NodeState, Quorum, QuorumConfig},
};
use std::{
    cell::Cell,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio_util::sync::CancellationToken;

/// The TTL of every lease in these tests.
pub(crate) const TTL: Duration = Duration::from_secs(2);
pub(crate) const NODE_TIMEOUT: Duration = Duration::from_millis(100);
/// The time within which a released resource can be acquired. The release must reach the servers, and a waiter
/// that has just failed must try again.
pub(crate) const SOON: Duration = Duration::from_millis(600);
/// The name of the lock, group, set or message in every case.
pub(crate) const NAME: &str = "r";

/// The network to the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NetworkConditions {
    /// The workers have just started, and their handshakes are still in progress.
    Cold,
    /// A message takes some milliseconds each way, with a different delay for each server.
    Fair,
    /// One server never answers.
    OneAway,
    /// One server grants requests, but its answers arrive after the node timeout.
    OneLate,
    /// The fencing counters of the servers differ, so that a grant must raise some of them.
    Apart,
    /// A third worker acquires and releases the resource again and again, from the beginning of the case.
    Rival,
    /// One server is cut off at the moment of the cut, so that no release reaches it.
    CutOff,
}

impl NetworkConditions {
    pub(crate) const ALL: [Self; 7] =
        [Self::Cold, Self::Fair, Self::OneAway, Self::OneLate, Self::Apart, Self::Rival, Self::CutOff];
}

/// The kind of resource that a case uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Matter {
    Lock,
    Election,
    Claim,
}

/// Two workers, three servers, and the cut that the case makes.
pub(crate) struct Stage {
    pub(crate) env: Env,
    network: Env,
    pub(crate) servers: Vec<Arc<Server>>,
    pub(crate) me: Quorum,
    other: Quorum,
    rival: Option<(Quorum, CancellationToken)>,
    pub(crate) matter: Matter,
    pub(crate) conditions: NetworkConditions,
    pub(crate) cut: Cut,
    cut_at: Cell<Option<BootTime>>,
    /// The longest time that the other worker may have to wait for the resource after the cut. A case may
    /// change it.
    pub(crate) patience: Cell<Duration>,
    /// The longest time for which a reachable server may still store a key after both workers have acquired
    /// and released the resource. A case may change it.
    pub(crate) cleared_within: Cell<Duration>,
    /// True if the case has closed the first worker's quorum.
    pub(crate) closed: Cell<bool>,
}

impl Stage {
    pub(crate) async fn set(matter: Matter, conditions: NetworkConditions, cut: Cut) -> Self {
        let world = PausedWorld::new();
        let (env, network) = (Env::new(world.clone()), Env::new(world));
        let ms = |late: u64, fair: u64| {
            Duration::from_millis(if conditions == NetworkConditions::OneLate && late > 0 {
                late
            } else {
                fair
            })
        };
        let servers: Vec<_> = [(ms(0, 1), ms(0, 2)), (ms(0, 2), ms(0, 5)), (ms(60, 3), ms(60, 1))]
            .into_iter()
            .enumerate()
            .map(|(at, (there, back))| Server::new(&format!("server-{at}"), &network, there, back))
            .collect();
        servers[2].set_up(conditions != NetworkConditions::OneAway);
        let worker = |name: &str| quorum(name, &env, &servers);
        let (me, other) = (worker("me"), worker("other"));
        let rival =
            (conditions == NetworkConditions::Rival).then(|| (worker("rival"), CancellationToken::new()));
        let stage = Self {
            env,
            network,
            servers,
            me,
            other,
            rival,
            matter,
            conditions,
            cut,
            cut_at: Cell::new(None),
            patience: Cell::new(SOON),
            cleared_within: Cell::new(SOON),
            closed: Cell::new(false),
        };
        stage.warm_up().await;
        stage
    }

    async fn warm_up(&self) {
        if self.conditions == NetworkConditions::Cold {
            return;
        }
        let rival = self.rival.iter().map(|(quorum, _)| quorum);
        for quorum in [&self.me, &self.other].into_iter().chain(rival) {
            // The worker that writes the markers takes the time in them from its own estimate of the nodes'
            // clocks. So the other workers may have to wait for some milliseconds until the nodes vote.
            let trusted = || quorum.nodes().iter().filter(|node| node.state == NodeState::Trusted).count();
            let give_up = self.env.now() + Duration::from_secs(2);
            while trusted() < 2 {
                assert!(self.env.now() < give_up, "{:?}", quorum.nodes());
                self.env.sleep(Duration::from_millis(1)).await;
            }
        }
        if self.conditions == NetworkConditions::Apart {
            for away in [2, 0] {
                self.servers[away].set_up(false);
                take(&self.other, self.matter).await;
                self.servers[away].set_up(true);
                // The worker tries to connect to the server at least once a second. The test waits until it has
                // done so.
                let all = || self.other.nodes().iter().all(|node| node.state == NodeState::Trusted);
                self.until("met", Duration::from_secs(5), all).await;
                self.other.met(Duration::from_secs(1)).await;
            }
        }
        if let Some((quorum, stop)) = &self.rival {
            let (quorum, stop, matter) = (quorum.clone(), stop.clone(), self.matter);
            self.env.spawn(async move {
                while !stop.is_cancelled() {
                    take(&quorum, matter).await;
                    quorum.env().sleep(Duration::from_millis(15)).await;
                }
            });
        }
    }

    /// Runs `work` until the cut. Returns its output if it completed before.
    pub(crate) async fn cut<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        // A future that never completes by itself is dropped after this time.
        let ends = self.env.now() + Duration::from_secs(30);
        let output = self.env.before(ends, self.cut.run(work)).await.flatten();
        self.note_cut();
        output
    }

    /// Notes the time of the cut, or of the end of the future if it completed. In the conditions
    /// [`NetworkConditions::CutOff`], also cuts a server off.
    pub(crate) fn note_cut(&self) {
        if self.conditions == NetworkConditions::CutOff {
            self.servers[1].set_up(false);
        }
        self.cut_at.set(Some(self.env.now()));
    }

    /// Waits until `holds` returns true. Fails after the time `within`.
    pub(crate) async fn until(&self, what: &str, within: Duration, holds: impl Fn() -> bool) {
        let give_up = self.env.now() + within;
        while !holds() {
            assert!(self.env.now() < give_up, "no {what} in {within:?}");
            self.env.sleep(Duration::from_millis(5)).await;
        }
    }

    /// Returns the output of `work`, which must complete within the given time.
    pub(crate) async fn soon<T>(&self, what: &str, within: Duration, work: impl Future<Output = T>) -> T {
        let output = self.env.before(self.env.now() + within, work).await;
        output.unwrap_or_else(|| panic!("no {what} in {within:?}"))
    }

    pub(crate) fn lock(&self) -> Lock {
        self.me.lock(NAME).ttl(TTL)
    }

    /// Returns the second worker, which competes for the released resource.
    pub(crate) fn other(&self) -> &Quorum {
        &self.other
    }

    pub(crate) fn claims(&self) -> Claims {
        claims(&self.me)
    }

    /// Checks that the dropped future has left nothing behind. Both workers can acquire the resource. No
    /// reachable server stores a key of a lease, and no other server does so for longer than the TTL. No task
    /// is left.
    pub(crate) async fn aftermath(&self) {
        if let Some((quorum, stop)) = &self.rival {
            stop.cancel();
            self.soon("end of the rival", SOON, self.env.finish()).await;
            self.close(quorum).await;
        }
        self.soon("lease for another", self.patience.get(), take(&self.other, self.matter)).await;
        if !self.closed.get() {
            self.soon("lease for the same worker", SOON, take(&self.me, self.matter)).await;
        }
        let up = || self.servers.iter().filter(|server| server.is_up());
        let within = self.cleared_within.get();
        self.until("release everywhere", within, || up().all(|server| server.leases().is_empty())).await;
        // Every request that was sent before the cut has arrived by now, and its grant lasts no longer than the
        // TTL.
        let over = self.cut_at.get().expect("the case makes its cut") + TTL + Duration::from_millis(5);
        self.env.sleep_until(over).await;
        let left: Vec<_> = self.servers.iter().flat_map(|server| server.leases()).collect();
        let recent = |(_, owner, _): &(String, Arc<str>, Duration)| !owner.starts_with("me:");
        assert!(left.iter().all(recent), "keys behind after the TTL: {left:?}");
        self.close(&self.me).await;
        self.close(&self.other).await;
        self.soon("end of the network", Duration::from_secs(1), self.network.finish()).await;
    }

    /// Closes a worker's quorum, which must not take longer than two node timeouts. Checks that no task of the
    /// quorum is left.
    async fn close(&self, quorum: &Quorum) {
        let bound = NODE_TIMEOUT * 2 + Duration::from_millis(50);
        self.soon("close", bound, quorum.close()).await;
        assert_eq!(quorum.env().tasks_alive(), 0, "tasks of a closed quorum");
    }
}

fn quorum(name: &str, env: &Env, servers: &[Arc<Server>]) -> Quorum {
    let setup = QuorumConfig {
        worker: name.into(),
        node_timeout: NODE_TIMEOUT,
        max_ttl: TTL * 2,
        max_clock_offset: Duration::from_secs(1),
        trust_new_nodes: true,
        ..QuorumConfig::default()
    };
    let nodes = servers.iter().map(|server| Road(Arc::clone(server)));
    Quorum::builder().env(env.clone()).config(setup).nodes(nodes).build().expect("a sound setup")
}

fn claims(quorum: &Quorum) -> Claims {
    Claims::new(quorum, "s").ttl(TTL)
}

/// Acquires the resource of the case as soon as possible, and releases it.
fn take(quorum: &Quorum, matter: Matter) -> BoxFuture<'static, ()> {
    let quorum = quorum.clone();
    Box::pin(async move {
        match matter {
            Matter::Lock => {
                let lease = quorum.lock(NAME).ttl(TTL).acquire().await.expect("it waits");
                lease.fencing_token().expect("a fresh lease is valid");
                // If a server was cut off, fewer than a majority may confirm the release. So an error is
                // ignored.
                let _ = lease.release().await;
            }
            Matter::Claim => take_claim(&quorum).await,
            Matter::Election => {
                let election = Election::new(&quorum, NAME).ttl(TTL).end_on_error();
                let led =
                    election.run(|term: Term| async move { Err::<(), _>(term.fencing_token().is_ok()) });
                let ended = led.until(std::future::pending::<()>()).await;
                assert!(ended.is_err_and(|error| error.to_string().contains("true")), "a valid term");
            }
        }
    })
}

async fn take_claim(quorum: &Quorum) {
    loop {
        match claims(quorum).claim(NAME).await {
            Ok(ClaimOutcome::Claimed(claim)) => {
                claim.fencing_token().expect("a fresh claim is valid");
                let _ = claim.abandon().await;
                return;
            }
            Ok(ClaimOutcome::Done(_)) => return,
            Ok(_) | Err(_) => quorum.env().sleep(Duration::from_millis(50)).await,
        }
    }
}

/// A value that keeps a flag true while it exists. So a test sees whether the owner of this value was dropped.
#[derive(Debug)]
pub(crate) struct Alive(Arc<AtomicBool>);

impl Alive {
    pub(crate) fn new(flag: &Arc<AtomicBool>) -> Self {
        flag.store(true, Ordering::Relaxed);
        Self(Arc::clone(flag))
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}
