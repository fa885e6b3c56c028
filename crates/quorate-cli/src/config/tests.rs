use super::*;
use quorate::{
    internals::JobRules,
    quorum::QuorumConfig,
    scheduler::{Concurrency, Delivery, Dst, Labels, Misfire, Overlap, Placement, Retry},
};
use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

const NODES: &str = "nodes = [\"redis://a\", \"redis://b\", \"redis://c\"]\n";

/// Loads a configuration. `files` replaces the file system: it has the path and the text of each file. A file
/// whose text is `unreadable` cannot be read.
fn load_with(flags: &Flags, env: &[(&str, &str)], files: &[(&str, &str)]) -> Result<Config, ConfigError> {
    let read = |path: &Path| {
        let found = files.iter().find(|(name, _)| Path::new(name) == path);
        match found {
            Some((_, "unreadable")) => Err(io::ErrorKind::PermissionDenied.into()),
            Some((_, text)) => Ok((*text).to_owned()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    };
    let env: BTreeMap<_, _> =
        env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Config::load(flags, &Environment { env, read: &read, is_own: &|_| true, host: "oak".to_owned(), pid: 7 })
}

fn load(text: &str) -> Result<Config, ConfigError> {
    load_with(&Flags::default(), &[("QUORATE_CONFIG", "/q.toml")], &[("/q.toml", text)])
}

#[track_caller]
fn error_of(text: &str) -> String {
    let error = match load(text) {
        Ok(config) => panic!("{text}\nwas read as {config:?}"),
        Err(error) => error.to_string(),
    };
    assert!(!error.contains("hush"), "a password shows: {error}");
    error
}

fn job(lines: &str) -> String {
    format!("{NODES}[[job]]\nname = \"n\"\ncommand = [\"true\"]\n{lines}\n")
}

#[test]
fn nodes_alone_are_a_configuration_with_the_defaults_of_the_library() {
    let config = load(NODES).unwrap();
    let names: Vec<_> = config.nodes.iter().map(NodeSpec::name).collect();
    assert_eq!(names, ["redis://a:6379".into(), "redis://b:6379".into(), Arc::<str>::from("redis://c:6379")]);
    assert_eq!(config.settings, QuorumConfig { worker: "oak-7".into(), ..QuorumConfig::default() });
    assert_eq!(config.lease.ttl, Duration::from_secs(10));
    assert_eq!(config.lease.step_down_grace, Duration::from_secs(2));
    assert_eq!(&*config.prefix, "quorate:");
    assert_eq!(config.nodes_from, NodesFrom::File("/q.toml".into()));
    assert!(config.group_with_jobs().unwrap_err().to_string().starts_with("/q.toml: `group` is missing"));
}

#[test]
fn every_key_is_read() {
    let text = r#"
        nodes = ["rediss://me:hush@a", { url = "redis://b/1", password_file = "secret" }, "file:///c"]
        group = "billing"
        max_running = 3
        prefix = "shop:"
        worker = "w1"
        node_timeout = "50ms"
        ask = "all"
        max_ttl = "20s"
        drift_rate = 0.02
        clock_step_allowance = "100ms"
        max_clock_offset = "2s"
        fence_retention = "2 days"
        ledger_retention = "3 days"
        durable = true
        trust_new_nodes = true
        lease = { ttl = "5s", step_down_grace = "500ms" }

        [[job]]
        name = "nightly"
        schedule = "0 3 * * *"
        zone = "Europe/Kyiv"
        command = ["./report.sh", "--all"]
        cwd = "jobs"
        env = { TOKEN = "hush" }
        misfire = { rule = "run-all", within = "90s" }
        delivery = "at-most-once"
        timeout = "1h 30m"
        dst = "both"
        ok_exit_codes = [3, 0, 3]
        keep_output = "2KiB"
        background = "leave"
        jitter = "5m"
        overlap = "cancel-old"
        retries = { attempts = 4, backoff = "2s", max_backoff = "9s" }
        runs_on = { labels = ["eu"] }
        concurrency = { key = "database", limit = 2 }
        priority = -2
        history = 7
        pause_after_failures = 5

        [[job]]
        name = "often"
        every = "10s"
        command = ["true"]
        misfire = { rule = "skip" }

        [[job]]
        name = "after"
        delay = "30s"
        shell = "true | false"

        [[job]]
        name = "once"
        at = "2027-01-01T00:00:00+02:00"
        command = ["true"]
    "#;
    let config =
        load_with(&Flags::default(), &[("QUORATE_CONFIG", "/etc/x/q.toml")], &[("/etc/x/q.toml", text)])
            .unwrap();
    let password_file = Some("/etc/x/secret".into());
    assert_eq!(config.nodes[1], NodeSpec::parse("redis://b/1", password_file).unwrap());
    assert_eq!(config.nodes[2], NodeSpec::File { dir: "/c".into() });
    assert_eq!(&*config.prefix, "shop:");
    let settings = QuorumConfig {
        worker: "w1".into(),
        node_timeout: Duration::from_millis(50),
        ask_all_nodes: true,
        max_ttl: Duration::from_secs(20),
        drift_rate: 0.02,
        clock_step_allowance: Duration::from_millis(100),
        max_clock_offset: Duration::from_secs(2),
        fence_retention: Duration::from_secs(2 * 24 * 3600),
        ledger_retention: Duration::from_secs(3 * 24 * 3600),
        durable: true,
        trust_new_nodes: true,
        ..QuorumConfig::default()
    };
    assert_eq!(config.settings, settings);
    let lease = LeaseConfig { ttl: Duration::from_secs(5), step_down_grace: Duration::from_millis(500) };
    assert_eq!(config.lease, lease);

    let (group, jobs) = config.group_with_jobs().unwrap();
    assert_eq!(&**group, "billing");
    let cron = quorate::scheduler::Cron::parse("0 3 * * *").unwrap().zone("Europe/Kyiv").unwrap();
    let cron = cron.dst(Dst::Both);
    let nightly = JobConfig {
        name: "nightly".into(),
        schedule: cron.into(),
        command: vec!["./report.sh".to_owned(), "--all".to_owned()],
        http: None,
        cwd: Some("/etc/x/jobs".into()),
        env: BTreeMap::from([("TOKEN".to_owned(), Secret("hush".to_owned()))]),
        ok_exit_codes: vec![0, 3],
        background: Background::Leave,
        ping: None,
        rules: JobRules {
            misfire: Some(Misfire::run_all(Duration::from_secs(90))),
            delivery: Delivery::AtMostOnce,
            timeout: Some(Duration::from_secs(5400)),
            keep_output: 2048,
            jitter: Duration::from_secs(300),
            overlap: Overlap::CancelOld,
            retries: Retry::new(4).backoff(Duration::from_secs(2), Duration::from_secs(9)),
            placement: Placement::AnyWorker,
            labels: Labels::new(["eu"]),
            concurrency: Some(Concurrency { key: "database".into(), limit: 2 }),
            priority: -2,
            expect_within: None,
            pause_after_failures: Some(5),
            history: 7,
        },
    };
    assert_eq!(jobs[0], nightly);
    assert_eq!(config.max_running, Some(3));
    assert_eq!(jobs[2].schedule, quorate::scheduler::Schedule::delay(Duration::from_secs(30)).unwrap());
    assert_eq!(jobs[2].command, ["/bin/sh", "-c", "true | false"]);
    let new_year = quorate::env::WallTime::from_micros(1_798_754_400_000_000);
    assert_eq!(jobs[3].schedule, quorate::scheduler::Schedule::at(new_year));
    assert_eq!(
        (jobs[3].rules.overlap, jobs[3].rules.retries, jobs[3].rules.placement),
        (Overlap::Queue, Retry::NONE, Placement::Leader)
    );
    assert_eq!(
        (&*jobs[3].ok_exit_codes, jobs[3].rules.keep_output, jobs[3].rules.history),
        (&[0][..], 0, 100)
    );
    assert_eq!(jobs[1].schedule, quorate::scheduler::Schedule::every(Duration::from_secs(10)).unwrap());
    assert_eq!(jobs[1].rules.misfire, Some(Misfire::Skip));
    assert_eq!(jobs[1].rules.delivery, Delivery::AtLeastOnce);
    assert!(!format!("{config:#?}").contains("hush"), "{config:#?}");
}

#[test]
fn errors_name_line_key_value_and_fix() {
    let table: [(String, &[&str]); 77] = [
        // Unknown or missing keys, and values of the wrong type.
        ("nodez = []".into(), &["/q.toml:1: unknown key `nodez`; did you mean `nodes`?"]),
        (
            format!("{NODES}colour = 1"),
            &["/q.toml:2: unknown key `colour`; the keys here are nodes, tls, group, "],
        ),
        (format!("{NODES}lease = {{ tll = \"1s\" }}"), &[":2: unknown key `tll`; did you mean `ttl`?"]),
        (format!("{NODES}lease = 5"), &[":2: lease: ", "write it like { ttl = \"10s\""]),
        (job("every = \"1s\"\nmisfires = 3"), &[":6: unknown key `misfires`; did you mean `misfire`?"]),
        (format!("{NODES}[[jobs]]\nname = \"a\""), &[":2: unknown key `jobs`; did you mean `job`?"]),
        (format!("{NODES}[job]\nname = \"a\""), &[":2: ", "[[job]]"]),
        (
            format!("{NODES}[[job]]\ncommand = [\"a\"]"),
            &[":2: the key `name` is missing; give the job a name"],
        ),
        (
            format!("{NODES}[[job]]\nname = \"a\"\nevery = \"1s\""),
            &[":3: job \"a\" has nothing to run; add command = [", ", shell = "],
        ),
        (format!("{NODES}max_running = 0"), &[":2: max_running is 0; give it 1 or more"]),
        (format!("{NODES}ask = \"some\""), &[":2: ask `some` is unknown; "]),
        (format!("{NODES}durable = \"yes\""), &[":2: durable: ", "expected a boolean"]),
        (format!("{NODES}group = \"a\"\ngroup = \"b\""), &[":3: duplicate key `group`; keep one"]),
        (format!("{NODES}group = \"a"), &[":2: "]),
        // Invalid durations.
        (format!("{NODES}node_timeout = 100"), &[":2: node_timeout: ", "`100`", "write it like \"500ms\""]),
        (
            format!("{NODES}max_ttl = \"10 parsecs\""),
            &[":2: max_ttl: ", "10 parsecs", "write it like \"500ms\""],
        ),
        (format!("{NODES}lease = {{ ttl = \"\" }}"), &[":2: ttl: ", "write it like \"500ms\""]),
        // Values that are too large or too small, or that contradict another setting.
        (format!("{NODES}lease = {{ ttl = \"40s\" }}"), &[":2: ttl is 40s, above max_ttl 30s; shorten ttl"]),
        (format!("{NODES}lease = {{ ttl = \"0s\" }}"), &[":2: ttl is 0ns", "lengthen ttl"]),
        (format!("{NODES}lease = {{ ttl = \"200ms\" }}"), &[":2: ttl is 200ms", "node_timeout 100ms"]),
        (
            format!("{NODES}\n[lease]\nttl = \"10s\"\nstep_down_grace = \"8s\""),
            &[":4: ttl is 10s", "step_down_grace 8s"],
        ),
        (
            format!("{NODES}node_timeout = \"20s\""),
            &[":2: max_ttl is 30s, shorter than three times node_timeout 20s"],
        ),
        (format!("{NODES}drift_rate = 3"), &[":2: drift_rate is 3, not between 0 and 0.5; give it 0 to 0.5"]),
        (format!("{NODES}worker = \"\""), &[":2: worker is \"\""]),
        // Invalid nodes.
        ("nodes = []".into(), &[":1: nodes is empty"]),
        ("nodes = \"redis://:hush@a\"".into(), &[":1: nodes: ", "write a list"]),
        ("nodes = \"redis://me:hush\"".into(), &[":1: nodes: ", "write a list"]),
        (
            "nodes = [\n\"redis://a\",\n\"redis://:hush@b:x\"]".into(),
            &[":3: node `redis://***@b:x` is not a URL"],
        ),
        ("nodes = [\"a:6379\"]".into(), &[":1: node `a:6379` has no scheme"]),
        (
            "nodes = [\"redis://a\", \"redis://me:hush@A:6379/0\"]".into(),
            &[", which names redis://a:6379 twice"],
        ),
        ("nodes = [{ uri = \"redis://:hush@a\" }]".into(), &[":1: unknown key `uri`; did you mean `url`?"]),
        (
            "nodes = [{ password_file = \"a\" }]".into(),
            &[":1: the key `url` is missing; give the node's address"],
        ),
        // Invalid names.
        (format!("{NODES}group = \"a{{b}}\""), &[":2: the group is \"a{b}\", which holds a brace"]),
        (format!("{NODES}group = \"\""), &[":2: the group is \"\", which is empty; choose another name"]),
        (
            format!("{NODES}group = \"a\\nb\""),
            &[":2: the group is \"a\\nb\", which holds a control character"],
        ),
        (
            format!("{NODES}group = \"{}\"", "g".repeat(513)),
            &[":2: the group is \"ggg", "is longer than 512 bytes"],
        ),
        (format!("{NODES}prefix = \"a{{\""), &[":2: prefix \"a{\" holds a brace"]),
        // Invalid jobs.
        (
            job("schedule = \"61 * * * *\""),
            &[":5: job \"n\" has a schedule that cannot be used: in `61 * * * *`: minute `61`"],
        ),
        (
            job("schedule = \"0 3 * * *\"\nzone = \"Europe/Kyjiv\""),
            &[":6: job \"n\" has a zone", "did you mean `Europe/Kyiv`?"],
        ),
        (job("every = \"0s\""), &[":5: job \"n\" has an `every` that cannot be used: the period 0ns"]),
        (job("every = \"1s\"\nschedule = \"@daily\""), &[":6: job \"n\" has a `schedule` and an `every`"]),
        (job(""), &[":3: job \"n\" has no schedule; add schedule"]),
        (
            job("every = \"1s\"\nmisfire = { rule = \"run-once\", within = \"5s\" }"),
            &[":6: job \"n\" has a misfire window (within) of 5s, shorter than the lease's ttl 10s"],
        ),
        (
            job("every = \"1s\"\nmisfire = { rule = \"runonce\" }"),
            &[":6: rule `runonce` is unknown; did you mean `run-once`?"],
        ),
        (
            job("every = \"1s\"\ndelivery = \"exactly-once\""),
            &[":6: delivery `exactly-once` is unknown; use at-most-once, at-least-once"],
        ),
        (job("every = \"1s\"\nshell = \"x\""), &[":6: job \"n\" has a `command` and a `shell` line"]),
        (job("every = \"1s\"\nshell = 1"), &[":6: shell: ", "write a line for the shell"]),
        (
            job("every = \"1s\"\nok_exit_codes = [0, 256]"),
            &[":6: job \"n\" has the exit code 256 in ok_exit_codes", "give 0 to 255"],
        ),
        (job("every = \"1s\"\nok_exit_codes = []"), &[":6: job \"n\" has empty ok_exit_codes"]),
        (job("every = \"1s\"\nok_exit_codes = 3"), &[":6: ok_exit_codes: ", "like [0, 3]"]),
        (
            job("every = \"1s\"\nkeep_output = \"1GiB\""),
            &[":6: job \"n\" has keep_output \"1GiB\"", "write it like \"2KiB\""],
        ),
        (job("every = \"1s\"\nkeep_output = \"8KiB\""), &["too large", "at most \"4KiB\""]),
        (job("every = \"1s\"\nkeep_output = \"0\""), &["keeps nothing"]),
        (
            job("every = \"1s\"\nenv = { QUORATE_TICK = \"x\" }"),
            &[":3: job \"n\" has an `env` name QUORATE_TICK that quorate sets"],
        ),
        (job("every = \"1s\"\ndelay = \"1s\""), &[":5: job \"n\" has an `every` and a `delay`; keep one"]),
        (job("delay = \"1us\""), &[":5: job \"n\" has a `delay` that cannot be used: "]),
        (
            job("at = \"tomorrow\""),
            &[":5: job \"n\" has an `at` \"tomorrow\" that is not a time: ", "2026-11-21T03:00:00Z"],
        ),
        (job("at = 2027-01-01T00:00:00Z"), &[":5: at: ", "write a time in quotes"]),
        (
            job("schedule = \"@daily\"\ndst = \"frist\""),
            &[":6: job \"n\" has dst `frist`, which is unknown; did you mean `first`?"],
        ),
        (job("every = \"1s\"\ndst = \"both\""), &[":6: job \"n\" has `every` and a `dst`", "remove the dst"]),
        (
            job("schedule = \"0 3 * * *\"\nexcept = [\"2027-12-25\", \"26.12.2027\"]"),
            &[
                ":6: job \"n\" has days that cannot be used: `except` \"26.12.2027\" is not a day",
                "write it like 2027-12-25",
            ],
        ),
        (
            job("every = \"1h\"\nfrom = \"2027-02-01\"\nuntil = \"2027-01-01\""),
            &[":7: job \"n\"", "`until` \"2027-01-01\" is before `from` 2027-02-01"],
        ),
        (job("delay = \"1s\"\nexcept = [\"2027-12-25\"]"), &[":6: job \"n\"", "a delay has no days"]),
        (job("delay = \"1s\"\nzone = \"UTC\""), &[":6: job \"n\" has `delay` and a `zone`"]),
        (
            job("every = \"1s\"\njitter = \"2s\""),
            &[":6: job \"n\" has a jitter of 2s, longer than its period 1s"],
        ),
        (
            job("schedule = \"* * * * *\"\njitter = \"2m\""),
            &[":3: jitter of the job \"n\" is 120s, over ticks 60s apart; make it no longer"],
        ),
        (
            job("every = \"1ms\"\nmisfire = { rule = \"run-all\", within = \"1h\" }"),
            &[":3: misfire window of the job \"n\" is 3600s, in which it is due so often"],
        ),
        (
            job("every = \"1s\"\noverlap = \"cancel\""),
            &[":6: overlap `cancel` is unknown; use skip, queue, cancel-old, allow"],
        ),
        (
            job("every = \"1s\"\nruns_on = \"all\""),
            &[
                ":6: job \"n\" has runs_on \"all\", which is unknown; use \"leader\", \"any\", \"every\" or { labels = ",
            ],
        ),
        (
            job("every = \"1s\"\nretries = { attempts = 0 }"),
            &[":6: job \"n\" has retries.attempts = 0; give it 1 to 100"],
        ),
        (job("every = \"1s\"\nretries = 3"), &[":6: retries: ", "write it like { attempts = 3"]),
        (
            job("every = \"1s\"\nretries = { backoff = \"1s\" }"),
            &[":6: the key `attempts` is missing; give the number"],
        ),
        (
            job("every = \"1s\"\nretries = { attempts = 3, backoff = \"2m\" }"),
            &[":6: job \"n\" has a first wait (backoff) of 120s, longer than max_backoff 60s"],
        ),
        (job("every = \"1s\"\npriority = 3000000000"), &[":6: job \"n\" has priority = 3000000000; give it"]),
        (job("every = \"1s\"\nhistory = 0"), &[":6: job \"n\" has history = 0; give it 1 to 10000"]),
        (job("every = \"1s\"\ntimeout = \"0s\""), &[":6: job \"n\" has a timeout of 0s"]),
        (
            job("every = \"1s\"\n[[job]]\nname = \"n\"\ncommand = [\"x\"]\nevery = \"1s\""),
            &[":7: job \"n\" has the same name as a job above"],
        ),
    ];
    for (text, parts) in table {
        let error = error_of(&text);
        for part in parts {
            assert!(error.contains(part), "{text}\ngave: {error}\nwithout: {part}");
        }
    }
}

#[test]
fn an_empty_command_is_refused() {
    for command in ["[]", "[\"\"]", "[\" \", \"a\"]"] {
        let error = error_of(&format!("{NODES}[[job]]\nname = \"n\"\nevery = \"1s\"\ncommand = {command}"));
        assert!(error.contains(":5: job \"n\" has an empty command; give program"), "{error}");
    }
    let error = error_of(&format!("{NODES}[[job]]\nname = \"n\"\nevery = \"1s\"\ncommand = \"./a --b\""));
    assert!(error.contains(":5: command: ") && error.contains("[\"./report.sh\", \"--all\"]"), "{error}");
}

#[test]
fn nodes_come_from_flag_then_environment_then_file() {
    let flags = Flags { nodes: Secret(vec!["redis://f1, redis://f2".to_owned()]), ..Flags::default() };
    let env = [("QUORATE_NODES", "redis://e1 redis://e2"), ("QUORATE_CONFIG", "/q.toml")];
    let files = [("/q.toml", "nodes = [\"redis://t\"]\nprefix = \"p:\"")];
    let first = |config: &Config| config.nodes[0].name();

    let config = load_with(&flags, &env, &files).unwrap();
    assert_eq!((&*first(&config), &config.nodes_from), ("redis://f1:6379", &NodesFrom::Flag));
    assert_eq!(&*config.prefix, "p:", "the other keys of the file apply");
    let config = load_with(&Flags::default(), &env, &files).unwrap();
    assert_eq!((&*first(&config), &config.nodes_from), ("redis://e1:6379", &NodesFrom::Variable));
    let config = load_with(&Flags::default(), &env[1..], &files).unwrap();
    assert_eq!(&*first(&config), "redis://t:6379");
    let prefixed = Flags { prefix: Some(String::new()), ..Flags::default() };
    assert_eq!(&*load_with(&prefixed, &env, &files).unwrap().prefix, "", "an empty prefix is a prefix");

    let twice = Flags { nodes: Secret(vec!["redis://a,redis://a:6379".to_owned()]), ..Flags::default() };
    let error = load_with(&twice, &[], &[]).unwrap_err().to_string();
    assert!(
        error.starts_with("--nodes: nodes is [") && error.contains("which names redis://a:6379 twice"),
        "{error}"
    );
    assert!(!format!("{flags:?}").contains("f1"), "flags may hold passwords");
}

#[test]
fn a_bad_list_is_named_without_its_passwords() {
    for list in ["redis://:hush@a:x", "redis://:hush", "redis://:hush,hush@a", "redis://me:hush@a,b"] {
        let error = load_with(&Flags::default(), &[("QUORATE_NODES", list)], &[]).unwrap_err().to_string();
        assert!(error.starts_with("QUORATE_NODES: node `"), "{error}");
        assert!(!error.contains("hush"), "{error}");
    }
    let error = load_with(&Flags::default(), &[("QUORATE_NODES", " , ")], &[]).unwrap_err().to_string();
    assert!(error.starts_with("QUORATE_NODES is empty; list the nodes"), "{error}");
}

#[test]
fn without_nodes_all_ways_are_named() {
    let error = load_with(&Flags::default(), &[("HOME", "/home/me")], &[]).unwrap_err().to_string();
    for way in [
        "--nodes",
        "QUORATE_NODES=",
        "first of ./quorate.toml, /home/me/.config/quorate/quorate.toml",
        "/etc/quorate/quorate.toml",
        "--config",
        "QUORATE_CONFIG",
        "--local",
    ] {
        assert!(error.contains(way), "{way} is missing in: {error}");
    }
    let error = error_of("group = \"a\"");
    assert!(error.contains("nodes = [\"redis://…\", …] in /q.toml"), "{error}");
    assert_eq!(ConfigError::EXIT, 78);
}

#[test]
fn an_unknown_variable_is_an_error() {
    let load = |name| load_with(&Flags::default(), &[("QUORATE_NODES", "redis://a"), (name, "x")], &[]);
    let error_of = |name| load(name).unwrap_err().to_string();
    assert_eq!(
        error_of("QUORATE_NODE"),
        "unknown environment variable QUORATE_NODE; did you mean QUORATE_NODES?"
    );
    assert!(
        error_of("QUORATE_COLOUR_OF_LOGS")
            .contains("known are QUORATE_NODES, QUORATE_CONFIG, QUORATE_CA_FILE")
    );
    for inherited in ["QUORATE_RESOURCE", "QUORATE_FENCING_TOKEN", "QUORATEX", "OTHER"] {
        assert!(load(inherited).is_ok(), "{inherited}");
    }
}

#[test]
fn a_file_of_another_user_in_the_working_directory_is_not_read_by_itself() {
    let read = |path: &Path| match path.to_str() {
        Some("./quorate.toml" | "/etc/quorate/quorate.toml") => Ok(NODES.to_owned()),
        _ => Err(io::ErrorKind::NotFound.into()),
    };
    let (env, host) = (BTreeMap::new(), "oak".to_owned());
    let environment = Environment { env, read: &read, is_own: &|_| false, host, pid: 7 };
    let error = Config::load(&Flags::default(), &environment).unwrap_err().to_string();
    assert!(error.starts_with("./quorate.toml: belongs to another user"), "{error}");
    let named = Flags { config: Some("./quorate.toml".into()), ..Flags::default() };
    assert!(Config::load(&named, &environment).is_ok());
}

#[test]
fn the_workers_of_a_job_are_read() {
    for (text, placement, labels) in [
        ("\"leader\"", Placement::Leader, vec![]),
        ("\"any\"", Placement::AnyWorker, vec![]),
        ("\"every\"", Placement::EveryWorker, vec![]),
        ("{ labels = [\"eu\"] }", Placement::AnyWorker, vec!["eu"]),
        ("{ labels = [\"eu\"], every = true }", Placement::EveryWorker, vec!["eu"]),
    ] {
        let config = load(&job(&format!("every = \"1s\"\nruns_on = {text}"))).unwrap();
        let job = &config.jobs[0];
        assert_eq!((job.rules.placement, &job.rules.labels), (placement, &Labels::new(labels)));
        let rules = quorate::Job::named("n", job.schedule.clone(), "h").with_rules(job.rules.clone()).rules();
        assert!(rules.contains(&format!("on {placement}")), "{text}: {rules}");
    }
}

#[test]
fn the_names_of_other_tools_for_a_schedule_and_its_zone_are_read() {
    let config = load(&job("cron = \"0 3 * * *\"\ntimezone = \"Europe/Berlin\"")).unwrap();
    let same = load(&job("schedule = \"0 3 * * *\"\nzone = \"Europe/Berlin\"")).unwrap();
    assert_eq!(format!("{:?}", config.jobs), format!("{:?}", same.jobs));
    assert!(error_of(&job("cron = \"0 3 * * *\"\nschedule = \"0 4 * * *\"")).contains("duplicate field"));
}

#[test]
fn the_file_is_looked_for_in_order() {
    let all = [
        ("/flag.toml", "nodes = [\"redis://flag\"]"),
        ("/variable.toml", "nodes = [\"redis://variable\"]"),
        ("/xdg/quorate/quorate.toml", "nodes = [\"redis://xdg\"]"),
        ("/home/me/.config/quorate/quorate.toml", "nodes = [\"redis://home\"]"),
        ("/etc/quorate/quorate.toml", "nodes = [\"redis://system\"]"),
    ];
    let flag = Flags { config: Some("/flag.toml".into()), ..Flags::default() };
    let env = [("QUORATE_CONFIG", "/variable.toml"), ("XDG_CONFIG_HOME", "/xdg"), ("HOME", "/home/me")];
    let found = |flags: &Flags, env: &[(&str, &str)], files: &[(&str, &str)]| {
        load_with(flags, env, files)
            .map(|config| config.nodes[0].to_string())
            .map_err(|error| error.to_string())
    };
    let none = Flags::default();
    assert_eq!(found(&flag, &env, &all).unwrap(), "redis://flag:6379");
    assert_eq!(found(&none, &env, &all).unwrap(), "redis://variable:6379");
    assert_eq!(found(&none, &env[1..], &all).unwrap(), "redis://xdg:6379");
    assert_eq!(found(&none, &env[2..], &all).unwrap(), "redis://home:6379");
    assert_eq!(found(&none, &[("XDG_CONFIG_HOME", "relative"), env[2]], &all).unwrap(), "redis://home:6379");
    assert_eq!(found(&none, &[], &all).unwrap(), "redis://system:6379");
    assert_eq!(found(&none, &env[1..], &all[4..]).unwrap(), "redis://system:6379");

    let here = [&[("./quorate.toml", "nodes = [\"redis://here\"]")], &all[2..]].concat();
    assert_eq!(found(&none, &env[1..], &here).unwrap(), "redis://here:6379");
    assert_eq!(found(&none, &env, &[&here[..], &all[1..2]].concat()).unwrap(), "redis://variable:6379");

    // A named file that does not exist, or that cannot be read, is an error.
    assert!(
        found(&flag, &env, &all[1..]).unwrap_err().contains("/flag.toml: cannot be read (named by --config)")
    );
    assert!(found(&none, &env, &[]).unwrap_err().contains("named by QUORATE_CONFIG"));
    let unreadable = [("/xdg/quorate/quorate.toml", "unreadable"), all[4]];
    assert!(
        found(&none, &env[1..], &unreadable)
            .unwrap_err()
            .starts_with("/xdg/quorate/quorate.toml: cannot be read")
    );
}

#[test]
fn local_is_one_file_node_in_the_users_state_directory() {
    let local = Flags { local: true, ..Flags::default() };
    let dir = |env: &[(&str, &str)]| load_with(&local, env, &[]).map(|config| config.nodes);
    let file = |dir: &str| vec![NodeSpec::File { dir: dir.into() }];
    assert_eq!(dir(&[("HOME", "/home/me")]).unwrap(), file("/home/me/.local/state/quorate/node"));
    assert_eq!(dir(&[("HOME", "/h"), ("XDG_STATE_HOME", "/s")]).unwrap(), file("/s/quorate/node"));
    assert_eq!(
        dir(&[("HOME", "/h"), ("QUORATE_NODES", "redis://a")]).unwrap(),
        file("/h/.local/state/quorate/node")
    );
    assert!(dir(&[]).unwrap_err().to_string().contains("set HOME"));
    let both = Flags { nodes: Secret(vec!["redis://a".to_owned()]), ..local.clone() };
    assert!(load_with(&both, &[], &[]).unwrap_err().to_string().contains("exclude each other"));
}

#[test]
fn files_of_tls_come_from_the_node_the_flag_the_environment_and_the_file_in_this_order() {
    let text = format!("{NODES}tls = {{ ca_file = \"ca.pem\", cert_file = \"/c.pem\", key_file = \"k\" }}");
    let files = [("/etc/x/q.toml", &*text)];
    let at = ("QUORATE_CONFIG", "/etc/x/q.toml");
    let client = |cert: &str, key: &str| Some((PathBuf::from(cert), PathBuf::from(key)));
    let tls = |flags: &Flags, env: &[(&str, &str)]| {
        let env: Vec<_> = [at].into_iter().chain(env.iter().copied()).collect();
        load_with(flags, &env, &files)
            .map(|config| (config.tls.ca_file.unwrap_or_default(), config.tls.client))
    };
    let none = Flags::default();
    let file = tls(&none, &[]).unwrap();
    assert_eq!(file, ("/etc/x/ca.pem".into(), client("/c.pem", "/etc/x/k")));
    // The certificate and its key come from the same source. A source that names only one of them is not
    // combined with another.
    let env = [("QUORATE_CERT_FILE", "e.pem"), ("QUORATE_KEY_FILE", "e.key")];
    assert_eq!(tls(&none, &env).unwrap(), ("/etc/x/ca.pem".into(), client("e.pem", "e.key")));
    let names = TlsNames { ca_file: Some("f.pem".into()), ..TlsNames::default() };
    let flags = Flags { tls: names, ..Flags::default() };
    let all = [("QUORATE_CA_FILE", "e-ca.pem"), env[0], env[1]];
    assert_eq!(tls(&flags, &all).unwrap(), ("f.pem".into(), client("e.pem", "e.key")));
    // A node's own files have priority over all others.
    let own = TlsFiles { ca_file: Some("own".into()), client: None };
    let merged = own.or(&TlsFiles { ca_file: Some("all".into()), client: client("c", "k") });
    assert_eq!(merged, TlsFiles { ca_file: Some("own".into()), client: client("c", "k") });

    let half =
        Flags { tls: TlsNames { cert_file: Some("c".into()), ..TlsNames::default() }, ..Flags::default() };
    for (flags, env, part) in [
        (&half, [("A", "b")], "--cert-file is given without --key-file; give both"),
        (&none, [("QUORATE_KEY_FILE", "k")], "QUORATE_KEY_FILE is given without QUORATE_CERT_FILE"),
        (&none, [("QUORATE_CA_FILE", "")], "QUORATE_CA_FILE is empty"),
        (&none, [("QUORATE_CAFILE", "x")], "did you mean QUORATE_CA_FILE?"),
    ] {
        let error = tls(flags, &env).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    assert!(
        error_of(&format!("{NODES}tls = {{ key_file = \"k\" }}"))
            .contains(":2: tls: key_file is given without cert_file")
    );
    assert!(error_of(&format!("{NODES}tls = \"ca.pem\"")).contains("write it like { ca_file = "));
    assert!(error_of("nodes = [{ url = \"redis://a\", ca_file = \"ca.pem\" }]").contains("write rediss://"));
}

/// Reads the annotated file unchanged, and then with each commented default enabled.
#[test]
fn the_annotated_file_documents_every_key_and_its_true_default() {
    let text = crate::init::ANNOTATED;
    let plain = load(text).unwrap_or_else(|error| panic!("{error}"));
    let default_line = |line: &str| {
        let key = line.strip_prefix('#')?.split_once(" = ")?.0;
        key.bytes().all(|b| b.is_ascii_lowercase() || b == b'_').then_some(key.to_owned())
    };
    let uncommented: String = text
        .lines()
        .map(|line| if default_line(line).is_some() { &line[1..] } else { line })
        .filter(|line| !line.starts_with("worker = ")) // its default depends on host and process
        .map(|line| format!("{line}\n"))
        .collect();
    let uncommented = load(&uncommented).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(uncommented, plain, "a default in the annotated file is not the program's");
    assert!(plain.group_with_jobs().is_ok(), "it is a whole configuration");

    for table in [
        "",
        "lease = { x = 1 }",
        "tls = { x = 1 }",
        "[[job]]\nx = 1",
        "[[job]]\nmisfire = { x = 1 }",
        "[[job]]\nretries = { x = 1 }",
        "[[notify]]\nx = 1",
        "output = { x = 1 }",
        "otlp = { x = 1 }",
    ] {
        let unknown = if table.is_empty() { "x = 1" } else { table };
        let error = error_of(unknown);
        let keys = error.split_once("the keys here are ").map(|(_, keys)| keys.split(", "));
        for key in keys.unwrap_or_else(|| panic!("{error}")) {
            let shown = text.lines().any(|line| {
                let line = line.trim_start_matches('#');
                line.starts_with(&format!("{key} = "))
                    || line.contains(&format!("{{ {key} = "))
                    || line.contains(&format!(", {key} = "))
                    || line.starts_with(&format!("   {key} = "))
                    || line == format!("[[{key}]]")
            });
            assert!(shown, "config/quorate.toml does not document `{key}`");
        }
    }
}

#[test]
fn the_person_is_named_by_the_environment_or_the_user_of_the_process() {
    let person = |user: &[(&str, &str)]| {
        let env: BTreeMap<_, _> =
            user.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let read = |_: &Path| Err(io::ErrorKind::NotFound.into());
        Environment { env, read: &read, is_own: &|_| true, host: "oak".to_owned(), pid: 7 }.person()
    };
    assert_eq!(person(&[("USER", "bob")]), "bob@oak");
    assert_eq!(person(&[("LOGNAME", "eve")]), "eve@oak");
    let of_process = person(&[]);
    assert!(of_process.ends_with("@oak") && of_process.len() > "@oak".len(), "{of_process}");
    let config = load_with(&Flags::default(), &[("USER", "bob")], &[("./quorate.toml", NODES)]).unwrap();
    assert_eq!(crate::operator::name(None, &config), "bob@oak");
    assert_eq!(crate::operator::name(Some("ann"), &config), "ann");
}
