//! Checks that the proxy causes exactly the faults that its documentation describes.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use quorate::env::{SystemWorld, World};
use quorate_testkit::{
    proxy::{Directions, Latency, ProxiedCluster, Proxy},
    redis::{RedisConfig, RedisServer},
};
use std::{
    io::{ErrorKind, Read, Write},
    net::{Ipv4Addr, TcpStream},
    thread,
    time::Duration,
};

const PATIENCE: Duration = Duration::from_secs(10);
/// The time without data after which a test concludes that no more data will arrive.
const SILENCE: Duration = Duration::from_millis(150);

struct Client(TcpStream);

impl Client {
    fn to(proxy: &Proxy) -> Self {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, proxy.port())).expect("the proxy listens");
        stream.set_nodelay(true).expect("a socket");
        Self(stream)
    }

    fn send(&mut self, command: &str) {
        self.0.write_all(format!("{command}\r\n").as_bytes()).expect("a connection");
    }

    /// Reads and returns the next `length` bytes.
    fn read(&mut self, length: usize) -> String {
        self.0.set_read_timeout(Some(PATIENCE)).expect("a socket");
        let mut bytes = vec![0; length];
        self.0.read_exact(&mut bytes).expect("a reply");
        String::from_utf8(bytes).expect("text")
    }

    fn ask(&mut self, command: &str, reply: &str) {
        self.send(command);
        assert_eq!(self.read(reply.len()), reply);
    }

    fn hears_nothing(&mut self) {
        self.0.set_read_timeout(Some(SILENCE)).expect("a socket");
        match self.0.read(&mut [0; 1]) {
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            other => panic!("{other:?}"),
        }
    }

    /// Reads until the connection ends. Returns the bytes, and `true` if the connection was broken and not
    /// closed in order.
    fn rest(&mut self) -> (String, bool) {
        self.0.set_read_timeout(Some(PATIENCE)).expect("a socket");
        let mut bytes = Vec::new();
        let broken = match self.0.read_to_end(&mut bytes) {
            Ok(_) => false,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => true,
            Err(error) => panic!("{error}"),
        };
        (String::from_utf8(bytes).expect("text"), broken)
    }
}

fn pair() -> (RedisServer, Proxy) {
    let server = RedisServer::start().unwrap_or_else(|error| panic!("{error}"));
    let proxy = Proxy::before(&server).expect("a port");
    (server, proxy)
}

