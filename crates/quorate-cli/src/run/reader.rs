//! Reads the daemon's configuration file on a separate thread, so that the loop of the daemon never waits for a
//! file system.

use super::watch::{LOOK_EVERY, Seen, Stamp};
use crate::{
    config::{Config, ConfigError, Environment, Flags},
    files::{self, FileThread},
};
use quorate::{
    env::{BootTime, Env},
    scheduler::Job,
};
use std::{
    fmt, io,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::sync::oneshot;

/// The time after which an access to the file is reported as late. A read of a pipe without data fails earlier,
/// with an error that has more details.
const LATE_AFTER: Duration = files::DEADLINE.saturating_add(Duration::from_secs(1));

/// The reason why the file is read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReloadReason {
    Requested,
    Changed,
}

impl fmt::Display for ReloadReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Requested => "SIGHUP, the file is read again",
            Self::Changed => "the file has changed",
        })
    }
}

/// A configuration that was read, with its jobs.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) config: Config,
    pub(super) jobs: Vec<Job>,
}

/// The function that makes the jobs of a configuration. For many jobs this takes a while, so the thread that reads the
/// file calls it.
pub(super) type MakeJobs = Arc<dyn Fn(&Config) -> Vec<Job> + Send + Sync>;

/// The result of a read.
#[derive(Debug)]
pub(super) enum FileEvent {
    /// The file was read. The result is its configuration, or the error of an invalid file.
    Read(ReloadReason, Result<Box<Loaded>, ConfigError>),
    /// The file system has not answered yet. The value is the reason for reading the file, or `None` if only
    /// the state of the file was requested.
    Late(Option<ReloadReason>),
}

/// Checks the file each second, and reads it when the file has changed or a reload is requested. Only one
/// access runs at a time, on a separate thread.
pub(super) struct ConfigReader {
    env: Env,
    files: FileThread,
    flags: Flags,
    make_jobs: MakeJobs,
    path: Option<PathBuf>,
    seen: Seen,
    look_at: BootTime,
    access: Option<Access>,
    /// True if a reload was requested while an access was in progress. The file is then read after that access.
    reload_requested: bool,
}

#[derive(Debug)]
struct Access {
    /// The reason for reading the file. `None` if only the state of the file is requested.
    why: Option<ReloadReason>,
    began: BootTime,
    late: bool,
    /// True once the file system has answered. What follows may take a while, and is not late.
    answered: Arc<AtomicBool>,
    result: oneshot::Receiver<Found>,
}

#[derive(Debug)]
enum Found {
    Looked(Option<Stamp>),
    Read(Result<Box<Loaded>, ConfigError>),
}

impl ConfigReader {
    /// Returns a reader of the file at `path`. The program has already read this file with the flags `flags`.
    pub(super) fn new(
        env: &Env,
        path: Option<PathBuf>,
        flags: Flags,
        make_jobs: MakeJobs,
    ) -> io::Result<Self> {
        let (env, files) = (env.clone(), FileThread::start()?);
        let look_at = env.now();
        Ok(Self {
            env,
            files,
            flags,
            make_jobs,
            path,
            seen: Seen::default(),
            look_at,
            access: None,
            reload_requested: false,
        })
    }

    /// Requests that the file is read now, or as soon as the access in progress has ended.
    pub(super) fn request_reload(&mut self) {
        match self.access {
            None => self.read(ReloadReason::Requested),
            Some(_) => self.reload_requested = true,
        }
    }

    /// Starts an access if one is due. Returns an event if the access in progress is late, but only once for
    /// each access.
    pub(super) fn poll(&mut self) -> Option<FileEvent> {
        let now = self.env.now();
        match &mut self.access {
            Some(access) if access.late_at().is_some_and(|at| at <= now) => {
                access.late = true;
                return Some(FileEvent::Late(access.why));
            }
            None if now >= self.look_at => {
                self.look_at = now + LOOK_EVERY;
                if let Some(path) = self.path.clone() {
                    self.begin(None, move |_| Found::Looked(Stamp::of(&path).ok()));
                }
            }
            _ => {}
        }
        None
    }

