//! Runs the commands of the guide. Each page gets machines of its own: namespaces for the network, the
//! processes, the mounts and the host name, with an empty home directory, and nothing of the user who runs the
//! tests: `/root` and `/home` are empty.
//!
//! # What is not guaranteed
//!
//! The machines of a page share the programs and the other files of this machine, and its clocks.

use super::{
    book::{pages, root},
    output::matches,
    page::Page,
    script::{Script, Step},
    shell::Shell,
};
use quorate::env::{SystemWorld, World};
use quorate_testkit::machines::isolated;
use quorate_tests::support::until;
use std::{
    collections::BTreeMap,
    env, fs,
    fs::File,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Stdio},
    sync::{Mutex, PoisonError},
    thread,
    time::Duration,
};
use tempfile::TempDir;

/// The program under test. The pages call it `quorate`.
const QUORATE: &str = env!("CARGO_BIN_EXE_quorate-under-test");

/// The parts of an output that say that a node was too slow.
const BUSY: [&str; 4] =
    ["no handshake in time", "had not answered", "no worker can acquire a lease", "a round trip took"];

/// The beginnings of commands that change nothing. They are repeated until their output is that of the page, because
/// the page does not show how a user waits.
const LOOKS: [&str; 17] = [
    "quorate shards list",
    "quorate status",
    "quorate nodes list",
    "quorate jobs list",
    "quorate jobs history",
    "quorate jobs why",
    "quorate jobs show",
    "quorate jobs logs",
    "quorate jobs next",
    "quorate leader history",
    "quorate locks list",
    "quorate lock show",
    "quorate audit",
    "quorate claims show",
    "tail ",
    "grep ",
    "curl --silent --fail ",
];

/// The longest time for which a command that only looks is repeated, the same while pages are updated, and the time
/// between two tries.
const PATIENCE: Duration = Duration::from_secs(40);
const BRIEFLY: Duration = Duration::from_secs(4);
const BETWEEN_LOOKS: Duration = Duration::from_millis(200);

/// The number of pages that run at the same time. Most of their time is waiting.
const AT_ONCE: usize = 3;

/// The machines of one page. Dropping them ends all their processes.
pub(crate) struct Network {
    dir: TempDir,
    /// The namespaces in which the others are, with a shell that has all rights in them.
    outer: Child,
    switch: Option<Shell>,
    machines: BTreeMap<String, Shell>,
    /// The outputs that differ from those on the page, if the page is to be updated.
    differing: Vec<Differing>,
}

/// The lines of a page to be replaced, from 0, and the output that takes their place.
struct Differing {
    from: usize,
    count: usize,
    output: String,
}

impl Differing {
    /// `line` is that of the command, from 1.
    fn new(line: usize, command: &str, shown: &str, output: String) -> Self {
        Self { from: line - 1 + command.lines().count(), count: shown.lines().count(), output }
    }
}

fn only_looks(command: &str) -> bool {
    LOOKS.iter().any(|begin| command.starts_with(begin))
}

/// Returns whether pages get the real outputs in place of those that differ.
fn is_updating() -> bool {
    env::var_os("UPDATE_GUIDE").is_some()
}

impl Drop for Network {
    fn drop(&mut self) {
        // The end of `unshare` ends its child, which is process 1 of the outer namespace, and so all
        // processes.
        let _ = self.outer.kill();
        let _ = self.outer.wait();
        for shell in std::mem::take(&mut self.machines).into_values().chain(self.switch.take()) {
            shell.join();
        }
    }
}

