//! Tests of a worker that reads and controls the jobs of another worker, which leads. Wherever the read or the
//! request is dropped, the job can still be controlled afterwards.

use crate::stage::{Matter, NAME, SOON, Stage, TTL};
use futures_util::future::join;
use quorate::{
    election::Election,
    env::WallTime,
    internals::JobAction,
    scheduler::{Job, Jobs, JobsError, Payload, Schedule, Scheduler},
};
use std::{convert::Infallible, time::Duration};
use tokio_util::sync::CancellationToken;

const JOB: &str = "j";
const MS: Duration = Duration::from_millis(1);

fn jobs(stage: &Stage) -> Jobs {
    Jobs::new(&stage.me, NAME).expect("a name").wait(5 * SOON)
}

/// Runs `tried`, which contains the cut, while the other worker leads and runs a job.
async fn led(stage: &Stage, tried: impl AsyncFnOnce(&Jobs) -> bool) -> bool {
    let job =
        Job::new(JOB, Schedule::every(500 * MS).expect("a period"), |_| async { Ok::<(), Infallible>(()) });
    let election = Election::new(stage.other(), NAME).ttl(TTL);
    let stop = CancellationToken::new();
    let run = Scheduler::on(&election).job(job).run();
    let tries = async {
        let jobs = jobs(stage);
        let registered = async {
            while jobs.check_exists(JOB).await.is_err() {
                stage.env.sleep(20 * MS).await;
            }
        };
        stage.soon("job", 10 * SOON, registered).await;
        let finished = tried(&jobs).await;
        // After every cut, the next request is answered, and the next read shows its effect.
        let paused = async {
            while let Err(error) = jobs.pause(JOB).await {
                // A request may fail while the connection to a node is being restored. So it is sent again.
                assert!(!matches!(error, JobsError::UnknownJob { .. }), "{error}");
                stage.env.sleep(20 * MS).await;
            }
        };
        stage.soon("answer", 20 * SOON, paused).await;
        let status = stage.soon("status", 5 * SOON, jobs.show(JOB)).await.expect("a majority");
        assert_eq!(status.paused_by.as_deref(), Some("me"));
        stop.cancel();
        finished
    };
    let (finished, ended) = join(tries, run.until(stop.clone().cancelled_owned())).await;
    ended.expect("nothing fails");
    finished
}

async fn look<T>(stage: &Stage, looked: impl AsyncFn(&Jobs) -> T) -> bool {
    led(stage, async |jobs| stage.cut(looked(jobs)).await.is_some()).await
}

async fn list(stage: &Stage) -> bool {
    look(stage, async |jobs| jobs.list().await).await
}

async fn show(stage: &Stage) -> bool {
    look(stage, async |jobs| jobs.show(JOB).await).await
}

async fn check_exists(stage: &Stage) -> bool {
    look(stage, async |jobs| jobs.check_exists(JOB).await).await
}

async fn history(stage: &Stage) -> bool {
    look(stage, async |jobs| jobs.history(JOB, 3).await).await
}

async fn overdue(stage: &Stage) -> bool {
    look(stage, async |jobs| jobs.overdue().await).await
}

async fn overview(stage: &Stage) -> bool {
    look(stage, async |jobs| jobs.overview().await).await
}

async fn why(stage: &Stage) -> bool {
    look(stage, async |jobs| jobs.why(JOB, None).await).await
}

async fn audit(stage: &Stage) -> bool {
    look(stage, async |jobs| jobs.audit(3).await).await
}

async fn next(stage: &Stage) -> bool {
    look(stage, async |jobs| jobs.next(JOB, WallTime::default(), 3).await).await
}

async fn schedule(stage: &Stage) -> bool {
    look(stage, async |jobs| jobs.schedule(JOB).await).await
}

async fn pause(stage: &Stage) -> bool {
    look(stage, async |jobs| jobs.pause(JOB).await).await
}

async fn pause_until(stage: &Stage) -> bool {
    let until = stage.env.wall() + 3600 * 1000 * MS;
    look(stage, async |jobs| jobs.pause_until(JOB, Some("a reason"), Some(until)).await).await
}

async fn freeze(stage: &Stage) -> bool {
    let until = stage.env.wall() + 3600 * 1000 * MS;
    look(stage, async |jobs| jobs.freeze(Some("a reason"), until).await).await
}

