//! A worker process: what a service that uses Quorate looks like, plus a journal. One thread, so that a pause
//! of the one is a pause of all.

mod jobs;
mod locks;
mod messages;

use super::{
    journal::{Diary, Event, Journal},
    settings::{Post, TO_BE_TOLD, quorum},
};
use quorate::env::Env;
use quorate_testkit::sim::SeedRng;
use quorate_tests::support::told_to_end;
use std::{error::Error, process::ExitCode, time::Duration};
use tokio_util::sync::CancellationToken;

/// The first argument with which this program is a worker.
pub(crate) const ARGUMENT: &str = "__worker";

/// Between two beats of the pulse.
const BEAT: Duration = Duration::from_millis(20);
/// A pulse that is late by this was not scheduled.
const STALLED: Duration = Duration::from_millis(100);

type Failure = Box<dyn Error>;

/// `args` are those after [`ARGUMENT`].
pub(crate) fn main(args: &[String]) -> ExitCode {
    let Some(post) = Post::parse(args) else {
        eprintln!("soak: {ARGUMENT} is for its own use");
        return ExitCode::FAILURE;
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    match runtime.block_on(work(&post)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("soak: worker {} run {}: {error}", post.member, post.run);
            ExitCode::FAILURE
        }
    }
}

async fn work(post: &Post) -> Result<(), Failure> {
    let quorum = quorum(&post.urls, &format!("worker-{}.{}", post.member, post.run), post.seed)?;
    let journal = Journal::new(quorum.env());
    journal.write(Event::Ready);
    let stop = CancellationToken::new();
    let rng = |label: &str| SeedRng::new(post.seed, &format!("{label}-{}-{}", post.member, post.run));
    let told = told_to_stop(&stop);
    let (led, locked, handled, told, ()) = tokio::join!(
        jobs::lead(&quorum, &journal, &stop),
        locks::compete(&quorum, &journal, rng("locks"), &stop),
        messages::handle(&quorum, &journal, rng("messages"), post.epoch, &stop),
        told,
        pulse(&journal, &quorum, &stop),
    );
    quorum.close().await;
    led.and(locked).and(handled).and(told)
}

/// A lease is over: writes down that its work was told so, unless nobody tells it.
async fn be_told(env: &Env, diary: &Diary, step_down: &CancellationToken) {
    let told = env.before(env.now() + TO_BE_TOLD, step_down.cancelled()).await;
    if told.is_some() {
        diary.told();
    }
}

/// Waits for SIGTERM or the end of the parent, and has everything stop then.
async fn told_to_stop(stop: &CancellationToken) -> Result<(), Failure> {
    let _stop = stop.clone().drop_guard();
    let told = told_to_end()?;
    tokio::select! { biased;
        () = stop.cancelled() => {}
        () = told => {}
    }
    Ok(())
}

/// Writes down when this process was not scheduled.
async fn pulse(journal: &Journal, quorum: &quorate::quorum::Quorum, stop: &CancellationToken) {
    let mut last = journal.now();
    while !stop.is_cancelled() {
        quorum.env().sleep(BEAT).await;
        let now = journal.now();
        if last.until(now) > BEAT + STALLED {
            journal.write_at(now, Event::Stalled { from: last.as_nanos() });
        }
        last = now;
    }
}
