//! A worker process: a service that uses Quorate, with a journal.

use super::{
    inbox,
    journal::{Event, Journal, WorkerId},
    nodes::Nodes,
    settings::{GROUP, JOB, LEASE_TTL, MESSAGES, STEP_DOWN_GRACE, TICK_EVERY},
};
use crate::exit::{FAILURE, Failure};
use quorate::{
    claim::{Claims, stream},
    election::{Election, ElectionEvent, Term},
    quorum::Quorum,
    scheduler::{Delivery, Job, Misfire, RunContext, Schedule, Scheduler},
};
use std::{
    ffi::OsString,
    io::{self, stdin},
    os::fd::AsFd,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};
use tokio::{
    net::unix::pipe,
    signal::unix::{Signal, SignalKind, signal},
    sync::mpsc,
};
use tokio_util::sync::CancellationToken;

/// The first argument with which this binary is a worker of the demo.
pub(crate) const ARGUMENT: &str = "__demo-worker";

/// The duration of a run of the job.
const TICK_TAKES: Duration = Duration::from_millis(40);
/// The age up to which missed ticks are run.
const CATCH_UP: Duration = Duration::from_secs(60);
/// The time that a message takes.
const MESSAGE_TAKES: Duration = Duration::from_millis(10);

/// The main function of a worker, which the demo starts as `quorate __demo-worker …`. Users do not call it.
/// `args` are the arguments after [`ARGUMENT`].
pub(crate) fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let Some((who, dir, nodes)) = parse(args.into_iter()) else {
        eprintln!("quorate: {ARGUMENT} is for quorate's own use; see quorate demo --help");
        return ExitCode::from(FAILURE);
    };
    let name = Arc::clone(&who.worker);
    let ended = crate::block_on(work(who, dir, nodes));
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("quorate: {name}: {failure}");
            ExitCode::from(FAILURE)
        }
    }
}

/// Returns the arguments that [`parse`] reads.
pub(crate) fn to_args(who: &WorkerId, dir: &Path, nodes: &Nodes) -> Vec<OsString> {
    let head = [ARGUMENT.into(), OsString::from(&*who.worker), who.run.to_string().into(), dir.into()];
    head.into_iter().chain(nodes.to_args()).collect()
}

fn parse(mut args: impl Iterator<Item = OsString>) -> Option<(WorkerId, PathBuf, Nodes)> {
    let worker = args.next()?.to_str()?.into();
    let run = args.next()?.to_str()?.parse().ok()?;
    let dir = args.next()?.into();
    Some((WorkerId { worker, run }, dir, Nodes::from_args(args)?))
}

async fn work(who: WorkerId, dir: PathBuf, nodes: Nodes) -> Result<(), Failure> {
    let fail = |error: io::Error| Failure::new(FAILURE, error);
    let mut terminate = signal(SignalKind::terminate()).map_err(fail)?;
    let parent = stdin().as_fd().try_clone_to_owned().and_then(pipe::Receiver::from_owned_fd);
    let parent = parent.map_err(fail)?;
    let quorum = nodes.quorum(&dir, &who.worker)?;
    let journal = Journal::create(quorum.env(), who, &dir).map_err(fail)?;
    let stop = CancellationToken::new();
    let stopped = wait_for_stop(&mut terminate, &parent, &stop);
    let ended = tokio::join!(lead(&quorum, &journal, &stop), handle(&quorum, &journal, &dir, &stop), stopped);
    quorum.close().await;
    ended.0.and(ended.1)
}

/// Waits for SIGTERM, or for the end of the demo process for any reason.
async fn wait_for_stop(terminate: &mut Signal, parent: &pipe::Receiver, stop: &CancellationToken) {
    let gone = async {
        loop {
            match parent.readable().await.and_then(|()| parent.try_read(&mut [0; 16])) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        }
    };
    tokio::select! { biased;
        () = stop.cancelled() => {}
        _ = terminate.recv() => {}
        () = gone => {}
    }
    stop.cancel();
}

