use super::Worker;
use crate::sim::{Held, RunOutcome, SeedRng};
use quorate::scheduler::{Cron, Delivery, Job, Misfire, RunContext, Schedule};
use std::{
    panic::resume_unwind,
    sync::{Arc, LazyLock},
    time::Duration,
};

/// A misfire window that is longer than the simulation. The leader must not skip any tick of a job with this
/// window as missed.
const FOR_GOOD: Duration = Duration::from_secs(300);

/// A job of the first group ([`GROUP`](super::GROUP)), which runs its jobs on its leader. All workers have
/// the same jobs.
#[derive(Clone, Debug)]
pub(in super::super) struct JobSpec {
    pub(in super::super) name: &'static str,
    pub(in super::super) schedule: Schedule,
    pub(in super::super) delivery: Delivery,
    pub(in super::super) misfire: Misfire,
    timeout: Option<Duration>,
}

impl JobSpec {
    /// Returns `true` if every missed tick gets a catch-up run, however late.
    pub(in super::super) fn makes_up_all(&self) -> bool {
        self.misfire == Misfire::run_all(FOR_GOOD)
    }
}

/// Returns the jobs of the first group. They have both delivery rules, all misfire rules, and both kinds of
/// schedule.
pub(in super::super) fn specs() -> &'static [JobSpec] {
    // Reading a cron line takes longer than most steps of the simulation.
    static SPECS: LazyLock<Vec<JobSpec>> = LazyLock::new(make_specs);
    &SPECS
}

fn make_specs() -> Vec<JobSpec> {
    let spec =
        |name, schedule, delivery, misfire, timeout| JobSpec { name, schedule, delivery, misfire, timeout };
    let (all, second) = (Misfire::run_all(FOR_GOOD), Duration::from_secs(1));
    use Delivery::{AtLeastOnce, AtMostOnce};
    vec![
        spec("each", millis(700), AtLeastOnce, all, Some(second)),
        spec("once", millis(500), AtMostOnce, all, Some(2 * second)),
        spec("latest", millis(1_100), AtLeastOnce, Misfire::run_once(8 * second), None),
        spec("fresh", millis(900), AtMostOnce, Misfire::Skip, None),
        spec("cron", cron("*/2 * * * * *"), AtLeastOnce, Misfire::run_all(5 * second), None),
    ]
}

#[expect(clippy::expect_used, reason = "written by hand")]
fn millis(period: u64) -> Schedule {
    Schedule::every(Duration::from_millis(period)).expect("a sound period")
}

#[expect(clippy::expect_used, reason = "written by hand")]
fn cron(text: &str) -> Schedule {
    Cron::parse(text).expect("a sound line").into()
}

/// Returns the job that `spec` describes. Its handler runs under the term `held`.
pub(super) fn job(spec: &JobSpec, worker: &Worker, held: &Arc<Held>) -> Job {
    let (worker, held) = (worker.clone(), Arc::clone(held));
    let job =
        Job::new(spec.name, spec.schedule.clone(), move |tick| run(worker.clone(), Arc::clone(&held), tick));
    let job = job.delivery(spec.delivery).misfire(spec.misfire);
    match spec.timeout {
        Some(timeout) => job.timeout(timeout),
        None => job,
    }
}

/// Handles one tick. As the seed decides, the run is quick or slow, ignores its cancellation, or fails.
async fn run(mut worker: Worker, held: Arc<Held>, tick: RunContext) -> Result<(), String> {
    let run = worker.referee.tick_started(&held, &tick);
    worker.rng = SeedRng::new(worker.seed, &format!("run {}", run.number()));
    let job = worker.spec(&tick);
    worker.referee.count(&format!("tick started {job}"));
    let calm = worker.referee.is_calm();
    let how = if calm { 0 } else { worker.rng.number(0..=19) };
    let time = match how {
        _ if calm => worker.rng.millis(0..=4),
        0..=12 => worker.rng.millis(0..=150),
        _ => worker.rng.millis(100..=3_000),
    };
    match how {
        // This run ignores its cancellation, to test that the library drops the run before the run's term
        // ends.
        16 => worker.env.sleep(time).await,
        _ => {
            let env = worker.env.clone();
            tokio::select! { biased;
                () = tick.cancellation_token().cancelled() => {
                    worker.referee.count("tick stopped");
                    run.ends(told_to_stop(&tick));
                    return Err("cancelled".to_owned());
                }
                () = env.sleep(time) => {}
            }
        }
    }
    worker.update(tick.job(), || tick.fencing_token().ok().map(quorate::node::FencingToken::get)).await;
    let (end, result) = match how {
        17 => (RunOutcome::Itself, Err("on purpose".to_owned())),
        18 => {
            tick.mark_interrupted();
            (RunOutcome::Torn, Err("interrupted".to_owned()))
        }
        _ => (RunOutcome::Itself, Ok(())),
    };
    // The referee must learn of the handler's end before the library can record it.
    run.ends(if tick.cancellation_token().is_cancelled() && result.is_err() {
        told_to_stop(&tick)
    } else {
        end
    });
    if how == 19 {
        // `resume_unwind` panics without the panic hook, which would print the panic.
        resume_unwind(Box::new("on purpose"));
    }
    result
}

/// Returns the end of a run that was cancelled. If its term continues, the cause of the cancellation was the
/// timeout, and the run counts as ended by itself.
fn told_to_stop(tick: &RunContext) -> RunOutcome {
    match tick.term() {
        Some(term) if !term.step_down_token().is_cancelled() => RunOutcome::Itself,
        _ => RunOutcome::Torn,
    }
}

impl Worker {
    /// Returns the delivery rule of the tick's job, followed by ` caught up` if the run is a catch-up run.
    /// The referee counts the starts of runs under names that end with this text.
    fn spec(&self, tick: &RunContext) -> String {
        let spec = specs().iter().find(|spec| *spec.name == **tick.job());
        let again = if tick.is_catch_up() { " caught up" } else { "" };
        spec.map_or_else(String::new, |spec| format!("{}{again}", spec.delivery))
    }
}
