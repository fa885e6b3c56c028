//! Tests of many jobs under one leader. By default there are 300 jobs. This command measures the cost of ten
//! thousand jobs: `QUORATE_JOBS=10000 cargo test --release -p quorate --lib -- --nocapture many_jobs`.

use crate::scheduler::{
    job::{Job, RunOutcome},
    leader::tests::stage::{SECOND, Stage},
    policy::Misfire,
    schedule::Schedule,
};
use std::time::Duration;

/// Returns the processor time that this process has used so far, in seconds.
fn processor() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok()).unwrap_or_default();
    (ticks(11) + ticks(12)) / 100.0
}

#[tokio::test]
async fn many_jobs_all_run_under_one_leader_and_the_next() {
    let asked_for: Option<u64> = std::env::var("QUORATE_JOBS").ok().map(|text| text.parse().unwrap());
    let number = asked_for.unwrap_or(300);
    // Each job is due once in each round, and the jobs' ticks are spread evenly over the round.
    let round = if asked_for.is_some() { 20 * SECOND } else { 2 * SECOND };
    let stage = Stage::new();
    let env = stage.quorum.env().clone();
    let schedule = Schedule::every(round).unwrap();
    let jobs: Vec<Job> = (0..number)
        .map(|number| {
            let job =
                Job::new(&format!("job-{number:05}"), schedule.clone(), |_| async { Ok::<(), String>(()) });
            job.jitter(round).misfire(Misfire::run_once(round))
        })
        .collect();
    for worker in ["first", "second"] {
        let (began, cpu) = (env.now(), processor());
        let leader = stage.candidate(worker, &jobs);
        let counts = || leader.registry.counts().snapshot();
        let done = || counts().jobs.values().filter_map(|job| job.ends.get(&RunOutcome::Done)).sum::<u64>();
        stage.when("it leads", || done() > 0).await;
        println!(
            "{worker}: first run after {:.1?}, {:.2} s of processor",
            began.until(env.now()),
            processor() - cpu
        );
        let all_ran =
            || counts().jobs.values().filter(|job| job.ends.contains_key(&RunOutcome::Done)).count();
        stage.within(2 * round + 30 * SECOND, "each job has run", || all_ran() == jobs.len()).await;
        let (from, cpu, at) = (done(), processor(), env.now());
        if asked_for.is_some() {
            env.sleep(round).await;
        }
        let time = at.until(env.now()).as_secs_f64().max(0.001);
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
        assert!(asked_for.is_none() || ran * 10 > number * 8, "{ran} of {number}");
        leader.resigns().await;
    }
    if asked_for.is_none() {
        return;
    }
    let idle: Vec<Job> = jobs.iter().map(|job| job.clone().misfire(Misfire::run_once(60 * SECOND))).collect();
    let far = Schedule::every(Duration::from_secs(1_000_000)).unwrap();
    let idle: Vec<Job> = idle
        .iter()
        .map(|job| Job::new(job.name(), far.clone(), |_| async { Ok::<(), String>(()) }))
        .collect();
    let leader = stage.candidate("idle", &idle);
    env.sleep(5 * SECOND).await;
    let (cpu, at) = (processor(), env.now());
    env.sleep(10 * SECOND).await;
    let time = at.until(env.now()).as_secs_f64();
    println!("idle: {:.1} % of a processor with nothing due", 100.0 * (processor() - cpu) / time);
    leader.resigns().await;
}
