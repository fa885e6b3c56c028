//! Checks the faults and the clocks of machines that are namespaces. Each test runs this program again in namespaces of
//! its own.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![cfg(target_os = "linux")]

use quorate::env::{SystemWorld, World};
use quorate_testkit::{
    cannot_run,
    machines::{Link, Machine, Network, can_isolate, isolated},
    proxy::{Directions, Proxy},
    redis::{RedisConfig, RedisServer},
};
use std::{
    env,
    io::{BufRead, BufReader, Write},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

/// The environment variable that is set if this program runs in namespaces of its own.
const INSIDE: &str = "QUORATE_MACHINES_INSIDE";
const AHEAD: Duration = Duration::from_secs(5000);
const PATIENCE: Duration = Duration::from_secs(20);
/// The time for which a request is cut off. Nothing shows that it does not arrive but its absence after a while.
const CUT_FOR: Duration = Duration::from_millis(500);

/// Runs `test`, which is the body of the test `name`, in namespaces of its own.
fn isolate(name: &str, test: fn(&mut Network)) {
    if env::var_os(INSIDE).is_some() {
        return test(&mut Network::new().expect("namespaces of its own"));
    }
    if let Err(reason) = can_isolate() {
        return cannot_run(name, &reason);
    }
    let mut again = isolated();
    again.arg(env::current_exe().expect("its path")).args([name, "--exact", "--nocapture"]);
    let output = again.env(INSIDE, "1").stdin(Stdio::null()).output().expect("it starts");
    let (page, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{page}\n{errors}");
    assert!(page.contains("1 passed"), "the test ran there: {page}");
}

fn server(network: &mut Network) -> (Machine, RedisServer) {
    let machine = network.machine(None).expect("a machine");
    let config = RedisConfig::new().own_clock().on(machine.clone());
    (machine, config.start().unwrap_or_else(|error| panic!("{error}")))
}

/// Sends PING from a machine to this address, over a new connection, and returns whether the server answers.
fn answers(from: &Machine, address: &str) -> bool {
    let script =
        format!("exec 3<>/dev/tcp/{address} && printf 'PING\\r\\n' >&3 && read -r reply <&3 && echo $reply");
    // SYN packets that are lost are sent again after a second.
    let output = from.command("timeout").args(["3", "bash", "-c", &script]).stderr(Stdio::null()).output();
    String::from_utf8_lossy(&output.expect("bash").stdout).contains("PONG")
}

fn address(server: &RedisServer) -> String {
    server.address().to_string().replace(':', "/")
}

#[test]
fn a_link_is_cut_in_one_direction_or_both() {
    isolate("a_link_is_cut_in_one_direction_or_both", |network| {
        let ((machine, server), (other_machine, other)) = (server(network), server(network));
        let client = network.machine(None).expect("a machine");
        assert!(answers(&client, &address(&server)) && answers(&client, &address(&other)));
        let there = Link { from: client.address(), to: machine.address(), loss: 100 };
        let back = Link { from: machine.address(), to: client.address(), loss: 100 };
        for links in [&[there][..], &[back], &[there, back]] {
            network.set_links(links).expect("packet filters");
            assert!(!answers(&client, &address(&server)), "{links:?}");
            assert!(answers(&client, &address(&other)), "another link");
            assert!(answers(&other_machine, &address(&server)), "another client");
            // The filters do not concern this process.
            assert_eq!(server.command(&["PING"]), "PONG");
        }
        network.set_links(&[Link { loss: 40, ..there }]).expect("packet filters");
        assert!((0..20).any(|_| answers(&client, &address(&server))), "some packets arrive");
        network.set_links(&[]).expect("packet filters");
        assert!(answers(&client, &address(&server)));
    });
}

/// Shows the difference between the two directions: a request arrives although its reply is cut.
#[test]
fn a_request_arrives_although_its_reply_is_cut() {
    isolate("a_request_arrives_although_its_reply_is_cut", |network| {
        let (machine, server) = server(network);
        let client = network.machine(None).expect("a machine");
        let is_set = || server.command(&["EXISTS", "x"]) == "1";
        let replies = (machine.address(), client.address());
        let requests = (client.address(), machine.address());
        for ((from, to), arrives) in [(replies, true), (requests, false)] {
            let target = address(&server);
            let script = format!(
                "exec 3<>/dev/tcp/{target} && echo open && read -r && printf 'SET x 1\r\n' >&3 && echo sent && read -r"
            );
            let mut setter = client.command("bash");
            setter.args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut setter = setter.spawn().expect("bash");
            let mut input = setter.stdin.take().expect("a pipe");
            let mut said = BufReader::new(setter.stdout.take().expect("a pipe")).lines();
            assert_eq!(said.next().expect("a line").expect("UTF-8"), "open");
            network.set_links(&[Link { from, to, loss: 100 }]).expect("packet filters");
            input.write_all(b"\n").expect("it reads");
            assert_eq!(said.next().expect("a line").expect("UTF-8"), "sent");
            let give_up = SystemWorld.now() + if arrives { PATIENCE } else { CUT_FOR };
            while !is_set() && SystemWorld.now() < give_up {
                thread::sleep(Duration::from_millis(10));
            }
            assert_eq!(is_set(), arrives);
            network.set_links(&[]).expect("packet filters");
            // TCP sends the request again, so that it arrives after the cut.
            let give_up = SystemWorld.now() + PATIENCE;
            while !is_set() {
                assert!(SystemWorld.now() < give_up, "the request never arrived");
                thread::sleep(Duration::from_millis(10));
            }
            drop(input);
            setter.wait().expect("it ends with its input");
            server.command(&["DEL", "x"]);
        }
    });
}

#[test]
fn a_machine_has_a_boot_clock_and_a_proxy_of_its_own() {
    isolate("a_machine_has_a_boot_clock_and_a_proxy_of_its_own", |network| {
        let (machine, server) = server(network);
        let client = network.machine(Some(AHEAD)).expect("a machine");
        assert_eq!(client.boot_offset(), AHEAD);
        let uptime = |mut command: Command| {
            let output = command.arg("/proc/uptime").output().expect("it runs");
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            text.split(' ').next().and_then(|seconds| seconds.parse::<f64>().ok()).expect("seconds")
        };
        let (here, there) = (uptime(Command::new("cat")), uptime(client.command("cat")));
        assert!((there - here - AHEAD.as_secs_f64()).abs() < 30.0, "{here} {there}");
        let proxy = Proxy::on(&client, &server, 1).expect("a proxy");
        let target = format!("127.0.0.1/{}", proxy.port());
        assert!(answers(&client, &target));
        assert!(!answers(&machine, &target), "the proxy is on the client's machine only");
        proxy.cut(Directions::Back);
        assert!(!answers(&client, &target));
        proxy.heal();
        // The proxy's own connections pass the packet filters, too.
        let link = Link { from: client.address(), to: machine.address(), loss: 100 };
        network.set_links(&[link]).expect("packet filters");
        assert!(!answers(&client, &target));
        drop(proxy);
        drop(server);
        network.remove(&machine).expect("no process runs there");
    });
}

#[test]
fn a_network_is_made_only_in_namespaces_of_its_own() {
    if env::var_os(INSIDE).is_none() {
        let error = Network::new().expect_err("the machine's own network must not be changed");
        assert!(error.to_string().contains("namespaces of its own"), "{error}");
    }
}
