//! Tests of the rules for skipped and repeated local times. The ticks are compared with a table of cases, and
//! with an independent reference. The reference is slow, because it checks the local time of every second.

#![expect(clippy::unwrap_used, reason = "a test's helper may")]

use jiff::{SignedDuration, Timestamp, civil::DateTime, tz::TimeZone};
use quorate::{
    env::WallTime,
    scheduler::{Cron, Dst},
};
use std::collections::{BTreeMap, BTreeSet};

const HOUR: i64 = 3600;

/// A time zone, and an instant in UTC at which the zone's clock changes.
type Change = (&'static str, &'static str);

const NEW_YORK_SPRING: Change = ("America/New_York", "2027-03-14 07:00"); // 02:00 becomes 03:00
const NEW_YORK_AUTUMN: Change = ("America/New_York", "2027-11-07 06:00"); // 02:00 becomes 01:00
const KYIV_SPRING: Change = ("Europe/Kyiv", "2027-03-28 01:00"); // 03:00 becomes 04:00
const KYIV_AUTUMN: Change = ("Europe/Kyiv", "2027-10-31 01:00"); // 04:00 becomes 03:00
const LORD_HOWE_SPRING: Change = ("Australia/Lord_Howe", "2027-10-02 15:30"); // 02:00 becomes 02:30
const LORD_HOWE_AUTUMN: Change = ("Australia/Lord_Howe", "2027-04-03 15:00"); // 02:00 becomes 01:30
const CASABLANCA_AFTER_RAMADAN: Change = ("Africa/Casablanca", "2026-03-22 02:00"); // 02:00 becomes 03:00
const CASABLANCA_BEFORE_RAMADAN: Change = ("Africa/Casablanca", "2026-02-15 02:00"); // 03:00 becomes 02:00
const DUBLIN_SPRING: Change = ("Europe/Dublin", "2027-03-28 01:00"); // 01:00 becomes 02:00
const DUBLIN_AUTUMN: Change = ("Europe/Dublin", "2027-10-31 01:00"); // 02:00 becomes 01:00
const TEHRAN_SPRING: Change = ("Asia/Tehran", "2022-03-21 20:30"); // midnight becomes 01:00
const TEHRAN_AUTUMN: Change = ("Asia/Tehran", "2022-09-21 19:30"); // midnight becomes 23:00
const APIA: Change = ("Pacific/Apia", "2011-12-30 10:00"); // a day is left out: a correction
const CASEY: Change = ("Antarctica/Casey", "2010-03-04 15:00"); // 02:00 becomes 23:00: three hours, a correction
const TROLL: Change = ("Antarctica/Troll", "2027-03-28 01:00"); // 01:00 becomes 03:00: two hours at once

const CHANGES: [Change; 15] = [
    NEW_YORK_SPRING,
    NEW_YORK_AUTUMN,
    KYIV_SPRING,
    KYIV_AUTUMN,
    LORD_HOWE_SPRING,
    LORD_HOWE_AUTUMN,
    CASABLANCA_AFTER_RAMADAN,
    CASABLANCA_BEFORE_RAMADAN,
    DUBLIN_SPRING,
    DUBLIN_AUTUMN,
    TEHRAN_SPRING,
    TEHRAN_AUTUMN,
    APIA,
    CASEY,
    TROLL,
];

/// A change of the clock, a cron line, and the line's ticks under each of the rules vixie, skip, first and
/// both. The ticks are local times with their offsets. They cover the time from 75 minutes before the change to
/// 135 minutes after it. `=` means that the ticks are the same as under vixie.
type Case = (Change, &'static str, [&'static str; 4]);

