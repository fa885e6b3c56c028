//! Tests of skipped and repeated local times. The expected ticks are in tables of the behaviour of cronie (the
//! cron of many Linux systems). Random lines are compared with a slow model.
//!
//! The tables were measured with cronie itself, on a shifted clock. If cronie starts two runs of a job in the
//! same minute, the ticks of Quorate are one second apart, because each tick needs a different instant.

#![expect(clippy::unwrap_used, reason = "a test's helper may")]

use jiff::{SignedDuration, Timestamp, civil::DateTime, tz::TimeZone};
use quorate::{env::WallTime, scheduler::Cron};
use std::collections::{BTreeMap, BTreeSet};

/// Returns the ticks of `line` between two times in UTC, as local times with their offsets.
fn ticks(line: &str, zone: &str, after: &str, until: &str) -> Vec<String> {
    let cron = Cron::parse(line).unwrap().zone(zone).unwrap();
    let (mut at, until) = (wall(after), wall(until));
    let mut ticks = Vec::new();
    while let Some(tick) = cron.next_after(at).filter(|tick| *tick <= until) {
        assert!(tick > at);
        at = tick;
        ticks.push(cron.format(tick).split(" (").next().unwrap().to_owned());
        assert!(ticks.len() < 1000, "{line} has no end");
    }
    ticks
}

fn wall(utc: &str) -> WallTime {
    let at = DateTime::strptime("%Y-%m-%d %H:%M", utc)
        .unwrap()
        .to_zoned(TimeZone::UTC)
        .unwrap()
        .timestamp()
        .as_second();
    WallTime::from_micros(u64::try_from(at).unwrap() * 1_000_000)
}

#[track_caller]
fn check(zone: &str, (after, until): (&str, &str), line: &str, expect: &[&str]) {
    assert_eq!(ticks(line, zone, after, until), expect, "{line} in {zone}");
}

#[test]
fn new_york_skips_an_hour() {
    // At 07:00 UTC, the clock goes from 02:00 -05:00 to 03:00 -04:00.
    let day = |line: &str, expect: &[&str]| {
        check("America/New_York", ("2025-03-09 05:31", "2025-03-09 09:00"), line, expect);
    };
    day("30 2 * * *", &["2025-03-09 03:00:00 -04:00"]);
    day("0,30 2 * * *", &["2025-03-09 03:00:00 -04:00", "2025-03-09 03:00:01 -04:00"]);
    day("*/15 2 * * *", &[]);
    day("0 2,3 * * *", &["2025-03-09 03:00:00 -04:00", "2025-03-09 03:00:01 -04:00"]);
    day("0 0 2,3 * * *", &["2025-03-09 03:00:00 -04:00", "2025-03-09 03:00:01 -04:00"]);
    day("0 30 2 * * *", &["2025-03-09 03:00:00 -04:00"]);
    day("30 2 9 3 0", &["2025-03-09 03:00:00 -04:00"]);
    day("30 2 10 3 *", &[]);
    day("59 1 * * *", &["2025-03-09 01:59:00 -05:00"]);
    day(
        "@hourly",
        &[
            "2025-03-09 01:00:00 -05:00",
            "2025-03-09 03:00:00 -04:00",
            "2025-03-09 04:00:00 -04:00",
            "2025-03-09 05:00:00 -04:00",
        ],
    );
    day("30 */2 * * *", &["2025-03-09 04:30:00 -04:00"]);
}

