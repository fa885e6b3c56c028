use super::job::{Dialect, Job, Poll};
use quorate::redis::probe::{self, Calls, ExpectedReply};
use quorate::{
    env::{SystemWorld, WallTime, World},
    node::{Batch, Request, Resource},
};
use redis::{Cmd, IntoConnectionInfo};
use std::{collections::VecDeque, io, mem, sync::Arc};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::mpsc,
};

/// The largest number of jobs in one write.
const BATCH_MAX: usize = 256;
/// The largest number of writes in flight. Jobs that arrive in the meantime are sent together in
/// the next write.
const WRITES_MAX: usize = 2;
/// The prefix of the keys of the rival `limit`.
const PREFIX: &str = "limit:";
/// The marker that is sent with Quorate's script calls.
const MARKER: &str = "no marker";

const COMPARE_AND_DELETE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

/// One connection to a server, and the protocol that its requests use.
pub(super) struct RawConnection {
    stream: TcpStream,
    /// The prefix of the keys. Each rival has its own, since a rival may leave locks behind at the end of a round.
    prefix: &'static str,
    encoding: Encoding,
    read: Vec<u8>,
    /// The replies that are pending.
    pending: VecDeque<Pending>,
    /// The number of unanswered commands of each write.
    in_flight: VecDeque<usize>,
}

/// A reply that is pending, with the polls in which its items are votes.
enum Pending {
    /// A reply to a script of Quorate.
    Call(Vec<Arc<Poll>>),
    /// A reply to a plain command.
    Command(Arc<Poll>),
    /// A reply to MULTI, or to a command in a transaction.
    Queued,
    /// The reply to EXEC.
    Transaction(Vec<Arc<Poll>>),
}

enum Encoding {
    Quorate(Box<Calls>),
    Plain(Box<Calls>),
    Bare { script: String },
}

impl RawConnection {
    pub(super) async fn open(url: &str, dialect: Dialect, of_majority: bool) -> Result<Self, String> {
        let fail = |error: io::Error| error.to_string();
        let prefix = match (dialect, of_majority) {
            (Dialect::Plain, _) => "plain:",
            (_, true) => "limit-3:",
            (_, false) => PREFIX,
        };
        let mut connection = Self::connect(url, prefix).await?;
        connection.encoding = match dialect {
            Dialect::Bare => {
                Encoding::Bare { script: connection.load(COMPARE_AND_DELETE).await.map_err(fail)? }
            }
            Dialect::Quorate | Dialect::Plain => {
                let set = redis::cmd("SET").arg(format!("{prefix}node")).arg(MARKER).get_packed_command();
                connection.call(&set).await.map_err(fail)?;
                let mut names = Vec::new();
                for source in probe::sources() {
                    names.push(connection.load(source).await.map_err(fail)?);
                }
                let calls = Box::new(Calls::new(prefix, names).ok_or("a script was not loaded")?);
                match dialect {
                    Dialect::Plain => Encoding::Plain(calls),
                    _ => Encoding::Quorate(calls),
                }
            }
        };
        Ok(connection)
    }

    async fn connect(url: &str, prefix: &'static str) -> Result<Self, String> {
        let info = url.into_connection_info().map_err(|error| error.to_string())?;
        let redis::ConnectionAddr::Tcp(host, port) = info.addr() else {
            return Err("the raw driver speaks plain TCP only; give a redis:// URL".to_owned());
        };
        let fail = |error: io::Error| error.to_string();
        let stream = TcpStream::connect((host.as_str(), *port)).await.map_err(fail)?;
        stream.set_nodelay(true).map_err(fail)?;
        Ok(Self {
            stream,
            prefix,
            encoding: Encoding::Bare { script: String::new() },
            read: Vec::new(),
            pending: VecDeque::new(),
            in_flight: VecDeque::new(),
        })
    }

    /// Subscribes to the releases of `resource`, as a session of Quorate with a waiter does.
    pub(super) async fn listen(url: &str, resource: &Resource) -> Result<Self, String> {
        let mut connection = Self::connect(url, PREFIX).await?;
        let calls = Calls::new(PREFIX, vec![String::new(); probe::sources().count()]);
        let calls = calls.ok_or("a name for each script is missing")?;
        for channel in [calls.waiters_channel(), calls.freed_channel(resource)] {
            let command = redis::cmd("SUBSCRIBE").arg(channel).get_packed_command();
            connection.call(&command).await.map_err(|error| error.to_string())?;
        }
        Ok(connection)
    }

    /// Returns the next push of a subscribed connection.
    pub(super) async fn push(&mut self) -> io::Result<Vec<u8>> {
        self.reply().await
    }

