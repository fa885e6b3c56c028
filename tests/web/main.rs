//! Tests of the operator's page in Chromium, on real daemons and servers.
//!
//! # What is not guaranteed
//!
//! Chromium is the only browser that is tried, without a screen reader. Without `chromedriver`, or without axe-core
//! (`bash tests/run.sh` installs both), the tests report that they cannot run.
//!
//! With `UPDATE_PAGE_SHOTS=1`, the picture of messages in docs/guide/src/reference/page is written. `tests/page/pictures.py`
//! writes the others.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod actions;
mod bench;
mod many;
mod states;

use bench::{Bench, HOSTILE, OPERATE, READ, SOON, store_messages};
use quorate_testkit::cannot_run;
use quorate_tests::support::{ENTER, Http, Nodes, PATIENCE, Program, TAB, until};
use rustix::process::Signal;
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

#[test]
fn a_row_turns_running_and_then_failed_and_the_keyboard_is_enough() {
    let name = "a_row_turns_running_and_then_failed_and_the_keyboard_is_enough";
    let Some(bench) = Bench::start(name) else { return };
    let (browser, row) = (&bench.browser, Bench::row("slow"));
    until("the jobs", PATIENCE, || (bench.http.status("/api/v1/jobs/slow") == Some(200)).then_some(()));
    bench.open("/job?name=slow");
    assert_eq!(browser.text(".acts"), "", "a reader has no actions");
    bench.sign_in();
    let cookies = browser.run("return document.cookie");
    assert!(!cookies.to_string().contains("quorate-page"), "the session is hidden from scripts: {cookies}");

    // A pause, with the keyboard alone. Enter opens the details, and sends the form from its field.
    bench.open("/job?name=slow");
    browser.tab_to(".acts details:nth-of-type(2) summary");
    browser.press(ENTER);
    browser.press(TAB);
    browser.press("disk full <b>");
    browser.press(ENTER);
    browser.until_text(".notice", "slow: ", PATIENCE);
    browser.until_text("h1", "slow is paused", PATIENCE);
    bench.open_live("/leadership");
    browser.until_text("#audit ~ table, section[aria-labelledby=audit] table", "disk full <b>", PATIENCE);
    assert!(browser.text("section[aria-labelledby=audit]").contains("http@127.0.0.1"));
    browser.until_text("section[aria-labelledby=terms] table", "leads now", PATIENCE);

    // The form that is open stays open while the page is updated.
    bench.open_live("/job?name=slow");
    browser.tab_to(".acts details:nth-of-type(2) summary");
    browser.press(ENTER);
    browser.tab_to("form[action$='/do/resume'] button");
    let time = browser.text("#live time");
    until("two updates", PATIENCE, || (browser.text("#live time") != time).then_some(()));
    browser.press(ENTER);
    browser.until_text(".notice", "slow: ", PATIENCE);

    bench.open_live("/jobs");
    browser.until_text(&row, "idle", PATIENCE);
    bench.http.with_token(OPERATE).post("/api/v1/jobs/slow/trigger", "").expect(200);
    browser.until_text(&row, "running", PATIENCE);
    bench.program.write("go", "");
    browser.until_text(&row, "failed", PATIENCE);
    browser.until_text("h1", "One of 3 jobs needs you: it failed", PATIENCE);
    bench.is_same_document();
    bench.open("/job?name=slow");
    browser.until_text("pre", "<b>bold</b>", PATIENCE);
    browser.until_text("h1", "slow failed", PATIENCE);
}

#[test]
fn a_killed_node_and_a_killed_server_are_shown() {
    let Some(mut bench) = Bench::start("a_killed_node_and_a_killed_server_are_shown") else { return };
    bench.open_live("/nodes");
    let port = bench.nodes[2].port();
    let row = format!("tr[data-key*=\"{port}\"] td.at");
    bench.browser.until_text(&row, "votes", PATIENCE);
    bench.nodes[2].kill();
    bench.browser.until_text(&row, "unreachable", SOON);
    bench.browser.until_text("h1", "none may be lost: 2 of 3 nodes vote", SOON);
    bench.is_same_document();

    bench.open_live("/");
    bench.nodes[1].kill();
    bench.browser.until_text("h1", "No quorum: 1 of 3 nodes votes", SOON * 2);
    bench.browser.until_text("section[aria-labelledby=jobs]", "This is the list of", SOON * 2);
    bench.is_same_document();

    bench.daemon.kill();
    bench.browser.until_text("#gone", "Not live since", PATIENCE);
    bench.browser.until_text("#live", "not live since", PATIENCE);
    bench.is_same_document();
}

/// The pages, with their names.
const PAGES: [(&str, &str); 7] = [
    ("overview", "/"),
    ("nodes", "/nodes"),
    ("jobs", "/jobs"),
    ("job", "/job?name=slow"),
    ("leadership", "/leadership"),
    ("messages", "/messages?set=orders"),
    ("sign-in", "/sign-in"),
];