#[track_caller]
fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let give_up = SystemWorld.now() + PATIENCE;
    while !condition() {
        assert!(SystemWorld.now() < give_up, "no {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn without_a_fault_all_bytes_and_the_end_pass_both_ways() {
    let (server, proxy) = pair();
    let mut client = Client::to(&proxy);
    client.ask("PING", "+PONG\r\n");
    // The text is larger than any buffer on the way, so it arrives in several parts.
    let big = "x".repeat(3 << 20);
    let set = format!("*3\r\n$3\r\nSET\r\n$3\r\nbig\r\n${}\r\n{big}", big.len());
    client.ask(&set, "+OK\r\n");
    client.send("GET big");
    let reply = client.read(big.len() + 12);
    assert!(reply.contains(&big));
    client.send("QUIT");
    assert_eq!(client.rest(), ("+OK\r\n".to_owned(), false));
    assert_eq!(server.command(&["STRLEN", "big"]), big.len().to_string());
    assert_eq!(proxy.accepted(), 1);
}

#[test]
fn a_cut_of_requests_keeps_them_from_the_server_until_it_heals() {
    let (server, proxy) = pair();
    let mut client = Client::to(&proxy);
    client.ask("SET a 1", "+OK\r\n");
    proxy.cut(Directions::There);
    client.send("SET a 2");
    client.hears_nothing();
    assert_eq!(server.command(&["GET", "a"]), "1");
    proxy.heal();
    assert_eq!(client.read(5), "+OK\r\n");
    assert_eq!(server.command(&["GET", "a"]), "2");
}

#[test]
fn a_cut_of_replies_lets_requests_run_unanswered() {
    let (server, proxy) = pair();
    let mut client = Client::to(&proxy);
    client.ask("SET a 1", "+OK\r\n");
    proxy.cut(Directions::Back);
    client.send("SET a 2");
    until("write behind the cut", || server.command(&["GET", "a"]) == "2");
    client.hears_nothing();
    // A new connection can be opened, and the server runs its requests, but the replies are lost.
    let mut other = Client::to(&proxy);
    other.send("SET b 1");
    until("write of a newcomer", || server.command(&["GET", "b"]) == "1");
    other.hears_nothing();
    proxy.heal();
    assert_eq!((client.read(5), other.read(5)), ("+OK\r\n".to_owned(), "+OK\r\n".to_owned()));
}

#[test]
fn a_broken_connection_loses_waiting_bytes() {
    let (server, proxy) = pair();
    let mut client = Client::to(&proxy);
    client.ask("SET a 1", "+OK\r\n");
    proxy.cut(Directions::Both);
    client.send("SET a 2");
    client.hears_nothing();
    proxy.sever();
    assert_eq!(client.rest(), (String::new(), true));
    proxy.heal();
    Client::to(&proxy).ask("PING", "+PONG\r\n");
    assert_eq!(server.command(&["GET", "a"]), "1");
}

#[test]
fn a_reply_is_cut_once_after_the_exact_number_of_bytes() {
    let (_server, proxy) = pair();
    for bytes in [0, 1, 4, 7] {
        let mut client = Client::to(&proxy);
        client.ask("PING", "+PONG\r\n");
        proxy.cut_reply_after(bytes);
        client.send("PING\r\nPING");
        let (said, _) = client.rest();
        assert_eq!(said, "+PONG\r\n"[..bytes]);
    }
    assert_eq!(proxy.replies_cut(), 4);
    Client::to(&proxy).ask("PING", "+PONG\r\n");
}

#[test]
fn latency_is_at_least_what_was_asked_and_keeps_the_order() {
    let (_server, proxy) = pair();
    let mut client = Client::to(&proxy);
    client.ask("PING", "+PONG\r\n");
    let latency =
        Latency { there: Duration::from_millis(40), back: Duration::from_millis(20), ..Latency::default() };
    proxy.set_latency(latency.jitter(Duration::from_millis(30)));
    let sent = SystemWorld.now();
    let mut replies = String::new();
    for number in 10..30 {
        client.send(&format!("ECHO {number}"));
        replies += &format!("$2\r\n{number}\r\n");
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(client.read(replies.len()), replies);
    let took = sent.until(SystemWorld.now());
    assert!(took >= Duration::from_millis(60 + 20), "{took:?}");
    // If the proxy delayed the twenty messages one after the other, they would take 1.2 s. The proxy delays
    // all of them at the same time.
    assert!(took < Duration::from_millis(1000), "{took:?}");
    proxy.heal();
    client.ask("PING", "+PONG\r\n");
}

#[test]
fn refusing_resets_new_clients_and_keeps_the_others() {
    let (_server, proxy) = pair();
    let mut client = Client::to(&proxy);
    client.ask("PING", "+PONG\r\n");
    proxy.refuse();
    assert_eq!(Client::to(&proxy).rest(), (String::new(), true));
    client.ask("PING", "+PONG\r\n");
    proxy.heal();
    Client::to(&proxy).ask("PING", "+PONG\r\n");
}

#[test]
fn a_dead_server_breaks_the_connection_unless_that_way_is_cut() {
    let (mut server, proxy) = pair();
    let mut client = Client::to(&proxy);
    let mut behind = Client::to(&proxy);
    client.ask("PING", "+PONG\r\n");
    behind.ask("PING", "+PONG\r\n");
    proxy.cut(Directions::Back);
    server.kill();
    behind.send("PING");
    behind.hears_nothing();
    let mut newcomer = Client::to(&proxy);
    newcomer.hears_nothing();
    proxy.heal();
    for mut client in [client, behind, newcomer] {
        assert_eq!(client.rest().0, "");
    }
    server.restart().expect("it starts again");
    Client::to(&proxy).ask("PING", "+PONG\r\n");
}

#[test]
fn stopping_breaks_every_connection_and_frees_the_port_at_once() {
    let (_server, proxy) = pair();
    let mut client = Client::to(&proxy);
    client.ask("PING", "+PONG\r\n");
    proxy.cut(Directions::Both);
    client.send("PING");
    let (port, began) = (proxy.port(), SystemWorld.now());
    proxy.stop();
    assert!(began.until(SystemWorld.now()) < Duration::from_secs(2));
    assert_eq!(client.rest(), (String::new(), true));
    let error = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect_err("no process listens");
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
}

#[test]
fn a_cluster_s_urls_are_its_proxies_and_carry_the_password() {
    let config = RedisConfig::new().password("sesame");
    let cluster = ProxiedCluster::start_with(2, &config).unwrap_or_else(|error| panic!("{error}"));
    for (index, url) in cluster.proxied_urls().iter().enumerate() {
        let port = cluster.proxy(index).port();
        assert_ne!(port, cluster[index].port());
        assert_eq!(url, &format!("redis://:sesame@127.0.0.1:{port}/0"));
        assert!(!format!("{:?}", cluster.proxy(index)).contains("sesame"));
        Client::to(cluster.proxy(index)).ask("AUTH sesame", "+OK\r\n");
    }
    assert_eq!(cluster.proxies().map(Proxy::accepted).sum::<u64>(), 2);
}
