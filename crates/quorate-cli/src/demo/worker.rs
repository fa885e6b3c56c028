//! A worker process: a service that uses Quorate, with a journal.

use super::{
    inbox,
    journal::{Event, Journal, Lines, WorkerId},
    nodes::Nodes,
    settings::{GROUP, JOB, LEASE_TTL, MESSAGES, STEP_DOWN_GRACE, TICK_EVERY},
};
use crate::exit::{FAILURE, Failure};
use quorate::{
    claim::{Claim, ClaimOutcome, Claims},
    election::{Election, ElectionEvent, Term},
    env::{BootTime, Env},
    quorum::Quorum,
    scheduler::{Delivery, Job, Misfire, RunContext, Scheduler, every},
};
use std::{
    collections::BTreeMap,
    ffi::OsString,
    io::{self, stdin},
    os::fd::AsFd,
    path::PathBuf,
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
/// The number of messages that are claimed at once.
const BATCH: usize = 10;
/// The time that a batch takes.
const BATCH_TAKES: Duration = Duration::from_millis(10);
/// The shortest time between two looks at the inbox. A random time is added to it, so that the workers do not
/// look at the same moments.
const LOOK_EVERY: Duration = Duration::from_millis(60);
/// The longest time until another look at a message that another worker handles.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

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
pub(crate) fn to_args(who: &WorkerId, dir: &std::path::Path, nodes: &Nodes) -> Vec<OsString> {
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
            journal.write(Event::Elected { term: term.token().get() }).map_err(|e| e.to_string())?;
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
    let every = every(TICK_EVERY).map_err(|error| Failure::new(FAILURE, error))?;
    let journal = journal.clone();
    let job = Job::new(JOB, every, move |tick: RunContext| {
        let journal = journal.clone();
        async move {
            let Some(led) = tick.term() else { return Ok(()) };
            let at = tick.at().as_micros();
            journal.write(Event::TickStart { tick: at })?;
            led.quorum().env().sleep(TICK_TAKES).await;
            journal.write(Event::TickDone { tick: at })
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

/// Reads every message, and handles each one that it can claim. It does so whether this worker leads or not.
async fn handle(
    quorum: &Quorum,
    journal: &Journal,
    dir: &std::path::Path,
    stop: &CancellationToken,
) -> Result<(), Failure> {
    let _stop = stop.clone().drop_guard();
    let env = quorum.env();
    let claims = Claims::new(quorum, MESSAGES).ttl(LEASE_TTL).step_down_grace(STEP_DOWN_GRACE);
    let mut open = Open { lines: inbox::inbox(dir), ids: BTreeMap::new(), seen: 0 };
    while !stop.is_cancelled() {
        let batch = open.take(env.now()).map_err(|error| Failure::new(FAILURE, error))?;
        let claimed = claims.claim_many(batch.iter().map(|(_, id)| &**id)).await;
        let claimed = claimed.map_err(|error| Failure::new(FAILURE, error))?;
        let mut ours = Vec::new();
        for ((at, id), (_, outcome)) in batch.into_iter().zip(claimed) {
            match outcome {
                Ok(ClaimOutcome::Claimed(claim)) => ours.push((at, claim)),
                Ok(ClaimOutcome::Done(_)) => {}
                Ok(ClaimOutcome::InProgress { retry_after, .. }) => {
                    let wait = retry_after.unwrap_or_default().min(LOOK_AGAIN);
                    open.put_back(at, id, env.now() + wait);
                }
                // Either too few nodes answered, or a later version of the library reports an outcome that this
                // code does not know. A worker will try the message again later.
                Ok(_) | Err(_) => open.put_back(at, id, env.now() + LOOK_AGAIN),
            }
        }
        for (at, id) in handle_batch(env, journal, ours).await? {
            open.put_back(at, id, env.now() + LOOK_AGAIN);
        }
        let nap = LOOK_EVERY + env.random_below(LOOK_EVERY);
        let _ = env.before(env.now() + nap, stop.cancelled()).await;
    }
    Ok(())
}

/// Handles the claimed messages. Returns those that could not be completed.
async fn handle_batch(
    env: &Env,
    journal: &Journal,
    ours: Vec<(usize, Claim)>,
) -> Result<Vec<(usize, Arc<str>)>, Failure> {
    let mut begun = Vec::new();
    let mut again = Vec::new();
    for (at, claim) in ours {
        match claim.fencing_token() {
            Ok(token) => {
                let start = Event::MessageStart { id: Arc::clone(claim.id()), token: token.get() };
                journal.write(start).map_err(|error| Failure::new(FAILURE, error))?;
                begun.push((at, claim));
            }
            Err(_) => again.push((at, Arc::clone(claim.id()))),
        }
    }
    if !begun.is_empty() {
        env.sleep(BATCH_TAKES).await;
    }
    let complete = |(at, claim): (usize, Claim)| {
        let id = Arc::clone(claim.id());
        (at, id, env.spawn_scoped(claim.complete("")))
    };
    let completing: Vec<_> = begun.into_iter().map(complete).collect();
    for (at, id, completing) in completing {
        // Unless it succeeded, the done record may be missing. The next claim shows whether the message is done.
        if !matches!(completing.await, Ok(Ok(_))) {
            again.push((at, id));
        }
    }
    Ok(again)
}

/// The messages that are not done, as far as this worker knows.
struct Open {
    lines: Lines,
    /// The open messages in the order of their arrival, each with the earliest time of its next attempt.
    ids: BTreeMap<usize, (Arc<str>, BootTime)>,
    seen: usize,
}

impl Open {
    /// Returns the next batch.
    fn take(&mut self, now: BootTime) -> io::Result<Vec<(usize, Arc<str>)>> {
        for id in self.lines.read()? {
            self.seen += 1;
            self.ids.insert(self.seen, (id.into(), now));
        }
        let ready = self.ids.iter().filter(|(_, (_, from))| *from <= now);
        let batch: Vec<_> = ready.take(BATCH).map(|(at, (id, _))| (*at, Arc::clone(id))).collect();
        batch.iter().for_each(|(at, _)| drop(self.ids.remove(at)));
        Ok(batch)
    }

    fn put_back(&mut self, at: usize, id: Arc<str>, from: BootTime) {
        self.ids.insert(at, (id, from));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

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
