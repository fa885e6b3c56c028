//! The main loop of the daemon: the campaign, signals, the configuration file, and the messages to systemd.
//! All of these run in one task. So the watchdog messages to systemd and the heartbeat of the lease stop when
//! the campaign is no longer polled.

use super::{
    command::{self, DaemonParts},
    notify::Notifier,
    reader::{ConfigReader, FileEvent, Loaded, MakeJobs, ReloadReason},
};
use crate::{
    config::{Config, Flags, JobConfig},
    connect, files,
    guard::Guard,
    http::Server,
    notices::{Client, Notices, Pings},
    outputs::OutputFiles,
};
use quorate::{
    election::{Election, ElectionError},
    env::{BootTime, Env, ScopedTask},
    lease::Heartbeat,
    quorum::{Quorum, SettingError},
    scheduler::{Job, Scheduler, SchedulerHandle},
};
use std::{io, pin::pin, sync::Arc, time::Duration};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// The number of beats of the loop within the longest silence that the heartbeat allows.
pub(crate) const BEATS: u32 = 4;

/// The signals that the daemon handles.
#[derive(Debug)]
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    /// Installs the handlers: after this, none of these signals ends this process by itself.
    pub(crate) fn catch() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    pub(crate) async fn next(&mut self) -> SignalAction {
        tokio::select! { biased;
            _ = self.terminate.recv() => SignalAction::Stop("SIGTERM"),
            _ = self.interrupt.recv() => SignalAction::Stop("SIGINT"),
            _ = self.hangup.recv() => SignalAction::Reload,
        }
    }
}

/// The action that a signal asks of the daemon.
#[derive(Debug)]
pub(crate) enum SignalAction {
    Stop(&'static str),
    Reload,
}

/// The daemon, which runs until a signal stops it.
pub(super) struct Daemon {
    env: Env,
    quorum: Quorum,
    election: Election,
    scheduler: Scheduler,
    handle: SchedulerHandle,
    /// The heartbeat of the lease, which is extended only while the loop beats.
    heartbeat: Heartbeat,
    /// The configuration in use. It was read from the last version of the file that had no error.
    config: Config,
    reader: ConfigReader,
    notifier: Notifier,
    /// The tasks that watch whether there is a leader that can do its work.
    #[expect(dead_code, reason = "they end when they are dropped")]
    no_leader: Vec<ScopedTask<()>>,
}

/// The parts that notify operators of jobs.
struct Watching {
    notices: Option<Notices>,
    around: DaemonParts,
}

impl Watching {
    fn attach(&self, config: &JobConfig, env: &Env, guard: Guard) -> Job {
        let job = command::job(config, env, guard, &self.around);
        match &self.notices {
            Some(notices) => notices.attach(config, job),
            None => job,
        }
    }
}

/// Returns the function that makes the jobs of a configuration, and their measurements.
fn make_jobs(watching: Watching, (env, guard): (Env, Guard), handle: SchedulerHandle) -> MakeJobs {
    Arc::new(move |config| {
        let jobs: Vec<Job> = config.jobs.iter().map(|job| watching.attach(job, &env, guard)).collect();
        handle.prepare(&jobs);
        jobs
    })
}

impl Daemon {
    pub(super) fn new(
        quorum: &Quorum,
        config: &Config,
        (group, jobs): (&Arc<str>, &[JobConfig]),
        flags: Flags,
        notifier: Notifier,
    ) -> io::Result<Self> {
        let notices = Notices::start(quorum, group, config)?;
        let outputs = config.output.as_ref().map(OutputFiles::start).transpose()?;
        let around = DaemonParts {
            pings: Pings::start(quorum.env())?,
            client: Client::start()?,
            group: Arc::clone(group),
            outputs,
        };
        let (lease, env) = (config.lease, quorum.env());
        let heartbeat = Heartbeat::new(env, max_silence(lease.ttl));
        let guard = Guard::new(lease.ttl, lease.step_down_grace);
        let election = Election::new(quorum, group).ttl(lease.ttl).step_down_grace(lease.step_down_grace);
        let election = config.election.apply(election.renew_while_beating(&heartbeat));
        let scheduler = Scheduler::on(&election).labels(&config.labels);
        let scheduler = match config.max_running {
            Some(most) => scheduler.max_running(most),
            None => scheduler,
        };
        let scheduler = config.commands.iter().fold(scheduler, |scheduler, (name, command)| {
            scheduler.handler(name, command::handler(command, env, guard, &around))
        });
        let scheduler = match &notices {
            Some(notices) => notices.attach_stored(scheduler),
            None => scheduler,
        };
        let watching = Watching { notices, around };
        let jobs = jobs.iter().map(|job| watching.attach(job, env, guard));
        let scheduler = jobs.fold(scheduler, Scheduler::job);
        // The call of `handle` creates the registry of the jobs. So the counters of all jobs exist even before there is
        // a quorum.
        let handle = scheduler.handle();
        let no_leader = watching.notices.as_ref();
        let no_leader = no_leader.map(|notices| notices.watch_leader(quorum, &election, lease.ttl));
        let make_jobs = make_jobs(watching, (env.clone(), guard), handle.clone());
        Ok(Self {
            handle,
            scheduler,
            env: env.clone(),
            quorum: quorum.clone(),
            heartbeat,
            config: config.clone(),
            reader: ConfigReader::new(env, config.file.clone(), flags, make_jobs)?,
            notifier,
            no_leader: no_leader.unwrap_or_default(),
            election,
        })
    }

