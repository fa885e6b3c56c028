//! Tests that commands end with their lease. This must hold if the parent process of `quorate` ignores or
//! blocks signals, and if `quorate exec` or the supervisor process is stopped. It must also hold if commands
//! change their user or leave their process group.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use quorate_tests::support::{
    Ended, Nodes, PATIENCE, Program, Running, is_alive, now, parent_of, signal, until,
};
use rustix::process::Signal;
use std::{
    ffi::OsStr,
    fs,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

/// The id of the unprivileged user that runs the program. This user has no right to signal processes of root.
const NOBODY: u32 = 65_534;

/// Three nodes that vote, and the program.
struct Bench {
    program: Program,
    nodes: Nodes,
}

impl Bench {
    fn new() -> Self {
        let program = Program::new(env!("CARGO_BIN_EXE_quorate-under-test"));
        let nodes = Nodes::admitted(3, &program, &[]);
        Self { program, nodes }
    }

    /// Returns `quorate exec` with these options. Its command is a shell script.
    fn exec(&self, options: &[&str], script: &str) -> Command {
        let list = self.nodes.list();
        let head = ["exec", "--nodes", &list, "--lock", "job"];
        self.program.command(head.iter().chain(options).chain(&["--", "sh", "-c", script]))
    }

    fn start(&self, command: Command) -> Running {
        self.program.start_command(command)
    }

    /// Waits until the command has written its process id to the file `name`.
    #[track_caller]
    fn pid(&self, name: &str) -> u32 {
        until(&format!("process id in {name}"), PATIENCE, || self.program.read(name).trim().parse().ok())
    }

    /// Tries to acquire the lock without waiting for its holder. If too few nodes answer in time, tries again.
    #[track_caller]
    fn try_lock(&self) -> Ended {
        until("majority of nodes that answer in time", PATIENCE, || {
            let tried = self.start(self.exec(&["--no-wait"], "true")).wait(PATIENCE);
            (tried.code != Some(69)).then_some(tried)
        })
    }

    /// Returns the supervisor process of the command which has written its process id to the file `name`.
    #[track_caller]
    fn supervisor(&self, name: &str, exec: &Running) -> u32 {
        let supervisor = parent_of(self.pid(name));
        assert_eq!(parent_of(supervisor), exec.pid(), "process {supervisor} is not the supervisor");
        supervisor
    }
}

/// Returns the command `inner`, with the same arguments and variables, but started by the program in `front`.
fn through(front: &[&str], inner: &Command) -> Command {
    let mut command = Command::new(front[0]);
    command.args(&front[1..]).arg(inner.get_program());
    delegate(&mut command, inner);
    command
}

fn delegate(command: &mut Command, inner: &Command) {
    command.args(inner.get_args()).stdin(std::process::Stdio::null());
    if let Some(dir) = inner.get_current_dir() {
        command.current_dir(dir);
    }
    for (name, value) in inner.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
}

/// A process that is killed at the end of the test.
struct Reaped(u32);

impl Drop for Reaped {
    fn drop(&mut self) {
        if is_alive(self.0) {
            signal(self.0, Signal::KILL);
        }
    }
}

const IGNORE_CHILDREN: [&str; 4] = ["bash", "-c", "trap '' CHLD; exec \"$@\"", "bash"];

#[test]
fn a_parent_that_ignores_sigchld_hides_neither_the_end_nor_the_exit_status() {
    let bench = Bench::new();
    let options = ["--ttl", "20s"];
    let exec = |script: &str| bench.start(through(&IGNORE_CHILDREN, &bench.exec(&options, script)));
    exec("exit 5").wait(PATIENCE).expect(5);
    exec("kill -TERM $$").wait(PATIENCE).expect(143);
    // The command must have the default action for SIGCHLD. Otherwise it could not observe the ends of its own
    // children.
    let ignored = exec("grep SigIgn /proc/self/status").wait(PATIENCE).expect(0).stdout;
    let mask = ignored.split_whitespace().last().and_then(|mask| u64::from_str_radix(mask, 16).ok());
    assert_eq!(mask.map(|mask| mask & (1 << 16)), Some(0), "{ignored}");
}

#[test]
fn blocked_signals_are_unblocked_and_reach_the_command() {
    let bench = Bench::new();
    let front = ["env", "--block-signal", "--"];
    let exec =
        bench.start(through(&front, &bench.exec(&[], "echo $$ > pid.new; mv pid.new pid; exec sleep 1000")));
    bench.pid("pid");
    exec.signal(Signal::TERM);
    exec.wait(PATIENCE).expect(143);
}

#[test]
fn a_daemon_whose_parent_ignores_sigchld_runs_each_tick() {
    let program = Program::new(env!("CARGO_BIN_EXE_quorate-under-test"));
    let text = format!(
        "nodes = [\"file://{}/node\"]\ngroup = \"g\"\ntrust_new_nodes = true\nlease = {{ ttl = \"2s\" }}\n\
         [[job]]\nname = \"j\"\nevery = \"200ms\"\ncommand = [\"sh\", \"-c\", \"echo . >> ticks; exit 3\"]\n",
        program.dir().display()
    );
    let config = program.write("quorate.toml", &text);
    let daemon =
        program.start_command(through(&IGNORE_CHILDREN, &program.command(["run", "--config", &config])));
    until("three ticks", PATIENCE, || (program.read("ticks").lines().count() >= 3).then_some(()));
    daemon.until_it_says("exit status 3");
    daemon.signal(Signal::TERM);
    daemon.wait(PATIENCE).expect(0);
}

#[test]
fn stopped_past_the_ttl_together_with_its_supervisor_exec_does_not_report_success() {
    let bench = Bench::new();
    let script = "echo $$ > pid.new; mv pid.new pid; until [ -e go ]; do sleep 0.02; done; touch ended";
    let exec = bench.start(bench.exec(&["--ttl", "4s"], script));
    let command = bench.pid("pid");
    let supervisor = bench.supervisor("pid", &exec);
    exec.signal(Signal::STOP);
    signal(supervisor, Signal::STOP);
    // The supervisor process is stopped, so the first command still runs. Meanwhile another holder acquires
    // the lock and runs its own command.
    let list = bench.nodes.list();
    let other = ["exec", "--nodes", &list, "--lock", "job", "--", "true"];
    bench.program.run(other).expect(0);
    assert!(is_alive(command), "the command ended before the lease did: nothing was shown");
    bench.program.write("go", "");
    until("end of the command", PATIENCE, || (!is_alive(command)).then_some(()));
    signal(supervisor, Signal::CONT);
    exec.signal(Signal::CONT);
    exec.wait(PATIENCE).expect(70).says(&["the lease on job"]);
}

#[test]
fn a_command_that_ends_under_a_stopped_supervisor_does_not_hang_exec() {
    let bench = Bench::new();
    let script = "echo $$ > pid.new; mv pid.new pid; until [ -e go ]; do sleep 0.02; done";
    let exec = bench.start(bench.exec(&["--ttl", "6s"], script));
    let command = bench.pid("pid");
    let supervisor = bench.supervisor("pid", &exec);
    signal(supervisor, Signal::STOP);
    bench.program.write("go", "");
    until("end of the command", PATIENCE, || (!is_alive(command)).then_some(()));
    exec.wait(PATIENCE).expect(125).says(&["supervisor", "exit status"]);
    until("end of the supervisor", PATIENCE, || (!is_alive(supervisor)).then_some(()));
    bench.try_lock().expect(0);
}

#[test]
fn a_command_under_a_supervisor_that_stays_silent_is_ended() {
    let bench = Bench::new();
    let script = "trap '' TERM; setsid sleep 1000 & echo $! > stray; echo $$ > pid.new; mv pid.new pid; \
                  while :; do sleep 0.1; done";
    let exec = bench.start(bench.exec(&["--ttl", "6s"], script));
    let (command, stray) = (bench.pid("pid"), bench.pid("stray"));
    let _reaped = Reaped(stray);
    let supervisor = bench.supervisor("pid", &exec);
    signal(supervisor, Signal::STOP);
    exec.wait(PATIENCE).expect(125).says(&["supervisor"]);
    for pid in [command, stray, supervisor] {
        until(&format!("end of process {pid}"), PATIENCE, || (!is_alive(pid)).then_some(()));
    }
    bench.try_lock().expect(0);
}

#[test]
fn a_signal_that_ends_the_command_ends_what_left_its_group_before_the_lock_is_free() {
    let bench = Bench::new();
    for (name, number, code) in
        [("TERM", Signal::TERM, 143), ("INT", Signal::INT, 130), ("HUP", Signal::HUP, 129)]
    {
        // A shell starts background jobs with INT ignored. So the command itself must wait in the foreground.
        let script = format!(
            "setsid sh -c 'trap \"\" HUP INT TERM; echo $$ > stray-{name}.new; mv stray-{name}.new stray-{name}; \
             while :; do sleep 0.1; done' & until [ -e stray-{name} ]; do sleep 0.01; done; \
             echo $$ > {name}.new; mv {name}.new {name}; exec sleep 1000"
        );
        let exec = bench.start(bench.exec(&[], &script));
        bench.pid(name);
        let stray = Reaped(bench.pid(&format!("stray-{name}")));
        exec.signal(number);
        let ended = exec.wait(PATIENCE).expect(code);
        assert!(!is_alive(stray.0), "{name}: the lock is free, and process {} runs: {ended}", stray.0);
        bench.try_lock().expect(0);
    }
}

#[test]
fn a_daemon_that_a_command_leaves_behind_outlives_it_where_nothing_told_it_to_end() {
    let bench = Bench::new();
    let script = "setsid sleep 1000 </dev/null >/dev/null 2>&1 & echo $! > stray; sleep 0.2; exit 0";
    bench.start(bench.exec(&[], script)).wait(PATIENCE).expect(0);
    let stray = Reaped(bench.pid("stray"));
    assert!(is_alive(stray.0), "a daemon that left on purpose was ended");
    let help = bench.program.run(["exec", "--help"]).expect(0);
    help.tells(&["setsid", "daemon"]);
}

#[test]
fn the_number_of_a_group_stays_taken_until_the_group_is_empty() {
    let bench = Bench::new();
    let script = "trap '' TERM; sleep 1000 & echo $! > kid; echo $$ > pid.new; mv pid.new pid; exit 0";
    let exec = bench.start(bench.exec(&[], script));
    let (leader, kid) = (bench.pid("pid"), bench.pid("kid"));
    let (mut ended, mut looks) = (false, 0);
    until("end of the group", PATIENCE, || {
        // `/proc` is read before the child is checked. If the child is alive after that, its group existed
        // when `/proc` was read. Then a process with the id of the group's leader must still have existed.
        // Otherwise the system could have given that id to another process.
        let taken = Path::new(&format!("/proc/{leader}")).exists();
        let lives = is_alive(kid);
        ended |= !is_alive(leader);
        looks += usize::from(ended && lives);
        assert!(taken || !lives, "process {kid} is of a group whose number is free");
        (!lives).then_some(())
    });
    assert!(looks > 10, "the group was not seen without its leader: nothing was shown");
    exec.wait(PATIENCE).expect(0);
    until("end of the leader", PATIENCE, || (!Path::new(&format!("/proc/{leader}")).exists()).then_some(()));
}

/// Returns the environment of a process as text.
fn environ(pid: u32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/environ")).expect("a process of ours");
    String::from_utf8_lossy(&bytes).replace('\0', "\n")
}

#[test]
fn a_command_and_its_supervisor_do_not_get_the_nodes_passwords() {
    let bench = Bench::new();
    let script = "env > seen; echo $$ > pid.new; mv pid.new pid; until [ -e go ]; do sleep 0.02; done";
    let mut command = bench.program.command(["exec", "--lock", "job", "--", "sh", "-c", script]);
    command.env("QUORATE_NODES", bench.nodes.list()).env("OTHER", "kept");
    let exec = bench.start(command);
    let supervisor = bench.supervisor("pid", &exec);
    let pid = bench.pid("pid");
    for (who, seen) in [
        ("the command", bench.program.read("seen")),
        ("the command's process", environ(pid)),
        ("the supervisor", environ(supervisor)),
    ] {
        assert!(!seen.contains("QUORATE_NODES"), "{who} has the list of nodes: {seen}");
        assert!(seen.contains("OTHER=kept"), "{who} has lost the rest: {seen}");
    }
    bench.program.write("go", "");
    exec.wait(PATIENCE).expect(0);
    for command in ["exec", "run"] {
        bench.program.run([command, "--help"]).expect(0).tells(&["QUORATE_NODES"]);
    }
}

#[test]
fn a_job_gets_the_list_of_nodes_only_from_its_own_environment() {
    let program = Program::new(env!("CARGO_BIN_EXE_quorate-under-test"));
    let text = "group = \"g\"\ntrust_new_nodes = true\nlease = { ttl = \"2s\" }\n\
         [[job]]\nname = \"without\"\nevery = \"200ms\"\n\
         command = [\"sh\", \"-c\", \"env > without.new; mv without.new without\"]\n\
         [[job]]\nname = \"with\"\nevery = \"200ms\"\nenv = { QUORATE_NODES = \"file:///elsewhere\" }\n\
         command = [\"sh\", \"-c\", \"env > with.new; mv with.new with\"]\n";
    let config = program.write("quorate.toml", text);
    let mut command = program.command(["run", "--config", &config]);
    command.env("QUORATE_NODES", format!("file://{}/node", program.dir().display()));
    let daemon = program.start_command(command);
    let seen = |name: &str| {
        until(&format!("environment of {name}"), PATIENCE, || {
            Some(program.read(name)).filter(|text| !text.is_empty())
        })
    };
    let (without, with) = (seen("without"), seen("with"));
    assert!(!without.contains("QUORATE_NODES"), "{without}");
    assert!(with.contains("QUORATE_NODES=file:///elsewhere"), "{with}");
    daemon.signal(Signal::TERM);
    daemon.wait(PATIENCE).expect(0);
}

/// A `quorate` of an unprivileged user, and `helper`, a setuid program that runs a command as root. So
/// `quorate` must not signal that command.
struct Unprivileged {
    bench: Bench,
    quorate: PathBuf,
    helper: PathBuf,
}

impl Unprivileged {
    /// Prepares the programs. Returns `None` if this machine cannot run the test, and writes the reason to
    /// standard error.
    fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            return skip("the tests do not run as root, and so cannot install a setuid program");
        }
        let bench = Bench::new();
        let dir = bench.program.dir();
        fs::set_permissions(dir, fs::Permissions::from_mode(0o777)).expect("our own directory");
        let install = |from: &str, name: &str, mode: u32| {
            let path = dir.join(name);
            fs::copy(from, &path).expect("a copy in our own directory");
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("our own file");
            path
        };
        let quorate = install(env!("CARGO_BIN_EXE_quorate-under-test"), "quorate", 0o755);
        let helper = install(env!("CARGO_BIN_EXE_supervisor-probe"), "helper", 0o4755);
        let works = Command::new(&helper).args(["as-root", "id", "-ru"]).uid(NOBODY).gid(NOBODY).output();
        if !works.is_ok_and(|works| works.stdout == b"0\n") {
            return skip("a setuid program does not become root in the temporary directory (nosuid?)");
        }
        Some(Self { bench, quorate, helper })
    }

    /// Returns an `exec` of the unprivileged user. Its command becomes a process of root, and ignores SIGTERM.
    fn exec(&self, options: &[&str], front: &[&str]) -> Command {
        let script = format!(
            "exec {} as-root sh -c 'trap \"\" TERM; echo $$ > pid.new; mv pid.new pid; while :; do sleep 0.1; done'",
            self.helper.display()
        );
        let inner = self.bench.exec(options, &script);
        let program: &OsStr = self.quorate.as_ref();
        let mut line: Vec<&OsStr> = front.iter().map(OsStr::new).collect();
        line.push(program);
        let mut command = Command::new(line[0]);
        command.args(&line[1..]);
        delegate(&mut command, &inner);
        command
    }
}