async fn unfreeze(stage: &Stage) -> bool {
    look(stage, async |jobs| jobs.unfreeze().await).await
}

async fn frozen(stage: &Stage) -> bool {
    look(stage, async |jobs| jobs.frozen().await).await
}

async fn workers(stage: &Stage) -> bool {
    look(stage, async |jobs| jobs.workers().await).await
}

async fn resume(stage: &Stage) -> bool {
    look(stage, async |jobs| jobs.resume(JOB).await).await
}

async fn trigger(stage: &Stage) -> bool {
    look(stage, async |jobs| jobs.trigger(JOB).await).await
}

async fn backfill(stage: &Stage) -> bool {
    let until = stage.env.wall();
    look(stage, async |jobs| jobs.backfill(JOB, until - 1000 * MS, until).await).await
}

async fn send(stage: &Stage) -> bool {
    look(stage, async |jobs| jobs.send(JobAction::trigger(JOB)).await).await
}

async fn cancel(stage: &Stage) -> bool {
    look(stage, async |jobs| jobs.cancel(JOB, None).await).await
}

async fn trigger_with(stage: &Stage) -> bool {
    let payload = Payload::new("asked").expect("short");
    look(stage, async |jobs| jobs.trigger_with(JOB, payload.clone()).await).await
}

fn on_nodes() -> Job {
    Job::named("on-nodes", Schedule::every(500 * MS).expect("a period"), "handler")
}

async fn put(stage: &Stage) -> bool {
    look(stage, async |jobs| jobs.put(&on_nodes()).await).await
}

async fn put_all(stage: &Stage) -> bool {
    look(stage, async |jobs| jobs.put_all(&[on_nodes()]).await).await
}

async fn remove(stage: &Stage) -> bool {
    led(stage, async |jobs| {
        while jobs.put(&on_nodes()).await.is_err() {
            stage.env.sleep(20 * MS).await;
        }
        stage.cut(jobs.remove("on-nodes")).await.is_some()
    })
    .await
}

async fn stored(stage: &Stage) -> bool {
    look(stage, async |jobs| jobs.stored().await.map(|jobs| jobs.len())).await
}

async fn stored_job(stage: &Stage) -> bool {
    look(stage, async |jobs| jobs.stored_job("on-nodes").await.map(|job| job.is_some())).await
}

async fn check_stored(stage: &Stage) -> bool {
    look(stage, async |jobs| jobs.check_stored("on-nodes").await).await
}

async fn check_reachable(stage: &Stage) -> bool {
    look(stage, async |jobs| jobs.check_reachable().await).await
}

async fn overview_of_jobs(stage: &Stage) -> bool {
    look(stage, async |jobs| jobs.overview_of_jobs().await.is_ok()).await
}

macro_rules! cases {
    ($($test:ident: $name:literal;)*) => {
        /// The futures that the tests of this file cover.
        pub(crate) const TRIED: &[&str] = &[$($name),*];

        mod tests {
            $(
                #[test]
                fn $test() {
                    crate::at_every_await_point($name, super::Matter::Lock, |stage| Box::pin(super::$test(stage)));
                }
            )*
        }
    };
}

cases! {
    list: "Jobs::list";
    show: "Jobs::show";
    check_exists: "Jobs::check_exists";
    history: "Jobs::history";
    overdue: "Jobs::overdue";
    overview: "Jobs::overview";
    why: "Jobs::why";
    audit: "Jobs::audit";
    next: "Jobs::next";
    schedule: "Jobs::schedule";
    pause: "Jobs::pause";
    pause_until: "Jobs::pause_until";
    freeze: "Jobs::freeze";
    unfreeze: "Jobs::unfreeze";
    frozen: "Jobs::frozen";
    workers: "Jobs::workers";
    resume: "Jobs::resume";
    trigger: "Jobs::trigger";
    backfill: "Jobs::backfill";
    send: "Jobs::send";
    cancel: "Jobs::cancel";
    trigger_with: "Jobs::trigger_with";
    put: "Jobs::put";
    put_all: "Jobs::put_all";
    remove: "Jobs::remove";
    stored: "Jobs::stored";
    stored_job: "Jobs::stored_job";
    check_stored: "Jobs::check_stored";
    check_reachable: "Jobs::check_reachable";
    overview_of_jobs: "Jobs::overview_of_jobs";
}
