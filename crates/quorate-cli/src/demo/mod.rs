//! `quorate demo`: real worker processes on five nodes, and a leader that is ended twice.
//!
//! # What is not guaranteed
//!
//! * The demo is a demonstration on one host, not a benchmark. A machine that gives its processes too little
//!   processor time shows longer failovers, and may exceed the limits.
//! * At most once means exactly that: a tick that the SIGKILL interrupts is not run again. The summary counts
//!   such a tick as *interrupted*, even if it was only recorded as started and the handler never began.
//! * At least once means exactly that: a message that the SIGKILL interrupts before its done record is stored
//!   is handled again. The summary counts such a message as *interrupted*, too. If any other message is
//!   handled twice, it counts as *processed twice*.
//! * If the demo itself is killed with SIGKILL, its directory remains (its processes do not).
//!
//! # Source of the figures
//!
//! Each worker process writes its events into its own [journal], with one `write` call per line. It writes a
//! start event before it begins the work. The [figures] are a pure function of these journals, of the signals
//! that were sent, and of what the nodes store: the done records of the messages, and the job's history, in which a run
//! without a known end is *lost*. The planned steps of the [script] are not used.
//!
//! # End of the processes
//!
//! A worker ends when the pipe of its standard input is closed. So it also ends if the demo was killed. Redis
//! servers run under a [supervisor](crate::supervisor) for the same reason.

mod figures;
mod inbox;
mod journal;
mod nodes;
mod output;
mod processes;
mod script;
mod servers;
mod settings;
mod watch;
mod worker;

pub(crate) use worker::{ARGUMENT, main as worker_main};

use crate::{
    args::DemoArgs,
    exit::{FAILURE, Failure},
    supervisor::ForwardedSignals,
};
use nodes::Nodes;
use output::Output;
use processes::Processes;
use quorate::env::Env;
use servers::Servers;
use std::{path::Path, time::Duration};
use tempfile::TempDir;

/// The longest time that the demo takes.
const LONGEST: Duration = Duration::from_secs(28);

/// Runs the demo and returns the exit status: 0 if nothing started twice and nothing was missed.
pub(crate) async fn demo(args: &DemoArgs) -> Result<u8, Failure> {
    let mut signals = ForwardedSignals::catch().map_err(|error| Failure::new(FAILURE, error))?;
    let dir = scratch()
        .map_err(|error| Failure::new(FAILURE, format!("cannot create a temporary directory: {error}")))?;
    let env = Env::system();
    // If a task panics, these values are dropped in this order: workers, servers, directory.
    let (mut servers, mut processes) = (Servers::new(&env), Processes::new(&env, dir.path()));
    let scenario = scenario(args, &env, dir.path(), &mut servers, &mut processes);
    let ended = tokio::select! { biased;
        signal = signals.next() => {
            let code = u8::try_from(128 + signal).unwrap_or(FAILURE);
            Err(Failure::new(code, "ended by a signal, with all processes that it had started"))
        }
        ended = env.before(env.now() + LONGEST, scenario) => ended.unwrap_or_else(|| {
            Err(Failure::new(FAILURE, format!("the demo did not end within {LONGEST:?}: the machine may be overloaded")))
        }),
    };
    processes.end().await;
    servers.end().await;
    dir.close()
        .map_err(|error| Failure::new(FAILURE, format!("cannot remove the temporary directory: {error}")))?;
    ended
}

/// Creates a directory for nodes, journals and messages: in memory if possible. File nodes sync their data so
/// that it survives a power loss, and a slow disk would slow down the demo. TMPDIR overrides the place.
fn scratch() -> std::io::Result<TempDir> {
    let named = |place: &Path| tempfile::Builder::new().prefix("quorate-demo-").tempdir_in(place);
    let memory = Path::new("/dev/shm");
    if std::env::var_os("TMPDIR").is_none()
        && memory.is_dir()
        && let Ok(dir) = named(memory)
    {
        return Ok(dir);
    }
    named(&std::env::temp_dir())
}

async fn scenario(
    args: &DemoArgs,
    env: &Env,
    dir: &Path,
    servers: &mut Servers,
    processes: &mut Processes,
) -> Result<u8, Failure> {
    let mut output = Output::new(env);
    output.title(args.redis);
    let nodes = if args.redis { Nodes::Redis(servers.start(dir).await?) } else { Nodes::Files };
    let quorum = nodes.admitted(dir).await?;
    output.nodes(&nodes, dir);
    let figures = script::run(env, &quorum, &nodes, processes, &mut output).await;
    quorum.close().await;
    let figures = figures?;
    output.summary(&figures);
    if args.json {
        let json = figures.to_json(&nodes).map_err(|error| Failure::new(FAILURE, error))?;
        output.line(&json);
    }
    output.finish()?;
    Ok(u8::from(!figures.is_clean()))
}
