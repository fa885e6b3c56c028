//! The translation of a crontab. It reads no file and no clock.

use super::{
    job_file::{JobText, quoted},
    line::{Entry, Line, command_line, read},
    name::name_of,
};
use crate::config::COMMAND_VARIABLES;
use quorate::{
    plain::plain,
    scheduler::{Cron, Schedule, Zone},
};
use std::collections::{BTreeMap, BTreeSet};

/// The longest part of a line that a note repeats, in bytes.
const SHOWN_MAX: usize = 120;

/// The shells whose syntax is that of `sh`, by the name of the program.
const LIKE_SH: [&str; 6] = ["sh", "bash", "dash", "ash", "ksh", "zsh"];

/// The first lines of the file, which name the differences from cron that concern every job.
const HEAD: &str = "\
# Translated from a crontab. Add the nodes, or set QUORATE_NODES; `quorate init --full FILE`
# writes an example that describes every key.
#
# Differences from cron, for every job:
# - A command runs as the user of the daemon, in the daemon's directory and environment.
# - A tick that no machine could run in time runs once later (misfire). cron would lose it.
# - A tick that is due during a run of the same job waits (overlap). cron would start it.
# - Output goes to the log (see output and keep_output). cron would mail it (see [[notify]]).
";

/// The arguments of the translation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings<'a> {
    /// The lines have a user column.
    pub(super) system: bool,
    /// The user whose lines are translated. `None` translates all lines.
    pub(super) user: Option<&'a str>,
    /// The zone of lines before the first `CRON_TZ`.
    pub(super) zone: &'a Zone,
    pub(super) group: &'a str,
}

/// The result of the translation.
#[derive(Clone, Debug, Default)]
pub(super) struct Imported {
    /// The text of the job file.
    pub(super) file: String,
    /// The number of jobs in the file.
    pub(super) jobs: usize,
    /// The zones of the jobs.
    pub(super) zones: BTreeSet<String>,
    /// The number of lines that are not in the file.
    pub(super) refused: usize,
    /// The differences and the lines that are missing, each with its line number.
    pub(super) notes: Vec<String>,
}

/// Translates a crontab.
pub(super) fn translate(text: &str, settings: &Settings<'_>) -> Imported {
    let mut translation = Translation {
        settings,
        env: BTreeMap::new(),
        zone: Some(settings.zone.clone()),
        names: BTreeSet::new(),
        users: BTreeMap::new(),
        comments: Vec::new(),
        jitter_minutes: 0,
        tables: Vec::new(),
        imported: Imported::default(),
    };
    for (number, line) in (1..).zip(text.lines()) {
        translation.line(number, line);
    }
    translation.finish()
}

/// The state between two lines.
struct Translation<'a> {
    settings: &'a Settings<'a>,
    /// The variables that the lines above have set.
    env: BTreeMap<&'a str, &'a str>,
    /// `None` after a `CRON_TZ` that names no zone.
    zone: Option<Zone>,
    names: BTreeSet<String>,
    /// The users of the translated lines, with the number of their lines.
    users: BTreeMap<&'a str, usize>,
    /// The comments since the last other line.
    comments: Vec<&'a str>,
    jitter_minutes: u32,
    tables: Vec<String>,
    imported: Imported,
}

impl<'a> Translation<'a> {
    fn line(&mut self, number: usize, line: &'a str) {
        match read(line, self.settings.system) {
            Line::Comment(comment) => {
                self.comments.push(comment);
                return;
            }
            Line::Empty => {}
            Line::Variable { name, value } => self.variable(number, name, value),
            Line::Invalid(why) => self.refuse(number, line, &why),
            Line::Entry(entry) => self.entry(number, line, &entry),
        }
        self.comments.clear();
    }

    fn variable(&mut self, number: usize, name: &'a str, value: &'a str) {
        match name {
            "CRON_TZ" => match Zone::named(value) {
                Ok(zone) => self.zone = Some(zone),
                Err(error) => {
                    self.zone = None;
                    self.note(number, &format!("CRON_TZ: {error}; the lines below are not translated"));
                }
            },
            "RANDOM_DELAY" => match value.parse() {
                Ok(minutes) => self.jitter_minutes = minutes,
                Err(_) => self.note(number, "RANDOM_DELAY is not a number of minutes; it has no effect"),
            },
            "SHELL" if value.is_empty() => {
                self.env.remove(name);
                self.note(number, "SHELL is empty, with which cron starts no command; the jobs use /bin/sh");
            }
            "MAILTO" if value.is_empty() => {}
            "MAILTO" | "MAILFROM" => self.note(
                number,
                &format!(
                    "{name}: quorate sends no mail; use [[notify]] for failures, and keep_output for output"
                ),
            ),
            "CONTENT_TYPE" | "CONTENT_TRANSFER_ENCODING" | "LOGNAME" | "USER" => {
                self.note(number, &format!("{name} has no effect in quorate"));
            }
            _ if COMMAND_VARIABLES.contains(&name) => {
                self.note(number, &format!("{name} is set by quorate for each run; it is left out"));
            }
            _ => {
                self.env.insert(name, value);
            }
        }
    }