#[test]
fn new_york_repeats_an_hour() {
    // At 06:00 UTC, the clock goes from 02:00 -04:00 to 01:00 -05:00.
    let day = |line: &str, expect: &[&str]| {
        check("America/New_York", ("2025-11-02 04:30", "2025-11-02 07:00"), line, expect);
    };
    day("30 1 * * *", &["2025-11-02 01:30:00 -04:00"]);
    day("0,30 1 * * *", &["2025-11-02 01:00:00 -04:00", "2025-11-02 01:30:00 -04:00"]);
    day("0 30 1 * * *", &["2025-11-02 01:30:00 -04:00"]);
    day("0 2 * * *", &["2025-11-02 02:00:00 -05:00"]);
    let both_passes = [
        "2025-11-02 01:00:00 -04:00",
        "2025-11-02 01:30:00 -04:00",
        "2025-11-02 01:00:00 -05:00",
        "2025-11-02 01:30:00 -05:00",
    ];
    day("*/30 1 * * *", &both_passes);
    let mut all = both_passes.to_vec();
    all.push("2025-11-02 02:00:00 -05:00");
    day("*/30 * * * *", &all);
    day("0 */30 * * * *", &all);
}

#[test]
fn kyiv_skips_and_repeats() {
    // In spring, at 01:00 UTC, the clock goes from 03:00 +02:00 to 04:00 +03:00. In autumn, at 01:00 UTC, it
    // goes from 04:00 +03:00 to 03:00 +02:00.
    let spring = ("2025-03-29 23:30", "2025-03-30 02:30");
    check("Europe/Kyiv", spring, "0 3 * * *", &["2025-03-30 04:00:00 +03:00"]);
    check("Europe/Kyiv", spring, "0 3 * * 1", &[]);
    check(
        "Europe/Kyiv",
        spring,
        "30 * * * *",
        &["2025-03-30 02:30:00 +02:00", "2025-03-30 04:30:00 +03:00", "2025-03-30 05:30:00 +03:00"],
    );
    let autumn = ("2025-10-25 23:30", "2025-10-26 02:00");
    check("Europe/Kyiv", autumn, "0 3 * * *", &["2025-10-26 03:00:00 +03:00"]);
    check(
        "Europe/Kyiv",
        autumn,
        "15,45 * * * *",
        &[
            "2025-10-26 02:45:00 +03:00",
            "2025-10-26 03:15:00 +03:00",
            "2025-10-26 03:45:00 +03:00",
            "2025-10-26 03:15:00 +02:00",
            "2025-10-26 03:45:00 +02:00",
        ],
    );
}

#[test]
fn lord_howe_moves_by_half_an_hour() {
    // In spring, at 15:30 UTC, the clock goes from 02:00 +10:30 to 02:30 +11:00. In autumn, at 15:00 UTC, it
    // goes from 02:00 +11:00 to 01:30 +10:30.
    let spring = ("2025-10-04 15:00", "2025-10-04 17:00");
    check("Australia/Lord_Howe", spring, "15 2 * * *", &["2025-10-05 02:30:00 +11:00"]);
    check("Australia/Lord_Howe", spring, "45 2 * * *", &["2025-10-05 02:45:00 +11:00"]);
    check(
        "Australia/Lord_Howe",
        spring,
        "@hourly",
        &["2025-10-05 03:00:00 +11:00", "2025-10-05 04:00:00 +11:00"],
    );
    let autumn = ("2025-04-05 14:00", "2025-04-05 15:30");
    check("Australia/Lord_Howe", autumn, "45 1 * * *", &["2025-04-06 01:45:00 +11:00"]);
    check(
        "Australia/Lord_Howe",
        autumn,
        "*/15 1-2 * * *",
        &[
            "2025-04-06 01:15:00 +11:00",
            "2025-04-06 01:30:00 +11:00",
            "2025-04-06 01:45:00 +11:00",
            "2025-04-06 01:30:00 +10:30",
            "2025-04-06 01:45:00 +10:30",
            "2025-04-06 02:00:00 +10:30",
        ],
    );
}

#[test]
fn sao_paulo_had_its_gap_at_midnight() {
    let day = ("2018-11-03 12:00", "2018-11-05 02:00");
    check("America/Sao_Paulo", day, "@daily", &["2018-11-04 01:00:00 -02:00", "2018-11-05 00:00:00 -02:00"]);
    let repeated = ("2018-02-18 00:30", "2018-02-18 04:00");
    check("America/Sao_Paulo", repeated, "30 23 * * *", &["2018-02-17 23:30:00 -02:00"]);
    check("America/Sao_Paulo", repeated, "@daily", &["2018-02-18 00:00:00 -03:00"]);
}

