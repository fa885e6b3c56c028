use quorate_testkit::cannot_run;
use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::Duration,
};

/// The longest time that a client may take to answer, on a busy machine. It includes the client's own waits.
const PATIENCE: Duration = Duration::from_secs(30);

/// A Redlock client that is not Quorate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// node's `redlock` 5.0.0-beta.2.
    Redlock5,
    /// node's `redlock` 4.2.0.
    Redlock4,
    /// Python's `pottery` 3.0.1.
    Pottery,
}

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::Redlock5, Self::Redlock4, Self::Pottery];

    /// Returns the command that starts the worker with this client. The caller adds the servers.
    fn command(self, name: &str) -> Command {
        let (packages, scripts) = (packages(), Path::new(env!("CARGO_MANIFEST_DIR")).join("interop"));
        let with = |program: PathBuf, script: &str| {
            let mut command = Command::new(program);
            command.env("NODE_PATH", packages.join("node_modules")).arg(scripts.join(script));
            command
        };
        let mut command = match self {
            Self::Pottery => with(packages.join("venv/bin/python"), "pottery_worker.py"),
            Self::Redlock4 | Self::Redlock5 => with("node".into(), "redlock.cjs"),
        };
        match self {
            Self::Redlock5 => command.args(["redlock".to_owned(), format!("redlock:{name}")]),
            Self::Redlock4 => command.args(["redlock4".to_owned(), format!("redlock:{name}")]),
            Self::Pottery => command.arg(name),
        };
        command
    }
}

/// Returns the directory in which `tests/run.sh` installs the packages.
fn packages() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/interop")
}

/// Returns whether the clients are installed in the versions of the lists next to this file. If not, reports
/// that the test `name` cannot run.
pub(crate) fn installed(name: &str) -> bool {
    let (packages, lists) = (packages(), Path::new(env!("CARGO_MANIFEST_DIR")).join("interop"));
    // After `tests/run.sh` has installed all packages of a list, it stores a copy of the list with them.
    let same = |mark: &str, list: &str| {
        let (mark, list) = (fs::read(packages.join(mark)), fs::read(lists.join(list)));
        matches!((mark, list), (Ok(mark), Ok(list)) if mark == list)
    };
    let missing: Vec<&str> = [
        ("node's redlock", same(".installed-node", "package-lock.json")),
        ("Python's pottery", same(".installed-python", "requirements.txt")),
    ]
    .into_iter()
    .filter_map(|(client, there)| (!there).then_some(client))
    .collect();
    if !missing.is_empty() {
        let missing = missing.join(" and ");
        let reason =
            format!("{missing} not installed in target/interop; `bash tests/run.sh --interop` installs them");
        cannot_run(&format!("other_clients::{name}"), &reason);
    }
    missing.is_empty()
}

/// A process that uses another Redlock client. It reads commands and writes answers, one per line. Dropping
/// this value kills the process.
#[derive(Debug)]
pub(crate) struct Client {
    kind: Kind,
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Client {
    /// Starts a client, and waits until it has connected to the servers.
    pub(crate) fn start(kind: Kind, name: &str, judge: &str, servers: &[String]) -> Self {
        let mut command = kind.command(name);
        command.arg(judge).args(servers).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{kind:?}: {error}; {command:?}"));
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take().expect("a pipe"));
        let (said, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let _ = said.send(line);
            }
        });
        let client = Self { kind, child, stdin, lines };
        assert_eq!(client.hear(), "ready", "{kind:?}");
        client
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// Sends one command and returns the answer.
    #[track_caller]
    pub(crate) fn ask(&mut self, what: &str) -> String {
        self.tell(what);
        self.hear()
    }

    /// Stops the client's present work, and returns all lines that it has written since its last answer. The
    /// process is then killed, because this call consumes the client.
    pub(crate) fn stop(mut self) -> Vec<String> {
        self.tell("stop");
        let mut said = Vec::new();
        while !said.last().is_some_and(|line: &String| line.starts_with("wins")) {
            said.push(self.hear());
        }
        said
    }

    /// Kills the process. So the client releases nothing.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("our own child");
    }

    #[track_caller]
    fn tell(&mut self, what: &str) {
        writeln!(self.stdin.as_mut().expect("a pipe"), "{what}").expect("it reads");
    }

    #[track_caller]
    fn hear(&self) -> String {
        let line = self.lines.recv_timeout(PATIENCE);
        line.unwrap_or_else(|_| panic!("{:?} said nothing in {PATIENCE:?}, or has ended", self.kind))
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
