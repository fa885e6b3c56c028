//! The store that a lock protects. It is a set that is read and written as a whole, over TCP, with one line
//! per request.
//!
//! The reply to `read TOKEN` is `set E,E,…` or `refused`. The reply to `write TOKEN ELEMENT E,E,…` is `ok` or
//! `refused`. The reply to `put TOKEN ELEMENT` is `was E` or `refused`.

use crate::work::Failure;

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, BufRead, BufReader, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufStream};

/// A set, and the elements that it has lost.
#[derive(Debug, Default)]
pub(crate) struct Set {
    fences: bool,
    largest: u64,
    elements: BTreeSet<u64>,
    /// The lost elements. The key is the element whose write left them out.
    lost: BTreeMap<u64, Vec<u64>>,
    /// The elements of refused writes.
    refused: BTreeSet<u64>,
}

impl Set {
    /// Returns an empty set. If `fences` is true, it compares tokens.
    pub(crate) fn new(fences: bool) -> Self {
        Self { fences, ..Self::default() }
    }

    /// Returns the elements. Returns `None` if the set compares tokens, and a holder with a larger token has
    /// read or written it.
    pub(crate) fn read(&mut self, token: u64) -> Option<&BTreeSet<u64>> {
        self.admits(token).then_some(&self.elements)
    }

    /// Replaces the elements. Returns false if the set compares tokens, and a holder with a larger token has
    /// read or written it. The comparison and the write are under one mutex.
    pub(crate) fn write(&mut self, token: u64, added: u64, elements: BTreeSet<u64>) -> bool {
        if !self.admits(token) {
            self.refused.insert(added);
            return false;
        }
        let lost: Vec<u64> = self.elements.difference(&elements).copied().collect();
        if !lost.is_empty() {
            self.lost.insert(added, lost);
        }
        self.elements = elements;
        true
    }

    /// Replaces all elements by one. Returns the largest element before it, or 0. Returns `None` if the set compares tokens,
    /// and a holder with a larger token has read or written it.
    pub(crate) fn put(&mut self, token: u64, element: u64) -> Option<u64> {
        let before = self.elements.last().copied().unwrap_or_default();
        self.admits(token).then(|| {
            self.elements = BTreeSet::from([element]);
            before
        })
    }

    /// Returns whether the write of this element has arrived, whether or not it was accepted.
    pub(crate) fn has_seen(&self, added: u64) -> bool {
        self.elements.contains(&added)
            || self.refused.contains(&added)
            || self.lost.contains_key(&added)
            || self.lost.values().any(|lost| lost.contains(&added))
    }

    pub(crate) fn elements(&self) -> &BTreeSet<u64> {
        &self.elements
    }

    /// Returns the number of elements that the write of `added` left out.
    pub(crate) fn lost_by(&self, added: u64) -> usize {
        self.lost.get(&added).map_or(0, Vec::len)
    }

    pub(crate) fn refused(&self) -> usize {
        self.refused.len()
    }

    fn admits(&mut self, token: u64) -> bool {
        let late = self.fences && token < self.largest;
        self.largest = self.largest.max(token);
        !late
    }
}

/// A server for a [`Set`].
#[derive(Clone, Debug)]
pub(crate) struct Store {
    set: Arc<Mutex<Set>>,
    address: SocketAddr,
}

impl Store {
    /// Starts the server for a set, on a free port of this address. It runs until the process ends.
    pub(crate) fn serve(set: Set, address: Ipv4Addr) -> io::Result<Self> {
        let listener = TcpListener::bind((address, 0))?;
        let store = Self { set: Arc::new(Mutex::new(set)), address: listener.local_addr()? };
        let set = Arc::clone(&store.set);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let set = Arc::clone(&set);
                thread::spawn(move || drop(serve_connection(&stream, &set)));
            }
        });
        Ok(store)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn set(&self) -> MutexGuard<'_, Set> {
        self.set.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn serve_connection(mut stream: &TcpStream, set: &Mutex<Set>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    for line in BufReader::new(stream).lines() {
        let reply = reply(&line?, &mut set.lock().unwrap_or_else(PoisonError::into_inner));
        let reply = reply.ok_or_else(|| io::Error::other("no such request"))?;
        stream.write_all(reply.as_bytes())?;
    }
    Ok(())
}

fn reply(line: &str, set: &mut Set) -> Option<String> {
    let mut words = line.split(' ');
    match words.next()? {
        "read" => match set.read(words.next()?.parse().ok()?) {
            Some(elements) => Some(format!("set {}\n", join(elements))),
            None => Some("refused\n".to_owned()),
        },
        "write" => {
            let (token, added) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
            let written = set.write(token, added, split(words.next()?)?);
            Some(if written { "ok\n" } else { "refused\n" }.to_owned())
        }
        "put" => match set.put(words.next()?.parse().ok()?, words.next()?.parse().ok()?) {
            Some(before) => Some(format!("was {before}\n")),
            None => Some("refused\n".to_owned()),
        },
        _ => None,
    }
}

