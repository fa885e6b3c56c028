use super::{RedisConfig, ServerVersion, clock::ServerClock, port, program};
use quorate::env::{SystemWorld, World};
use redis::{IntoConnectionInfo, RedisError, Value};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    fmt, fs, io,
    net::{Ipv4Addr, SocketAddr},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};
use tempfile::TempDir;

/// The longest time that a server may take to answer PING, or to react to a signal.
const PATIENCE: Duration = Duration::from_secs(10);

/// The interval between two checks of a condition.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The port of a server on a machine of its own, where all ports are free.
const OWN_PORT: u16 = 6379;

/// The longest time for which a server may use an earlier reading of the wall clock. Valkey 9.1 reads it once in a
/// millisecond at most, and Redis reads it for each command.
const WALL_CLOCK_READ_EVERY: Duration = Duration::from_millis(5);

/// Returns the time at which KEYS[1] expires, or an error. The script reads the clock before and after PTTL, until
/// no millisecond passes in between. It is for Redis before 7.0 only: later servers stop the clock of PTTL, but not
/// that of TIME, while a script runs.
const EXPIRES_AT: &str = "\
local function ms() local at = redis.call('TIME'); return at[1] * 1000 + math.floor(at[2] / 1000) end \
for _ = 1, 1000 do \
  local before, left, after = ms(), redis.call('PTTL', KEYS[1]), ms() \
  if left < 0 then return redis.error_reply('never') end \
  if before == after then return string.format('%.0f', before + left) end \
end \
return redis.error_reply('the clock does not stand still')";

/// A server process with a directory of its own: `redis-server`, or the program that
/// [`SERVER_PROGRAM`](super::SERVER_PROGRAM) names. Dropping the value kills and reaps the process.
///
/// All methods block: call them from a plain test, or accept that they block the runtime for milliseconds.
pub struct RedisServer {
    config: RedisConfig,
    dir: TempDir,
    port: u16,
    clock: Option<ServerClock>,
    child: Option<Child>,
}

impl RedisServer {
    /// Starts a server with no persistence on a free loopback port, and waits until it answers.
    ///
    /// # Errors
    /// [`StartError`]. If `redis-server` is missing, the error says how to install it.
    pub fn start() -> Result<Self, StartError> {
        Self::start_with(RedisConfig::new())
    }

    /// Starts a server with `config`.
    ///
    /// # Errors
    /// [`StartError`]. If `redis-server` is missing, the error says how to install it.
    pub fn start_with(config: RedisConfig) -> Result<Self, StartError> {
        let dir = tempfile::Builder::new().prefix("quorate-redis-").tempdir()?;
        let clock = config.has_own_clock().then(|| ServerClock::new(dir.path())).transpose()?;
        let mut server = Self { config, dir, port: 0, clock, child: None };
        let mut tries = 0;
        loop {
            server.port = if server.config.machine().is_some() { OWN_PORT } else { port::reserve()? };
            tries += 1;
            match server.spawn() {
                Err(StartError::Ended(_)) if tries < 5 => {}
                Err(error) => return Err(error),
                Ok(()) => return Ok(server),
            }
        }
    }

    /// Returns the TCP address, which stays the same after a restart.
    pub fn address(&self) -> SocketAddr {
        (self.config.address(), self.port).into()
    }

    /// Returns the TCP port on loopback, which stays the same after a restart.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the process id. `None` while the process does not run because it was killed.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Returns the URL, with the password if there is one.
    pub fn url(&self) -> String {
        self.url_to(self.address())
    }

    /// Returns the URL of a proxy in front of this server, on another loopback port.
    pub(crate) fn url_at(&self, port: u16) -> String {
        self.url_to((Ipv4Addr::LOCALHOST, port).into())
    }

    fn url_to(&self, address: SocketAddr) -> String {
        match self.config.asks_for() {
            Some(password) => format!("redis://:{password}@{address}/0"),
            None => format!("redis://{address}/0"),
        }
    }

    /// Returns the server's directory, with its append-only file, its socket and its log.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Returns the Unix socket, if [`RedisConfig::unix_socket`] asked for one.
    pub fn socket(&self) -> Option<PathBuf> {
        self.config.has_socket().then(|| self.dir.path().join("s"))
    }

