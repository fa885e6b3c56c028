//! Tests of the messages of `quorate run` to systemd. A socket of the test receives them in place of systemd. And tests
//! of the unit `config/quorate.service`.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use quorate_tests::support::{PATIENCE, Program, Running, until};
use rustix::{
    process::Signal,
    time::{ClockId, clock_gettime},
};
use std::{
    fs,
    os::unix::net::UnixDatagram,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

/// A socket that receives the messages of a daemon.
struct Ear {
    heard: Arc<Mutex<Vec<String>>>,
    address: String,
}

impl Ear {
    fn by_path(program: &Program, name: &str) -> Self {
        let path = program.file(name);
        let address = path.display().to_string();
        Self::listen(UnixDatagram::bind(path).expect("a socket in our own directory"), address)
    }

    #[cfg(target_os = "linux")]
    fn by_name() -> Self {
        use std::os::{linux::net::SocketAddrExt, unix::net::SocketAddr};
        let name = format!("quorate-test-{}-notify", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).expect("a name");
        Self::listen(UnixDatagram::bind_addr(&address).expect("a name of our own"), format!("@{name}"))
    }

    fn listen(socket: UnixDatagram, address: String) -> Self {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let words = Arc::clone(&heard);
        // The thread is not joined. It ends with the test process.
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(n) = socket.recv(&mut bytes) {
                words.lock().expect("no panic").push(String::from_utf8_lossy(&bytes[..n]).into_owned());
            }
        });
        Self { heard, address }
    }

    fn heard(&self) -> Vec<String> {
        self.heard.lock().expect("no panic").clone()
    }

    /// Returns the number of messages that begin with `begins`.
    fn count(&self, begins: &str) -> usize {
        self.heard().iter().filter(|word| word.starts_with(begins)).count()
    }

    #[track_caller]
    fn until(&self, begins: &str, times: usize) {
        until(&format!("{times} times {begins} in {:?}", self.heard()), PATIENCE, || {
            (self.count(begins) >= times).then_some(())
        });
    }
}

fn config(program: &Program) -> String {
    let text = format!(
        "nodes = [\"file://{}/node\"]\ngroup = \"g\"\ntrust_new_nodes = true\nlease = {{ ttl = \"2s\" }}\n\
         [[job]]\nname = \"beat\"\nevery = \"500ms\"\n\
         shell = \"echo socket=$NOTIFY_SOCKET watchdog=$WATCHDOG_USEC >> seen\"\n",
        program.dir().display()
    );
    program.write("quorate.toml", &text)
}

fn daemon(program: &Program, config: &str, ear: &Ear) -> Running {
    let mut command = program.command(["run", "--config", config]);
    command.env("NOTIFY_SOCKET", &ear.address).env("WATCHDOG_USEC", "400000").env_remove("WATCHDOG_PID");
    program.start_command(command)
}

fn monotonic_micros() -> i64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec * 1_000_000 + now.tv_nsec / 1_000
}

#[test]
fn systemd_gets_messages_on_start_leadership_watchdog_reload_and_end() {
    let program = Program::new(env!("CARGO_BIN_EXE_quorate-under-test"));
    let config = config(&program);
    let ear = Ear::by_path(&program, "notify");
    let leader = daemon(&program, &config, &ear);
    ear.until("STATUS=leading term ", 1);
    let heard = ear.heard();
    let place = |begins: &str| heard.iter().position(|word| word.starts_with(begins));
    assert!(place("READY=1") < place("STATUS=leading"), "it is ready when it campaigns: {heard:?}");
    ear.until("WATCHDOG=1", 5);
    assert_eq!(
        (ear.count("READY=1"), ear.count("RELOADING=1")),
        (1, 0),
        "nothing was changed: {:?}",
        ear.heard()
    );

    until("a run", PATIENCE, || (!program.read("seen").is_empty()).then_some(()));

    // While the first daemon leads, a second daemon only follows, and reports this in its status.
    let other = Ear::by_path(&program, "other");
    let follower = daemon(&program, &config, &other);
    other.until("STATUS=following", 1);
    assert_eq!(other.count("STATUS=leading"), 0, "{:?}", other.heard());

    let before = monotonic_micros();
    leader.signal(Signal::HUP);
    ear.until("RELOADING=1", 1);
    ear.until("READY=1", 2);
    let heard = ear.heard();
    let reloading = heard.iter().position(|word| word.starts_with("RELOADING=1")).expect("heard");
    let micros = heard[reloading].strip_prefix("RELOADING=1\nMONOTONIC_USEC=").expect("one message");
    let at: i64 = micros.parse().expect("a number");
    assert!((before..=monotonic_micros()).contains(&at), "{at} is not after {before}");
    let ready = heard.iter().rposition(|word| word == "READY=1").expect("heard");
    assert!(ready > reloading, "{heard:?}");

    leader.signal(Signal::TERM);
    ear.until("STOPPING=1", 1);
    leader.wait(PATIENCE).expect(0);
    other.until("STATUS=leading term ", 1);
    follower.signal(Signal::TERM);
    follower.wait(PATIENCE).expect(0);
    other.until("STOPPING=1", 1);

    // The variables for the daemon's socket must not be passed to a command.
    let seen = program.read("seen");
    assert!(!seen.is_empty() && seen.lines().all(|line| line == "socket= watchdog="), "{seen}");
}

