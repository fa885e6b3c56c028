//! Competes for the leadership, and runs two jobs while it leads, one of each delivery rule.

use super::{Failure, be_told};
use crate::{
    journal::{Diary, Event, Journal},
    settings::{AT_LEAST_ONCE, AT_MOST_ONCE, GRACE, GROUP, LOOK_EVERY, MAKE_UP, TERM, TICK_EVERY, TTL},
};
use quorate::{
    election::{Election, Term},
    env::BootTime,
    quorum::Quorum,
    schedule::{Delivery, Job, RunAll, Scheduler, Tick, every},
};
use std::{convert::Infallible, sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;

/// How long most runs take.
const TAKES: Duration = Duration::from_millis(30);
/// How long every eighth takes, so that some are under way when something happens.
const TAKES_LONG: Duration = Duration::from_millis(700);

pub(super) async fn lead(
    quorum: &Quorum,
    journal: &Journal,
    stop: &CancellationToken,
) -> Result<(), Failure> {
    let _stop = stop.clone().drop_guard();
    let election = Election::new(quorum, GROUP).ttl(TTL).step_down_grace(GRACE).end_on_error();
    let scheduler = Scheduler::on(&election).job(job(AT_MOST_ONCE, Delivery::AtMostOnce, journal)?).job(job(
        AT_LEAST_ONCE,
        Delivery::AtLeastOnce,
        journal,
    )?);
    let campaign = election.run(|term: Term| {
        let (journal, scheduler) = (journal.clone(), scheduler.clone());
        async move {
            let asked = BootTime::default();
            let diary = Diary::begin(&journal, TERM, term.token().get(), asked, || term.remaining());
            // Over before it began: the campaign will say so.
            let Some(diary) = diary else { return Ok(()) };
            let tenure = Tenure { term, diary };
            let led = tokio::select! { biased;
                led = scheduler.lead(tenure.term.clone()) => led,
                () = tenure.watch() => return Ok(()),
            };
            if !tenure.term.is_valid() {
                tenure.be_told().await;
            }
            led.map_err(|error| error.to_string())
        }
    });
    Ok(campaign.until(stop.cancelled()).await?)
}

/// A term and its diary. The campaign drops it as soon as the lease is lost, and before it lets go of it.
struct Tenure {
    term: Term,
    diary: Diary,
}

impl Tenure {
    /// Looks at the term until it is over.
    async fn watch(&self) {
        let Self { term, diary } = self;
        while diary.look(|| term.remaining()) {
            tokio::select! { biased;
                () = term.step_down_token().cancelled(), if !diary.has_told() => diary.told(),
                () = term.quorum().env().sleep(LOOK_EVERY) => {}
            }
        }
        self.be_told().await;
    }

    async fn be_told(&self) {
        be_told(self.term.quorum().env(), &self.diary, self.term.step_down_token()).await;
    }
}

impl Drop for Tenure {
    fn drop(&mut self) {
        if self.term.step_down_token().is_cancelled() {
            self.diary.told();
        }
        self.diary.end(|| self.term.remaining());
    }
}

fn job(name: &'static str, delivery: Delivery, journal: &Journal) -> Result<Job, Failure> {
    let (journal, name): (_, Arc<str>) = (journal.clone(), name.into());
    let handler = {
        let name = Arc::clone(&name);
        move |tick: Tick| {
            let (journal, job) = (journal.clone(), Arc::clone(&name));
            async move {
                let (at, term) = (tick.at().as_micros(), tick.token().get());
                journal.write(Event::TickStart { job: Arc::clone(&job), tick: at, term });
                let long = (at / TICK_EVERY.as_micros() as u64).is_multiple_of(8);
                if let Some(term) = tick.term() {
                    term.quorum().env().sleep(if long { TAKES_LONG } else { TAKES }).await;
                }
                journal.write(Event::TickDone { job, tick: at, term });
                Ok::<(), Infallible>(())
            }
        }
    };
    Ok(Job::new(&name, every(TICK_EVERY)?, handler).delivery(delivery).misfire(RunAll::within(MAKE_UP)))
}
