use super::context::{JobsQuery, Show};
use super::*;
use crate::time::Zone;
use quorate::{
    FencingToken,
    election::{PastTerm, TermEnd, TermEndCause},
    ledger::{Copied, CopyState, Operation},
};
use quorate_operator::state::{JobsView, Leadership};
use quorate_operator::testing::{self, NOW};
use quorate_operator::view::{JobView, LeaderView, Vote, WorkerView};
use std::time::Duration;

pub(super) fn context(zone: &Zone) -> Context<'_> {
    Context {
        now: NOW,
        zone,
        base: "/ops",
        here: "/",
        operate: true,
        signed_in: true,
        can_sign_in: true,
        form_token: "form-token",
        notice: None,
        sets: &[],
    }
}

fn shown(view: &View, state: &Snapshot, detail: Option<&Detail>) -> String {
    let zone = Zone::named("Europe/Berlin").unwrap();
    page(view, state, detail, &context(&zone))
}

fn list(query: JobsQuery, jobs: JobsView) -> String {
    shown(&View::Jobs(query), &Snapshot { jobs: Some(jobs.into()), ..testing::state(3) }, None)
}

const HOSTILE: &str = "<script>alert(1)</script>\"' onload=x \u{202e}\u{1b}[2J";

/// Fails if text of another party is part of the page's own code.
#[track_caller]
fn assert_harmless(page: &str) {
    for bad in ["<script>alert", "\u{202e}", "\u{1b}", "' onload=x \"", "\"' onload"] {
        assert!(!page.contains(bad), "{bad:?} in {page}");
    }
    assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;"), "{page}");
}

fn hostile_job() -> JobView {
    let mut job = testing::job("plain");
    let text = quorate_operator::view::text(HOSTILE);
    // The library refuses names with control characters.
    job.name = quorate_operator::view::name(HOSTILE).into();
    (job.schedule, job.rules) = (text.clone(), text.clone());
    let mut end = testing::end(quorate::scheduler::RunOutcome::Failed, 60);
    (end.reason, end.worker, end.output) =
        (text.clone(), text.clone(), Some(quorate_operator::view::lines(HOSTILE)));
    job.ends = vec![end];
    job.paused =
        Some(quorate_operator::view::Pause { at: NOW, by: text.clone(), reason: Some(text), until: None });
    job
}

#[test]
fn hostile_text_is_text_on_every_page() {
    let mut state = testing::state(3);
    testing::jobs_of(&mut state).list.push(hostile_job());
    state.nodes[1].node.vote = Vote::Refused;
    state.nodes[1].node.reason = Some(quorate_operator::view::text(HOSTILE));
    state.leadership = Leadership::Leader {
        leader: LeaderView { worker: quorate_operator::view::name(HOSTILE), term: None, remaining: None },
        since: NOW,
    };
    let job = hostile_job();
    let detail = quorate_operator::state::JobDetail {
        ends: job.ends.clone(),
        unread_history: Some(HOSTILE.to_owned()),
        job,
        next: vec![NOW],
        why: None,
    };
    let detail = Detail::Job(Ok(Box::new(detail)));
    let claimed =
        quorate::claim::ClaimState::Claimed { by: None, remaining: None, attempts: 1, payload: None };
    let message = quorate_operator::view::MessageView::new(HOSTILE, &claimed);
    let messages = crate::Messages { list: vec![message], complete: true, missing: vec![HOSTILE.to_owned()] };
    for (view, detail) in [
        (View::Overview, None),
        (View::Nodes, None),
        (View::Jobs(JobsQuery::default()), None),
        (View::Jobs(JobsQuery { find: quorate_operator::view::name(HOSTILE), ..JobsQuery::default() }), None),
        (View::parse("/job", "name=%3Cscript%3Ealert(1)%3C/script%3E&at=%1b%22%3E").unwrap(), Some(&detail)),
        (View::parse("/job", "name=%3Cscript%3Ealert(1)%3C/script%3E%E2%80%AE").unwrap(), None),
        (View::Leadership, Some(&Detail::LeadershipPast(Err(HOSTILE.to_owned())))),
        (View::Leadership, Some(&Detail::LeadershipPast(Ok(hostile_past())))),
        (
            View::parse("/messages", "set=%3Cscript%3Ealert(1)%3C/script%3E").unwrap(),
            Some(&Detail::Messages(Ok(messages.clone()))),
        ),
        (View::Messages { set: Some("x".to_owned()) }, Some(&Detail::Messages(Err(HOSTILE.to_owned())))),
    ] {
        assert_harmless(&shown(&view, &state, detail));
    }
}

