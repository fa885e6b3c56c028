//! Tests that a daemon that is stuck does not keep the leadership. Neither a reader that does not read the
//! daemon's output, nor the configuration file, can make it stuck.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use quorate_tests::support::{Nodes, PATIENCE, Program, Running, until};
use rustix::{
    fs::{Mode, OFlags},
    process::Signal,
};
use std::{
    fs::File,
    io::{self, PipeReader, Read, Write},
    os::fd::AsRawFd,
    process::Command,
    time::Duration,
};

/// The longest time that the daemon waits for a file.
const FILE_DEADLINE: Duration = Duration::from_secs(5);

/// Three nodes, and the configuration file of the daemons of one group.
struct Bench {
    program: Program,
    nodes: Nodes,
    text: String,
    config: String,
}

impl Bench {
    /// Starts the nodes, and writes a configuration with one job, which appends its worker's token to the file
    /// `ticks`. `more` has further lines for the job.
    fn new(more: &str) -> Self {
        let program = Program::new(env!("CARGO_BIN_EXE_quorate-under-test"));
        let nodes = Nodes::admitted(3, &program, &[]);
        let list: Vec<String> = nodes.urls().iter().map(|url| format!("{url:?}")).collect();
        let text = format!(
            "nodes = [{}]\ngroup = \"g\"\nlease = {{ ttl = \"3s\" }}\n\
             [[job]]\nname = \"beat\"\nevery = \"200ms\"\n\
             shell = \"echo $QUORATE_FENCING_TOKEN >> ticks\"\n{more}",
            list.join(", ")
        );
        let config = program.write("quorate.toml", &text);
        Self { program, nodes, text, config }
    }

    fn daemon(&self) -> Running {
        self.program.start(["run", "--config", &self.config])
    }

    /// Starts a command that holds a lock. `options` are those of `quorate exec`.
    fn exec(&self, options: &[&str], command: &[&str]) -> Running {
        let list = self.nodes.list();
        let head = ["exec", "--nodes", &list, "--lock", "job", "--ttl", "20s"];
        self.program.start([&head, options, &["--"], command].concat())
    }

    fn ticks(&self) -> usize {
        self.program.read("ticks").lines().count()
    }

    /// Waits until further ticks have run.
    #[track_caller]
    fn until_more_ticks(&self, daemon: &Running) {
        let enough = self.ticks() + 5;
        until(&format!("{enough} ticks: {}", daemon.stderr()), PATIENCE, || {
            (self.ticks() >= enough).then_some(())
        });
    }
}

/// Returns a full pipe: its write end, which a daemon gets, and its read end, from which no process reads.
fn full_pipe() -> (PipeReader, io::PipeWriter) {
    let (reader, writer) = io::pipe().expect("a pipe");
    fill(&writer);
    (reader, writer)
}

