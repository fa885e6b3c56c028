use quorate_testkit::cannot_run;
use quorate_tests::support::{Http, Nodes, PATIENCE, Program, Response, Running, until};
use serde_json::{Value, json};
use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

/// A sidecar on servers that vote. Its clients connect to a unix socket.
pub(crate) struct Sidecar {
    pub(crate) program: Program,
    pub(crate) nodes: Nodes,
    pub(crate) daemon: Running,
}

impl Sidecar {
    pub(crate) fn new(servers: usize, config: &str) -> Self {
        Self::start(servers, Duration::from_secs(3), config)
    }

    pub(crate) fn start(servers: usize, ttl: Duration, config: &str) -> Self {
        let program = Program::new(env!("CARGO_BIN_EXE_quorate-under-test"));
        let nodes = Nodes::admitted(servers, &program, &[]);
        program.write("quorate.toml", &config_text(&nodes, ttl, config));
        let daemon = start(&program);
        Self { program, nodes, daemon }
    }

    /// Waits for the end of the daemon, and starts it again on the same socket.
    pub(crate) fn restart(&mut self) {
        until("the end of the daemon", PATIENCE, || (!self.daemon.is_running()).then_some(()));
        self.daemon = start(&self.program);
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.program.file("q.sock")
    }

    /// A client without a token.
    pub(crate) fn client(&self) -> Http {
        Http::of_socket(&self.socket())
    }

    /// The address for operators, if the configuration has one.
    pub(crate) fn operators(&self) -> Http {
        Http::of(&self.daemon)
    }

    #[track_caller]
    pub(crate) fn acquire(&self, body: &Value) -> Value {
        self.client().post("/api/v1/leases", &body.to_string()).expect(200).json()
    }

    /// Acquires a lock that no client is to wait for, and checks the answer.
    #[track_caller]
    pub(crate) fn take(&self, lock: &str) -> Value {
        self.acquire(&json!({ "lock": lock }))
    }

    #[track_caller]
    pub(crate) fn ask(&self, lease: &Value, query: &str) -> Response {
        self.client().get(&format!("{}{query}", path(lease)))
    }

    /// Releases a lease.
    #[track_caller]
    pub(crate) fn release(&self, lease: &Value) -> Response {
        self.client().request("DELETE", &path(lease), "", "")
    }

    /// Waits until no client holds the lock, and acquires it.
    #[track_caller]
    pub(crate) fn until_free(&self, lock: &str, within: Duration) -> Value {
        until(&format!("a free {lock}"), within, || {
            let answer = self.client().post("/api/v1/leases", &json!({ "lock": lock }).to_string());
            (answer.status == 200).then(|| answer.json())
        })
    }
}

/// Returns the directory of the clients.
pub(crate) fn clients() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/clients")
}

/// Returns the path of a script of these tests.
pub(crate) fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("serve").join(name)
}

/// Returns whether this machine has the interpreter. If not, reports that the test cannot run.
pub(crate) fn has(program: &str, test: &str) -> bool {
    let version = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    let is_there = version.is_ok_and(|status| status.success());
    if !is_there {
        cannot_run(&format!("serve: {test}"), &format!("{program} is not installed"));
    }
    is_there
}

/// The path of a lease.
pub(crate) fn path(lease: &Value) -> String {
    format!("/api/v1/leases/{}", lease["id"].as_str().expect("an id"))
}

fn config_text(nodes: &Nodes, ttl: Duration, config: &str) -> String {
    let list: Vec<String> = nodes.urls().iter().map(|url| format!("{url:?}")).collect();
    format!("nodes = [{}]\nlease = {{ ttl = \"{}s\" }}\n{config}", list.join(", "), ttl.as_secs())
}

fn start(program: &Program) -> Running {
    let socket = format!("unix:{}", program.file("q.sock").display());
    let daemon = program.start(["serve", "--config", "quorate.toml", "--listen", &socket]);
    let client = Http::of_socket(&program.file("q.sock"));
    until("a daemon that is ready", PATIENCE, || (client.status("/readyz") == Some(200)).then_some(()));
    daemon
}