#[test]
fn every_page_is_usable_on_a_phone_in_the_dark_and_without_barriers() {
    let name = "every_page_is_usable_on_a_phone_in_the_dark_and_without_barriers";
    let Some(axe) = axe(name) else { return };
    let Some(bench) = Bench::start(name) else { return };
    let browser = &bench.browser;
    until("the jobs", PATIENCE, || (bench.http.status("/api/v1/jobs/slow") == Some(200)).then_some(()));
    store_messages(&bench.nodes.list());
    bench.program.write("go", "");
    bench.http.with_token(OPERATE).post("/api/v1/jobs/slow/trigger", "").expect(200);
    bench.sign_in();
    for (picture, path) in PAGES {
        for (width, dark) in [(1_280, false), (390, true)] {
            browser.look(width, if dark { 844 } else { 900 }, dark);
            bench.open(path);
            let shown = format!("{path}, {width} px");
            let wide = browser.run("return document.documentElement.scrollWidth - window.innerWidth");
            assert!(wide.as_i64().is_some_and(|more| more <= 0), "{shown}: {wide} px too wide");
            let background = browser.run("return getComputedStyle(document.body).backgroundColor");
            let expected = if dark { "rgb(20, 23, 26)" } else { "rgb(251, 251, 249)" };
            assert_eq!(background, expected, "{shown}");
            browser.run("for (const closed of document.querySelectorAll('details')) closed.open = true");
            browser.run(&axe);
            let found = browser.run_async(AXE);
            assert_eq!(found, "[]", "{shown}");
            let is_kept = !dark && picture == "messages";
            if is_kept && std::env::var_os("UPDATE_PAGE_SHOTS").is_some() {
                browser.run("for (const open of document.querySelectorAll('details')) open.open = false");
                write_picture(picture, &browser.screenshot());
            }
        }
    }
    browser.run("document.body.insertAdjacentHTML('beforeend', '<img src=\"data:,\">')");
    browser.run(&axe);
    let found = browser.run_async(AXE).to_string();
    assert!(found.contains("image-alt"), "axe-core does not see a barrier: {found}");
    hostile_names_are_text(&bench);
}

/// Runs axe-core, and returns the violations that are serious or critical.
const AXE: &str = "const done = arguments[arguments.length - 1];
    axe.run().then(result => done(JSON.stringify(result.violations
        .filter(found => ['serious', 'critical'].includes(found.impact))
        .map(found => [found.id, ...found.nodes.map(node => node.html.slice(0, 200))]))),
        error => done(String(error)));";

/// Opens the page of the job with a hostile name: the name is text, and the policy keeps the page from running code.
fn hostile_names_are_text(bench: &Bench) {
    let browser = &bench.browser;
    bench.open_live("/jobs");
    let script =
        "return [...document.querySelectorAll('tbody th a')].map(link => link.textContent).join('|')";
    let names = browser.run(script).to_string();
    assert!(names.contains(HOSTILE), "{names}");
    browser.run(
        "[...document.querySelectorAll('tbody th a')].find(link => link.textContent.includes('<')).click()",
    );
    browser.until_text("h1", HOSTILE, PATIENCE);
    assert_eq!(browser.run("return document.scripts.length"), 1);
    let inserted =
        "const script = document.createElement('script'); script.textContent = 'window.ran = true';
        document.body.append(script); document.body.setAttribute('style', 'color: red');
        return [window.ran === undefined, getComputedStyle(document.body).color !== 'rgb(255, 0, 0)'].join()";
    assert_eq!(browser.run(inserted), "true,true", "the policy permits code or styles in the page");
    let policy = bench.http.get("/").expect(200).head;
    assert!(policy.contains("content-security-policy: default-src 'none'; style-src 'self'"), "{policy}");
}

/// Returns the source of axe-core, if it is installed in the version of the list in tests/page.
fn axe(name: &str) -> Option<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let tools = root.join("../target/page");
    let list = |path: PathBuf| fs::read(path).ok();
    let (there, wanted) =
        (list(tools.join(".installed-node")), list(root.join("page/package-lock.json")).expect("a list"));
    if there == Some(wanted) {
        return Some(fs::read_to_string(tools.join("node_modules/axe-core/axe.min.js")).expect("axe-core"));
    }
    cannot_run(
        &format!("web::{name}"),
        "axe-core is not installed in target/page; `bash tests/run.sh` installs it",
    );
    None
}

/// Writes a picture into docs/guide/src/reference/page.
fn write_picture(name: &str, base64: &str) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guide/src/reference/page");
    fs::create_dir_all(&dir).expect("a directory");
    let file = dir.join(format!("{name}.png"));
    let mut decode = Command::new("base64")
        .args(["-d"])
        .stdin(std::process::Stdio::piped())
        .stdout(fs::File::create(file).expect("a file"))
        .spawn()
        .expect("base64");
    let mut stdin = decode.stdin.take().expect("a pipe");
    std::io::Write::write_all(&mut stdin, base64.as_bytes()).expect("it reads");
    drop(stdin);
    assert!(decode.wait().expect("it ends").success());
}