const CASES: &[Case] = &[
    // --- skipped times, lines with a fixed time: a tick right after the gap, except under skip
    (NEW_YORK_SPRING, "30 2 * * *", ["03:00:00-04:00", "", "=", "="]),
    (NEW_YORK_SPRING, "0,30 2 * * *", ["03:00:00-04:00 03:00:01-04:00", "", "=", "="]),
    (NEW_YORK_SPRING, "30 2,3 * * *", ["03:00:00-04:00 03:30:00-04:00", "03:30:00-04:00", "=", "="]),
    (NEW_YORK_SPRING, "0 2,3 * * *", ["03:00:00-04:00 03:00:01-04:00", "03:00:00-04:00", "=", "="]),
    (NEW_YORK_SPRING, "0,20 30 2 * * *", ["03:00:00-04:00 03:00:01-04:00", "", "=", "="]),
    (KYIV_SPRING, "15 3 * * *", ["04:00:00+03:00", "", "=", "="]),
    (LORD_HOWE_SPRING, "15 2 * * *", ["02:30:00+11:00", "", "=", "="]),
    (LORD_HOWE_SPRING, "15,45 2 * * *", ["02:30:00+11:00 02:45:00+11:00", "02:45:00+11:00", "=", "="]),
    (CASABLANCA_AFTER_RAMADAN, "59 2 * * *", ["03:00:00+01:00", "", "=", "="]),
    (DUBLIN_SPRING, "0 1 * * *", ["02:00:00+01:00", "", "=", "="]),
    (TEHRAN_SPRING, "@daily", ["01:00:00+04:30", "", "=", "="]),
    (TROLL, "30 1,2 * * *", ["03:00:00+02:00 03:00:01+02:00", "", "=", "="]),
    // --- skipped times, lines with an interval: no tick
    (NEW_YORK_SPRING, "*/20 2 * * *", ["", "=", "=", "="]),
    (
        NEW_YORK_SPRING,
        "*/45 1-3 * * *",
        ["01:00:00-05:00 01:45:00-05:00 03:00:00-04:00 03:45:00-04:00", "=", "=", "="],
    ),
    (KYIV_SPRING, "0 30 * * * *", ["02:30:00+02:00 04:30:00+03:00 05:30:00+03:00", "=", "=", "="]),
    (LORD_HOWE_SPRING, "10 * * * *", ["01:10:00+10:30 03:10:00+11:00 04:10:00+11:00", "=", "=", "="]),
    (CASABLANCA_AFTER_RAMADAN, "*/30 2 * * *", ["", "=", "=", "="]),
    (
        DUBLIN_SPRING,
        "*/40 * * * *",
        [
            "00:00:00+00:00 00:40:00+00:00 02:00:00+01:00 02:40:00+01:00 03:00:00+01:00 03:40:00+01:00 04:00:00+01:00",
            "=",
            "=",
            "=",
        ],
    ),
    (TEHRAN_SPRING, "*/30 0 * * *", ["", "=", "=", "="]),
    // --- repeated times, lines with a fixed time: a tick in the first pass only, except under both
    (NEW_YORK_AUTUMN, "30 1 * * *", ["01:30:00-04:00", "=", "=", "01:30:00-04:00 01:30:00-05:00"]),
    (NEW_YORK_AUTUMN, "0 30 1 * * *", ["01:30:00-04:00", "=", "=", "01:30:00-04:00 01:30:00-05:00"]),
    (
        NEW_YORK_AUTUMN,
        "0 1,2 * * *",
        ["01:00:00-04:00 02:00:00-05:00", "=", "=", "01:00:00-04:00 01:00:00-05:00 02:00:00-05:00"],
    ),
    (KYIV_AUTUMN, "0 3 * * *", ["03:00:00+03:00", "=", "=", "03:00:00+03:00 03:00:00+02:00"]),
    (
        LORD_HOWE_AUTUMN,
        "20,40 1 * * *",
        ["01:20:00+11:00 01:40:00+11:00", "=", "=", "01:20:00+11:00 01:40:00+11:00 01:40:00+10:30"],
    ),
    (CASABLANCA_BEFORE_RAMADAN, "59 2 * * *", ["02:59:00+01:00", "=", "=", "02:59:00+01:00 02:59:00+00:00"]),
    (DUBLIN_AUTUMN, "30 1 * * *", ["01:30:00+01:00", "=", "=", "01:30:00+01:00 01:30:00+00:00"]),
    (TEHRAN_AUTUMN, "30 23 * * *", ["23:30:00+04:30", "=", "=", "23:30:00+04:30 23:30:00+03:30"]),
    (TEHRAN_AUTUMN, "@daily", ["00:00:00+03:30", "=", "=", "="]),
    // --- repeated times, lines with an interval: ticks in both passes, except under first
    (
        NEW_YORK_AUTUMN,
        "*/30 1 * * *",
        [
            "01:00:00-04:00 01:30:00-04:00 01:00:00-05:00 01:30:00-05:00",
            "=",
            "01:00:00-04:00 01:30:00-04:00",
            "=",
        ],
    ),
    (
        NEW_YORK_AUTUMN,
        "0 30 * * * *",
        ["01:30:00-04:00 01:30:00-05:00 02:30:00-05:00", "=", "01:30:00-04:00 02:30:00-05:00", "="],
    ),
    (
        KYIV_AUTUMN,
        "@hourly",
        [
            "03:00:00+03:00 03:00:00+02:00 04:00:00+02:00 05:00:00+02:00",
            "=",
            "03:00:00+03:00 04:00:00+02:00 05:00:00+02:00",
            "=",
        ],
    ),
    (
        LORD_HOWE_AUTUMN,
        "*/20 1 * * *",
        [
            "01:00:00+11:00 01:20:00+11:00 01:40:00+11:00 01:40:00+10:30",
            "=",
            "01:00:00+11:00 01:20:00+11:00 01:40:00+11:00",
            "=",
        ],
    ),
    (
        CASABLANCA_BEFORE_RAMADAN,
        "45 * * * *",
        ["02:45:00+01:00 02:45:00+00:00 03:45:00+00:00", "=", "02:45:00+01:00 03:45:00+00:00", "="],
    ),
    (
        DUBLIN_AUTUMN,
        "30 */1 * * *",
        ["01:30:00+01:00 01:30:00+00:00 02:30:00+00:00", "=", "01:30:00+01:00 02:30:00+00:00", "="],
    ),
    (
        TEHRAN_AUTUMN,
        "15 * * * *",
        [
            "23:15:00+04:30 23:15:00+03:30 00:15:00+03:30 01:15:00+03:30",
            "=",
            "23:15:00+04:30 00:15:00+03:30 01:15:00+03:30",
            "=",
        ],
    ),
    // --- corrections of three hours or more: skipped times have no ticks, repeated times have all
    (APIA, "30 12 * * *", ["", "=", "=", "="]),
    (APIA, "30 0,23 * * *", ["23:30:00-10:00 00:30:00+14:00", "=", "=", "="]),
    (CASEY, "30 1 * * *", ["01:30:00+11:00", "=", "=", "="]),
    (CASEY, "30 23 * * *", ["23:30:00+08:00", "=", "=", "="]),
    (CASEY, "0 * * * *", ["01:00:00+11:00 23:00:00+08:00 00:00:00+08:00 01:00:00+08:00", "=", "=", "="]),
];

