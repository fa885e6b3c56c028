//! The command `quorate jobs logs`, which shows the output of a run: from the file of the run, or else from the
//! history on the nodes.

use super::{
    common::look,
    run_state::{ENTRIES, RunState, newest, pauses, state_of, was_executed},
};
use crate::{
    args::LogsArgs,
    config::Config,
    exit::{FAILURE, Failure, NOT_FOUND},
    failures, log,
    outputs::{END, runs_of},
    show,
    time::rfc3339,
};
use quorate::{
    env::{BootTime, Env, WallTime},
    plain::plain,
    quorum::Quorum,
    scheduler::{HistoryEntry, Jobs, Zone},
};
use quorate_operator::{Moment, view::RunEnd};
use serde::Serialize;
use std::{
    fs::File,
    io::{self, BufRead, BufReader},
    ops::Range,
    path::Path,
    time::Duration,
};

/// The time between two looks for further output in a file.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// The number of reads in a row after which a run that was active, and of which the nodes store nothing any more, is
/// no longer waited for.
const MISSED_MAX: usize = 3;
/// The longest name that is shown, in bytes.
const NAME_MAX: usize = 200;

/// The stream of a line about the output.
const NOTE: &str = "note";

/// The output of a run.
#[derive(Debug, Serialize)]
struct Page {
    job: String,
    run: String,
    /// `file`, or `history` if only the end of the output is kept. The lines after a note in an incomplete file are from
    /// the history.
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

/// The question: the job, and the span of time in which the tick of its run is.
struct Wanted<'a> {
    args: &'a LogsArgs,
    /// `None` for the newest run.
    span: Option<Range<WallTime>>,
    /// The zone of the times for people.
    zone: Zone,
}

/// Shows the output of a run.
pub(super) async fn logs(args: &LogsArgs, config: &Config) -> Result<u8, Failure> {
    let wanted = Wanted::new(args, config).await?;
    let dir = config.output.as_ref().map(|output| &*output.dir);
    let of_wanted = |dir| runs_of(dir, &args.job).into_iter().rfind(|(tick, _)| wanted.has(*tick));
    match dir.and_then(of_wanted) {
        Some((tick, path)) => of_file(&wanted, config, tick, &path).await,
        None => of_history(&wanted, config).await,
    }
}

impl<'a> Wanted<'a> {
    /// Computes the span of the run. The zone of a job that the file does not have is read from the nodes.
    async fn new(args: &'a LogsArgs, config: &Config) -> Result<Self, Failure> {
        let is_of_file =
            args.group.group.as_deref().is_none_or(|group| config.group.as_deref() == Some(group));
        let of_file = config.jobs.iter().find(|job| is_of_file && *job.name == args.job);
        let zone = match (of_file, args.at.map(Moment::exact)) {
            (Some(job), _) => job.schedule.zone().clone(),
            (None, None | Some(Some(_))) => Zone::UTC,
            (None, Some(None)) => {
                let (quorum, jobs) = look(&args.group, config).await?;
                let schedule = jobs.schedule(&args.job).await;
                quorum.close().await;
                schedule.map_err(|error| failures::of_jobs(&error))?.zone().clone()
            }
        };
        let span = args.at.map(|at| at.span(&zone, Env::system().wall()));
        let zone = if args.utc { Zone::UTC } else { zone };
        Ok(Self { args, span, zone })
    }

    fn has(&self, tick: WallTime) -> bool {
        self.span.as_ref().is_none_or(|span| span.contains(&tick))
    }

    fn time(&self, at: WallTime) -> String {
        self.zone.rfc3339(at)
    }
}

/// Shows the file of a run. The file is of this machine, so the nodes are asked for what it cannot show: a newer run on
/// another machine, and the end of a run that was interrupted here.
async fn of_file(wanted: &Wanted<'_>, config: &Config, tick: WallTime, path: &Path) -> Result<u8, Failure> {
    let args = wanted.args;
    let unread = |error: io::Error| unread(path, &error);
    let mut file = BufReader::new(File::open(path).map_err(unread)?);
    let place = plain(&path.to_string_lossy(), NAME_MAX);
    log::say(&format!("quorate: the run {}, from the file {place} on this machine", wanted.time(tick)));
    let nodes = match wanted.span.is_none() || args.follow {
        true => ask(args, config).await,
        false => None,
    };
    if let (None, Some((_, jobs))) = (&wanted.span, &nodes) {
        say_newer(jobs, wanted, tick).await;
    }
    let follower = nodes.as_ref().map(|(_, jobs)| Follower::new(jobs, wanted, tick));
    let shown = show_file(args, path, &mut file, follower).await;
    let nodes = match (nodes, &shown) {
        (None, Ok((_, false))) => ask(args, config).await,
        (nodes, _) => nodes,
    };
    let missing = match (&nodes, &shown) {
        (Some((_, jobs)), Ok((_, false))) => missing(jobs, &args.job, tick).await,
        _ => Vec::new(),
    };
    if let Some((quorum, _)) = nodes {
        quorum.close().await;
    }
    let (mut lines, _) = shown?;
    if !args.group.json {
        show::print(&missing.iter().map(Line::for_people).collect::<String>())?;
    }
    lines.extend(missing);
    if args.group.json {
        let page = Page { job: plain(&args.job, NAME_MAX), run: rfc3339(tick), source: "file", lines };
        show::print(&show::json(&page)?)?;
    }
    Ok(0)
}

