//! Runs the commands of the README files, in their order, on a machine with three Redis servers beside it. The
//! `toml` block of a page is its `quorate.toml`. The Rust of the repository's README is that of `examples/readme/mod.rs`.

use super::{
    book::root,
    machines::Network,
    page::{Page, Part},
    script::Step,
};
use std::{collections::BTreeSet, fs};

/// The machines of the README: `worker` runs the commands, and the others are the servers in them.
const MACHINES: [&str; 4] = ["worker", "a", "b", "c"];

/// The servers as a list of nodes.
const SERVERS: &str = "redis://a,redis://b,redis://c";

/// The way in which a command is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// It ends with 0.
    Ends,
    /// It runs until the end of the test, and leads.
    Leads,
    /// It serves HTTP where curl finds it with these arguments, and is stopped once it is ready.
    Serves(&'static str),
    /// It shows a view on a terminal until `q` is pressed.
    Shows,
    /// It is run by the test that is named here.
    Elsewhere(&'static str),
}

/// The commands that do not simply end with 0, by their beginning. The first entry that fits counts.
const WAYS: [(&str, Way); 6] = [
    ("cargo run --release -p quorate-cli -- demo", Way::Elsewhere("tests/demo.rs")),
    ("cargo install quorate-cli", Way::Elsewhere("tests/package/crates.sh")),
    ("quorate demo", Way::Elsewhere("tests/demo.rs")),
    ("quorate lead --group billing --listen", Way::Serves("http://127.0.0.1:9641/readyz")),
    ("quorate serve --listen", Way::Serves("--unix-socket /tmp/quorate.sock http://localhost/readyz")),
    ("quorate run", Way::Leads),
];

/// As [`WAYS`], for commands that need a terminal.
const VIEW: &str = "quorate top";

/// The script that the commands name.
const BACKUP: (&str, &str) = ("backup.sh", "#!/bin/sh\necho backup under $QUORATE_FENCING_TOKEN\n");

fn way(command: &str) -> Way {
    if command.starts_with(VIEW) {
        return Way::Shows;
    }
    WAYS.iter().find(|(begin, _)| command.starts_with(begin)).map_or(Way::Ends, |(_, way)| *way)
}

/// Returns the commands of the shell blocks with their lines, without the comments after them.
fn commands(page: &Page) -> Vec<(usize, String)> {
    let mut commands = Vec::new();
    for part in &page.parts {
        let Part::Code { line, info, text } = part else { continue };
        if info != "sh" {
            continue;
        }
        for (number, text) in (line + 1..).zip(text.lines()) {
            let command = text.split_once(" # ").map_or(text, |(command, _)| command).trim();
            if !command.is_empty() {
                commands.push((number, command.to_owned()));
            }
        }
    }
    commands
}

/// Returns the shell line that runs the command in this way.
fn line(command: &str, way: Way) -> Option<String> {
    Some(match way {
        Way::Ends => command.to_owned(),
        Way::Leads => format!(
            "{command} > daemon.log 2>&1 & \
             until quorate status --config quorate.toml --nodes {SERVERS} | grep 'held by'; do sleep 0.2; done"
        ),
        Way::Serves(to) => format!(
            "{command} > daemon.log 2>&1 & until curl --silent --fail --output /dev/null {to}; do kill -0 $! || break; sleep 0.1; done; kill $! && wait $!"
        ),
        // `script` gives the view a terminal, and the terminal its input.
        Way::Shows => {
            format!(
                "(sleep 2; printf q) | TERM=xterm script --quiet --return --command '{command}' /dev/null"
            )
        }
        Way::Elsewhere(_) => return None,
    })
}

fn step(line: usize, machine: &str, command: String) -> Step {
    Step::Run { line, machine: machine.to_owned(), command, output: String::new() }
}

fn run(file: &str) -> Result<BTreeSet<String>, String> {
    let page = Page::read(&fs::read_to_string(root().join(file)).expect("UTF-8"));
    let commands = commands(&page);
    assert!(commands.len() > 3, "{file}: {commands:?}");
    let mut network = Network::start(&MACHINES.map(str::to_owned))?;
    for server in &MACHINES[1..] {
        let start = "redis-server --bind 0.0.0.0 --protected-mode no --save '' --daemonize yes";
        network.step(&step(0, server, start.to_owned()))?;
    }
    let mut files = vec![BACKUP];
    // A page shows the file that its commands name, or writes it with `quorate init`.
    files.extend(page.parts.iter().filter_map(|part| match part {
        Part::Code { info, text, .. } if info == "toml" => Some(("quorate.toml", text.as_str())),
        _ => None,
    }));
    for (name, text) in files {
        let machines = vec![MACHINES[0].to_owned()];
        network.step(&Step::File { machines, name: name.to_owned(), text: text.to_owned() })?;
    }
    let trust = format!("chmod +x backup.sh; quorate nodes trust --nodes {SERVERS}");
    network.step(&step(0, MACHINES[0], trust))?;
    let mut seen = BTreeSet::new();
    for (number, command) in commands {
        if let Some(line) = line(&command, way(&command)) {
            network.step(&step(number, MACHINES[0], line)).map_err(|why| format!("{file}:{why}"))?;
        }
        seen.insert(command);
    }
    Ok(seen)
}

#[test]
fn every_command_of_the_readme_files_runs_as_it_is_written() {
    let run = |file: &'static str| std::thread::spawn(move || run(file));
    let mut seen = BTreeSet::new();
    for file in [run("README.md"), run("crates/quorate-cli/README.md")] {
        seen.extend(file.join().expect("no panic").unwrap_or_else(|why| panic!("{why}")));
    }
    for (begin, _) in WAYS {
        assert!(seen.iter().any(|command| way_of(command) == Some(begin)), "no README has `{begin}`");
    }
    for (_, way) in WAYS {
        if let Way::Elsewhere(test) = way {
            assert!(root().join(test).exists(), "{test}");
        }
    }
}

/// Returns the entry of [`WAYS`] that counts for the command.
fn way_of(command: &str) -> Option<&'static str> {
    WAYS.iter().map(|(begin, _)| *begin).find(|begin| command.starts_with(begin))
}