#[test]
fn the_table_holds_and_the_reference_agrees() {
    for (change, line, expect) in CASES {
        let seconds = Seconds::around(*change);
        let (from, until) = (seconds.change - 75 * 60, seconds.change + 135 * 60);
        for (rule, column) in Dst::ALL.into_iter().zip(expect) {
            let expect = if *column == "=" { expect[0] } else { column };
            let cron = Cron::parse(line).unwrap().zone(change.0).unwrap().dst(rule);
            let found = walk(&cron, from, until);
            assert_eq!(seconds.show(&found), expect, "{cron} around {}", change.1);
            let line = Line::read(line);
            assert_eq!(
                seconds.show(&line.reference(&seconds, rule, from, until)),
                expect,
                "the reference of {cron}"
            );
        }
    }
}

/// Tests that the table has enough cases for each rule except vixie. In each of at least five zones, there must
/// be a case in which the ticks under this rule differ from the ticks under vixie.
#[test]
fn each_rule_has_cases_in_which_it_matters() {
    for (at, rule) in Dst::ALL.into_iter().enumerate().skip(1) {
        let differs = CASES.iter().filter(|(_, _, expect)| expect[at] != "=");
        let zones: BTreeSet<&str> = differs.map(|((zone, _), _, _)| *zone).collect();
        assert!(zones.len() >= 5, "{rule}: {zones:?}");
    }
}

#[test]
fn a_line_due_at_every_second_is_never_caught_up() {
    let cron = Cron::parse("0-59 0-59 0-23 * * *").unwrap().zone("America/New_York").unwrap();
    let gap = seconds_of(NEW_YORK_SPRING.1);
    for rule in Dst::ALL {
        let cron = cron.clone().dst(rule);
        for after in [gap - 1, gap, gap + 1800, gap + HOUR - 1, gap + HOUR] {
            assert_eq!(next(&cron, after), Some(after + 1), "{cron}");
        }
    }
}

