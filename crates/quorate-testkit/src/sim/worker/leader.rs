use super::{
    Rank, Worker,
    jobs::{job, specs},
    sink::Letter,
};
use crate::sim::{Event, Holder, SeedRng, StoreRead, scenario::WORKERS};
use futures_util::FutureExt;
use quorate::{
    election::{Election, ElectionError, ResignError, Term},
    node::Resource,
    scheduler::Scheduler,
};
use std::{
    panic::{AssertUnwindSafe, resume_unwind},
    sync::Arc,
    time::Duration,
};

/// The name of the first group. Its jobs run on its leader.
pub(in super::super) const GROUP: &str = "g";

/// Returns the resource whose holder is the leader of the first group.
pub(in super::super) fn group() -> Resource {
    #[expect(clippy::expect_used, reason = "a name written by hand")]
    Resource::election(GROUP).expect("a sound name")
}

/// Campaigns and leads until the environment is stopped. Each campaign ends in one of several ways, and the
/// next campaign follows.
pub(super) async fn work(mut worker: Worker, rank: Rank) {
    let ttl = Duration::from_millis([1_000, 1_500, 2_500, 3_000][worker.rng.index(4)]);
    let election = rank.apply(Election::new(&worker.quorum, GROUP).ttl(ttl));
    if rank == Rank::NeverLeads {
        worker.referee.tell(&Event::NeverLeads { worker: worker.host.name() });
    }
    let mut number = 0;
    while !worker.is_stopped() {
        worker.think(&[10, 300]).await;
        number += 1;
        let tenant = Tenant { election: election.clone(), ttl, campaign: number, terms: 0 };
        worker.campaign(tenant).await;
    }
}

/// Sometimes asks the present leader to resign, until the faults are over.
pub(super) async fn ask_to_resign(mut worker: Worker) {
    let election = Election::new(&worker.quorum, GROUP);
    let Ok(mut observer) = election.observe() else { return };
    while !worker.is_stopped() && !worker.referee.is_calm() {
        let pause = worker.rng.millis_up_to(&[2_000, 9_000]);
        let stopped = worker.env.stopped().clone();
        tokio::select! { biased;
            () = stopped.cancelled() => return,
            () = worker.env.sleep(pause) => {}
        }
        if worker.referee.is_calm() {
            return;
        }
        let wait = worker.rng.millis(200..=1_000);
        let asked = observer.ask_to_resign(None, wait).await;
        worker.referee.count(match &asked {
            Ok(_) => "asked leader resigned",
            Err(ResignError::LeadsOn { .. }) => "asked leader leads on",
            Err(ResignError::NoLeader { .. }) => "no leader to ask",
            Err(_) => "leader not asked",
        });
    }
}

/// The parameters of one campaign, and the number of terms that it has had.
struct Tenant {
    election: Election,
    ttl: Duration,
    campaign: u64,
    terms: u64,
}

impl Worker {
    /// Runs one campaign, and may shut it down or drop it at any moment.
    async fn campaign(&mut self, mut tenant: Tenant) {
        let (how, time) = (self.rng.number(0..=9), self.rng.millis_up_to(&[400, 3_000, 9_000]));
        // Some campaigns start the leader's work again after it failed. The others end with the failure.
        let restarts = matches!(how, 0 | 2 | 4);
        let election = match restarts {
            true => {
                let (first, longest) = (Duration::from_millis(100), Duration::from_secs(1));
                tenant.election.clone().restart_backoff(first, longest)
            }
            false => tenant.election.clone().end_on_error(),
        };
        let leader = self.clone();
        let campaign = election.run(move |term| {
            tenant.terms += 1;
            leader.lead(&tenant, term)
        });
        let shutdown = async {
            tokio::select! { biased;
                () = self.env.stopped().cancelled() => {}
                () = self.patience(time), if how >= 7 || restarts => {}
            }
        };
        let campaign = AssertUnwindSafe(campaign.until(shutdown)).catch_unwind();
        let ended = tokio::select! { biased;
            ended = campaign => ended,
            () = self.patience(time), if (5..7).contains(&how) => {
                self.referee.count("campaign dropped");
                return;
            }
        };
        self.referee.count(match ended {
            Ok(Ok(())) => "campaign shut down",
            Ok(Err(ElectionError::Work(_))) => "campaign failed",
            Ok(Err(_)) => "campaign impossible",
            Err(_) => "campaign panicked",
        });
    }