/// Returns the lines of a block without their indentation.
fn flush(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let indentation = lines.iter().map(|line| line.len() - line.trim_start().len()).min().unwrap_or_default();
    lines.iter().map(|line| line[indentation..].trim_end().to_owned()).collect()
}

/// The most words of the repository's README, counted as `wc -w` does, with its code and its outputs.
const WORDS_MAX: usize = 700;

#[test]
fn the_readme_is_short() {
    let readme = fs::read_to_string(root().join("README.md")).expect("UTF-8");
    let words = readme.split_whitespace().count();
    assert!(words <= WORDS_MAX, "README.md has {words} words; move what is more to the guide");
}

#[test]
fn the_rust_of_the_readme_is_that_of_a_program_that_compiles() {
    let read = |file: &str| fs::read_to_string(root().join(file)).expect("UTF-8");
    let (page, program) = (Page::read(&read("README.md")), read("examples/readme/mod.rs"));
    let lines: Vec<&str> = program.lines().collect();
    let mut blocks = 0;
    for part in &page.parts {
        let Part::Code { line, info, text } = part else { continue };
        if !info.starts_with("rust") {
            continue;
        }
        assert_eq!(info, "rust", "README.md:{line}: the program is compiled, not the block");
        let shown = flush(text);
        let is_in_program = lines.windows(shown.len()).any(|some| flush(&some.join("\n")) == shown);
        assert!(is_in_program, "README.md:{line}: these lines are not in examples/readme/mod.rs:\n{text}");
        blocks += 1;
    }
    assert!(blocks > 2, "{blocks} blocks");
}