#[test]
fn apia_had_no_30_december_2011_and_no_tick_is_caught_up() {
    let days = ("2011-12-29 12:00", "2012-01-01 00:00");
    check(
        "Pacific/Apia",
        days,
        "0 12 * * *",
        &["2011-12-29 12:00:00 -10:00", "2011-12-31 12:00:00 +14:00", "2012-01-01 12:00:00 +14:00"],
    );
    check(
        "Pacific/Apia",
        ("2011-12-29 12:00", "2012-12-31 00:00"),
        "0 12 30 12 *",
        &["2012-12-30 12:00:00 +14:00"],
    );
}

#[test]
fn kolkata_has_no_clock_change() {
    let day = ("2025-03-08 20:00", "2025-03-09 22:00");
    check("Asia/Kolkata", day, "30 2 * * *", &["2025-03-09 02:30:00 +05:30", "2025-03-10 02:30:00 +05:30"]);
}

#[test]
fn rare_lines_are_found_and_impossible_ones_refused() {
    check(
        "UTC",
        ("2025-01-01 00:00", "2040-01-01 00:00"),
        "0 0 29 2 *",
        &["2028-02-29 00:00:00 +00:00", "2032-02-29 00:00:00 +00:00", "2036-02-29 00:00:00 +00:00"],
    );
    check(
        "Europe/Kyiv",
        ("2025-01-01 00:00", "2099-12-31 23:00"),
        "0 0 0 31 12 ? 2099",
        &["2099-12-31 00:00:00 +02:00"],
    );
    for line in ["0 0 30 2 *", "0 0 31 4,6 *", "0 0 0 31 2 *", "0 0 0 29 2 * 2100", "0 0 0 31 12 1 9999"] {
        let error = Cron::parse(line).unwrap_err().to_string();
        assert!(error.contains("never fires"), "{line}: {error}");
    }
    assert!(Cron::parse("0 0 30 2 1").is_ok(), "Mondays in February");
    let past = Cron::parse("0 0 0 1 1 * 2020").unwrap();
    assert_eq!(past.next_after(wall("2025-01-01 00:00")), None);
    let daily = Cron::parse("@daily").unwrap().zone("Europe/Kyiv").unwrap();
    assert_eq!(daily.next_after(WallTime::from_micros(u64::MAX)), None);
    assert_eq!(daily.next_after(wall("2200-01-01 00:00")), Some(wall("2200-01-01 22:00")));
    let leap = Cron::parse("0 0 29 2 *").unwrap();
    assert_eq!(
        leap.next_after(wall("2096-03-01 00:00")),
        Some(wall("2104-02-29 00:00")),
        "2100 is no leap year"
    );
    let far = Cron::parse("0 0 0 29 2 * 2400").unwrap().zone("America/New_York").unwrap();
    assert_eq!(far.next_after(wall("2025-01-01 00:00")), Some(wall("2400-02-29 05:00")));
    assert_eq!(daily.next_after(wall("9999-12-30 22:00")), None);
    assert_eq!(daily.next_after(WallTime::from_micros(0)), Some(wall("1970-01-01 21:00")));
}

#[test]
fn a_fraction_of_a_second_gives_no_extra_tick() {
    let cron = Cron::parse("* * * * * *").unwrap();
    let at = |micros| cron.next_after(WallTime::from_micros(micros)).map(WallTime::as_micros);
    assert_eq!(at(1_999_999), Some(2_000_000));
    assert_eq!(at(2_000_000), Some(3_000_000));
    assert_eq!(at(2_000_001), Some(3_000_000));
}

