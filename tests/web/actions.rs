use crate::bench::{Bench, HOSTILE, OPERATE, store_messages};
use quorate_tests::support::{PATIENCE, until};
use serde_json::{Value, json};

/// A job that runs until it is cancelled, and one whose ticks are known.
const JOBS: &str = "[[job]]\nname = \"slow\"\nschedule = \"0 0 29 2 *\"\ncommand = [\"sleep\", \"600\"]\n\
     [[job]]\nname = \"report\"\nschedule = \"*/10 * * * *\"\nzone = \"UTC\"\ncommand = [\"true\"]\n";
/// A time that is long after the test, as a field takes it.
const LATE: &str = "2099-01-01T00:00";

impl Bench {
    fn job(&self, job: &str) -> Value {
        self.http.get(&format!("/api/v1/jobs/{job}")).expect(200).json()
    }

    fn outcomes(&self, job: &str, outcome: &str) -> usize {
        let page = self.http.get(&format!("/api/v1/jobs/{job}/history")).expect(200).json();
        let all = page["history"].as_array().cloned().unwrap_or_default();
        all.iter().filter(|end| end["outcome"] == outcome).count()
    }

    /// Waits until the page offers to cancel active runs, or no longer does.
    #[track_caller]
    fn until_cancel_is_offered(&self, offered: bool) {
        until(&format!("an action for active runs: {offered}"), PATIENCE, || {
            (self.browser.text(".acts").contains("Cancel…") == offered).then_some(())
        });
    }

    #[track_caller]
    fn acts(&self, action: &str, question: &str, fields: &[(&str, &str)], done: &str) {
        let notice = self.act(action, question, fields);
        assert!(notice.contains(done), "{action}: {notice}");
        assert_eq!(self.browser.text(".notice.bad"), "", "{action} failed");
    }
}

#[test]
fn each_action_asks_says_what_it_did_and_is_in_the_audit_list() {
    let name = "each_action_asks_says_what_it_did_and_is_in_the_audit_list";
    let Some(bench) = Bench::of(name, 3, JOBS, "run") else { return };
    let browser = &bench.browser;
    bench.until_registered("slow");
    store_messages(&bench.nodes.list());
    bench.sign_in();

    bench.open("/job?name=slow");
    bench.acts("trigger", "It runs once, now", &[], "slow: 1 run");
    browser.until_text("h1", "slow runs now", PATIENCE);
    bench.until_cancel_is_offered(true);
    bench.acts("cancel", "end as cancelled", &[], "slow: 1 cancelled");
    until("a cancelled run", PATIENCE, || (bench.outcomes("slow", "cancelled") == 1).then_some(()));

    bench.open("/job?name=slow");
    let fields = [("reason", "the disk is full"), ("until", LATE)];
    bench.acts("pause", "Its ticks are skipped", &fields, "slow: paused");
    browser.until_text(".verdict", "“the disk is full”", PATIENCE);
    browser.until_text(".verdict", "until 1 Jan 2099", PATIENCE);
    let paused = bench.job("slow")["paused"].clone();
    assert_eq!(paused["reason"], "the disk is full", "{paused}");
    assert!(
        paused["until"]
            .as_str()
            .is_some_and(|until| until.starts_with("2098-12-31") || until.starts_with("2099-01-01"))
    );
    // A second press of the button, on a page from before, changes nothing twice.
    bench.acts("resume", "Those that were skipped stay skipped", &[], "slow: resumed");
    until("a job that is not paused", PATIENCE, || bench.job("slow")["paused"].is_null().then_some(()));

    bench.open("/job?name=report");
    let span = [("from", "2026-01-01T00:00"), ("until", "2026-01-01T00:30")];
    bench.acts("backfill", "once for each tick of its schedule in this span", &span, "report: 3 runs");
    until("three runs", PATIENCE, || (bench.outcomes("report", "done") >= 3).then_some(()));
    let notice = bench.act("backfill", "", &[("from", "2026-01-01T00:30"), ("until", "2026-01-01T00:00")]);
    assert!(notice.contains("not later than from"), "{notice}");
    assert_eq!(browser.text(".notice.bad"), notice, "it is marked as an error");

    // A freeze is an action on all jobs. A frozen job offers to end the freeze, and not to resume the job.
    bench.open("/jobs");
    let fields = [("reason", "a migration"), ("until", LATE)];
    bench.acts("freeze", "The ticks of all jobs are skipped", &fields, "billing: frozen");
    browser.until_text("main", "All jobs are frozen by http@127.0.0.1", PATIENCE);
    browser.until_text("h1", "all frozen", PATIENCE);
    browser.until_text(&Bench::row("report"), "frozen", PATIENCE);
    bench.open("/job?name=report");
    browser.until_text("h1", "report is frozen with its group", PATIENCE);
    browser.until_text(".verdict", "“a migration”", PATIENCE);
    assert!(!browser.text(".acts").contains("Resume…"), "{}", browser.text(".acts"));
    bench.open("/");
    browser.until_text(".probs.mild", "all jobs frozen, “a migration”, by http@127.0.0.1", PATIENCE);
    bench.open("/job?name=report");
    bench.acts("unfreeze", "run again from the next one", &[], "billing: unfrozen");
    browser.until_text("h1", "report is well", PATIENCE);

    bench.open("/messages?set=orders");
    browser.until_text("#dead", "Dead letters 1", PATIENCE);
    bench.acts("reset", "from attempt 1", &[], "orders: the message 80412 counts as new");
    browser.until_text("#dead", "Dead letters 0", PATIENCE);

    bench.open("/leadership");
    let term = browser.text("dl.facts dd.mono");
    bench.acts("resign", "Another worker leads then", &[], "has resigned");
    until("another term", PATIENCE, || {
        let now = browser.text("dl.facts dd.mono");
        (!now.is_empty() && now != term).then_some(())
    });

    let audit = "section[aria-labelledby=audit] table";
    for change in [
        "trigger slow",
        "cancel slow",
        "pause until 20",
        "resume slow",
        "backfill from ",
        "freeze until 20",
        "unfreeze all jobs",
        "claims-reset claim/orders/80412",
        "resign election/billing",
    ] {
        browser.until_text(audit, change, PATIENCE);
    }
    // The nodes were trusted from the command line.
    let by = browser.run(&format!(
        "return [...document.querySelectorAll('{audit} tbody tr')]
             .filter(row => !row.textContent.includes('nodes-trust'))
             .every(row => row.querySelector('td.at').textContent === 'http@127.0.0.1')"
    ));
    assert_eq!(by, true, "{}", browser.text(audit));
}

