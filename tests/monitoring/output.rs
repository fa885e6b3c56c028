//! Tests of the output of runs: the lines that a daemon prints, the file of each run, and `quorate jobs logs`.

use quorate_tests::support::{JobBench, PATIENCE, until};
use rustix::process::Signal;
use serde_json::Value;

const JOBS: &str = r#"
output = { dir = "outputs", keep = 3 }
[[job]]
name = "noisy"
every = "500ms"
misfire = { rule = "skip" }
keep_output = "1KiB"
shell = "printf 'out\\tone \\033[2J\\n'; echo err >&2; printf last"
[[job]]
name = "slow"
schedule = "0 0 29 2 *"
shell = "echo begun; until test -e go; do sleep 0.05; done; echo over"
"#;

/// Returns the part of each line of a job's output after the time and the job.
fn printed<'a>(text: &'a str, job: &str) -> Vec<&'a str> {
    let head = format!("  {job} ");
    text.lines().filter_map(|line| line.split_once(&head)?.1.split_once(' ')).map(|(_, rest)| rest).collect()
}

#[test]
fn each_line_has_its_run_and_the_output_can_be_read_from_the_file_and_from_the_nodes() {
    let bench = JobBench::new(env!("CARGO_BIN_EXE_quorate-under-test"), JOBS);
    let daemon = bench.daemon();
    let out = until("the lines of a run", PATIENCE, || {
        Some(daemon.stdout()).filter(|out| printed(out, "noisy").len() >= 2)
    });
    assert_eq!(printed(&out, "noisy")[..2], ["stdout: out    one  [2J", "stdout: last"], "{out}");
    until("the lines of the other stream", PATIENCE, || {
        (printed(&daemon.stderr(), "noisy").first() == Some(&"stderr: err")).then_some(())
    });

    // The newest files stay.
    until("a fourth run", PATIENCE, || {
        (bench.json(&["history", "noisy"])["history"].as_array()?.len() > 3).then_some(())
    });
    let files = || std::fs::read_dir(bench.program.dir().join("outputs/noisy")).expect("a directory").count();
    assert!(files() <= 3, "{}", files());
    let shown = until("a run that has ended", PATIENCE, || {
        Some(bench.jobs(&["logs", "noisy"]).expect(0).stdout).filter(|text| text.contains(" end "))
    });
    assert!(shown.contains("Z stdout out    one  [2J\n") && shown.contains("Z stderr err\n"), "{shown}");
    let page = bench.json(&["logs", "noisy"]);
    assert_eq!((&page["source"], &page["job"]), (&"file".into(), &"noisy".into()), "{page}");

    // Elsewhere there is no file, and the history has the end of the output.
    let run = bench.json(&["history", "noisy"])["history"][0]["tick"].as_str().expect("a tick").to_owned();
    let list = bench.nodes.list();
    let other = bench.program.write("elsewhere.toml", "group = \"g\"\n");
    let elsewhere = |args: &[&str]| {
        bench.program.run([&["jobs", "logs", "--nodes", &list, "--config", &other], args].concat())
    };
    let page: Value =
        serde_json::from_str(&elsewhere(&["noisy", "--at", &run, "--json"]).expect(0).stdout).expect("JSON");
    assert_eq!((&page["source"], &page["run"]), (&"history".into(), &run.as_str().into()), "{page}");
    assert!(
        page["lines"].as_array().is_some_and(|lines| lines.iter().any(|line| line["text"] == "last")),
        "{page}"
    );
    for (args, why) in [
        (&["noisy", "--at", "2020-01-01T00:00:00Z"][..], "has no run of 2020-01-01T00:00:00Z"),
        (&["slow"], "no run of it has ended yet"),
        (&["other"], "no job is called \"other\""),
    ] {
        let ended = elsewhere(args).expect(1);
        assert!(ended.stderr.contains(why), "{ended}");
    }

    // A run that is active is followed to its end.
    bench.jobs(&["trigger", "slow"]).expect(0);
    until("the file of the active run", PATIENCE, || {
        bench.jobs(&["logs", "slow"]).stdout.contains(" stdout begun\n").then_some(())
    });
    let follower = bench.program.start(["jobs", "logs", "slow", "-f", "--config", &bench.config]);
    until("the first line", PATIENCE, || follower.stdout().contains(" stdout begun\n").then_some(()));
    bench.program.write("go", "");
    let ended = follower.wait(PATIENCE).expect(0);
    assert!(ended.stdout.contains(" stdout over\n"), "{ended}");
    until("the run's entry", PATIENCE, || {
        (bench.json(&["history", "slow"])["history"].as_array()?.len() == 1).then_some(())
    });
    assert!(elsewhere(&["slow"]).expect(1).stderr.contains("set keep_output for the job, or output.dir"));
    daemon.signal(Signal::TERM);
    daemon.wait(PATIENCE).expect(0);

    // In the format JSON, each line is a document.
    let mut command = bench.program.command(["run", "--config", &bench.config, "--log-format", "json"]);
    command.env("NO_COLOR", "1");
    let daemon = bench.program.start_command(command);
    let line = until("a line in JSON", PATIENCE, || daemon.stdout().lines().next().map(str::to_owned));
    let line: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
    assert_eq!(
        (&line["job"], &line["stream"], &line["attempt"]),
        (&"noisy".into(), &"stdout".into(), &1.into()),
        "{line}"
    );
    assert_eq!(line["message"], "out\tone \u{1b}[2J", "JSON loses nothing");
    assert!(line["run"].as_str().is_some_and(|run| run.ends_with('Z')), "{line}");
}

