use serde_json::Value;
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU16, Ordering},
    },
    thread,
};

/// A server that receives notifications on a free port of this machine. Its threads end with the test's process.
#[derive(Clone, Debug)]
pub struct Receiver {
    address: SocketAddr,
    /// The status of the answers; 0 for no answer.
    status: Arc<AtomicU16>,
    requests: Arc<Mutex<Vec<Received>>>,
}

/// A request that a [`Receiver`] has got.
#[derive(Clone, Debug)]
pub struct Received {
    /// The path, such as `/hook`.
    pub path: String,
    /// The header lines.
    pub head: String,
    /// The body, if it is text.
    pub body: String,
    /// The body.
    pub bytes: Vec<u8>,
}

impl Receiver {
    /// Starts a server that answers each request with this status. With `None` it reads the request and never answers.
    pub fn start(status: Option<u16>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let requests = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&requests);
        let status = Arc::new(AtomicU16::new(status.unwrap_or_default()));
        let answers = Arc::clone(&status);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (kept, answers) = (Arc::clone(&kept), Arc::clone(&answers));
                thread::spawn(move || {
                    let Some(request) = read(&stream) else { return };
                    kept.lock().unwrap_or_else(PoisonError::into_inner).push(request);
                    match answers.load(Ordering::Relaxed) {
                        // Waits until the client gives up.
                        0 => drop((&stream).read(&mut [0; 16])),
                        status => {
                            let answer = format!(
                                "HTTP/1.1 {status} X\r\nContent-Length: 0\r\nLocation: /other\r\n\r\n"
                            );
                            // The client may have gone.
                            let _ = (&stream).write_all(answer.as_bytes());
                        }
                    }
                });
            }
        });
        Self { address, status, requests }
    }

    /// Answers each further request with this status, or not at all.
    pub fn answer(&self, status: Option<u16>) {
        self.status.store(status.unwrap_or_default(), Ordering::Relaxed);
    }

    /// Returns the URL of a path.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Returns the requests so far.
    pub fn requests(&self) -> Vec<Received> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the messages of an event so far.
    pub fn events(&self, event: &str) -> Vec<Value> {
        let bodies = self
            .requests()
            .into_iter()
            .filter_map(|request| serde_json::from_str::<Value>(&request.body).ok());
        bodies.filter(|body| body["event"] == event).collect()
    }

    /// Returns the number of requests to a path so far.
    pub fn count(&self, path: &str) -> usize {
        self.requests().iter().filter(|request| request.path == path).count()
    }
}

fn read(stream: &TcpStream) -> Option<Received> {
    let mut reader = BufReader::new(stream);
    let mut first = String::new();
    reader.read_line(&mut first).ok()?;
    let path = first.split(' ').nth(1)?.to_owned();
    let mut head = String::new();
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if line.trim().is_empty() {
            break;
        }
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
        head += &line;
    }
    let mut bytes = vec![0; length];
    reader.read_exact(&mut bytes).ok()?;
    Some(Received { path, head, body: String::from_utf8_lossy(&bytes).into_owned(), bytes })
}