    /// Returns the time at which [`ConfigReader::poll`] must be called.
    pub(super) fn wake(&self) -> BootTime {
        match &self.access {
            Some(access) => access.late_at().unwrap_or(BootTime::from_nanos(u64::MAX)),
            None => self.look_at,
        }
    }

    /// Waits for the access in progress, and returns its result.
    ///
    /// # Cancel safety
    /// Safe: the access continues, and its result is kept for the next call.
    pub(super) async fn next(&mut self) -> FileEvent {
        loop {
            let Some(access) = &mut self.access else { return std::future::pending().await };
            let (found, why) = ((&mut access.result).await, access.why);
            self.access = None;
            let requested = std::mem::take(&mut self.reload_requested);
            if requested {
                self.read(ReloadReason::Requested);
            }
            match (found, why) {
                (Ok(Found::Looked(stamp)), _) => {
                    if self.seen.look(stamp) && !requested {
                        self.read(ReloadReason::Changed);
                    }
                }
                (Ok(Found::Read(config)), Some(why)) => return FileEvent::Read(why, config),
                (_, Some(why)) => {
                    return FileEvent::Read(
                        why,
                        Err(ConfigError::bare("the thread that reads it has ended; restart the daemon")),
                    );
                }
                (_, None) => {}
            }
        }
    }

    fn read(&mut self, why: ReloadReason) {
        let (flags, make_jobs) = (self.flags.clone(), Arc::clone(&self.make_jobs));
        self.begin(Some(why), move |answered| {
            let environment = Environment { read: &files::read, ..Environment::process() };
            let read = Config::load(&flags, &environment);
            answered.store(true, Ordering::Relaxed);
            Found::Read(read.and_then(|config| {
                config.group_with_jobs()?;
                let jobs = make_jobs(&config);
                Ok(Box::new(Loaded { config, jobs }))
            }))
        });
    }

    fn begin(
        &mut self,
        why: Option<ReloadReason>,
        access: impl FnOnce(&AtomicBool) -> Found + Send + 'static,
    ) {
        let answered = Arc::new(AtomicBool::new(false));
        let shared = Arc::clone(&answered);
        let result = self.files.begin(move || access(&shared));
        self.access = Some(Access { why, began: self.env.now(), late: false, answered, result });
    }
}

impl Access {
    /// Returns the time at which the access is late, unless it is known to be late or the file system has answered.
    fn late_at(&self) -> Option<BootTime> {
        let is_open = !self.late && !self.answered.load(Ordering::Relaxed);
        is_open.then(|| self.began + LATE_AFTER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread::{self, ThreadId};

    /// Regression: the main loop made the jobs of a file, and stood still for as long.
    #[tokio::test]
    async fn the_jobs_of_a_file_are_made_on_the_thread_that_reads_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("q.toml");
        let text = "nodes = [\"redis://localhost:1\"]\ngroup = \"g\"\n[[job]]\nname = \"j\"\nevery = \"1s\"\ncommand = [\"true\"]\n";
        std::fs::write(&file, text).unwrap();
        let made_on: Arc<std::sync::Mutex<Option<ThreadId>>> = Arc::default();
        let made = Arc::clone(&made_on);
        let make_jobs: MakeJobs = Arc::new(move |config| {
            assert_eq!(config.jobs.len(), 1);
            *made.lock().unwrap() = Some(thread::current().id());
            Vec::new()
        });
        let flags = Flags { config: Some(file.clone()), ..Flags::default() };
        let mut reader = ConfigReader::new(&Env::system(), Some(file), flags, make_jobs).unwrap();
        reader.request_reload();
        let FileEvent::Read(ReloadReason::Requested, Ok(read)) = reader.next().await else {
            panic!("the file is not read")
        };
        assert_eq!(read.config.jobs.len(), 1);
        let made_on = made_on.lock().unwrap().expect("the jobs are made");
        assert_ne!(made_on, thread::current().id());
    }
}
