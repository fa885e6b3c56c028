use super::{
    crontab::{Imported, Settings, translate},
    zone_name,
};
use crate::config::{Config, Environment, Flags, JobConfig};
use quorate::scheduler::Zone;
use std::{collections::BTreeMap, io, path::Path, process::Command};

fn settings(zone: &Zone) -> Settings<'_> {
    Settings { system: false, user: None, zone, group: "cron" }
}

fn import(crontab: &str) -> Imported {
    translate(crontab, &settings(&Zone::UTC))
}

/// Returns the jobs that a daemon reads from the translated file.
#[track_caller]
fn jobs(imported: &Imported) -> Vec<JobConfig> {
    let read = |path: &Path| match path == Path::new("/q.toml") {
        true => Ok(imported.file.clone()),
        false => Err(io::ErrorKind::NotFound.into()),
    };
    let env = [("QUORATE_CONFIG", "/q.toml"), ("QUORATE_NODES", "redis://a,redis://b,redis://c")];
    let env: BTreeMap<_, _> = env.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let environment = Environment { env, read: &read, is_own: &|_| true, host: "oak".to_owned(), pid: 7 };
    let config = Config::load(&Flags::default(), &environment)
        .unwrap_or_else(|error| panic!("{error}\n{}", imported.file));
    let (group, jobs) = config.group_with_jobs().expect("a group");
    assert_eq!((&**group, jobs.len()), ("cron", imported.jobs));
    jobs.to_vec()
}

#[test]
fn schedules_keep_their_meaning() {
    let kyiv = Zone::named("Europe/Kyiv").expect("a zone");
    let crontab = "\
0 3 * * * nightly
*/15 9-17/2 1,15 jan-mar mon-fri busy
@daily daily
@midnight midnight
@every_minute minute
CRON_TZ=America/New_York
30 2 * * 7 sunday
RANDOM_DELAY=45
@weekly weekly
";
    let imported = translate(crontab, &settings(&kyiv));
    assert_eq!((imported.jobs, imported.refused, &*imported.notes), (7, 0, &[][..]));
    let jobs = jobs(&imported);
    let schedules: Vec<String> = jobs.iter().map(|job| job.schedule.to_string()).collect();
    assert_eq!(
        schedules,
        [
            "0 3 * * * (Europe/Kyiv)",
            "*/15 9-17/2 1,15 jan-mar mon-fri (Europe/Kyiv)",
            "@daily (Europe/Kyiv)",
            "@midnight (Europe/Kyiv)",
            "* * * * * (Europe/Kyiv)",
            "30 2 * * 7 (America/New_York)",
            "@weekly (America/New_York)",
        ]
    );
    let jitter: Vec<u64> = jobs.iter().map(|job| job.rules.jitter.as_secs() / 60).collect();
    assert_eq!(jitter, [0, 0, 0, 0, 0, 0, 45]);
}

#[test]
fn a_line_that_cannot_be_translated_is_named_and_left_as_a_comment() {
    for (line, why) in [
        ("@reboot start", "several machines have no common start"),
        ("0~59 * * * * x", "set jitter"),
        ("61 * * * * x", "is not within 0-59"),
        ("0 0 30 2 * x", "never fires"),
        ("* * * *", "does not have a schedule and a command"),
        ("@fortnightly x", "@fortnightly"),
        ("0 3 * * * %input", "the command is empty"),
        ("SHELL=/usr/bin/fish\n0 3 * * * cat%input", "SHELL is /usr/bin/fish"),
        ("CRON_TZ=Europe/Kiyv\n0 3 * * * x", "the zone of CRON_TZ is unknown"),
    ] {
        let imported = import(line);
        assert_eq!((imported.jobs, imported.refused), (0, 1), "{line}");
        let number = line.lines().count();
        let note = imported.notes.last().expect("a note");
        assert!(
            note.starts_with(&format!("line {number}: not translated: ")) && note.contains(why),
            "{note}"
        );
        let last = line.lines().last().unwrap_or_default();
        assert!(imported.file.contains(&format!("#   {last}\n")), "{}", imported.file);
    }
    let zone = import("CRON_TZ=Europe/Kiyv\n");
    assert!(zone.notes[0].contains("did you mean `Europe/"), "the most similar zone: {:?}", zone.notes);
}

#[test]
fn variables_apply_to_the_lines_below_them() {
    let imported = import(
        "0 1 * * * first\nPATH=/usr/bin:/bin\nHOME = /srv/app\nGREETING=\"a \\\"b\"\n0 2 * * * second\n\
         SHELL=/bin/bash\nPATH=/bin\n0 3 * * * third\n",
    );
    let jobs = jobs(&imported);
    assert!(jobs[0].env.is_empty() && jobs[0].cwd.is_none());
    assert_eq!(jobs[0].command, ["/bin/sh", "-c", "first"]);
    assert_eq!(jobs[1].env["PATH"].0, "/usr/bin:/bin");
    assert_eq!(jobs[1].env["GREETING"].0, "a \\\"b");
    assert_eq!(jobs[1].cwd.as_deref(), Some(Path::new("/srv/app")));
    assert_eq!(jobs[2].command, ["/bin/bash", "-c", "third"]);
    assert_eq!(jobs[2].env["PATH"].0, "/bin");
    assert!(!jobs[2].env.contains_key("SHELL"));
}

