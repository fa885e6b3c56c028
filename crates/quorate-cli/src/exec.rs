//! `quorate exec`: a command while a lease is held.

use crate::{
    args::ExecArgs,
    config::Config,
    connect,
    exit::{CONFIG, FAILURE, Failure, LEASE_LOST, NO_QUORUM},
    guard::Guard,
    log,
    supervisor::{CommandSpec, EndedBy, Exit, PassedOn, Status, Supervisor},
};
use quorate::{
    lease::{AcquireError, Heartbeat, Lease, TryAcquire},
    quorum::{Quorum, QuorumConfig},
};
use std::time::Duration;

/// Without `--wait`, how long to wait for a quorum: contention is waited out, dead nodes are not.
const QUORUM_PATIENCE: Duration = Duration::from_secs(10);
/// How long the first connections may take before the lock is tried without them.
const FIRST_HANDSHAKE: Duration = Duration::from_secs(1);
/// How often the wait is looked at as a whole.
const SLICE: Duration = Duration::from_secs(1);

/// Runs the command and gives the exit status.
pub(crate) async fn exec(args: &ExecArgs, config: &Config) -> Result<u8, Failure> {
    let mut signals = PassedOn::catch().map_err(|error| Failure::new(FAILURE, error))?;
    let quorum = connect::quorum(config, config.setup.clone())?;
    // A third of the TTL is between two extensions.
    let heart = Heartbeat::new(quorum.env(), args.ttl.unwrap_or(config.lease.ttl) / 3);
    let lease = tokio::select! { biased;
        signal = signals.next() => Err(Failure::new(signal_code(signal), "ended by a signal while it waited")),
        lease = acquire(args, config, &quorum, &heart) => lease,
    };
    let code = match lease {
        Ok(lease) => under_lease(args, config, &quorum, lease, &heart, &mut signals).await,
        Err(failure) => Err(failure),
    };
    quorum.close().await;
    code
}

async fn acquire(
    args: &ExecArgs,
    config: &Config,
    quorum: &Quorum,
    heart: &Heartbeat,
) -> Result<Lease, Failure> {
    let env = quorum.env();
    let lease_ttl = args.ttl.unwrap_or(config.lease.ttl);
    let mut lock = quorum.lock(&args.lock).ttl(lease_ttl).renew_while_beating(heart);
    if args.ttl.is_none() {
        lock = lock.step_down_grace(config.lease.step_down_grace);
    }
    let wait = if args.no_wait { Some(Duration::ZERO) } else { args.wait };
    let ends = wait.map(|wait| env.now() + wait);
    // So that the first attempt finds the connections open. Where none opens, the attempt reports why.
    let _ = quorum.ready(wait.unwrap_or(FIRST_HANDSHAKE).max(FIRST_HANDSHAKE)).await;
    let (mut quorum_seen, mut told) = (env.now(), false);
    loop {
        let slice = ends.map_or(SLICE, |ends| env.now().until(ends).min(SLICE));
        if args.no_wait
            && let Ok(TryAcquire::Acquired(lease)) = lock.try_acquire().await
        {
            return Ok(lease);
        }
        let error = match lock.clone().wait(slice).acquire().await {
            Ok(lease) => return Ok(lease),
            Err(error) => error,
        };
        if error.is_contended()
            && ends.is_none_or(|ends| env.now() < ends)
            && !std::mem::replace(&mut told, true)
        {
            log::say(&format!("quorate: waiting: {error}"));
        }
        if !error.is_unreachable() {
            // Contention is waited out, and so is a quarantine: it ends by itself.
            quorum_seen = env.now();
        }
        let over = ends.is_some_and(|ends| env.now() >= ends);
        let hopeless = ends.is_none() && env.now().since(quorum_seen) >= QUORUM_PATIENCE;
        if over || hopeless || error.is_permanent() {
            return Err(refusal(&error, args, quorum));
        }
    }
}

fn refusal(error: &AcquireError, args: &ExecArgs, quorum: &Quorum) -> Failure {
    match error {
        AcquireError::Name(_) | AcquireError::Setting(_) => {
            Failure::new(CONFIG, format!("--lock or --ttl: {error}"))
        }
        AcquireError::Contended { .. } => Failure::new(args.conflict_exit_code, error),
        AcquireError::Unreachable { resource, .. } | AcquireError::Untrusted { resource, .. } => {
            Failure::new(
                NO_QUORUM,
                format!("no quorum for {resource}: {}", connect::explain(&quorum.nodes())),
            )
        }
        _ => Failure::new(FAILURE, error),
    }
}

