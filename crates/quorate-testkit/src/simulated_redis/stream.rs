use super::{Connection, Database, Facts, ServerProcess, Subscribers, resp};
use std::{
    collections::BTreeMap,
    io,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A server with the connections of its clients.
pub(super) struct Hub {
    pub(super) server: ServerProcess,
    pub(super) database: Database,
    pub(super) facts: Facts,
    /// Returns the server's clock, in microseconds.
    clock: Box<dyn Fn() -> u64 + Send>,
    clients: BTreeMap<u64, Client>,
    opened: u64,
}

/// The server's end of a connection.
#[derive(Default)]
struct Client {
    connection: Connection,
    input: Vec<u8>,
    output: Vec<u8>,
    reader: Option<Waker>,
    closed: bool,
}

impl Client {
    fn wake(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

/// The number of subscribers of each channel.
#[derive(Debug)]
struct Counts(BTreeMap<Vec<u8>, usize>);

impl Subscribers for Counts {
    fn count(&self, channel: &[u8]) -> usize {
        self.0.get(channel).copied().unwrap_or_default()
    }
}

impl Hub {
    pub(super) fn new(
        server: ServerProcess,
        database: Database,
        facts: Facts,
        clock: impl Fn() -> u64 + Send + 'static,
    ) -> Self {
        Self { server, database, facts, clock: Box::new(clock), clients: BTreeMap::new(), opened: 0 }
    }

    /// Closes all connections.
    pub(super) fn close_all(&mut self) {
        for client in self.clients.values_mut() {
            client.closed = true;
            client.wake();
        }
    }

    /// Runs the commands in `bytes`, after those that the client sent before.
    fn receive(&mut self, number: u64, bytes: &[u8]) {
        let Some(mut client) = self.clients.remove(&number) else { return };
        client.input.extend_from_slice(bytes);
        self.database.now_micros = (self.clock)();
        let mut done = 0;
        while !client.closed {
            let mut counts = BTreeMap::new();
            let others = self.clients.values().map(|client| &client.connection);
            for channel in others.chain([&client.connection]).flat_map(|one| &one.channels) {
                *counts.entry(channel.clone()).or_default() += 1;
            }
            self.database.subscribers = Box::new(Counts(counts));
            match resp::command(&client.input[done..]) {
                Ok(Some((args, length))) => {
                    let reply =
                        self.server.run(&mut self.database, &mut client.connection, &self.facts, &args);
                    client.connection.write(&reply, &mut client.output);
                    done += length;
                }
                Ok(None) => break,
                Err(_) => client.closed = true,
            }
        }
        client.input.drain(..done);
        client.wake();
        self.clients.insert(number, client);
        self.deliver();
    }

    /// Sends the published messages to their subscribers.
    fn deliver(&mut self) {
        for (channel, message) in std::mem::take(&mut self.database.published) {
            let push =
                super::Reply::Push(["message".as_bytes(), &channel, &message].map(super::Reply::bulk).into());
            for client in self.clients.values_mut().filter(|one| one.connection.channels.contains(&channel)) {
                client.connection.write(&push, &mut client.output);
                client.wake();
            }
        }
    }
}

/// The client's end of a connection. What the client writes runs at once, and the replies can then be read.
pub(super) struct Stream {
    hub: Arc<Mutex<Hub>>,
    number: u64,
}

impl Stream {
    pub(super) fn open(hub: &Arc<Mutex<Hub>>) -> Self {
        let mut locked = lock(hub);
        locked.opened += 1;
        let number = locked.opened;
        locked.clients.insert(number, Client::default());
        Self { hub: Arc::clone(hub), number }
    }
}

pub(super) fn lock(hub: &Mutex<Hub>) -> MutexGuard<'_, Hub> {
    hub.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Stream {
    fn drop(&mut self) {
        lock(&self.hub).clients.remove(&self.number);
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut hub = lock(&self.hub);
        if hub.clients.get(&self.number).is_none_or(|client| client.closed) {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        hub.receive(self.number, bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Nothing more comes from the client, and all its commands have run. So the server closes its end, too.
        if let Some(client) = lock(&self.hub).clients.get_mut(&self.number) {
            client.closed = true;
            client.wake();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut hub = lock(&self.hub);
        let Some(client) = hub.clients.get_mut(&self.number) else { return Poll::Ready(Ok(())) };
        let some = client.output.len().min(into.remaining());
        into.put_slice(&client.output[..some]);
        client.output.drain(..some);
        if some == 0 && !client.closed {
            client.reader = Some(context.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }
}