#[test]
#[cfg(target_os = "linux")]
fn a_daemon_that_is_stopped_is_silent_and_an_abstract_name_will_do() {
    let program = Program::new(env!("CARGO_BIN_EXE_quorate-under-test"));
    let config = config(&program);
    let ear = Ear::by_name();
    let daemon = daemon(&program, &config, &ear);
    ear.until("WATCHDOG=1", 2);
    daemon.signal(Signal::STOP);
    until("stopped process", PATIENCE, || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", daemon.pid())).ok()?;
        stat.rsplit(") ").next()?.starts_with('T').then_some(())
    });
    let silent = ear.count("WATCHDOG=1");
    // The wait is long enough for two more messages, so it shows that none is sent any more.
    let begun = quorate_tests::support::now();
    until("eight tenths of a second", PATIENCE, || {
        (begun.until(quorate_tests::support::now()) >= std::time::Duration::from_millis(800)).then_some(())
    });
    assert!(ear.count("WATCHDOG=1") <= silent + 1, "one may have been on its way");
    daemon.signal(Signal::CONT);
    ear.until("WATCHDOG=1", silent + 3);
    daemon.signal(Signal::TERM);
    daemon.wait(PATIENCE).expect(0);
}

/// Returns the text of a file in `config`.
fn shipped(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../config").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the words of all lines `key=…` of a unit.
fn words_of<'a>(unit: &'a str, key: &str) -> Vec<&'a str> {
    let values = unit.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    values.flat_map(str::split_whitespace).collect()
}

/// systemd compares the exit status of the main process alone with `RestartPreventExitStatus`.
#[test]
fn a_wrong_configuration_ends_the_unit_and_is_not_restarted() {
    let unit = shipped("quorate.service");
    assert_eq!(words_of(&unit, "ExecStartPre"), [""; 0]);
    assert_eq!(words_of(&unit, "RestartPreventExitStatus"), ["2", "78"]);
    let command = words_of(&unit, "ExecStart");
    let (name, args) = command.split_first().expect("a command");
    assert!(name.ends_with("/quorate"), "{name}");
    // The main process itself checks the file, and ends with this status.
    let program = Program::new(env!("CARGO_BIN_EXE_quorate-under-test"));
    let wrong = program.write("wrong.toml", "nodes = 3\n");
    let here = |arg: &&str| if arg.ends_with(".toml") { wrong.clone() } else { (*arg).to_owned() };
    program.run(args.iter().map(here)).expect(78).says(&["wrong.toml:1"]);
}

/// `ProtectSystem=strict` makes every other directory read-only.
#[test]
fn the_unit_permits_the_directories_of_the_annotated_configuration() {
    let unit = shipped("quorate.service");
    assert_eq!(words_of(&unit, "ProtectSystem"), ["strict"]);
    let mut writable: Vec<PathBuf> =
        words_of(&unit, "ReadWritePaths").into_iter().map(PathBuf::from).collect();
    for (key, parent) in [("StateDirectory", "/var/lib"), ("LogsDirectory", "/var/log")] {
        writable.extend(words_of(&unit, key).into_iter().map(|name| Path::new(parent).join(name)));
        // The output of runs may contain secrets.
        assert_eq!(words_of(&unit, &format!("{key}Mode")), ["0700"], "{key}");
    }
    let config = shipped("quorate.toml");
    let paths = |key: &str| -> Vec<PathBuf> {
        let before = format!("{key} = \"");
        let values = config.split(&before).skip(1).filter_map(|rest| rest.split('"').next());
        values.map(PathBuf::from).filter(|path| path.is_absolute()).collect()
    };
    let written = paths(" dir");
    assert!(!written.is_empty(), "the example of output.dir");
    for dir in written {
        let is_writable = writable.iter().any(|parent| dir.starts_with(parent));
        assert!(is_writable, "{} is none of {writable:?}", dir.display());
    }
    assert_eq!(words_of(&unit, "ProtectHome"), ["yes"]);
    let read = paths("cwd");
    assert!(!read.is_empty(), "the example of cwd");
    for dir in read {
        let is_hidden = ["/home", "/root", "/run/user"].iter().any(|hidden| dir.starts_with(hidden));
        assert!(!is_hidden, "{} is hidden", dir.display());
    }
}

#[test]
fn the_unit_of_a_sidecar_gets_its_socket_from_systemd_where_the_clients_look_for_it() {
    let (unit, socket) = (shipped("quorate-serve.service"), shipped("quorate-serve.socket"));
    assert!(words_of(&unit, "ExecStart").ends_with(&["--listen", "systemd"]), "{unit}");
    assert_eq!(words_of(&unit, "Requires"), ["quorate-serve.socket"]);
    assert_eq!(words_of(&unit, "RestartPreventExitStatus"), ["2", "78"]);
    // Longer than the 25 s for which the daemon waits for its clients.
    assert_eq!(words_of(&unit, "TimeoutStopSec"), ["30s"]);
    assert_eq!((words_of(&socket, "SocketMode"), words_of(&socket, "ListenStream").len()), (vec!["0660"], 1));
    let address = format!("\"unix:{}\"", words_of(&socket, "ListenStream")[0]);
    for client in ["quorate.py", "quorate.mjs"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/clients").join(client);
        let text = fs::read_to_string(path).expect("a client");
        assert!(text.contains(&address), "{client} has another default than {address}");
    }
}
