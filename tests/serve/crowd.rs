//! Many clients of `quorate serve` at once, some of which are killed, and the faults of the daemon and of the servers.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(dead_code, reason = "the helpers of the other tests of the sidecar")]

mod sidecar;

use quorate::env::{SystemWorld, World};
use quorate_tests::support::{PATIENCE, until};
use serde_json::{Value, json};
use sidecar::{Sidecar, clients, has, script};
use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, Sender, channel},
    thread,
    time::Duration,
};

const CLIENTS: usize = 100;
const KILLED: usize = CLIENTS / 4;
/// The number of locks of one client.
const LOCKS: usize = 10;
/// Long enough for the start of a hundred interpreters on a busy machine.
const TTL: Duration = Duration::from_secs(15);
/// The longest time until all clients hold their locks.
const START: Duration = Duration::from_secs(120);

/// A client in Python. Dropping it kills it.
struct Client {
    name: String,
    child: Child,
    stdin: ChildStdin,
}

/// A line of a client: the word, and the time of the boot clock in microseconds.
struct Said {
    client: usize,
    word: String,
    at: u64,
}

impl Client {
    fn start(number: usize, socket: &Path, says: Sender<Said>) -> Self {
        let name = format!("client-{number}");
        let mut command = Command::new("python3");
        command.arg(script("hold.py")).arg(format!("unix:{}", socket.display())).arg(&name);
        command.env("PYTHONPATH", clients()).env("PYTHONDONTWRITEBYTECODE", "1");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("Python");
        let (stdin, stdout) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let (word, at) = line.split_once(' ').expect("a word and a time");
                let at = at.parse().expect("a time");
                let _ = says.send(Said { client: number, word: word.to_owned(), at });
            }
        });
        Self { name, child, stdin }
    }

    fn hold(&mut self) {
        self.stdin.write_all(b"hold\n").expect("a client that reads");
    }

    fn kill(&mut self) {
        self.child.kill().expect("our own child");
        self.child.wait().expect("our own child");
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Waits until each of these clients has said `word`, and returns the times.
#[track_caller]
fn all(said: &Receiver<Said>, word: &str, count: usize, within: Duration) -> BTreeMap<usize, u64> {
    let mut times = BTreeMap::new();
    let end = SystemWorld.now() + within;
    while times.len() < count {
        let left = SystemWorld.now().until(end);
        let Ok(line) = said.recv_timeout(left) else {
            panic!("only {} of {count} clients {word}", times.len())
        };
        if line.word == word {
            times.insert(line.client, line.at);
        } else {
            assert_eq!(line.word, "warned", "client {} at {}", line.client, line.at);
        }
    }
    times
}

/// Acquires the first lock of each of these clients for another client, and checks that each had known of the loss of its lease
/// by then.
fn others_hold_after(sidecar: &Sidecar, said: &Receiver<Said>, living: &[Client]) {
    let others: Vec<_> = living
        .iter()
        .map(|client| {
            let (http, lock) = (sidecar.client(), format!("{}-0", client.name));
            thread::spawn(move || {
                let body = json!({ "lock": lock, "wait": "10s" }).to_string();
                until(&format!("a free {lock}"), 6 * TTL, || {
                    let answer = http.try_request("POST", "/api/v1/leases", "", &body).ok()?;
                    let at = SystemWorld.now().as_nanos() / 1_000;
                    (answer.status == 200).then(|| (answer.json(), at))
                })
            })
        })
        .collect();
    let lost = all(said, "lost", living.len(), 3 * TTL);
    let held: Vec<(Value, u64)> = others.into_iter().map(|other| other.join().expect("a thread")).collect();
    for (number, (client, (lease, at))) in living.iter().zip(&held).enumerate() {
        let lost = lost[&(KILLED + number)];
        assert!(lost <= *at, "{} lost its lease {} µs after another held it", client.name, lost - at);
        sidecar.release(lease).expect(200);
    }
}

/// Returns the names of the held locks, as an operator sees them.
fn held(sidecar: &Sidecar) -> usize {
    let list = sidecar.program.run(["lock", "list", "--json", "--config", "quorate.toml"]).expect(0);
    let list: Value = serde_json::from_str(&list.stdout).expect("JSON");
    list["locks"].as_array().expect("a list").len()
}

#[test]
fn each_client_that_lives_knows_of_a_loss_before_another_can_hold() {
    if !has("python3", "each_client_that_lives_knows_of_a_loss_before_another_can_hold") {
        return;
    }
    let mut sidecar = Sidecar::start(5, TTL, "");
    let (says, said) = channel();
    let socket = sidecar.socket();
    let mut living: Vec<Client> =
        (0..CLIENTS).map(|number| Client::start(number, &socket, says.clone())).collect();
    all(&said, "ready", CLIENTS, START);
    living.iter_mut().for_each(Client::hold);
    all(&said, "held", CLIENTS, START);
    assert_eq!(held(&sidecar), CLIENTS * LOCKS);

    // A quarter of the clients is killed: only their locks become free.
    let mut killed: Vec<Client> = living.drain(..KILLED).collect();
    killed.iter_mut().for_each(Client::kill);
    until("free locks of the killed clients", 2 * TTL, || {
        (held(&sidecar) == (CLIENTS - KILLED) * LOCKS).then_some(())
    });

    // The daemon is killed.
    sidecar.daemon.kill();
    sidecar.restart();
    others_hold_after(&sidecar, &said, &living);

    // Three of the five servers stop.
    living.iter_mut().for_each(Client::hold);
    all(&said, "held", living.len(), START);
    for server in 0..3 {
        sidecar.nodes[server].pause();
    }
    let knew = all(&said, "lost", living.len(), 3 * TTL);
    assert_eq!(knew.len(), CLIENTS - KILLED, "all of them while no majority answers");
    for server in 0..3 {
        sidecar.nodes[server].resume();
    }
    living.iter_mut().for_each(Client::hold);
    all(&said, "held", living.len(), START);

    // All clients are killed, and the daemon too: no lock is held for longer than its TTL.
    living.iter_mut().for_each(Client::kill);
    sidecar.daemon.kill();
    until("no lock", TTL + PATIENCE, || (held(&sidecar) == 0).then_some(()));
}
