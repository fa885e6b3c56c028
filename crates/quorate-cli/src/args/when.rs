use crate::{schedule_text, time};
use clap::Args;
use quorate::{
    env::WallTime,
    scheduler::{Dst, Schedule, Zone},
};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  quorate when \"0 3 * * *\" --zone Europe/Kyiv
  quorate when \"*/10 9-17 * * mon-fri\" --count 10
  quorate when \"30 2 L * *\" --zone America/New_York --dst skip --from 2027-03-01T00:00:00Z
  quorate when \"0 6 * * *\" --zone Europe/Kyiv --except 2027-12-25,2027-12-26
  quorate when \"@every 90s\" --json

SCHEDULE is a cron line of 5 fields (minute hour day-of-month month day-of-week),
or of 6 or 7 (second first, year last), or @hourly, @daily, @weekly, @monthly or
@yearly; `every 90s` (or `@every 90s`), `delay 10m`, or `at 2027-01-01T00:00:00Z`.
It needs no nodes and reads no file. `quorate jobs next` shows the ticks of a job.

It prints the meaning in words, the lines for the configuration file, the next
times in the zone and in UTC, and the next change of the zone's offset (daylight
saving time) with its effect on the schedule. Exit status: 0; 78 the schedule, the
zone or another argument is invalid.")]
pub(crate) struct WhenArgs {
    /// The schedule
    #[arg(value_name = "SCHEDULE", value_parser = schedule_text::parse)]
    pub(crate) schedule: Schedule,
    /// The IANA time zone of a cron line, in which times are shown [default: UTC]
    #[arg(long, value_name = "NAME", value_parser = zone)]
    pub(crate) zone: Option<Zone>,
    /// The rule for local times that the clock skips or repeats: vixie, skip, first or both [default: vixie]
    #[arg(long, value_name = "RULE", value_parser = dst)]
    pub(crate) dst: Option<Dst>,
    /// A day without times of the schedule, such as 2027-12-25; several after commas
    #[arg(long, value_name = "DAY", value_delimiter = ',')]
    pub(crate) except: Vec<String>,
    /// The first day with times of the schedule (`from` in the file)
    #[arg(long, value_name = "DAY")]
    pub(crate) first_day: Option<String>,
    /// The last day with times of the schedule (`until` in the file)
    #[arg(long, value_name = "DAY")]
    pub(crate) last_day: Option<String>,
    /// The number of times to show
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) count: u32,
    /// Show times later than this time (RFC 3339) [default: now]
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    pub(crate) from: Option<WallTime>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

fn zone(name: &str) -> Result<Zone, String> {
    Zone::named(name).map_err(|error| error.to_string())
}

fn dst(name: &str) -> Result<Dst, String> {
    name.parse().map_err(|error: quorate::scheduler::InvalidSchedule| error.to_string())
}
