//! The state of the live view, and its changes by keys and news. Nothing here reads a clock, the nodes or the
//! terminal.

use super::{
    events::{self, Event},
    news::{Dated, Moment, News},
    order::{Order, rows},
    question::{Answer, Question, edit},
    sidecar::LeaseLine,
};
use crate::{status::NodeLine, terminal::Tone};
use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use quorate::{env::WallTime, ledger::LedgerCopies};
use quorate_operator::{
    Action, Verb,
    state::{
        Detail, JobDetail, JobsView, Key, Leadership, Missing, Round, SeenNode, Snapshot, Verdict, judge,
    },
    view::{JobView, name},
};
use std::{cell::Cell, collections::VecDeque, sync::Arc, time::Duration};

/// The number of events that are kept.
const EVENTS_MAX: usize = 500;
/// The difference between the clocks of the leader and of this machine that may make a run seem to have ended earlier.
const EARLIER: Duration = Duration::from_secs(5);
/// The number of slow rounds after which data is marked.
const STALE_ROUNDS: u32 = 5;
/// The number of jobs by which a page key moves.
const PAGE: usize = 10;

/// The state of the live view.
#[derive(Debug)]
pub(super) struct State {
    pub(super) group: String,
    /// The last state of the group, which is that of the page.
    pub(super) known: Option<Dated<Known>>,
    /// The leadership when it was last read.
    pub(super) leader: Option<Dated<Leadership>>,
    /// The time from which on ends of runs are events: a little before the first list of jobs.
    began: Option<WallTime>,
    /// The leases of a sidecar's clients.
    pub(super) leases: Option<Dated<Vec<LeaseLine>>>,
    /// The reason why the leases were last not read.
    pub(super) leases_error: Option<String>,
    /// The newest event is the last.
    pub(super) events: VecDeque<Event>,
    pub(super) section: Section,
    pub(super) filter: String,
    pub(super) order: Order,
    pub(super) is_reversed: bool,
    /// The name of the chosen job.
    pub(super) chosen: Option<Arc<str>>,
    /// The job whose details are shown.
    pub(super) open: Option<Arc<str>>,
    pub(super) detail: Option<Dated<Result<Box<JobDetail>, String>>>,
    /// The first line of the details or of a section that is shown. Only a frame knows how many lines there are, so
    /// it limits this value.
    pub(super) scroll: Cell<u16>,
    pub(super) dialog: Option<Dialog>,
    /// The answer to the last action.
    pub(super) message: Option<(String, Tone)>,
    /// The number of actions without an answer.
    pub(super) pending: usize,
    /// Data older than this is marked, or than some rounds if they are slow.
    stale_after: Duration,
    /// The length of the last round.
    took: Duration,
}

/// The state of the group, with what follows from it.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) state: Snapshot,
    pub(super) verdict: Verdict,
    pub(super) nodes: Vec<NodeLine>,
}

impl Known {
    fn new(state: Snapshot) -> Self {
        let line = |seen: &SeenNode| NodeLine { node: seen.node.clone(), copies: Vec::new() };
        let mut nodes: Vec<NodeLine> = state.nodes.iter().map(line).collect();
        let copies = state.copies().map_or(&[][..], LedgerCopies::nodes);
        nodes.iter_mut().zip(copies).for_each(|(node, copy)| node.note_copy(&state.group, copy));
        Self { verdict: judge(&state), nodes, state }
    }

    /// Returns the jobs, once they have been read.
    fn jobs(&self) -> Option<&JobsView> {
        self.state.jobs.as_deref().filter(|jobs| jobs.read_at.is_some())
    }
}

/// The part of the screen that is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Section {
    #[default]
    All,
    Nodes,
    Runs,
    Events,
    /// The leases of a sidecar's clients, if there is a sidecar.
    Leases,
}

/// A part of the view that takes all keys.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Dialog {
    /// The filter is being typed. The value is the filter before.
    Filter(String),
    Help,
    Ask(Question),
}

/// A step that the shell of the view carries out.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Effect {
    Quit,
    /// Send a request to the leader.
    Act(Action),
    /// Read the details of this job at each update, or of none.
    Follow(Option<Arc<str>>),
}

impl State {
    /// Returns the state before anything was read. The nodes are read again after each period of `every`.
    pub(super) fn new(group: &str, every: Duration) -> Self {
        Self {
            group: group.to_owned(),
            known: None,
            leader: None,
            began: None,
            took: Duration::ZERO,
            leases: None,
            leases_error: None,
            events: VecDeque::new(),
            section: Section::default(),
            filter: String::new(),
            order: Order::default(),
            is_reversed: false,
            chosen: None,
            open: None,
            detail: None,
            scroll: Cell::new(0),
            dialog: None,
            message: None,
            pending: 0,
            stale_after: (every * 3).max(Duration::from_secs(3)),
        }
    }

