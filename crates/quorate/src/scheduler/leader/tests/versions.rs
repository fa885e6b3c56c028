//! Tests of jobs that change, either between two versions of a program or while the scheduler runs.

use crate::{
    env::WallTime,
    scheduler::{
        handle::SchedulerHandle,
        job::{Job, RunContext},
        leader::tests::stage::{Begun, PERIOD, SECOND, Stage, never, often},
        policy::{Delivery, Misfire},
        registry::Phase,
        schedule::Schedule,
    },
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

fn recording(name: &str, period: Duration, begun: &Begun, hangs: bool) -> Job {
    let begun = Arc::clone(begun);
    let job = Job::new(name, Schedule::every(period).unwrap(), move |tick: RunContext| {
        begun.lock().unwrap().push(tick.scheduled_at());
        async move {
            if hangs {
                std::future::pending::<()>().await;
            }
            Ok::<(), String>(())
        }
    });
    job.misfire(Misfire::run_all(60 * SECOND))
}

#[tokio::test]
async fn another_schedule_counts_from_its_first_leader_on_and_unfinished_runs_end() {
    for delivery in [Delivery::AtMostOnce, Delivery::AtLeastOnce] {
        let (stage, old, new) = (Stage::new(), Begun::default(), Begun::default());
        let first = stage.candidate("a", &[recording("j", PERIOD, &old, true).delivery(delivery)]);
        stage.when("it runs", || !old.lock().unwrap().is_empty()).await;
        first.crashes().await;
        let cut = old.lock().unwrap()[0];
        stage.quorum.env().sleep(SECOND / 2).await;
        let before = stage.quorum.env().wall();
        let odd = Duration::from_millis(70);
        let next = stage.candidate("b", &[recording("j", odd, &new, false).delivery(delivery)]);
        stage.when("it runs by the new one", || new.lock().unwrap().len() > 5).await;
        next.resigns().await;
        let of_old: Vec<WallTime> =
            new.lock().unwrap().iter().copied().filter(|tick| *tick <= before).collect();
        match delivery {
            Delivery::AtMostOnce => assert!(of_old.is_empty(), "no tick is caught up on: {of_old:?}"),
            Delivery::AtLeastOnce => assert_eq!(of_old, [cut], "only the unfinished run"),
        }
        // When the first leader with the new schedule began, the job's ticks started to count again from there. So a later
        // leader with that schedule runs catch-ups only for ticks after that moment.
        let since = new.lock().unwrap().iter().copied().filter(|tick| *tick > before).min().expect("ticks");
        let last = stage.candidate("c", &[recording("j", odd, &new, false).delivery(delivery)]);
        let so_far = new.lock().unwrap().len();
        stage.when("it runs", || new.lock().unwrap().len() > so_far + 5).await;
        last.resigns().await;
        let mut ticks = new.lock().unwrap().clone();
        ticks.retain(|tick| *tick != cut);
        ticks.sort_unstable();
        assert_eq!(ticks.first(), Some(&since));
        assert!(
            ticks.windows(2).all(|two| two[0].until(two[1]) == odd),
            "each once, none missing: {ticks:?}"
        );
    }
}

#[tokio::test]
async fn jobs_are_added_and_removed_while_others_run() {
    let (stage, begun) = (Stage::new(), Begun::default());
    let long = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&long);
    let steady = Job::new("steady", often(), move |tick: RunContext| {
        count.fetch_add(1, Ordering::Relaxed);
        async move {
            tick.cancellation_token().cancelled().await;
            Ok::<(), String>(())
        }
    });
    let leader = stage.candidate("a", std::slice::from_ref(&steady));
    let handle = SchedulerHandle { registry: leader.registry.clone() };
    stage.when("it runs", || long.load(Ordering::Relaxed) == 1).await;
    handle.add(recording("new", PERIOD, &begun, false)).unwrap();
    let twice = handle.add(recording("new", PERIOD, &begun, false)).unwrap_err();
    assert!(twice.to_string().contains("the name of a job is \"new\", which another job has"), "{twice}");
    stage.when("the new one runs", || begun.lock().unwrap().len() > 2).await;
    let other = Begun::default();
    handle.set_jobs(vec![steady.clone(), recording("new", PERIOD / 2, &other, false)]).unwrap();
    stage.when("by the other schedule", || other.lock().unwrap().len() > 4).await;
    let names: Vec<_> = handle.jobs().iter().map(|job| job.name().to_string()).collect();
    assert_eq!(names, ["new", "steady"]);
    assert!(handle.remove("new") && !handle.remove("new"));
    // The leader handles changes of the jobs in their order. So when the job `third` runs, the leader has
    // already removed the job `new`.
    let third = Begun::default();
    handle.add(recording("third", PERIOD, &third, false)).unwrap();
    stage.when("the third runs", || third.lock().unwrap().len() > 1).await;
    let so_far = other.lock().unwrap().len();
    stage.when("the third runs on", || third.lock().unwrap().len() > 4).await;
    assert_eq!(other.lock().unwrap().len(), so_far, "the removed job does not start");
    assert_eq!(long.load(Ordering::Relaxed), 1, "the run of the unchanged job goes on");
    // A job that is removed and added again starts as a new job.
    let again = Begun::default();
    let now = stage.quorum.env().wall();
    handle.add(recording("new", PERIOD, &again, false)).unwrap();
    stage.when("it runs again", || again.lock().unwrap().len() > 2).await;
    assert!(again.lock().unwrap().iter().all(|tick| *tick >= now), "{again:?} before {now:?}");
    leader.resigns().await;
}

