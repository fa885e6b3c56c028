//! Singleton cron: three copies of a service have the same jobs, and each tick runs on one of them.

use quorate::{
    env::Env,
    scheduler::{Cron, Delivery, Job, Misfire, RunContext, Schedule, Scheduler},
};
use quorate_examples::{Failure, quorum};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio_util::sync::CancellationToken;

/// The number of runs of each tick, over all copies.
type Runs = Arc<Mutex<BTreeMap<u64, u32>>>;

async fn beat(name: &'static str, runs: Runs, tick: RunContext) -> Result<(), Failure> {
    let token = tick.fencing_token()?;
    println!("{name} runs {} for tick {:?} under token {token}", tick.job(), tick.scheduled_at());
    *runs
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .entry(tick.scheduled_at().as_micros())
        .or_default() += 1;
    Ok(())
}

/// Makes the nightly report, part by part. If the copy is stopped in between, the next leader runs the tick again.
async fn report(run: RunContext) -> Result<(), Failure> {
    for part in ["sales", "stock", "staff"] {
        if run.cancellation_token().is_cancelled() {
            return run.interrupted();
        }
        println!("the {part} report of {:?}", run.scheduled_at());
    }
    Ok(())
}

async fn copy(name: &'static str, runs: Runs, shutdown: CancellationToken) -> Result<(), Failure> {
    let quorum = quorum(name)?;
    let hour = Duration::from_secs(3600);
    // The job is due at three in the morning in Kyiv. If no copy could run it then, it runs once within the
    // hour.
    let nightly = Cron::parse("0 3 * * *")?.zone("Europe/Kyiv")?;
    let nightly = Job::new("nightly", nightly, report).misfire(Misfire::run_once(hour));
    // The job is due five times a second. A tick that no leader started during a handover gets a catch-up run.
    // A tick whose run may have begun is not run again.
    let beat = Job::new("beat", Schedule::every(Duration::from_millis(200))?, move |tick| {
        beat(name, Arc::clone(&runs), tick)
    })
    .misfire(Misfire::run_all(Duration::from_secs(60)))
    .delivery(Delivery::AtMostOnce);
    let scheduler = Scheduler::new(&quorum, "reports").ttl(Duration::from_secs(2)).job(nightly).job(beat);
    scheduler.run().until(shutdown.cancelled_owned()).await?;
    quorum.close().await;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let (runs, env) = (Runs::default(), Env::system());
    let (first, others) = (CancellationToken::new(), CancellationToken::new());
    let story = async {
        // One copy is stopped in the middle. If it was the leader, another copy takes over.
        env.sleep(Duration::from_millis(1500)).await;
        first.cancel();
        env.sleep(Duration::from_millis(1500)).await;
        others.cancel();
        Ok(())
    };
    tokio::try_join!(
        copy("a", Arc::clone(&runs), first.clone()),
        copy("b", Arc::clone(&runs), others.clone()),
        copy("c", Arc::clone(&runs), others.clone()),
        story
    )?;
    let runs = runs.lock().unwrap_or_else(PoisonError::into_inner);
    let twice = runs.values().filter(|&&times| times > 1).count();
    println!("{} ticks ran, {twice} of them twice", runs.len());
    if twice > 0 || runs.len() < 5 {
        return Err("a tick ran twice, or none ran".into());
    }
    Ok(())
}
