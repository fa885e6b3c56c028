use crate::bench::{Bench, OPERATE};
use quorate_tests::support::{PATIENCE, until};
use std::{io::Read, io::Write};

/// The number of jobs.
const JOBS: usize = 1_000;
/// The number of nodes.
const NODES: u64 = 3;
/// The largest size of a page, in bytes. All jobs together would have ten times as much.
const PAGE_MAX: usize = 100_000;
/// The most bytes that the nodes send until the page knows all histories: about 25 reads of all jobs. A history that
/// reads all jobs would cost a thousand of them.
const HISTORIES_MAX: u64 = 60_000_000;

fn jobs() -> String {
    let job = |at| {
        let command = if at == 700 { "false" } else { "true" };
        format!("[[job]]\nname = \"job-{at:04}\"\nschedule = \"0 0 29 2 *\"\ncommand = [\"{command}\"]\n")
    };
    (0..JOBS).map(job).collect()
}

impl Bench {
    /// Returns the number of scripts and commands that the nodes have got from all clients, without those in scripts.
    fn requests(&self) -> u64 {
        let of = |node: &quorate_testkit::redis::RedisServer| {
            let stats = node.command(&["INFO", "commandstats"]);
            let calls = |line: &str| {
                line.strip_prefix("cmdstat_evalsha:calls=")?.split(',').next()?.parse::<u64>().ok()
            };
            stats.lines().find_map(calls).unwrap_or_default()
        };
        self.nodes.iter().map(of).sum()
    }

    /// Returns the number of bytes that the nodes have sent.
    fn bytes(&self) -> u64 {
        let of = |node: &quorate_testkit::redis::RedisServer| {
            let stats = node.command(&["INFO", "stats"]);
            let sent = |line: &str| line.trim().strip_prefix("total_net_output_bytes:")?.parse::<u64>().ok();
            stats.lines().find_map(sent).expect("the bytes that were sent")
        };
        self.nodes.iter().map(of).sum()
    }

    /// Reads the events of a page until `count` of them are pages. Returns their sizes.
    fn pages(&self, here: &str, count: usize) -> Vec<usize> {
        let mut stream = self.http.connect().expect("a connection");
        let request = format!("GET /events?here={here} HTTP/1.1\r\nHost: {}\r\n\r\n", self.http.address());
        stream.write_all(request.as_bytes()).expect("a request");
        let (mut text, mut part) = (String::new(), vec![0; 65_536]);
        loop {
            let length = stream.read(&mut part).expect("an event within the time limit");
            assert!(length > 0, "the stream has ended: {text}");
            text += &String::from_utf8_lossy(&part[..length]);
            let pages: Vec<&str> = text.split("event: page\n").skip(1).collect();
            if pages.len() > count {
                return pages[..count].iter().map(|page| page.len()).collect();
            }
        }
    }
}

#[test]
fn a_thousand_jobs_are_usable() {
    let Some(bench) = Bench::of("a_thousand_jobs_are_usable", 3, &jobs(), "run") else { return };
    let browser = &bench.browser;
    until("all jobs", PATIENCE, || {
        let page = bench.http.get("/jobs").body;
        page.contains(&format!("1 to 50 of {JOBS}")).then_some(())
    });
    // It fails before a viewer looks: the list of many jobs has no ends, so the page reads the histories in parts.
    bench.http.with_token(OPERATE).post("/api/v1/jobs/job-0700/trigger", "").expect(200);
    until("a failure", PATIENCE, || {
        let page = bench.http.get("/api/v1/jobs/job-0700/history").json();
        (page["history"][0]["outcome"] == "failed").then_some(())
    });
    let before = bench.bytes();
    bench.open_live("/");
    browser.until_text("h1", "one job needs you: job-0700 failed", PATIENCE * 2);
    assert_eq!(
        browser.run("return document.querySelectorAll('section[aria-labelledby=jobs] tbody tr').length"),
        1
    );
    bench.is_same_document();
    until("all histories", PATIENCE * 2, || {
        (!browser.text("section[aria-labelledby=jobs]").contains("still being read")).then_some(())
    });

    let bytes = bench.bytes() - before;
    println!("all histories: the nodes sent {bytes} bytes");
    assert!(bytes < HISTORIES_MAX, "the nodes sent {bytes} bytes");

    // Pages and a search, without scripts.
    bench.open("/jobs");
    assert_eq!(browser.run("return document.querySelectorAll('tbody tr').length"), 50);
    assert!(
        browser.text("tbody tr").starts_with("job-0700"),
        "trouble comes first: {}",
        browser.text("tbody tr")
    );
    browser.click("a[rel=next]");
    browser.until_text("nav[aria-label='Pages of the list']", "51 to 100 of 1000", PATIENCE);
    browser.run("document.querySelector('[name=find]').value = 'job-07'");
    browser.click("form[role=search] button");
    browser.until_text("nav[aria-label='Pages of the list']", "1 to 50 of 100", PATIENCE);
    browser.click("nav[aria-label='Filter jobs'] a[href*='show=trouble']");
    until("the only job in trouble", PATIENCE, || {
        (browser.run("return document.querySelectorAll('tbody tr').length") == 1).then_some(())
    });
    bench.open("/");

    // The costs: bytes of a page and of an update, and requests to the nodes. They do not depend on the machine.
    for path in ["/", "/jobs", "/jobs?page=20", "/job?name=job-0003"] {
        let bytes = bench.http.get(path).expect(200).body.len();
        assert!(bytes < PAGE_MAX, "{path}: {bytes} bytes");
    }
    for here in ["/", "/jobs", "/job?name=job-0003"] {
        let (before, bytes) = (bench.requests(), bench.bytes());
        let pages = bench.pages(here, 4);
        let (requests, bytes) = (bench.requests() - before, bench.bytes() - bytes);
        println!("{here}: pages of {pages:?} bytes, {requests} requests, {bytes} bytes from the nodes");
        assert!(pages.iter().all(|bytes| *bytes < PAGE_MAX), "{here}: {pages:?}");
        // A round reads the ledger in pages, and 16 histories. Between two pages are at most about four rounds.
        assert!(requests < 4 * 4 * 40 * NODES, "{here}: {requests} requests to the nodes");
    }
}
