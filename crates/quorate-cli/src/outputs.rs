//! The files that keep the output of runs: `DIR/JOB/TICK.log`, one for each run.
//!
//! # What is not guaranteed
//!
//! A file is on the machine of the worker that executed the run. If its file system does not answer for five
//! seconds, the rest of the run's output is not written to it. A run whose worker was killed has a file without
//! an end.

use crate::{
    config::OutputConfig,
    files::{DEADLINE, FileThread},
    time,
};
use quorate::env::{Env, WallTime};
use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// The ending of the files' names.
const ENDING: &str = ".log";
/// The stream of the last line of a file.
pub(crate) const END: &str = "end";

/// The directory of the files, and the thread that writes them. Clones share the thread.
#[derive(Clone, Debug)]
pub(crate) struct OutputFiles {
    config: OutputConfig,
    files: Arc<FileThread>,
}

/// The file of one run.
#[derive(Debug)]
pub(crate) struct RunFile {
    env: Env,
    files: Arc<FileThread>,
    file: Arc<Mutex<OpenFile>>,
    /// True once the file system has not answered in time, or a write has failed.
    failed: bool,
    path: PathBuf,
}

#[derive(Debug)]
struct OpenFile {
    file: Option<File>,
    rest: u64,
}

impl OutputFiles {
    pub(crate) fn start(config: &OutputConfig) -> io::Result<Self> {
        Ok(Self { config: config.clone(), files: Arc::new(FileThread::start()?) })
    }

    /// Opens the file of a run, and removes old files of the job. A failure is logged.
    pub(crate) async fn open(&self, env: &Env, job: &str, tick: WallTime) -> Option<RunFile> {
        let (dir, path) = (dir_of(&self.config.dir, job), path_of(&self.config.dir, job, tick));
        let (config, opened) = (self.config.clone(), path.clone());
        let work = self.files.begin(move || {
            DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
            remove_old(&dir, &opened, &config);
            let file = OpenOptions::new().append(true).create(true).mode(0o600).open(&opened)?;
            let rest = config.max_size.saturating_sub(file.metadata()?.len());
            Ok::<_, io::Error>(OpenFile { file: Some(file), rest })
        });
        let opened = match env.before(env.now() + DEADLINE, work).await {
            Some(Ok(opened)) => opened,
            Some(Err(_)) => Err(io::Error::other("the thread that writes files has ended")),
            None => Err(io::Error::from(io::ErrorKind::TimedOut)),
        };
        match opened {
            Ok(file) => Some(RunFile {
                env: env.clone(),
                files: Arc::clone(&self.files),
                file: Arc::new(Mutex::new(file)),
                failed: false,
                path,
            }),
            Err(error) => {
                tracing::warn!(job, "the output of a run is not kept in {}: {error}", path.display());
                None
            }
        }
    }
}

impl RunFile {
    /// Writes a line. It is dropped if the file has reached its largest size.
    pub(crate) async fn write(&mut self, now: WallTime, stream: &str, text: &str) {
        if self.failed {
            return;
        }
        let line = format!("{} {stream} {text}\n", time::rfc3339(now));
        let (file, is_end) = (Arc::clone(&self.file), stream == END);
        let work = self.files.begin(move || {
            let mut open = file.lock().unwrap_or_else(PoisonError::into_inner);
            let size = u64::try_from(line.len()).unwrap_or(u64::MAX);
            let fits = size <= open.rest;
            let was_full = open.rest == 0;
            open.rest = if fits { open.rest - size } else { 0 };
            let Some(file) = open.file.as_mut() else { return Ok(()) };
            match (fits || is_end, was_full) {
                (true, _) => file.write_all(line.as_bytes()),
                (false, false) => file.write_all(
                    b"- note the file has its largest size (output.max_size); the rest is not kept\n",
                ),
                (false, true) => Ok(()),
            }
        });
        let written = self.env.before(self.env.now() + DEADLINE, work).await;
        let error = match written {
            Some(Ok(Ok(()))) => return,
            Some(Ok(Err(error))) => error.to_string(),
            Some(Err(_)) => "the thread that writes files has ended".to_owned(),
            None => format!("no answer from the file system within {DEADLINE:?}"),
        };
        self.failed = true;
        tracing::warn!("the rest of a run's output is not kept in {}: {error}", self.path.display());
    }
}

/// Removes the files of a job that are too old or too many. `opened` is the file that is about to be written: a
/// retry finds it, and it is neither counted nor removed.
fn remove_old(dir: &Path, opened: &Path, config: &OutputConfig) {
    let age = |path: &Path| {
        let modified = fs::metadata(path).and_then(|data| data.modified()).ok();
        // A file without a time, or with one in the future, is not old.
        modified.and_then(|modified| modified.elapsed().ok()).unwrap_or_default()
    };
    let others = ticks_in(dir).into_iter().map(|(_, path)| path).filter(|path| path != opened);
    let others: Vec<_> = others.map(|path| (path.clone(), age(&path))).collect();
    for path in superfluous(&others, config) {
        if let Err(error) = fs::remove_file(path) {
            tracing::warn!("cannot remove {}: {error}", path.display());
        }
    }
}

/// Returns the files to remove. `files` are those of one job, the oldest tick first, with their ages, without the one
/// that is about to be written. So the newest `keep - 1` stay, unless they are too old. Pure.
fn superfluous<'a>(files: &'a [(PathBuf, Duration)], config: &OutputConfig) -> Vec<&'a PathBuf> {
    let excess = (files.len() + 1).saturating_sub(config.keep);
    let is_old = |age: Duration| config.max_age.is_some_and(|most| age > most);
    let numbered = files.iter().enumerate();
    numbered.filter(|(at, (_, age))| *at < excess || is_old(*age)).map(|(_, (path, _))| path).collect()
}