#[test]
fn background_processes_that_end_with_their_command_are_in_the_log_and_the_history() {
    let job = "[[job]]\nname = \"left\"\nevery = \"500ms\"\nshell = \"sleep 1000 & exit 0\"\n";
    let bench = JobBench::new(env!("CARGO_BIN_EXE_quorate-under-test"), job);
    let daemon = bench.daemon();
    let ended = "1 process that it left in the background was ended";
    daemon.until_it_says(ended);
    until("the run's entry", PATIENCE, || {
        let newest = bench.json(&["history", "left"])["history"].as_array()?.first()?.clone();
        (newest["outcome"] == "done" && newest["reason"] == ended).then_some(())
    });
    daemon.signal(Signal::TERM);
    daemon.wait(PATIENCE).expect(0);
}

/// On a full disk, a file is created, and no line can be written to it.
#[test]
fn the_history_completes_a_file_that_could_not_be_written() {
    let bench = JobBench::new(env!("CARGO_BIN_EXE_quorate-under-test"), JOBS);
    let daemon = bench.daemon();
    until("the lines of a run", PATIENCE, || (!printed(&daemon.stdout(), "noisy").is_empty()).then_some(()));
    let run = until("the end of a run", PATIENCE, || {
        let run = bench.json(&["history", "noisy"])["history"][0]["tick"].as_str()?.to_owned();
        Some(run)
    });
    daemon.signal(Signal::TERM);
    daemon.wait(PATIENCE).expect(0);
    let path = std::fs::read_dir(bench.program.dir().join("outputs/noisy")).expect("a directory");
    for file in path {
        std::fs::write(file.expect("a file").path(), "").expect("our own file");
    }
    let shown = bench.jobs(&["logs", "noisy", "--at", &run]).expect(0);
    let shown = shown.says(&["the file is incomplete", "the history has this end of the output"]);
    assert!(shown.stdout.lines().any(|line| line == "last"), "{shown}");
    let page = bench.json(&["logs", "noisy", "--at", &run]);
    assert_eq!((&page["source"], &page["lines"][0]["stream"]), (&"file".into(), &"note".into()), "{page}");
}

