use super::{PATIENCE, until};
use quorate::env::WallTime;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// A file to which a command and its child write the time, again and again, while they run. Each line of this
/// file is a *beat*.
#[derive(Debug)]
pub struct Beats {
    file: PathBuf,
}

impl Beats {
    /// A script that starts a child. The script and the child both write the time and the fencing token every
    /// 20 ms. Neither ends at SIGTERM.
    const STUBBORN: &str = r#"
        trap "" TERM
        beat='while :; do echo "$0 $$ $QUORATE_FENCING_TOKEN $(date +%s%N)" >> "$1"; sleep 0.02; done'
        sh -c "$beat" child "$0" &
        exec sh -c "$beat" self "$0"
    "#;

    /// Returns the beats of commands that write to `file`.
    pub fn new(file: PathBuf) -> Self {
        Self { file }
    }

    /// Returns a command that writes beats, and ends only if it is killed.
    pub fn stubborn(&self) -> [String; 4] {
        ["sh", "-c", Self::STUBBORN, &self.file.display().to_string()].map(str::to_owned)
    }

    /// Waits until both a command and its child have written.
    #[track_caller]
    pub fn wait_for_child(&self) {
        until("beats of a command and its child", PATIENCE, || {
            let beats = self.read();
            let (own, child) = (beats.iter().any(|beat| !beat.child), beats.iter().any(|beat| beat.child));
            (own && child).then_some(())
        });
    }

    /// Returns the time of the last beat.
    ///
    /// # Panics
    /// If no beat was written.
    #[track_caller]
    pub fn last(&self) -> WallTime {
        self.read().iter().map(|beat| beat.at).max().expect("at least one beat")
    }

    /// Returns the fencing tokens of the beats, in the order of their first beats. Each has the times of its
    /// first and last beat.
    pub fn tenures(&self) -> Vec<(u64, WallTime, WallTime)> {
        let mut tenures: Vec<(u64, WallTime, WallTime)> = Vec::new();
        for beat in self.read() {
            match tenures.iter_mut().find(|(token, _, _)| *token == beat.token) {
                Some((_, first, last)) => (*first, *last) = ((*first).min(beat.at), (*last).max(beat.at)),
                None => tenures.push((beat.token, beat.at, beat.at)),
            }
        }
        tenures
    }

    /// Returns the process ids of the commands that have written.
    pub fn pids(&self) -> Vec<u32> {
        let mut pids: Vec<u32> = self.read().iter().map(|beat| beat.pid).collect();
        pids.sort_unstable();
        pids.dedup();
        pids
    }

    fn read(&self) -> Vec<Beat> {
        read(&self.file).lines().filter_map(Beat::parse).collect()
    }
}

struct Beat {
    child: bool,
    pid: u32,
    token: u64,
    at: WallTime,
}

impl Beat {
    /// Parses a line. Returns `None` if the line is still being written.
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let (who, pid) = (words.next()?, words.next()?.parse().ok()?);
        let (token, nanos) = (words.next()?.parse().ok()?, words.next()?.parse::<u64>().ok()?);
        Some(Self { child: who == "child", pid, token, at: WallTime::from_micros(nanos / 1000) })
    }
}

fn read(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_default()
}