fn hostile_past() -> quorate_operator::state::LeadershipPast {
    let end = TermEnd { at: NOW, cause: TermEndCause::WorkFailed, reason: HOSTILE.into() };
    let term = PastTerm {
        term: FencingToken::new(7),
        holder: HOSTILE.into(),
        began: NOW,
        priority: 0,
        end: Some(end),
    };
    let operation = Operation {
        at: NOW,
        by: HOSTILE.into(),
        action: HOSTILE.into(),
        target: HOSTILE.into(),
        group: None,
        reason: Some(HOSTILE.into()),
        done: false,
        result: HOSTILE.into(),
    };
    let changes = vec![quorate_operator::view::AuditEntry::of_operation(&operation)];
    let term = quorate_operator::view::TermView::new(&term, None, NOW);
    quorate_operator::state::LeadershipPast { terms: vec![term], changes }
}

#[test]
fn the_page_says_why_each_term_ended_and_what_operators_changed() {
    let mut past = hostile_past();
    past.terms[0].cause = Some(TermEndCause::LeaseLost);
    let page = shown(&View::Leadership, &testing::state(3), Some(&Detail::LeadershipPast(Ok(past.clone()))));
    assert!(page.contains("lease-lost") && page.contains("failed: "), "{page}");
    (past.terms[0].ended, past.terms[0].cause) = (None, None);
    let page = shown(&View::Leadership, &testing::state(3), Some(&Detail::LeadershipPast(Ok(past.clone()))));
    assert!(page.contains("no end is recorded"), "{page}");
    past.terms[0].leads = true;
    let page = shown(&View::Leadership, &testing::state(3), Some(&Detail::LeadershipPast(Ok(past))));
    assert!(page.contains("leads now") && !page.contains("no end is recorded"), "{page}");
}

#[test]
fn a_long_list_has_pages_and_filters() {
    let mut jobs = testing::jobs(1_000);
    jobs.list[700].paused =
        Some(quorate_operator::view::Pause { at: NOW, by: "ada".into(), reason: None, until: None });
    let rows = |page: &str| page.matches("role=\"row\" data-key=").count();
    let first = list(JobsQuery::default(), jobs.clone());
    assert_eq!(rows(&first), jobs::PAGE);
    assert!(!first.contains("still being read"));
    let unread = list(JobsQuery::default(), JobsView { unread: 480, ..jobs.clone() });
    assert!(unread.contains("The runs of 480 of the 1000 jobs are still being read"), "{unread}");
    assert!(
        first.contains("1 to 50 of 1000")
            && first.contains("/ops/jobs?page=2")
            && !first.contains("Previous")
    );
    let last = list(JobsQuery { page: 5_000, ..JobsQuery::default() }, jobs.clone());
    assert!(
        last.contains("951 to 1000 of 1000") && last.contains("Previous") && !last.contains(">Next<"),
        "{last}"
    );
    let found = list(JobsQuery { find: "JOB-70".to_owned(), ..JobsQuery::default() }, jobs.clone());
    assert_eq!(rows(&found), 11, "job-70 and job-700 to job-709");
    let paused = list(JobsQuery { show: Show::Paused, ..JobsQuery::default() }, jobs.clone());
    assert_eq!(rows(&paused), 1);
    let none = list(JobsQuery { find: "nothing".to_owned(), ..JobsQuery::default() }, jobs.clone());
    assert!(none.contains("No job matches") && rows(&none) == 0);
    let mut state = Snapshot { jobs: Some(jobs.into()), ..testing::state(3) };
    let overview = shown(&View::Overview, &state, None);
    assert!(overview.contains("All 1000 jobs") && overview.len() < 30_000, "{}", overview.len());
    assert_eq!(rows(&overview), 1, "only the paused job");
    testing::freeze(&mut state);
    (0..100).for_each(|job| testing::pause(&mut state, job));
    let overview = shown(&View::Overview, &state, None);
    assert!(overview.contains("and 97 more") && overview.len() < 60_000, "{}", overview.len());
    assert_eq!(rows(&overview), 20);
}

