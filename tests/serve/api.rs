//! Leases and messages, as a client sees them.

use crate::sidecar::{Sidecar, has, path};
use quorate_testkit::cannot_run;
use quorate_tests::support::{Http, PATIENCE, Tmux, until};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::{
    fs,
    io::{Read, Write},
    os::unix::{fs::PermissionsExt, net::UnixStream},
    thread,
    time::Duration,
};

#[test]
fn a_lease_is_acquired_kept_and_released() {
    let sidecar = Sidecar::new(3, "");
    let mode = fs::metadata(sidecar.socket()).expect("a socket").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let first = sidecar.take("nightly");
    assert_eq!((&first["state"], &first["holds"][0]["name"]), (&json!("held"), &json!("nightly")), "{first}");
    let token = first["token"].as_u64().expect("a token");
    assert!((1..=3_000).contains(&first["remaining_ms"].as_u64().unwrap_or_default()), "{first}");
    assert_eq!((&first["ttl_ms"], &first["keep_ms"]), (&json!(3_000), &json!(3_000)), "{first}");
    let conflict =
        sidecar.client().post("/api/v1/leases", "{\"lock\": \"nightly\", \"wait\": \"50ms\"}").expect(409);
    assert!(conflict.error().contains("the lock \"nightly\" is held by the client \""), "{conflict}");
    assert!(conflict.json()["holder"].is_string(), "{conflict}");
    assert_eq!(sidecar.ask(&first, "").expect(200).json()["state"], "held");
    assert_eq!(sidecar.release(&first).expect(200).json(), json!({ "released": true, "confirmed": true }));
    let unknown = sidecar.ask(&first, "").expect(404).error();
    assert!(unknown.contains("it is lost"), "{unknown}");
    sidecar.release(&first).expect(404);
    let second = sidecar.take("nightly");
    assert!(second["token"].as_u64() > Some(token) && second["id"] != first["id"], "{first} {second}");
}

#[test]
fn many_locks_are_one_lease_and_readers_share_a_lock() {
    let sidecar = Sidecar::new(3, "");
    let both = sidecar.acquire(&json!({ "locks": ["b", "a"] }));
    let names: Vec<&Value> =
        both["holds"].as_array().expect("a list").iter().map(|held| &held["name"]).collect();
    assert_eq!(names, ["b", "a"], "{both}");
    let other = sidecar.client().post("/api/v1/leases", "{\"locks\": [\"c\", \"a\"]}").expect(409).json();
    assert_eq!(other["lock"], "a", "{other}");
    sidecar.take("c");
    sidecar.release(&both).expect(200);
    let reader = || sidecar.acquire(&json!({ "lock": "a", "shared": true }));
    let readers = [reader(), reader()];
    assert!(
        readers.iter().all(|reader| reader["token"].is_null() && reader["shared"] == true),
        "{readers:?}"
    );
    sidecar.client().post("/api/v1/leases", "{\"lock\": \"a\"}").expect(409);
    readers.iter().for_each(|reader| drop(sidecar.release(reader).expect(200)));
    sidecar.take("a");
}

#[test]
fn a_silent_client_loses_its_lease_and_one_that_asks_keeps_it() {
    let sidecar = Sidecar::new(3, "");
    let silent = sidecar.acquire(&json!({ "lock": "silent", "keep": "300ms" }));
    assert!(silent["remaining_ms"].as_u64() <= Some(300), "{silent}");
    let kept = sidecar.acquire(&json!({ "lock": "kept", "keep": "600ms" }));
    // Each of these requests is a sign, and the one before has waited for longer than the client of `silent` may.
    for _ in 0..3 {
        assert_eq!(sidecar.ask(&kept, "?wait=500ms").expect(200).json()["state"], "held");
    }
    let gone = sidecar.ask(&silent, "").expect(410);
    assert_eq!(gone.json()["reason"], "silent", "{gone}");
    assert!(gone.error().contains("no request about it"), "{gone}");
    sidecar.take("silent");
    assert_eq!(sidecar.ask(&kept, "").expect(200).json()["token"], kept["token"]);
}

