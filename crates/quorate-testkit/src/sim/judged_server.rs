//! The view of the [`Referee`] on a [`Server`].

use super::{
    Event, Excuse, NodeFault, Plan, Referee, Server, plain_commands::PlainCommands, scenario::true_wall,
};
use quorate::{
    env::WallTime,
    node::{
        Batch, BatchReply, MemoryStore, NodeTime, Refusal, ReleasedLease, Reply, Resource,
        engine::{self, Clocks},
    },
};
use quorate_test::sim::{ClockChange, ServerHooks, ServerView};
use std::{sync::Arc, time::Duration};

/// The time for which a server must not vote after it lost data. By the end of this time, every lease that
/// the server may have lost has ended.
const QUARANTINED: Duration = Duration::from_secs(3);

/// The largest step of a server's clock that the margins of the plans cover. After a larger step, no worker
/// may count the server's votes until every lease that the server granted before would have ended.
const FAR: Duration = Duration::from_millis(100);

/// The hooks of a server that the referee observes, and that may have a fault.
#[derive(Debug)]
pub(super) struct JudgedHooks {
    referee: Arc<Referee>,
    node_fault: Option<NodeFault>,
    /// Serves acquires of locks, if the plan says so.
    plain: Option<PlainCommands>,
}

impl JudgedHooks {
    pub(super) fn new(referee: Arc<Referee>, plan: &Plan) -> Self {
        let plain = plan.plain_commands.then(PlainCommands::default);
        Self { referee, node_fault: plan.node_fault, plain }
    }
}

impl ServerHooks for JudgedHooks {
    fn run(
        &self,
        store: &mut MemoryStore,
        batch: &Batch,
        clocks: Clocks,
        freed: &mut Vec<ReleasedLease>,
    ) -> BatchReply {
        // A server that saves a snapshot lets the referee look before it reports the batch.
        self.referee.note_freed(batch);
        match self.node_fault {
            Some(NodeFault::Timeless) => {
                let forever = NodeTime::from_micros(u64::MAX);
                let batch = Batch { not_after: forever, ..batch.clone() };
                engine::run_telling(store, &batch, clocks, freed)
            }
            Some(NodeFault::Forgetful) | None => match &self.plain {
                Some(plain) => plain.run(store, batch, clocks, freed),
                None => engine::run_telling(store, batch, clocks, freed),
            },
            Some(node_fault) => super::node_fault::run(store, batch, clocks, node_fault),
        }
    }

    fn hides_losses(&self) -> bool {
        self.node_fault == Some(NodeFault::Forgetful)
    }

    fn takes_snapshots(&self) -> bool {
        true
    }

    fn forgot(&self, node: &str) {
        self.referee.tell(&Event::Forgot { node });
    }

    fn restored(&self, node: &str) {
        self.referee.tell(&Event::Restored { node });
    }

    fn saved(&self, node: &str) {
        self.referee.tell(&Event::Saved { node });
    }

    fn ran(&self, node: &str, batch: &Batch, reply: &BatchReply) {
        for (request, reply) in batch.requests.iter().zip(&reply.replies) {
            // No simulated server is out of memory, and no other program writes to it.
            if let Reply::Refused(
                refusal @ (Refusal::Unable(_) | Refusal::Failed(_) | Refusal::WrongType(_)),
            ) = reply
            {
                self.referee.fail(&format!("{node} cannot serve {request:?}: {refusal}"));
            }
        }
        self.referee.ran(node, batch, reply);
    }

    fn sender_is_gone(&self) {
        self.referee.count("ran on a broken connection");
    }
}

/// The state of a server at one moment, from which follows which leases it backs.
#[derive(Debug)]
pub(super) struct Backer<'a> {
    index: usize,
    view: ServerView<'a>,
    grants_nothing: Option<Excuse>,
}

/// The end of a worker's lease on a server, while the server's data have this version. No server has the version 0.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SeenLease {
    version: u64,
    end: u64,
}

impl<'a> Backer<'a> {
    pub(super) fn of(index: usize, server: &'a Server, now: Duration) -> Self {
        let view = server.view();
        let barred = |since: Option<Duration>| since.is_some_and(|at| now < at + QUARANTINED);
        let far = || view.clock_changes().iter().rev().find(|change| is_far(change)).map(|change| change.at);
        let reasons = [
            (!view.is_up() && !view.is_durable()).then_some(Excuse::BackingDown),
            barred(view.forgot_at()).then_some(Excuse::BackingForgot),
            barred(far()).then_some(Excuse::BackingStepped),
        ];
        let grants_nothing = reasons.into_iter().flatten().next();
        Self { index, view, grants_nothing }
    }

    pub(super) fn index(&self) -> usize {
        self.index
    }