    pub(super) fn election(&self) -> &Election {
        &self.election
    }

    /// Campaigns, and runs the jobs while it leads, until a signal stops it.
    pub(super) async fn run(
        mut self,
        mut signals: Signals,
        http: Option<&Server>,
    ) -> Result<(), ElectionError<SettingError>> {
        let handle = self.handle.clone();
        let stop = CancellationToken::new();
        let mut campaign = pin!(self.scheduler.run().until(stop.clone().cancelled_owned()));
        let mut events = self.election.events();
        self.notifier.ready();
        let mut last_beat = self.env.now();
        loop {
            let now = self.env.now();
            if let Some(warning) = stalled(last_beat.until(now), self.heartbeat.max_silence()) {
                tracing::warn!("{warning}");
            }
            last_beat = now;
            self.heartbeat.beat();
            self.notifier.beat(&self.env);
            if let Some(http) = http {
                http.beat();
            }
            if !stop.is_cancelled() {
                if let Some(event) = self.reader.poll() {
                    self.on_file_event(&handle, event);
                }
                let status = self.status();
                self.notifier.status(&status);
            }
            let wake = self.wake(stop.is_cancelled());
            tokio::select! { biased;
                ended = &mut campaign => return ended,
                action = signals.next() => match action {
                    SignalAction::Stop(name) => {
                        if !stop.is_cancelled() {
                            tracing::info!("{name}: resigning");
                            self.notifier.stopping();
                            if let Some(http) = http {
                                http.stopping();
                            }
                        }
                        stop.cancel();
                    }
                    SignalAction::Reload => self.reader.request_reload(),
                },
                event = self.reader.next(), if !stop.is_cancelled() => self.on_file_event(&handle, event),
                Some(_) = events.recv() => {}
                () = self.env.sleep_until(wake) => {}
            }
        }
    }

    /// Returns the latest time at which the loop must run its next iteration.
    fn wake(&self, stopping: bool) -> BootTime {
        let beat_at = self.env.now() + self.heartbeat.max_silence() / BEATS;
        let reader = (!stopping).then(|| self.reader.wake());
        [self.notifier.beat_at(), reader].into_iter().flatten().fold(beat_at, BootTime::min)
    }

    /// Applies the new contents of the file to the scheduler. A leader keeps its term.
    fn on_file_event(&mut self, handle: &SchedulerHandle, event: FileEvent) {
        let is_changed = |config: &Config| {
            !self.config.job_changes(config).is_empty() || !self.config.needs_restart(config).is_empty()
        };
        let late = || format!("no answer within {:?} from its file system", files::DEADLINE);
        match event {
            FileEvent::Read(ReloadReason::Changed, Ok(read)) if !is_changed(&read.config) => return,
            FileEvent::Late(None) => {
                return tracing::warn!("cannot watch the configuration file: {}", late());
            }
            _ => {}
        }
        self.notifier.reloading();
        let unusable = |why: ReloadReason, error: &str| {
            tracing::error!("{why}, and it is not valid; the jobs stay as they were: {error}");
        };
        match event {
            FileEvent::Read(why, Ok(read)) => self.apply(handle, *read, why),
            FileEvent::Read(why, Err(error)) => unusable(why, &error.to_string()),
            FileEvent::Late(Some(why)) => unusable(why, &late()),
            FileEvent::Late(None) => {}
        }
        self.notifier.ready();
    }

    fn apply(&mut self, handle: &SchedulerHandle, Loaded { config, jobs }: Loaded, why: ReloadReason) {
        for key in self.config.needs_restart(&config) {
            tracing::warn!("{why}: the new value of `{key}` takes effect after a restart");
        }
        let changes = self.config.job_changes(&config);
        if changes.is_empty() {
            tracing::info!("{why}: the jobs are the same");
            return;
        }
        match handle.set_jobs(jobs) {
            Ok(()) => {
                tracing::info!("{why}: {changes}");
                self.config.jobs = config.jobs;
            }
            Err(error) => tracing::error!("{why}, and the jobs stay as they were: {error}"),
        }
    }

    /// Returns the text that `systemctl status` shows.
    fn status(&self) -> String {
        let status = connect::leadership(&self.quorum, &self.election);
        match self.election.is_leader() {
            true => format!("{status}, {} jobs", self.config.jobs.len()),
            false => status,
        }
    }
}

/// Returns a warning if the main loop did not run for longer than `allowed`; `silence` is the time for which
/// it did not run. The lease may then be lost although all nodes answer.
pub(crate) fn stalled(silence: Duration, allowed: Duration) -> Option<String> {
    (silence > allowed).then(|| {
        format!(
            "the main loop did not run for {silence:.1?}, and the lease was not extended: the process was stopped, or the \
             machine was suspended or overloaded"
        )
    })
}

/// Returns the longest pause of the main loop during which the lease is still extended. The loop beats at
/// each iteration, and a lease is not extended while the last beat is older than the returned time. The
/// returned time is also the time between two extensions. If the pause continues, the lease ends one TTL
/// after its last extension.
pub(crate) fn max_silence(ttl: Duration) -> Duration {
    ttl / 3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_that_did_not_run_for_longer_than_allowed_is_reported() {
        let allowed = max_silence(Duration::from_secs(3));
        assert_eq!(stalled(allowed, allowed), None);
        let warning = stalled(Duration::from_millis(1_500), allowed).unwrap();
        assert!(warning.starts_with("the main loop did not run for 1.5s"), "{warning}");
    }
}