#[test]
fn at_most_sixty_ticks_are_caught_up_for_one_gap() {
    let cron = Cron::parse("0,30 0-59 2 * * *").unwrap().zone("America/New_York").unwrap();
    let gap = seconds_of(NEW_YORK_SPRING.1);
    let ticks: Vec<i64> = walk(&cron, gap - 1, gap + HOUR).into_iter().collect();
    assert_eq!(ticks, (gap..gap + 60).collect::<Vec<_>>());
}

#[test]
fn random_lines_agree_with_a_second_by_second_reference() {
    let mut dice = Dice(5);
    let all: Vec<Seconds> = CHANGES.into_iter().map(Seconds::around).collect();
    let mut met = BTreeMap::new();
    for round in 0..400 {
        let line = Line::random(&mut dice);
        let Ok(cron) = Cron::parse(&line.text) else {
            continue; // The line has no tick, such as 31 February. Another test checks the error.
        };
        let seconds = &all[dice.under(all.len())];
        let rule = Dst::ALL[dice.under(4)];
        let cron = cron.zone(seconds.zone).unwrap().dst(rule);
        // The start of the search is random. A leader may take over at any moment, and must compute the same
        // ticks as the previous leader.
        let from = seconds.change - 2 * HOUR + i64::from(dice.below(4 * 3600));
        let until = seconds.change + 5 * HOUR;
        let expect = line.reference(seconds, rule, from, until);
        let found = walk(&cron, from, until);
        assert_eq!(found, expect, "round {round}: {cron} around {}", seconds.at);
        for _ in 0..20 {
            let moment = from + i64::from(dice.below(7 * 3600));
            let later = expect.range(moment + 1..).next().copied();
            let answer = next(&cron, moment).filter(|tick| *tick <= until);
            assert_eq!(answer, later.filter(|_| moment >= from), "round {round}: {cron} after {moment}");
        }
        let same = line.reference(seconds, Dst::Vixie, from, until) == expect;
        *met.entry((rule.name(), line.fixed, same)).or_insert(0) += usize::from(!expect.is_empty());
    }
    // The test must have compared enough lines: lines with the same ticks as under vixie, and lines whose ticks
    // differ.
    for (rule, fixed) in [("vixie", true), ("vixie", false), ("skip", true), ("first", false), ("both", true)]
    {
        assert!(met.get(&(rule, fixed, true)).is_some_and(|met| *met > 10), "{rule}, {fixed}: {met:?}");
    }
    for (rule, fixed) in [("first", false), ("both", true)] {
        assert!(met.get(&(rule, fixed, false)).is_some_and(|met| *met > 2), "{rule}, {fixed}: {met:?}");
    }
}

// --- the tested code
// --------------------------------------------------------------------------------------------

fn next(cron: &Cron, after: i64) -> Option<i64> {
    let tick = cron.next_after(WallTime::from_micros(u64::try_from(after).unwrap() * 1_000_000))?;
    assert_eq!(tick.as_micros() % 1_000_000, 0);
    i64::try_from(tick.as_micros() / 1_000_000).ok()
}

/// Returns the ticks in `(from, until]`. They are found by repeated calls of `next`, each of which must return
/// a later tick.
fn walk(cron: &Cron, from: i64, until: i64) -> BTreeSet<i64> {
    let mut ticks = BTreeSet::new();
    let mut at = from;
    while let Some(tick) = next(cron, at).filter(|tick| *tick <= until) {
        assert!(tick > at, "{cron}: {tick} after {at}");
        ticks.insert(tick);
        at = tick;
    }
    ticks
}

// --- the reference -----------------------------------------------------------------------------------------------

fn seconds_of(utc: &str) -> i64 {
    DateTime::strptime("%Y-%m-%d %H:%M", utc)
        .unwrap()
        .to_zoned(TimeZone::UTC)
        .unwrap()
        .timestamp()
        .as_second()
}

/// The local time of a zone at each second, for some hours around a change.
struct Seconds {
    zone: &'static str,
    at: &'static str,
    change: i64,
    begin: i64,
    shows: Vec<DateTime>,
}

impl Seconds {
    fn around((name, at): Change) -> Self {
        let zone = TimeZone::get(name).unwrap();
        let change = seconds_of(at);
        let shows = |utc| zone.to_datetime(Timestamp::from_second(utc).unwrap());
        assert_ne!(
            shows(change).duration_since(shows(change - 1)),
            SignedDuration::from_secs(1),
            "{name} changes at {at}"
        );
        let begin = change - 8 * HOUR;
        Self { zone: name, at, change, begin, shows: (begin..=change + 6 * HOUR).map(shows).collect() }
    }

