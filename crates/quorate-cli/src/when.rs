//! `quorate when`: the meaning of a schedule, without any nodes.

use crate::{args::WhenArgs, exit::Failure, show, table::fields, time::rfc3339};
use quorate::{
    env::{Env, WallTime},
    internals::{OffsetChange, OffsetEffect, ScheduleSpec},
    plain::plain,
    scheduler::{Cron, Dst, InvalidSchedule, Schedule, Zone},
};
use serde::Serialize;
use std::time::Duration;

/// The longest schedule that is shown, in bytes.
const TEXT_MAX: usize = 1_000;

/// The output of the command.
#[derive(Debug, Serialize)]
struct Page {
    schedule: String,
    words: String,
    zone: String,
    /// The keys of the schedule in a `[[job]]` table.
    config: Vec<String>,
    from: String,
    next: Vec<TickPage>,
    /// `null` if the zone tables have no later change.
    offset_change: Option<ChangePage>,
    /// The version of the zone tables of this program.
    zone_tables: String,
}

#[derive(Debug, Serialize)]
struct TickPage {
    tick: String,
    /// The tick in the zone.
    local: String,
}

/// The next change of the zone's offset.
#[derive(Debug, Serialize)]
struct ChangePage {
    at: String,
    /// The offsets before and after the change, such as `+02:00`.
    before: String,
    after: String,
    /// `independent`, `shifted`, `skipped` or `repeated`.
    effect: &'static str,
    /// The number of local times of the schedule that the clock skips or repeats.
    times: u64,
    /// The last tick before the change, and the first tick that is not before it.
    around: Vec<TickPage>,
    text: String,
}

/// Shows the meaning of the schedule.
pub(crate) fn when(args: &WhenArgs) -> Result<u8, Failure> {
    let zone = args.zone.clone().unwrap_or_default();
    let schedule = in_zone(args, &zone)?;
    let from = args.from.unwrap_or_else(|| Env::system().wall());
    let page = Page::new(&schedule, &zone, from, args.count);
    show::print_page(args.json, &page, || page.for_people(&schedule))?;
    Ok(0)
}

/// Returns the schedule in the zone and under the rule of the arguments.
fn in_zone(args: &WhenArgs, zone: &Zone) -> Result<Schedule, Failure> {
    let invalid = |error: InvalidSchedule| Failure::new(crate::exit::CONFIG, error);
    let mut schedule = on_any_day(args, zone)?;
    if !args.except.is_empty() {
        schedule = schedule.except(&args.except).map_err(invalid)?;
    }
    if let Some(day) = &args.first_day {
        schedule = schedule.from_day(day).map_err(invalid)?;
    }
    if let Some(day) = &args.last_day {
        schedule = schedule.until_day(day).map_err(invalid)?;
    }
    Ok(schedule)
}

fn on_any_day(args: &WhenArgs, zone: &Zone) -> Result<Schedule, Failure> {
    match args.schedule.spec() {
        Some(ScheduleSpec::Cron { line, .. }) => {
            let cron = Cron::parse(&line).map_err(|error| Failure::new(crate::exit::CONFIG, error))?;
            Ok(cron.in_zone(zone.clone()).dst(args.dst.unwrap_or_default()).into())
        }
        _ if args.dst.is_some() => {
            let text = "--dst applies to cron lines; `every`, `delay` and `at` do not depend on local time";
            Err(Failure::new(crate::exit::CONFIG, text))
        }
        _ => Ok(args.schedule.clone()),
    }
}

impl Page {
    fn new(schedule: &Schedule, zone: &Zone, from: WallTime, count: u32) -> Self {
        // A schedule that counts from the end of the previous run has no ticks known in advance.
        let count = if schedule.is_after_end() { 0 } else { usize::try_from(count).unwrap_or(usize::MAX) };
        let next: Vec<WallTime> = schedule.upcoming(from, count).collect();
        let change = schedule.next_offset_change(zone, from);
        Self {
            schedule: plain(&schedule.to_string(), TEXT_MAX),
            words: plain(&schedule.words(), TEXT_MAX),
            zone: zone.name().to_owned(),
            config: config(schedule),
            from: rfc3339(from),
            offset_change: change.map(|change| ChangePage::new(&change, schedule, zone, from)),
            next: next.into_iter().map(|at| TickPage::new(at, zone)).collect(),
            zone_tables: Zone::tables_version().to_owned(),
        }
    }

    fn for_people(&self, schedule: &Schedule) -> String {
        let mut text = format!("{}: {}\n", self.schedule, self.words);
        text += &format!("in the file:  {}\n", self.config.join("; "));
        text += "next times:\n";
        text += &fields(self.next.iter().map(|tick| (&*tick.tick, tick.local.clone())));
        if schedule.is_after_end() {
            text += "  each time depends on the end of the previous run\n";
        } else if self.next.is_empty() {
            text += &format!("  never after {}\n", self.from);
        }
        match &self.offset_change {
            Some(change) => {
                text += &format!(
                    "next change of the offset:\n  {} from {} to {}\n  {}\n",
                    change.at, change.before, change.after, change.text
                );
                text += &fields(change.around.iter().map(|tick| (&*tick.tick, tick.local.clone())));
            }
            None => {
                text += &format!(
                    "next change of the offset:\n  none: by the zone tables {}, the offset of {} does not change again\n",
                    self.zone_tables, self.zone
                );
            }
        }
        text
    }
}