/// Returns the files of a job, the oldest tick first.
pub(crate) fn runs_of(dir: &Path, job: &str) -> Vec<(WallTime, PathBuf)> {
    ticks_in(&dir_of(dir, job))
}

fn ticks_in(dir: &Path) -> Vec<(WallTime, PathBuf)> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let tick = |path: PathBuf| {
        let name = path.file_name()?.to_str()?.strip_suffix(ENDING)?.to_owned();
        let (date, clock) = name.split_once('T')?;
        let at = time::parse(&format!("{date}T{}", clock.replace('-', ":"))).ok()?;
        Some((at, path))
    };
    let mut found: Vec<_> = entries.flatten().filter_map(|entry| tick(entry.path())).collect();
    found.sort();
    found
}

pub(crate) fn path_of(dir: &Path, job: &str, tick: WallTime) -> PathBuf {
    let whole = time::rfc3339(WallTime::from_micros(tick.as_micros() / 1_000_000 * 1_000_000));
    let (micros, seconds) = (tick.as_micros() % 1_000_000, whole.trim_end_matches('Z'));
    dir_of(dir, job).join(format!("{}.{micros:06}Z{ENDING}", seconds.replace(':', "-")))
}

/// Returns the directory of a job's files. Its name has no character with a meaning for a shell or a file system.
fn dir_of(dir: &Path, job: &str) -> PathBuf {
    let mut name = String::new();
    for byte in job.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => name.push(char::from(byte)),
            b'.' if !name.is_empty() => name.push('.'),
            other => name += &format!("%{other:02X}"),
        }
    }
    // A file system permits names of 255 bytes.
    if name.len() > 200 {
        let hash = job.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        name.truncate(180);
        name += &format!("~{hash:016x}");
    }
    dir.join(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(keep: usize, max_age: Option<Duration>) -> OutputConfig {
        OutputConfig { dir: "/d".into(), keep, max_size: 1_000, max_age }
    }

    #[test]
    fn names_are_safe_distinct_and_can_be_parsed() {
        let tick = WallTime::from_micros(1_800_000_000_500_000);
        let path = path_of(Path::new("/d"), "nightly", tick);
        assert_eq!(path, Path::new("/d/nightly/2027-01-15T08-00-00.500000Z.log"));
        let dirs: Vec<PathBuf> = ["..", ".", "a b", "a%20b", "ї", &"ї".repeat(60), &("ї".repeat(59) + "ж")]
            .map(|job| dir_of(Path::new("/d"), job))
            .into();
        for dir in &dirs {
            let name = dir.file_name().unwrap().to_str().unwrap();
            assert!(
                name.len() <= 255
                    && name.is_ascii()
                    && !name.starts_with('.')
                    && dir.parent() == Some(Path::new("/d")),
                "{name}"
            );
        }
        let distinct: std::collections::BTreeSet<_> = dirs.iter().collect();
        assert_eq!(distinct.len(), dirs.len(), "{dirs:?}");
    }

    #[test]
    fn old_files_and_too_many_files_are_removed() {
        let hour = Duration::from_secs(3600);
        let files: Vec<(PathBuf, Duration)> =
            (0..5).map(|at| (format!("/{at}").into(), hour * (5 - at))).collect();
        let removed = |config| {
            superfluous(&files, &config).iter().map(|path| path.display().to_string()).collect::<String>()
        };
        assert_eq!(removed(config(6, None)), "");
        assert_eq!(removed(config(3, None)), "/0/1/2", "two stay, and one is about to be written");
        assert_eq!(removed(config(100, Some(hour * 3))), "/0/1");
        assert_eq!(removed(config(1, None)), "/0/1/2/3/4");
    }

    #[tokio::test]
    async fn a_file_that_is_opened_again_removes_no_other_file() {
        let dir = tempfile::tempdir().unwrap();
        let config = OutputConfig { dir: dir.path().into(), ..config(2, None) };
        let (env, files) = (Env::system(), OutputFiles::start(&config).unwrap());
        let at = |second: u64| WallTime::from_micros(1_800_000_000_000_000 + second * 1_000_000);
        let kept = || runs_of(&config.dir, "j").iter().map(|(tick, _)| *tick).collect::<Vec<_>>();
        for (run, expected) in [(1, &[1][..]), (2, &[1, 2]), (2, &[1, 2]), (1, &[1, 2]), (3, &[2, 3])] {
            drop(files.open(&env, "j", at(run)).await.unwrap());
            assert_eq!(kept(), expected.iter().map(|run| at(*run)).collect::<Vec<_>>(), "after run {run}");
        }
    }

    #[tokio::test]
    async fn a_file_has_a_largest_size_and_an_end() {
        let dir = tempfile::tempdir().unwrap();
        let config = OutputConfig { dir: dir.path().join("new"), max_size: 100, ..config(2, None) };
        let (env, files) = (Env::system(), OutputFiles::start(&config).unwrap());
        let at = |second: u64| WallTime::from_micros(1_800_000_000_000_000 + second * 1_000_000);
        for run in 0..4 {
            let mut file = files.open(&env, "j", at(run)).await.unwrap();
            for _ in 0..5 {
                file.write(at(run), "stdout", "thirty bytes of output, indeed").await;
            }
            file.write(at(run), END, "").await;
        }
        let kept = runs_of(&config.dir, "j");
        assert_eq!(kept.iter().map(|(tick, _)| *tick).collect::<Vec<_>>(), [at(2), at(3)]);
        let text = fs::read_to_string(&kept[1].1).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "2027-01-15T08:00:03Z stdout thirty bytes of output, indeed");
        assert!(lines.len() == 3 && lines[1].starts_with("- note ") && lines[2].contains(" end "), "{text}");
    }
}
