//! Tests of the terminal: `quorate top` in terminals of two sizes on a real daemon and servers, and what the other
//! commands print on a terminal.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use quorate_tests::support::{JobBench, PATIENCE, Program, Tmux, signal, until};
use rustix::process::Signal;
use std::process::Command;

const JOBS: &str = r#"
[[job]]
name = "beat"
every = "500ms"
command = ["true"]

[[job]]
name = "broken"
every = "1s"
shell = "echo no disk >&2; exit 3"

[[job]]
name = "gated"
schedule = "0 0 1 1 *"
shell = "while [ ! -e go ]; do sleep 0.05; done"
"#;

const EXECUTABLE: &str = env!("CARGO_BIN_EXE_quorate-under-test");
const SMALL: (u16, u16) = (80, 24);
const LARGE: (u16, u16) = (200, 50);
/// Nodes that refuse each connection.
const NO_NODES: &str = "redis://127.0.0.1:1,redis://127.0.0.2:1,redis://127.0.0.3:1";

fn has_tmux(test: &str) -> bool {
    let found = Tmux::is_installed();
    if !found {
        quorate_testkit::cannot_run(&format!("top::{test}"), "tmux is not installed");
    }
    found
}

/// Checks that the program has ended with this status, and has restored the terminal.
#[track_caller]
fn is_restored(terminal: &Tmux, status: u8) {
    let screen = terminal.until_it_shows(&[&format!("ended {status}\n"), "icanon"]);
    assert!(!terminal.is_alternate(), "the alternate screen is left");
    let settings: Vec<&str> = screen.split(|c: char| c.is_whitespace() || c == ';').collect();
    for setting in ["echo", "icanon", "isig", "icrnl", "opost"] {
        assert!(settings.contains(&setting), "{setting} is on:\n{screen}");
    }
    assert!(!screen.contains("JOBS"), "the view is gone:\n{screen}");
}