#[test]
fn a_stream_has_each_state_and_ends_with_the_lease() {
    let sidecar = Sidecar::new(3, "");
    let lease = sidecar.acquire(&json!({ "lock": "watched", "keep": "20s" }));
    let mut stream = UnixStream::connect(sidecar.socket()).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    write!(
        stream,
        "GET {} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\nConnection: close\r\n\r\n",
        path(&lease)
    )
    .expect("a request");
    let reader = thread::spawn(move || {
        let mut text = String::new();
        stream.read_to_string(&mut text).map(|_| text)
    });
    let released = sidecar.program.run(["lock", "release", "watched", "--force", "--config", "quorate.toml"]);
    released.expect(0);
    let text = reader.join().expect("a thread").expect("a stream that ends");
    assert!(text.to_lowercase().contains("content-type: text/event-stream"), "{text}");
    let at = |event: &str| text.find(event).unwrap_or_else(|| panic!("no {event} in {text}"));
    assert!(at("event: held\n") < at("event: ended\n"), "{text}");
    assert!(text.contains("\"reason\":\"lost\""), "{text}");
    let audit = sidecar.program.run(["audit", "--config", "quorate.toml", "--group", "default", "--json"]);
    assert!(audit.stdout.contains("forced-release") && audit.stdout.contains("watched"), "{}", audit.stdout);
}

#[test]
fn messages_are_claimed_completed_and_abandoned_in_batches() {
    let sidecar = Sidecar::new(3, "");
    let claim = |ids: &Value| {
        let body = json!({ "messages": ids }).to_string();
        sidecar.client().post("/api/v1/claims/orders", &body).expect(200).json()
    };
    let outcomes = |answer: &Value| -> Vec<String> {
        let all = answer["messages"].as_array().expect("a list").iter();
        all.map(|one| one["outcome"].as_str().expect("a word").to_owned()).collect()
    };
    let first = claim(&json!(["1", "2", "3"]));
    assert_eq!(outcomes(&first), ["claimed"; 3], "{first}");
    let second = claim(&json!(["3", "4"]));
    assert_eq!(outcomes(&second), ["in_progress", "claimed"], "{second}");
    let lease = &first["lease"];
    let post = |end: &str, body: Value| {
        sidecar.client().post(&format!("{}/{end}", path(lease)), &body.to_string()).expect(200).json()
    };
    let done = post("complete", json!({ "messages": ["1", "4"], "result": "shipped" }));
    assert_eq!(outcomes(&done), ["completed", "unknown"], "a message of another lease: {done}");
    assert_eq!(outcomes(&post("abandon", json!({ "messages": ["2"] }))), ["abandoned"]);
    let again = claim(&json!(["1", "2", "3"]));
    assert_eq!(outcomes(&again), ["done", "claimed", "in_progress"], "{again}");
    assert_eq!(again["messages"][0]["result"], "shipped", "{again}");
    assert_eq!(sidecar.ask(lease, "").expect(200).json()["holds"].as_array().map(Vec::len), Some(1));
    sidecar.release(lease).expect(200);
    assert_eq!(outcomes(&claim(&json!(["3"]))), ["claimed"]);
    let all_done = claim(&json!(["1"]));
    assert!(all_done["lease"].is_null(), "{all_done}");
}

