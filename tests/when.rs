//! Tests of `quorate when`, `quorate import` and `quorate init`, which need no nodes: the meaning of a schedule, job
//! files, and the annotated configuration file.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use quorate_tests::support::{PATIENCE, Program};
use serde_json::{Value, json};

fn program() -> Program {
    Program::new(env!("CARGO_BIN_EXE_quorate-under-test"))
}

/// Runs `quorate when` with these arguments and `--json`.
#[track_caller]
fn when(program: &Program, args: &[&str]) -> Value {
    let ended = program.run([&["when"], args, &["--json"]].concat()).expect(0);
    serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended}"))
}

#[test]
fn a_line_is_explained_with_its_next_times_and_the_change_of_the_clock() {
    let program = program();
    let spring = ["0 3 * * *", "--zone", "Europe/Kyiv", "--from", "2027-03-27T00:00:00Z", "--count", "2"];
    let page = when(&program, &spring);
    assert_eq!(page["schedule"], "0 3 * * * (Europe/Kyiv)");
    assert_eq!(page["words"], "at 03:00 every day");
    assert_eq!(page["config"], json!(["schedule = \"0 3 * * *\"", "zone = \"Europe/Kyiv\""]));
    assert_eq!(
        page["next"],
        json!([
            {"tick": "2027-03-27T01:00:00Z", "local": "2027-03-27 03:00:00 +02:00 (Europe/Kyiv)"},
            {"tick": "2027-03-28T01:00:00Z", "local": "2027-03-28 04:00:00 +03:00 (Europe/Kyiv)"},
        ])
    );
    let change = &page["offset_change"];
    assert_eq!(change["at"], "2027-03-28T01:00:00Z");
    assert_eq!((&change["before"], &change["after"]), (&json!("+02:00"), &json!("+03:00")));
    assert_eq!((&change["effect"], &change["times"]), (&json!("skipped"), &json!(1)));
    assert_eq!(change["around"][0]["tick"], "2027-03-27T01:00:00Z");
    assert_eq!(change["around"][1]["tick"], "2027-03-28T01:00:00Z", "right after the change");

    let skip = when(&program, &[&spring[..], &["--dst", "skip"]].concat());
    assert_eq!(skip["next"][1]["tick"], "2027-03-29T00:00:00Z", "the rule `skip` runs no skipped time");
    let autumn = ["30 3 * * *", "--zone", "Europe/Kyiv", "--from", "2027-10-30T12:00:00Z", "--count", "2"];
    assert_eq!(when(&program, &autumn)["offset_change"]["effect"], "repeated");
    program.run([&["when"], &autumn[..]].concat()).expect(0).tells(&[
        "at 03:30 every day",
        "2027-10-31T00:30:00Z",
        "the first time only",
    ]);
    program.run([&["when"], &autumn[..], &["--dst", "both"]].concat()).expect(0).tells(&["both times"]);

    let tokyo = when(&program, &["@hourly", "--zone", "Asia/Tokyo"]);
    assert_eq!(tokyo["offset_change"], Value::Null);
    assert_eq!(tokyo["next"].as_array().map(Vec::len), Some(5));
}

#[test]
fn the_lines_for_the_file_have_the_same_ticks() {
    let program = program();
    let from = ["--from", "2027-03-26T00:00:00Z", "--count", "8"];
    let schedules: [&[&str]; 7] = [
        &["0 3 * * *", "--zone", "Europe/Kyiv"],
        &["30 3 * * *", "--zone", "Europe/Kyiv", "--dst", "skip"],
        &["*/10 9-17 * * mon-fri"],
        &["0 0 3 L * ? 2027-2030"],
        &["@every 90s"],
        &["every 1h 30m"],
        &["at 2027-04-01T00:00:00Z"],
    ];
    for schedule in schedules {
        let page = when(&program, &[schedule, &from].concat());
        let lines: Vec<&str> =
            page["config"].as_array().expect("lines").iter().filter_map(Value::as_str).collect();
        let text = format!("[[job]]\nname = \"j\"\ncommand = [\"true\"]\n{}\n", lines.join("\n"));
        let config = program.write("quorate.toml", &text);
        let next = program
            .run([&["jobs", "next", "j", "--json", "--config", &config][..], &from].concat())
            .expect(0);
        let next: Value = serde_json::from_str(&next.stdout).expect("JSON");
        let ticks = |page: &Value| -> Vec<Value> {
            page["next"].as_array().expect("ticks").iter().map(|tick| tick["tick"].clone()).collect()
        };
        assert!(!ticks(&page).is_empty(), "{schedule:?}");
        assert_eq!(ticks(&page), ticks(&next), "{schedule:?}: {text}");
    }
    let delay = when(&program, &["delay 10m"]);
    assert_eq!((&delay["config"], &delay["next"]), (&json!(["delay = \"10m\""]), &json!([])));
}