    fn entry(&mut self, number: usize, line: &str, entry: &Entry<'a>) {
        if let (Some(user), Some(only)) = (entry.user, self.settings.user)
            && user != only
        {
            return;
        }
        match self.job(entry) {
            Ok(job) => {
                let wanted = u64::from(self.jitter_minutes) * 60;
                if job.jitter_seconds < wanted {
                    let text = format!(
                        "RANDOM_DELAY of {wanted} s is longer than the time between two ticks; the jitter is {} s",
                        job.jitter_seconds
                    );
                    self.note(number, &text);
                }
                self.tables.push(job.table());
                self.imported.zones.insert(job.zone);
                self.imported.jobs += 1;
                if let Some(user) = entry.user {
                    *self.users.entry(user).or_default() += 1;
                }
                if entry.silent {
                    self.note(
                        number,
                        "the `-` at the beginning (no log entry) has no equivalent; it is left out",
                    );
                }
                for (flag, meaning) in [('n', "no mail after a success"), ('q', "no log entry")] {
                    if entry.flags.contains(flag) {
                        let text = format!("the flag -{flag} ({meaning}) has no equivalent; it is left out");
                        self.note(number, &text);
                    }
                }
            }
            Err(why) => self.refuse(number, line, &why),
        }
    }

    fn job(&mut self, entry: &Entry<'a>) -> Result<JobText, String> {
        let zone = self.zone.clone().ok_or("the zone of CRON_TZ is unknown")?;
        let schedule = schedule(&entry.schedule)?;
        let shell = self.env.get("SHELL").copied().unwrap_or("/bin/sh");
        let line = shell_line(entry.command, shell)?;
        let env = self.env.iter().filter(|(name, _)| !matches!(**name, "SHELL"));
        Ok(JobText {
            comments: self.comments.iter().map(|&comment| comment.to_owned()).collect(),
            name: name_of(entry.command, &mut self.names),
            jitter_seconds: self.jitter_seconds(&schedule, &zone)?,
            schedule,
            zone: zone.name().to_owned(),
            shell: shell.to_owned(),
            line,
            cwd: self.env.get("HOME").map(|&home| home.to_owned()),
            env: env.map(|(&name, &value)| (name.to_owned(), value.to_owned())).collect(),
            skips_overlap: entry.flags.contains('s'),
        })
    }

    /// Returns the largest jitter up to `RANDOM_DELAY` with which no tick is delayed past the next one.
    fn jitter_seconds(&self, schedule: &str, zone: &Zone) -> Result<u64, String> {
        let cron = Cron::parse(schedule).map_err(|error| error.to_string())?;
        let gap = Schedule::from(cron.in_zone(zone.clone())).busiest_gap();
        let wanted = u64::from(self.jitter_minutes) * 60;
        Ok(wanted.min(gap.as_secs()))
    }

    fn note(&mut self, number: usize, text: &str) {
        self.imported.notes.push(format!("line {number}: {text}"));
    }

    /// Reports a line that is not translated, and leaves it in the file as a comment.
    fn refuse(&mut self, number: usize, line: &str, why: &str) {
        self.imported.refused += 1;
        self.note(number, &format!("not translated: {why}"));
        let line = plain(line.trim(), usize::MAX);
        self.tables.push(format!("# NOT TRANSLATED, line {number}: {why}\n#   {line}\n"));
    }

    fn finish(mut self) -> Imported {
        for (user, lines) in &self.users {
            self.imported.notes.push(format!(
                "user {}: {lines} translated; a job runs as the user of the daemon: run a daemon as this user, with the \
                 file of --user",
                plain(user, SHOWN_MAX)
            ));
        }
        let mut file = format!("{HEAD}group = {}\n", quoted(self.settings.group));
        for table in &self.tables {
            file.push('\n');
            file.push_str(table);
        }
        self.imported.file = file;
        self.imported
    }
}

/// Returns the schedule as the file writes it.
fn schedule(text: &str) -> Result<String, String> {
    let text = match text {
        // FreeBSD's word.
        "@every_minute" => "* * * * *",
        text => text,
    };
    if text.contains('~') {
        return Err("random times (~) are not supported; write the earliest time, and set jitter".to_owned());
    }
    Cron::parse(text).map(|cron| cron.text().to_owned()).map_err(|error| error.to_string())
}

/// Returns the line for the shell, with the standard input that the command's `%` signs give it.
fn shell_line(text: &str, shell: &str) -> Result<String, String> {
    let line = command_line(text);
    if line.command.trim().is_empty() {
        return Err("the command is empty".to_owned());
    }
    if text.contains('\0') {
        return Err("the command contains a NUL character".to_owned());
    }
    let Some(input) = line.input else { return Ok(line.command) };
    let program = shell.rsplit('/').next().unwrap_or(shell);
    if !LIKE_SH.contains(&program) {
        let shell = plain(shell, SHOWN_MAX);
        return Err(format!("the input after % is written in the syntax of sh, and SHELL is {shell}"));
    }
    // The line end before the brace ends a comment of the command.
    if input.is_empty() {
        return Ok(format!("{{\n{}\n}} </dev/null", line.command));
    }
    let words: Vec<String> = input.iter().map(|line| format!("'{}'", line.replace('\'', "'\\''"))).collect();
    Ok(format!("printf '%s\\n' {} | {{\n{}\n}}", words.join(" "), line.command))
}
