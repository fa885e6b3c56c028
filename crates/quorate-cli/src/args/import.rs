use clap::{Args, Subcommand};
use quorate::scheduler::Zone;
use std::path::PathBuf;

/// The formats that can be imported.
#[derive(Debug, Subcommand)]
pub(crate) enum ImportCommand {
    /// Translate a crontab into a job file
    Crontab(CrontabArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  # the crontab of this user
  crontab -l | quorate import crontab - --zone Europe/Kyiv > quorate.toml
  # a system's crontab, whose lines name a user
  quorate import crontab /etc/crontab --system --user backup --output jobs.toml

It prints a configuration file without nodes, which `quorate run --check` reads, and
reports to standard error each line that it could not translate, and each difference
that it could not remove. It needs no nodes, and changes no crontab.

Translated: schedules with steps, ranges, lists and names; @hourly to @yearly;
CRON_TZ; RANDOM_DELAY (as jitter); SHELL; HOME (as cwd); other variables (as env); %
(as standard input). Not translated: @reboot, random times (0~59), mail.

Exit status: 0 if every line was translated; 1 if not; 78 an argument is invalid,
the file cannot be read, or the zone of this machine is unknown; 125 the output cannot
be written.")]
pub(crate) struct CrontabArgs {
    /// The crontab, or - for standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// The lines have a column with the user, as in /etc/crontab and /etc/cron.d
    #[arg(long)]
    pub(crate) system: bool,
    /// Translate only the lines of this user
    #[arg(long, value_name = "NAME", requires = "system")]
    pub(crate) user: Option<String>,
    /// The IANA time zone of lines without CRON_TZ [default: the zone of this machine]
    #[arg(long, value_name = "NAME", value_parser = zone)]
    pub(crate) zone: Option<Zone>,
    /// The group of the jobs
    #[arg(long, value_name = "NAME", default_value = "cron")]
    pub(crate) group: String,
    /// Write this file, which must not exist [default: standard output]
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

fn zone(name: &str) -> Result<Zone, String> {
    Zone::named(name).map_err(|error| error.to_string())
}