    fn show(&self, ticks: &BTreeSet<i64>) -> String {
        let zone = TimeZone::get(self.zone).unwrap();
        let show = |utc: &i64| {
            let moment = Timestamp::from_second(*utc).unwrap().to_zoned(zone.clone());
            moment.strftime("%H:%M:%S%:z").to_string()
        };
        ticks.iter().map(show).collect::<Vec<_>>().join(" ")
    }
}

/// A cron line, with the set of matching values of each field.
struct Line {
    text: String,
    second: BTreeSet<u32>,
    minute: BTreeSet<u32>,
    hour: BTreeSet<u32>,
    day: BTreeSet<u32>,
    /// The days of the week. Sunday is 0.
    weekday: BTreeSet<u32>,
    either: bool,
    fixed: bool,
}

impl Line {
    fn meets(&self, local: DateTime) -> bool {
        let day = self.day.contains(&local.day().cast_unsigned().into());
        let weekday = self.weekday.contains(&local.weekday().to_sunday_zero_offset().cast_unsigned().into());
        self.second.contains(&local.second().cast_unsigned().into())
            && self.minute.contains(&local.minute().cast_unsigned().into())
            && self.hour.contains(&local.hour().cast_unsigned().into())
            && if self.either { day || weekday } else { day && weekday }
    }

    /// Returns the ticks in `(from, until]` as [`Dst`] defines them. This function examines every second.
    fn reference(&self, seconds: &Seconds, rule: Dst, from: i64, until: i64) -> BTreeSet<i64> {
        let second = SignedDuration::from_secs(1);
        let correction = SignedDuration::from_hours(3);
        let mut ticks = BTreeSet::new();
        let mut skipped: Vec<DateTime> = Vec::new();
        let mut gap = None;
        // The last local time that the clock showed before it was set back. The clock repeats local times until
        // it shows a later time than this.
        let mut shown_before: Option<DateTime> = None;
        let mut last = seconds.shows[0] - second;
        for (utc, now) in (seconds.begin..).zip(seconds.shows.iter().copied()) {
            let jump = now.duration_since(last) - second;
            if jump > SignedDuration::ZERO && jump < correction {
                let lost = std::iter::successors(Some(last + second), |at| Some(*at + second));
                skipped = lost.take_while(|at| *at < now).filter(|at| self.meets(*at)).collect();
                gap = Some((utc, utc + jump.as_secs()));
            }
            if jump < SignedDuration::ZERO && -jump < correction {
                shown_before = Some(last);
            }
            last = now;
            let again = shown_before.is_some_and(|before| now <= before);
            let counts = match (rule, self.fixed) {
                (Dst::Both, _) | (Dst::Vixie | Dst::Skip, false) => true,
                _ => !again,
            };
            if self.meets(now) && counts {
                ticks.insert(utc);
            }
        }
        if self.fixed
            && rule != Dst::Skip
            && let Some((begin, end)) = gap
        {
            let mut free = (begin..end).filter(|at| !ticks.contains(at)).collect::<Vec<_>>().into_iter();
            let made_up: Vec<i64> = skipped.iter().take(60).map_while(|_| free.next()).collect();
            ticks.extend(made_up);
        }
        ticks.retain(|tick| (from + 1..=until).contains(tick));
        ticks
    }

    /// Parses a line of the table. A field has numbers, `*`, lists, ranges and steps. The line may also be
    /// `@daily` or `@hourly`.
    fn read(line: &str) -> Self {
        let plain = match line {
            "@daily" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            other => other,
        };
        let fields: Vec<&str> = plain.split(' ').collect();
        let (second, rest) = if fields.len() == 6 { (fields[0], &fields[1..]) } else { ("0", &fields[..]) };
        let (minute, hour) = (rest[0], rest[1]);
        let values = |text: &str, most: u32| -> BTreeSet<u32> {
            let item = |item: &str| -> Vec<u32> {
                let (span, step) = item.split_once('/').unwrap_or((item, "1"));
                let (a, b) = if span == "*" {
                    (0, most)
                } else {
                    let (a, b) = span.split_once('-').unwrap_or((span, span));
                    (a.parse().unwrap(), b.parse().unwrap())
                };
                (a..=b).step_by(step.parse().unwrap()).collect()
            };
            text.split(',').flat_map(item).collect()
        };
        assert!(plain.ends_with("* * *"), "{line}: the table says nothing of days");
        Self {
            text: line.to_owned(),
            second: values(second, 59),
            minute: values(minute, 59),
            hour: values(hour, 23),
            day: (1..=31).collect(),
            weekday: (0..=6).collect(),
            either: false,
            fixed: [second, minute, hour].iter().all(|field| !field.starts_with('*')),
        }
    }