/// A job that is interrupted on one machine, and ends on another. Each machine has its own directory of output.
#[test]
fn an_interrupted_run_is_followed_to_its_end_elsewhere_and_a_newer_run_is_reported() {
    let bench = JobBench::new(env!("CARGO_BIN_EXE_quorate-under-test"), JOBS);
    let text = bench.program.read("quorate.toml").replace("\"outputs\"", "\"elsewhere\"");
    let elsewhere = bench.program.write("elsewhere.toml", &text);
    let killed = bench.daemon();
    killed.until_it_says("elected");
    until("the trigger", PATIENCE, || (bench.jobs(&["trigger", "slow"]).code == Some(0)).then_some(()));
    until("the file of the run", PATIENCE, || {
        bench.jobs(&["logs", "slow"]).stdout.contains(" stdout begun\n").then_some(())
    });
    let shown = bench.jobs(&["logs", "slow"]).expect(0);
    let run = bench.json(&["logs", "slow"])["run"].as_str().expect("a run").to_owned();
    let head = format!("quorate: the run {run}, from the file ");
    let shown = shown.says(&[&head, "/outputs/slow/", " on this machine"]);
    assert!(!shown.stderr.contains("newer run"), "{shown}");
    killed.kill();

    // The run starts again on the other machine, and the file on this one gets no further line.
    let other = bench.program.start(["run", "--config", &elsewhere]);
    let follower = bench.program.start(["jobs", "logs", "slow", "-f", "--config", &bench.config]);
    let absent = [
        "jobs",
        "logs",
        "slow",
        "-f",
        "--config",
        &bench.program.write("no-files.toml", &without_files(&text)),
    ];
    until("the other machine's file", PATIENCE, || {
        bench
            .program
            .run(["jobs", "logs", "slow", "--config", &elsewhere])
            .stdout
            .contains("begun")
            .then_some(())
    });
    let absent = bench.program.start(absent);
    std::thread::sleep(std::time::Duration::from_secs(1));
    bench.program.write("go", "");
    let ended = follower.wait(PATIENCE).expect(0);
    let worker = format!("-{}", other.pid());
    assert!(ended.stderr.contains(&format!("no further output comes: {run} done in ")), "{ended}");
    assert!(ended.stderr.contains(&worker) && !ended.stdout.contains("over"), "{ended}");
    // Without a file, the same run is waited for, and no output of it is kept.
    absent.wait(PATIENCE).expect(1).says(&["no output of the run", &run, &worker]);

    bench.jobs(&["trigger", "slow"]).expect(0);
    let newer = until("the end of a newer run", PATIENCE, || {
        let history = bench.json(&["history", "slow"]);
        let newest = history["history"][0]["tick"].as_str()?.to_owned();
        (newest != run).then_some(newest)
    });
    let shown = bench.jobs(&["logs", "slow"]).expect(0);
    assert!(shown.stderr.contains(&head), "{shown}");
    assert!(
        shown.stderr.contains(&format!("a newer run {newer}, on ")) && shown.stderr.contains(&worker),
        "{shown}"
    );
    let chosen = bench.jobs(&["logs", "slow", "--at", &run]).expect(0);
    assert!(!chosen.stderr.contains("newer run"), "{chosen}");
    other.signal(Signal::TERM);
    other.wait(PATIENCE).expect(0);

    // Without nodes, the file is shown, and it is not known whether it is the newest one.
    bench.nodes.iter().for_each(quorate_testkit::redis::RedisServer::pause);
    let shown = bench.jobs(&["logs", "slow"]).expect(0);
    bench.nodes.iter().for_each(quorate_testkit::redis::RedisServer::resume);
    assert!(shown.stderr.contains("there may be a newer run on another machine"), "{shown}");
    assert!(shown.stdout.contains(" stdout begun\n"), "{shown}");
}

/// Returns the configuration without the files of runs.
fn without_files(text: &str) -> String {
    text.lines().filter(|line| !line.starts_with("output = ")).map(|line| format!("{line}\n")).collect()
}