/// A random generator (splitmix64) with a fixed seed, so that every run of the test uses the same lines.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::try_from(self.below(from.len() as u64)).unwrap()]
    }

    /// Returns the text of a random crontab field, and its values. The values are computed without the parser.
    fn field(&mut self, least: u32, most: u32) -> (String, BTreeSet<u32>) {
        let mut value = || least + u32::try_from(self.below(u64::from(most - least + 1))).unwrap();
        let (a, b) = (value(), value());
        let (a, b) = (a.min(b), a.max(b));
        let step = 1 + u32::try_from(self.below(9)).unwrap();
        let by = step as usize;
        match self.below(6) {
            0 | 1 => ("*".to_owned(), (least..=most).collect()),
            2 => (format!("*/{step}"), (least..=most).step_by(by).collect()),
            3 => (format!("{a}-{b}"), (a..=b).collect()),
            4 => (format!("{a}-{b}/{step}"), (a..=b).step_by(by).collect()),
            _ => (format!("{a},{b}"), BTreeSet::from([a, b])),
        }
    }
}

struct Line {
    text: String,
    minute: BTreeSet<u32>,
    hour: BTreeSet<u32>,
    day: BTreeSet<u32>,
    month: BTreeSet<u32>,
    weekday: BTreeSet<u32>,
    either: bool,
    fixed: bool,
}

impl Line {
    fn random(dice: &mut Dice) -> Self {
        // The hour is between 0 and 4, so that most lines have a tick near a change of the offset. If the field
        // begins with a star, the line may match any hour.
        let (minute_text, minute) = dice.field(0, 59);
        let (hour_text, hour) = dice.field(0, 4);
        let hour = if hour_text.starts_with('*') {
            let step = hour_text.strip_prefix("*/").map_or(1, |step| step.parse().unwrap());
            (0..=23).step_by(step).collect()
        } else {
            hour
        };
        let (day_text, day) = dice.field(1, 31);
        let (month_text, month) = dice.field(1, 12);
        let (weekday_text, weekday) = dice.field(0, 7);
        Self {
            text: format!("{minute_text} {hour_text} {day_text} {month_text} {weekday_text}"),
            either: !day_text.starts_with('*') && !weekday_text.starts_with('*'),
            fixed: !minute_text.starts_with('*') && !hour_text.starts_with('*'),
            minute,
            hour,
            day,
            month,
            weekday: weekday.into_iter().map(|day| day % 7).collect(),
        }
    }

    fn meets(&self, local: DateTime) -> bool {
        let day = self.day.contains(&local.day().cast_unsigned().into());
        let weekday = self.weekday.contains(&local.weekday().to_sunday_zero_offset().cast_unsigned().into());
        self.minute.contains(&local.minute().cast_unsigned().into())
            && self.hour.contains(&local.hour().cast_unsigned().into())
            && self.month.contains(&local.month().cast_unsigned().into())
            && if self.either { day || weekday } else { day && weekday }
    }

    /// Returns the ticks in `(from, to]`, computed minute by minute. For each minute, the model has the local
    /// time, the local times that the clock has already shown, and the local times that it has skipped.
    fn model(&self, zone: &TimeZone, from: i64, to: i64) -> BTreeSet<i64> {
        let local = |utc: i64| zone.to_datetime(Timestamp::from_second(utc).unwrap());
        let mut first_shown: BTreeMap<DateTime, i64> = BTreeMap::new();
        let mut ticks = BTreeSet::new();
        let mut lost = Vec::new();
        // The model starts a day before `from`, so that it has the local times that the clock showed shortly
        // before `from`.
        let mut last = local(from - 86_400 - 60);
        for utc in (from - 86_400..=to).step_by(60) {
            let now = local(utc);
            let mut never_shown = last + SignedDuration::from_mins(1);
            while self.fixed && never_shown < now && now.duration_since(last) < SignedDuration::from_hours(3)
            {
                if self.meets(never_shown) {
                    lost.push(utc);
                }
                never_shown += SignedDuration::from_mins(1);
            }
            last = now;
            let again = *first_shown.entry(now).or_insert(utc) != utc;
            if self.meets(now) && !(again && self.fixed) {
                ticks.insert(utc);
            }
        }
        for mut made_up in lost {
            while !ticks.insert(made_up) {
                made_up += 1;
            }
        }
        ticks.into_iter().filter(|tick| (from + 1..=to).contains(tick)).collect()
    }
}