/// Fills the pipe through another open file in non-blocking mode. Writes through the original file still block.
fn fill(writer: &io::PipeWriter) {
    let path = format!("/proc/self/fd/{}", writer.as_raw_fd());
    let again = rustix::fs::open(path, OFlags::WRONLY | OFlags::NONBLOCK, Mode::empty()).expect("our own");
    let mut again = File::from(again);
    for size in [4096, 1] {
        while again.write(&vec![b'.'; size]).is_ok() {}
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_daemon_whose_log_nobody_reads_goes_on_and_obeys_sigterm() {
    let bench = Bench::new("");
    let (mut reader, writer) = full_pipe();
    let mut command = bench.program.command(["run", "--config", &bench.config, "--log-level", "trace"]);
    command.stdout(writer.try_clone().expect("a pipe")).stderr(writer);
    let mut daemon = command.spawn().expect("it starts");
    drop(command);
    let enough = 20;
    until("20 ticks", PATIENCE, || (bench.ticks() >= enough).then_some(()));
    let follower = bench.daemon();
    follower.until_it_says("nodes from");
    quorate_tests::support::signal(daemon.id(), Signal::TERM);
    let status = until("end", PATIENCE, || daemon.try_wait().expect("our own child"));
    assert_eq!(status.code(), Some(0), "it ended by itself");
    follower.until_it_says("elected");
    bench.until_more_ticks(&follower);
    let mut told = String::new();
    reader.read_to_string(&mut told).expect("UTF-8");
    assert!(told.starts_with("......"), "the pipe was full until now");
    follower.signal(Signal::TERM);
    follower.wait(PATIENCE).expect(0);
}

/// Checks that blocked outputs do not use up threads. A blocked write to a pipe takes a thread, and each output
/// has only one, however many runs there are.
#[test]
#[cfg(target_os = "linux")]
fn runs_whose_output_nobody_reads_do_not_pile_up_threads() {
    let bench = Bench::new("keep_output = \"1KiB\"\ntimeout = \"1s\"\n");
    let text = bench.text.replace("echo $QUORATE", "echo from the job; echo $QUORATE");
    bench.program.write("quorate.toml", &text);
    let (_reader, writer) = full_pipe();
    let mut command = bench.program.command(["run", "--config", &bench.config]);
    command.stdout(writer.try_clone().expect("a pipe")).stderr(writer);
    let mut daemon = command.spawn().expect("it starts");
    drop(command);
    let threads = || std::fs::read_dir(format!("/proc/{}/task", daemon.id())).map_or(0, Iterator::count);
    until("2 ticks", PATIENCE, || (bench.ticks() >= 2).then_some(()));
    let few = threads();
    until("12 ticks", 3 * PATIENCE, || (bench.ticks() >= 12).then_some(()));
    let more = threads();
    assert!(more <= few + 2, "{few} threads after 2 runs, {more} after 12");
    quorate_tests::support::signal(daemon.id(), Signal::TERM);
    let status = until("end", PATIENCE, || daemon.try_wait().expect("our own child"));
    assert_eq!(status.code(), Some(0));
}

/// Checks that a job whose output is larger than a pipe and the queue runs on, and that its file is complete.
#[test]
#[cfg(target_os = "linux")]
fn output_that_nobody_reads_is_dropped_and_the_file_has_all_of_it() {
    let bench = Bench::new("");
    let noisy = "head -c 1600000 /dev/zero | tr '\\\\0' x | fold -w 4000; echo $QUORATE";
    let text = bench.text.replace("echo $QUORATE", noisy);
    bench.program.write("quorate.toml", &format!("output = {{ dir = \"outputs\" }}\n{text}"));
    let (_reader, writer) = full_pipe();
    let mut command = bench.program.command(["run", "--config", &bench.config]);
    command.stdout(writer).stderr(File::create(bench.program.file("log")).expect("our own directory"));
    let mut daemon = command.spawn().expect("it starts");
    drop(command);
    let enough = 5;
    until("5 ticks", PATIENCE, || (bench.ticks() >= enough).then_some(()));
    let dropped = "the output of commands is dropped because the reader of stdout is too slow";
    until("the warning", PATIENCE, || bench.program.read("log").contains(dropped).then_some(()));
    quorate_tests::support::signal(daemon.id(), Signal::TERM);
    let status = until("end", PATIENCE, || daemon.try_wait().expect("our own child"));
    assert_eq!(status.code(), Some(0));
    let files = std::fs::read_dir(bench.program.dir().join("outputs/beat")).expect("a directory");
    let mut texts: Vec<String> =
        files.map(|file| std::fs::read_to_string(file.expect("a file").path()).expect("UTF-8")).collect();
    texts.retain(|text| text.contains(" end "));
    assert!(texts.len() >= 4, "{} files with an end", texts.len());
    assert!(texts.iter().all(|text| text.lines().filter(|line| line.contains(" stdout x")).count() >= 400));
}

#[test]
#[cfg(target_os = "linux")]
fn a_configuration_file_that_does_not_answer_changes_nothing() {
    let bench = Bench::new("");
    let daemon = bench.daemon();
    bench.until_more_ticks(&daemon);
    let fifo = bench.program.file("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, Mode::from(0o600), 0)
        .expect("in our own directory");
    std::fs::rename(&fifo, &bench.config).expect("in our own directory");
    daemon.signal(Signal::HUP);
    bench.until_more_ticks(&daemon);
    daemon.until_it_says("the jobs stay as they were");
    daemon.until_it_says(&format!("no answer within {FILE_DEADLINE:?}"));
    bench.until_more_ticks(&daemon);

    // A process that starts with this file reports that the file cannot be read, and ends.
    let late = bench.daemon().wait(PATIENCE).expect(78);
    let late = late.says(&["quorate.toml", "no answer within 5s"]);
    assert!(late.took >= FILE_DEADLINE, "{late}");

    // The file can be read again, so the next reload applies it.
    let new = bench.program.write("new.toml", &bench.text.replace("\"beat\"", "\"other\""));
    std::fs::rename(new, &bench.config).expect("in our own directory");
    daemon.until_it_says("added other; removed beat");
    daemon.signal(Signal::TERM);
    let ended = daemon.wait(PATIENCE).expect(0);
    assert_eq!(ended.stderr.matches("elected").count(), 1, "{ended}");
}

/// Checks a daemon whose main loop is blocked. Only one thread is blocked, so another thread could still
/// extend the lease. The daemon must lose the lease nevertheless.
#[test]
#[cfg(target_os = "linux")]
fn a_daemon_whose_loop_is_blocked_loses_the_lease_and_ends_at_sigterm() {
    let bench = Bench::new("");
    let leader = bench.daemon();
    bench.until_more_ticks(&leader);
    let follower = bench.daemon();
    follower.until_it_says("nodes from");
    stop_main_thread(leader.pid());
    follower.until_it_says("elected");
    bench.until_more_ticks(&follower);
    leader.signal(Signal::TERM);
    leader.wait(PATIENCE).expect(125).says(&["did not end within", "SIGTERM"]);
    follower.signal(Signal::TERM);
    follower.wait(PATIENCE).expect(0);
}

/// A mounted file system (FUSE) that answers no request. A process that enters it waits until the mount ends or the
/// process is killed.
struct Hung {
    dir: tempfile::TempDir,
    /// The connection to the kernel, from which no request is read. `None` once it is closed.
    device: Option<File>,
}

impl Hung {
    /// Mounts the file system. Returns `None` if this machine does not permit it, and reports the reason.
    fn mount(test: &str) -> Option<Self> {
        let skip = |why: String| {
            quorate_testkit::cannot_run(test, &format!("it mounts a FUSE file system, as root: {why}"));
            None
        };
        let device = match File::options().read(true).write(true).open("/dev/fuse") {
            Ok(device) => device,
            Err(error) => return skip(format!("/dev/fuse: {error}")),
        };
        let dir = tempfile::tempdir().expect("a directory");
        // The device is the standard input of mount(8), so its number is 0.
        let options = "fd=0,rootmode=40000,user_id=0,group_id=0";
        let mut mount = Command::new("mount");
        mount.args(["-i", "-n", "-t", "fuse", "-o", options, "hung"]).arg(dir.path());
        mount.stdin(device.try_clone().expect("our own file"));
        match mount.output() {
            Ok(output) if output.status.success() => Some(Self { dir, device: Some(device) }),
            Ok(output) => skip(String::from_utf8_lossy(&output.stderr).into_owned()),
            Err(error) => skip(format!("mount: {error}")),
        }
    }
}

impl Drop for Hung {
    fn drop(&mut self) {
        // Without the device, every request fails at once. So no process waits any more.
        self.device = None;
        let _ = Command::new("umount").arg("-l").arg(self.dir.path()).status();
    }
}

#[test]
#[cfg(target_os = "linux")]
fn directories_that_do_not_answer_delay_only_their_own_runs() {
    let Some(hung) = Hung::mount("directories_that_do_not_answer_delay_only_their_own_runs") else { return };
    let mut more = String::new();
    // More jobs than this machine has threads for the daemon's tasks.
    for job in 0..std::thread::available_parallelism().map_or(8, usize::from) + 2 {
        more += &format!(
            "[[job]]\nname = \"hung-{job}\"\nevery = \"200ms\"\ncwd = {:?}\ncommand = [\"true\"]\n",
            hung.dir.path()
        );
    }
    let bench = Bench::new(&more);
    let daemon = bench.daemon();
    daemon.until_it_says("elected");
    for _ in 0..4 {
        bench.until_more_ticks(&daemon);
    }
    daemon.until_it_says(&format!("the file system of its directory {}", hung.dir.path().display()));
    bench.until_more_ticks(&daemon);
    daemon.signal(Signal::TERM);
    daemon.wait(PATIENCE).expect(0);
}

/// Checks that the lock is kept if the supervisor process is killed while the program starts: processes of the program
/// may run.
#[test]
#[cfg(target_os = "linux")]
fn a_supervisor_that_is_killed_during_the_start_keeps_the_lock() {
    let Some(hung) = Hung::mount("a_supervisor_that_is_killed_during_the_start_keeps_the_lock") else {
        return;
    };
    let bench = Bench::new("");
    let started = bench.exec(&[], &[&hung.dir.path().join("program").to_string_lossy()]);
    let output = |pid: u32| std::fs::read_link(format!("/proc/{pid}/fd/1")).ok();
    // The child of the supervisor process waits for the file system in `execve`. It has the streams of the command by
    // then, so `quorate` has let the command begin.
    let (supervisor, child) = until("a start of the program", PATIENCE, || {
        children_of(started.pid()).into_iter().find_map(|pid| {
            let child = *children_of(pid).first()?;
            (output(child)? == output(started.pid())?).then_some((pid, child))
        })
    });
    for pid in [supervisor, child] {
        quorate_tests::support::signal(pid, Signal::KILL);
    }
    let ended = started.wait(PATIENCE).expect(125);
    ended.says(&["the supervisor of the command was killed", "the lease on job is not released"]);
    bench.exec(&["--no-wait"], &["true"]).wait(PATIENCE).expect(75);
}

/// Checks a supervisor process that is killed as soon as it exists. Usually it has not reported the command's group by
/// then, so nothing has run, and the lock is free. It depends on the machine whether the command has begun.
#[test]
#[cfg(target_os = "linux")]
fn a_supervisor_that_is_killed_at_once_frees_the_lock_unless_the_command_may_have_begun() {
    let bench = Bench::new("");
    let began = bench.program.file("began");
    let script = format!("touch {}; exec sleep 60", began.display());
    let started = bench.exec(&[], &["sh", "-c", &script]);
    let supervisor =
        until("the supervisor process", PATIENCE, || children_of(started.pid()).into_iter().next());
    quorate_tests::support::signal(supervisor, Signal::KILL);
    let ended = started.wait(PATIENCE).expect(125);
    if ended.stderr.contains("the command was not started") {
        assert!(!began.exists(), "the command ran: {ended}");
        bench.exec(&["--no-wait"], &["true"]).wait(PATIENCE).expect(0);
    } else {
        ended.says(&["the supervisor of the command was killed", "the lease on job is not released"]);
        bench.exec(&["--no-wait"], &["true"]).wait(PATIENCE).expect(75);
    }
}

/// Returns the child processes of a process.
#[cfg(target_os = "linux")]
fn children_of(pid: u32) -> Vec<u32> {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let children = threads.flatten().map(|thread| std::fs::read_to_string(thread.path().join("children")));
    children
        .flatten()
        .flat_map(|text| text.split(' ').filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .collect()
}

/// Stops only the first thread of a child process, as a debugger does. The thread is stopped until the calling
/// thread ends.
#[cfg(target_os = "linux")]
fn stop_main_thread(pid: u32) {
    use nix::{
        sys::{
            ptrace,
            wait::{WaitPidFlag, WaitStatus, waitpid},
        },
        unistd::Pid,
    };
    let pid = Pid::from_raw(i32::try_from(pid).expect("a process id"));
    ptrace::seize(pid, ptrace::Options::empty()).expect("this system lets a parent trace its child");
    ptrace::interrupt(pid).expect("it is traced");
    let stopped = waitpid(pid, Some(WaitPidFlag::__WALL)).expect("our own child");
    assert!(matches!(stopped, WaitStatus::PtraceEvent(..) | WaitStatus::Stopped(..)), "{stopped:?}");
}