impl Drop for Unprivileged {
    /// Kills the processes of root, even if the test has failed.
    fn drop(&mut self) {
        if let Ok(pid) = self.bench.program.read("pid").trim().parse() {
            drop(Reaped(pid));
        }
    }
}

/// Reports why this machine cannot run the calling test. In CI, this fails the test.
fn skip<T>(why: &str) -> Option<T> {
    let test = std::thread::current();
    quorate_testkit::cannot_run(test.name().unwrap_or("command_end"), why);
    None
}

#[test]
fn a_lease_is_not_released_while_a_command_runs_that_cannot_be_ended() {
    let Some(unprivileged) = Unprivileged::new() else { return };
    let bench = &unprivileged.bench;
    let mut command = unprivileged.exec(&["--ttl", "8s"], &[]);
    command.uid(NOBODY).gid(NOBODY);
    let exec = bench.start(command);
    let root = Reaped(bench.pid("pid"));
    exec.signal(Signal::TERM);
    exec.until_it_says("SIGTERM");
    // SIGTERM did not reach the command, and `exec` reports this. While the command runs, `exec` keeps the
    // lease.
    assert!(exec.stderr().contains("root"), "{}", exec.stderr());
    assert!(is_alive(root.0), "the command was ended: nothing was shown");
    bench.try_lock().expect(75);
    // Two of three nodes lose their data, so the lease is lost. `exec` cannot end the command.
    bench.nodes[0].flushall();
    bench.nodes[1].flushall();
    let ended = exec.wait(PATIENCE).expect(70);
    let pid = root.0.to_string();
    ended.says(&[&pid, "user root", "not permitted", "was lost", "could not be ended"]);
    assert!(is_alive(root.0), "the command was ended: nothing was shown");
}