    /// Serves until all senders are dropped, or the connection breaks.
    pub(super) async fn drive(mut self, mut inbox: mpsc::UnboundedReceiver<Job>) {
        let mut waiting: Vec<Job> = Vec::new();
        loop {
            if !waiting.is_empty() && self.in_flight.len() < WRITES_MAX {
                let rest = waiting.split_off(waiting.len().min(BATCH_MAX));
                let bytes = self.encode(mem::replace(&mut waiting, rest));
                if self.stream.write_all(&bytes).await.is_err() {
                    return;
                }
                continue;
            }
            tokio::select! { biased;
                read = self.stream.read_buf(&mut self.read) => {
                    if !read.is_ok_and(|bytes| bytes > 0) {
                        return;
                    }
                    self.deliver();
                }
                count = inbox.recv_many(&mut waiting, BATCH_MAX) => {
                    if count == 0 {
                        return;
                    }
                }
            }
        }
    }

    fn encode(&mut self, jobs: Vec<Job>) -> Vec<u8> {
        let mut bytes = Vec::new();
        let before = self.pending.len();
        match &self.encoding {
            Encoding::Quorate(calls) => calls_of(calls, jobs, &mut bytes, &mut self.pending),
            Encoding::Plain(calls) => {
                let (acquires, releases): (Vec<_>, Vec<_>) =
                    jobs.into_iter().partition(|job| matches!(job.request, Request::Acquire { .. }));
                calls_of(calls, releases, &mut bytes, &mut self.pending);
                transaction(acquires, self.prefix, &mut bytes, &mut self.pending);
            }
            Encoding::Bare { script } => {
                for Job { request, poll } in jobs {
                    bare(&request, self.prefix, script).write_packed_command(&mut bytes);
                    self.pending.push_back(Pending::Command(poll));
                }
            }
        }
        self.in_flight.push_back(self.pending.len() - before);
        bytes
    }

    /// Delivers every complete reply that has arrived.
    fn deliver(&mut self) {
        let mut at = 0;
        while let Some(end) = reply_end(&self.read, at) {
            let reply = &self.read[at..end];
            match self.pending.pop_front() {
                Some(Pending::Command(poll)) => poll.vote(reply == b"+OK\r\n" || reply == b":1\r\n"),
                Some(Pending::Call(polls)) => {
                    polls.iter().zip(votes(reply)).for_each(|(poll, yes)| poll.vote(yes));
                }
                Some(Pending::Transaction(polls)) => {
                    polls.iter().zip(grants(reply)).for_each(|(poll, yes)| poll.vote(yes));
                }
                Some(Pending::Queued) | None => {}
            }
            at = end;
            if let Some(remaining) = self.in_flight.front_mut() {
                *remaining -= 1;
                if *remaining == 0 {
                    self.in_flight.pop_front();
                }
            }
        }
        self.read.drain(..at);
    }

    async fn load(&mut self, script: &str) -> io::Result<String> {
        let reply = self.call(&redis::cmd("SCRIPT").arg("LOAD").arg(script).get_packed_command()).await?;
        let name = String::from_utf8_lossy(&reply).lines().nth(1).unwrap_or_default().to_owned();
        Ok(name)
    }

    async fn call(&mut self, command: &[u8]) -> io::Result<Vec<u8>> {
        self.stream.write_all(command).await?;
        self.reply().await
    }

