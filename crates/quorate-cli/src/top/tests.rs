use super::{
    frame::draw,
    news::{Moment, News},
    order::Order,
    sidecar::LeaseLine,
    state::{Dialog, Effect, Section, State},
    view::Palette,
};
use crate::{terminal::Tone, time::rfc3339};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use quorate::internals::JobAction;
use quorate::{
    env::{BootTime, WallTime},
    ledger::{CopyAtNode, CopyState, LedgerCopies},
    node::FencingToken,
    scheduler::{HistoryEntry, Placement, RunCause, RunOutcome},
};
use quorate_operator::{
    Action,
    state::{Detail, JobDetail, JobsView, Key, Leadership, Round, SeenNode, Snapshot},
    view::{
        ActiveRun, JobView, LeaderView, NodeView, Pause, RunEnd, ShardSetView, ShardView, ShardWorkerView,
        Vote, WorkerView,
    },
};
use ratatui::{Terminal, backend::TestBackend, buffer::Buffer, style::Color};
use std::{sync::Arc, time::Duration};

const BEGAN: u64 = 1_763_720_135_000_000;

/// A view without a terminal, at a time that the test chooses, of nodes that the test describes.
struct Bench {
    state: State,
    now: Moment,
    seen: Snapshot,
}

impl Bench {
    fn new() -> Self {
        let now = Moment { boot: BootTime::from_nanos(0), wall: WallTime::from_micros(BEGAN) };
        let seen = Snapshot {
            at: now.wall,
            group: "g".into(),
            worker: "top".into(),
            nodes: ["a", "b", "c"].map(votes).to_vec(),
            leadership: leader("w-1", 7),
            unread_leader: None,
            ttl: None,
            jobs: Some(Arc::default()),
            examination: None,
            leases: None,
            shards: Arc::default(),
        };
        Self { state: State::new("g", Duration::from_secs(1)), now, seen }
    }

    /// A view of three nodes, a leader and these jobs. The jobs are ordered by name.
    fn with_jobs(jobs: &[JobView]) -> Self {
        let mut bench = Self::new();
        bench.state.order = Order::Name;
        bench.jobs(jobs);
        bench
    }

    /// Lets the view learn what the nodes say now, with the details of a job.
    fn round(&mut self, detail: Option<(&str, JobDetail)>) {
        let detail = detail.map(|(name, detail)| {
            (Key::Job { name: name.to_owned(), at: None }, Detail::Job(Ok(Box::new(detail))))
        });
        let round =
            Round { began: self.now.boot, state: self.seen.clone(), details: detail.into_iter().collect() };
        self.learn(News::Round(Box::new(round)));
    }

    fn nodes(&mut self, nodes: [SeenNode; 3]) {
        self.seen.nodes = nodes.to_vec();
        self.round(None);
    }

    fn leader(&mut self, leadership: Leadership) {
        self.seen.leadership = leadership;
        self.round(None);
    }

    fn jobs(&mut self, jobs: &[JobView]) {
        self.list().list = jobs.to_vec();
        self.round(None);
    }

    fn list(&mut self) -> &mut JobsView {
        let read_at = Some(self.now.wall);
        let jobs = Arc::make_mut(self.seen.jobs.as_mut().expect("a group with jobs"));
        jobs.read_at = read_at;
        jobs
    }

    fn learn(&mut self, news: News) {
        self.state.learn(news, self.now);
    }

    fn pass(&mut self, time: Duration) {
        self.now.boot = self.now.boot + time;
        self.now.wall = self.now.wall + time;
    }

    fn press(&mut self, key: KeyCode) -> Vec<Effect> {
        self.state.press(KeyEvent::new(key, KeyModifiers::NONE), self.now)
    }

    fn type_in(&mut self, text: &str) {
        for c in text.chars() {
            assert_eq!(self.press(KeyCode::Char(c)), [], "{c}");
        }
    }

