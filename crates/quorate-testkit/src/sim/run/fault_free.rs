//! The fault-free phase, which follows the faults. The workers continue their work, and the invariants require
//! progress. The *second group*, also called the pool, runs most of its jobs on any worker.

use super::Run;
use crate::sim::{
    Event,
    worker::{LockKind, Operator, Rank, group},
};
use futures_util::future::{join, join4};
use quorate::env::WallTime;
use std::time::Duration;

/// The longest time from the end of the last quarantine until there is a leader. The leases of crashed
/// workers end no later than that quarantine.
const LEADS_IN: Duration = Duration::from_millis(600);
/// The longest time within which a preferred worker that does not lead has been healthy for long enough, also if its work
/// has failed often, was noticed by the leader, and leads.
const HANDED_OVER_IN: Duration = Duration::from_secs(12);
/// The longest time within which a new leader must catch up on all missed ticks.
const MAKES_UP_IN: Duration = Duration::from_millis(1_500);
/// The time for which the leader is observed after it has caught up.
const WATCHED_FOR: Duration = Duration::from_secs(3);
/// The longest time from the last quarantine until the operator has lifted all pauses. In this time an old
/// request may expire, a leader is elected, and the operator sends two requests.
const RESUMED_IN: Duration = Duration::from_millis(3_500);
/// The longest time from the end of the faults until the operator has lifted all pauses, if no quarantine takes longer.
/// The operator may just have begun a pause of 4 s. It then waits for 4 s, until its earlier requests have expired, and
/// sends two requests. The leader finds the first one late, because it has received none for a while.
const LIFTED_IN: Duration = Duration::from_secs(10);
/// The longest time within which the workers of the second group must catch up on all missed ticks.
const CATCHES_UP_IN: Duration = Duration::from_millis(1_500);
/// The longest time within which each shard has an owner and the shares are equal. Before, a worker with another number of
/// shards leaves, after up to 9 s.
const SHARED_IN: Duration = Duration::from_secs(14);
/// The longest time within which a run of the third group follows another one.
const FOLLOWED_IN: Duration = Duration::from_secs(7);
/// The time for which the second group is observed after it has caught up.
const SETTLED_FOR: Duration = Duration::from_millis(2_500);
/// The longest time within which the consumers must complete every message.
const DONE_IN: Duration = Duration::from_millis(4_500);
/// The same for the messages that have an attempt limit. Some of them are attempted until they are given up.
const LIMITED_DONE_IN: Duration = Duration::from_millis(7_000);

impl Run {
    /// Runs the workers without faults. In this phase a leader is elected, missed ticks are caught up on, and
    /// every message is completed. Returns the true wall times between which the second group worked without
    /// faults, or `None` if this run has no second group.
    pub(super) async fn run_fault_free_phase(&mut self) -> Option<(WallTime, WallTime)> {
        let has_shards = self.duties[0].locks == Some(LockKind::Shards);
        let has_rules = self.duties.iter().any(|duties| duties.rules);
        let works = has_rules
            || self.duties.iter().any(|duties| duties.jobs || duties.claims || duties.pool || duties.limited);
        if !works && !has_shards {
            return None;
        }
        self.trace.note(format_args!("the workers go on in peace"));
        // A driver is in back-off for at most a second. The rest of the wait is the quarantine, which outlasts every
        // lease.
        let served = self.plan.setup.quarantine().mul_f64(1.0 + self.plan.setup.drift_rate);
        let began = self.truth.now();
        let usable = began + served + Duration::from_millis(1_100);
        let jobs = async {
            if self.duties.iter().any(|duties| duties.jobs) {
                self.watch_jobs(began, usable + LEADS_IN).await;
            }
        };
        let messages = async {
            if self.duties.iter().any(|duties| duties.claims) {
                self.watch_messages(began, usable + DONE_IN).await;
            }
        };
        let limited = async {
            if self.duties.iter().any(|duties| duties.limited) {
                let none_open = || (self.outside.limited.open() == 0).then_some(0);
                self.watch("the limited messages", began, usable + LIMITED_DONE_IN, none_open).await;
            }
        };
        let pool = async {
            let (_, operator) = self.operator.as_ref().filter(|_| self.has_pool())?;
            let until = (usable + RESUMED_IN).max(began + LIFTED_IN);
            Some(self.watch_pool(operator, began, until).await)
        };
        let rules = async {
            if has_rules {
                let workers = self.duties.iter().filter(|duties| duties.rules).count();
                let followed = || self.outside.rules.followed_since(usable).then_some(0);
                let on_each = || self.outside.rules.ran_on_each_since(usable, workers).then_some(0);
                let until = usable + FOLLOWED_IN;
                join(
                    self.watch("a job that follows another", began, until, followed),
                    self.watch("a job on every worker", began, until, on_each),
                )
                .await;
                self.referee.count("rules followed");
            }
        };
        let shards = async {
            if has_shards {
                let balanced = || self.outside.shards.is_balanced(&self.referee).then_some(0);
                self.watch("the shards", began, usable + SHARED_IN, balanced).await;
                self.referee.count("shards balanced");
            }
        };
        join(join(shards, rules), join4(jobs, messages, limited, pool)).await.1.3
    }