/// Returns the lines of the configuration file for the schedule.
fn config(schedule: &Schedule) -> Vec<String> {
    schedule.spec().map_or_else(Vec::new, |spec| lines(&spec))
}

fn lines(spec: &ScheduleSpec) -> Vec<String> {
    let span = |micros| humantime::format_duration(Duration::from_micros(micros)).to_string();
    match spec {
        ScheduleSpec::Cron { line, zone, dst } => {
            let mut lines = vec![format!("schedule = \"{line}\"")];
            if **zone != *Zone::UTC.name() {
                lines.push(format!("zone = \"{zone}\""));
            }
            if **dst != *Dst::default().name() {
                lines.push(format!("dst = \"{dst}\""));
            }
            lines
        }
        ScheduleSpec::Every { micros } => vec![format!("every = \"{}\"", span(*micros))],
        ScheduleSpec::Delay { micros } => vec![format!("delay = \"{}\"", span(*micros))],
        ScheduleSpec::At { micros } => {
            vec![format!("at = \"{}\"", rfc3339(WallTime::from_micros(*micros)))]
        }
        ScheduleSpec::After { job, on } => {
            vec![format!("after = {{ job = \"{job}\", on = \"{}\" }}", on.as_str())]
        }
        ScheduleSpec::Days { of, except, from, until } => {
            let mut all = lines(of);
            if !except.is_empty() {
                let days: Vec<String> = except.iter().map(|day| format!("\"{day}\"")).collect();
                all.push(format!("except = [{}]", days.join(", ")));
            }
            all.extend(from.iter().map(|day| format!("from = \"{day}\"")));
            all.extend(until.iter().map(|day| format!("until = \"{day}\"")));
            all
        }
        _ => Vec::new(),
    }
}

impl TickPage {
    fn new(at: WallTime, zone: &Zone) -> Self {
        Self { tick: rfc3339(at), local: zone.format(at) }
    }
}

impl ChangePage {
    fn new(change: &OffsetChange, schedule: &Schedule, zone: &Zone, from: WallTime) -> Self {
        let just_before = change.at - Duration::from_micros(1);
        let around = match change.effect {
            OffsetEffect::Independent => [None, None],
            _ => [schedule.last_within(from, just_before), schedule.next_after(just_before)],
        };
        let (effect, times) = match change.effect {
            OffsetEffect::Independent => ("independent", 0),
            OffsetEffect::Shifted => ("shifted", 0),
            OffsetEffect::Skipped { times, .. } => ("skipped", times),
            OffsetEffect::Repeated { times, .. } => ("repeated", times),
        };
        Self {
            at: rfc3339(change.at),
            before: offset(change.before),
            after: offset(change.after),
            effect,
            times,
            around: around.into_iter().flatten().map(|at| TickPage::new(at, zone)).collect(),
            text: text(change, zone),
        }
    }
}

/// Describes the effect of the change.
fn text(change: &OffsetChange, zone: &Zone) -> String {
    match change.effect {
        OffsetEffect::Independent => "no effect: the schedule counts real time, not local time".to_owned(),
        OffsetEffect::Shifted => {
            "no time of the schedule is skipped or repeated; the times in UTC differ from then on".to_owned()
        }
        OffsetEffect::Skipped { times: 1, late: 0, .. } => {
            "the clock skips 1 time of the schedule, which does not run".to_owned()
        }
        OffsetEffect::Skipped { times, late: 0, .. } => {
            format!("the clock skips {times} times of the schedule, which do not run")
        }
        OffsetEffect::Skipped { times, late, first_late } => {
            let at = first_late.map(|at| zone.format(at)).unwrap_or_default();
            match (times, times.saturating_sub(late as u64)) {
                (1, _) => {
                    format!("the clock skips 1 time of the schedule, which runs right after the change: {at}")
                }
                (_, 0) => {
                    format!(
                        "the clock skips {times} times of the schedule, which run right after the change, from {at} on"
                    )
                }
                (_, rest) => format!(
                    "the clock skips {times} times of the schedule: {late} run right after the change, from {at} on, and \
                     {rest} do not run"
                ),
            }
        }
        OffsetEffect::Repeated { times, twice } => {
            let runs = if twice { "both times" } else { "the first time only" };
            match times {
                1 => format!("the clock shows 1 time of the schedule twice, and it runs {runs}"),
                _ => format!("the clock shows {times} times of the schedule twice, and they run {runs}"),
            }
        }
    }
}

/// Returns an offset in seconds as `+05:30`.
fn offset(seconds: i64) -> String {
    let (sign, size) = (if seconds < 0 { '-' } else { '+' }, seconds.abs());
    let text = format!("{sign}{:02}:{:02}", size / 3600, size / 60 % 60);
    if size % 60 == 0 { text } else { format!("{text}:{:02}", size % 60) }
}