#[test]
fn the_view_shows_a_group_and_controls_its_jobs() {
    if !has_tmux("the_view_shows_a_group_and_controls_its_jobs") {
        return;
    }
    let mut bench = JobBench::new(EXECUTABLE, JOBS);
    let daemon = bench.daemon();
    let args = ["top", "--every", "200ms", "--config", &bench.config];
    let small = Tmux::start(&bench.program, "small", SMALL, &args);
    let large = Tmux::start(&bench.program, "large", LARGE, &args);
    let leader = format!("-{} (term ", daemon.pid());
    let nodes: Vec<String> = (0..3).map(|at| bench.nodes.name(at)).collect();
    for terminal in [&small, &large] {
        terminal.until_it_shows(&[
            &leader,
            "3 of 3 nodes vote",
            "JOBS 3",
            "beat",
            "broken",
            "gated",
            "done ",
        ]);
        let screen = terminal.until_it_shows(&[&nodes[0], &nodes[1], &nodes[2], "failed "]);
        assert!(!screen.contains("NOT UPDATED"), "{screen}");
        assert!(terminal.is_alternate());
    }
    assert!(!small.screen().contains("SCHEDULE"), "it has no room for the schedules");
    large.until_it_shows(&["SCHEDULE", "every 500ms", "RUNS ", "exit status 3"]);

    // A filter, and a job that is triggered after its question turns running, and then done.
    small.press(&["/"]);
    small.type_in("gat");
    small.until_it_shows(&["filter: gat_"]);
    small.press(&["Enter"]);
    small.until_it_shows(&["JOBS 1 of 3, filter \"gat\"", "idle"]);
    small.press(&["t"]);
    small.until_it_shows(&["Run now: gated"]);
    small.press(&["y"]);
    small.until_it_shows(&["running", "gated: run of "]);
    large.until("the active run", |screen| {
        screen.lines().skip_while(|line| !line.starts_with("RUNS ")).any(|line| line.starts_with("gated"))
    });
    small.press(&["Enter"]);
    small.until_it_shows(&["  running     ", "WHY  gated: ", "HISTORY  the newest 0 outcomes"]);
    bench.program.write("go", "");
    small.until_it_shows(&["HISTORY  the newest 1 outcomes", "done in "]);
    small.press(&["Escape"]);
    small.until("its outcome", |screen| {
        screen
            .lines()
            .any(|line| line.starts_with("gated") && line.contains("idle") && line.contains("done "))
    });

    // A pause asks first, and has a reason.
    let paused = || bench.json(&["show", "gated"])["paused"].clone();
    small.press(&["p"]);
    small.until_it_shows(&["Pause: gated"]);
    small.press(&["Escape"]);
    small.until_it_shows(&["gated: nothing was done"]);
    assert!(paused().is_null());
    small.press(&["p"]);
    small.type_in("disk full");
    small.until_it_shows(&["Reason: disk full_"]);
    assert!(paused().is_null());
    small.press(&["Enter"]);
    small.until_it_shows(&["paused (disk full)"]);
    assert_eq!(paused()["reason"], "disk full");
    large.until_it_shows(&["paused (disk full)"]);

    // A pause until a time. A time that cannot be read is corrected.
    small.press(&["p"]);
    small.type_in("holidays");
    small.press(&["Tab"]);
    small.until_it_shows(&[
        "Reason: holidays",
        "Until: _",
        "Tab: other field   Enter: Pause it   Esc: do not",
    ]);
    small.type_in("soon");
    small.press(&["Enter"]);
    small.until_it_shows(&["Until: soon_", "is neither a length nor a time"]);
    assert!(paused()["until"].is_null());
    small.press(&["BSpace", "BSpace", "BSpace", "BSpace"]);
    small.type_in("2h");
    small.press(&["Enter"]);
    small.until_it_shows(&["paused for 119 min"]);
    large.until_it_shows(&["paused for 119 min (holidays)"]);
    assert!(paused()["until"].is_string(), "{}", paused());

    // A back-fill of two ticks, which run although the job is paused.
    for terminal in [&small, &large] {
        terminal.press(&["b"]);
        terminal.until_it_shows(&[
            "once for each tick of its schedule in this span",
            "From: _",
            "Until:   (such as",
        ]);
    }
    large.press(&["Escape"]);
    large.until_it_shows(&[": nothing was done"]);
    small.type_in("2024-12-31T00:00:00Z");
    small.press(&["Enter"]);
    small.until_it_shows(&["From: 2024-12-31T00:00:00Z", "until is missing"]);
    small.type_in("2026-01-02T00:00:00Z");
    small.press(&["Enter"]);
    small.until_it_shows(&["gated: 2 runs"]);
    let back_filled = || {
        let page = bench.json(&["history", "gated"]);
        let all = page["history"].as_array().cloned().unwrap_or_default();
        all.iter().filter(|end| end["cause"].as_str().is_some_and(|cause| cause.contains("back"))).count()
    };
    until("two runs of the back-fill", PATIENCE, || (back_filled() == 2).then_some(()));

    // A node and then the quorum are lost. The jobs stay, and are marked.
    bench.nodes[2].kill();
    for terminal in [&small, &large] {
        terminal.until("the dead node", |screen| {
            let row = screen.lines().find(|line| line.starts_with(&nodes[2]));
            screen.contains("2 of 3 nodes vote") && row.is_some_and(|row| !row.contains("votes"))
        });
    }
    bench.nodes[1].kill();
    small.until_it_shows(&[
        "No quorum: 1 of 3 nodes votes, 2 are needed",
        "leader NOT UPDATED since",
        "gated",
    ]);
    small.until("marked jobs", |screen| {
        screen.lines().any(|line| line.starts_with("JOBS 1 of 3") && line.contains("NOT UPDATED since"))
    });

    small.press(&["q"]);
    is_restored(&small, 0);
    large.press(&["C-c"]);
    is_restored(&large, 0);
    drop(daemon);
}