    /// Returns the server's log.
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("server.log")).unwrap_or_default()
    }

    /// Returns the product and the release of the server.
    ///
    /// # Panics
    /// If the server does not answer INFO with a version.
    pub fn version(&self) -> ServerVersion {
        let info = self.command(&["INFO", "server"]);
        #[expect(clippy::panic, reason = "a test that does not know its server cannot decide what to expect")]
        ServerVersion::parse(&info)
            .unwrap_or_else(|| panic!("redis-server on port {}: no version in {info:?}", self.port))
    }

    /// Returns the time at which `key` expires, in milliseconds of the server's clock. Redis before 7.0 lacks
    /// PEXPIRETIME. There a script computes the time.
    ///
    /// # Panics
    /// If the key does not exist or has no expiry.
    pub fn expires_at(&self, key: &str) -> u64 {
        let reply = if self.version().is_redis_before(7, 0) {
            self.command(&["EVAL", EXPIRES_AT, "1", key])
        } else {
            self.command(&["PEXPIRETIME", key])
        };
        #[expect(clippy::panic, reason = "a test that expects an expiry has failed")]
        reply.parse().unwrap_or_else(|_| panic!("redis-server on port {}: {key} expires {reply}", self.port))
    }

    /// Kills the process at once (SIGKILL) and reaps it. Data that the configuration does not persist is
    /// lost.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // SIGKILL also ends a stopped process. SIGCONT is sent before as a precaution, in case the process
            // is traced.
            let _ = signal(&child, Signal::CONT);
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Kills the process if it runs, and starts it again on the same port: empty, or with the data that the
    /// configuration persists.
    ///
    /// # Errors
    /// [`StartError`] if it does not start.
    pub fn restart(&mut self) -> Result<(), StartError> {
        self.kill();
        let give_up = SystemWorld.now() + PATIENCE;
        loop {
            match self.spawn() {
                // The start may fail because the kernel gave the port to an outgoing connection for a moment.
                // In that case the start is repeated.
                Err(StartError::Ended(_)) if SystemWorld.now() < give_up => thread::sleep(LOOK_EVERY),
                done => return done,
            }
        }
    }

    /// Kills the process if it runs, and deletes all data that it has persisted. A [`RedisServer::restart`] then starts
    /// it empty.
    ///
    /// # Errors
    /// If the data cannot be deleted.
    pub fn wipe(&mut self) -> io::Result<()> {
        self.kill();
        // Redis 6.2 has a single file.
        let place = self.dir.path();
        for removed in
            [fs::remove_dir_all(place.join("appendonlydir")), fs::remove_file(place.join("appendonly.aof"))]
        {
            removed
                .or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })?;
        }
        Ok(())
    }

    /// Stops the process (SIGSTOP). Its sockets stay open, but it answers no command.
    pub fn pause(&self) {
        self.must_signal(Signal::STOP);
        if let Some(pid) = self.pid() {
            wait_for(PATIENCE, || is_stopped(pid));
        }
    }

    /// Lets the process continue (SIGCONT).
    pub fn resume(&self) {
        self.must_signal(Signal::CONT);
    }

    /// Steps the server's wall clock by `by`, and returns once the server shows the step: forward if `forward`, otherwise back. The server's
    /// monotonic clock is not changed. The step persists over a restart of the server, as a step of a
    /// machine's clock does.
    ///
    /// # Panics
    /// If [`RedisConfig::own_clock`] was not set: without its own clock the server would not see the step, and the test
    /// would prove nothing.
    pub fn step_clock(&self, by: Duration, forward: bool) {
        let Some(clock) = &self.clock else {
            #[expect(clippy::panic, reason = "a test that steps a clock that is not there is wrong")]
            {
                panic!("redis-server on port {} has the machine's clock", self.port)
            }
        };
        if let Err(error) = clock.step(by, forward) {
            #[expect(clippy::panic, reason = "a fault that was not made proves nothing")]
            {
                panic!("redis-server on port {}: its clock: {error}", self.port)
            }
        }
        thread::sleep(WALL_CLOCK_READ_EVERY);
    }

    /// Makes the server forget every key in every database.
    pub fn flushall(&self) {
        self.command(&["FLUSHALL"]);
    }

    /// Runs a command and returns its reply as text. A string is unchanged, nil is `(nil)`, an array has one
    /// line for each item, and an error is `(error) …`.
    ///
    /// # Panics
    /// If the server does not answer, because the test cannot continue.
    pub fn command(&self, args: &[&str]) -> String {
        match self.try_command(args) {
            Ok(reply) => reply,
            #[expect(clippy::panic, reason = "a test that cannot reach its own server has failed")]
            Err(error) => panic!("redis-server on port {}: {args:?}: {error}", self.port),
        }
    }

    /// Runs a command as [`RedisServer::command`] does, on a server that may not answer.
    ///
    /// # Errors
    /// If there is no connection, or no reply within ten seconds.
    pub fn try_command(&self, args: &[&str]) -> Result<String, RedisError> {
        let info = self.url().into_connection_info()?;
        let client = redis::Client::open(info)?;
        let mut connection = client.get_connection_with_timeout(PATIENCE)?;
        connection.set_read_timeout(Some(PATIENCE))?;
        let mut command = redis::Cmd::new();
        for arg in args {
            command.arg(*arg);
        }
        Ok(match command.query::<Value>(&mut connection) {
            Ok(value) => text_of(&value),
            Err(error) if error.is_io_error() => return Err(error),
            Err(error) => format!("(error) {error}"),
        })
    }

    fn spawn(&mut self) -> Result<(), StartError> {
        let dir = self.dir.path();
        let conf = dir.join("redis.conf");
        fs::write(&conf, self.config.render(self.port, dir, &dir.join("s")))?;
        let program = program::program();
        let mut command = match self.config.machine() {
            Some(machine) => machine.command(&program),
            None => Command::new(&program),
        };
        command.arg(&conf).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if let Some(clock) = &self.clock {
            clock.preload(&mut command);
        }
        if self.config.has_own_group() {
            command.process_group(0);
        }
        let child = command.spawn().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                StartError::Missing(format!("{}: {}", program.display(), program::missing(&program)))
            }
            _ => StartError::Io(error),
        })?;
        let pid = child.id();
        self.child = Some(child);
        self.wait_until_it_answers()?;
        match &self.clock {
            Some(clock) if !clock.rules(pid) => {
                Err(StartError::NoClock("redis-server did not take the preloaded library".to_owned()))
            }
            _ => Ok(()),
        }
    }

    fn wait_until_it_answers(&mut self) -> Result<(), StartError> {
        let give_up = SystemWorld.now() + PATIENCE;
        loop {
            // A PONG counts only while the child process runs. If another server took the port first, the child
            // has ended, and the PONG came from that other server.
            if self.child.as_mut().is_some_and(|child| !matches!(child.try_wait(), Ok(None))) {
                self.child = None;
                return Err(StartError::Ended(self.log()));
            }
            match self.try_command(&["PING"]) {
                Ok(reply) if reply == "PONG" => return Ok(()),
                _ if SystemWorld.now() < give_up => thread::sleep(LOOK_EVERY),
                Ok(reply) => return Err(StartError::NoPong(reply)),
                Err(error) => return Err(StartError::NoPong(error.to_string())),
            }
        }
    }

    fn must_signal(&self, sent: Signal) {
        let Some(child) = &self.child else {
            #[expect(clippy::panic, reason = "a test that signals a server it has killed is wrong")]
            {
                panic!("redis-server on port {} does not run", self.port)
            }
        };
        if let Err(error) = signal(child, sent) {
            #[expect(clippy::panic, reason = "a fault that was not made proves nothing")]
            {
                panic!("redis-server on port {}: {sent:?}: {error}", self.port)
            }
        }
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
    }
}