    /// Does the leader's work of one term: runs the jobs and writes to the simulated stores. Sometimes ends the
    /// term early.
    fn lead(
        &self,
        tenant: &Tenant,
        term: Term,
    ) -> impl Future<Output = Result<(), &'static str>> + Send + use<> {
        let label = format!("term {} {} {}", self.label, tenant.campaign, tenant.terms);
        let mut worker = Self { rng: SeedRng::new(self.seed, &label), label, ..self.clone() };
        let (election, grace) = (tenant.election.clone(), tenant.ttl / 5);
        async move {
            let token = term.unchecked_token().get();
            let held = worker.referee.holds(&worker.host, Holder::Term(term.clone()), group(), token, grace);
            let _work = worker.referee.begin(&held, "its term");
            let jobs = specs().iter().map(|spec| job(spec, &worker, &held));
            let scheduler = jobs.fold(Scheduler::on(&election), Scheduler::job);
            let (how, time) = (worker.rng.number(0..=9), worker.rng.millis_up_to(&[200, 2_000, 6_000]));
            let patient = worker.clone();
            let leaves = worker.clone().leave(term.clone());
            tokio::select! { biased;
                () = leaves => Err("never"),
                led = scheduler.lead(term.clone()) => led.map_err(|_| "the jobs are not sound"),
                () = patient.patience(time), if how >= 5 => {
                    let count = |what| worker.referee.count(what);
                    match how {
                        5..=7 => { count("leader resigned"); Ok(()) }
                        8 => { count("leader failed"); Err("tired") }
                        // `resume_unwind` panics without the panic hook, which would print the panic.
                        _ => { count("leader panicked"); resume_unwind(Box::new("on purpose")) }
                    }
                }
                () = worker.clone().write_on(&term) => Err("never"),
            }
        }
    }

    /// Sometimes resigns the term, or transfers it to another worker. The function never returns.
    async fn leave(self, term: Term) {
        // A random stream of its own keeps this draw from changing the other draws.
        let mut rng = SeedRng::new(self.seed, &format!("leave {}", self.label));
        if rng.chance(300) {
            self.patience(rng.millis_up_to(&[500, 2_000, 5_000])).await;
            if !self.referee.is_calm() {
                let successor = format!("w{}", rng.index(WORKERS));
                let given = rng.chance(700) && term.transfer_to(&successor).is_ok();
                if !given {
                    term.resign();
                }
                self.referee.count(if given { "leader hands over" } else { "leader leaves" });
            }
        }
        std::future::pending::<()>().await;
    }

    /// Writes to the simulated stores again and again, until the future is dropped.
    async fn write_on(mut self, term: &Term) {
        loop {
            let pause = self.rng.millis(20..=400);
            self.env.sleep(pause).await;
            self.update("term", || term.fencing_token().ok().map(quorate::node::FencingToken::get)).await;
        }
    }

    /// Does the following on each of the two simulated stores: reads, waits, checks the fencing token, and
    /// writes. A write takes time to reach the store. Sometimes this time is so long that the token is then
    /// outdated.
    pub(super) async fn update(&mut self, register: &str, token: impl Fn() -> Option<u64>) {
        for checked in [true, false] {
            let Some(mine) = token() else { return };
            let fence = (mine, self.referee.next_number());
            let read = self.outside.sinks.read(checked, register, fence);
            let (worker, version) = (Arc::clone(self.host.name()), read.ok());
            let store_read = StoreRead { worker, checked, register: register.into(), fence, version };
            self.referee.judge(&Event::StoreRead(&store_read));
            let Ok(base) = read else {
                self.referee.count("checked read refused");
                return;
            };
            let think = self.rng.millis(0..=30);
            self.env.sleep(think).await;
            if token().is_none() {
                self.referee.count("write given up at the check");
                return;
            }
            let detour = !self.referee.is_calm() && self.rng.chance(100);
            let way = self.rng.millis(if detour { 200..=2_500 } else { 0..=3 });
            let (worker, sent) = (Arc::clone(self.host.name()), self.referee.truth().now());
            let letter = Letter { worker, checked, register: register.to_owned(), fence, base, sent };
            self.outside.sinks.send(self.referee.truth(), way, &self.referee, letter);
            self.env.sleep(way).await;
        }
    }
}