#[test]
fn jobs_in_trouble_come_first() {
    let mut state = testing::state(3);
    testing::fail(&mut state, 2);
    let shown = shown(&View::Jobs(JobsQuery::default()), &state, None);
    assert!(shown.find("data-key=\"job-2\"") < shown.find("data-key=\"job-0\""), "{shown}");
    assert!(shown.contains("One of 3 jobs needs you: it failed"), "{shown}");
}

#[test]
fn workers_are_shown_if_one_has_labels_or_handlers() {
    let worker = |name: &str, labels: &[&str]| WorkerView {
        worker: name.to_owned(),
        labels: labels.iter().map(ToString::to_string).collect(),
        handlers: Vec::new(),
        max_running: None,
    };
    let shown = |workers| list(JobsQuery::default(), JobsView { workers, ..testing::jobs(1) });
    let plain = shown(vec![worker("a", &[]), worker("b", &[])]);
    assert!(!plain.contains("Handlers"), "{plain}");
    let labelled = shown(vec![worker("a", &[]), worker("b", &["eu", "<gpu>"])]);
    assert!(labelled.contains("eu, &lt;gpu&gt;") && labelled.contains("Workers"), "{labelled}");
}

#[test]
fn an_empty_list_and_an_old_list_say_so() {
    let none = list(JobsQuery::default(), JobsView { read_at: Some(NOW), ..JobsView::default() });
    assert!(
        none.contains("There are no jobs yet.") && none.contains("No worker has registered a job"),
        "{none}"
    );
    let unread =
        list(JobsQuery::default(), JobsView { error: Some("2 of 3 away".into()), ..JobsView::default() });
    assert!(unread.contains("could not be read yet") && unread.contains("2 of 3 away"), "{unread}");
    let old = JobsView {
        error: Some("no majority".into()),
        read_at: Some(testing::before(60)),
        ..testing::jobs(2)
    };
    let old = list(JobsQuery::default(), old);
    assert!(
        old.contains("This is the list of") && old.contains("1 min ago") && old.contains("job-1"),
        "{old}"
    );
}

#[test]
fn without_a_quorum_every_page_says_so() {
    let mut state = testing::state(3);
    for node in &mut state.nodes[1..] {
        node.node.vote = Vote::Unreachable;
        node.node.reason = Some("the connection was refused".to_owned());
    }
    state.leadership = Leadership::Unknown;
    for (view, text) in [
        (View::Overview, "No quorum: 1 of 3 nodes votes, 2 are needed"),
        (View::Nodes, "No quorum: 1 of 3 nodes votes"),
        (View::Leadership, "No worker can lead: 1 of 3 nodes votes"),
    ] {
        let shown = shown(&view, &state, None);
        assert!(shown.contains(&format!("<h1>{text}")), "{shown}");
        assert!(shown.contains("What to do"), "{shown}");
    }
}

#[test]
fn the_nodes_show_their_copies_of_the_records_if_a_group_has_jobs() {
    let mut state = testing::state(3);
    assert!(!shown(&View::Nodes, &state, None).contains("copy of the jobs' records"));
    let part = CopyState::Incomplete(Some(Copied { records: 3, of: 8 }));
    testing::copies(&mut state, &[CopyState::Complete, part, CopyState::Complete]);
    let nodes = shown(&View::Nodes, &state, None);
    for text in
        ["copy of the jobs' records: complete", "copy of the jobs' records: incomplete, 3 of 8 records"]
    {
        assert!(nodes.contains(text), "{nodes}");
    }
    let overview = shown(&View::Overview, &state, None);
    assert!(overview.contains("redis://redis-1:6379/0 – incomplete"), "{overview}");
}

