use super::{Settings, account, kept};
use crate::{
    harness::Journal,
    work::{
        Failure,
        lead::{CATCH_UP, GROUP, Run, TICK_EVERY},
    },
};
use quorate::{
    quorum::Quorum,
    scheduler::{Job, Misfire, Placement, RunContext, Schedule, Scheduler},
};
use quorate_tests::support::told_to_end;
use std::{convert::Infallible, time::Duration};

/// The duration of a run.
const TAKES: Duration = Duration::from_millis(20);

/// The work of one worker process: it runs the scheduler with all jobs.
pub(crate) async fn work(
    settings: &Settings,
    ttl: Duration,
    quorum: &Quorum,
    journal: &Journal,
) -> Result<(), Failure> {
    let mut scheduler = Scheduler::new(quorum, GROUP).ttl(ttl);
    for (number, name) in (0..).zip(settings.jobs()) {
        let journal = journal.clone();
        let handler = move |tick: RunContext| {
            let journal = journal.clone();
            async move {
                let run = Run::begin(&journal, &tick);
                journal.env().sleep(TAKES).await;
                run.complete();
                Ok::<(), Infallible>(())
            }
        };
        let job = Job::new(&name, Schedule::every(TICK_EVERY)?, handler).placement(Placement::AnyWorker);
        let job = job.delivery(account::delivery(number)).misfire(Misfire::run_all(CATCH_UP));
        scheduler = scheduler.job(job.history(kept(settings)));
    }
    scheduler.run().until(told_to_end()?).await?;
    Ok(())
}