    fn buffer(&self, width: u16, height: u16) -> Buffer {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("memory");
        terminal.draw(|frame| draw(frame, &self.state, self.now, Palette { colour: true })).expect("memory");
        terminal.backend().buffer().clone()
    }

    fn screen_of(&self, width: u16, height: u16) -> String {
        let buffer = self.buffer(width, height);
        let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..height).map(|y| line(y).trim_end().to_owned() + "\n").collect()
    }

    fn screen(&self) -> String {
        self.screen_of(80, 24)
    }

    #[track_caller]
    fn shows(&self, parts: &[&str]) {
        let screen = self.screen();
        for part in parts {
            assert!(screen.contains(part), "no {part:?} in\n{screen}");
        }
    }
}

fn votes(name: &str) -> SeenNode {
    let node = NodeView {
        name: format!("redis://{name}:6379"),
        reachable: true,
        votes: true,
        reason: None,
        votes_in: None,
        version: Some("7.0.15".to_owned()),
        round_trip: Some(Duration::from_micros(250)),
        round_trip_p99: Some(Duration::from_micros(900)),
        vote: Vote::Votes,
    };
    SeenNode { node, votes_at: None, since: at(BEGAN), trips: Vec::new() }
}

fn away(name: &str) -> SeenNode {
    let node = NodeView {
        reachable: false,
        votes: false,
        reason: Some("connection refused".to_owned()),
        round_trip: None,
        round_trip_p99: None,
        vote: Vote::Unreachable,
        ..votes(name).node
    };
    SeenNode { node, ..votes(name) }
}

fn leader(worker: &str, term: u64) -> Leadership {
    let remaining = Some(Duration::from_secs(2));
    let leader = LeaderView { worker: worker.to_owned(), term: Some(term), remaining };
    Leadership::Leader { leader, since: at(BEGAN) }
}

fn at(micros: u64) -> WallTime {
    WallTime::from_micros(micros)
}

fn job(name: &str) -> JobView {
    JobView {
        group: "g".into(),
        name: name.into(),
        zone: quorate::scheduler::Zone::UTC,
        schedule: "every 5s".to_owned(),
        rules: "misfire latest".to_owned(),
        placement: Placement::Leader,
        registered: at(BEGAN - 60_000_000),
        paused: None,
        frozen: false,
        freeze: None,
        stored: None,
        waits_for: None,
        next: Some(at(BEGAN + 4_000_000)),
        expect_within: None,
        overdue: None,
        failing: None,
        unsent: Vec::new(),
        running: Vec::new(),
        ends: Vec::new(),
    }
}

fn ended(job: JobView, outcome: RunOutcome, seconds_ago: u64) -> JobView {
    let end = HistoryEntry {
        job: (&*job.name).into(),
        tick: WallTime::from_micros(BEGAN - seconds_ago * 1_000_000),
        until: None,
        cause: RunCause::Scheduled,
        end: outcome,
        reason: if outcome == RunOutcome::Failed { "exit 3".into() } else { "".into() },
        worker: "w-1".into(),
        term: FencingToken::new(7),
        started: None,
        took: Some(Duration::from_millis(5)),
        attempts: 1,
        attempt_error: None,
        output: None,
    };
    JobView { ends: vec![RunEnd::new(&end)], ..job }
}

fn running(job: JobView) -> JobView {
    let run = ActiveRun {
        tick: at(BEGAN - 1_000_000),
        request: None,
        worker: "w-2".to_owned(),
        term: 7,
        orphaned: false,
    };
    JobView { running: vec![run], ..job }
}