#[test]
fn what_a_command_leaves_as_another_user_keeps_the_lock_until_the_ttl_is_over() {
    let Some(unprivileged) = Unprivileged::new() else { return };
    let bench = &unprivileged.bench;
    let list = bench.nodes.list();
    let helper = unprivileged.helper.display();
    let script = format!(
        "{helper} as-root sh -c 'trap \"\" TERM; echo $$ > pid.new; mv pid.new pid; while :; do sleep 0.1; done' & \
         until [ -e pid ]; do sleep 0.02; done; exit 0"
    );
    let mut command = Command::new(&unprivileged.quorate);
    let inner = ["exec", "--nodes", &list, "--lock", "job", "--ttl", "10s", "--", "sh", "-c", &script];
    delegate(&mut command, &bench.program.command(inner));
    command.uid(NOBODY).gid(NOBODY);
    let ended = bench.start(command).wait(PATIENCE).expect(70);
    let root = Reaped(bench.pid("pid"));
    ended.says(&[&root.0.to_string(), "user root", "not permitted", "not released"]);
    assert!(is_alive(root.0), "it was ended: nothing was shown");
    bench.try_lock().expect(75).says(&["held by"]);
    bench.program.run(["exec", "--nodes", &list, "--lock", "job", "--wait", "19s", "--", "true"]).expect(0);
}

