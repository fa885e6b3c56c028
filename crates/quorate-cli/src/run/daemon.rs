//! The daemon's loop: the campaign, signals, the file, and what systemd is told. All in one task, so that systemd's
//! watchdog hears of it when the campaign is not polled any more.

use super::{command, notify::Notifier, watch, watch::Watched};
use crate::{
    config::{Config, Flags, JobConfig, Surroundings},
    guard::Guard,
    open,
};
use quorate::{
    election::{Election, ElectionError},
    env::Env,
    lease::Quorum,
    round::majority,
    schedule::{Job, ScheduleError, Scheduler, SchedulerHandle},
};
use std::{fmt, io, pin::pin, sync::Arc};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// The signals that the daemon heeds.
#[derive(Debug)]
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    /// From now on none of them ends this process.
    pub(super) fn catch() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> Heard {
        tokio::select! { biased;
            _ = self.terminate.recv() => Heard::Stop("SIGTERM"),
            _ = self.interrupt.recv() => Heard::Stop("SIGINT"),
            _ = self.hangup.recv() => Heard::Reload,
        }
    }
}

/// Why the file is read anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    Asked,
    Changed,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Asked => "SIGHUP, the file is read anew",
            Self::Changed => "the file has changed",
        })
    }
}

enum Heard {
    Stop(&'static str),
    Reload,
}

/// What runs until it is told to stop.
pub(super) struct Daemon {
    env: Env,
    quorum: Quorum,
    election: Election,
    guard: Guard,
    flags: Flags,
    /// What the jobs are run by now: the file as it was last read without an error.
    config: Config,
    watched: Watched,
    notifier: Notifier,
}

impl Daemon {
    pub(super) fn new(
        quorum: &Quorum,
        config: &Config,
        group: &Arc<str>,
        flags: Flags,
        notifier: Notifier,
    ) -> Self {
        let lease = config.lease;
        Self {
            env: quorum.env().clone(),
            quorum: quorum.clone(),
            election: Election::new(quorum, group).ttl(lease.ttl).step_down_grace(lease.step_down_grace),
            guard: Guard::new(lease.ttl, lease.step_down_grace),
            flags,
            config: config.clone(),
            watched: Watched::new(config.file.as_deref()),
            notifier,
        }
    }

    /// Campaigns, and runs the jobs while it leads, until a signal says to stop.
    pub(super) async fn run(
        mut self,
        jobs: &[JobConfig],
        mut signals: Signals,
    ) -> Result<(), ElectionError<ScheduleError>> {
        let mut scheduler = Scheduler::on(&self.election);
        if let Some(most) = self.config.max_running {
            scheduler = scheduler.max_running(most);
        }
        for job in self.jobs(jobs) {
            scheduler = scheduler.job(job);
        }
        let handle = scheduler.handle();
        let stop = CancellationToken::new();
        let mut campaign = pin!(scheduler.run().until(stop.clone().cancelled_owned()));
        let mut events = self.election.events();
        self.notifier.ready();
        let mut look_at = self.env.now();
        loop {
            if self.env.now() >= look_at {
                look_at = self.env.now() + watch::LOOK_EVERY;
                if !stop.is_cancelled() && self.watched.look() {
                    self.reload(&handle, Why::Changed);
                }
            }
            self.notifier.beat(&self.env);
            if !stop.is_cancelled() {
                let status = self.status();
                self.notifier.status(&status);
            }
            let wake = self.notifier.beat_at().map_or(look_at, |beat| beat.min(look_at));
            tokio::select! { biased;
                ended = &mut campaign => return ended,
                heard = signals.next() => match heard {
                    Heard::Stop(name) => {
                        if !stop.is_cancelled() {
                            tracing::info!("{name}: resigning");
                            self.notifier.stopping();
                        }
                        stop.cancel();
                    }
                    Heard::Reload => self.reload(&handle, Why::Asked),
                },
                Some(_) = events.next() => {}
                () = self.env.sleep_until(wake) => {}
            }
        }
    }

    /// Reads the file anew and sets its jobs. Whoever leads, leads on.
    fn reload(&mut self, handle: &SchedulerHandle, why: Why) {
        let read = Config::load(&self.flags, &Surroundings::process());
        let read = read.and_then(|config| config.group_with_jobs().map(|_| ()).map(|()| config));
        let is_news = |config: &Config| {
            !self.config.job_changes(config).is_empty() || !self.config.needs_restart(config).is_empty()
        };
        if why == Why::Changed && read.as_ref().is_ok_and(|config| !is_news(config)) {
            return;
        }
        self.notifier.reloading();
        match read {
            Err(error) => {
                tracing::error!("{why}, and it cannot be used; the jobs stay as they were: {error}");
            }
            Ok(config) => self.take_up(handle, config, why),
        }
        self.notifier.ready();
    }

    fn take_up(&mut self, handle: &SchedulerHandle, config: Config, why: Why) {
        for key in self.config.needs_restart(&config) {
            tracing::warn!("{why}: the new `{key}` needs a restart, until then the old one holds");
        }
        let news = self.config.job_changes(&config);
        if news.is_empty() {
            tracing::info!("{why}: the jobs are the same");
            return;
        }
        match handle.set_jobs(self.jobs(&config.jobs)) {
            Ok(()) => {
                tracing::info!("{why}: {news}");
                self.config.jobs = config.jobs;
            }
            Err(error) => tracing::error!("{why}, and the jobs stay as they were: {error}"),
        }
    }

    fn jobs(&self, jobs: &[JobConfig]) -> Vec<Job> {
        jobs.iter().map(|job| command::job(job, &self.env, self.guard)).collect()
    }

    /// For `systemctl status`.
    fn status(&self) -> String {
        let leads = self.election.term().filter(quorate::election::Term::is_valid);
        if let Some(term) = leads {
            return format!("leading term {}, {} jobs", term.number().get(), self.config.jobs.len());
        }
        let nodes = self.quorum.nodes();
        let (votes, needed) = (open::votes(&nodes), majority(nodes.len()));
        match votes >= needed {
            true => "following".to_owned(),
            false => format!("no quorum: {votes} of {} nodes vote, {needed} needed", nodes.len()),
        }
    }
}