    /// Takes in what the poller has read.
    pub(super) fn learn(&mut self, news: News, now: Moment) {
        match news {
            News::Round(round) => {
                self.took = now.boot.since(round.began);
                self.learn_round(*round);
            }
            News::Leases(Ok(leases)) => {
                self.leases = Some(Dated { value: leases, read: now });
                self.leases_error = None;
            }
            News::Leases(Err(error)) => self.leases_error = Some(error),
            News::Answer(answer) => {
                self.pending = self.pending.saturating_sub(1);
                let (text, tone) = match answer {
                    Ok(text) => (text, Tone::Plain),
                    Err(text) => (text, Tone::Trouble),
                };
                // An accepted request changes the job, which is an event already.
                if tone != Tone::Plain {
                    self.record([(text.clone(), tone)], now);
                }
                self.message = Some((text, tone));
            }
        }
    }

    /// Takes in the state of the group. What differs from the last one are events.
    fn learn_round(&mut self, Round { began, state, mut details }: Round) {
        let now = Moment { boot: began, wall: state.at };
        let open = self.open.as_ref().map(|name| Key::Job { name: name.to_string(), at: None });
        if let Some(Detail::Job(detail)) = open.and_then(|key| details.remove(&key)) {
            let value = detail.map_err(|(Missing::Unknown(why) | Missing::Unread(why))| why);
            self.detail = Some(Dated { value, read: now });
        }
        self.learn_leader(&state.leadership, now);
        let known = Known::new(state);
        if let Some(Dated { value: before, .. }) = self.known.take() {
            let jobs = before.jobs().zip(known.jobs()).and_then(|(before, jobs)| {
                let since = *self.began.get_or_insert(before.read_at? - EARLIER);
                jobs.error.is_none().then(|| events::of_jobs(&before.list, &jobs.list, since))
            });
            let nodes = events::of_nodes(&before.nodes, &known.nodes);
            self.record(nodes.into_iter().chain(jobs.into_iter().flatten()), now);
        }
        self.known = Some(Dated { value: known, read: now });
        self.choose_existing();
    }

    fn learn_leader(&mut self, leadership: &Leadership, now: Moment) {
        if *leadership == Leadership::Unknown {
            return;
        }
        let change = self.leader.as_ref().and_then(|before| events::of_leader(&before.value, leadership));
        self.record(change, now);
        self.leader = Some(Dated { value: leadership.clone(), read: now });
    }

    /// Takes in a key, and returns the steps to carry out.
    pub(super) fn press(&mut self, key: KeyEvent, now: Moment) -> Vec<Effect> {
        if key.kind == KeyEventKind::Release {
            return Vec::new();
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return if key.code == KeyCode::Char('c') { vec![Effect::Quit] } else { Vec::new() };
        }
        match self.dialog.take() {
            Some(Dialog::Filter(before)) => self.type_filter(key.code, before),
            Some(Dialog::Help) => {}
            Some(Dialog::Ask(question)) => return self.answer(key.code, question, now),
            None => return self.command(key.code),
        }
        Vec::new()
    }

    /// Returns the jobs, once they have been read.
    pub(super) fn jobs(&self) -> Option<&JobsView> {
        self.known.as_ref()?.value.jobs()
    }

    /// Returns the jobs that the filter selects, in the chosen order.
    pub(super) fn rows(&self) -> Vec<&JobView> {
        let jobs = self.jobs().map_or(&[][..], |jobs| &jobs.list);
        rows(jobs, &self.filter, self.order, self.is_reversed)
    }

    /// Returns whether there is a sidecar whose leases are shown.
    pub(super) fn has_leases(&self) -> bool {
        self.leases.is_some() || self.leases_error.is_some()
    }

    /// Limits the scrolling to a page with lines on it, and returns the first line to show. `lines` may be an estimate.
    pub(super) fn scroll_within(&self, lines: usize, height: u16) -> u16 {
        let last = u16::try_from(lines).unwrap_or(u16::MAX).saturating_sub(height / 2);
        self.scroll.set(self.scroll.get().min(last));
        self.scroll.get()
    }

    /// Returns whether data of this age is marked as not up to date.
    pub(super) fn is_stale(&self, read: Moment, now: Moment) -> bool {
        now.boot.since(read.boot) > self.stale_after.max(self.took * STALE_ROUNDS)
    }

    fn record(&mut self, changes: impl IntoIterator<Item = (String, Tone)>, now: Moment) {
        self.events.extend(changes.into_iter().map(|(text, tone)| Event { at: now.wall, text, tone }));
        while self.events.len() > EVENTS_MAX {
            self.events.pop_front();
        }
    }

