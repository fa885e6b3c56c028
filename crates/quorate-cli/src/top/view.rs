//! Draws the live view. On a small terminal, the sections give way in this order: first the list of runs, then
//! columns of the jobs, then all but three lines of the events. The first two lines and the jobs stay.

use super::{
    clock::{left, relative, time_of_day},
    dialog,
    news::{Dated, Moment},
    order::Order,
    state::{Dialog, Section, State},
};
use crate::{jobs::tone, terminal::Tone};
use quorate_operator::{
    state::{Level, Problem, Target},
    view::{JobView, NodeView},
};
use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    style::{Color, Modifier, Style},
    text::{Line, Span},
    widgets::{Cell, Paragraph, Row, Table, Wrap},
};

/// The height from which the list of runs is shown.
const TALL: u16 = 34;
/// The number of problems that are shown below the verdict.
const NEEDS_MAX: usize = 3;
/// The number of sets of shards that are shown.
const SETS_MAX: usize = 3;
/// The width from which the schedules are shown.
const WIDE: u16 = 120;

/// The colours of the view.
#[derive(Clone, Copy, Debug)]
pub(super) struct Palette {
    pub(super) colour: bool,
}

impl Palette {
    pub(super) fn of(self, tone: Tone) -> Style {
        match (tone, self.colour) {
            (Tone::Plain, _) => Style::new(),
            (Tone::Caution, true) => Style::new().fg(Color::Yellow),
            (Tone::Trouble, true) => Style::new().fg(Color::Red),
            (Tone::Caution | Tone::Trouble, false) => Style::new().add_modifier(Modifier::BOLD),
        }
    }
}

/// Draws the whole view.
pub(super) fn draw(frame: &mut Frame<'_>, state: &State, now: Moment, palette: Palette) {
    let lines = heading(state, now, palette, frame.area().width);
    let height = u16::try_from(lines.len()).unwrap_or(u16::MAX);
    let [head, body, foot] =
        Layout::vertical([Constraint::Length(height), Constraint::Fill(1), Constraint::Length(1)])
            .areas(frame.area());
    frame.render_widget(Paragraph::new(lines), head);
    let view = View { state, now, palette };
    if state.open.is_some() {
        dialog::details(frame, body, &view);
    } else {
        match state.section {
            Section::All => view.all(frame, body),
            Section::Nodes => view.nodes(frame, body, true),
            Section::Runs => view.runs(frame, body),
            Section::Leases => view.leases(frame, body),
            Section::Events => {
                view.events(frame, body, state.scroll_within(state.events.len(), body.height));
            }
        }
    }
    frame.render_widget(Paragraph::new(footer(state, palette)), foot);
    match &state.dialog {
        Some(Dialog::Help) => dialog::help(frame, frame.area()),
        Some(Dialog::Ask(question)) => dialog::question(frame, frame.area(), question),
        Some(Dialog::Filter(_)) | None => {}
    }
}

/// A view of the state at a point in time.
pub(super) struct View<'a> {
    pub(super) state: &'a State,
    pub(super) now: Moment,
    pub(super) palette: Palette,
}