/// Campaigns, and runs the job while it leads.
async fn lead(quorum: &Quorum, journal: &Journal, stop: &CancellationToken) -> Result<(), Failure> {
    // A worker runs two parts, `lead` and `handle`. When `lead` ends for any reason, this guard cancels `stop`,
    // and `handle` ends too.
    let _stop = stop.clone().drop_guard();
    let election =
        Election::new(quorum, GROUP).ttl(LEASE_TTL).step_down_grace(STEP_DOWN_GRACE).end_on_error();
    let scheduler = Scheduler::on(&election).job(job(journal)?);
    let events = quorum.env().spawn_scoped(note(election.events(), journal.clone()));
    let campaign = election.run(|term: Term| {
        let (journal, scheduler) = (journal.clone(), scheduler.clone());
        async move {
            journal
                .write(Event::Elected { term: term.unchecked_token().get() })
                .map_err(|e| e.to_string())?;
            scheduler.lead(term).await.map_err(|e| e.to_string())
        }
    });
    let ended = campaign.until(stop.cancelled()).await.map_err(|error| Failure::new(FAILURE, error));
    // The stream of events ends when the last handle of the election is dropped. These two values hold the
    // last handles.
    drop((election, scheduler));
    let noted = events.await.unwrap_or(Ok(())).map_err(|error| Failure::new(FAILURE, error));
    ended.and(noted)
}

fn job(journal: &Journal) -> Result<Job, Failure> {
    let every = Schedule::every(TICK_EVERY).map_err(|error| Failure::new(FAILURE, error))?;
    let journal = journal.clone();
    let job = Job::new(JOB, every, move |tick: RunContext| {
        let journal = journal.clone();
        async move {
            let Some(led) = tick.term() else { return Ok(()) };
            journal.write(Event::TickStart { tick: tick.scheduled_at().as_micros() })?;
            led.quorum().env().sleep(TICK_TAKES).await;
            Ok::<(), io::Error>(())
        }
    });
    Ok(job.delivery(Delivery::AtMostOnce).misfire(Misfire::run_all(CATCH_UP)))
}

/// Writes the events of the terms to the journal.
async fn note(mut events: mpsc::UnboundedReceiver<ElectionEvent>, journal: Journal) -> io::Result<()> {
    while let Some(event) = events.recv().await {
        match event {
            ElectionEvent::StepDown(term) => journal.write(Event::StepDown { term: term.get() })?,
            ElectionEvent::Lost(term) => journal.write(Event::Lost { term: term.get() })?,
            // The work of the term writes `Elected` itself, before it does anything else. The other events are
            // not needed.
            _ => {}
        }
    }
    Ok(())
}

/// Handles each message that it can claim. Every worker sees every message, whether it leads or not.
async fn handle(
    quorum: &Quorum,
    journal: &Journal,
    dir: &Path,
    stop: &CancellationToken,
) -> Result<(), Failure> {
    let _stop = stop.clone().drop_guard();
    let (env, journal) = (quorum.env().clone(), journal.clone());
    let inbox = inbox::messages(&env, dir);
    let claims = Claims::new(quorum, MESSAGES).ttl(LEASE_TTL).step_down_grace(STEP_DOWN_GRACE);
    let consumer = claims.try_consume(inbox, move |delivery: stream::Received<inbox::Message>| {
        let (env, journal) = (env.clone(), journal.clone());
        async move {
            let token = delivery.fencing_token().map_err(io::Error::other)?.get();
            let (id, ()) = &**delivery.message();
            journal.write(Event::MessageStart { id: id.as_str().into(), token })?;
            env.sleep(MESSAGE_TAKES).await;
            Ok::<(), io::Error>(())
        }
    });
    consumer.until(stop.cancelled()).await.map(drop).map_err(|error| Failure::new(FAILURE, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_parses_the_arguments_of_the_demo() {
        let who = WorkerId { worker: "worker-3".into(), run: 2 };
        for nodes in [Nodes::Files, Nodes::Redis(vec![1, 2, 3, 4, 5])] {
            let mut args = to_args(&who, Path::new("/tmp/x y"), &nodes).into_iter();
            assert_eq!(args.next().unwrap(), ARGUMENT);
            let (read, dir, on) = parse(args).unwrap();
            assert_eq!(
                (read, dir.as_path(), on.to_args()),
                (who.clone(), Path::new("/tmp/x y"), nodes.to_args())
            );
        }
        assert!(parse(["worker-3", "2", "/tmp", "seven"].into_iter().map(OsString::from)).is_none());
        assert!(parse(["worker-3"].into_iter().map(OsString::from)).is_none());
    }
}