#[test]
fn an_action_that_fails_says_why() {
    let name = "an_action_that_fails_says_why";
    let jobs =
        format!("{JOBS}[[job]]\nname = {HOSTILE:?}\nschedule = \"0 0 29 2 *\"\ncommand = [\"true\"]\n");
    let Some(mut bench) = Bench::of(name, 3, &jobs, "run") else { return };
    bench.until_registered("slow");
    bench.sign_in();
    bench.open("/job?name=slow");
    let fields = [("reason", "x"), ("until", "2020-01-01T00:00")];
    let notice = bench.act("pause", "", &fields);
    assert!(notice.contains("until") && notice.contains("use a later time"), "{notice}");
    bench.open(&format!("/job?name={}", "%3Cscript%3Ealert(1)%3Cscript%3E"));
    let notice = bench.act("trigger", "", &[]);
    assert!(notice.starts_with(&format!("{HOSTILE}: ")), "{notice}");
    // A page that is updated offers no action once the loss is noticed, so this one stays as it was loaded.
    bench.browser.block("*/events*");
    bench.open("/job?name=slow");
    let form = bench.open_action("trigger");
    bench.nodes[0].kill();
    bench.nodes[1].kill();
    bench.browser.click(&format!("{form} button"));
    let notice = until("the notice of the failed action", PATIENCE, || {
        Some(bench.browser.text(".notice")).filter(|notice| notice.contains("1 of 3"))
    });
    assert!(notice.contains("1 of 3") && bench.browser.text(".notice.bad") == notice, "{notice}");
}

/// Regression: an action that came or went with a run shifted the others, and an open form was closed or shown twice.
#[test]
fn an_open_form_stays_when_a_run_begins_or_ends() {
    let name = "an_open_form_stays_when_a_run_begins_or_ends";
    let Some(bench) = Bench::of(name, 1, JOBS, "run") else { return };
    let browser = &bench.browser;
    bench.until_registered("slow");
    bench.sign_in();
    let request = |action: &str| {
        let http = bench.http.with_token(OPERATE);
        http.post(&format!("/api/v1/jobs/slow/{action}"), "").expect(200);
    };
    request("trigger");
    bench.open_live("/job?name=slow");
    bench.until_cancel_is_offered(true);
    let form = bench.open_action("backfill");
    let field = format!("document.querySelector({})", json!(bench.fill(&form, "from", LATE)));
    browser.run(&format!("{field}.focus()"));
    let state = || {
        let forms = format!("document.querySelectorAll({}).length", json!(form));
        let open = format!("{field}.closest('details').open");
        browser.run(&format!("return [{forms}, {open}, {field}.value, document.activeElement === {field}]"))
    };
    let kept = json!([1, true, LATE, true]);
    assert_eq!(state(), kept);
    request("cancel");
    bench.until_cancel_is_offered(false);
    assert_eq!(state(), kept, "the action to cancel went");
    request("trigger");
    bench.until_cancel_is_offered(true);
    assert_eq!(state(), kept, "the action to cancel came");
    bench.is_same_document();
}