#[test]
fn the_first_screen_says_that_it_asks_and_then_shows_nodes_leader_and_jobs() {
    let empty = Bench::new();
    empty.shows(&["group g", "asking the nodes", "leader: asking", "JOBS: asking"]);

    let jobs = [running(job("beat")), ended(job("report"), RunOutcome::Failed, 30)];
    let bench = Bench::with_jobs(&jobs);
    bench.shows(&[
        "group g  3 of 3 nodes vote, 2 are needed",
        "10:15:35Z",
        "Leadership is safe, but one job needs you: report failed.",
        "Failed  report: exit 3; quorate jobs history report",
        "leader w-1 (term 7), lease ends in 2.0 s",
        "redis://a:6379  7.0.15       0.25 ms  votes",
        "JOBS 2, by name",
        "in 4 s",
        "running",
        "failed 30 s ago in 5.0ms",
    ]);
    assert!(!bench.screen().contains("SCHEDULE"), "80 columns have no room for it");
    let large = bench.screen_of(200, 50);
    for part in ["SCHEDULE", "0.90 ms", "every 5s", "RUNS 1", "w-2", "failed 30 s ago in 5.0ms: exit 3"] {
        assert!(large.contains(part), "no {part:?} in\n{large}");
    }
}

#[test]
fn only_trouble_is_coloured() {
    let jobs = [job("beat"), ended(job("report"), RunOutcome::Failed, 30)];
    let buffer = Bench::with_jobs(&jobs).buffer(80, 24);
    let coloured: String = buffer
        .content()
        .iter()
        .filter(|cell| cell.fg != Color::Reset)
        .map(ratatui::buffer::Cell::symbol)
        .collect();
    let verdict = "Leadership is safe, but one job needs you: report failed.";
    assert!(coloured.starts_with(verdict) && coloured.contains("failed 30 s ago"), "{coloured}");
    assert!(!coloured.contains("beat") && !coloured.contains("quorate jobs history"), "{coloured}");
}

#[test]
fn lost_nodes_a_lost_quorum_and_a_lost_leader_are_named() {
    let mut bench = Bench::with_jobs(&[job("beat")]);
    bench.shows(&["group g  3 of 3 nodes vote, 2 are needed", "All is well."]);
    bench.nodes([votes("a"), votes("b"), away("c")]);
    bench.shows(&["None may be lost: 2 of 3 nodes vote, 2 are needed. Jobs run.", "connection refused"]);
    bench.seen.leadership = Leadership::Unknown;
    bench.seen.unread_leader = Some("cannot read x: 1 of 3 nodes agreed".to_owned());
    bench.list().error = Some("cannot read the jobs of the group: 1 of 3".to_owned());
    bench.nodes([votes("a"), away("b"), away("c")]);
    bench.pass(Duration::from_secs(1));
    bench.shows(&[
        "No quorum: 1 of 3 nodes votes, 2 are needed. No worker can lead",
        "leader NOT UPDATED since 10:15:35Z (then w-1): cannot read x",
        "JOBS 1, by name  NOT UPDATED since 10:15:35Z: cannot read the jobs",
        "beat",
        "redis://b:6379: connection refused",
    ]);
    bench.seen.unread_leader = None;
    bench.leader(Leadership::Vacant { since: at(BEGAN) });
    bench.shows(&["NO LEADER", "no worker leads"]);
    bench.list().error = None;
    bench.seen.leadership = leader("w-2", 8);
    bench.nodes(["a", "b", "c"].map(votes));
    bench.shows(&["leader w-2 (term 8)", "w-2 leads (term 8)", "All is well."]);
    let states = [CopyState::Complete, CopyState::Unknown, CopyState::Incomplete(None)];
    let copies = states
        .iter()
        .zip(["a", "b", "c"])
        .map(|(state, node)| CopyAtNode { node: node.into(), state: *state });
    bench.list().copies = Some(LedgerCopies::new(copies));
    bench.round(None);
    bench.shows(&[
        "leader w-2 (term 8), lease ends in 2.0 s if not extended; ",
        "No job starts: too few nodes",
    ]);
}

