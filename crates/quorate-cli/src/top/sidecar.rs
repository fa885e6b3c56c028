//! Reads the leases of a sidecar's clients, from the address for operators of `quorate serve`, or with a token from a socket.

use crate::files;
use axum::body::{Body, to_bytes};
use hyper::{Request, StatusCode, client::conn::http1, header};
use hyper_util::rt::TokioIo;
use quorate::plain::plain;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_util::either::Either;

/// The longest answer, in bytes.
const ANSWER_MAX: usize = 64 * 1024 * 1024;
/// The longest text that is shown, in bytes.
const SHOWN_MAX: usize = 200;

/// A sidecar, whose clients' leases are shown.
#[derive(Clone, Debug)]
pub(super) struct Sidecar {
    /// `unix:PATH`, or an IP address and a port.
    pub(super) address: String,
    pub(super) token_file: Option<PathBuf>,
}

/// A lease of a client.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct LeaseLine {
    pub(super) client: String,
    pub(super) names: Vec<String>,
    pub(super) state: String,
    pub(super) age_ms: u64,
    pub(super) quiet_ms: u64,
}

#[derive(Deserialize)]
struct Listed {
    leases: Vec<LeaseLine>,
}

impl Sidecar {
    /// Reads the leases.
    pub(super) async fn read(&self) -> Result<Vec<LeaseLine>, String> {
        let stream = match self.address.strip_prefix("unix:") {
            Some(path) => UnixStream::connect(Path::new(path)).await.map(Either::Right),
            None => TcpStream::connect(&self.address).await.map(Either::Left),
        };
        let at = |error: &dyn std::fmt::Display| format!("{}: {error}", self.address);
        let stream = stream.map_err(|error| at(&error))?;
        let mut request = Request::get("/api/v1/leases").header(header::HOST, "localhost");
        if let Some(file) = &self.token_file {
            let token = files::read_apart(file).map_err(|error| format!("{}: {error}", file.display()))?;
            request = request.header(header::AUTHORIZATION, format!("Bearer {}", token.trim()));
        }
        let request = request.body(Body::empty()).map_err(|error| at(&error))?;
        let (mut sender, connection) =
            http1::handshake::<_, Body>(TokioIo::new(stream)).await.map_err(|error| at(&error))?;
        let answer = async move {
            let answer = sender.send_request(request).await.map_err(|error| error.to_string())?;
            let status = answer.status();
            let body = to_bytes(Body::new(answer.into_body()), ANSWER_MAX)
                .await
                .map_err(|error| error.to_string())?;
            Ok::<_, String>((status, body))
        };
        // The connection ends once its sender is dropped. An error of it is also one of the answer.
        let (_, answer) = futures_util::join!(connection, answer);
        let (status, body) = answer.map_err(|error| at(&error))?;
        if status != StatusCode::OK {
            let text: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
            return Err(at(&plain(
                text["error"].as_str().unwrap_or("no answer of quorate serve"),
                SHOWN_MAX * 2,
            )));
        }
        let listed: Listed = serde_json::from_slice(&body).map_err(|error| at(&error))?;
        Ok(listed.leases.into_iter().map(LeaseLine::shown).collect())
    }
}

impl LeaseLine {
    /// Returns the line with texts that a terminal can show.
    fn shown(self) -> Self {
        let names = self.names.iter().map(|name| plain(name, SHOWN_MAX)).collect();
        Self { client: plain(&self.client, SHOWN_MAX), names, state: plain(&self.state, SHOWN_MAX), ..self }
    }
}
