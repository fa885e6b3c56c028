//! The store outside: a set that is read and written whole, over TCP, one line a request.
//!
//! `read TOKEN` is answered `set E,E,…` or `refused`; `write TOKEN ELEMENT E,E,…` is answered `ok` or `refused`.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
};

/// A set, and what became of its elements.
#[derive(Debug, Default)]
pub(crate) struct Set {
    fences: bool,
    largest: u64,
    elements: BTreeSet<u64>,
    /// Elements that were here, by the element whose write left them out.
    lost: BTreeMap<u64, Vec<u64>>,
    /// The elements of the writes that were refused.
    refused: BTreeSet<u64>,
}

impl Set {
    /// An empty set; with `fences`, of a store that compares tokens.
    pub(crate) fn new(fences: bool) -> Self {
        Self { fences, ..Self::default() }
    }

    /// What is there, unless a later holder has been here.
    pub(crate) fn read(&mut self, token: u64) -> Option<&BTreeSet<u64>> {
        self.admits(token).then_some(&self.elements)
    }

    /// Puts `elements` in place of what is there, unless a later holder has been here. The token is compared
    /// and the set written under one lock.
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

    /// Whether the write of this element has come, accepted or not.
    pub(crate) fn has_seen(&self, added: u64) -> bool {
        self.elements.contains(&added)
            || self.refused.contains(&added)
            || self.lost.contains_key(&added)
            || self.lost.values().any(|lost| lost.contains(&added))
    }

    /// What is there now.
    pub(crate) fn elements(&self) -> &BTreeSet<u64> {
        &self.elements
    }

    /// How many elements the write of `added` left out.
    pub(crate) fn lost_by(&self, added: u64) -> usize {
        self.lost.get(&added).map_or(0, Vec::len)
    }

    /// How many writes were refused.
    pub(crate) fn refused(&self) -> usize {
        self.refused.len()
    }

    fn admits(&mut self, token: u64) -> bool {
        let late = self.fences && token < self.largest;
        self.largest = self.largest.max(token);
        !late
    }
}

/// A [`Set`] behind a port of loopback.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    set: Arc<Mutex<Set>>,
    port: u16,
}

impl Store {
    /// Serves `set` until the process ends.
    pub(crate) fn serve(set: Set) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let store = Self { set: Arc::new(Mutex::new(set)), port: listener.local_addr()?.port() };
        let set = Arc::clone(&store.set);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let set = Arc::clone(&set);
                thread::spawn(move || drop(converse(&stream, &set)));
            }
        });
        Ok(store)
    }

    /// Where it listens.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The set.
    pub(crate) fn set(&self) -> MutexGuard<'_, Set> {
        self.set.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn converse(mut stream: &TcpStream, set: &Mutex<Set>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    for line in BufReader::new(stream).lines() {
        let answer = answer(&line?, &mut set.lock().unwrap_or_else(PoisonError::into_inner));
        let answer = answer.ok_or_else(|| io::Error::other("no such request"))?;
        stream.write_all(answer.as_bytes())?;
    }
    Ok(())
}

fn answer(line: &str, set: &mut Set) -> Option<String> {
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
        _ => None,
    }
}

/// Elements as they travel.
pub(crate) fn join(elements: &BTreeSet<u64>) -> String {
    elements.iter().map(u64::to_string).collect::<Vec<_>>().join(",")
}

/// The reverse of [`join`].
pub(crate) fn split(text: &str) -> Option<BTreeSet<u64>> {
    text.split(',').filter(|part| !part.is_empty()).map(|part| part.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The holder of token 1 reads and is paused; the holder of token 2 reads and adds 20; the first comes back.
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
    fn without_a_fence_the_one_that_comes_back_wipes_out_what_came_between() {
        let set = overtaken(false);
        assert_eq!((set.elements().len(), set.lost_by(10)), (1, 1));
        assert!(set.has_seen(20) && set.has_seen(10) && !set.has_seen(30));
    }

    #[test]
    fn with_a_fence_it_is_refused() {
        let set = overtaken(true);
        assert_eq!((set.elements(), set.lost_by(10), set.refused()), (&BTreeSet::from([20]), 0, 1));
    }

    #[test]
    fn the_token_of_a_read_counts_too() {
        let mut set = Set::new(true);
        let first = set.read(1).expect("the first").clone();
        set.read(2).expect("the second");
        assert!(!set.write(1, 10, first), "the second would overwrite it with what it has read");
        assert!(set.read(1).is_none());
    }

    #[test]
    fn requests_are_lines() {
        let mut set = Set::new(true);
        assert_eq!(answer("read 5", &mut set).as_deref(), Some("set \n"));
        assert_eq!(answer("write 5 7 7", &mut set).as_deref(), Some("ok\n"));
        assert_eq!(answer("write 4 8 7,8", &mut set).as_deref(), Some("refused\n"));
        assert_eq!(answer("read 6", &mut set).as_deref(), Some("set 7\n"));
        assert_eq!(answer("write 4", &mut set), None);
        assert_eq!(answer("delete", &mut set), None);
    }
}
