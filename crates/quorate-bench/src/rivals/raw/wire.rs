use super::{Dialect, Job, Poll};
use quorate::{
    env::WallTime,
    node::{Batch, Request},
};
use quorate_redis::probe::{self, Calls};
use redis::{Cmd, IntoConnectionInfo};
use std::{collections::VecDeque, io, mem, sync::Arc};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::mpsc,
};

/// Jobs in one write at most.
const BATCH_MAX: usize = 256;
/// Writes under way at most: what arrives meanwhile travels together.
const FLIGHTS_MAX: usize = 2;
/// The keys of the raw drivers, apart from everybody else's.
const PREFIX: &str = "limit:";
/// The marker that Quorate's scripts ask for.
const MARKER: &str = "no marker";

const COMPARE_AND_DELETE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

/// One connection, and how to speak on it.
pub(super) struct Wire {
    stream: TcpStream,
    language: Language,
    read: Vec<u8>,
    /// Whom the replies that are to come are for: of each command the polls of its items.
    owed: VecDeque<Vec<Arc<Poll>>>,
    /// How many commands of each write are yet unanswered.
    flights: VecDeque<usize>,
}

enum Language {
    Quorate(Box<Calls>),
    Bare { script: String },
}

impl Wire {
    pub(super) async fn open(url: &str, dialect: Dialect) -> Result<Self, String> {
        let info = url.into_connection_info().map_err(|error| error.to_string())?;
        let redis::ConnectionAddr::Tcp(host, port) = info.addr() else {
            return Err("the raw driver speaks plain TCP only; give a redis:// URL".to_owned());
        };
        let fail = |error: io::Error| error.to_string();
        let stream = TcpStream::connect((host.as_str(), *port)).await.map_err(fail)?;
        stream.set_nodelay(true).map_err(fail)?;
        let language = Language::Bare { script: String::new() };
        let mut wire =
            Self { stream, language, read: Vec::new(), owed: VecDeque::new(), flights: VecDeque::new() };
        wire.language = match dialect {
            Dialect::Bare => Language::Bare { script: wire.load(COMPARE_AND_DELETE).await.map_err(fail)? },
            Dialect::Quorate => {
                let set = redis::cmd("SET").arg(format!("{PREFIX}node")).arg(MARKER).get_packed_command();
                wire.call(&set).await.map_err(fail)?;
                let mut names = Vec::new();
                for source in probe::sources() {
                    names.push(wire.load(source).await.map_err(fail)?);
                }
                Language::Quorate(Box::new(Calls::new(PREFIX, names).ok_or("a script was not loaded")?))
            }
        };
        Ok(wire)
    }