    /// Returns `true` if the server stores a lease on `resource` of an owner for which `is_ours` returns `true`. Keeps
    /// the end of the lease in `seen` until the server's data change, because the referee asks after each event.
    pub(super) fn stores(
        &self,
        resource: &Resource,
        is_ours: impl Fn(&str) -> bool,
        seen: &mut SeenLease,
    ) -> bool {
        let version = self.view.version();
        if seen.version != version {
            *seen = SeenLease { version, end: self.view.lease_end(resource, is_ours) };
        }
        self.view.is_future(seen.end)
    }

    /// Returns the reason why the server, if it is honest, cannot grant any lease now. There are three:
    ///
    /// - the server is down and not durable (a durable server may vote as soon as it is up again);
    /// - the server lost data so recently that it must be in quarantine;
    /// - the server's clock stepped so far and so recently that no worker may count its grants.
    pub(super) fn grants_nothing(&self) -> Option<Excuse> {
        self.grants_nothing
    }
}

fn is_far(change: &ClockChange) -> bool {
    Duration::from_nanos(change.before.abs_diff(change.after)) > FAR
}

/// Returns the largest amount by which the server's clock was ahead of the true time, within the time
/// `within` before now. Between two changes, a clock drifts in one direction only. The largest amount
/// therefore occurs just before or after a change, or now.
pub(super) fn was_ahead(server: &Server, within: Duration) -> Duration {
    let now = server.truth().now();
    let ahead = |at, nanos: u64| true_wall(at).until(WallTime::from_micros(nanos / 1_000));
    let shown = server.wall_nanos();
    let view = server.view();
    let recent = view.clock_changes().iter().filter(|change| change.at + within >= now);
    let largest = recent.map(|change| ahead(change.at, change.before).max(ahead(change.at, change.after)));
    largest.fold(ahead(now, shown), Duration::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::{SimClock, Trace, Truth};
    use quorate::node::engine::Store as _;

    fn backs(server: &Server, resource: &Resource, is_ours: impl Fn(&str) -> bool) -> bool {
        let server = Backer::of(0, server, server.truth().now());
        server.stores(resource, is_ours, &mut SeenLease::default()) || server.grants_nothing().is_some()
    }

    fn hooks(referee: Arc<Referee>) -> Arc<JudgedHooks> {
        Arc::new(JudgedHooks::new(referee, &Plan::default()))
    }

    /// Checks that a durable server that is down counts only for the leases that it stores. Such a server
    /// votes for any worker as soon as it is up again.
    #[tokio::test(start_paused = true)]
    async fn a_durable_server_that_is_down_backs_what_it_holds_alone() {
        let truth = Truth::begin();
        let resource = Resource::lock("x").unwrap();
        for durable in [false, true] {
            let referee = Referee::new(truth, Trace::none(truth), Plan::default().setup);
            let server = Server::start("n0", truth, SimClock::default(), durable, hooks(referee), None);
            assert!(!backs(&server, &resource, |_| true));
            server.crash();
            assert_eq!(backs(&server, &resource, |_| true), !durable);
            let row = engine::LeaseRow { owner: "a".into(), until_nanos: 1_000_000_000, readers: Vec::new() };
            let Ok(()) = server.with_store(|store, _| store.set_lease(&resource, Some(row)));
            assert!(backs(&server, &resource, |owner| owner == "a"), "it comes back with it");
        }
    }

    /// Checks a server whose clock was set far ahead. No worker may count its votes for as long as a lease
    /// from before that step can last. During that time the server must count as one that cannot grant a
    /// lease to another owner.
    #[tokio::test(start_paused = true)]
    async fn a_server_whose_clock_was_set_far_ahead_backs_until_every_earlier_lease_is_over() {
        let truth = Truth::begin();
        let resource = Resource::lock("x").unwrap();
        let referee = Referee::new(truth, Trace::none(truth), Plan::default().setup);
        let server = Server::start("n0", truth, SimClock::default(), false, hooks(referee), None);
        server.step(95);
        assert!(!backs(&server, &resource, |_| true), "within what the margins are for");
        server.step(1_000);
        assert!(backs(&server, &resource, |_| true));
        truth.pass(QUARANTINED).await;
        assert!(!backs(&server, &resource, |_| true), "no longer than any lease of before");
    }

    /// Checks that a clock which was ahead only long ago does not excuse an early start.
    #[tokio::test(start_paused = true)]
    async fn an_old_clock_error_is_no_excuse() {
        let truth = Truth::begin();
        let referee = Referee::new(truth, Trace::none(truth), Plan::default().setup);
        let right = SimClock { start_nanos: true_wall(Duration::ZERO).as_micros() * 1_000, rate_ppm: 0 };
        let server = Server::start("n0", truth, right, false, hooks(referee), None);
        let (second, ms) = (Duration::from_secs(1), Duration::from_millis(90));
        server.step(90);
        truth.pass(second).await;
        assert_eq!(was_ahead(&server, second), ms);
        server.step(-90);
        truth.pass(second).await;
        assert_eq!(was_ahead(&server, second), ms, "until a second ago");
        truth.pass(second).await;
        assert_eq!(was_ahead(&server, second), Duration::ZERO);
    }
}
