use crate::bench::{Bench, SOON};
use quorate_tests::support::{PATIENCE, until};

const JOB: &str = "[[job]]\nname = \"beat\"\nevery = \"1s\"\ncommand = [\"true\"]\n";

/// A page that is served by another process than the workers: first there is no worker, and so no job.
#[test]
fn a_group_without_jobs_and_one_node_have_pages_of_their_own() {
    let name = "a_group_without_jobs_and_one_node_have_pages_of_their_own";
    let Some(bench) = Bench::of(name, 1, JOB, "web") else { return };
    let browser = &bench.browser;
    bench.open("/jobs");
    browser.until_text("h1", "There are no jobs yet.", PATIENCE);
    assert!(browser.text("main").contains("No worker has registered a job."), "{}", browser.text("main"));
    assert!(browser.text("main").contains("quorate run --config"), "it says how to begin");
    for absent in ["nav.filter", "form[role=search]", "table"] {
        assert_eq!(browser.text(absent), "", "{absent}");
    }
    bench.open("/leadership");
    browser.until_text("h1", "There is no leader.", PATIENCE);
    browser.until_text("section[aria-labelledby=terms]", "No term is recorded.", PATIENCE);
    bench.open_live("/");
    browser.until_text("h1", "There is no leader, so no job starts. There is a quorum.", PATIENCE);
    browser.until_text("section[aria-labelledby=jobs]", "No worker has registered a job.", PATIENCE);

    // The worker starts, and the page becomes that of a group on one node.
    let worker = bench.program.start(["run", "--config", &bench.config]);
    browser.until_text("h1", "All is well, on one node.", PATIENCE);
    browser.until_text(".probs.mild", "is the only node", PATIENCE);
    browser.until_text("section[aria-labelledby=jobs]", "beat", PATIENCE);
    bench.is_same_document();
    bench.open("/nodes");
    browser.until_text("h1", "There is a quorum of one node. It may not be lost.", PATIENCE);
    assert!(browser.text("main").contains("Any node that votes: no quorum."), "{}", browser.text("main"));
    drop(worker);
}

#[test]
fn every_page_says_that_there_is_no_quorum() {
    let name = "every_page_says_that_there_is_no_quorum";
    let Some(mut bench) = Bench::of(name, 3, JOB, "run") else { return };
    bench.until_registered("beat");
    bench.open_live("/job?name=beat");
    until("a job that has run", PATIENCE, || {
        bench.browser.text("section[aria-labelledby=runs]").contains("done").then_some(())
    });
    bench.nodes[0].kill();
    bench.nodes[2].kill();
    bench.browser.until_text("h1", "The job cannot be read now.", SOON * 5);
    bench.is_same_document();
    for (path, selector, text) in [
        ("/", "h1", "No quorum: 1 of 3 nodes votes, 2 are needed."),
        ("/", "section[aria-labelledby=needs]", "Unreachable:"),
        ("/nodes", "h1", "No quorum: 1 of 3 nodes votes"),
        ("/nodes", "#what-to-do ~ div", "is the server up"),
        ("/jobs", "h1", "The jobs cannot be read now."),
        ("/jobs", "main", "This is the list of"),
        ("/jobs", "tbody", "beat"),
        ("/leadership", "h1", "No worker can lead: 1 of 3 nodes votes"),
        ("/leadership", "main", "cannot be read"),
        ("/messages?set=orders", "h1", "cannot be read"),
    ] {
        bench.open(path);
        bench.browser.until_text(selector, text, PATIENCE);
    }
    // The nodes are back. They vote after their quarantine, and until then each page says when.
    bench.nodes[0].restart().expect("it starts");
    bench.nodes[2].restart().expect("it starts");
    bench.open("/nodes");
    bench.browser.until_text("h1", "No quorum: 1 of 3 nodes votes", PATIENCE);
    bench.browser.until_text("table", "quarantine", PATIENCE);
    bench.browser.until_text("table", "votes in ", PATIENCE);
}