#[test]
fn a_delay_is_cut_to_the_period_of_its_job() {
    let imported =
        import("RANDOM_DELAY=45\n0 3 * * * /bin/nightly\n*/10 * * * * /bin/often\n@hourly /bin/hourly\n");
    let jitter: Vec<u64> = jobs(&imported).iter().map(|job| job.rules.jitter.as_secs()).collect();
    assert_eq!(jitter, [45 * 60, 10 * 60, 45 * 60]);
    assert_eq!(imported.notes.len(), 1, "{:?}", imported.notes);
    assert!(imported.notes[0].starts_with("line 3: RANDOM_DELAY of 2700 s"), "{:?}", imported.notes);
}

#[test]
fn the_flags_of_openbsd_and_an_empty_shell_are_translated_or_reported() {
    let imported = import("SHELL=\"\"\n0 3 * * * -n -sq /bin/a\n0 4 * * * /bin/b\n");
    let jobs = jobs(&imported);
    assert_eq!((&*jobs[0].command[0], &*jobs[0].command[2]), ("/bin/sh", "/bin/a"));
    assert!(imported.file.contains("shell = \"/bin/a\"\noverlap = \"skip\"\n"), "{}", imported.file);
    assert_eq!(imported.file.matches("overlap = ").count(), 1);
    for part in ["line 1: SHELL is empty", "line 2: the flag -n", "line 2: the flag -q"] {
        assert!(imported.notes.iter().any(|note| note.starts_with(part)), "{part}: {:?}", imported.notes);
    }
    assert_eq!(imported.notes.len(), 3);
}

#[test]
fn variables_without_an_equivalent_are_reported() {
    let imported =
        import("MAILTO=ops\nMAILTO=\"\"\nLOGNAME=x\nRANDOM_DELAY=soon\nQUORATE_JOB=x\n0 3 * * * a\n");
    let expected = ["line 1: MAILTO", "line 3: LOGNAME", "line 4: RANDOM_DELAY", "line 5: QUORATE_JOB"];
    assert_eq!(imported.notes.len(), expected.len(), "{:?}", imported.notes);
    for (note, begin) in imported.notes.iter().zip(expected) {
        assert!(note.starts_with(begin), "{note}");
    }
    assert!(jobs(&imported)[0].env.is_empty());
    assert_eq!(imported.refused, 0);
}

#[test]
fn the_user_column_is_reported_or_selects() {
    let crontab = "0 1 * * * root a\n-0 2 * * * backup b\n0 3 * * * root c\n";
    let zone = Zone::UTC;
    let all = translate(crontab, &Settings { system: true, ..settings(&zone) });
    assert_eq!((all.jobs, all.refused), (3, 0));
    let notes = all.notes.join("\n");
    for part in ["line 2: the `-`", "user root: 2 translated", "user backup: 1 translated"] {
        assert!(notes.contains(part), "{notes}");
    }
    let one = translate(crontab, &Settings { system: true, user: Some("backup"), ..settings(&zone) });
    let names: Vec<_> = jobs(&one).iter().map(|job| job.name.to_string()).collect();
    assert_eq!(names, ["b"]);
}

#[test]
fn comments_stay_with_their_job_and_names_are_different() {
    let imported = import("# head\n\n# every night\n# by Ann\n0 3 * * * /opt/a.sh\n0 4 * * * /opt/a.sh -v\n");
    assert!(
        imported.file.contains("\n# every night\n# by Ann\n[[job]]\nname = \"a\"\n"),
        "{}",
        imported.file
    );
    assert!(!imported.file.contains("# head"), "{}", imported.file);
    let names: Vec<_> = jobs(&imported).iter().map(|job| job.name.to_string()).collect();
    assert_eq!(names, ["a", "a-2"]);
}

#[test]
fn the_input_after_a_percent_sign_reaches_the_command() {
    let imported = import("0 3 * * * tr a-z A-Z; cat # both%it's 100\\%%%end\n");
    let job = &jobs(&imported)[0];
    let output = Command::new(&job.command[0]).args(&job.command[1..]).output().expect("a shell");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "IT'S 100%\n\nEND\n");
    for (crontab, input) in [("wc -l%", "0"), ("wc -l%foo%", "1"), ("wc -l%foo", "1"), ("wc -l%%", "1")] {
        let job = &jobs(&import(&format!("* * * * * {crontab}\n")))[0];
        let output = Command::new(&job.command[0]).args(&job.command[1..]).output().expect("a shell");
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), input, "{crontab}");
    }
    let failed = import("0 3 * * * cat; exit 7%x\n");
    let job = &jobs(&failed)[0];
    let output = Command::new(&job.command[0]).args(&job.command[1..]).output().expect("a shell");
    assert_eq!(output.status.code(), Some(7));
}

#[test]
fn hostile_text_stays_inside_its_strings() {
    let imported = import("# \u{1b}[2J\u{202e}\n0 3 * * * a\"\u{1b}\\n'''\n@reboot \u{1b}[2J\n");
    assert!(!imported.file.replace('\n', "").contains(quorate::plain::steers), "{:?}", imported.file);
    assert_eq!(jobs(&imported)[0].command[2], "a\"\u{1b}\\n'''");
    let group = translate("", &Settings { group: "a\"\nb", ..settings(&Zone::UTC) });
    assert!(group.file.contains("group = \"a\\\"\\nb\"\n"), "{}", group.file);
}

#[test]
fn the_zone_is_in_the_path_of_its_file() {
    assert_eq!(zone_name("/usr/share/zoneinfo/Europe/Kyiv"), Some("Europe/Kyiv"));
    assert_eq!(zone_name("../usr/share/zoneinfo/UTC"), Some("UTC"));
    assert_eq!(zone_name("/etc/other"), None);
}