impl fmt::Debug for RedisServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisServer")
            .field("port", &self.port)
            .field("pid", &self.pid())
            .finish_non_exhaustive()
    }
}

/// The reason why no server could be started for a test.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The server's program does not exist. The text has its name and the fix.
    #[error("{0}")]
    Missing(String),
    /// The server ended at once.
    #[error("redis-server ended at once; its log says: {0}")]
    Ended(String),
    /// The server runs but does not answer.
    #[error("redis-server did not answer PING in {PATIENCE:?}: {0}")]
    NoPong(String),
    /// No C compiler is installed.
    #[error(
        "cc is not installed, and tests that step a server's clock need it; install it with `bash tests/run.sh`, or \
         `apt-get install gcc libc6-dev`, `dnf install gcc`, `apk add build-base`"
    )]
    NoCompiler,
    /// The library that gives the server a clock of its own could not be compiled or loaded. The library
    /// works on 64-bit Linux only.
    #[error("redis-server has no clock of its own (64-bit Linux only): {0}")]
    NoClock(String),
    /// The directory, the port or the process could not be created.
    #[error("redis-server could not be started: {0}")]
    Io(#[from] io::Error),
}

// `unwrap` prints this text. A sentence is more useful there than the structure of the error.
impl fmt::Debug for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn signal(child: &Child, sent: Signal) -> io::Result<()> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| io::Error::other("the process has no id"))?;
    Ok(kill_process(pid, sent)?)
}

/// Returns `true` if the process is stopped, or if there is no such entry in `/proc`.
fn is_stopped(pid: u32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return true };
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('T'))
}

fn wait_for(patience: Duration, mut condition: impl FnMut() -> bool) {
    let give_up = SystemWorld.now() + patience;
    while !condition() && SystemWorld.now() < give_up {
        thread::sleep(LOOK_EVERY);
    }
}

fn text_of(value: &Value) -> String {
    match value {
        Value::Nil => "(nil)".to_owned(),
        Value::Int(number) => number.to_string(),
        Value::Okay => "OK".to_owned(),
        Value::SimpleString(text) => text.clone(),
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::Array(items) => items.iter().map(text_of).collect::<Vec<_>>().join("\n"),
        Value::ServerError(error) => format!("(error) {error}"),
        other => format!("{other:?}"),
    }
}
