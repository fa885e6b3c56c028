//! The daemon's loop: the campaign, signals, the file, and what systemd is told. All in one task, so that systemd's
//! watchdog and the lease's heartbeat stop when the campaign is not polled any more.

use super::{
    command,
    notify::Notifier,
    reader::{ConfigReader, News, Why},
};
use crate::{
    config::{Config, Flags, JobConfig},
    connect, files,
    guard::Guard,
};
use quorate::{
    election::{Election, ElectionError},
    env::{BootTime, Env},
    internals::majority,
    lease::Heartbeat,
    quorum::Quorum,
    schedule::{Job, ScheduleError, Scheduler, SchedulerHandle},
};
use std::{io, pin::pin, sync::Arc, time::Duration};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// How many times the loop beats within the longest silence of its heart.
const BEATS: u32 = 4;

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

enum Heard {
    Stop(&'static str),
    Reload,
}

/// What runs until it is told to stop.
pub(super) struct Daemon {
    env: Env,
    quorum: Quorum,
    election: Election,
    /// The lease is extended while the loop gives a beat of this.
    heart: Heartbeat,
    guard: Guard,
    /// What the jobs are run by now: the file as it was last read without an error.
    config: Config,
    reader: ConfigReader,
    notifier: Notifier,
}

impl Daemon {
    pub(super) fn new(
        quorum: &Quorum,
        config: &Config,
        group: &Arc<str>,
        flags: Flags,
        notifier: Notifier,
    ) -> io::Result<Self> {
        let (lease, env) = (config.lease, quorum.env());
        let heart = Heartbeat::new(env, max_silence(lease.ttl));
        let election = Election::new(quorum, group).ttl(lease.ttl).step_down_grace(lease.step_down_grace);
        Ok(Self {
            env: env.clone(),
            quorum: quorum.clone(),
            election: election.renew_while_beating(&heart),
            heart,
            guard: Guard::new(lease.ttl, lease.step_down_grace),
            config: config.clone(),
            reader: ConfigReader::new(env, config.file.clone(), flags)?,
            notifier,
        })
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
        loop {
            self.heart.beat();
            self.notifier.beat(&self.env);
            if !stop.is_cancelled() {
                if let Some(news) = self.reader.turn() {
                    self.hear(&handle, news);
                }
                let status = self.status();
                self.notifier.status(&status);
            }
            let wake = self.wake(stop.is_cancelled());
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
                    Heard::Reload => self.reader.ask(),
                },
                news = self.reader.news(), if !stop.is_cancelled() => self.hear(&handle, news),
                Some(_) = events.next() => {}
                () = self.env.sleep_until(wake) => {}
            }
        }
    }

    /// When the loop turns at the latest.
    fn wake(&self, stopping: bool) -> BootTime {
        let beat_at = self.env.now() + self.heart.max_silence() / BEATS;
        let reader = (!stopping).then(|| self.reader.wake());
        [self.notifier.beat_at(), reader].into_iter().flatten().fold(beat_at, BootTime::min)
    }

    /// Takes up what the file says now. A leader goes on leading.
    fn hear(&mut self, handle: &SchedulerHandle, news: News) {
        let is_news = |config: &Config| {
            !self.config.job_changes(config).is_empty() || !self.config.needs_restart(config).is_empty()
        };
        let late = || format!("no answer within {:?} from its file system", files::DEADLINE);
        match news {
            News::Read(Why::Changed, Ok(config)) if !is_news(&config) => return,
            News::Late(None) => {
                return tracing::warn!("the configuration file is not watched for now: {}", late());
            }
            _ => {}
        }
        self.notifier.reloading();
        let unusable = |why: Why, error: &str| {
            tracing::error!("{why}, and it cannot be used; the jobs stay as they were: {error}");
        };
        match news {
            News::Read(why, Ok(config)) => self.take_up(handle, *config, why),
            News::Read(why, Err(error)) => unusable(why, &error.to_string()),
            News::Late(Some(why)) => unusable(why, &late()),
            News::Late(None) => {}
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
            return format!("leading term {}, {} jobs", term.token().get(), self.config.jobs.len());
        }
        let nodes = self.quorum.nodes();
        let (votes, needed) = (connect::votes(&nodes), majority(nodes.len()));
        match votes >= needed {
            true => "following".to_owned(),
            false => format!("no quorum: {votes} of {} nodes vote, {needed} needed", nodes.len()),
        }
    }
}

/// How long the loop may be silent before the lease is not extended any more: as long as between two extensions, so
/// that a silence costs one of them. The lease ends by its TTL after the last.
fn max_silence(ttl: Duration) -> Duration {
    ttl / 3
}