    /// Waits until the operator has lifted all pauses and the workers have caught up. Then observes the second
    /// group, and returns the true wall times of the beginning and the end of this observation.
    async fn watch_pool(
        &self,
        operator: &Operator,
        began: Duration,
        until: Duration,
    ) -> (WallTime, WallTime) {
        let resumed = || operator.has_resumed().then_some(0);
        self.watch("the operator", began, until, resumed).await;
        self.truth.pass(CATCHES_UP_IN).await;
        let since = self.referee.true_wall();
        self.truth.pass(SETTLED_FOR).await;
        (since, self.referee.true_wall())
    }

    /// Lets the operator read the histories of the second group, after the workers have stopped.
    pub(super) async fn read_histories(&self, settled: Option<(WallTime, WallTime)>) {
        let (Some((since, until)), Some((_, operator))) = (settled, &self.operator) else { return };
        operator.read_histories().await;
        self.referee.count("pool settled");
        self.referee.judge(&Event::Settled { since, until });
    }

    async fn watch_jobs(&self, began: Duration, until: Duration) {
        let group = group();
        let leader = || self.referee.leader(&group);
        self.watch("the group", began, until, leader).await;
        let preferred = self.duties.iter().position(|duties| duties.rank == Rank::Preferred);
        let until = match preferred {
            Some(preferred) => {
                let name = format!("w{preferred}");
                let leads = || self.referee.leader_of(&group).filter(|(worker, _)| **worker == *name);
                let token = || Some(leads()?.1);
                self.watch("the preferred worker", began, until + HANDED_OVER_IN, token).await;
                self.referee.count("the preferred worker leads");
                until.max(self.truth.now())
            }
            None => until,
        };
        // A leader that was elected during the quarantine may still lose its term, because of an earlier
        // fault. A leader that was elected after the quarantine may not.
        self.truth.reach(until).await;
        let term = leader();
        let led_since = self.referee.true_wall();
        self.truth.pass(MAKES_UP_IN + WATCHED_FOR).await;
        if let Some(term) = term {
            let same = leader() == Some(term);
            let got =
                if same { Ok(term) } else { Err(format!("the term {term} ended in the fault-free phase")) };
            self.report_calm("the leader", Duration::ZERO, Duration::ZERO, got);
        }
        let (served_since, now): (WallTime, _) = (led_since + MAKES_UP_IN, self.referee.true_wall());
        self.referee.count("ticks reckoned");
        self.referee.tell(&Event::Reckoned { served_since, now });
    }

    async fn watch_messages(&self, began: Duration, until: Duration) {
        let none_open = || (self.outside.inbox.open() == 0).then_some(0);
        self.watch("the messages", began, until, none_open).await;
    }

    /// Waits until `there` returns a value, but not longer than `until`. Reports to the referee how long the
    /// wait for `what` took, and its result.
    pub(super) async fn watch(
        &self,
        what: &str,
        began: Duration,
        until: Duration,
        there: impl Fn() -> Option<u64>,
    ) {
        let got = loop {
            match there() {
                Some(token) => break Ok(token),
                None if self.truth.now() > until => break Err("the time is over".to_owned()),
                None => self.truth.pass(Duration::from_millis(10)).await,
            }
        };
        self.report_calm(what, self.truth.now() - began, until - began, got);
    }

    fn report_calm(&self, worker: &str, took: Duration, bound: Duration, got: Result<u64, String>) {
        self.trace.note(format_args!("{worker}: {got:?} after {took:?}"));
        self.referee.tell(&Event::Calm { worker, took, bound: bound + Duration::from_millis(20), got });
    }
}
