//! Tests that the supervisor process ends its command in time, whatever happens to its own parent.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "the helpers of tests")]

use quorate::env::{BootTime, SystemWorld, World};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::{
    fs,
    io::Write,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
    time::Duration,
};

/// The longest wait for an event without a deadline.
const SOON: Duration = Duration::from_secs(10);
/// The longest delay that is accepted on a busy machine.
const LATE: Duration = Duration::from_millis(700);

/// A shell script that starts a child. The script and its child sleep without end. The script writes both
/// process ids to files.
const FAMILY: &str = "sleep 1000 & echo $! >kid; echo $$ >me; touch ready; wait";
/// A script like `FAMILY`, in which both processes ignore SIGTERM.
const DEAF_FAMILY: &str =
    "trap '' TERM; sleep 1000 & echo $! >kid; echo $$ >me; touch ready; while :; do wait; done";

struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        let dir = std::env::temp_dir().join(format!("quorate-supervisor-{:016x}", SystemWorld.random()));
        fs::create_dir(&dir).unwrap();
        Self(dir)
    }

    fn pid(&self, file: &str) -> Pid {
        let text = fs::read_to_string(self.0.join(file)).unwrap();
        Pid::from_raw(text.trim().parse().unwrap()).unwrap()
    }

    fn has(&self, file: &str) -> bool {
        self.0.join(file).exists()
    }

    /// Returns the processes that run in this directory.
    fn left(&self) -> Vec<Pid> {
        let entries = fs::read_dir("/proc").unwrap().flatten();
        let here =
            entries.filter(|entry| fs::read_link(entry.path().join("cwd")).is_ok_and(|dir| dir == self.0));
        here.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?)).collect()
    }

    fn probe(&self, args: &[&str], command: &[&str]) -> Command {
        let mut probe = Command::new(env!("CARGO_BIN_EXE_supervisor-probe"));
        probe.args(args).arg("--").args(command).current_dir(&self.0).stderr(Stdio::piped());
        probe
    }

    /// Starts a probe with `script`. Waits until the script has written its process ids and the probe has received the
    /// report of its supervisor process. Only then does the probe extend the deadline.
    fn processes(&self, args: &[&str], script: &str) -> Probe {
        let probe = Probe(self.probe(args, &["sh", "-c", script]).stdin(Stdio::null()).spawn().unwrap());
        until(SOON, "the command has started", || self.has("ready") && self.has("held"));
        probe
    }

    fn processes_are_gone(&self) -> bool {
        !runs(self.pid("me")) && !runs(self.pid("kid"))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A probe that is killed at the end of the test.
struct Probe(Child);

impl Probe {
    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    /// Waits until the probe has ended. Returns its exit code, and the exit of the command that the probe has
    /// printed.
    fn outcome(mut self) -> (Option<i32>, serde_json::Value) {
        let mut said = String::new();
        std::io::Read::read_to_string(self.0.stderr.as_mut().unwrap(), &mut said).unwrap();
        let report = said.lines().find_map(|line| serde_json::from_str(line).ok()).unwrap_or_default();
        (self.0.wait().unwrap().code(), report)
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn now() -> BootTime {
    SystemWorld.now()
}

fn until(limit: Duration, what: &str, mut is: impl FnMut() -> bool) {
    let late = now() + limit;
    while !is() {
        assert!(now() < late, "not within {limit:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns whether the process exists and has not ended.
fn runs(pid: Pid) -> bool {
    state(pid).is_some_and(|(state, _)| state != 'Z')
}

/// Returns the state of a process and the id of its parent.
fn state(pid: Pid) -> Option<(char, Pid)> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    Some((fields.next()?.chars().next()?, Pid::from_raw(fields.next()?.parse().ok()?)?))
}

fn supervisor_of(scratch: &Scratch) -> Pid {
    let (_, supervisor) = state(scratch.pid("me")).unwrap();
    let cmdline = fs::read_to_string(format!("/proc/{}/cmdline", supervisor.as_raw_pid())).unwrap();
    assert!(cmdline.contains("__supervisor"), "{cmdline}");
    supervisor
}

fn run(args: &[&str], command: &[&str]) -> Output {
    Scratch::new().probe(args, command).output().unwrap()
}

#[test]
fn exit_codes_are_those_of_a_shell() {
    let code = |command: &[&str]| run(&["5000", "6000", "once"], command).status.code();
    assert_eq!(code(&["true"]), Some(0));
    assert_eq!(code(&["sh", "-c", "exit 7"]), Some(7));
    assert_eq!(code(&["sh", "-c", "kill -KILL $$"]), Some(137));
    assert_eq!(code(&["sh", "-c", "test \"$UNDER\" = supervisor-probe"]), Some(0), "its environment");
    assert_eq!(code(&["no-such-program-anywhere"]), Some(127));
    let scratch = Scratch::new();
    fs::write(scratch.0.join("plain"), "text").unwrap();
    fs::set_permissions(scratch.0.join("plain"), fs::Permissions::from_mode(0o644)).unwrap();
    let plain = scratch.probe(&["5000", "6000", "once"], &["./plain"]).output().unwrap();
    assert_eq!(plain.status.code(), Some(126));
    assert!(String::from_utf8_lossy(&plain.stderr).contains("./plain"), "{plain:?}");
}

#[test]
fn standard_input_and_output_reach_the_command_untouched() {
    let scratch = Scratch::new();
    let mut probe = scratch.probe(&["5000", "6000", "once"], &["sh", "-c", "cat; echo oops >&2"]);
    let mut probe = probe.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let text: Vec<u8> = (0..200_000_u32).flat_map(u32::to_le_bytes).collect();
    let sent = text.clone();
    let mut stdin = probe.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(&sent).unwrap());
    let output = probe.wait_with_output().unwrap();
    writer.join().unwrap();
    assert_eq!(output.stdout.len(), text.len());
    assert!(output.stdout == text && output.status.success());
    assert!(output.stderr.starts_with(b"oops\n"));
}

#[test]
fn a_command_lives_while_its_deadline_moves() {
    let began = now();
    let output = run(&["300", "400", "extend"], &["sleep", "1.2"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(now().since(began) >= Duration::from_millis(1200));
}

#[test]
fn at_the_first_deadline_it_gets_sigterm_and_at_the_next_it_is_dead() {
    let scratch = Scratch::new();
    let (code, report) = scratch.processes(&["300", "3000", "once"], FAMILY).outcome();
    assert_eq!(
        (code, &report["ended_by"], &report["killed"]),
        (Some(143), &"Deadline".into(), &false.into())
    );
    assert!(scratch.processes_are_gone());

    let scratch = Scratch::new();
    let began = now();
    let (code, report) = scratch.processes(&["300", "600", "once"], DEAF_FAMILY).outcome();
    assert_eq!((code, &report["ended_by"], &report["killed"]), (Some(137), &"Deadline".into(), &true.into()));
    assert!(now().since(began) < Duration::from_millis(600) + LATE, "{:?}", now().since(began));
    assert!(scratch.processes_are_gone());
}

#[test]
fn it_ends_on_a_step_down() {
    let scratch = Scratch::new();
    let (code, report) = scratch.processes(&["30000", "60000", "step-down"], FAMILY).outcome();
    assert_eq!((code, &report["ended_by"]), (Some(143), &"StepDown".into()));
    assert!(scratch.processes_are_gone());
}

#[test]
fn it_dies_at_once_when_its_parent_drops_the_handle() {
    let scratch = Scratch::new();
    let mut probe = scratch.processes(&["30000", "60000", "drop"], DEAF_FAMILY);
    let supervisor = supervisor_of(&scratch);
    until(Duration::from_secs(1) + LATE, "the command and its child are gone", || {
        scratch.processes_are_gone()
    });
    assert!(probe.0.try_wait().unwrap().is_none(), "the parent has ended, and killed them by that");
    until(SOON, "the supervisor is gone", || !runs(supervisor));
}

#[test]
fn it_dies_in_time_when_its_parent_is_killed() {
    let scratch = Scratch::new();
    let probe = scratch.processes(&["1000", "1500", "extend"], DEAF_FAMILY);
    let supervisor = supervisor_of(&scratch);
    probe.signal(Signal::KILL);
    until(Duration::from_millis(1500) + LATE, "the command and its child are gone", || {
        scratch.processes_are_gone()
    });
    until(SOON, "the supervisor is gone", || !runs(supervisor));
}

#[test]
fn it_dies_in_time_when_its_parents_whole_group_is_killed() {
    let scratch = Scratch::new();
    let mut probe = scratch.probe(&["1000", "1500", "extend"], &["sh", "-c", DEAF_FAMILY]);
    let probe = Probe(probe.process_group(0).spawn().unwrap());
    until(SOON, "the command has started", || scratch.has("ready"));
    kill_process_group(Pid::from_child(&probe.0), Signal::KILL).unwrap();
    until(Duration::from_millis(1500) + LATE, "the command and its child are gone", || {
        scratch.processes_are_gone()
    });
}

#[test]
fn a_command_that_handles_sigterm_ends_at_once_when_its_parent_is_killed() {
    let scratch = Scratch::new();
    let probe = scratch.processes(&["30000", "60000", "extend"], FAMILY);
    probe.signal(Signal::KILL);
    until(Duration::from_secs(2), "the command and its child are gone", || scratch.processes_are_gone());
}

#[test]
fn it_dies_in_time_when_its_parent_is_stopped() {
    let scratch = Scratch::new();
    let probe = scratch.processes(&["1000", "1500", "extend"], DEAF_FAMILY);
    probe.signal(Signal::STOP);
    until(Duration::from_millis(1500) + LATE, "the command and its child are gone", || {
        scratch.processes_are_gone()
    });
    probe.signal(Signal::CONT);
    let (code, report) = probe.outcome();
    assert_eq!((code, &report["ended_by"]), (Some(137), &"Deadline".into()));
}

#[test]
fn it_dies_in_time_when_its_parent_is_stuck() {
    let scratch = Scratch::new();
    let _probe = scratch.processes(&["1000", "1500", "stuck"], DEAF_FAMILY);
    until(Duration::from_millis(1500) + LATE, "the command and its child are gone", || {
        scratch.processes_are_gone()
    });
}

#[test]
fn its_parent_kills_it_when_the_supervisor_is_killed() {
    let scratch = Scratch::new();
    let probe = scratch.processes(&["30000", "60000", "extend"], DEAF_FAMILY);
    kill_process(supervisor_of(&scratch), Signal::KILL).unwrap();
    let (code, report) = probe.outcome();
    assert_eq!((code, &report["ended_by"]), (Some(137), &"SupervisorGone".into()));
    until(SOON, "the command and its child are gone", || scratch.processes_are_gone());
}

/// Checks that the parent knows the command's group before the command can do anything. The supervisor process dies at
/// about the time of its reports, so the test starts many commands.
#[test]
fn its_parent_kills_it_when_its_first_action_kills_the_supervisor() {
    for round in 0..20 {
        let scratch = Scratch::new();
        let script = "kill -9 $PPID; sleep 1000 & wait";
        let mut probe = scratch.probe(&["30000", "60000", "extend"], &["sh", "-c", script]);
        let mut probe = Probe(probe.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        until(SOON, "the probe has ended", || probe.0.try_wait().unwrap().is_some());
        let late = now() + Duration::from_secs(2);
        while !scratch.left().is_empty() && now() < late {
            std::thread::sleep(Duration::from_millis(5));
        }
        let left = scratch.left();
        for pid in &left {
            let _ = kill_process(*pid, Signal::KILL);
        }
        assert!(left.is_empty(), "round {round}: {left:?} run without a supervisor");
        assert_eq!(probe.0.wait().unwrap().code(), Some(137), "round {round}");
    }
}

#[test]
fn its_parent_kills_it_in_time_when_the_supervisor_is_stopped() {
    let scratch = Scratch::new();
    let _probe = scratch.processes(&["1000", "1500", "once"], DEAF_FAMILY);
    let supervisor = supervisor_of(&scratch);
    kill_process(supervisor, Signal::STOP).unwrap();
    until(Duration::from_millis(1700) + LATE, "the command and its child are gone", || {
        scratch.processes_are_gone()
    });
    kill_process(supervisor, Signal::CONT).unwrap();
}

#[test]
fn a_supervisor_that_was_stopped_reads_its_orders_before_it_acts_on_a_deadline() {
    let scratch = Scratch::new();
    let script = "echo $$ >kid; echo $$ >me; touch ready; until [ -e go ]; do sleep 0.05; done; exit 6";
    let probe = scratch.processes(&["3000", "60000", "extend"], script);
    let supervisor = supervisor_of(&scratch);
    kill_process(supervisor, Signal::STOP).unwrap();
    let stopped = now();
    until(SOON, "the deadline that it knows is over", || now().since(stopped) > Duration::from_millis(3500));
    kill_process(supervisor, Signal::CONT).unwrap();
    until(SOON, "it waits for its next event", || state(supervisor).is_some_and(|(state, _)| state == 'S'));
    fs::write(scratch.0.join("go"), "").unwrap();
    let (code, report) = probe.outcome();
    assert_eq!((code, &report["ended_by"]), (Some(6), &serde_json::Value::Null), "{report}");
}

#[test]
fn signals_for_a_whole_service_do_not_end_the_supervisor() {
    let scratch = Scratch::new();
    let probe = scratch.processes(&["1000", "1500", "extend"], DEAF_FAMILY);
    let supervisor = supervisor_of(&scratch);
    for signal in [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT, Signal::USR1, Signal::TSTP] {
        kill_process(supervisor, signal).unwrap();
    }
    probe.signal(Signal::KILL);
    until(Duration::from_millis(1500) + LATE, "the command and its child are gone", || {
        scratch.processes_are_gone()
    });
}

#[test]
fn signals_are_forwarded() {
    let scratch = Scratch::new();
    let probe = scratch.processes(&["30000", "60000", "extend"], FAMILY);
    probe.signal(Signal::TERM);
    let (code, report) = probe.outcome();
    assert_eq!((code, &report["ended_by"]), (Some(143), &serde_json::Value::Null));
    assert!(scratch.processes_are_gone());

    let scratch = Scratch::new();
    let script = "trap 'touch heard; exit 3' USR1; sleep 1000 & echo $! >kid; echo $$ >me; touch ready; wait";
    let probe = scratch.processes(&["30000", "60000", "extend"], script);
    probe.signal(Signal::USR1);
    assert_eq!(probe.outcome().0, Some(3));
    assert!(scratch.has("heard"));
}

#[test]
fn ignored_signals_stay_ignored() {
    let scratch = Scratch::new();
    let mut nohup = Command::new("nohup");
    nohup
        .arg(env!("CARGO_BIN_EXE_supervisor-probe"))
        .args(["30000", "60000", "extend", "--", "sh", "-c", FAMILY]);
    nohup.current_dir(&scratch.0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let probe = Probe(nohup.spawn().unwrap());
    until(SOON, "the command has started", || scratch.has("ready"));
    probe.signal(Signal::HUP);
    kill_process(scratch.pid("kid"), Signal::HUP).unwrap();
    probe.signal(Signal::TERM);
    assert_eq!(probe.outcome().0, Some(143), "TERM came after HUP, and was the one that ended it");
}

#[test]
fn processes_left_behind_in_the_group_end_with_the_command() {
    let scratch = Scratch::new();
    let began = now();
    let script = "sleep 1000 & echo $! >kid; echo $$ >me; touch ready; exit 4";
    let (code, report) = scratch.processes(&["30000", "60000", "extend"], script).outcome();
    assert_eq!(
        (code, &report["ended_by"], &report["killed"]),
        (Some(4), &serde_json::Value::Null, &false.into())
    );
    assert_eq!(report["background"], 1, "{report}");
    assert!(scratch.processes_are_gone());
    assert!(now().since(began) < Duration::from_secs(2));

    let scratch = Scratch::new();
    let (code, report) =
        scratch.processes(&["30000", "60000", "leave"], &script.replace('&', ">/dev/null 2>&1 &")).outcome();
    assert_eq!((code, &report["background"]), (Some(4), &0.into()), "{report}");
    assert!(runs(scratch.pid("kid")), "it was left in the background");
    kill_process(scratch.pid("kid"), Signal::KILL).unwrap();

    let scratch = Scratch::new();
    let script = "setsid sh -c 'echo $$ >kid; touch left; exec sleep 1000' >/dev/null 2>&1 &\n\
                  until test -e left; do sleep 0.01; done; echo $$ >me; touch ready; exit 4";
    let (code, report) = scratch.processes(&["30000", "60000", "extend"], script).outcome();
    assert_eq!(
        (code, &report["background"], &report["escaped"]),
        (Some(4), &0.into(), &1.into()),
        "{report}"
    );
    assert!(runs(scratch.pid("kid")), "it had left the group");
    kill_process(scratch.pid("kid"), Signal::KILL).unwrap();

    let scratch = Scratch::new();
    let script = "trap '' TERM; sleep 1000 & echo $! >kid; echo $$ >me; touch ready; exit 4";
    let (code, report) = scratch.processes(&["30000", "60000", "extend"], script).outcome();
    assert_eq!((code, &report["killed"]), (Some(4), &true.into()));
    assert!(scratch.processes_are_gone());
}

#[test]
fn processes_that_left_the_group_end_only_with_a_lost_lease() {
    let script = |then: &str| {
        format!(
            "setsid sleep 1000 </dev/null >/dev/null 2>&1 & sleep 0.2; echo $! >kid; echo $$ >me; touch ready; {then}"
        )
    };
    let scratch = Scratch::new();
    let (code, _) = scratch.processes(&["800", "1200", "once"], &script("wait")).outcome();
    assert_eq!(code, Some(143));
    assert!(scratch.processes_are_gone());

    let scratch = Scratch::new();
    let (code, _) = scratch.processes(&["30000", "60000", "extend"], &script("exit 0")).outcome();
    assert_eq!(code, Some(0));
    assert!(runs(scratch.pid("kid")), "a daemon that left on purpose");
    kill_process(scratch.pid("kid"), Signal::KILL).unwrap();
}

/// A shell line that runs on a terminal of its own, by means of script(1).
struct OnTerminal {
    probe: Probe,
    log: PathBuf,
}

impl OnTerminal {
    fn run(scratch: &Scratch, line: &str) -> Self {
        let log = scratch.0.join("log");
        let child = Command::new("script")
            .args(["--quiet", "--flush", "--return", "--command", line])
            .arg(&log)
            .current_dir(&scratch.0)
            .env("PROBE", env!("CARGO_BIN_EXE_supervisor-probe"))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("script of util-linux is installed");
        Self { probe: Probe(child), log }
    }

    fn key(&mut self, keys: &str) {
        // The write fails if the session has just ended. Then the key is not needed.
        let _ = self.probe.0.stdin.as_mut().unwrap().write_all(keys.as_bytes());
    }

    fn screen(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    fn shows(&self, text: &str) {
        let late = now() + SOON;
        while !self.screen().contains(text) {
            assert!(now() < late, "no {text:?} on the screen: {}", self.screen());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn has_ended(&mut self) -> bool {
        self.probe.0.try_wait().unwrap().is_some()
    }

    fn code(mut self) -> Option<i32> {
        until(SOON, "the terminal's session has ended", || self.has_ended());
        self.probe.0.wait().unwrap().code()
    }
}

const READS: &str = r#"sh -c 'echo rea""dy; read word; echo "got <$word>"'"#;

#[test]
fn a_command_reads_the_terminal() {
    // Checks two situations. The probe runs first as a job of a shell. Then it runs from a script, whose
    // process group has the terminal until the command needs it.
    for line in [
        format!(r#"exec "$PROBE" 30000 60000 extend job -- {READS}"#),
        String::from(
            r#"sh -c '"$PROBE" 30000 60000 extend job -- sh -c "echo rea""dy; read word; echo \"got <\$word>\""; exit $?'; exit $?"#,
        ),
    ] {
        let scratch = Scratch::new();
        let mut terminal = OnTerminal::run(&scratch, &line);
        terminal.shows("ready");
        terminal.key("hello\n");
        terminal.shows("got <hello>");
        assert_eq!(terminal.code(), Some(0), "{line}");
    }
}

#[test]
fn ctrl_c_ends_the_command() {
    for line in [
        r#"exec "$PROBE" 30000 60000 extend job -- sh -c 'echo rea""dy; sleep 1000'"#,
        r#"sh -c 'trap : INT; "$PROBE" 30000 60000 extend job -- sh -c "echo rea\"\"dy; sleep 1000"; exit $?'; exit $?"#,
    ] {
        let scratch = Scratch::new();
        let mut terminal = OnTerminal::run(&scratch, line);
        terminal.shows("ready");
        // The key is sent again and again, because a shell that is just starting its child may lose a key.
        until(SOON, "the terminal's session has ended", || {
            terminal.key("\x03");
            std::thread::sleep(Duration::from_millis(50));
            terminal.has_ended()
        });
        assert_eq!(terminal.code(), Some(130), "{line}");
    }
}

#[test]
fn ctrl_z_stops_and_fg_continues() {
    let scratch = Scratch::new();
    let mut shell = OnTerminal::run(&scratch, "exec bash --norc --noprofile -i");
    shell.key("echo shell is u''p\n");
    shell.shows("shell is up");
    shell.key(&format!("\"$PROBE\" 30000 60000 extend job -- {READS}\n"));
    shell.shows("ready");
    shell.key("\x1a");
    shell.shows("Stopped");
    shell.key("echo still $((40+2)) he''re\n");
    shell.shows("still 42 here");
    shell.key("fg\n");
    // The text of the job appears three times: as it was typed, in the list of stopped jobs, and in the output
    // of fg. After that the shell reads no keys.
    until(SOON, "the shell names the job", || shell.screen().matches("30000 60000").count() == 3);
    shell.key("hello\n");
    shell.shows("got <hello>");
    shell.key("exit 5\n");
    assert_eq!(shell.code(), Some(5));
}