#[test]
fn the_workers_are_shown_by_their_labels() {
    let mut bench = Bench::with_jobs(&[job("beat")]);
    let worker = |name: &str, labels: &[&str]| WorkerView {
        worker: name.to_owned(),
        labels: labels.iter().map(|label| (*label).to_owned()).collect(),
        handlers: Vec::new(),
        max_running: None,
    };
    bench.list().workers = vec![worker("oak", &[]), worker("elm", &[])];
    bench.round(None);
    assert!(!bench.screen().contains("workers"), "{}", bench.screen());
    bench.list().workers = vec![worker("oak", &["eu", "ssd"]), worker("elm", &["eu"]), worker("ash", &[])];
    bench.round(None);
    bench.shows(&["workers 3; eu: oak, elm; ssd: oak", "beat"]);
}

#[test]
fn sets_of_shards_are_shown_below_the_leader() {
    let mut bench = Bench::with_jobs(&[job("beat")]);
    let shard = |number, owner: Option<&str>| ShardView {
        number,
        owner: owner.map(str::to_owned),
        assigned: Some("w-1".to_owned()),
        fencing_token: Some(7),
        remaining: None,
    };
    let worker = ShardWorkerView {
        worker: "w-1".to_owned(),
        weight: 1,
        count: 2,
        lives: true,
        assigned: 2,
        owned: 1,
        state: "works",
    };
    let set = |second| ShardSetView {
        name: "orders".to_owned(),
        count: 2,
        owned: 1 + usize::from(second == Some("w-1")),
        leader: Some("w-1".to_owned()),
        workers: vec![worker.clone()],
        shards: vec![shard(0, Some("w-1")), shard(1, second)],
    };
    bench.seen.shards = vec![set(None)].into();
    bench.round(None);
    bench.shows(&["shards orders: 1 of 2 owned, 1 workers; 1 of 2 shards have no owner", "beat"]);
    bench.seen.shards = vec![set(Some("w-1"))].into();
    bench.round(None);
    bench.shows(&["shards orders: 2 of 2 owned, 1 workers; every shard has its owner"]);
}

#[test]
fn data_without_an_update_is_marked_after_three_periods() {
    let mut bench = Bench::with_jobs(&[job("beat")]);
    bench.pass(Duration::from_secs(3));
    assert!(!bench.screen().contains("NOT UPDATED"), "{}", bench.screen());
    bench.pass(Duration::from_millis(1));
    bench.shows(&["leader NOT UPDATED since 10:15:35Z", "JOBS 1, by name  NOT UPDATED since 10:15:35Z"]);
    bench.round(None);
    assert!(!bench.screen().contains("NOT UPDATED"), "{}", bench.screen());
}

#[test]
fn changes_of_jobs_are_events() {
    let mut bench = Bench::with_jobs(&[job("beat"), job("old")]);
    assert!(bench.state.events.is_empty(), "the first data are no events");
    let by_ann =
        Pause { by: "ann@host".to_owned(), at: at(BEGAN), reason: Some("disk full".to_owned()), until: None };
    let paused = JobView { paused: Some(by_ann), ..ended(running(job("beat")), RunOutcome::TimedOut, 2) };
    bench.jobs(&[paused, job("new")]);
    let events: Vec<(&str, Tone)> =
        bench.state.events.iter().map(|event| (&*event.text, event.tone)).collect();
    assert_eq!(
        events,
        [
            ("beat: run of 2025-11-21T10:15:34Z began on w-2", Tone::Plain),
            ("beat: 2025-11-21T10:15:33Z timed-out in 5.0ms", Tone::Trouble),
            ("beat: paused by ann@host: disk full", Tone::Caution),
            ("new: registered", Tone::Plain),
            ("old: removed", Tone::Caution),
        ]
    );
    bench.jobs(&[job("beat"), job("new")]);
    assert_eq!(bench.state.events.back().map(|event| &*event.text), Some("beat: resumed"));
    let known = bench.state.events.len();
    bench.jobs(&[ended(job("beat"), RunOutcome::Failed, 60), job("new")]);
    assert_eq!(bench.state.events.len(), known, "a history that was only read now has old ends");
}

