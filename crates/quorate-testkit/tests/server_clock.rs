//! Checks that a server's own wall clock can be stepped, and that its other clocks do not step with it.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![cfg(target_os = "linux")]

use quorate::env::{SystemWorld, WallTime, World};
use quorate_testkit::redis::{RedisConfig, RedisServer};
use std::{thread, time::Duration};

const PATIENCE: Duration = Duration::from_secs(10);
const HOUR: Duration = Duration::from_secs(3600);
/// The tolerance for the comparison of two clocks. The test reads the two clocks one after the other, on a
/// machine that may be busy.
const SLACK: Duration = Duration::from_secs(20);

fn server(config: RedisConfig) -> RedisServer {
    config.own_clock().start().unwrap_or_else(|error| panic!("{error}"))
}

fn read(server: &RedisServer, command: &[&str]) -> WallTime {
    let said = server.command(command);
    let (seconds, micros) = said.split_once('\n').expect("two numbers");
    let number = |text: &str| text.parse::<u64>().expect("a number");
    WallTime::from_micros(number(seconds) * 1_000_000 + number(micros))
}

fn time(server: &RedisServer) -> WallTime {
    let (plain, script) =
        (read(server, &["TIME"]), read(server, &["EVAL", "return redis.call('TIME')", "0"]));
    assert!(plain.distance(script) < SLACK, "a script sees another time: {plain:?}, {script:?}");
    plain
}

#[track_caller]
fn shows(server: &RedisServer, expected: WallTime) {
    let time = time(server);
    assert!(time.distance(expected) < SLACK, "it is {time:?}, expected {expected:?}");
}

#[track_caller]
fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let give_up = SystemWorld.now() + PATIENCE;
    while !condition() {
        assert!(SystemWorld.now() < give_up, "no {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn time_steps_at_once_both_ways_and_again_and_outlives_a_restart() {
    let mut server = server(RedisConfig::new());
    shows(&server, SystemWorld.wall());
    server.step_clock(HOUR, true);
    shows(&server, SystemWorld.wall() + HOUR);
    server.step_clock(HOUR / 2, true);
    shows(&server, SystemWorld.wall() + HOUR * 3 / 2);
    server.restart().expect("it starts again");
    shows(&server, SystemWorld.wall() + HOUR * 3 / 2);
    server.step_clock(HOUR * 3, false);
    shows(&server, SystemWorld.wall() - HOUR * 3 / 2);
    server.pause();
    server.step_clock(HOUR * 3 / 2, true);
    server.resume();
    shows(&server, SystemWorld.wall());
}

#[test]
fn keys_expire_by_the_stepped_clock() {
    let server = server(RedisConfig::new());
    server.command(&["SET", "early", "v", "PX", "600000"]);
    server.step_clock(HOUR, true);
    assert_eq!(server.command(&["GET", "early"]), "(nil)");
    server.command(&["SET", "late", "v", "PX", "1000"]);
    server.step_clock(HOUR, false);
    let left: u128 = server.command(&["PTTL", "late"]).parse().expect("milliseconds");
    assert!(left > (HOUR - SLACK).as_millis(), "{left} ms");
}

/// Checks that the server's timers follow the monotonic clock. If they followed the wall clock, a step back by
/// an hour would stop the sweep of expired keys for an hour.
#[test]
fn its_timers_go_on_whatever_the_wall_clock_does() {
    let server = server(RedisConfig::new());
    for (forward, expected) in [(false, SystemWorld.wall() - HOUR), (true, SystemWorld.wall())] {
        server.step_clock(HOUR, forward);
        shows(&server, expected);
        server.command(&["SET", "k", "v", "PX", "20"]);
        // No command uses the key, so only the server's sweep can remove it.
        until("sweep", || server.command(&["DBSIZE"]) == "0");
    }
}

#[test]
fn several_servers_at_once_have_a_clock_each() {
    thread::scope(|scope| {
        let started: Vec<_> =
            (0..4).map(|_| scope.spawn(|| server(RedisConfig::new().append_only()))).collect();
        let servers: Vec<_> = started.into_iter().map(|started| started.join().expect("it starts")).collect();
        servers[1].step_clock(HOUR, true);
        for (index, server) in servers.iter().enumerate() {
            shows(server, SystemWorld.wall() + HOUR * u32::from(index == 1));
        }
    });
}

#[test]
#[should_panic(expected = "has the machine's clock")]
fn a_server_without_a_clock_of_its_own_cannot_be_stepped() {
    RedisServer::start().unwrap_or_else(|error| panic!("not this: {error}")).step_clock(HOUR, true);
}
