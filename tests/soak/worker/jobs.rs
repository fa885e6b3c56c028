//! Competes for the leadership, and runs two jobs while it leads, one of each delivery rule.

use super::Failure;
use crate::{
    journal::{Diary, Event, Journal},
    settings::{AT_LEAST_ONCE, AT_MOST_ONCE, GRACE, GROUP, LOOK_EVERY, MAKE_UP, TERM, TICK_EVERY, TTL},
};
use quorate::{
    election::{Election, Term},
    env::BootTime,
    lease::Quorum,
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
    let election = Election::new(quorum, GROUP).ttl(TTL).step_down_grace(GRACE);
    let scheduler = Scheduler::on(&election).job(job(AT_MOST_ONCE, Delivery::AtMostOnce, journal)?).job(job(
        AT_LEAST_ONCE,
        Delivery::AtLeastOnce,
        journal,
    )?);
    let campaign = election.run(|term: Term| {
        let (journal, scheduler) = (journal.clone(), scheduler.clone());
        async move {
            let asked = BootTime::default();
            let diary = Diary::begin(&journal, TERM, term.number().get(), asked, || term.remaining());
            // Over before it began: the campaign will say so.
            let Some(diary) = diary else { return Ok(()) };
            let watched = watch(&term, &diary);
            let led = tokio::select! { biased;
                led = scheduler.lead(term.clone()) => led,
                () = watched => return Ok(()),
            };
            // The last word before the lease is let go of.
            diary.end(|| term.remaining());
            led.map_err(|error| error.to_string())
        }
    });
    Ok(campaign.until(stop.cancelled()).await?)
}

/// Looks at the term until it is over.
async fn watch(term: &Term, diary: &Diary) {
    let env = term.quorum().env();
    let mut told = false;
    while diary.look(|| term.remaining()) {
        tokio::select! { biased;
            () = term.step_down().cancelled(), if !told => {
                told = true;
                diary.told();
            }
            () = env.sleep(LOOK_EVERY) => {}
        }
    }
}

fn job(name: &'static str, delivery: Delivery, journal: &Journal) -> Result<Job, Failure> {
    let (journal, name): (_, Arc<str>) = (journal.clone(), name.into());
    let handler = {
        let name = Arc::clone(&name);
        move |tick: Tick| {
            let (journal, job) = (journal.clone(), Arc::clone(&name));
            async move {
                let (at, term) = (tick.at().as_micros(), tick.term().number().get());
                journal.write(Event::TickStart { job: Arc::clone(&job), tick: at, term });
                let long = (at / TICK_EVERY.as_micros() as u64).is_multiple_of(8);
                tick.term().quorum().env().sleep(if long { TAKES_LONG } else { TAKES }).await;
                journal.write(Event::TickDone { job, tick: at, term });
                Ok::<(), Infallible>(())
            }
        }
    };
    Ok(Job::new(&name, every(TICK_EVERY)?, handler).delivery(delivery).misfire(RunAll::within(MAKE_UP)))
}