#[test]
fn the_screen_is_restored_after_a_signal_and_a_panic() {
    if !has_tmux("the_screen_is_restored_after_a_signal_and_a_panic") {
        return;
    }
    let program = Program::new(EXECUTABLE);
    let args = ["top", "--nodes", NO_NODES, "--group", "g"];
    let terminal = Tmux::start(&program, "signal", SMALL, &args);
    terminal.until_it_shows(&["No quorum: 0 of 3 nodes vote", "leader: ", "JOBS: too few", "refused"]);
    signal(terminal.pid(), Signal::TERM);
    is_restored(&terminal, 128 + 15);

    if cfg!(debug_assertions) {
        let hook = ["env", "TEST_QUORATE_TOP_PANICS=1", EXECUTABLE];
        let terminal = Tmux::start_program(&program, "panic", SMALL, &[&hook, &args[..]].concat());
        is_restored(&terminal, 101);
        terminal.until_it_shows(&["panicked at", "TEST_QUORATE_TOP_PANICS is set"]);
    }
}

#[test]
fn without_a_terminal_the_view_names_the_other_commands() {
    let program = Program::new(EXECUTABLE);
    let ended = program.run(["top", "--nodes", NO_NODES, "--group", "g"]).expect(78);
    ended.says(&["needs a terminal", "quorate status", "quorate jobs list"]);
}

#[test]
fn progress_is_shown_on_a_terminal_and_only_there() {
    if !has_tmux("progress_is_shown_on_a_terminal_and_only_there") {
        return;
    }
    let program = Program::new(EXECUTABLE);
    let exec = |script| ["exec", "--local", "--lock", "x", "--", "sh", "-c", script];
    let holder = program.start(exec("touch held; while [ ! -e free ]; do sleep 0.05; done"));
    until("held lock", PATIENCE, || program.file("held").exists().then_some(()));
    // The child has the terminal to itself: the line of progress is gone before the child writes.
    let terminal = Tmux::start(&program, "wait", SMALL, &exec("printf 'the child '; stty -a; echo wrote"));
    let piped = program.start(exec("echo piped"));
    let waits = |screen: &str| -> Option<u64> {
        let (_, seconds) = screen.split_once("waiting for the lock x ")?;
        seconds.split_once(" s")?.0.parse().ok()
    };
    let screen = terminal.until("a wait", |screen| waits(screen).is_some());
    assert!(screen.contains("quorate: waiting for x: held by "), "{screen}");
    let first = waits(&screen);
    terminal.until("a longer wait", |screen| waits(screen) > first);
    program.write("free", "");
    let screen = terminal.until_it_shows(&["the child speed", "wrote\n", "ended 0"]);
    assert!(!screen.contains("waiting for the lock"), "the line is gone:\n{screen}");
    let piped = piped.wait(PATIENCE).expect(0);
    assert_eq!(piped.stdout, "piped\n");
    assert!(!piped.stderr.contains("waiting for the lock") && !piped.stderr.contains('\u{1b}'), "{piped}");
    holder.wait(PATIENCE).expect(0);
}

#[test]
fn the_replacement_of_nodes_shows_how_long_it_waits() {
    if !has_tmux("the_replacement_of_nodes_shows_how_long_it_waits") {
        return;
    }
    let program = Program::new(EXECUTABLE);
    let node = |name: &str| format!("file://{}", program.file(name).display());
    let list = |names: [&str; 3]| names.map(node).join(",");
    let (old, new) = (list(["a", "b", "c"]), list(["b", "c", "d"]));
    let config = program.write("short.toml", "max_ttl = \"3s\"\nmax_clock_offset = \"100ms\"\n");
    let nodes = ["--config", &config, "--nodes", &old];
    program.run([&["nodes", "trust"][..], &nodes].concat()).expect(0);
    let replace = [&["nodes", "replace", "--to", &new][..], &nodes].concat();
    let terminal = Tmux::start(&program, "replace", (200, 50), &replace);
    terminal.until_it_shows(&["waiting until every lease of the old set has ended [#", "s left"]);
    let screen = terminal.until_it_shows(&["the new set is open", "ended 0"]);
    assert!(!screen.contains("s left"), "the line is gone:\n{screen}");
    assert!(screen.contains("waiting 3"), "standard output is whole:\n{screen}");
}