    async fn reply(&mut self) -> io::Result<Vec<u8>> {
        loop {
            if let Some(end) = reply_end(&self.read, 0) {
                return Ok(self.read.drain(..end).collect());
            }
            if self.stream.read_buf(&mut self.read).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

/// Appends the script calls of Quorate's encoder.
fn calls_of(calls: &Calls, jobs: Vec<Job>, bytes: &mut Vec<u8>, pending: &mut VecDeque<Pending>) {
    if jobs.is_empty() {
        return;
    }
    let (requests, polls): (Vec<_>, Vec<_>) = jobs.into_iter().map(|job| (job.request, job.poll)).unzip();
    let not_after = WallTime::from_micros(1 << 60);
    let (encoded, expected, order) = calls.encode(&Batch { requests, not_after, stamp: MARKER.into() });
    bytes.extend(encoded);
    let mut polls = order.iter().map(|position| Arc::clone(&polls[*position]));
    pending.extend(expected.into_iter().map(|reply| match reply {
        ExpectedReply::Items(items) | ExpectedReply::Commands { acquires: items, .. } => {
            Pending::Call(polls.by_ref().take(items).collect())
        }
        ExpectedReply::Page => Pending::Call(Vec::new()),
    }));
}

/// Appends the transaction with which Quorate acquires locks that it knows.
fn transaction(jobs: Vec<Job>, prefix: &str, bytes: &mut Vec<u8>, pending: &mut VecDeque<Pending>) {
    if jobs.is_empty() {
        return;
    }
    let mut queues = redis::cmd("EXISTS");
    redis::cmd("MULTI").write_packed_command(bytes);
    pending.push_back(Pending::Queued);
    let mut polls = Vec::with_capacity(jobs.len());
    for Job { request, poll } in jobs {
        let Request::Acquire { resource, owner, ttl, .. } = &request else { continue };
        let end = (SystemWorld.wall() + *ttl).as_micros() / 1_000;
        let mut set = redis::cmd("SET");
        let key = resource.key();
        set.arg(format!("{prefix}{key}")).arg(owner.as_str()).arg(&["NX", "GET", "PXAT"]).arg(end);
        set.write_packed_command(bytes);
        let counter = format!("{{{prefix}{key}}}:fence");
        redis::cmd("INCRBY").arg(counter).arg(1).write_packed_command(bytes);
        queues.arg(format!("{{{prefix}{key}}}:queue"));
        pending.extend([Pending::Queued, Pending::Queued]);
        polls.push(poll);
    }
    queues.write_packed_command(bytes);
    redis::cmd("GET").arg(format!("{prefix}node")).write_packed_command(bytes);
    redis::cmd("TIME").write_packed_command(bytes);
    redis::cmd("EXEC").write_packed_command(bytes);
    pending.extend([Pending::Queued, Pending::Queued, Pending::Queued, Pending::Transaction(polls)]);
}

fn bare(request: &Request, prefix: &str, script: &str) -> Cmd {
    let mut command = Cmd::new();
    match request {
        Request::Acquire { resource, owner, ttl, .. } => {
            command.arg("SET").arg(format!("{prefix}bare:{resource}")).arg(owner.as_str());
            command.arg("NX").arg("PX").arg(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX));
        }
        Request::Release { resource, owner } => {
            command.arg("EVALSHA").arg(script).arg(1);
            command.arg(format!("{prefix}bare:{resource}")).arg(owner.as_str());
        }
        // The raw driver sends no other request.
        _ => {
            command.arg("PING");
        }
    }
    command
}

/// Returns the end of the reply that begins at `at`, if it is complete.
fn reply_end(bytes: &[u8], at: usize) -> Option<usize> {
    let (mut at, mut values) = (at, 1_usize);
    while values > 0 {
        let end = at + bytes.get(at..)?.windows(2).position(|two| two == b"\r\n")?;
        let number = || std::str::from_utf8(bytes.get(at + 1..end)?).ok()?.parse::<i64>().ok();
        values -= 1;
        match bytes[at] {
            b'$' => {
                let length = usize::try_from(number()?).map_or(0, |length| length + 2);
                at = end + 2 + length;
                if at > bytes.len() {
                    return None;
                }
            }
            b'*' => {
                values += usize::try_from(number()?).unwrap_or(0);
                at = end + 2;
            }
            _ => at = end + 2,
        }
    }
    Some(at)
}

/// Returns for each item of a script's reply whether it is a grant. The reply begins with the node's time.
fn votes(reply: &[u8]) -> impl Iterator<Item = bool> {
    let head = reply.windows(2).position(|two| two == b"\r\n").map_or(reply.len(), |end| end + 2);
    let mut at = reply_end(reply, head).unwrap_or(reply.len());
    std::iter::from_fn(move || {
        let end = reply_end(reply, at)?;
        let item = &reply[at..end];
        at = end;
        let granted = b"*3\r\n$7\r\ngranted\r\n";
        Some(item.starts_with(b":") || item.starts_with(granted) || item.starts_with(b"$5\r\nfreed\r\n"))
    })
}

/// Returns for each lock of a transaction whether it is acquired: SET has found no holder.
fn grants(reply: &[u8]) -> impl Iterator<Item = bool> {
    let mut at = reply.windows(2).position(|two| two == b"\r\n").map_or(reply.len(), |end| end + 2);
    std::iter::from_fn(move || {
        let set = at;
        let counter = reply_end(reply, set)?;
        at = reply_end(reply, counter)?;
        Some(reply[set..counter] == *b"$-1\r\n")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_reply_and_its_items_are_found() {
        let reply =
            b"*5\r\n$2\r\n17\r\n:5\r\n$5\r\nfreed\r\n*3\r\n$7\r\ngranted\r\n$1\r\n5\r\n$4\r\nb:1:\r\n*3\r\n$4\r\nheld\r\n$1\r\nx\r\n$1\r\n9\r\n";
        assert_eq!(reply_end(reply, 0), Some(reply.len()));
        for end in 0..reply.len() {
            assert_eq!(reply_end(&reply[..end], 0), None, "{end}");
        }
        assert_eq!(votes(reply).collect::<Vec<_>>(), [true, true, true, false]);
        assert_eq!(reply_end(b"+OK\r\n:1\r\n", 5), Some(9));
        assert_eq!(reply_end(b"$-1\r\n", 0), Some(5));
        let of_two = b"*7\r\n$-1\r\n:5\r\n$1\r\nx\r\n:9\r\n:0\r\n$1\r\nm\r\n*2\r\n$1\r\n1\r\n$1\r\n2\r\n";
        assert_eq!(grants(of_two).take(2).collect::<Vec<_>>(), [true, false]);
    }
}
