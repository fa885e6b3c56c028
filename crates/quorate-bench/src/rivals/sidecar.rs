//! A client of `quorate serve` on a unix socket. The daemon is this program, started again.

use super::shared::TTL;
use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Mutex,
    time::Duration,
};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::UnixStream,
};

/// The time between two looks at a daemon that starts.
const LOOK: Duration = Duration::from_millis(20);
/// The number of looks at a daemon that starts.
const LOOKS: u32 = 500;

/// A daemon, and the connections of its client.
pub(crate) struct Sidecar {
    daemon: Daemon,
    connections: Mutex<Vec<Connection>>,
}

/// A lease of the client.
pub(crate) struct SidecarLease {
    id: String,
}

/// A process that serves. Dropping it ends it.
struct Daemon {
    child: Child,
    /// The socket, and the configuration.
    files: [PathBuf; 2],
}

type Connection = BufReader<UnixStream>;

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
        for file in &self.files {
            let _ = std::fs::remove_file(file);
        }
    }
}

impl Sidecar {
    /// Starts a daemon on these servers, and waits until it is ready.
    pub(crate) async fn start(urls: &[String]) -> Result<Self, String> {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let name = |end| std::env::temp_dir().join(format!("quorate-bench-{}.{end}", std::process::id()));
        let (socket, config) = (name("sock"), name("toml"));
        // All workers on these servers trust new nodes.
        let text = format!("nodes = {urls:?}\ntrust_new_nodes = true\n");
        std::fs::write(&config, text).map_err(|error| format!("{}: {error}", config.display()))?;
        let mut command = Command::new(program);
        command.args(["serve", "--log-level", "warn", "--config"]).arg(&config).arg("--listen");
        command.arg(format!("unix:{}", socket.display())).stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.spawn().map_err(|error| format!("cannot start the daemon: {error}"))?;
        let sidecar =
            Self { daemon: Daemon { child, files: [socket, config] }, connections: Mutex::default() };
        for _ in 0..LOOKS {
            if let Ok((200, _)) = sidecar.request("GET", "/readyz", "").await {
                return Ok(sidecar);
            }
            pause().await;
        }
        Err("the daemon is not ready".to_owned())
    }

    pub(crate) async fn acquire(&self, resource: &str) -> Option<SidecarLease> {
        let body = format!("{{\"lock\":\"{resource}\",\"ttl\":\"{}s\"}}", TTL.as_secs());
        let (status, document) = self.request("POST", "/api/v1/leases", &body).await.ok()?;
        let document: serde_json::Value = serde_json::from_str(&document).ok().filter(|_| status == 200)?;
        Some(SidecarLease { id: document["id"].as_str()?.to_owned() })
    }

    pub(crate) async fn release(&self, lease: SidecarLease) {
        // The lease may have ended.
        let _ = self.request("DELETE", &format!("/api/v1/leases/{}", lease.id), "").await;
    }

    /// Sends a request on a connection that is free, or on a new one. Returns the status and the body.
    async fn request(&self, method: &str, path: &str, body: &str) -> Result<(u16, String), String> {
        let free = self.connections.lock().map_err(|error| error.to_string())?.pop();
        let mut connection = match free {
            Some(connection) => connection,
            None => connect(&self.daemon.files[0]).await?,
        };
        let answer = match exchange(&mut connection, method, path, body).await {
            Ok(answer) => answer,
            // The daemon ends a connection after a minute.
            Err(_) => {
                connection = connect(&self.daemon.files[0]).await?;
                exchange(&mut connection, method, path, body).await?
            }
        };
        self.connections.lock().map_err(|error| error.to_string())?.push(connection);
        Ok(answer)
    }
}

async fn pause() {
    #[expect(clippy::disallowed_methods, reason = "a program's edge: nothing is measured yet")]
    tokio::time::sleep(LOOK).await;
}

async fn connect(socket: &Path) -> Result<Connection, String> {
    let stream = UnixStream::connect(socket).await.map_err(|error| error.to_string())?;
    Ok(BufReader::new(stream))
}

async fn exchange(
    connection: &mut Connection,
    method: &str,
    path: &str,
    body: &str,
) -> Result<(u16, String), String> {
    let text = |error: std::io::Error| error.to_string();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    connection.get_mut().write_all(request.as_bytes()).await.map_err(text)?;
    let (mut status, mut length, mut line) = (0, 0, String::new());
    loop {
        line.clear();
        if connection.read_line(&mut line).await.map_err(text)? == 0 {
            return Err("the connection ended".to_owned());
        }
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        if let Some(rest) = line.strip_prefix("HTTP/1.1 ") {
            status = rest.get(..3).and_then(|code| code.parse().ok()).unwrap_or_default();
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().map_err(|_| format!("{line} is not a length"))?;
        }
    }
    let mut body = vec![0; length];
    connection.read_exact(&mut body).await.map_err(text)?;
    Ok((status, String::from_utf8_lossy(&body).into_owned()))
}
