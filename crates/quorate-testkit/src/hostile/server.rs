use super::{
    Hostility,
    answers::{Conversation, ServerReply},
    command,
};
use std::{
    io::{self, BufReader, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

/// The time between two bytes under [`Hostility::Drip`].
const DROP_EVERY: Duration = Duration::from_millis(10);

/// A server with one [`Hostility`], on a free loopback port. Dropping the value closes every connection and
/// ends the server's threads.
#[derive(Debug)]
pub struct HostileServer {
    port: u16,
    shared: Arc<Shared>,
    listening: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    hostility: Hostility,
    port: u16,
    /// The open connections. `None` once the server accepts no more connections.
    open: Mutex<Option<Vec<TcpStream>>>,
    marker: Mutex<Option<Vec<u8>>>,
    connections: AtomicU64,
    batches: AtomicU64,
    /// The scripts that the client loaded on the last connection and for which no call was served.
    not_served: Mutex<Vec<usize>>,
}

impl HostileServer {
    /// Starts a server.
    ///
    /// # Errors
    /// If no port is free.
    pub fn start(hostility: Hostility) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let shared = Arc::new(Shared {
            hostility,
            port,
            open: Mutex::new(Some(Vec::new())),
            marker: Mutex::default(),
            connections: AtomicU64::new(0),
            batches: AtomicU64::new(0),
            not_served: Mutex::default(),
        });
        let work = Arc::clone(&shared);
        let listening = thread::spawn(move || work.listen(&listener));
        Ok(Self { port, shared, listening: Some(listening) })
    }

    /// Returns the server's URL with `password`. A client that connects with this URL first authenticates.
    pub fn url(&self, password: &str) -> String {
        format!("redis://:{password}@127.0.0.1:{}", self.port)
    }

    /// Returns the number of connections that clients have made.
    pub fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::Relaxed)
    }

    /// Returns the number of script calls that the server has received.
    pub fn batches(&self) -> u64 {
        self.shared.batches.load(Ordering::Relaxed)
    }

    /// Returns the numbers of the scripts that the client loaded on its last connection and of which no call was
    /// served. Either the client did not call them, or the server does not know them.
    pub fn scripts_not_served(&self) -> Vec<usize> {
        self.shared.not_served.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for HostileServer {
    fn drop(&mut self) {
        let open = self.shared.open.lock().unwrap_or_else(PoisonError::into_inner).take();
        for stream in open.into_iter().flatten() {
            let _ = stream.shutdown(Shutdown::Both);
        }
        // This connection wakes the thread that accepts connections.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        if let Some(listening) = self.listening.take() {
            let _ = listening.join();
        }
    }
}

impl Shared {
    fn listen(self: &Arc<Self>, listener: &TcpListener) {
        let mut talking = Vec::new();
        while let Ok((stream, _)) = listener.accept() {
            let Ok(other) = stream.try_clone() else { break };
            match &mut *self.open.lock().unwrap_or_else(PoisonError::into_inner) {
                Some(open) => open.push(other),
                None => break,
            }
            let (me, connection) = (Arc::clone(self), self.connections.fetch_add(1, Ordering::Relaxed));
            talking.push(thread::spawn(move || {
                // The connection ends after the conversation, even if the conversation failed.
                let _ = me.talk(&stream, connection);
                let _ = stream.shutdown(Shutdown::Both);
            }));
        }
        for talk in talking {
            let _ = talk.join();
        }
    }

    fn talk(&self, stream: &TcpStream, connection: u64) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let marker = self.marker.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut conversation = Conversation::new(self.hostility, self.port, connection, marker);
        let mut from = BufReader::new(stream.try_clone()?);
        let mut to = stream;
        while let Some(command) = command::read(&mut from)? {
            if command.first().is_some_and(|word| word == b"EVALSHA") {
                self.batches.fetch_add(1, Ordering::Relaxed);
            }
            let deed = conversation.answer(&command);
            *self.not_served.lock().unwrap_or_else(PoisonError::into_inner) =
                conversation.scripts_not_served();
            *self.marker.lock().unwrap_or_else(PoisonError::into_inner) = conversation.marker();
            match deed {
                ServerReply::Say(bytes) => to.write_all(&bytes)?,
                ServerReply::SayAndClose(bytes) => return to.write_all(&bytes),
                ServerReply::Drip(bytes) => {
                    for byte in bytes {
                        to.write_all(&[byte])?;
                        thread::sleep(DROP_EVERY);
                    }
                }
                ServerReply::Flood(bytes) => {
                    to.write_all(&bytes)?;
                    let more = [b'x'; 1 << 16];
                    loop {
                        to.write_all(&more)?;
                    }
                }
                ServerReply::Nothing => {}
            }
        }
        Ok(())
    }
}
