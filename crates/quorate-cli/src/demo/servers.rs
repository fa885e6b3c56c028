use super::settings::NODES;
use crate::{
    exit::{FAILURE, Failure, NO_QUORUM},
    supervisor::{CommandSpec, Deadline, StartError, Stream, Supervisor},
};
use quorate::env::Env;
use std::{
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    time::Duration,
};

/// The line that a server writes to its log once it listens.
const READY: &str = "Ready to accept connections";
/// The longest wait for the line [`READY`].
const PATIENCE: Duration = Duration::from_secs(5);
/// The time between two reads of the log.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// The number of attempts to find a free port: another process may take a port that was free a moment
/// ago.
const TRIES: usize = 5;
/// The time after which the supervisors end the servers, whatever happens to this process.
const LONGEST: Duration = Duration::from_secs(60);
/// The time between SIGTERM and SIGKILL for a server.
const TO_END: Duration = Duration::from_secs(2);

/// The Redis servers of the demo, each under a supervisor process. Dropping this value ends the servers.
#[derive(Debug)]
pub(crate) struct Servers {
    env: Env,
    supervisors: Vec<Supervisor>,
}

impl Servers {
    pub(crate) fn new(env: &Env) -> Self {
        Self { env: env.clone(), supervisors: Vec::new() }
    }

    /// Starts the servers on free loopback ports, without persistence. Returns their ports.
    pub(crate) async fn start(&mut self, dir: &Path) -> Result<Vec<u16>, Failure> {
        let mut ports = Vec::new();
        for number in 1..=NODES {
            let dir = dir.join(format!("redis-{number}"));
            fs::create_dir(&dir).map_err(|error| Failure::new(FAILURE, error))?;
            ports.push(self.start_one(&dir).await?);
        }
        Ok(ports)
    }

    async fn start_one(&mut self, dir: &Path) -> Result<u16, Failure> {
        let mut log = String::new();
        for _ in 0..TRIES {
            let port = free_port().map_err(|error| Failure::new(FAILURE, error))?;
            let supervisor = Supervisor::start(&self.env, command(dir, port)?, self.deadline(LONGEST)).await;
            let mut supervisor = supervisor.map_err(|error| refusal(&error))?;
            let deadline = self.env.now() + PATIENCE;
            let mut ended = None;
            while ended.is_none() && self.env.now() < deadline {
                // The server's own log shows whether it listens. A connection would not show it, because
                // another server on the same port would answer, too.
                log = fs::read_to_string(log_of(dir)).unwrap_or_default();
                if log.contains(READY) {
                    self.supervisors.push(supervisor);
                    return Ok(port);
                }
                ended = self.env.before(self.env.now() + LOOK_EVERY, supervisor.wait()).await;
            }
            self.supervisors.extend(ended.is_none().then_some(supervisor));
        }
        Err(Failure::new(NO_QUORUM, format!("redis-server does not start; its log says: {}", log.trim())))
    }

    /// Sends SIGTERM to all servers, and waits until they have ended. A second call does nothing.
    pub(crate) async fn end(&mut self) {
        for supervisor in &mut self.supervisors {
            supervisor.extend(Deadline { kill: self.env.now() + TO_END, step_down: self.env.now() });
            supervisor.step_down();
        }
        for mut supervisor in self.supervisors.drain(..) {
            supervisor.wait().await;
        }
    }

    fn deadline(&self, from_now: Duration) -> Deadline {
        let at = self.env.now() + from_now;
        Deadline { step_down: at, kill: at + TO_END }
    }
}

fn command(dir: &Path, port: u16) -> Result<CommandSpec, Failure> {
    let conf = dir.join("redis.conf");
    let text = format!(
        "port {port}\nbind 127.0.0.1\nsave \"\"\nappendonly no\ndaemonize no\nmaxmemory-policy noeviction\nlogfile log\n"
    );
    let _ = fs::remove_file(log_of(dir));
    fs::write(&conf, text).map_err(|error| Failure::new(FAILURE, error))?;
    let command = CommandSpec::new("redis-server").args(["redis.conf"]).dir(dir);
    Ok(command.stdin(Stream::Null).stdout(Stream::Null).stderr(Stream::Null))
}

fn log_of(dir: &Path) -> PathBuf {
    dir.join("log")
}

fn refusal(error: &StartError) -> Failure {
    match error {
        StartError::NotFound { .. } => Failure::new(
            NO_QUORUM,
            "--redis requires the program redis-server, which is not in PATH; install it (apt-get install redis-server, \
             dnf install redis, apk add redis, brew install redis), or run quorate demo without --redis: it then requires \
             no other program",
        ),
        error => Failure::new(FAILURE, format!("redis-server: {error}")),
    }
}

fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
