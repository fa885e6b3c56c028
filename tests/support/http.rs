use super::{PATIENCE, Running, until};
use serde_json::Value;
use std::{
    fmt,
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
};

/// The text before the address in the log of a daemon.
const LISTENING: &str = "listening for HTTP on http://";

/// A client of a daemon's HTTP server. Each request uses a connection of its own.
#[derive(Clone, Debug)]
pub struct Http {
    address: SocketAddr,
    /// A unix socket to connect to, in place of the address.
    socket: Option<PathBuf>,
    token: Option<String>,
}

/// A connection.
trait ReadWrite: Read + Write {}

impl<T: Read + Write> ReadWrite for T {}

/// The response to a request.
#[derive(Clone, Debug)]
pub struct Response {
    /// The status, such as 200.
    pub status: u16,
    /// The status line and the headers, in lower case.
    pub head: String,
    /// The body, decoded as UTF-8.
    pub body: String,
}

impl Http {
    /// Waits until the daemon listens, and returns a client. The daemon's address has port 0 in its configuration.
    #[track_caller]
    pub fn of(daemon: &Running) -> Self {
        let address = until("an address to connect to", PATIENCE, || {
            let log = daemon.stderr();
            log.lines().find_map(|line| line.split_once(LISTENING)?.1.trim().parse().ok())
        });
        Self { address, socket: None, token: None }
    }

    /// Returns a client of a unix socket.
    pub fn of_socket(path: &Path) -> Self {
        Self { address: ([127, 0, 0, 1], 0).into(), socket: Some(path.to_owned()), token: None }
    }

    /// Returns a client of an address of this machine.
    pub fn of_address(address: SocketAddr) -> Self {
        Self { address, socket: None, token: None }
    }

    /// Returns a client that sends this token.
    #[must_use]
    pub fn with_token(&self, token: &str) -> Self {
        Self { token: Some(token.to_owned()), ..self.clone() }
    }

    /// Returns the address of the server.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Connects without sending anything.
    ///
    /// # Errors
    /// The error of the connection.
    pub fn connect(&self) -> io::Result<TcpStream> {
        let stream = TcpStream::connect_timeout(&self.address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(stream)
    }

    /// Sends these bytes, and returns what the server sends before it closes the connection.
    ///
    /// # Errors
    /// An error of the connection, such as a reset.
    pub fn send(&self, request: &[u8]) -> io::Result<Vec<u8>> {
        let exchange = |mut stream: Box<dyn ReadWrite>| {
            let mut answer = Vec::new();
            stream.write_all(request)?;
            stream.read_to_end(&mut answer)?;
            Ok(answer)
        };
        match &self.socket {
            None => exchange(Box::new(self.connect()?)),
            Some(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                exchange(Box::new(stream))
            }
        }
    }

    /// Sends a request with these further header lines.
    ///
    /// # Errors
    /// An error of the connection, or an answer that is not HTTP.
    pub fn try_request(&self, method: &str, path: &str, headers: &str, body: &str) -> io::Result<Response> {
        let host = if headers.to_lowercase().contains("host:") {
            String::new()
        } else {
            format!("Host: {}\r\n", self.address)
        };
        let token = self
            .token
            .as_ref()
            .map_or_else(String::new, |token| format!("Authorization: Bearer {token}\r\n"));
        let request = format!(
            "{method} {path} HTTP/1.1\r\n{host}{token}{headers}Connection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let answer = String::from_utf8_lossy(&self.send(request.as_bytes())?).into_owned();
        Response::parse(&answer).ok_or_else(|| io::Error::other(format!("not HTTP: {answer:?}")))
    }

    /// Sends a request with these further header lines.
    #[track_caller]
    pub fn request(&self, method: &str, path: &str, headers: &str, body: &str) -> Response {
        self.try_request(method, path, headers, body)
            .unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    /// Reads a path.
    #[track_caller]
    pub fn get(&self, path: &str) -> Response {
        self.request("GET", path, "", "")
    }

    /// Returns the status of a path; `None` if the server does not answer.
    pub fn status(&self, path: &str) -> Option<u16> {
        self.try_request("GET", path, "", "").ok().map(|response| response.status)
    }

    /// Sends a body to a path.
    #[track_caller]
    pub fn post(&self, path: &str, body: &str) -> Response {
        self.request("POST", path, "", body)
    }

    /// Returns the value of a series of `/metrics`, such as `quorate_leader{group="g"}`.
    #[track_caller]
    pub fn metric(&self, series: &str) -> f64 {
        let text = self.get("/metrics").expect(200).body;
        let value = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok());
        value.unwrap_or_else(|| panic!("no {series} in {text}"))
    }
}

impl Response {
    fn parse(text: &str) -> Option<Self> {
        let (head, body) = text.split_once("\r\n\r\n")?;
        let status = head.strip_prefix("HTTP/1.1 ")?.split(' ').next()?.parse().ok()?;
        Some(Self { status, head: head.to_lowercase(), body: body.to_owned() })
    }

    /// Returns the response if it has this status.
    ///
    /// # Panics If the response has another status.
    #[track_caller]
    pub fn expect(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{self}");
        self
    }

    /// Returns the body as JSON.
    ///
    /// # Panics
    /// If it is not JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        assert!(self.head.contains("content-type: application/json"), "{self}");
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self}"))
    }

    /// Returns the text of an error.
    ///
    /// # Panics
    /// If the body is not an error with the status of the response.
    #[track_caller]
    pub fn error(&self) -> String {
        let body = self.json();
        assert_eq!(body["status"].as_u64(), Some(self.status.into()), "{self}");
        body["error"].as_str().unwrap_or_else(|| panic!("{self}")).to_owned()
    }
}

impl fmt::Display for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n{}", self.head, self.body)
    }
}