    fn command(&mut self, key: KeyCode) -> Vec<Effect> {
        self.message = None;
        match key {
            KeyCode::Char('q') => return vec![Effect::Quit],
            KeyCode::Esc => return self.back(),
            KeyCode::Enter if self.open.is_none() => return self.open_chosen(),
            KeyCode::Char('?' | 'h') => self.dialog = Some(Dialog::Help),
            KeyCode::Char('/') => self.dialog = Some(Dialog::Filter(self.filter.clone())),
            KeyCode::Char('s') => self.order = self.order.next(),
            KeyCode::Char('S') => self.is_reversed = !self.is_reversed,
            KeyCode::Tab => {
                self.section = self.section.next(self.has_leases());
                self.scroll.set(0);
            }
            KeyCode::Up | KeyCode::Char('k') => self.go(1, true),
            KeyCode::Down | KeyCode::Char('j') => self.go(1, false),
            KeyCode::PageUp => self.go(PAGE, true),
            KeyCode::PageDown => self.go(PAGE, false),
            KeyCode::Home => self.go(usize::MAX, true),
            KeyCode::End => self.go(usize::MAX, false),
            KeyCode::Char('t') => self.ask(Verb::Trigger),
            KeyCode::Char('p') => self.ask(Verb::Pause),
            KeyCode::Char('r') => self.ask(Verb::Resume),
            KeyCode::Char('c') => self.ask(Verb::Cancel),
            KeyCode::Char('b') => self.ask(Verb::Backfill),
            _ => {}
        }
        Vec::new()
    }

    /// Leaves the details, then the filter, then the section. Esc never ends the program, so that a key too many
    /// does not.
    fn back(&mut self) -> Vec<Effect> {
        self.scroll.set(0);
        if self.open.take().is_some() {
            self.detail = None;
            return vec![Effect::Follow(None)];
        }
        if !self.filter.is_empty() {
            self.filter.clear();
        } else {
            self.section = Section::All;
        }
        Vec::new()
    }

    fn open_chosen(&mut self) -> Vec<Effect> {
        let Some(job) = self.chosen.clone() else { return Vec::new() };
        (self.open, self.detail) = (Some(job.clone()), None);
        self.scroll.set(0);
        vec![Effect::Follow(Some(job))]
    }

    fn go(&mut self, steps: usize, up: bool) {
        if self.open.is_some() || self.section != Section::All {
            let lines = u16::try_from(steps).unwrap_or(u16::MAX);
            let scroll = self.scroll.get();
            self.scroll.set(if up { scroll.saturating_sub(lines) } else { scroll.saturating_add(lines) });
            return;
        }
        let names: Vec<Arc<str>> = self.rows().iter().map(|job| job.name.clone()).collect();
        let at = self.chosen.as_ref().and_then(|chosen| names.iter().position(|name| name == chosen));
        let to = match (at, up) {
            (None, _) => 0,
            (Some(at), true) => at.saturating_sub(steps),
            (Some(at), false) => at.saturating_add(steps).min(names.len().saturating_sub(1)),
        };
        self.chosen = names.into_iter().nth(to);
    }

    /// Chooses the first job if the chosen one is not in the list.
    fn choose_existing(&mut self) {
        let rows = self.rows();
        if !rows.iter().any(|job| Some(&job.name) == self.chosen.as_ref()) {
            self.chosen = rows.first().map(|job| job.name.clone());
        }
    }

    fn ask(&mut self, verb: Verb) {
        let job = self.open.as_ref().or(self.chosen.as_ref());
        if let Some(job) = job.filter(|_| self.section == Section::All || self.open.is_some()) {
            self.dialog = Some(Dialog::Ask(Question::new(job, verb)));
        }
    }

    fn type_filter(&mut self, key: KeyCode, before: String) {
        match key {
            KeyCode::Enter => {}
            KeyCode::Esc => self.filter = before,
            _ => {
                edit(&mut self.filter, key);
                self.dialog = Some(Dialog::Filter(before));
            }
        }
        self.choose_existing();
    }

    fn answer(&mut self, key: KeyCode, question: Question, now: Moment) -> Vec<Effect> {
        let job = name(&question.job);
        match question.press(key, now.wall) {
            Answer::Ask(question) => {
                self.dialog = Some(Dialog::Ask(question));
                Vec::new()
            }
            Answer::Refuse => {
                self.message = Some((format!("{job}: nothing was done"), Tone::Plain));
                Vec::new()
            }
            Answer::Confirm(action) => {
                self.pending += 1;
                self.message = None;
                vec![Effect::Act(action)]
            }
        }
    }
}

impl Section {
    fn next(self, has_leases: bool) -> Self {
        match self {
            Self::All => Self::Nodes,
            Self::Nodes => Self::Runs,
            Self::Runs => Self::Events,
            Self::Events if has_leases => Self::Leases,
            Self::Events | Self::Leases => Self::All,
        }
    }
}
