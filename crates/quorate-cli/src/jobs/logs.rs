//! The command `quorate jobs logs`, which shows the output of a run: from the file of the run, or else from the
//! history on the nodes.

use super::{failure, look};
use crate::{
    args::LogsArgs,
    config::Config,
    exit::{FAILURE, Failure, NOT_FOUND},
    log,
    outputs::{END, path_of, runs_of},
    show,
    time::rfc3339,
};
use quorate::{
    env::{Env, WallTime},
    plain::plain,
    scheduler::{HistoryEntry, Jobs},
};
use serde::Serialize;
use std::{
    fs::File,
    io::{self, BufRead, BufReader},
    path::{Path, PathBuf},
    time::Duration,
};

/// The time between two looks for further output.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// The number of entries of the history among which the run is looked for.
const ENTRIES: usize = 10_000;
/// The longest name that is shown, in bytes.
const NAME_MAX: usize = 200;

/// The output of a run.
#[derive(Debug, Serialize)]
struct Page {
    job: String,
    run: String,
    /// `file`, or `history` if only the end of the output is kept.
    source: &'static str,
    lines: Vec<Line>,
}

#[derive(Debug, Serialize)]
struct Line {
    /// `null` in the history.
    time: Option<String>,
    /// `stdout`, `stderr`, `end` or `note`; `null` in the history, which does not distinguish them.
    stream: Option<String>,
    text: String,
}

/// Shows the output of a run.
pub(super) async fn logs(args: &LogsArgs, config: &Config) -> Result<u8, Failure> {
    let dir = config.output.as_ref().map(|output| &*output.dir);
    match dir.and_then(|dir| find(dir, &args.job, args.run)) {
        Some((tick, path)) => of_file(args, tick, &path).await,
        None => of_history(args, config).await,
    }
}

/// Returns the file of the run, or of the newest run.
fn find(dir: &Path, job: &str, run: Option<WallTime>) -> Option<(WallTime, PathBuf)> {
    match run {
        Some(tick) => Some((tick, path_of(dir, job, tick))).filter(|(_, path)| path.is_file()),
        None => runs_of(dir, job).pop(),
    }
}

async fn of_file(args: &LogsArgs, tick: WallTime, path: &Path) -> Result<u8, Failure> {
    let unread = |error: io::Error| Failure::new(FAILURE, format!("cannot read {}: {error}", path.display()));
    let mut file = BufReader::new(File::open(path).map_err(unread)?);
    let (env, mut rest, mut lines) = (Env::system(), Vec::new(), Vec::new());
    loop {
        // A line without its end is being written. It is completed by the next read.
        while file.read_until(b'\n', &mut rest).map_err(unread)? > 0 && rest.ends_with(b"\n") {
            let line = Line::parse(&String::from_utf8_lossy(&std::mem::take(&mut rest)));
            if !args.group.json {
                show::print(&line.for_people())?;
            }
            lines.push(line);
        }
        let has_ended = lines.last().is_some_and(|line| line.stream.as_deref() == Some(END));
        if !args.follow || has_ended {
            break;
        }
        if !args.group.json {
            lines.clear();
        }
        env.sleep(LOOK_EVERY).await;
    }
    if args.group.json {
        let page = Page { job: plain(&args.job, NAME_MAX), run: rfc3339(tick), source: "file", lines };
        show::print(&show::json(&page)?)?;
    }
    Ok(0)
}

async fn of_history(args: &LogsArgs, config: &Config) -> Result<u8, Failure> {
    let (quorum, jobs) = look(&args.group, config).await?;
    let entry = entry(args, &jobs, quorum.env()).await;
    quorum.close().await;
    let entry = entry?;
    let (run, worker) = (rfc3339(entry.tick), plain(&entry.worker, NAME_MAX));
    let Some(output) = &entry.output else {
        let text = format!(
            "no output of the run {run} is kept: set keep_output for the job, or output.dir and look on the machine of {worker}"
        );
        return Err(Failure::new(NOT_FOUND, text));
    };
    let lines = output.lines().map(|text| Line { time: None, stream: None, text: plain(text, usize::MAX) });
    let page = Page { job: plain(&args.job, NAME_MAX), run, source: "history", lines: lines.collect() };
    show::print_page(args.group.json, &page, || page.lines.iter().map(Line::for_people).collect())?;
    if !args.group.json {
        log::say(&format!("quorate: the end of the output of the run {}, on {worker}", page.run));
    }
    Ok(0)
}

/// Returns the history entry of the run. With `--follow` and an active run, waits until the run has ended.
async fn entry(args: &LogsArgs, jobs: &Jobs, env: &Env) -> Result<HistoryEntry, Failure> {
    let mut run = args.run;
    let mut active = false;
    if args.follow {
        let status = jobs.show(&args.job).await.map_err(|error| failure(&error))?;
        let newest =
            status.running.iter().rev().find(|running| args.run.is_none_or(|run| run == running.tick));
        active = newest.is_some();
        run = newest.map(|running| running.tick).or(run);
    }
    loop {
        let entries = jobs.history(&args.job, ENTRIES).await.map_err(|error| failure(&error))?;
        let wanted = |entry: &HistoryEntry| match run {
            Some(tick) => entry.tick == tick,
            None => entry.took.is_some(),
        };
        if let Some(found) = entries.into_iter().find(wanted) {
            return Ok(found);
        }
        if !active {
            let which = run.map_or("no run of it has ended yet".to_owned(), |tick| {
                format!("its history has no run {}", rfc3339(tick))
            });
            let text = format!(
                "no output of job {:?}: {which}; `quorate jobs history` lists its runs",
                plain(&args.job, NAME_MAX)
            );
            return Err(Failure::new(NOT_FOUND, text));
        }
        env.sleep(LOOK_EVERY).await;
    }
}

impl Line {
    /// Reads a line of a file: time, stream and text.
    fn parse(line: &str) -> Self {
        let mut parts = line.trim_end_matches('\n').splitn(3, ' ');
        let part = |text: Option<&str>| text.map(|text| plain(text, NAME_MAX)).filter(|text| text != "-");
        let (time, stream) = (part(parts.next()), part(parts.next()));
        Self { time, stream, text: plain(parts.next().unwrap_or_default(), usize::MAX) }
    }

    fn for_people(&self) -> String {
        let head = [&self.time, &self.stream].into_iter().flatten().map(|part| format!("{part} "));
        format!("{}{}\n", head.collect::<String>(), self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_shown_as_it_was_written_without_control_characters() {
        let line = Line::parse("2027-01-15T08:00:03Z stderr a  b\u{1b}[2J\n");
        assert_eq!(line.for_people(), "2027-01-15T08:00:03Z stderr a  b [2J\n");
        assert_eq!(line.stream.as_deref(), Some("stderr"));
        assert_eq!(Line::parse("- note cut\n").for_people(), "note cut\n");
        assert_eq!(Line::parse("\n").for_people(), " \n");
    }
}
