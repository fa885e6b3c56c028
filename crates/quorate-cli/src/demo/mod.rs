//! `quorate demo`: real worker processes on five nodes, and a leader that dies twice.
//!
//! # What is not guaranteed
//!
//! * It is a demonstration on one host, not a benchmark: a machine that gives its processes no time shows
//!   longer failovers, and may miss the bounds.
//! * At most once means just that: a tick that the SIGKILL catches is not run again. It is told as
//!   *interrupted*, also where it was recorded as started and the handler's first line never ran.
//! * At least once means just that: a message that the SIGKILL catches while it is handled, before its done
//!   record stands, is handled again. It is told as *interrupted* too, and it is the only kind of second
//!   handling that does not count as processed twice.
//! * Killed with SIGKILL itself, the demo leaves its directory behind (not its processes).
//!
//! # Where the figures come from
//!
//! Each worker process writes what happens to it into a [journal] of its own, one `write` a line,
//! the line that announces a start before the start. The [figures] are a pure function of these
//! journals, of the signals sent, and, for what a SIGKILL kept a worker from writing down, of the records
//! that stand on the nodes. What the [script] meant to happen is not asked.
//!
//! # Who ends whom
//!
//! Workers end when the pipe that is their standard input is closed, so also with a demo that was killed.
//! Redis servers run under a [warden](crate::warden) for the same reason.

mod figures;
mod inbox;
mod journal;
mod nodes;
mod output;
mod processes;
mod script;
mod servers;
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

/// For how long a crashed leader blocks the others, at most.
pub(crate) const LEASE_TTL: Duration = Duration::from_secs(2);
/// How long the work has to end once it is told to.
pub(crate) const STEP_DOWN_GRACE: Duration = Duration::from_millis(400);
/// Between two ticks of the job.
pub(crate) const TICK_EVERY: Duration = Duration::from_millis(250);
/// Who competes with whom.
pub(crate) const GROUP: &str = "demo";
/// The job.
pub(crate) const JOB: &str = "heartbeat";
/// The messages.
pub(crate) const MESSAGES: &str = "messages";
/// How many nodes there are.
pub(crate) const NODES: usize = 5;

/// Whatever happens, the demo ends after this.
const LONGEST: Duration = Duration::from_secs(28);

/// Runs the demo and gives the exit status: 0 if nothing started twice and nothing was missed.
pub(crate) async fn demo(args: &DemoArgs) -> Result<u8, Failure> {
    let mut signals = ForwardedSignals::catch().map_err(|error| Failure::new(FAILURE, error))?;
    let dir = scratch().map_err(|error| Failure::new(FAILURE, format!("no temporary directory: {error}")))?;
    let env = Env::system();
    // In this order they are dropped should anything panic: workers, servers, directory.
    let (mut servers, mut processes) = (Servers::new(&env), Processes::new(&env, dir.path()));
    let scenario = scenario(args, &env, dir.path(), &mut servers, &mut processes);
    let ended = tokio::select! { biased;
        signal = signals.next() => {
            let code = u8::try_from(128 + signal).unwrap_or(FAILURE);
            Err(Failure::new(code, "ended by a signal, with all that it had started"))
        }
        ended = env.before(env.now() + LONGEST, scenario) => ended.unwrap_or_else(|| {
            Err(Failure::new(FAILURE, format!("the demo did not end within {LONGEST:?}: is the machine very busy?")))
        }),
    };
    processes.end().await;
    servers.end().await;
    dir.close()
        .map_err(|error| Failure::new(FAILURE, format!("the temporary directory remains: {error}")))?;
    ended
}

/// A directory for nodes, journals and messages: in memory where there is such a place, since a slow disk
/// under file nodes, which sync what must outlast a power loss, is not what is shown here. TMPDIR overrides.
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
    Ok(u8::from(!figures.is_clean()))
}
