//! What very many jobs cost: measured by hand, in the release profile:
//! `cargo test --release -p quorate --lib -- --ignored --nocapture ten_thousand`.

use super::stage::{SECOND, Stage};
use crate::schedule::{Job, RunOnce, TickEnd, every};
use std::time::Duration;

/// The processor's time that this process has had, in seconds.
fn processor() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok()).unwrap_or_default();
    (ticks(11) + ticks(12)) / 100.0
}

#[tokio::test]
#[ignore = "takes half a minute; for measuring"]
async fn ten_thousand_jobs_of_which_five_hundred_are_due_each_second() {
    let stage = Stage::new();
    let env = stage.quorum.env().clone();
    // Each is due every twenty seconds, at a time of its own.
    let schedule = every(20 * SECOND).unwrap();
    let jobs: Vec<Job> = (0..10_000)
        .map(|number| {
            let job = Job::new(&format!("job-{number:05}"), schedule, |_| async { Ok::<(), String>(()) });
            job.jitter(20 * SECOND).misfire(RunOnce::within(20 * SECOND))
        })
        .collect();
    for worker in ["first", "second"] {
        let (began, cpu) = (env.now(), processor());
        let leader = stage.candidate(worker, &jobs);
        let counts = || leader.roster.counts().look();
        let done = || counts().jobs.values().filter_map(|job| job.ends.get(&TickEnd::Done)).sum::<u64>();
        stage.when("it leads", || done() > 0).await;
        println!(
            "{worker}: first run after {:.1?}, {:.2} s of processor",
            began.until(env.now()),
            processor() - cpu
        );
        // Over a whole round, so that each job is due.
        env.sleep(2 * SECOND).await;
        let (from, cpu, at) = (done(), processor(), env.now());
        env.sleep(20 * SECOND).await;
        let time = at.until(env.now()).as_secs_f64();
        let (ran, used) = (done() - from, processor() - cpu);
        let late = counts().lateness;
        println!(
            "{worker}: {:.0} runs a second, {:.0} % of a processor, late p50 {:?} p99 {:?} max {:?}; not written {}",
            f64::from(u32::try_from(ran).unwrap()) / time,
            100.0 * used / time,
            late.quantile(0.5),
            late.quantile(0.99),
            late.max(),
            counts().not_written,
        );
        assert!(ran > 8_000, "{ran}");
        leader.resigns().await;
    }
    let idle: Vec<Job> = jobs.iter().map(|job| job.clone().misfire(RunOnce::within(60 * SECOND))).collect();
    let far = every(Duration::from_secs(1_000_000)).unwrap();
    let idle: Vec<Job> =
        idle.iter().map(|job| Job::new(job.name(), far, |_| async { Ok::<(), String>(()) })).collect();
    let leader = stage.candidate("idle", &idle);
    env.sleep(5 * SECOND).await;
    let (cpu, at) = (processor(), env.now());
    env.sleep(10 * SECOND).await;
    let time = at.until(env.now()).as_secs_f64();
    println!("idle: {:.1} % of a processor with nothing due", 100.0 * (processor() - cpu) / time);
    leader.resigns().await;
}
