//! Draws the sections of the live view.

use super::{
    clock::{left, relative, time_of_day},
    news::Moment,
    order::Order,
    state::State,
};
use crate::{jobs::tone, terminal::Tone};
use quorate_operator::view::{JobView, NodeView};
use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    style::{Color, Modifier, Style},
    text::{Line, Span},
    widgets::{Cell, Paragraph, Row, Table, Wrap},
};

/// The height from which the list of runs is shown.
const TALL: u16 = 34;
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

/// A view of the state at a point in time.
pub(super) struct View<'a> {
    pub(super) state: &'a State,
    pub(super) now: Moment,
    pub(super) palette: Palette,
}

/// Returns the first line of a text. An error of a round has one more line for each node, which the section of
/// the nodes shows.
pub(super) fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

impl View<'_> {
    pub(super) fn all(&self, frame: &mut Frame<'_>, area: Rect) {
        let count = self.state.known.as_ref().map_or(1, |known| known.value.nodes.len());
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
    pub(super) fn nodes(&self, frame: &mut Frame<'_>, area: Rect, whole: bool) {
        let nodes = self.state.known.as_ref().map_or(&[][..], |known| &known.value.nodes);
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

    pub(super) fn jobs(&self, frame: &mut Frame<'_>, area: Rect) {
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
        let unread = state.known.as_ref().and_then(|known| known.value.state.jobs.as_ref()?.error.as_deref());
        let error = unread.map(first_line);
        let Some((known, jobs)) = state.known.as_ref().zip(state.jobs()) else {
            let text = error.map_or("JOBS: asking the nodes".to_owned(), |error| format!("JOBS: {error}"));
            return bold(text);
        };
        let all = jobs.list.len();
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
        let read = Moment { wall: jobs.read_at.unwrap_or(known.read.wall), ..known.read };
        spans.extend(self.stale(read, error));
        Line::from(spans)
    }

    /// Returns the mark of data that is not up to date.
    pub(super) fn stale<'a>(&self, read: Moment, error: Option<String>) -> Option<Span<'a>> {
        if error.is_none() && !self.state.is_stale(read, self.now) {
            return None;
        }
        let error = error.map_or_else(String::new, |error| format!(": {error}"));
        let text = format!("  NOT UPDATED since {}{error}", time_of_day(read.wall));
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
    pub(super) fn runs(&self, frame: &mut Frame<'_>, area: Rect) {
        let jobs = self.state.jobs().map_or(&[][..], |jobs| &jobs.list);
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
    pub(super) fn leases(&self, frame: &mut Frame<'_>, area: Rect) {
        let error = self.state.leases_error.as_ref().map(|error| first_line(error));
        let Some(leases) = &self.state.leases else {
            let text = error.map_or("LEASES".to_owned(), |error| format!("LEASES: {error}"));
            return frame.render_widget(Paragraph::new(bold(text)), area);
        };
        let [title, area] = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(area);
        let mut spans = vec![bold(format!("LEASES of clients {}", leases.value.len())).spans.remove(0)];
        spans.extend(self.stale(leases.read, error));
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
    pub(super) fn events(&self, frame: &mut Frame<'_>, area: Rect, scroll: u16) {
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