#[test]
fn a_daemon_that_resigns_does_not_release_its_lease_while_a_command_runs_that_cannot_be_ended() {
    let Some(unprivileged) = Unprivileged::new() else { return };
    let bench = &unprivileged.bench;
    let list: Vec<String> = bench.nodes.urls().iter().map(|url| format!("{url:?}")).collect();
    let head = format!("nodes = [{}]\ngroup = \"g\"\nlease = {{ ttl = \"12s\" }}\n", list.join(", "));
    let job = format!(
        "{head}[[job]]\nname = \"j\"\nevery = \"100ms\"\ncommand = [\"{}\", \"as-root\", \"sh\", \"-c\", \
         \"trap '' TERM; echo $$ > pid.new; mv pid.new pid; while :; do sleep 0.1; done\"]\n",
        unprivileged.helper.display()
    );
    let config = bench.program.write("quorate.toml", &job);
    let mut command = Command::new(&unprivileged.quorate);
    delegate(&mut command, &bench.program.command(["run", "--config", &config]));
    command.uid(NOBODY).gid(NOBODY);
    let daemon = bench.start(command);
    let root = bench.pid("pid");
    daemon.signal(Signal::TERM);
    let ended = daemon.wait(PATIENCE).says(&["not released", "user root"]);
    let resigned = now();
    assert!(is_alive(root), "the command was ended, nothing was shown: {ended}");
    // At most a third of the TTL lies between the last extension and SIGTERM. The command then used its grace
    // period of 2.4 s. Another worker may lead only after the rest of the TTL.
    let rival = format!("{head}[[job]]\nname = \"other\"\nevery = \"1h\"\ncommand = [\"true\"]\n");
    let rival = bench.program.start(["run", "--config", &bench.program.write("rival.toml", &rival)]);
    rival.until_it_says("elected");
    let free_after = resigned.until(now());
    assert!(free_after > Duration::from_secs(3), "another worker leads after {free_after:?}: {ended}");
    rival.signal(Signal::TERM);
    rival.wait(PATIENCE).expect(0);
}