async fn under_lease(
    args: &ExecArgs,
    config: &Config,
    quorum: &Quorum,
    lease: Lease,
    heart: &Heartbeat,
    signals: &mut PassedOn,
) -> Result<u8, Failure> {
    let grace = args.ttl.map_or(config.lease.step_down_grace, QuorumConfig::default_grace);
    let guard = Guard::new(lease.ttl(), grace);
    let (program, rest) = args.command.split_first().ok_or_else(|| Failure::new(FAILURE, "no command"))?;
    let command = CommandSpec::new(program)
        .args(rest)
        .env("QUORATE_RESOURCE", lease.resource().key())
        .env("QUORATE_FENCING_TOKEN", lease.token().to_string())
        .job_control(true);
    let deadline = guard.deadline(lease.valid_until().unwrap_or_default());
    let mut supervisor = match Supervisor::start(quorum.env(), command, deadline).await {
        Ok(supervisor) => supervisor,
        Err(error) => {
            let code = if lease.is_valid() { error.code() } else { LEASE_LOST };
            release(lease).await;
            return Err(Failure::new(code, error));
        }
    };
    // The guard looks many times within the longest silence: the beat comes from the loop that tends the command.
    let look = || {
        heart.beat();
        lease.valid_until()
    };
    let exit = guard.tend(quorum.env(), &mut supervisor, look, lease.step_down_token(), Some(signals)).await;
    let nodes = quorum.nodes();
    let kept = if exit.is_complete() || !lease.is_valid() {
        release(lease).await;
        None
    } else {
        let left = lease.remaining();
        lease.abandon();
        Some(left)
    };
    verdict(&exit, kept, || connect::explain(&nodes), args)
}

/// The exit status, or why it is not the command's own. `kept` says for how long the lease goes on, which has not been
/// released because something may still run.
fn verdict(
    exit: &Exit,
    kept: Option<Duration>,
    why: impl Fn() -> String,
    args: &ExecArgs,
) -> Result<u8, Failure> {
    let lock = &args.lock;
    for survivor in &exit.survivors {
        log::say(&format!("quorate: what the command started could not be ended, and runs on: {survivor}"));
    }
    let kept = kept.map_or_else(String::new, |left| {
        let left =
            humantime::format_duration(Duration::from_millis(u64::try_from(left.as_millis()).unwrap_or(0)));
        format!("; the lease on {lock} is not released, and ends by itself in {left}")
    });
    let ended = match exit.status {
        _ if !exit.survivors.is_empty() => "not all that the command started could be ended",
        Status::Unknown => "its exit status is unknown",
        _ => "the command has been ended",
    };
    match exit.ended_by {
        Some(EndedBy::SupervisorGone) => Err(Failure::new(
            if exit.survivors.is_empty() { FAILURE } else { LEASE_LOST },
            format!(
                "the supervisor of the command was killed; {ended}; what had left its process group may run{kept}"
            ),
        )),
        Some(EndedBy::WardenSilent) => Err(Failure::new(
            if exit.survivors.is_empty() { FAILURE } else { LEASE_LOST },
            format!(
                "the supervisor of the command did not answer (stopped, or on a machine without time for it) and has \
                 been killed with everything that the command had started; {ended}{kept}"
            ),
        )),
        Some(_) => Err(Failure::new(
            LEASE_LOST,
            format!(
                "the lease on {lock} was lost while the command ran, which {}: {}{kept}",
                match (exit.survivors.is_empty(), exit.killed, exit.status) {
                    (false, ..) => "could not be ended, and runs on without it",
                    (true, true, _) => "has been ended (SIGKILL)",
                    (true, false, Status::Code(_)) => "has ended, maybe too late",
                    (true, false, _) => "has been ended (SIGTERM)",
                },
                why()
            ),
        )),
        None if !exit.survivors.is_empty() => {
            Err(Failure::new(LEASE_LOST, format!("the command has ended, but not all that it started{kept}")))
        }
        None if exit.status == Status::Unknown => Err(Failure::new(
            FAILURE,
            "the command has ended, and its exit status is unknown: another process took it",
        )),
        None => Ok(exit.code()),
    }
}

async fn release(lease: Lease) {
    let held = lease.is_valid();
    if let Err(error) = lease.release().await
        && held
    {
        tracing::warn!("{error}");
    }
}

fn signal_code(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(FAILURE)
}