fn unread(path: &Path, error: &io::Error) -> Failure {
    Failure::new(FAILURE, format!("cannot read {}: {error}", path.display()))
}

/// Returns the end of the output of a run whose file has no end, from the history. The disk may have been full, or the
/// worker was killed. Returns nothing while the run is active.
async fn missing(jobs: &Jobs, job: &str, tick: WallTime) -> Vec<Line> {
    let Ok(RunState::Ended(entry)) = state_of(jobs, job, tick).await else { return Vec::new() };
    let worker = plain(&entry.worker, NAME_MAX);
    let head = "the file is incomplete: it has no end of the attempt";
    let (text, output) = match &entry.output {
        Some(output) => (format!("{head}; the history has this end of the output, from {worker}"), &**output),
        None => (format!("{head}, and the history has no output (keep_output) of the run on {worker}"), ""),
    };
    log::say(&format!("quorate: {text}"));
    let note = Line { time: None, stream: Some(NOTE.to_owned()), text };
    std::iter::once(note).chain(of_text(output)).collect()
}

/// Returns the lines of an output that the history keeps.
fn of_text(output: &str) -> impl Iterator<Item = Line> {
    output.lines().map(|line| Line { time: None, stream: None, text: plain(line, usize::MAX) })
}

/// Prints the lines of the file. With `--follow`, waits for further lines until the end of the attempt. Returns the
/// lines for `--json`, and whether the file has its end.
async fn show_file(
    args: &LogsArgs,
    path: &Path,
    file: &mut impl BufRead,
    mut follower: Option<Follower<'_>>,
) -> Result<(Vec<Line>, bool), Failure> {
    let (env, mut rest, mut lines) = (Env::system(), Vec::new(), Vec::new());
    loop {
        // A line without its end is being written. It is completed by the next read.
        while file.read_until(b'\n', &mut rest).map_err(|error| unread(path, &error))? > 0
            && rest.ends_with(b"\n")
        {
            let line = Line::parse(&String::from_utf8_lossy(&std::mem::take(&mut rest)));
            if !args.group.json {
                show::print(&line.for_people())?;
            }
            lines.push(line);
        }
        let has_ended = lines.last().is_some_and(|line| line.stream.as_deref() == Some(END));
        if !args.follow || has_ended {
            return Ok((lines, has_ended));
        }
        if !args.group.json {
            lines.clear();
        }
        if let Some(follower) = &mut follower
            && let Some(end) = follower.look(&env).await
        {
            log::say(&format!(
                "quorate: the file has no end of the attempt, and no further output comes: {end}"
            ));
            return Ok((lines, false));
        }
        env.sleep(LOOK_EVERY).await;
    }
}

/// Connects to the nodes. If that is not possible, says so: the file can be shown without the nodes.
async fn ask(args: &LogsArgs, config: &Config) -> Option<(Quorum, Jobs)> {
    match look(&args.group, config).await {
        Ok(nodes) => Some(nodes),
        Err(failure) => {
            log::say(&format!("quorate: the nodes are not asked about the run: {failure}"));
            None
        }
    }
}

/// Says if the newest run of the job is newer than the newest one that has a file on this machine.
async fn say_newer(jobs: &Jobs, wanted: &Wanted<'_>, of_file: WallTime) {
    match newest(jobs, &wanted.args.job).await {
        Ok(Some(newest)) if newest.tick > of_file => {
            let (tick, worker) = (wanted.time(newest.tick), plain(&newest.worker, NAME_MAX));
            log::say(&format!(
                "quorate: a newer run {tick}, on {worker}, has no file on this machine; --at {tick} shows the end of its \
                 output, if the history keeps it"
            ));
        }
        Ok(_) => {}
        Err(failure) => log::say(&format!("quorate: there may be a newer run on another machine: {failure}")),
    }
}

/// Asks the nodes, now and then, whether a run whose file is followed has ended. The file of a run that was
/// interrupted gets no end: the run ends on another machine, or is recorded as lost.
struct Follower<'a> {
    jobs: &'a Jobs,
    wanted: &'a Wanted<'a>,
    tick: WallTime,
    next: BootTime,
    pauses: Box<dyn Iterator<Item = Duration> + Send>,
    /// True if the last read has found the end. The second one counts: a run that a back-fill repeats has an entry from
    /// before, and the last lines of a file may be written after the entry.
    has_ended: bool,
    /// True once a failure to read has been reported.
    has_failed: bool,
}