#[test]
fn random_lines_agree_with_a_minute_by_minute_model() {
    const CHANGES: [(&str, &str); 10] = [
        ("America/New_York", "2025-03-09 07:00"),
        ("America/New_York", "2025-11-02 06:00"),
        ("Europe/Kyiv", "2025-03-30 01:00"),
        ("Europe/Kyiv", "2025-10-26 01:00"),
        ("Australia/Lord_Howe", "2025-10-04 15:30"),
        ("Australia/Lord_Howe", "2025-04-05 15:00"),
        ("America/Sao_Paulo", "2018-11-04 03:00"),
        ("America/Sao_Paulo", "2018-02-18 02:00"),
        ("Antarctica/Troll", "2025-03-30 01:00"), // two hours at once
        ("Asia/Kolkata", "2025-03-30 01:00"),
    ];
    let mut dice = Dice(2);
    let (mut met, mut fixed) = (0, 0);
    for round in 0..1000 {
        let line = Line::random(&mut dice);
        let Ok(cron) = Cron::parse(&line.text) else {
            continue; // The line has no tick, such as 31 February. Another test checks the error.
        };
        let (name, change) = dice.pick(&CHANGES);
        let zone = TimeZone::get(name).unwrap();
        let cron = cron.zone(name).unwrap();
        let change = i64::try_from(wall(change).as_micros() / 1_000_000).unwrap();
        let from = change - 60 * i64::try_from(dice.below(1500)).unwrap();
        let to = change + 30 * 3600;
        let expect = line.model(&zone, from, to);
        let mut found = BTreeSet::new();
        let mut at = WallTime::from_micros(u64::try_from(from).unwrap() * 1_000_000);
        while let Some(tick) = cron.next_after(at) {
            assert!(tick > at, "{cron}: {tick:?} is not later than {at:?}");
            let seconds = i64::try_from(tick.as_micros() / 1_000_000).unwrap();
            if seconds > to {
                break;
            }
            found.insert(seconds);
            at = tick;
        }
        assert_eq!(found, expect, "round {round}: {cron} from {from} to {to}");
        met += usize::from(!expect.is_empty());
        fixed += usize::from(line.fixed && !expect.is_empty());
    }
    assert!(met > 150 && fixed > 30, "the throws meet too few ticks to mean much: {met}, fixed {fixed}");
}

#[test]
fn every_starting_moment_gives_the_same_ticks() {
    // A leader may take over during the catch-up runs, or during the repeated hour. It must compute the same
    // ticks as the previous leader.
    for (line, after, until) in [
        ("0,15,30,45 2 * * *", "2025-03-09 06:59", "2025-03-09 07:01"),
        ("*/20 * * * *", "2025-11-02 04:50", "2025-11-02 07:10"),
        ("0,20 1 * * *", "2025-11-02 04:50", "2025-11-02 07:10"),
    ] {
        let cron = Cron::parse(line).unwrap().zone("America/New_York").unwrap();
        let (start, end) = (wall(after).as_micros() / 1_000_000, wall(until).as_micros() / 1_000_000);
        let seconds =
            |at: u64| cron.next_after(WallTime::from_micros(at * 1_000_000)).unwrap().as_micros() / 1_000_000;
        let mut ticks = BTreeSet::new();
        let mut at = start;
        while at < end {
            at = seconds(at);
            ticks.insert(at);
        }
        for moment in start..end {
            let next = ticks.range(moment + 1..).next().copied();
            assert_eq!(Some(seconds(moment)), next, "{line} from {moment}");
        }
    }
}