#[test]
fn jobs_are_filtered_and_ordered_and_the_choice_follows_its_job() {
    let names = |bench: &Bench| -> Vec<String> { bench.state.rows().iter().map(|job| job.shown()).collect() };
    let soon = JobView { next: Some(at(BEGAN + 1_500_000)), ..job("zeta") };
    let never = JobView { next: None, ..ended(job("alpha"), RunOutcome::Failed, 9) };
    let mut bench = Bench::with_jobs(&[running(job("mid")), never, soon]);
    assert_eq!(names(&bench), ["alpha", "mid", "zeta"]);
    assert_eq!(bench.state.chosen.as_deref(), Some("alpha"));
    for (order, expected) in [
        ("next", ["zeta", "mid", "alpha"]),
        ("last", ["alpha", "mid", "zeta"]),
        ("state", ["alpha", "mid", "zeta"]),
        ("name", ["alpha", "mid", "zeta"]),
    ] {
        bench.press(KeyCode::Char('s'));
        assert_eq!(names(&bench), expected, "by {order}");
        bench.shows(&[&format!("JOBS 3, by {order}")]);
        assert_eq!(bench.state.chosen.as_deref(), Some("alpha"));
    }
    bench.press(KeyCode::Char('S'));
    assert_eq!(names(&bench), ["zeta", "mid", "alpha"]);

    bench.press(KeyCode::Char('/'));
    bench.type_in("ZEq");
    bench.press(KeyCode::Backspace);
    bench.shows(&["filter: ZE_"]);
    bench.press(KeyCode::Enter);
    assert_eq!((names(&bench), bench.state.chosen.as_deref()), (vec!["zeta".to_owned()], Some("zeta")));
    bench.shows(&["JOBS 1 of 3, filter \"ZE\", by name reversed"]);
    bench.press(KeyCode::Esc);
    assert_eq!(names(&bench).len(), 3);
    bench.press(KeyCode::Char('/'));
    bench.type_in("failed");
    assert_eq!(names(&bench), ["alpha"], "an outcome selects, too");
    bench.press(KeyCode::Esc);
    assert_eq!(names(&bench).len(), 3, "Esc restores the filter before");
}

#[test]
fn a_thousand_jobs_scroll_with_the_choice() {
    let jobs: Vec<JobView> = (0..1_000).map(|at| job(&format!("job-{at:04}"))).collect();
    let mut bench = Bench::with_jobs(&jobs);
    bench.shows(&["JOBS 1000", "job-0000"]);
    for _ in 0..30 {
        bench.press(KeyCode::Down);
    }
    bench.shows(&["job-0030"]);
    bench.press(KeyCode::End);
    bench.shows(&["job-0999"]);
    bench.press(KeyCode::PageUp);
    assert_eq!(bench.state.chosen.as_deref(), Some("job-0989"));
    bench.press(KeyCode::Home);
    bench.shows(&["job-0000"]);
}

