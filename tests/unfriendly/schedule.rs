use super::{fit_to_print, text};
use quorate::{
    env::WallTime,
    scheduler::{Cron, Dst, Schedule, Zone},
};
use std::time::Duration;

pub(super) const CRON: &[&str] = &[
    " ",
    " ",
    " ",
    " ",
    " ",
    "*",
    "*",
    "*",
    "0",
    "1",
    "30",
    "29",
    "2",
    "59",
    "-",
    "/",
    ",",
    "MON",
    "sun",
    "feb",
    "*/5",
    "?",
    "L",
    "L-3",
    "W",
    "15W",
    "LW",
    "#",
    "fri#2",
    "friL",
    "2100",
    "1970",
    "@daily",
    "@",
    "\t",
    "\n",
    "\u{1b}[2J",
    "ü",
    "Europe/Kyiv",
    "\nAmerica/New_York",
    "\nPacific/Apia",
    "\nAustralia/Lord_Howe",
    "60",
    "00000000000000000000001",
    "31 2",
    "0-59/59",
];

/// The number of ticks that are computed.
const TICKS: usize = 4;

/// Reads a cron line, and a zone on the next line. A valid schedule can be printed and read again, and each of
/// its ticks is later than the one before.
pub fn cron(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    let (line, zone) = text.split_once('\n').unwrap_or((text, "UTC"));
    let zone = match Zone::named(zone) {
        Ok(zone) => {
            assert_eq!(Zone::named(zone.name()), Ok(zone.clone()));
            zone
        }
        Err(error) => {
            fit_to_print(&error.to_string());
            Zone::UTC
        }
    };
    match Cron::parse(line) {
        Ok(cron) => {
            let cron = cron.in_zone(zone.clone());
            let again = Cron::parse(cron.text()).map(|again| again.in_zone(zone));
            assert_eq!(again.as_ref(), Ok(&cron), "what it prints it reads");
            for rule in Dst::ALL {
                let schedule: Schedule = cron.clone().dst(rule).into();
                let spec = schedule.spec().map(|spec| Schedule::from_spec(&spec));
                assert_eq!(spec, Some(Ok(schedule.clone())), "what is written down is read");
                for from in [0, 1_741_503_600_000_000, 4_102_000_000_000_000, u64::MAX] {
                    ticks_grow(&schedule, WallTime::from_micros(from));
                }
            }
        }
        Err(error) => fit_to_print(&error.to_string()),
    }
}

/// Reads three numbers: two periods and a start time. Each tick of a valid period must be a multiple of the
/// period, and later than the tick before it.
pub fn every(bytes: &[u8]) {
    let number = |at: usize| {
        let mut word = [0; 8];
        let from = bytes.get(at * 8..).unwrap_or_default();
        let some = from.len().min(8);
        word[..some].copy_from_slice(&from[..some]);
        u64::from_le_bytes(word)
    };
    let (seconds, nanos, from) = (number(0), number(1), WallTime::from_micros(number(2)));
    let below = u32::try_from(nanos % 1_000_000_000).unwrap_or_default();
    for period in [Duration::new(seconds, below), Duration::from_nanos(nanos), Duration::from_micros(seconds)]
    {
        match quorate::scheduler::Schedule::every(period) {
            Ok(every) => {
                assert_eq!(every.interval(), Some(period));
                if let Some(tick) = every.next_after(from) {
                    assert!(tick > from && from.until(tick) <= period, "{every} after {from:?}: {tick:?}");
                    assert_eq!(u128::from(tick.as_micros()) % period.as_micros(), 0);
                }
                ticks_grow(&every, from);
            }
            Err(error) => fit_to_print(&error.to_string()),
        }
    }
}

fn ticks_grow(schedule: &Schedule, from: WallTime) {
    let mut last = from;
    for _ in 0..TICKS {
        let Some(tick) = schedule.next_after(last) else { return };
        assert!(tick > last, "{schedule:?} after {last:?}: {tick:?}");
        last = tick;
    }
}