#[tokio::test]
async fn a_drain_waits_for_active_runs_and_starts_no_other() {
    let stage = Stage::new();
    let (begun, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (count, ended) = (Arc::clone(&begun), Arc::clone(&done));
    let job = Job::new("j", often(), move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        let ended = Arc::clone(&ended);
        async move {
            crate::env::Env::system().sleep(PERIOD * 5).await;
            ended.fetch_add(1, Ordering::Relaxed);
            Ok::<(), String>(())
        }
    });
    let idle = Job::new("idle", never(), |_| async { Ok::<(), String>(()) });
    let scheduler =
        crate::scheduler::builder::Scheduler::new(&stage.quorum, "g").ttl(SECOND).job(job).job(idle);
    let handle = scheduler.handle();
    let run = stage.quorum.env().spawn_scoped(scheduler.run().until(std::future::pending::<()>()));
    stage.when("it runs", || begun.load(Ordering::Relaxed) == 1).await;
    handle.drain().await;
    assert_eq!((begun.load(Ordering::Relaxed), done.load(Ordering::Relaxed)), (1, 1));
    run.await.expect("no panic").expect("a drain is Ok");
    assert!(scheduler.election().term().is_none());
    assert_eq!(handle.registry.phase(), Phase::Drained);
    // The draining of a scheduler that never led ends at once.
    let other = crate::scheduler::builder::Scheduler::new(&stage.quorum, "h");
    other.handle().drain().await;
}

#[tokio::test]
async fn a_drain_ends_with_the_term_even_if_another_worker_leads_next() {
    let (stage, begun, others) = (Stage::new(), Begun::default(), Begun::default());
    let job = recording("j", PERIOD, &begun, true);
    let scheduler = crate::scheduler::builder::Scheduler::new(&stage.quorum, "g").ttl(SECOND).job(job);
    let handle = scheduler.handle();
    let run = stage.quorum.env().spawn_scoped(scheduler.run().until(std::future::pending::<()>()));
    stage.when("it runs", || !begun.lock().unwrap().is_empty()).await;
    let next = stage.candidate("b", &[recording("j", PERIOD, &others, false)]);
    let draining = handle.clone();
    let drain = stage.quorum.env().spawn_scoped(async move { draining.drain().await });
    stage.when("it is being drained", || handle.registry.phase() == Phase::Draining).await;
    // The handler returns only after its run is cancelled, and the run is cancelled because the term is
    // resigned.
    scheduler.election().term().expect("it leads").resign();
    stage.when("the other one leads", || !others.lock().unwrap().is_empty()).await;
    let deadline = stage.quorum.env().now() + 10 * SECOND;
    assert!(stage.quorum.env().before(deadline, drain).await.is_some(), "the drain is over");
    run.await.expect("no panic").expect("a drain is Ok");
    assert_eq!(handle.registry.phase(), Phase::Drained);
    next.resigns().await;
}