#[test]
fn each_action_asks_first() {
    let mut bench = Bench::with_jobs(&[job("beat")]);
    let beat = || "beat".into();
    let act = |what| vec![Effect::Act(Action::Job(what))];
    for (key, question, action) in [
        ('t', "Run now: beat", JobAction::trigger(beat())),
        ('r', "Resume: beat", JobAction::Resume { job: beat() }),
        ('c', "Cancel: beat", JobAction::Cancel { job: beat(), tick: None }),
    ] {
        for refusal in [KeyCode::Char('n'), KeyCode::Enter, KeyCode::Esc, KeyCode::Char('q')] {
            assert_eq!(bench.press(KeyCode::Char(key)), []);
            bench.shows(&[question]);
            assert_eq!(bench.press(refusal), [], "{refusal:?}");
            bench.shows(&["beat: nothing was done"]);
        }
        bench.press(KeyCode::Char(key));
        assert_eq!(bench.press(KeyCode::Char('y')), act(action));
        bench.shows(&["waiting for the leader's answer"]);
        bench.learn(News::Answer(Ok("beat: accepted".to_owned())));
        bench.shows(&["beat: accepted"]);
    }
    bench.press(KeyCode::Char('p'));
    bench.type_in("disk q");
    bench.shows(&["Pause: beat", "Reason: disk q_"]);
    let pause = JobAction::Pause { job: beat(), reason: Some("disk q".into()), until: None };
    assert_eq!(bench.press(KeyCode::Enter), act(pause));
    bench.learn(News::Answer(Err("pause: beat: refused".to_owned())));
    bench.shows(&["pause: beat: refused"]);
    bench.press(KeyCode::Char('p'));
    assert_eq!(bench.press(KeyCode::Enter), act(JobAction::Pause { job: beat(), reason: None, until: None }));

    bench.press(KeyCode::Char('p'));
    bench.type_in("disk");
    bench.press(KeyCode::Tab);
    bench.type_in("soon");
    assert_eq!(bench.press(KeyCode::Enter), [], "the text is wrong, so the question stays");
    bench.shows(&["Reason: disk", "Until: soon_", "is neither a length nor a time"]);
    (0..4).for_each(|_| drop(bench.press(KeyCode::Backspace)));
    bench.type_in("90m");
    let until = Some(bench.now.wall + Duration::from_secs(5_400));
    assert_eq!(
        bench.press(KeyCode::Enter),
        act(JobAction::Pause { job: beat(), reason: Some("disk".into()), until })
    );

    bench.press(KeyCode::Char('b'));
    bench.shows(&["Back-fill: beat", "From: _", "Until:   (such as"]);
    bench.type_in(&rfc3339(at(BEGAN)));
    bench.press(KeyCode::Enter);
    bench.shows(&["until is missing"]);
    bench.type_in(&rfc3339(at(BEGAN + 60_000_000)));
    let [from, until] = [BEGAN, BEGAN + 60_000_000].map(WallTime::from_micros);
    assert_eq!(bench.press(KeyCode::Enter), act(JobAction::Backfill { job: beat(), from, until }));
}

#[test]
fn the_end_of_a_pause_fits_into_its_column() {
    let until = Some(at(BEGAN + 7_200_000_000));
    let paused = Pause { by: "ann".to_owned(), at: at(BEGAN), reason: Some("full".to_owned()), until };
    let bench = Bench::with_jobs(&[JobView { paused: Some(paused), ..job("beat") }]);
    bench.shows(&["paused for 2 h ("]);
    let large = bench.screen_of(200, 50);
    assert!(large.contains("paused for 2 h (full)"), "{large}");
}

#[test]
fn an_action_without_a_job_asks_nothing() {
    let mut bench = Bench::with_jobs(&[]);
    bench.press(KeyCode::Char('p'));
    assert_eq!(bench.state.dialog, None);
    assert_eq!(bench.press(KeyCode::Enter), []);
    bench.shows(&["JOBS 0", "a job is registered when"]);
}

#[test]
fn the_details_follow_the_open_job() {
    let mut bench = Bench::with_jobs(&[ended(job("beat"), RunOutcome::Failed, 5), job("other")]);
    assert_eq!(bench.press(KeyCode::Enter), [Effect::Follow(Some("beat".into()))]);
    bench.shows(&["beat", "schedule    every 5s", "asking the nodes"]);
    let detail = |job: &str| {
        let job = ended(self::job(job), RunOutcome::Failed, 5);
        let (ends, unread_history) = (job.ends.clone(), Some("cannot read the jobs".to_owned()));
        JobDetail { job, ends, unread_history, next: Vec::new(), why: None }
    };
    bench.round(Some(("other", detail("other"))));
    bench.shows(&["asking the nodes"]);
    bench.round(Some(("beat", detail("beat"))));
    bench.shows(&["HISTORY", "5 s ago", "failed in 5.0ms: exit 3", "[w-1]", "cannot read the jobs"]);
    bench.press(KeyCode::End);
    bench.shows(&["failed in 5.0ms: exit 3"]);
    bench.press(KeyCode::Home);
    bench.shows(&["schedule    every 5s"]);
    bench.press(KeyCode::Char('p'));
    bench.shows(&["Pause: beat"]);
    bench.press(KeyCode::Esc);
    assert_eq!(bench.press(KeyCode::Esc), [Effect::Follow(None)]);
    bench.shows(&["JOBS 2"]);
}