#[test]
fn invalid_input_is_refused_with_the_fix() {
    let program = program();
    for (args, fix) in [
        (&["61 3 * * *"][..], "minute `61` is not within 0-59"),
        (&["0 3 * *"], "has 4 field(s)"),
        (&["0 0 30 2 *"], "never fires"),
        (&["0 3 * * *", "--zone", "Europe/Kyjiv"], "did you mean `Europe/Kyiv`?"),
        (&["0 3 * * *", "--dst", "quartz"], "use vixie, skip, first or both"),
        (&["every soon"], "write it like `every 90s`"),
        (&["0 3 * * *", "--from", "noon"], "write it like 2026-11-21T03:00:00Z"),
        (&["0 3 * * *", "--count", "0"], "1..=10000"),
    ] {
        program.run([&["when"], args].concat()).expect(2).says(&[fix]);
    }
    program.run(["when", "every 10s", "--dst", "skip"]).expect(78).says(&["--dst applies to cron lines"]);
    let hostile = program.run(["when", "\u{1b}[2J * * * *"]).expect(2);
    assert!(!hostile.stderr.contains('\u{1b}'), "{hostile}");
}

#[test]
fn a_crontab_is_imported_from_a_file_or_standard_input_and_no_file_is_replaced() {
    let program = program();
    let crontab = program.write("crontab", "0 3 * * * ./report\n@reboot ./warm-up\n");
    let output = program.file("jobs.toml").display().to_string();
    let args = ["import", "crontab", &crontab, "--zone", "Europe/Kyiv", "--output", &output];
    let reported =
        ["line 2: not translated", "1 job translated, in the zone Europe/Kyiv; 1 line not translated"];
    program.run(args).expect(1).says(&reported);
    let written = program.read("jobs.toml");
    assert!(
        written.contains("\nname = \"report\"\n") && written.contains("\n#   @reboot ./warm-up\n"),
        "{written}"
    );
    // The nodes may come from elsewhere. With them a daemon accepts the file.
    let check = ["run", "--check", "--nodes", "redis://a,redis://b,redis://c", "--config", &output];
    program.run(check).expect(0).tells(&["job report: 0 3 * * * (Europe/Kyiv)"]);

    assert!(written.contains("quorate init") && !written.contains("config/quorate.toml"), "{written}");

    let zoned = program.write("zoned", "CRON_TZ=Europe/Kyiv\n0 3 * * * ./a\n");
    let import = |zone: &str| program.run(["import", "crontab", &zoned, "--zone", zone]).expect(0);
    let ended = import("UTC").says(&["1 job translated, in the zone Europe/Kyiv; 0 lines"]);
    assert!(!ended.stderr.contains("UTC"), "{ended}");
    let zoned = program.write("zoned", "0 3 * * * ./a\nCRON_TZ=Europe/Kyiv\n0 3 * * * ./b\n");
    let both = program.run(["import", "crontab", &zoned, "--zone", "UTC"]).expect(0);
    both.says(&["2 jobs translated, in the zones Europe/Kyiv, UTC; 0 lines"]);

    program.run(args).expect(125).says(&["jobs.toml", "it must be a new file"]);
    assert_eq!(program.read("jobs.toml"), written);
    let missing = program.file("missing").display().to_string();
    program
        .run(["import", "crontab", &missing, "--zone", "UTC"])
        .expect(78)
        .says(&["cannot read the crontab"]);
    program.run(["import", "crontab", &crontab, "--zone", "Europe/Kiyv"]).expect(2).says(&["did you mean"]);
    program.run(["import", "crontab", &crontab, "--user", "root"]).expect(2).says(&["--system"]);

    let mut command = program.command(["import", "crontab", "-", "--zone", "UTC"]);
    command.stdin(std::fs::File::open(program.file("crontab")).expect("it was written"));
    program.start_command(command).wait(PATIENCE).expect(1).tells(&["name = \"report\""]);
}

#[test]
fn init_writes_a_file_that_passes_the_check_and_never_replaces_one() {
    let program = program();
    program.run(["init"]).expect(0).tells(&["quorate.toml: written", "then: quorate run --check\n"]);
    let first = program.read("quorate.toml");
    assert!(first.contains("\n[[job]]\n") && first.lines().count() <= 27, "it is short: {first}");
    program.run(["init", "--full", "full.toml"]).expect(0).tells(&["full.toml: written"]);
    let full = program.read("full.toml");
    assert!(full.contains("\n[[job]]\n") && full.matches("\n# ").count() > 100, "it is annotated: {full}");
    // They need no other file, not even those with the URLs that they name.
    for file in ["quorate.toml", "full.toml"] {
        let from = format!("group billing, lease of 10s, 3 nodes from {file}");
        let job = "job nightly-report: 0 3 * * * (Europe/Kyiv)";
        program.run(["run", "--check", "--config", file]).expect(0).tells(&[&from, job]);
    }

    program.write("quorate.toml", "mine");
    program.run(["init"]).expect(125).says(&["cannot write quorate.toml", "exists", "quorate init FILE"]);
    assert_eq!(program.read("quorate.toml"), "mine");
    // A link to a file that does not exist is not followed.
    std::os::unix::fs::symlink(program.file("elsewhere"), program.file("link")).expect("our own directory");
    program.run(["init", "link"]).expect(125).says(&["cannot write link", "exists"]);
    assert!(!program.file("elsewhere").exists());

    program
        .run(["init", "other.toml"])
        .expect(0)
        .tells(&["other.toml: written", "quorate run --check --config other.toml\n"]);
    assert_eq!(program.read("other.toml"), first);
    program
        .run(["init", "none/quorate.toml"])
        .expect(125)
        .says(&["none/quorate.toml", "create its directory"]);
    // A full device is reported. It is not a file that this program created, so it stays.
    program.run(["init", "/dev/full"]).expect(125).says(&["/dev/full", "exists"]);
}