impl<'a> Follower<'a> {
    fn new(jobs: &'a Jobs, wanted: &'a Wanted<'a>, tick: WallTime) -> Self {
        let (next, pauses) = (BootTime::default(), Box::new(pauses()));
        Self { jobs, wanted, tick, next, pauses, has_ended: false, has_failed: false }
    }

    /// Returns the end of the run, as text, once it is certain. Reads the nodes only if a pause has passed.
    async fn look(&mut self, env: &Env) -> Option<String> {
        if env.now() < self.next {
            return None;
        }
        let found = match state_of(self.jobs, &self.wanted.args.job, self.tick).await {
            Ok(RunState::Ended(entry)) => {
                let end = RunEnd::new(&entry);
                Some(format!("{}, on {}", end.line(&self.wanted.zone), end.worker))
            }
            Ok(RunState::Forgotten) => Some("the history has no entry as old as the run".to_owned()),
            Ok(RunState::Active | RunState::Unknown) => None,
            Err(failure) => {
                if !std::mem::replace(&mut self.has_failed, true) {
                    log::say(&format!("quorate: only the file is followed: {failure}"));
                }
                None
            }
        };
        self.next = env.now() + self.pauses.next().unwrap_or_default();
        let had_ended = std::mem::replace(&mut self.has_ended, found.is_some());
        found.filter(|_| had_ended)
    }
}

async fn of_history(wanted: &Wanted<'_>, config: &Config) -> Result<u8, Failure> {
    let args = wanted.args;
    let (quorum, jobs) = look(&args.group, config).await?;
    let entry = entry(wanted, &jobs, quorum.env()).await;
    quorum.close().await;
    let entry = entry?;
    let (shown, worker) = (wanted.time(entry.tick), plain(&entry.worker, NAME_MAX));
    let Some(output) = &entry.output else {
        let text = format!(
            "no output of the run {shown} is kept: set keep_output for the job, or output.dir and look on the machine of {worker}"
        );
        return Err(Failure::new(NOT_FOUND, text));
    };
    let lines = of_text(output).collect();
    let page = Page { job: plain(&args.job, NAME_MAX), run: rfc3339(entry.tick), source: "history", lines };
    show::print_page(args.group.json, &page, || page.lines.iter().map(Line::for_people).collect())?;
    if !args.group.json {
        log::say(&format!("quorate: the end of the output of the run {shown}, on {worker}"));
    }
    Ok(0)
}

/// Returns the history entry of the run. With `--follow` and an active run, waits until the run has ended.
async fn entry(wanted: &Wanted<'_>, jobs: &Jobs, env: &Env) -> Result<HistoryEntry, Failure> {
    let (args, mut run) = (wanted.args, None);
    if args.follow {
        let status = jobs.show(&args.job).await.map_err(|error| failures::of_jobs(&error))?;
        let mut active = status.running.iter().rev();
        if let Some(active) = active.find(|active| wanted.has(active.tick)) {
            run = Some(active.tick);
            if let Some(entry) = end_of(args, active.tick, jobs, env).await? {
                return Ok(entry);
            }
        }
    }
    let entries = jobs.history(&args.job, ENTRIES).await.map_err(|error| failures::of_jobs(&error))?;
    let is_it = |entry: &HistoryEntry| match (run, &wanted.span) {
        (Some(tick), _) => entry.tick == tick,
        (None, Some(span)) => span.contains(&entry.tick) && was_executed(entry),
        (None, None) => entry.took.is_some(),
    };
    entries.into_iter().find(is_it).ok_or_else(|| {
        let asked = run.or(wanted.span.as_ref().map(|span| span.start));
        let which = asked.map_or("no run of it has ended yet".to_owned(), |tick| {
            format!("its history has no run of {}", wanted.time(tick))
        });
        let job = plain(&args.job, NAME_MAX);
        Failure::new(
            NOT_FOUND,
            format!("no output of job {job:?}: {which}; `quorate jobs history` lists its runs"),
        )
    })
}

/// Waits until an active run has ended. Returns `None` if the nodes store neither its start nor its end any more.
async fn end_of(
    args: &LogsArgs,
    tick: WallTime,
    jobs: &Jobs,
    env: &Env,
) -> Result<Option<HistoryEntry>, Failure> {
    let mut missed = 0;
    for pause in pauses() {
        env.sleep(pause).await;
        match state_of(jobs, &args.job, tick).await? {
            RunState::Ended(entry) => return Ok(Some(*entry)),
            RunState::Active => missed = 0,
            RunState::Forgotten => break,
            RunState::Unknown => missed += 1,
        }
        if missed >= MISSED_MAX {
            break;
        }
    }
    Ok(None)
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