#[test]
fn a_client_sees_only_its_own_leases() {
    let program_config = "http = { listen = \"127.0.0.1:0\", operate_token_file = \"operate\" }\n";
    let sidecar = Sidecar::new(3, "");
    for path in
        ["/api/v1/leases", "/api/v1/locks", "/api/v1/nodes", "/metrics", "/api/v1/audit", "/api/v1/claims/x"]
    {
        let refused = sidecar.client().get(path).expect(403).error();
        assert!(refused.contains("only their own leases"), "{path}: {refused}");
    }
    sidecar.client().get("/").expect(404);
    let paths = sidecar.client().get("/api/v1/openapi.json").expect(200).json()["paths"].clone();
    assert!(paths["/api/v1/leases/{id}"]["delete"].is_object(), "{paths}");
    // With an address for operators, those who may read see all leases, without the ids.
    drop(sidecar);
    let operated = with_token(program_config);
    let lease = operated.acquire(&json!({ "lock": "seen", "client": "billing" }));
    let list = operated.operators().get("/api/v1/leases").expect(200);
    let seen = &list.json()["leases"][0];
    assert_eq!((&seen["names"], &seen["state"]), (&json!(["seen"]), &json!("held")), "{list}");
    assert!(seen["client"].as_str().is_some_and(|client| client.starts_with("billing (pid ")), "{list}");
    assert!(!list.body.contains(lease["id"].as_str().expect("an id")), "{list}");
    assert!((operated.operators().metric("quorate_client_leases") - 1.0).abs() < f64::EPSILON);
    until("the page with the lease", PATIENCE, || {
        let page = operated.operators().get("/").expect(200).body;
        (page.contains("Leases of clients") && page.contains("billing (pid ")).then_some(())
    });
    if Tmux::is_installed() {
        let address = operated.operators().address().to_string();
        let args = ["top", "--config", "quorate.toml", "--group", "default", "--sidecar", &address];
        let terminal = Tmux::start(&operated.program, "leases", (160, 40), &args);
        terminal.until_it_shows(&["JOBS 0"]);
        // The section is there once the leases have been read.
        terminal.until("the section of leases", |screen| {
            terminal.press(&["Tab"]);
            screen.contains("LEASES of clients 1") && screen.contains("billing (pid ")
        });
    } else {
        cannot_run("serve: top shows the leases of a sidecar", "tmux is not installed");
    }
    // A client that may read may not hold leases there.
    operated.operators().post("/api/v1/leases", "{\"lock\": \"x\"}").expect(401);
    operated.operators().with_token(TOKEN).post("/api/v1/leases", "{\"lock\": \"x\"}").expect(200);
    operated.client().with_token(TOKEN).get("/api/v1/leases").expect(200);
}

const TOKEN: &str = "the-token-of-operators";

fn with_token(config: &str) -> Sidecar {
    // The file of the token is beside the configuration, which names it.
    let mut sidecar = Sidecar::new(3, "");
    sidecar.program.write("operate", TOKEN);
    let text = sidecar.program.read("quorate.toml");
    sidecar.program.write("quorate.toml", &format!("{text}{config}"));
    sidecar.daemon.signal(Signal::TERM);
    sidecar.restart();
    sidecar
}

#[test]
fn clients_of_an_address_send_a_token() {
    let sidecar = Sidecar::new(3, "");
    sidecar.program.write("token", "the-token-of-clients\n");
    let args = ["serve", "--config", "quorate.toml", "--listen", "127.0.0.1:0", "--token-file"];
    let token = sidecar.program.file("token").display().to_string();
    let daemon = sidecar.program.start(args.into_iter().chain([&*token]));
    let address = until("an address", PATIENCE, || {
        let log = daemon.stderr();
        log.lines()
            .find_map(|line| line.split_once("listening for clients on http://")?.1.trim().parse().ok())
    });
    let http = Http::of_address(address);
    let refused = http.post("/api/v1/leases", "{\"lock\": \"x\"}").expect(401).error();
    assert!(refused.contains("serve.token_file"), "{refused}");
    let client = http.with_token("the-token-of-clients");
    client.post("/api/v1/leases", "{\"lock\": \"x\"}").expect(200);
    client.get("/api/v1/leases").expect(403);
    http.get("/livez").expect(200);
}