#[test]
fn a_stranger_sees_and_changes_nothing() {
    let program = Program::new(env!("CARGO_BIN_EXE_quorate-under-test"));
    let nodes = Nodes::admitted(3, &program, &[]);
    program.write("operate", OPERATE);
    program.write("read", READ);
    let list: Vec<String> = nodes.urls().iter().map(|url| format!("{url:?}")).collect();
    let tokens = "read_token_file = \"read\"\noperate_token_file = \"operate\"\n";
    let text =
        format!("nodes = [{}]\ngroup = \"g\"\n[http]\nlisten = \"127.0.0.1:0\"\n{tokens}", list.join(", "));
    let config = program.write("quorate.toml", &text);
    let daemon = program.start(["web", "--config", &config]);
    let http = Http::of(&daemon);

    for path in ["/", "/nodes", "/jobs", "/job?name=x", "/leadership", "/messages"] {
        let page = http.get(path).expect(401);
        assert!(page.body.contains("<h1>Sign in</h1>") && !page.body.contains("votes"), "{page}");
    }
    http.get("/events?here=/").expect(403);
    http.get("/style.css").expect(200);
    assert!(http.with_token(READ).get("/").expect(200).body.contains("3 of 3 nodes vote"));
    http.get("/nothing").expect(401);
    http.with_token(READ).get("/leader").expect(503);

    // A form needs the cookie and the token of a page that was made for the same browser.
    let page = http.get("/sign-in").expect(200);
    let cookie = cookie(&page.head);
    assert!(page.head.contains("httponly") && page.head.contains("samesite=strict"), "{page}");
    let form = hidden(&page.body);
    let kind = "Content-Type: application/x-www-form-urlencoded\r\n";
    let send =
        |headers: &str, path: &str, body: &str| http.request("POST", path, &format!("{kind}{headers}"), body);
    let own = format!("Cookie: {cookie}\r\n");
    let sign_in = |token: &str| format!("form={form}&token={token}");
    send("", "/sign-in", &sign_in(OPERATE)).expect(403);
    send(&own, "/sign-in", &format!("token={OPERATE}")).expect(403);
    send(&format!("{own}Origin: http://evil.example\r\n"), "/sign-in", &sign_in(OPERATE)).expect(403);
    send(&format!("{own}Sec-Fetch-Site: cross-site\r\n"), "/sign-in", &sign_in(OPERATE)).expect(403);
    // Behind a proxy that does not pass the browser's Host, only Sec-Fetch-Site says that the origin is the same.
    let proxied = |origin: &str, site: &str| {
        let head = format!("{own}Host: inner:9640\r\nOrigin: {origin}\r\nSec-Fetch-Site: {site}\r\n");
        send(&head, "/sign-in", &sign_in(READ))
    };
    proxied("https://ops.example.com", "same-origin").expect(303);
    proxied("https://ops.example.com", "cross-site").expect(403);
    proxied("http://inner:9640", "cross-site").expect(403);
    let wrong = send(&own, "/sign-in", &sign_in("the-token-to-operatf")).expect(303);
    assert!(wrong.head.contains("location: /sign-in") && !wrong.head.contains("set-cookie"), "{wrong}");
    let notice = http.request("GET", "/sign-in", &own, "").expect(200);
    assert!(notice.body.contains("This token is not valid here"), "{notice}");
    send(&own, "/do/trigger", &format!("form={form}&job=beat")).expect(403);

    // A reader may not act; an operator may. The cookie is a new one after a sign-in.
    for (token, status) in [(READ, 403), (OPERATE, 303)] {
        let signed = send(&own, "/sign-in", &sign_in(token)).expect(303);
        let session = self::cookie(&signed.head);
        assert_ne!(session, cookie);
        assert!(!signed.head.contains(token), "the cookie holds the token: {signed}");
        let session = format!("Cookie: {session}\r\n");
        let page = http.request("GET", "/leadership", &session, "").expect(200);
        let form = hidden(&page.body);
        send(&session, "/do/resign", &format!("form={form}&back=/leadership")).expect(status);
        let notice = http.request("GET", "/leadership", &session, "").expect(200);
        assert_eq!(
            notice.body.contains("class=\"notice bad\""),
            status == 303,
            "there is no leader: {notice}"
        );
        send(&session, "/sign-out", &format!("form={form}")).expect(303);
        http.request("GET", "/", &session, "").expect(401);
    }
    assert!(!daemon.stderr().contains(OPERATE) && !daemon.stderr().contains(READ));
    daemon.signal(Signal::TERM);
    daemon.wait(PATIENCE).expect(0);
}

/// Returns the name and the value of the browser's cookie.
#[track_caller]
fn cookie(head: &str) -> String {
    let line = head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).expect("a cookie");
    line.split(';').next().expect("a pair").to_owned()
}

/// Returns the token of the forms of a page.
#[track_caller]
fn hidden(page: &str) -> String {
    let (_, rest) = page.split_once("name=\"form\" value=\"").expect("a form");
    rest.split('"').next().expect("a value").to_owned()
}