impl Network {
    pub(crate) fn start(names: &[String]) -> Result<Self, String> {
        let dir = tempfile::Builder::new().prefix("quorate-guide-").tempdir().expect("a directory");
        fs::create_dir(dir.path().join("bin")).expect("a directory");
        fs::write(dir.path().join("bin/quorate"), "").expect("our own directory");
        let mut outer = isolated();
        outer.args(["bash", "--noprofile", "--norc"]).env_clear();
        let path = format!("{}/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", dir.path().display());
        outer.env("PATH", path).env("LANG", "C.UTF-8").env("TERM", "dumb");
        // For files that a page asks the reader to copy.
        outer.env("REPOSITORY", concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        outer.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut outer =
            outer.spawn().map_err(|error| format!("unshare(1) of util-linux cannot be started: {error}"))?;
        let (stdin, stdout) = (outer.stdin.take().expect("a pipe"), outer.stdout.take().expect("a pipe"));
        let switch = Some(Shell::new(file_to(stdin), file_from(stdout)));
        let mut network = Self { dir, outer, switch, machines: BTreeMap::new(), differing: Vec::new() };
        network.connect(names)?;
        Ok(network)
    }

    /// Runs a command that prepares the machines.
    pub(crate) fn prepare(&mut self, command: &str) -> Result<String, String> {
        let switch = self.switch.as_mut().expect("it lives as long as the network");
        match switch.run(command)? {
            (0, output) => Ok(output.trim().to_owned()),
            (status, output) => Err(format!("`{command}` ended with {status}: {output}")),
        }
    }

    fn connect(&mut self, names: &[String]) -> Result<(), String> {
        let dir = self.dir.path().to_owned();
        let addresses: Vec<String> = (1..=names.len()).map(|number| format!("10.0.0.{number}")).collect();
        let mut hosts = String::from("127.0.0.1 localhost\n");
        for (name, address) in names.iter().zip(&addresses) {
            hosts += &format!("{address} {name}\n");
        }
        fs::write(dir.join("hosts"), hosts).expect("our own directory");
        self.prepare(&format!("mount --bind {}/hosts /etc/hosts", dir.display()))?;
        self.prepare(&format!("mount --bind {QUORATE} {}/bin/quorate", dir.display()))?;
        // No file of this machine's users, and no configuration of this machine, may affect a page.
        for hidden in ["/etc/quorate", "/root", "/home"] {
            if !dir.starts_with(hidden) {
                self.prepare(&format!("[ ! -d {hidden} ] || mount -t tmpfs none {hidden}"))?;
            }
        }
        self.prepare("ip link set lo up && ip link add switch type bridge && ip link set switch up")?;
        for (name, address) in names.iter().zip(&addresses) {
            let home = dir.join(name);
            fs::create_dir(&home).expect("our own directory");
            let home = home.display();
            self.prepare(&format!("mkfifo {home}.in {home}.out"))?;
            // The redirections wait until this process opens the pipes.
            self.prepare(&format!(
                "(cd {home} && HOME={home} exec unshare --net --mount --uts --ipc --pid --fork --kill-child --mount-proc \
                 bash --noprofile --norc <{home}.in >{home}.out 2>&1) &"
            ))?;
            let input = File::options().write(true).open(format!("{home}.in")).expect("a pipe");
            let output = File::open(format!("{home}.out")).expect("a pipe");
            let mut shell = Shell::new(input, output);
            // The first process of the new namespaces is the child of `unshare`, seen from outside.
            let init =
                self.prepare(&format!("until pgrep -P $! > {home}.pid; do :; done; cat {home}.pid"))?;
            self.prepare(&format!("ip link add name {name} type veth peer name eth0 netns {init}"))?;
            self.prepare(&format!("ip link set dev {name} master switch up"))?;
            let setup = format!(
                "hostname {name} && ip link set lo up && ip addr add {address}/24 dev eth0 && ip link set eth0 up"
            );
            match shell.run(&setup)? {
                (0, _) => self.machines.insert(name.clone(), shell),
                (status, output) => return Err(format!("`{setup}` ended with {status}: {output}")),
            };
        }
        Ok(())
    }

    /// Runs a command of the page. If it does not end, the error says what runs on the machines, and what was logged.
    fn run(&mut self, machine: &str, line: usize, command: &str) -> Result<(i32, String), String> {
        let shell = self.machines.get_mut(machine).ok_or(format!("{line}: {machine} is off"))?;
        shell.run(command).map_err(|why| {
            let logs = self.dir.path().join("*/*.log");
            let look = format!(
                "ps -eo pid,ppid,stat,wchan:20,etimes,args; tail -n 20 {} </dev/null || :",
                logs.display()
            );
            format!("{line}: {why}\n{}", self.prepare(&look).unwrap_or_else(|why| why))
        })
    }

    pub(crate) fn step(&mut self, step: &Step) -> Result<(), String> {
        match step {
            Step::File { machines, name, text } => {
                for machine in machines {
                    let path = self.dir.path().join(machine).join(name);
                    let folder = path.parent().expect("a folder");
                    fs::create_dir_all(folder).expect("our own directory");
                    fs::write(path, text).expect("our own directory");
                }
                Ok(())
            }
            Step::Run { line, machine, command, output: shown } => {
                let (mut status, mut output) = self.run(machine, *line, command)?;
                let began = SystemWorld.now();
                while !(status == 0 && matches(shown, &output)) {
                    let patience = if status == 0 && is_updating() { BRIEFLY } else { PATIENCE };
                    // A user would repeat a command that only looks, and one that found a node too slow.
                    let repeats = only_looks(command) || BUSY.iter().any(|why| output.contains(why));
                    if !repeats || SystemWorld.now().since(began) > patience {
                        break;
                    }
                    thread::sleep(BETWEEN_LOOKS);
                    (status, output) = self.run(machine, *line, command)?;
                }
                if status == 0 && matches(shown, &output) {
                    return Ok(());
                }
                if status == 0 && is_updating() {
                    self.differing.push(Differing::new(*line, command, shown, output));
                    return Ok(());
                }
                Err(format!(
                    "{line}: $ {command}\nended with {status}; output:\n{output}\nexpected:\n{shown}"
                ))
            }
            Step::SwitchOff { machine } => {
                let pid = self.dir.path().join(format!("{machine}.pid"));
                let pid = pid.display();
                self.prepare(&format!("ip link set dev {machine} down; kill -KILL $(cat {pid})"))?;
                self.machines.remove(machine).expect("it is on").join();
                Ok(())
            }
        }
    }
}

fn file_to(pipe: ChildStdin) -> File {
    File::from(std::os::fd::OwnedFd::from(pipe))
}

fn file_from(pipe: ChildStdout) -> File {
    File::from(std::os::fd::OwnedFd::from(pipe))
}

/// Runs the commands of one page.
fn run(path: &Path, script: &Script) -> Result<(), String> {
    let named = |why: String| format!("{}:{why}", path.display());
    let mut network = Network::start(&script.machines).map_err(|why| named(format!("0: {why}")))?;
    let result = script.steps.iter().try_for_each(|step| network.step(step)).map_err(named);
    update(&root().join(path), &network.differing);
    result
}

/// Writes the real outputs into the page.
fn update(page: &Path, differing: &[Differing]) {
    if differing.is_empty() {
        return;
    }
    let text = fs::read_to_string(page).expect("UTF-8");
    let mut lines: Vec<&str> = text.lines().collect();
    for Differing { from, count, output } in differing.iter().rev() {
        lines.splice(*from..from + count, output.trim_end().lines().map(str::trim_end));
    }
    fs::write(page, lines.join("\n") + "\n").expect("the repository");
}

#[test]
fn every_command_of_the_guide_runs_as_it_is_written() {
    let source = root().join("docs/guide/src");
    let only = env::var("GUIDE_PAGE").unwrap_or_default();
    let mut scripts: Vec<(PathBuf, Script)> = Vec::new();
    for path in pages(&source) {
        if !path.to_string_lossy().contains(&only) {
            continue;
        }
        let text = fs::read_to_string(&path).expect("UTF-8");
        let script = Script::of(&Page::read(&text)).unwrap_or_else(|why| panic!("{}:{why}", path.display()));
        let relative = path.strip_prefix(root()).expect("below it").to_owned();
        if !script.steps.is_empty() {
            scripts.push((relative, script));
        }
    }
    assert!(!scripts.is_empty() && (scripts.len() > 10 || !only.is_empty()), "{} pages", scripts.len());
    let (waiting, failures) = (Mutex::new(scripts), Mutex::new(Vec::new()));
    let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).pop();
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some((path, script)) = next() {
                    if let Err(why) = run(&path, &script) {
                        failures.lock().unwrap_or_else(PoisonError::into_inner).push(why);
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap_or_else(PoisonError::into_inner);
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

#[test]
fn machines_are_apart_and_a_failure_is_reported() {
    let names = ["one", "two"].map(str::to_owned);
    let mut network = Network::start(&names).unwrap_or_else(|why| panic!("{why}"));
    let run = |machine: &str, command: &str, output: &str| Step::Run {
        line: 1,
        machine: machine.to_owned(),
        command: command.to_owned(),
        output: output.to_owned(),
    };
    for step in [
        run("one", "find $HOME /root /home -mindepth 1; env | grep QUORATE_; echo nothing", "nothing\n"),
        run("one", "hostname; cd; export A=b; touch here", "one\n"),
        run("one", "echo $A; ls; sleep 1000 &", "b\nhere\n"),
        run("two", "hostname; ls", "two\n"),
        run("two", "! pgrep sleep", ""),
        run("two", "getent hosts one", "10.0.0.1 one\n"),
    ] {
        network.step(&step).unwrap_or_else(|why| panic!("{why}"));
    }
    assert!(network.step(&run("one", "false", "")).is_err());
    assert!(network.step(&run("one", "echo a", "b\n")).is_err());
    network.step(&Step::SwitchOff { machine: "one".to_owned() }).expect("it is on");
    assert!(network.step(&run("one", "true", "")).is_err());
    network.step(&run("two", "true", "")).expect("the other machine continues");
    let dir = network.dir.path().to_owned();
    drop(network);
    until("end of the directory", Duration::from_secs(5), || (!dir.exists()).then_some(()));
}