    /// Serves until nobody can ask any more, or the connection breaks.
    pub(super) async fn drive(mut self, mut inbox: mpsc::UnboundedReceiver<Job>) {
        let mut waiting: Vec<Job> = Vec::new();
        loop {
            if !waiting.is_empty() && self.flights.len() < FLIGHTS_MAX {
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
                    self.hand_out();
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
        match &self.language {
            Language::Quorate(calls) => {
                let (requests, polls): (Vec<_>, Vec<_>) =
                    jobs.into_iter().map(|job| (job.request, job.poll)).unzip();
                let not_after = WallTime::from_micros(1 << 60);
                let (bytes, runs) = calls.encode(&Batch { requests, not_after, stamp: MARKER.into() });
                self.flights.push_back(runs.len());
                let mut polls = polls.into_iter();
                self.owed.extend(runs.into_iter().map(|items| polls.by_ref().take(items).collect()));
                bytes
            }
            Language::Bare { script } => {
                let mut bytes = Vec::new();
                self.flights.push_back(jobs.len());
                for Job { request, poll } in jobs {
                    bare(&request, script).write_packed_command(&mut bytes);
                    self.owed.push_back(vec![poll]);
                }
                bytes
            }
        }
    }

    /// Gives every whole reply that has come to whom it is for.
    fn hand_out(&mut self) {
        let mut at = 0;
        while let Some(end) = after(&self.read, at) {
            let said = &self.read[at..end];
            let polls = self.owed.pop_front().unwrap_or_default();
            match self.language {
                Language::Bare { .. } => {
                    polls.iter().for_each(|poll| poll.vote(said == b"+OK\r\n" || said == b":1\r\n"));
                }
                Language::Quorate(_) => polls.iter().zip(votes(said)).for_each(|(poll, yes)| poll.vote(yes)),
            }
            at = end;
            if let Some(left) = self.flights.front_mut() {
                *left -= 1;
                if *left == 0 {
                    self.flights.pop_front();
                }
            }
        }
        self.read.drain(..at);
    }

    async fn load(&mut self, script: &str) -> io::Result<String> {
        let said = self.call(&redis::cmd("SCRIPT").arg("LOAD").arg(script).get_packed_command()).await?;
        let name = String::from_utf8_lossy(&said).lines().nth(1).unwrap_or_default().to_owned();
        Ok(name)
    }

    async fn call(&mut self, command: &[u8]) -> io::Result<Vec<u8>> {
        self.stream.write_all(command).await?;
        loop {
            if let Some(end) = after(&self.read, 0) {
                return Ok(self.read.drain(..end).collect());
            }
            if self.stream.read_buf(&mut self.read).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

fn bare(request: &Request, script: &str) -> Cmd {
    let mut command = Cmd::new();
    match request {
        Request::Acquire { resource, owner, ttl, .. } => {
            command.arg("SET").arg(format!("{PREFIX}bare:{resource}")).arg(owner.as_str());
            command.arg("NX").arg("PX").arg(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX));
        }
        Request::Release { resource, owner } => {
            command.arg("EVALSHA").arg(script).arg(1);
            command.arg(format!("{PREFIX}bare:{resource}")).arg(owner.as_str());
        }
        // Nothing else is posted.
        _ => {
            command.arg("PING");
        }
    }
    command
}

/// Where the reply that begins at `at` ends, if it is all there.
fn after(bytes: &[u8], at: usize) -> Option<usize> {
    let (mut at, mut owed) = (at, 1_usize);
    while owed > 0 {
        let end = at + bytes.get(at..)?.windows(2).position(|two| two == b"\r\n")?;
        let number = || std::str::from_utf8(bytes.get(at + 1..end)?).ok()?.parse::<i64>().ok();
        owed -= 1;
        match bytes[at] {
            b'$' => {
                let length = usize::try_from(number()?).map_or(0, |length| length + 2);
                at = end + 2 + length;
                if at > bytes.len() {
                    return None;
                }
            }
            b'*' => {
                owed += usize::try_from(number()?).unwrap_or(0);
                at = end + 2;
            }
            _ => at = end + 2,
        }
    }
    Some(at)
}

/// Which items of a script's reply, after the time, agree.
fn votes(said: &[u8]) -> impl Iterator<Item = bool> {
    let head = said.windows(2).position(|two| two == b"\r\n").map_or(said.len(), |end| end + 2);
    let mut at = after(said, head).unwrap_or(said.len());
    std::iter::from_fn(move || {
        let end = after(said, at)?;
        let item = &said[at..end];
        at = end;
        let (granted, released) = (b"*2\r\n$7\r\ngranted\r\n", b"*2\r\n$8\r\nreleased\r\n$1\r\n1\r\n");
        Some(item.starts_with(granted) || item.starts_with(released))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_ends_where_it_ends_and_its_items_are_told_apart() {
        let said =
            b"*3\r\n$2\r\n17\r\n*2\r\n$7\r\ngranted\r\n$1\r\n5\r\n*3\r\n$4\r\nheld\r\n$1\r\nx\r\n$1\r\n9\r\n";
        assert_eq!(after(said, 0), Some(said.len()));
        for end in 0..said.len() {
            assert_eq!(after(&said[..end], 0), None, "{end}");
        }
        assert_eq!(votes(said).collect::<Vec<_>>(), [true, false]);
        assert_eq!(after(b"+OK\r\n:1\r\n", 5), Some(9));
        assert_eq!(after(b"$-1\r\n", 0), Some(5));
    }
}