fn heading<'a>(state: &State, now: Moment, palette: Palette, width: u16) -> Vec<Line<'a>> {
    let (level, headline, voting) = match &state.verdict {
        None => (Level::Well, "asking the nodes", String::new()),
        // The headline says how many nodes vote if that is the news.
        Some((verdict, voting)) if verdict.headline.contains(voting.as_str()) => {
            (verdict.level, &*verdict.headline, String::new())
        }
        Some((verdict, voting)) => (verdict.level, &*verdict.headline, format!("  {voting}")),
    };
    let group = format!("quorate top  group {}{voting}", state.group);
    let clock = time_of_day(now.wall);
    let gap = usize::from(width).saturating_sub(Line::from(&*group).width() + clock.len()).max(1);
    let first = Line::from(vec![
        Span::styled(group, Style::new().add_modifier(Modifier::BOLD)),
        Span::raw(" ".repeat(gap)),
        Span::raw(clock),
    ]);
    let verdict = Line::styled(headline.to_owned(), palette.of(tone_of(level)));
    // The list of the nodes has their problems.
    let needs = state.verdict.iter().flat_map(|(verdict, _)| &verdict.needs);
    let needs = needs.filter(|problem| problem.target != Target::Nodes).take(NEEDS_MAX);
    let needs = needs.map(|problem| need(problem, palette));
    let shards = state.shards.iter().take(SETS_MAX);
    let shards = shards.map(|(text, tone)| Line::styled(text.clone(), palette.of(*tone)));
    let workers = state.workers.iter().map(|text| Line::raw(text.clone()));
    let leader = leadership(state, now, palette);
    [first, verdict].into_iter().chain(needs).chain([leader]).chain(workers).chain(shards).collect()
}

/// Returns the line about a problem that an operator must fix.
fn need<'a>(problem: &Problem, palette: Palette) -> Line<'a> {
    Line::from(vec![
        Span::styled(format!("  {}", problem.kind), palette.of(tone_of(problem.level))),
        Span::raw(format!("  {}: {}; {}", problem.subject, first_line(&problem.text), problem.command)),
    ])
}

fn tone_of(level: Level) -> Tone {
    match level {
        Level::Well => Tone::Plain,
        Level::Warn => Tone::Caution,
        Level::Bad => Tone::Trouble,
    }
}

fn leadership<'a>(state: &State, now: Moment, palette: Palette) -> Line<'a> {
    let Some(leader) = &state.leader else {
        let text = if state.is_leader_unknown { "leader: not known" } else { "leader: asking the nodes" };
        return Line::raw(text);
    };
    let known = match &leader.value {
        None => "NO LEADER".to_owned(),
        Some(known) => {
            let term = known.term.map_or_else(String::new, |term| format!(" (term {term})"));
            let left = known.remaining.map(|left| left.saturating_sub(leader.age(now)));
            let left = left.map_or_else(String::new, |left| {
                format!(", lease ends in {:.1} s if not extended", left.as_secs_f64())
            });
            format!("leader {}{term}{left}", known.worker)
        }
    };
    if state.is_leader_unknown || state.is_stale(leader, now) {
        let worker = leader.value.as_ref().map_or("no worker", |known| &known.worker);
        let text = format!("leader NOT UPDATED since {} (then {worker})", time_of_day(leader.read.wall));
        return Line::styled(text, palette.of(Tone::Trouble));
    }
    match leader.value.as_ref().map(|leader| &leader.waiting) {
        None => Line::styled(known, palette.of(Tone::Trouble)),
        Some(Some(why)) => Line::styled(format!("{known}; {why}"), palette.of(Tone::Trouble)),
        Some(None) => Line::styled(known, palette.of(Tone::Plain)),
    }
}

fn footer<'a>(state: &State, palette: Palette) -> Line<'a> {
    if matches!(state.dialog, Some(Dialog::Filter(_))) {
        return Line::from(format!("filter: {}_  Enter keeps it, Esc does not", state.filter));
    }
    if state.pending > 0 {
        return Line::from(format!("waiting for the leader's answer to {} action(s)", state.pending));
    }
    if let Some((text, tone)) = &state.message {
        return Line::styled(first_line(text), palette.of(*tone));
    }
    Line::from(match state.open {
        Some(_) => "Esc back  t trigger  p pause  r resume  c cancel  b back-fill  q quit  ? keys",
        None => "Enter details  / filter  s sort  Tab section  t p r c b actions  q quit  ? keys",
    })
}

/// Returns the first line of a text. An error of a round has one more line for each node, which the section of
/// the nodes shows.
pub(super) fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

