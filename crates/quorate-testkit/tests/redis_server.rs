//! Checks that the methods of the servers that other tests use do what their documentation says.

use quorate_testkit::redis::{RedisCluster, RedisConfig, RedisServer};
use std::{io::Read, net::TcpStream, path::Path, time::Duration};

#[test]
fn a_restarted_server_is_empty_with_the_same_port_and_another_run_id() {
    let mut server = RedisServer::start().unwrap();
    let (port, before) = (server.port(), run_id(&server));
    assert_eq!(server.command(&["SET", "k", "v"]), "OK");
    server.restart().unwrap();
    assert_eq!(server.port(), port);
    assert_eq!(server.command(&["GET", "k"]), "(nil)");
    assert_ne!(run_id(&server), before);
}

#[test]
fn an_append_only_server_restarts_with_its_data() {
    let mut server = RedisConfig::new().append_only().start().unwrap();
    server.command(&["SET", "k", "v"]);
    server.restart().unwrap();
    assert_eq!(server.command(&["GET", "k"]), "v");
    server.flushall();
    assert_eq!(server.command(&["GET", "k"]), "(nil)");
}

#[test]
fn a_paused_server_does_not_answer_until_it_goes_on() {
    let server = RedisServer::start().unwrap();
    server.pause();
    let mut silent = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
    std::io::Write::write_all(&mut silent, b"PING\r\n").unwrap();
    silent.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    assert!(silent.read(&mut [0; 1]).is_err());
    server.resume();
    silent.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    assert_eq!(silent.read(&mut [0; 1]).unwrap(), 1);
}

#[test]
fn a_killed_or_dropped_server_is_gone_even_when_paused() {
    let mut cluster = RedisCluster::start(2).unwrap();
    assert_ne!(cluster.urls()[0], cluster.urls()[1]);
    let pids: Vec<u32> = cluster.iter().filter_map(RedisServer::pid).collect();
    cluster[0].kill();
    assert!(cluster[0].try_command(&["PING"]).is_err());
    assert!(!runs(pids[0]));
    cluster[1].pause();
    let dir = cluster[1].dir().to_owned();
    drop(cluster);
    assert!(!runs(pids[1]));
    assert!(!dir.exists());
}

#[test]
fn a_password_and_a_policy_and_a_socket_are_as_configured() {
    let config = RedisConfig::new().password("sesame").maxmemory_policy("allkeys-lru").unix_socket();
    let server = config.start().unwrap();
    assert!(server.command(&["CONFIG", "GET", "maxmemory-policy"]).contains("allkeys-lru"));
    assert!(server.socket().unwrap().exists());
    let bare = redis::Client::open(format!("redis://127.0.0.1:{}", server.port())).unwrap();
    assert!(redis::cmd("PING").query::<String>(&mut bare.get_connection().unwrap()).is_err());
}

fn run_id(server: &RedisServer) -> String {
    let info = server.command(&["INFO", "server"]);
    info.lines().find(|line| line.starts_with("run_id:")).unwrap_or_default().to_owned()
}

fn runs(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}