#[test]
fn tables_have_the_width_of_the_terminal_and_no_colour_if_not_wanted() {
    if !has_tmux("tables_have_the_width_of_the_terminal_and_no_colour_if_not_wanted") {
        return;
    }
    let program = Program::new(EXECUTABLE);
    let status = ["status", "--nodes", NO_NODES];
    let piped = program.run(status).expect(69);
    assert!(!piped.stdout.contains('\u{1b}'), "{piped}");
    let row = piped.stdout.lines().find(|line| line.starts_with("redis://127.0.0.3:1/0")).expect("a row");
    assert!(row.contains("refused"), "the row is one line: {piped}");

    let coloured = Tmux::start(&program, "colour", (60, 50), &status);
    let screen = coloured.until_it_shows(&["NO QUORUM", "STATE", "ended 69"]);
    let table = screen.split_once("STATE").map(|(_, table)| table).expect("a table");
    assert!(table.lines().any(|line| line.starts_with(&" ".repeat(30)) && line.trim().len() > 3), "{screen}");
    assert!(coloured.has_colours(), "trouble has a colour");
    let plain = [&["env", "NO_COLOR=1", EXECUTABLE][..], &status].concat();
    let plain = Tmux::start_program(&program, "plain", (60, 50), &plain);
    plain.until_it_shows(&["NO QUORUM", "ended 69"]);
    assert!(!plain.has_colours());
}

#[test]
fn bash_completes_commands_and_a_page_exists_for_each() {
    let program = Program::new(EXECUTABLE);
    let completions = |shell: &str| program.run(["completions", shell]).expect(0).stdout;
    let script = program.write("completions.bash", &completions("bash"));
    let complete = |words: &str| {
        let line = format!(
            "source '{script}'; COMP_WORDS=({words} ''); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             _quorate quorate '' \"${{COMP_WORDS[COMP_CWORD-1]}}\"; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        );
        let output = Command::new("bash").args(["--norc", "-c", &line]).output().expect("bash");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let commands = complete("quorate");
    let jobs = complete("quorate jobs");
    for (found, expected) in [(&commands, "top"), (&commands, "exec"), (&jobs, "trigger"), (&jobs, "why")] {
        assert!(found.iter().any(|word| word == expected), "{expected}: {found:?}");
    }
    for (shell, name) in [("zsh", "quorate.zsh"), ("fish", "quorate.fish")] {
        let script = program.write(name, &completions(shell));
        assert!(program.read(name).contains("dead-letters"), "{shell}");
        match Command::new(shell).args(["-n", &script]).output() {
            Ok(output) => {
                assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            }
            Err(_) => quorate_testkit::cannot_run("top::completions", &format!("{shell} is not installed")),
        }
    }
    program.run(["completions", "tcsh"]).expect(2).says(&["bash", "zsh", "fish"]);

    program.run(["man", "--dir", "share/man1"]).expect(0);
    let pages = std::fs::read_dir(program.file("share/man1")).expect("the pages");
    let pages: Vec<String> =
        pages.map(|page| page.expect("a page").file_name().to_string_lossy().into_owned()).collect();
    for command in commands.iter().filter(|word| {
        !word.starts_with('-') && *word != "help" && !matches!(word.as_str(), "job" | "locks" | "election")
    }) {
        assert!(pages.contains(&format!("quorate-{command}.1")), "{command}: {pages:?}");
    }
    for command in jobs.iter().filter(|word| !word.starts_with('-') && *word != "help") {
        assert!(pages.contains(&format!("quorate-jobs-{command}.1")), "{command}: {pages:?}");
    }
    program.write("file", "");
    program.run(["man", "--dir", "file/x"]).expect(125).says(&["cannot write file/x"]);
}