#[test]
fn only_an_operator_sees_the_actions() {
    let mut state = testing::state(3);
    testing::start(&mut state, 0);
    let job = state.jobs.as_ref().unwrap().list[0].clone();
    let detail = quorate_operator::state::JobDetail {
        ends: job.ends.clone(),
        unread_history: None,
        job,
        next: vec![],
        why: None,
    };
    let detail = Detail::Job(Ok(Box::new(detail)));
    let view = View::Job { name: "job-0".to_owned(), at: None };
    let zone = Zone::utc();
    let shown = |operate| page(&view, &state, Some(&detail), &Context { operate, ..context(&zone) });
    for action in ["trigger", "pause", "cancel", "backfill"] {
        let form = format!("action=\"/ops/do/{action}\"");
        assert!(shown(true).contains(&form) && !shown(false).contains(&form), "{action}");
    }
    assert!(!shown(true).contains("/do/resume"), "it is not paused");
    assert!(shown(true).contains("value=\"form-token\""));
}

#[test]
fn a_history_that_cannot_be_read_leaves_the_rest_of_the_page() {
    let state = testing::state(3);
    let job = state.jobs.as_ref().unwrap().list[0].clone();
    let view = View::Job { name: "job-0".to_owned(), at: None };
    let zone = Zone::utc();
    let shown = |ends: &[quorate_operator::view::RunEnd], unread: Option<&str>| {
        let unread_history = unread.map(str::to_owned);
        let (ends, job, next) = (ends.to_vec(), job.clone(), vec![NOW]);
        let detail = quorate_operator::state::JobDetail { ends, unread_history, job, next, why: None };
        page(&view, &state, Some(&Detail::Job(Ok(Box::new(detail)))), &context(&zone))
    };
    let unread = shown(&job.ends, Some("2 of 5 nodes answered"));
    assert!(unread.contains("The history cannot be read now") && unread.contains("2 of 5 nodes"), "{unread}");
    assert!(unread.contains("Rules") && unread.contains("class=\"stack\""), "{unread}");
    assert!(!shown(&[], Some("2 of 5 nodes answered")).contains("No run has ended yet"), "not known");
    assert!(!shown(&job.ends, None).contains("The history cannot be read"));
}

#[test]
fn a_page_is_named_by_its_path_and_parameters() {
    let parse = View::parse;
    assert_eq!(parse("/", "x=y"), Some(View::Overview));
    assert_eq!(parse("/job", "name=a%2Fb%3C&at="), Some(View::Job { name: "a/b<".to_owned(), at: None }));
    let query = JobsQuery { show: Show::Paused, find: "x y".to_owned(), page: 2 };
    assert_eq!(parse("/jobs", "page=3&find=x+y&show=paused"), Some(View::Jobs(query)));
    assert_eq!(parse("/jobs", "page=-1&show=?"), Some(View::Jobs(JobsQuery::default())));
    assert_eq!(parse("/messages", "set="), Some(View::Messages { set: None }));
    assert_eq!(parse("/api/v1/jobs", ""), None);
}

#[test]
fn a_page_has_no_code_or_style_of_its_own() {
    let state = testing::state(5);
    for view in [View::Overview, View::Nodes, View::Jobs(JobsQuery::default()), View::Leadership] {
        let shown = shown(&view, &state, None);
        assert!(
            !shown.contains(" style=") && !shown.contains("<style") && !shown.contains("onclick"),
            "{shown}"
        );
        assert_eq!(shown.matches("<script").count(), 1);
        assert!(!shown.contains("http://") && !shown.contains("https://"), "{shown}");
    }
}

#[test]
fn a_sidecar_shows_the_leases_of_its_clients_by_client_and_age() {
    let lease = quorate_operator::view::ClientLease {
        client: "billing <b> (pid 7, uid 1)".to_owned(),
        names: ["a", "b", "c", "d"].map(str::to_owned).into(),
        kind: "exclusive".to_owned(),
        state: "step_down",
        token: Some(7),
        since: testing::state(3).at,
        age: Duration::from_secs(90),
        quiet: Duration::from_secs(2),
        remaining: Duration::from_secs(4),
    };
    let state = Snapshot { leases: Some(vec![lease].into()), ..testing::state(3) };
    let page = shown(&View::Overview, &state, None);
    for part in
        ["Leases of clients", "billing &lt;b&gt; (pid 7, uid 1)", "a, b, c and 1 more", "asked to finish"]
    {
        assert!(page.contains(part), "{part} in {page}");
    }
    assert!(!shown(&View::Overview, &testing::state(3), None).contains("Leases of clients"));
}