/// A cgroup of version 2 that belongs to the unprivileged user.
struct Delegated(PathBuf);

impl Delegated {
    fn new() -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let mount = mounts.lines().find_map(|line| {
            let mut words = line.split(' ').skip(1);
            let (point, kind) = (words.next()?, words.next()?);
            (kind == "cgroup2").then(|| PathBuf::from(point))
        });
        let Some(mount) = mount else { return skip("no cgroup of version 2 is mounted") };
        let dir = mount.join(format!("quorate-test-{}", std::process::id()));
        if let Err(error) = fs::create_dir(&dir) {
            return skip(&format!("{}: {error}", dir.display()));
        }
        let delegated = Self(dir);
        if !delegated.0.join("cgroup.kill").exists() {
            return skip("this kernel has no cgroup.kill");
        }
        for file in ["", "cgroup.procs", "cgroup.threads", "cgroup.subtree_control"] {
            let path = delegated.0.join(file);
            std::os::unix::fs::chown(&path, Some(NOBODY), Some(NOBODY)).expect("a cgroup of ours");
        }
        Some(delegated)
    }

    fn subgroups(&self) -> usize {
        let entries = fs::read_dir(&self.0).into_iter().flatten().flatten();
        entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).count()
    }
}

impl Drop for Delegated {
    fn drop(&mut self) {
        let _ = fs::write(self.0.join("cgroup.kill"), "1");
        for _ in 0..200 {
            let entries = fs::read_dir(&self.0).into_iter().flatten().flatten();
            for entry in entries {
                let _ = fs::remove_dir(entry.path());
            }
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn in_a_delegated_cgroup_a_command_of_another_user_is_ended_all_the_same() {
    let Some(unprivileged) = Unprivileged::new() else { return };
    let Some(cgroup) = Delegated::new() else { return };
    let bench = &unprivileged.bench;
    let front = format!(
        "echo $$ > {}/cgroup.procs && exec setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups \"$@\"",
        cgroup.0.display()
    );
    let exec = bench.start(unprivileged.exec(&["--ttl", "4s"], &["bash", "-c", &front, "bash"]));
    let root = Reaped(bench.pid("pid"));
    assert_eq!(cgroup.subgroups(), 1, "the command has a cgroup of its own");
    bench.nodes[0].flushall();
    bench.nodes[1].flushall();
    let ended = exec.wait(PATIENCE).expect(70).says(&["the lease on job was lost"]);
    assert!(!is_alive(root.0), "it still runs: {ended}");
    assert!(!ended.stderr.contains("not permitted"), "{ended}");
    assert_eq!(cgroup.subgroups(), 0, "no cgroup is left behind");
}