#[test]
fn each_section_can_fill_the_screen() {
    let mut bench = Bench::with_jobs(&[running(job("beat"))]);
    bench.leader(Leadership::Vacant { since: at(BEGAN) });
    for (section, part) in [(Section::Nodes, "NODE"), (Section::Runs, "RUNS 1"), (Section::Events, "EVENTS")]
    {
        bench.press(KeyCode::Tab);
        assert_eq!(bench.state.section, section);
        bench.shows(&[part]);
        assert!(!bench.screen().contains("JOBS 1"));
    }
    bench.press(KeyCode::Tab);
    bench.shows(&["JOBS 1"]);
}

#[test]
fn the_leases_of_a_sidecar_are_a_section_of_their_own() {
    let mut bench = Bench::with_jobs(&[job("beat")]);
    let lease = LeaseLine {
        client: "billing (pid 7, uid 1)".to_owned(),
        names: vec!["import".to_owned(), "export".to_owned()],
        state: "step_down".to_owned(),
        age_ms: 61_500,
        quiet_ms: 900,
    };
    bench.learn(News::Leases(Ok(vec![lease])));
    (0..4).for_each(|_| drop(bench.press(KeyCode::Tab)));
    bench.shows(&[
        "LEASES of clients 1",
        "billing (pid 7, uid 1)",
        "import, export",
        "step_down",
        "61.5 s",
        "0.9 s",
    ]);
    bench.learn(News::Leases(Err("127.0.0.1:9640: refused".to_owned())));
    bench.shows(&["LEASES of clients 1", "NOT UPDATED since", "127.0.0.1:9640: refused"]);
    bench.press(KeyCode::Tab);
    bench.shows(&["JOBS 1"]);
}

#[test]
fn q_and_ctrl_c_quit_and_help_takes_one_key() {
    let mut bench = Bench::with_jobs(&[job("beat")]);
    bench.press(KeyCode::Char('?'));
    bench.shows(&["any key closes this list", "pause the job"]);
    assert_eq!(bench.press(KeyCode::Char('q')), []);
    assert_eq!(bench.state.dialog, None);
    assert_eq!(bench.press(KeyCode::Char('q')), [Effect::Quit]);
    bench.press(KeyCode::Char('p'));
    assert!(matches!(bench.state.dialog, Some(Dialog::Ask(_))));
    let ctrl_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(bench.state.press(ctrl_c, bench.now), [Effect::Quit], "also during a question");
}

#[test]
fn hostile_names_and_tiny_screens_do_no_harm() {
    let hostile = ended(job("a\u{1b}[2J\u{202e}<b>\r\n"), RunOutcome::Failed, 1);
    let mut bench = Bench::with_jobs(&[hostile, job("日本語日本語日本語日本語日本語日本語")]);
    bench.press(KeyCode::Char('t'));
    for (width, height) in [(1, 1), (2, 40), (40, 2), (10, 5), (80, 24), (300, 100)] {
        let screen = bench.screen_of(width, height);
        assert!(!screen.replace('\n', "").contains(quorate::plain::steers), "{screen:?}");
    }
    bench.press(KeyCode::Esc);
    bench.shows(&["a [2J <b>"]);
}