#[test]
fn after_a_restart_a_lease_of_before_is_lost_and_its_lock_free_in_time() {
    let mut sidecar = Sidecar::new(3, "");
    let killed = sidecar.take("killed");
    sidecar.daemon.kill();
    sidecar.restart();
    let lost = sidecar.ask(&killed, "").expect(404).error();
    assert!(lost.contains("it is lost") && lost.contains("restarted"), "{lost}");
    sidecar.client().post("/api/v1/leases", "{\"lock\": \"killed\"}").expect(409);
    let next = sidecar.until_free("killed", Duration::from_secs(8));
    assert!(next["token"].as_u64() > killed["token"].as_u64(), "{killed} {next}");
    // A daemon that is asked to end asks its clients to finish, and ends once they have.
    let finishing = sidecar.client().get(&path(&next)).expect(200).json();
    let client = sidecar.client();
    let asked =
        thread::spawn(move || client.get(&format!("{}?wait=10s", path(&finishing))).expect(200).json());
    sidecar.daemon.signal(Signal::TERM);
    let asked = asked.join().expect("a thread");
    assert_eq!(asked["state"], "step_down", "{asked}");
    let refused = sidecar.client().post("/api/v1/leases", "{\"lock\": \"other\"}").expect(503).error();
    assert!(refused.contains("is stopping"), "{refused}");
    sidecar.release(&asked).expect(200);
    let Sidecar { program, nodes: _nodes, daemon } = sidecar;
    daemon.wait(PATIENCE).expect(0);
    assert!(!program.file("q.sock").exists(), "the socket is removed");
}

#[test]
fn systemd_passes_the_socket_and_keeps_it_while_the_daemon_restarts() {
    if !has("python3", "systemd_passes_the_socket_and_keeps_it_while_the_daemon_restarts") {
        return;
    }
    let sidecar = Sidecar::new(3, "");
    let passed = sidecar.program.file("passed.sock");
    // Another process listens, as systemd does, and starts the program with the socket.
    let pass = "import os, socket, sys\n\
                listener = socket.socket(socket.AF_UNIX)\n\
                listener.bind(sys.argv[1])\n\
                listener.listen()\n\
                os.dup2(listener.fileno(), 3)\n\
                os.set_inheritable(3, True)\n\
                os.environ.update(LISTEN_FDS='1', LISTEN_PID=str(os.getpid()))\n\
                os.execv(sys.argv[2], sys.argv[2:])\n";
    let program = sidecar.program.command(["serve", "--config", "quorate.toml", "--listen", "systemd"]);
    let mut command = std::process::Command::new("python3");
    command.args(["-c", pass]).arg(&passed).arg(program.get_program()).args(program.get_args());
    command.current_dir(sidecar.program.dir()).env("HOME", sidecar.program.dir());
    let daemon = sidecar.program.start_command(command);
    let client = Http::of_socket(&passed);
    until("a daemon on the socket", PATIENCE, || {
        let body = json!({ "lock": "passed" }).to_string();
        let answer = client.try_request("POST", "/api/v1/leases", "", &body).ok()?;
        (answer.status == 200).then_some(())
    });
    daemon.signal(Signal::TERM);
    daemon.wait(PATIENCE).expect(0);
    assert!(passed.exists(), "the socket belongs to systemd");
    let none = sidecar.program.run(["serve", "--config", "quorate.toml", "--listen", "systemd"]).expect(78);
    none.says(&["systemd has passed no unix socket", "socket unit"]);
}

#[test]
fn a_socket_in_use_or_another_file_is_not_replaced() {
    let sidecar = Sidecar::new(3, "");
    let socket = format!("unix:{}", sidecar.socket().display());
    let args = ["serve", "--config", "quorate.toml", "--listen", &socket];
    sidecar.program.run(args).expect(125).says(&["another process listens on it"]);
    let file = sidecar.program.write("file", "kept");
    let other = format!("unix:{file}");
    let args = ["serve", "--config", "quorate.toml", "--listen", &other];
    sidecar.program.run(args).expect(125).says(&["no socket"]);
    assert_eq!(sidecar.program.read("file"), "kept");
    let args = [
        "serve",
        "--config",
        "quorate.toml",
        "--listen",
        "unix:/tmp/q.sock",
        "--socket-group",
        "no-such-group",
    ];
    sidecar.program.run(args).expect(125).says(&["there is no group \"no-such-group\""]);
    sidecar
        .program
        .run(["serve", "--config", "quorate.toml"])
        .expect(78)
        .says(&["give --listen unix:/run/quorate"]);
    let list = sidecar.nodes.list();
    let unclear = sidecar.program.run(["serve", "--nodes", &list, "--listen", "here"]).expect(78);
    unclear.says(&["--listen \"here\" is no address for clients", "127.0.0.1:9641"]);
}
