//! A worker process: campaigns, and runs the jobs while it leads. One thread, so that a pause of the one is a pause of
//! all.

use super::{
    journal::{Event, Journal},
    settings::{GROUP, HISTORY, JOBS, JobKind, MAKE_UP, Post, TICK_EVERY},
};
use quorate::{
    election::{Election, Term},
    schedule::{Job, RunAll, Scheduler, Tick, every},
};
use quorate_tests::support::told_to_end;
use std::{convert::Infallible, error::Error, process::ExitCode, sync::Arc};

/// The first argument with which this program is a worker.
pub(crate) const ARGUMENT: &str = "__worker";

type Failure = Box<dyn Error>;

/// `args` are those after [`ARGUMENT`].
pub(crate) fn main(args: &[String]) -> ExitCode {
    let Some(post) = Post::parse(args) else {
        eprintln!("promises: {ARGUMENT} is for its own use");
        return ExitCode::FAILURE;
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    match runtime.block_on(work(&post)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("promises: {}: {error}", post.name);
            ExitCode::FAILURE
        }
    }
}

async fn work(post: &Post) -> Result<(), Failure> {
    let quorum = post.quorum()?;
    let journal = Journal::new(quorum.env());
    let election = Election::new(&quorum, GROUP).ttl(post.ttl).end_on_error();
    let mut scheduler = Scheduler::on(&election);
    for kind in JOBS {
        scheduler = scheduler.job(job(kind, &journal)?);
    }
    let campaign = election.run(|term: Term| {
        let (journal, scheduler) = (journal.clone(), scheduler.clone());
        async move {
            let number = term.token().get();
            // A term that is over already has begun nothing, and says nothing.
            let _tenure = term.is_valid().then(|| Tenure::begin(&journal, number));
            scheduler.lead(term).await.map_err(|error| error.to_string())
        }
    });
    campaign.until(told_to_end()?).await?;
    quorum.close().await;
    Ok(())
}

/// Says when a term begins, and when it is over.
struct Tenure {
    journal: Journal,
    term: u64,
}

impl Tenure {
    fn begin(journal: &Journal, term: u64) -> Self {
        journal.write(Event::Leads { term });
        Self { journal: journal.clone(), term }
    }
}

impl Drop for Tenure {
    fn drop(&mut self) {
        self.journal.write(Event::Over { term: self.term });
    }
}

/// Says that a run was dropped, unless it ended.
struct Run {
    journal: Journal,
    job: Arc<str>,
    tick: u64,
    term: u64,
    done: bool,
}

impl Run {
    fn begin(journal: &Journal, tick: &Tick) -> Self {
        let (job, at, term) = (Arc::clone(tick.job()), tick.at().as_micros(), tick.token().get());
        journal.write(Event::Start { job: Arc::clone(&job), tick: at, term, made_up: tick.is_made_up() });
        Self { journal: journal.clone(), job, tick: at, term, done: false }
    }

    fn done(mut self) {
        self.done = true;
        let (job, tick, term) = (Arc::clone(&self.job), self.tick, self.term);
        self.journal.write(Event::Done { job, tick, term });
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if !self.done {
            let (job, tick, term) = (Arc::clone(&self.job), self.tick, self.term);
            self.journal.write(Event::Cut { job, tick, term });
        }
    }
}

fn job(kind: JobKind, journal: &Journal) -> Result<Job, Failure> {
    let journal = journal.clone();
    let handler = move |tick: Tick| {
        let journal = journal.clone();
        async move {
            let run = Run::begin(&journal, &tick);
            journal.env().sleep(kind.takes).await;
            run.done();
            Ok::<(), Infallible>(())
        }
    };
    let job = Job::new(kind.name, every(TICK_EVERY)?, handler).delivery(kind.delivery);
    // More are kept than are compared: the history is cut now and then only.
    Ok(job.misfire(RunAll::within(MAKE_UP)).history(HISTORY * 2))
}