    fn random(dice: &mut Dice) -> Self {
        let with_seconds = dice.below(2) == 0;
        let (second_text, second) = match dice.below(4) {
            _ if !with_seconds => ("0".to_owned(), BTreeSet::from([0])),
            0 => ("*/20".to_owned(), BTreeSet::from([0, 20, 40])),
            1 => ("5,50".to_owned(), BTreeSet::from([5, 50])),
            2 => ("0-2".to_owned(), (0..=2).collect()),
            _ => ("0".to_owned(), BTreeSet::from([0])),
        };
        let first = if dice.below(2) == 0 { 0 } else { 3 }; // The kinds of field from 3 on have no star.
        let (minute_text, minute) = dice.field_from(first, 0, 59, 59);
        // The hour is between 0 and 4, because most changes are at night. If the field begins with a star, the
        // line may match any hour.
        let (hour_text, hour) = dice.field_from(first, 0, 4, 23);
        // Three of four lines match every day. Otherwise few lines would have a tick on the day of the change.
        let any = |least: u32, most: u32| ("*".to_owned(), (least..=most).collect());
        let (day_text, day) = if dice.below(4) > 0 { any(1, 31) } else { dice.field(1, 31, 31) };
        let (weekday_text, weekday) = if dice.below(4) > 0 { any(0, 6) } else { dice.field(0, 6, 6) };
        let days = if with_seconds {
            // In a line with seconds, Sunday is 1. So the weekdays are written as numbers that begin at 1.
            let numbers: Vec<String> = weekday.iter().map(|day| (day + 1).to_string()).collect();
            format!("{day_text} * {}", if weekday_text == "*" { "*".to_owned() } else { numbers.join(",") })
        } else {
            format!("{day_text} * {weekday_text}")
        };
        let starred = |text: &str| text.starts_with('*');
        let clock = format!("{minute_text} {hour_text}");
        Self {
            text: if with_seconds {
                format!("{second_text} {clock} {days}")
            } else {
                format!("{clock} {days}")
            },
            either: !with_seconds && !starred(&day_text) && !starred(&weekday_text),
            fixed: !starred(&minute_text) && !starred(&hour_text) && !starred(&second_text),
            second,
            minute,
            hour,
            day,
            weekday,
        }
    }
}

/// A random generator (splitmix64) with a fixed seed, so that every run of the test uses the same lines.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        u32::try_from((z ^ (z >> 31)) % u64::from(bound)).unwrap()
    }

    fn under(&mut self, bound: usize) -> usize {
        usize::try_from(self.below(u32::try_from(bound).unwrap())).unwrap()
    }

    /// Returns the text of a random field, and its values, which are computed without the parser. The values
    /// are between `least` and `near`. If the text has a star, the values are between `least` and `most`.
    fn field(&mut self, least: u32, near: u32, most: u32) -> (String, BTreeSet<u32>) {
        self.field_from(0, least, near, most)
    }

    fn field_from(&mut self, first: u32, least: u32, near: u32, most: u32) -> (String, BTreeSet<u32>) {
        let mut value = || least + self.below(near - least + 1);
        let (a, b) = (value(), value());
        let (a, b) = (a.min(b), a.max(b));
        let step = 1 + self.below(6);
        match first + self.below(6 - first) {
            0 | 1 => ("*".to_owned(), (least..=most).collect()),
            2 => (format!("*/{step}"), (least..=most).step_by(step as usize).collect()),
            3 => (format!("{a}-{b}"), (a..=b).collect()),
            4 => (format!("{a}-{b}/{step}"), (a..=b).step_by(step as usize).collect()),
            _ => (format!("{a},{b}"), BTreeSet::from([a, b])),
        }
    }
}