/// A worker's connection to a store.
pub(crate) struct StoreClient {
    stream: BufStream<tokio::net::TcpStream>,
    line: String,
}

impl StoreClient {
    pub(crate) async fn connect(address: SocketAddr) -> Result<Self, Failure> {
        let stream = tokio::net::TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufStream::new(stream), line: String::new() })
    }

    /// Calls [`Set::read`].
    pub(crate) async fn read(&mut self, token: u64) -> Result<Option<BTreeSet<u64>>, Failure> {
        match self.request(&format!("read {token}\n")).await?.split_once(' ') {
            Some(("set", elements)) => Ok(Some(split(elements).ok_or("no set of numbers")?)),
            _ => Ok(None),
        }
    }

    /// Calls [`Set::write`].
    pub(crate) async fn write(
        &mut self,
        token: u64,
        added: u64,
        elements: &BTreeSet<u64>,
    ) -> Result<bool, Failure> {
        Ok(self.request(&format!("write {token} {added} {}\n", join(elements))).await? == "ok")
    }

    /// Calls [`Set::put`].
    pub(crate) async fn put(&mut self, token: u64, element: u64) -> Result<Option<u64>, Failure> {
        match self.request(&format!("put {token} {element}\n")).await?.split_once(' ') {
            Some(("was", before)) => Ok(Some(before.parse()?)),
            _ => Ok(None),
        }
    }

    async fn request(&mut self, request: &str) -> Result<&str, Failure> {
        self.stream.write_all(request.as_bytes()).await?;
        self.stream.flush().await?;
        self.line.clear();
        if self.stream.read_line(&mut self.line).await? == 0 {
            return Err("the store has ended".into());
        }
        Ok(self.line.trim_end_matches('\n'))
    }
}

fn join(elements: &BTreeSet<u64>) -> String {
    elements.iter().map(u64::to_string).collect::<Vec<_>>().join(",")
}

/// Parses the text that [`join`] returns.
fn split(text: &str) -> Option<BTreeSet<u64>> {
    text.split(',').filter(|part| !part.is_empty()).map(|part| part.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a set after this history: the holder of token 1 reads and is paused, the holder of token 2 reads
    /// and adds 20, and then the holder of token 1 adds its element.
    fn overtaken(fences: bool) -> Set {
        let mut set = Set::new(fences);
        let mut first = set.read(1).expect("the first").clone();
        let mut second = set.read(2).expect("the second").clone();
        second.insert(20);
        assert!(set.write(2, 20, second));
        first.insert(10);
        assert_eq!(set.write(1, 10, first), !fences);
        set
    }

    #[test]
    fn without_a_fence_the_resumed_holder_overwrites_the_later_addition() {
        let set = overtaken(false);
        assert_eq!((set.elements().len(), set.lost_by(10)), (1, 1));
        assert!(set.has_seen(20) && set.has_seen(10) && !set.has_seen(30));
    }

    #[test]
    fn with_a_fence_the_resumed_holder_is_refused() {
        let set = overtaken(true);
        assert_eq!((set.elements(), set.lost_by(10), set.refused()), (&BTreeSet::from([20]), 0, 1));
    }

    #[test]
    fn the_token_of_a_read_is_compared_too() {
        let mut set = Set::new(true);
        let first = set.read(1).expect("the first").clone();
        set.read(2).expect("the second");
        assert!(!set.write(1, 10, first), "the second would overwrite it with the set that it has read");
        assert!(set.read(1).is_none());
    }

    #[test]
    fn requests_are_lines() {
        let mut set = Set::new(true);
        assert_eq!(reply("read 5", &mut set).as_deref(), Some("set \n"));
        assert_eq!(reply("write 5 7 7", &mut set).as_deref(), Some("ok\n"));
        assert_eq!(reply("write 4 8 7,8", &mut set).as_deref(), Some("refused\n"));
        assert_eq!(reply("read 6", &mut set).as_deref(), Some("set 7\n"));
        assert_eq!(reply("put 7 9", &mut set).as_deref(), Some("was 7\n"));
        assert_eq!(reply("put 6 10", &mut set).as_deref(), Some("refused\n"));
        assert_eq!(reply("put 7 11", &mut set).as_deref(), Some("was 9\n"));
        assert_eq!(reply("write 4", &mut set), None);
        assert_eq!(reply("delete", &mut set), None);
    }
}