impl View<'_> {
    fn all(&self, frame: &mut Frame<'_>, area: Rect) {
        let count = self.state.nodes.as_ref().map_or(1, |nodes| nodes.value.len());
        let nodes = u16::try_from(count).unwrap_or(u16::MAX).min(if area.height >= TALL { 9 } else { 5 });
        let (runs, events) = if area.height >= TALL { (8, 12) } else { (0, 4) };
        let [nodes, jobs, runs, events] = Layout::vertical([
            Constraint::Length(nodes + 1),
            Constraint::Min(4),
            Constraint::Length(runs),
            Constraint::Length(events),
        ])
        .areas(area);
        self.nodes(frame, nodes, false);
        self.jobs(frame, jobs);
        if runs.height > 0 {
            self.runs(frame, runs);
        }
        self.events(frame, events, 0);
    }

    /// Draws the nodes. With `whole`, a reason that is longer than a line is wrapped.
    fn nodes(&self, frame: &mut Frame<'_>, area: Rect, whole: bool) {
        let nodes = self.state.nodes.as_ref().map_or(&[][..], |nodes| &nodes.value);
        let widest = nodes.iter().map(|node| Line::from(&*node.node.name).width()).max().unwrap_or(4);
        let name = u16::try_from(widest).unwrap_or(u16::MAX).min(area.width / 2);
        let p99 = |text| if area.width >= WIDE { format!("{text:>9}  ") } else { String::new() };
        let mut lines = vec![bold(format!(
            "{:width$}  {:<8}  {:>10}  {}STATE",
            "NODE",
            "VERSION",
            "ROUND TRIP",
            p99("P99".to_owned()),
            width = usize::from(name)
        ))];
        for node in nodes {
            let (state, tone) = node.state();
            let node = &node.node;
            let (name, version) = (fit(&node.name, name), node.version_text());
            let trip = NodeView::time_text(node.round_trip);
            let text = format!(
                "{name}  {version:<8}  {trip:>10}  {}",
                p99(NodeView::time_text(node.round_trip_p99))
            );
            lines.push(Line::from(vec![Span::raw(text), Span::styled(state, self.palette.of(tone))]));
        }
        if !whole && lines.len() > usize::from(area.height) {
            let hidden = lines.len() - usize::from(area.height) + 1;
            lines.truncate(usize::from(area.height).saturating_sub(1));
            lines.push(Line::from(format!("and {hidden} more: Tab shows all nodes")));
        }
        match whole {
            true => scrolled(frame, area, self, lines),
            false => frame.render_widget(Paragraph::new(lines), area),
        }
    }

    fn jobs(&self, frame: &mut Frame<'_>, area: Rect) {
        let rows = self.state.rows();
        let [title, area] = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(area);
        frame.render_widget(Paragraph::new(self.jobs_title(rows.len())), title);
        let chosen = rows.iter().position(|job| Some(&job.name) == self.state.chosen.as_ref());
        let height = usize::from(area.height.saturating_sub(1)).max(1);
        let first = chosen.unwrap_or(0).saturating_sub(height - 1);
        let wide = area.width >= WIDE;
        let shown = rows.iter().enumerate().skip(first).take(height);
        let shown = shown.map(|(at, job)| self.job(job, Some(at) == chosen, wide));
        let mut widths =
            vec![Constraint::Fill(3), Constraint::Fill(3), Constraint::Length(12), Constraint::Fill(4)];
        let mut head = [Order::Name, Order::State, Order::Next, Order::Last].map(Order::heading).to_vec();
        if wide {
            widths.push(Constraint::Fill(3));
            head.push("SCHEDULE");
        }
        let table = Table::new(shown, widths)
            .header(Row::new(head).style(Style::new().add_modifier(Modifier::BOLD)))
            .column_spacing(2);
        frame.render_widget(table, area);
    }

    fn jobs_title<'a>(&self, selected: usize) -> Line<'a> {
        let state = self.state;
        let error = state.jobs_error.as_ref().map(|error| first_line(error));
        let Some(jobs) = &state.jobs else {
            let text = error.map_or("JOBS: asking the nodes".to_owned(), |error| format!("JOBS: {error}"));
            return bold(text);
        };
        let all = jobs.value.len();
        let mut text = match state.filter.is_empty() {
            true => format!("JOBS {all}"),
            false => format!("JOBS {selected} of {all}, filter {:?}", state.filter),
        };
        text += &format!(", by {}", state.order.heading().to_lowercase());
        if state.is_reversed {
            text += " reversed";
        }
        let mut spans = vec![Span::styled(text, Style::new().add_modifier(Modifier::BOLD))];
        if all == 0 {
            spans.push(Span::raw(": a job is registered when a worker that has it first leads the group"));
        }
        spans.extend(self.stale(jobs, error));
        Line::from(spans)
    }

    /// Returns the mark of data that is not up to date.
    pub(super) fn stale<'a, T>(&self, dated: &Dated<T>, error: Option<String>) -> Option<Span<'a>> {
        if error.is_none() && !self.state.is_stale(dated, self.now) {
            return None;
        }
        let error = error.map_or_else(String::new, |error| format!(": {error}"));
        let text = format!("  NOT UPDATED since {}{error}", time_of_day(dated.read.wall));
        Some(Span::styled(text, self.palette.of(Tone::Trouble)))
    }

    fn job<'a>(&self, job: &'a JobView, is_chosen: bool, wide: bool) -> Row<'a> {
        let state = if job.paused.is_some() { Tone::Caution } else { Tone::Plain };
        // A whole time has no room here. The details of the job have it.
        let doing = job.doing(|until| left(until, self.now.wall));
        let next = job.next.map_or("-".to_owned(), |next| relative(next, self.now.wall));
        let (last, tone) = job.ends.first().map_or(("-".to_owned(), Tone::Plain), |end| {
            let took = end.duration().map_or_else(String::new, |took| format!(" in {took}"));
            let why = Some(end.explanation()).filter(|why| !why.is_empty());
            let why = why.map_or_else(String::new, |why| format!(": {why}"));
            (format!("{} {}{took}{why}", end.outcome, relative(end.tick, self.now.wall)), tone(end))
        });
        let mut cells = vec![
            Cell::from(job.shown()),
            Cell::from(Span::styled(doing, self.palette.of(state))),
            Cell::from(next),
            Cell::from(Span::styled(last, self.palette.of(tone))),
        ];
        if wide {
            cells.push(Cell::from(&*job.schedule));
        }
        let style = if is_chosen { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() };
        Row::new(cells).style(style)
    }

    /// Draws the active runs, the oldest first.
    fn runs(&self, frame: &mut Frame<'_>, area: Rect) {
        let jobs = self.state.jobs.as_ref().map_or(&[][..], |jobs| &jobs.value);
        let mut runs: Vec<_> =
            jobs.iter().flat_map(|job| job.running.iter().map(move |run| (run, job))).collect();
        runs.sort_by(|a, b| (&a.0.tick, &a.1.name).cmp(&(&b.0.tick, &b.1.name)));
        let title = format!("RUNS {}", runs.len());
        let first = self.state.scroll_within(runs.len(), area.height);
        let rows = runs.into_iter().map(|(run, job)| {
            let since = relative(run.tick, self.now.wall);
            let (state, tone) = if run.orphaned { ("orphaned", Tone::Caution) } else { ("", Tone::Plain) };
            Row::new([
                Cell::from(job.shown()),
                Cell::from(job.zone.rfc3339(run.tick)),
                Cell::from(since),
                Cell::from(Span::styled(state, self.palette.of(tone))),
                Cell::from(&*run.worker),
            ])
        });
        let widths = [
            Constraint::Fill(2),
            Constraint::Length(32),
            Constraint::Length(11),
            Constraint::Length(8),
            Constraint::Fill(2),
        ];
        let head = [title.as_str(), "TICK", "DUE", "", "WORKER"];
        let table = Table::new(rows.skip(usize::from(first)), widths)
            .header(Row::new(head.map(str::to_owned)).style(Style::new().add_modifier(Modifier::BOLD)));
        frame.render_widget(table.column_spacing(2), area);
    }

    /// Draws the leases of a sidecar's clients, by client.
    fn leases(&self, frame: &mut Frame<'_>, area: Rect) {
        let error = self.state.leases_error.as_ref().map(|error| first_line(error));
        let Some(leases) = &self.state.leases else {
            let text = error.map_or("LEASES".to_owned(), |error| format!("LEASES: {error}"));
            return frame.render_widget(Paragraph::new(bold(text)), area);
        };
        let [title, area] = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(area);
        let mut spans = vec![bold(format!("LEASES of clients {}", leases.value.len())).spans.remove(0)];
        spans.extend(self.stale(leases, error));
        frame.render_widget(Paragraph::new(Line::from(spans)), title);
        let first = self.state.scroll_within(leases.value.len(), area.height);
        let seconds = |ms: u64| format!("{:.1} s", ms as f64 / 1e3);
        let rows = leases.value.iter().map(|lease| {
            let tone = if lease.state == "held" { Tone::Plain } else { Tone::Caution };
            Row::new([
                Cell::from(&*lease.client),
                Cell::from(lease.names.join(", ")),
                Cell::from(Span::styled(&*lease.state, self.palette.of(tone))),
                Cell::from(seconds(lease.age_ms)),
                Cell::from(seconds(lease.quiet_ms)),
            ])
        });
        let widths = [
            Constraint::Fill(4),
            Constraint::Fill(3),
            Constraint::Length(9),
            Constraint::Length(10),
            Constraint::Length(10),
        ];
        let head = ["CLIENT", "HOLDS", "STATE", "AGE", "SILENT FOR"];
        let table = Table::new(rows.skip(usize::from(first)), widths)
            .header(Row::new(head).style(Style::new().add_modifier(Modifier::BOLD)));
        frame.render_widget(table.column_spacing(2), area);
    }

    /// Draws the newest events, the newest first.
    fn events(&self, frame: &mut Frame<'_>, area: Rect, scroll: u16) {
        let mut lines = vec![bold("EVENTS since the start of this view".to_owned())];
        let events = self.state.events.iter().rev().skip(usize::from(scroll));
        for event in events.take(usize::from(area.height.saturating_sub(1))) {
            lines.push(Line::from(vec![
                Span::raw(format!("{}  ", time_of_day(event.at))),
                Span::styled(first_line(&event.text), self.palette.of(event.tone)),
            ]));
        }
        frame.render_widget(Paragraph::new(lines), area);
    }
}

/// Draws lines that are wrapped, and scrolled as far as there are lines.
pub(super) fn scrolled(frame: &mut Frame<'_>, area: Rect, view: &View<'_>, lines: Vec<Line<'_>>) {
    // A line is wrapped between words, which wastes a part of the width.
    let width = usize::from(area.width - area.width / 4).max(1);
    let count = lines.iter().map(|line| line.width().div_ceil(width).max(1)).sum();
    let first = view.state.scroll_within(count, area.height);
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: false }).scroll((first, 0)), area);
}

pub(super) fn bold<'a>(text: String) -> Line<'a> {
    Line::styled(text, Style::new().add_modifier(Modifier::BOLD))
}

/// Returns `text` with exactly `width` columns: cut, or with spaces at its end.
fn fit(text: &str, width: u16) -> String {
    let mut fitted = String::new();
    for c in text.chars() {
        let longer = format!("{fitted}{c}");
        if Line::from(&*longer).width() > usize::from(width) {
            break;
        }
        fitted = longer;
    }
    let used = Line::from(&*fitted).width();
    fitted + &" ".repeat(usize::from(width).saturating_sub(used))
}
